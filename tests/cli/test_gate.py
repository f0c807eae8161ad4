"""`gate` over studies made by hand: verdicts, exit codes, refusals, files."""

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tests.cli.sides import POLICY, compare, gate, tfbench
from tests.ledger.builder import MANIFEST
from tests.report.pages import Page, injected
from tests.verdict.ledgers import add_study, answers, latencies
from tfbench.cli.app import app
from tfbench.core.errors import TfbenchError


@pytest.mark.parametrize(
    ("base", "candidate", "verdict", "code"),
    [
        ("base", "same", "PASS", 0),
        ("base", "slow", "FAIL", 1),
        ("slow", "base", "PASS", 0),
        ("base", "noisy", "INCONCLUSIVE", 3),
        ("base", "failing", "FAIL", 1),
        ("base", "dead", "FAIL", 1),
        ("base", "invalid", "INVALID", 4),
        ("invalid", "slow", "INVALID", 4),
        ("base", "growing", "FAIL", 1),
        ("growing", "growing2", "INCONCLUSIVE", 3),
        ("base", "wobbly", "PASS", 0),
        ("base", "few", "INVALID", 4),
        ("base", "empty", "INVALID", 4),
        ("empty", "empty2", "INVALID", 4),
        ("dead", "dead2", "INVALID", 4),
        ("dead", "base", "INVALID", 4),
    ],
)
def test_verdicts(folder: Path, base: str, candidate: str, verdict: str, code: int) -> None:
    found, told = gate(folder, base, candidate)
    assert (told["verdict"], found) == (verdict, code), told["reasons"]
    assert bool(told["reasons"]) == (verdict != "PASS")


def test_a_failed_row_comes_first_with_bound_limit_and_both_manifests(folder: Path) -> None:
    _, told = gate(folder, "base", "slow")
    first = told["rows"][0]
    assert (first["figure"], first["verdict"], first["scale"]) == ("ttft_p50_ms", "FAIL", "ratio")
    assert first["lo"] > first["limit"] == pytest.approx(1.05) and 1.2 < first["effect"] < 1.4
    assert first["p_worse"] <= first["p_worse_adjusted"] <= 0.05
    assert told["base"]["manifest"]["name"] == "base" and told["candidate"]["manifest"]["slo"] == {"ttft_ms": 100}
    assert "ttft_p50_ms at load 5: +" in told["reasons"][0]


def test_an_undecided_gate_says_how_many_more_and_can_be_taken_either_way(folder: Path) -> None:
    code, told = gate(folder, "base", "noisy")
    assert code == 3 and told["further_repeats"] is not None and told["further_repeats"] > 1
    assert gate(folder, "base", "noisy", "--inconclusive", "fail")[0] == 1
    code, told = gate(folder, "base", "noisy", "--inconclusive", "pass")
    assert (code, told["verdict"]) == (0, "INCONCLUSIVE")


def test_no_data_is_never_waved_through(folder: Path, tmp_path: Path) -> None:
    assert gate(folder, "dead", "dead2", "--inconclusive", "pass")[0] == 4
    path = tmp_path / "itl.toml"
    path.write_text('[[metric]]\nname = "tpot_after_first_p50_ms"\nmargin = { relative = 0.1 }\n')
    waved = ["--policy", str(path), "--inconclusive", "pass"]
    assert tfbench(folder, "gate", "bare", "bare2", *waved)[0] == 3


def test_a_critical_row_is_never_waved_through(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "critical.toml"
    path.write_text(POLICY.replace("relative = 0.05 }", "relative = 0.05 }\ncritical = true"))
    code, _ = tfbench(folder, "gate", "base", "noisy", "--policy", str(path), "--inconclusive", "pass")
    assert code == 3


def test_the_failure_guard_watches_whatever_the_policy_lists(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "median.toml"
    path.write_text('[[metric]]\nname = "ttft_ok_p50_ms"\nmargin = { relative = 0.9 }\n')
    code, out = tfbench(folder, "gate", "base", "failing", "--policy", str(path), "--json")
    rows = json.loads(out)["rows"]
    assert code == 1 and rows[0]["figure"] == "ok_fraction" and rows[0]["guard"]


def test_quantiles_that_runs_are_too_short_for_dont_pass(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p99.toml"
    path.write_text(POLICY.replace("ttft_p50_ms", "ttft_p99_ms").replace("0.05 }\n[", "0.5 }\n["))
    code, out = tfbench(folder, "gate", "base", "same", "--policy", str(path), "--json")
    assert code == 3 and "runs too short for P99" in json.loads(out)["reasons"][0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["base", "other"], "not the same test (workload_id): slo.ttft_ms: 100 → 200; load: null"),
        (["cold", "warm"], "cache hits differ at load 5: 0% and 80%"),
        (["base", "nope"], "no study 'nope'"),
        (["base", "base:left"], 'has no arm "left"'),
    ],
)
@pytest.mark.parametrize("verb", ["compare", "gate"])
def test_refusals(folder: Path, verb: str, arguments: Sequence[str], says: str) -> None:
    policy = ["--policy", str(folder / "policy.toml")] if verb == "gate" else []
    code, line = tfbench(folder, verb, *arguments, *policy)
    assert code == 2 and says in line and "\n" not in line


def test_loads_of_the_policy_are_those_judged(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("loads = [7]\n" + POLICY)
    code, line = tfbench(folder, "gate", "base", "same", "--policy", str(path))
    assert code == 2 and "loads: 7 is not in both studies; there are 5" in line and line.startswith(str(path))
    path.write_text("loads = [5]\n" + POLICY)
    assert tfbench(folder, "gate", "base", "same", "--policy", str(path))[0] == 0


def test_an_unknown_figure_is_told_before_any_study_is_looked_for(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(POLICY.replace("ttft_p50_ms", "ttft_p5O_ms"))
    code, line = tfbench(folder, "gate", "nope", "nope", "--policy", str(path))
    assert code == 2 and 'did you mean "ttft_p50_ms"?' in line


def test_run_refuses_before_any_request(folder: Path, tmp_path: Path) -> None:
    # Port 9 answers nobody: anything sent would end in an endpoint error.
    for name, tokens in (("a", 8), ("b", 9)):
        (tmp_path / f"{name}.toml").write_text(
            'model = { name = "m" }\nendpoint = { url = "http://127.0.0.1:9/v1" }\n'
            f"workload = {{ input_tokens = {tokens}, output_tokens = 4 }}\nload = {{ repeats = 3 }}\n"
        )
    a, b = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    policy = ["--policy", str(folder / "policy.toml")]
    code, line = tfbench(folder, "gate", "--run", a, b, *policy)
    assert code == 2 and "workload.input_tokens: 8 → 9" in line
    code, line = tfbench(folder, "gate", "--run", a, a, *policy)
    assert code == 2 and "--set load.repeats=5" in line
    elsewhere = tmp_path / "loads.toml"
    elsewhere.write_text("loads = [99]\n" + POLICY)
    five = ["--set", "load.repeats=5"]
    code, line = tfbench(folder, "gate", "--run", a, a, "--policy", str(elsewhere), *five)
    assert code == 2 and "loads: 99 is not in the manifest; there are" in line
    code, line = tfbench(folder, "gate", "--run", a, a, *policy, *five)
    assert code == 5


def test_the_gate_judges_buckets_too(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[[metric]]\nname = "ttft_p50_ms"\nmargin = { relative = 0.05 }\n')
    assert tfbench(folder, "gate", "mix", "code", "--policy", str(path))[0] == 0
    path.write_text(path.read_text() + 'buckets = ["class"]\n')
    code, out = tfbench(folder, "gate", "mix", "code", "--policy", str(path), "--json")
    assert code == 1 and json.loads(out)["rows"][0]["bucket"] == "code"


def test_arms_of_one_study(folder: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w.duckdb"
    for arm, scale in (("left", 1.0), ("right", 1.3)):
        for repeat in range(5):
            rows = answers(latencies(repeat, arm=len(arm), scale=scale))
            add_study(
                warehouse, "both", lambda r, rows=rows: rows, repeats=1, arm=arm, repeat=repeat, seed=repeat,
                schedule_sha256=f"{repeat}", run_id=f"{arm}-{repeat}",
            )  # fmt: skip
    (tmp_path / "policy.toml").write_text(POLICY)
    found = compare(tmp_path, "both:left", "both:right")
    assert found["attribution"] == "attributable to the study's arms, left and right" and found["loads"][0]["paired"]
    code, line = tfbench(tmp_path, "compare", "both:left", "both:left")
    assert code == 2 and line.startswith("base and candidate are the same study, both:left")
    _, told = gate(tmp_path, "both:left", "both:right")
    assert (told["base"]["arm"], told["candidate"]["arm"]) == ("left", "right")
    code, line = tfbench(tmp_path, "compare", "both", "both:left")
    assert code == 2 and "has the arms left, right; name one" in line


def test_what_out_and_the_step_summary_hold(folder: Path, tmp_path: Path) -> None:
    step = tmp_path / "step.md"
    step.write_text("before\n")
    out = tmp_path / "out"
    arguments = ["gate", "base", "slow", "--policy", str(folder / "policy.toml"), "--out", str(out)]
    code, text = tfbench(folder, *arguments, env={"GITHUB_STEP_SUMMARY": str(step)})
    assert code == 1 and text.startswith("FAIL")
    summary = (out / "summary.md").read_text()
    assert step.read_text() == f"before\n{summary}\n" and "❌ tfbench gate: FAIL" in summary
    suite = ElementTree.fromstring((out / "junit.xml").read_text())[0]
    assert (suite.get("failures"), suite.get("skipped"), suite.get("tests")) == ("1", "1", "4")
    assert json.loads((out / "verdict.json").read_text())["verdict"] == "FAIL"
    entries = {one["name"]: one for one in json.loads((out / "benchmark.json").read_text())}
    assert set(entries) == {
        "ttft_p50_ms at load 5", "1 − good_fraction at load 5", "1 − ok_fraction at load 5"
    }  # fmt: skip
    assert entries["1 − good_fraction at load 5"]["value"] > 0 and entries["ttft_p50_ms at load 5"]["unit"] == "ms"


def test_a_file_that_cannot_be_written_does_not_hide_the_verdict(folder: Path) -> None:
    taken = folder / "policy.toml"
    where = [*("--out", str(taken)), *("--warehouse", str(folder / "w.duckdb"))]
    done = CliRunner().invoke(app, ["gate", "base", "slow", "--policy", str(taken), *where])
    assert done.stdout.startswith("FAIL")
    assert isinstance(done.exception, TfbenchError) and "name another with --out" in str(done.exception)


@pytest.mark.parametrize("option", [["--out", "mistyped/out"], ["--html", "mistyped/page.html"]])
def test_a_mistyped_folder_is_told_before_anything_is_run(option: list[str], folder: Path) -> None:
    code, line = tfbench(folder, "gate", "none.toml", "none.toml", "--run", "--policy", "policy.toml", *option)
    assert code == 2 and "there is no folder mistyped; make it, or name another" in line
    assert not (folder / "mistyped").exists()


def test_a_plan_tells_repeats_and_attempts(folder: Path) -> None:
    policy = ["--policy", str(folder / "policy.toml"), "--plan", "--json"]
    code, out = tfbench(folder, "gate", "base", "same", *policy)
    paired = json.loads(out)
    code_alone, out = tfbench(folder, "gate", "base", *policy)
    alone = json.loads(out)
    assert (code, code_alone, paired["paired"], alone["paired"]) == (0, 0, True, False)
    first, second = paired["rows"][0], alone["rows"][0]
    assert first["figure"] == "ttft_p50_ms" and 2 <= first["repeats"] < second["repeats"]
    assert first["attempts"] == 150 and first["attempts_needed"] >= 20 and paired["repeats"] >= 5
    assert (paired["length_factor"], paired["longer"], paired["pilot"]) == (None, None, 5)
    for one in (paired, first):
        assert one["repeats_low"] <= one["repeats_measured"] <= one["repeats"] <= one["repeats_high"]
    [few] = paired["notes"]
    assert few.startswith("5 pilot pairs tell the noise to within a factor of 2.9: run the pilot with 10 or more pairs")
    assert 2.8 < paired["noise_factor"] == alone["noise_factor"] < 2.9, "a study beside itself knows no more of it"
    code, out = tfbench(folder, "gate", "base", "base", *policy)
    twice = json.loads(out)
    assert twice["rows"] == alone["rows"], "a study says as little of pairs beside itself"
    assert twice["notes"] == ["Base and candidate are the same study: taken as one.", *alone["notes"]]
    assert "repeats of either arm" in tfbench(folder, "gate", "base", "same", *policy[:-1])[1]


def test_a_plan_of_too_short_runs_promises_nothing_by_repeats(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p99.toml"
    path.write_text(POLICY.replace("ttft_p50_ms", "ttft_p99_ms"))
    code, out = tfbench(folder, "gate", "base", "same", "--policy", str(path), "--plan", "--json")
    plan = json.loads(out)
    row = next(row for row in plan["rows"] if row["figure"] == "ttft_p99_ms")
    assert code == 0 and plan["repeats"] is None and row["repeats"] is None
    assert plan["length_factor"] == row["length_factor"] >= row["attempts_needed"] / row["attempts"] > 1
    _, text = tfbench(folder, "gate", "base", "same", "--policy", str(path), "--plan")
    assert text.startswith("No number of repeats promises a pass: make runs") and "90 %" not in text


@pytest.mark.parametrize(("key", "now"), [("duration_s", 20.0), ("count", 150)])
def test_a_plan_tells_longer_runs_by_the_manifest_s_own_key(tmp_path: Path, key: str, now: float) -> None:
    (tmp_path / "p.toml").write_text(POLICY.replace("ttft_p50_ms", "ttft_p99_ms"))
    manifest = MANIFEST | {"load": {key: now}}
    add_study(tmp_path / "w.duckdb", "one", lambda r: answers(latencies(r)), manifest=manifest)
    _, out = tfbench(tmp_path, "gate", "one", "--policy", str(tmp_path / "p.toml"), "--plan", "--json")
    plan = json.loads(out)
    name, _, least = plan["longer"].partition(" ≥ ")
    assert name == f"load.{key}" and now * plan["length_factor"] <= int(least) < now * plan["length_factor"] + 1


TO_RUN = ["--base-url=http://x/v1", "--candidate-url=http://x/v1", "--set=load.repeats=5", "--workers=2", "--base-url="]


@pytest.mark.parametrize("option", [*TO_RUN, "--run", "--out=o", "--html=h", "--inconclusive=pass"])
def test_a_plan_refuses_what_it_would_ignore(folder: Path, option: str) -> None:
    plan = ["gate", "base", "same", "--policy", str(folder / "policy.toml"), "--plan"]
    code, line = tfbench(folder, *plan, option)
    name = option.partition("=")[0]
    assert code == 2
    assert line == f"{name}: --plan reads stored studies and only says how many repeats it takes; leave it out"


@pytest.mark.parametrize("option", TO_RUN)
def test_a_gate_of_stored_studies_refuses_what_it_would_ignore(folder: Path, option: str) -> None:
    code, line = tfbench(folder, "gate", "base", "same", "--policy", str(folder / "policy.toml"), option)
    name = option.partition("=")[0]
    assert (code, line) == (2, f"{name}: only --run uses it, stored studies stand as they are; leave it out")


def test_what_is_ignored_is_named_all_at_once_and_one_study_takes_one_warehouse(folder: Path) -> None:
    plan = ["gate", "base", "--policy", str(folder / "policy.toml"), "--plan"]
    code, line = tfbench(folder, *plan, "--run", "--set", "a=1", "--workers", "2")
    assert code == 2 and line.startswith("--run, --set, --workers: ") and line.endswith("leave them out")
    code, line = tfbench(folder, *plan, "--warehouse", str(folder / "w.duckdb"))
    assert code == 2 and line.startswith("--warehouse: one study stands in one")


def test_effects_as_a_page(folder: Path, tmp_path: Path) -> None:
    for arguments in (["compare", "mix", "code"], ["gate", "base", "slow", "--policy", str(folder / "policy.toml")]):
        path = tmp_path / f"{arguments[0]}.html"
        code, out = tfbench(folder, *arguments, "--html", str(path))
        assert code == (1 if arguments[0] == "gate" else 0) and path.exists()
        assert out.startswith("FAIL") if code else out == "", "a verdict is told, a comparison is on the page"
        page = Page(path.read_text(encoding="utf-8"))
        assert injected(page) == [] and page.attributes("data-drawing")[0] == "effects-0"
        assert ("8 worse, " if arguments[0] == "compare" else "FAIL") in page.text
    code, line = tfbench(folder, "compare", "mix", "code", "--html", str(folder / "w.duckdb" / "x.html"))
    assert code == 2 and "there is no folder" in line


def test_two_studies_alike_pass_though_nothing_varies(folder: Path) -> None:
    code, told = gate(folder, "base", "twin")
    assert code == 0 and told["rows"][0]["effect"] is not None


@pytest.mark.parametrize("verb", ["compare", "gate"])
def test_a_study_is_not_put_beside_itself(folder: Path, verb: str) -> None:
    policy = ["--policy", str(folder / "policy.toml")] if verb == "gate" else []
    code, line = tfbench(folder, verb, "base", "base", *policy)
    assert code == 2 and line == "base and candidate are the same study, base; name another"
    code, line = tfbench(folder, verb, "base", "other", "--allow", "slo.tfft_ms", *policy)
    assert code == 2 and line == '--allow: no manifest key "slo.tfft_ms"; did you mean "slo.ttft_ms"?'


def test_an_undecided_guard_is_watched_and_stands_last(folder: Path) -> None:
    code, told = gate(folder, "base", "fails2")
    last = told["rows"][-1]
    assert (code, told["verdict"], last["figure"], last["verdict"]) == (0, "PASS", "ok_fraction", "WATCHED")
    assert "INCONCLUSIVE" not in tfbench(folder, "gate", "base", "fails2", "--policy", str(folder / "policy.toml"))[1]


def test_simulated_against_measured_is_refused_until_allowed(folder: Path) -> None:
    policy = ["--policy", str(folder / "policy.toml")]
    for verb, more in (("compare", []), ("gate", policy)):
        code, line = tfbench(folder, verb, "base", "sim-fast", *more)
        assert code == 2 and line == (
            "the base's runs are measured, the candidate's simulated; compare runs of one kind, or these all the same"
            " with --allow simulated"
        )
    found = compare(folder, "base", "sim-fast", "--allow", "simulated")
    assert found["attribution"].startswith("attributable only to the whole stack: the base's runs are measured")
    assert found["notes"][0].startswith("the base's runs are measured, the candidate's simulated")


def test_rows_of_one_reason_share_a_line_that_says_the_mend(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tails.toml"
    metrics = "".join(
        f'[[metric]]\nname = "{name}_p99_ms"\nmargin = {{ relative = 0.5 }}\n' for name in ("ttft", "e2e")
    )
    path.write_text(metrics)
    code, out = tfbench(folder, "gate", "base", "same", "--policy", str(path), "--json")
    [reason] = json.loads(out)["reasons"]
    assert code == 3 and reason.startswith("2 rows (") and "ttft_p99_ms at load 5" in reason
    assert reason.endswith("times as long; gate --plan says how long")
