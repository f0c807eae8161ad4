"""The policy is read whole, and every mistake in it is one line with its mend."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.errors import UsageError
from tfbench.stats.equivalence import Margin
from tfbench.verdict.policy import Policy, parse_policy, read_policy

ROOT = Path(__file__).resolve().parents[2]
METRIC = '[[metric]]\nname = "ttft_p95_ms"\nmargin = { relative = 0.05 }\n'


def read(text: str) -> Policy:
    return parse_policy(tomllib.loads(text), "p.toml")


def test_the_shipped_policy_is_the_one_the_docs_show() -> None:
    path = ROOT / "examples" / "ci" / "policy.toml"
    policy = read_policy(path)
    assert [rule.name for rule in policy.metrics] == ["ttft_p50_ms", "e2e_p95_ms", "good_fraction"]
    assert policy.metrics[0].buckets == ("class",) and policy.metrics[1].buckets == ("input_tokens", "class")
    assert policy.metrics[2].critical and policy.metrics[2].direction == "higher"
    assert path.read_text() in (ROOT / "docs" / "gate.md").read_text()


def test_defaults_and_directions() -> None:
    policy = read(METRIC)
    [rule] = policy.metrics
    assert (policy.level, policy.min_repeats, policy.inconclusive, policy.confirm_level) == (
        0.95, 5, "inconclusive", 0.95
    )  # fmt: skip
    assert rule.margin == Margin(0.05, True) and rule.direction == "lower" and policy.buckets == ()
    assert policy.names == ("ttft_p95_ms", "ok_fraction")
    assert read(METRIC + 'direction = "higher"').metrics[0].direction == "higher"
    assert read("level = 0.99\nloads = [4, inf]\n" + METRIC).confirm_level == 0.99


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "metric: list at least one"),
        ("metric = 3", "metric: list at least one"),
        (METRIC.replace("ttft_p95", "tttf_p95"), 'no figure "tttf_p95_ms"; did you mean "ttft_p95_ms"?'),
        (METRIC.replace("name", "figure"), 'unknown key "figure"'),
        ("levle = 0.9\n" + METRIC, 'unknown key "levle"; did you mean "level"?'),
        ("level = 95\n" + METRIC, "level: expected a number"),
        ("level = 0.3\n" + METRIC, "level: expected a number"),
        ("level = true\n" + METRIC, "level: expected a number"),
        ("level = nan\n" + METRIC, "level: expected a number"),
        ("min_repeats = 1\n" + METRIC, "min_repeats: expected a whole number of at least 3"),
        ('inconclusive = "maybe"\n' + METRIC, "expected one of inconclusive, fail, pass"),
        ("loads = [0]\n" + METRIC, "loads: expected"),
        ('buckets = ["tennant"]\n' + METRIC, 'no "tennant"; did you mean "tenant"?'),
        ("edges = { tenant = [1] }\n" + METRIC, 'edges: unknown key "tenant"'),
        ("edges = { input_tokens = [5, 5] }\n" + METRIC, "edges.input_tokens: expected ascending"),
        ("allow = 3\n" + METRIC, "allow: expected"),
        ('allow = ["load.repeat"]\n' + METRIC, 'allow: no manifest key "load.repeat"; did you mean "load.repeats"?'),
        ('allow = ["repeats"]\n' + METRIC, 'did you mean "load.repeats"?'),
        ('allow = ["load.seed.x"]\n' + METRIC, 'did you mean "load.seed"?'),
        ('allow = [""]\n' + METRIC, "allow: expected"),
        ('allow = ["zzz"]\n' + METRIC, "name one as load.repeats, or test, cache, simulated"),
        (METRIC.replace("relative", "relativ"), 'margin: unknown key "relativ"; did you mean "relative"?'),
        (METRIC.replace("{ relative = 0.05 }", "{}"), "margin: expected"),
        (METRIC + METRIC, "listed twice"),
        (METRIC.replace("0.05", "1.5"), "below 1"),
        (METRIC.replace("0.05", "-0.1"), "at least 0"),
        (METRIC.replace("0.05", "inf"), "margin: expected"),
        (METRIC.replace("{ relative = 0.05 }", "0.05"), "margin: expected how much worse"),
        (METRIC.replace("{ relative = 0.05 }", "{ relative = 0.05, absolute = 3 }"), "margin: expected"),
        ('[[metric]]\nname = "good_fraction"\nmargin = { relative = 0.05 }', "takes an absolute one"),
        ('[[metric]]\nname = "good_fraction"\nmargin = { absolute = 5 }', "can't move by 5"),
        ('[[metric]]\nname = "good_fraction"', "margin: expected"),
        (METRIC + 'direction = "up"', "direction: expected one of lower, higher"),
        (METRIC + "critical = 1", "critical: expected true or false"),
    ],
)
def test_mistakes_are_told_in_one_line_with_the_file(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert says in str(caught.value) and str(caught.value).startswith("p.toml: ") and "\n" not in str(caught.value)


def test_files_that_cant_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: there is no such policy; .* examples/ci/policy\.toml"):
        read_policy(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="can't read the policy"):
        read_policy(tmp_path)
    (tmp_path / "bad.toml").write_bytes(b"\xff = [")
    with pytest.raises(UsageError, match="not valid TOML"):
        read_policy(tmp_path / "bad.toml")


def test_flags_add_to_the_policy() -> None:
    policy = read(METRIC).with_flags("fail", ["cache"])
    assert (policy.inconclusive, policy.allow) == ("fail", ("cache",))
    assert dataclasses.replace(policy, inconclusive="inconclusive", allow=()) == read(METRIC)
    with pytest.raises(UsageError, match="^--inconclusive: expected one of"):
        read(METRIC).with_flags("neutral", ())
    with pytest.raises(UsageError, match='^--allow: no manifest key "slo.tfft_ms"; did you mean "slo.ttft_ms"'):
        read(METRIC).with_flags(None, ["slo.tfft_ms"])
    names = ("test", "cache", "simulated", "load", "engine.args.dtype", "workload.input_tokens.mean", "sampling.top_p")
    assert read(METRIC).with_flags(None, names).allow == names


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["ttft_p95_ms"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "margin", "x"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["level", "metric", "loads", "edges", "buckets", "allow", "nope"]), JUNK))
def test_any_document_is_a_policy_or_a_usage_error(document: dict[str, object]) -> None:
    try:
        assert parse_policy(document).metrics
    except UsageError as error:
        assert "\n" not in str(error)
