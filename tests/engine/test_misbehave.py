import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.errors import UsageError
from tfbench.engine import EngineConfig, config_from_json, config_to_json
from tfbench.engine.misbehave import Act, Chooser, Kind, Misbehaviour, misbehaviour, parse_act

KINDS = st.sampled_from(list(Kind))
VALUES = {
    "after": st.integers(0, 1_000_000),
    "s": st.integers(0, 8_640_000).map(lambda hundredths: hundredths / 100),
    "k": st.integers(1, 1_000_000),
    "retry_after": st.integers(0, 86_400),
    "burst": st.integers(1, 1_000_000),
    "status": st.integers(400, 599),
    "type": st.sampled_from(["text/html", "application/json", "a.b+c/d-e"]),
}
NAMES = {kind: [name for name in VALUES if getattr(parse_act(kind), name) is not None] for kind in Kind}
NAMES[Kind.RESET] = ["after"]


@given(KINDS, st.data())
def test_an_act_reads_as_it_is_written(kind: Kind, data: st.DataObject) -> None:
    values: dict[str, Any] = {name: data.draw(VALUES[name]) for name in NAMES[kind]}
    act = Act(kind, **values)
    assert parse_act(str(act)) == act
    shuffled = ", ".join(f" {name} = {values[name]} " for name in data.draw(st.permutations(list(values))))
    assert parse_act(f" {kind} ; {shuffled}") == act


def test_what_is_left_out_has_a_default() -> None:
    assert parse_act("stall") == parse_act("stall;") == Act(Kind.STALL, after=3, s=1.0)
    assert parse_act("stall; s=0.5") == Act(Kind.STALL, after=3, s=0.5)
    assert parse_act("reset") == Act(Kind.RESET)
    assert [kind for kind in Kind if parse_act(kind).refuses] == ["json_error", "rate_limit", "http_error", "reset"]
    assert not parse_act("reset; after=0").refuses
    needs = [kind for kind in Kind if not parse_act(kind).fits(chat=True, stream=False)]
    assert needs == ["role_only", "tokens_per_chunk", "abort", "stall", "stream_error", "open_end"]
    assert [kind for kind in Kind if not parse_act(kind).fits(chat=False, stream=True)] == ["role_only"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "''.*role_only"),
        ("Stall", "'Stall'.*role_only"),
        ("stall, reset", "'stall, reset'"),
        ("stall; k=3", "'k=3'.*stall takes.*after, s"),
        ("no_usage; after=3", "no_usage takes.*none"),
        ("stall; after", "'after'"),
        ("stall; after=3,", "''"),
        ("stall; after=3, after=3", "'after=3'"),
        ("stall; after=-1", "after must be"),
        ("stall; after=1.5", "after must be"),
        ("stall; after=٣", "after must be"),
        ("stall; s=1e3", "s must be"),
        ("stall; s=nan", "s must be"),
        ("stall; s=86401", "s must be"),
        ("tokens_per_chunk; k=0", "k must be"),
        ("rate_limit; burst=0", "burst must be"),
        ("http_error; status=200", "status must be"),
        ("content_type; type=html", "type must be"),
        ("content_type; type=text/html; charset=x", "type must be"),
    ],
)
def test_nonsense_is_named_in_one_line(text: str, names: str) -> None:
    with pytest.raises(UsageError, match=names) as caught:
        parse_act(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_whatever_a_header_says_is_an_act_or_a_usage_error(text: str) -> None:
    try:
        assert isinstance(parse_act(text), Act)
    except UsageError as error:
        assert str(error).startswith("misbehaviour ")


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (3, "misbehave: expected a table"),
        ({"share": {}}, "misbehave.share: no such setting.*shares, seed"),
        ({"shares": 0.5}, "misbehave.shares: expected a table"),
        ({"shares": {"stal": 0.5}}, "misbehave.shares:.*'stal'"),
        ({"shares": {"stall": -0.1}}, "'stall': expected a share from 0 to 1, got -0.1"),
        ({"shares": {"stall": True}}, "got True"),
        ({"shares": {"stall": math.nan}}, "got nan"),
        ({"shares": {"stall": 0.6, "reset": 0.5}}, "sum to 1.1"),
        ({"seed": 1.5}, "misbehave.seed"),
    ],
)
def test_shares_that_cannot_be_are_named(table: object, names: str) -> None:
    with pytest.raises(UsageError, match=names) as caught:
        misbehaviour(table)
    assert "\n" not in str(caught.value)


def test_it_travels_with_the_config() -> None:
    config = EngineConfig(misbehave=Misbehaviour({"stall; after=3, s=2": 0.1}, seed=4))
    assert config_from_json(config_to_json(config)) == config


def test_shares_are_met_and_repeat_with_the_seed() -> None:
    shares = {"stall": 0.2, "rate_limit; burst=10": 0.3, "reset": 0.1}
    n = 20_000

    def chosen(seed: int) -> list[Act | None]:
        chooser = Chooser(Misbehaviour(shares, seed))
        return [chooser.next(None) for _ in range(n)]

    first = chosen(1)
    assert first == chosen(1) != chosen(2)
    counts = Counter(act.kind if act else None for act in first)
    # Standard errors: sqrt(.2*.8/20000) = 0.0028 and 0.0021 for single ones, sqrt(.3*.7/2000) = 0.0102 in tens.
    assert abs(counts[Kind.STALL] / n - 0.2) < 0.0145
    assert abs(counts[Kind.RESET] / n - 0.1) < 0.011
    assert abs(counts[Kind.RATE_LIMIT] / n - 0.3) < 0.052


@pytest.mark.parametrize(
    "shares", [{"stall": 1.0}, {"stall": 1}, {"reset": 0.7, "stall": 0.3}, {"stall": 0.0, "reset": 1.0}]
)
def test_shares_of_one_befall_everyone(shares: dict[str, float]) -> None:
    chooser = Chooser(Misbehaviour(shares))
    assert all(chooser.next(None) is not None for _ in range(5_000))


def test_none_befall_nobody() -> None:
    for config in (Misbehaviour(), Misbehaviour({"stall": 0.0})):
        chooser = Chooser(config)
        assert all(chooser.next(None) is None for _ in range(1_000))


def test_a_header_overrules_shares_and_a_burst_of_its_goes_on() -> None:
    chooser = Chooser(Misbehaviour({"reset": 1.0}))
    limit = chooser.next("rate_limit; burst=3")
    assert limit is not None and limit.kind is Kind.RATE_LIMIT
    assert chooser.next(None) == limit
    assert chooser.next("stall") == parse_act("stall")  # which ends the burst
    assert chooser.next(None) == parse_act("reset")
    limit = chooser.next("rate_limit; burst=3")
    assert [chooser.next(None) for _ in range(3)] == [limit, limit, parse_act("reset")]
    assert chooser.next("none") is None
