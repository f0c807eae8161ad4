"""Comparisons and verdicts as text: names from outside stay text, whatever is unknown stays a dash."""

import dataclasses
import io
import json
from typing import Any
from xml.etree import ElementTree

from tests.verdict.schema import check
from tfbench.core.jsonio import dump_text
from tfbench.report.gate_files import junit_xml, smaller_is_better, step_summary, verdict_document
from tfbench.report.side_by_side import print_comparison, print_gate, print_plan, runs_words
from tfbench.report.verdict_schema import verdict_schema
from tfbench.verdict.compare import CompareArm, CompareLoad, CompareRow, Comparison
from tfbench.verdict.gate_document import GateArm, GateLoad, GateResult, GateRow, Judged, Value, row_words, samples_text
from tfbench.verdict.gate_plan import GatePlan, PlanRow
from tfbench.verdict.policy import parse_policy
from tfbench.verdict.words import bounds_text, effect_text, n_text

HOSTILE = "a|b<script>`x`\x1b[31m\n# [link](http://x) \x00\u202e"
ROW = GateRow(
    load="inf", figure="e2e_p95_ms", bucket_by="tenant", bucket=HOSTILE, unit="ms", direction="lower", critical=True,
    guard=False, verdict="FAIL", base=Value(10.0, 9.0, None, 5, 2.2),
    candidate=Value(None, None, None, 0, None), scale="ratio",
    limit=1.05, effect=None, lo=1.2, hi=None, p_fine=1.0, p_worse=0.004, p_worse_adjusted=0.008, k=5, method="order",
    further_repeats=None, reason=HOSTILE,
)  # fmt: skip
BLANK = dataclasses.replace(ROW, verdict="INCONCLUSIVE", p_fine=None, p_worse=None, lo=None, critical=False)
RATE = dataclasses.replace(
    ROW, figure="goodput_requests_per_s", unit="requests/s", direction="higher",
    candidate=Value(4.0, 2.0, 5.0, 9, None), bucket=None, bucket_by=None, verdict="INCONCLUSIVE", effect=0.9,
    further_repeats=7,
)  # fmt: skip
LOAD = GateLoad("inf", 5, True, True, (f"base {HOSTILE}: late",), 5, 0, 5, 5, True)
ARM = GateArm("study", HOSTILE, "left|", "m", "w", "s", False, {"name": HOSTILE})
POLICY = parse_policy({"metric": [{"name": "e2e_p95_ms", "margin": {"relative": 0.05}}], "loads": [float("inf")]})
RESULT = GateResult(
    "tfbench.verdict/1", "0", "FAIL", 1, (HOSTILE,), 7, POLICY, HOSTILE, (HOSTILE,), ARM, ARM, (LOAD,),
    (ROW, RATE, BLANK), Judged("FAIL", 0.99, (HOSTILE,), (LOAD,), (ROW,), None),
)  # fmt: skip


def test_markdown_has_one_table_whose_cells_are_text() -> None:
    text = step_summary(RESULT)
    assert "<script>" not in text and "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {line.replace("\\|", "").count("|") for line in rows} == {11}


def test_junit_is_xml_with_a_case_per_row() -> None:
    suite = ElementTree.fromstring(junit_xml(RESULT))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "2")
    assert [case.get("name", "").split()[0] for case in suite] == [
        "measurement", "stability", "e2e_p95_ms", "goodput_requests_per_s", "e2e_p95_ms"
    ]  # fmt: skip
    taken_as_fail = dataclasses.replace(RESULT, verdict="INCONCLUSIVE")
    assert ElementTree.fromstring(junit_xml(taken_as_fail))[0].get("skipped") == "0"


def test_what_has_no_number_is_left_out_of_the_benchmark_file_and_rates_are_turned() -> None:
    [entry] = smaller_is_better(RESULT)
    assert (entry["name"], entry["unit"], entry["value"]) == (
        "1 ÷ goodput_requests_per_s at load inf", "s/requests", 0.25
    )  # fmt: skip


def test_simulated_figures_are_marked_for_machines_too() -> None:
    result = dataclasses.replace(RESULT, candidate=dataclasses.replace(ARM, simulated=True))
    suite = ElementTree.fromstring(junit_xml(result))[0]
    assert suite.get("name") == suite[0].get("classname") == "tfbench gate (SIMULATED)"
    [entry] = smaller_is_better(result)
    assert entry["name"].endswith(" (SIMULATED)")
    assert "SIMULATED" not in junit_xml(RESULT)


def test_the_document_fits_its_schema_and_has_no_infinity() -> None:
    text = dump_text(verdict_document(RESULT))
    assert "Infinity" not in text and "NaN" not in text
    document = json.loads(text)
    check(document, verdict_schema())


def test_the_terminal_shows_rows_of_any_kind() -> None:
    out = io.StringIO()
    print_gate(RESULT, file=out, width=200)
    text = out.getvalue()
    assert text.startswith("FAIL") and "\x1b" not in text and "no finite effect" in text and "critical" in text


def test_n_and_n_eff_stand_beside_the_values_or_where_it_is_narrow_beneath_them() -> None:
    for width, said in ((200, "5 (2) → 0"), (90, ", n 5 (2) → 0")):
        out = io.StringIO()
        print_gate(RESULT, file=out, width=width)
        assert said in out.getvalue() and "K: 5 pairs of runs at load inf" in out.getvalue()
        assert ("n (n_eff)" in out.getvalue()) == (width == 200)
    assert "| 5 (2) → 0 |" in step_summary(RESULT)
    assert samples_text(ROW.base, ROW.base) == "5 (2)" and n_text(1500, 1499.7) == "1,500"
    assert runs_words([("2", True, 1, 1), ("4", False, 5, 4)]) == "1 pair of runs at load 2; 5 and 4 runs at load 4"


def test_the_arm_is_told_wherever_the_study_is() -> None:
    out = io.StringIO()
    print_gate(RESULT, file=out, width=200)
    assert "(study:left|)" in out.getvalue() and "(study:left\\|)" in step_summary(RESULT)
    assert verdict_document(RESULT)["base"]["arm"] == "left|"


def test_one_more_repeat_is_singular() -> None:
    row = dataclasses.replace(RATE, further_repeats=1)
    result = dataclasses.replace(RESULT, further_repeats=1)
    out = io.StringIO()
    print_gate(result, file=out, width=200)
    assert row_words(row).endswith("about 1 more repeat would decide")
    assert row_words(RATE).endswith("about 7 more repeats would decide")
    for text in (out.getvalue(), step_summary(result)):
        assert "About 1 more repeat of both would decide." in text


def compared(says: Any, figure: str, bucket: str | None = None, hidden_by: str | None = None) -> CompareRow:
    value = Value(1.0, None, None, 5, 4.6)
    return CompareRow(
        load="5", figure=figure, bucket_by=None if bucket is None else "class", bucket=bucket, unit="ms",
        direction="lower", base=value, candidate=value, scale="ratio", effect=1.1, lo=1.0, hi=1.2, level=0.95, p=0.1,
        p_adjusted=0.1, k=5, method="t", settled=True, says=says, leans="worse", hidden_by=hidden_by, reason=None,
    )  # fmt: skip


def test_a_comparison_counts_its_rows_and_folds_buckets_that_show_nothing() -> None:
    rows = (
        compared("worse", "ttft_p99_ms", "code"), compared("better", "ttft_p50_ms"),
        compared("undecided", "e2e_p50_ms"), compared("undecided", "e2e_p95_ms", "x"),
        compared("undecided", "e2e_p95_ms", "code", "e2e_p95_ms over all attempts"),
    )  # fmt: skip
    arm = CompareArm("study", "n", None, "m", "w", "s", False)
    loads = (CompareLoad("5", True, 5, 5, 0, 0, ()),)
    out = io.StringIO()
    found = Comparison("tfbench.comparison/1", arm, arm, True, "noise", (), (), (), loads, rows)
    print_comparison(found, file=out, width=200)
    text = out.getvalue()
    assert "1 worse, 1 better, 3 undecided" in text and "e2e_p95_ms" not in text
    assert text.index("class code") < text.index("ttft_p50_ms") < text.index("e2e_p50_ms")
    assert "2 bucket rows that show nothing are in --json, 1 of them leaning worse" in text


def test_a_plan_puts_the_bucket_on_its_own_line_and_tells_longer_runs_instead_of_repeats() -> None:
    row = PlanRow("5", "e2e_p95_ms", "input_tokens", "116–154", 1.1, 0.1, 0.2, *[None] * 4, 40, 370, 9.3, "too short")
    plan = GatePlan(
        "tfbench.gate-plan/1", True, 0.9, 0.95, *[None] * 4, 5, 2.9, 9.3, "load.duration_s ≥ 279", (), (row,)
    )
    out = io.StringIO()
    print_plan(plan, file=out, width=120)
    lines = out.getvalue().splitlines()
    assert lines[0] == "No number of repeats promises a pass: make runs 9.3 times as long (load.duration_s ≥ 279)"
    assert any(line.startswith("e2e_p95_ms ") for line in lines)
    assert any(line.strip() == "input_tokens 116–154" for line in lines)
    assert "90 %" not in out.getvalue()


def test_a_plan_says_its_range() -> None:
    def told(*repeats: int | None, paired: bool = True) -> list[str]:
        row = PlanRow("5", "e2e_p95_ms", None, None, 1.1, 0.1, 0.2, *repeats, 400, 370, None, None)
        notes = ("run the pilot with 10 or more",)
        plan = GatePlan("tfbench.gate-plan/1", paired, 0.9, 0.95, *repeats, 5, 2.9, None, None, notes, (row,))
        out = io.StringIO()
        print_plan(plan, file=out, width=120)
        return out.getvalue().splitlines()

    lines = told(31, 14, 6, 77)
    assert lines[0] == "31 repeats of either arm: equal arms then pass with 90 %"
    assert lines[1] == "14 with the noise as measured; between 6 and 77, as far as 5 pilot pairs can tell (95 %)"
    assert lines[2] == "run the pilot with 10 or more"
    assert any("6 and 77" in line for line in lines if line.startswith("e2e_p95_ms"))
    lines = told(None, 700, 260, None, paired=False)
    assert lines[0].startswith("No number of repeats up to 1,000 lets equal arms pass")
    assert lines[1].startswith(
        "700 with the noise as measured; between 260 and more than 1,000, as far as 5 pilot runs"
    )
    assert told(5, 5, 5, 5)[1] == "5 whatever the noise is, as far as 5 pilot pairs can tell (95 %)"


def test_effects_in_words() -> None:
    assert effect_text(1.1, "ratio", "ms") == "+10 %" and effect_text(20.0, "ratio", "ms") == "× 20"
    assert effect_text(-0.01, "difference", "1") == "-1 points" and effect_text(3.0, "difference", "ms") == "+3 ms"
    assert bounds_text(0.9, 1.05, "ratio", "ms") == "[-10, +5] %" and bounds_text(2, 12, "ratio", "") == "× [2, 12]"
    assert bounds_text(None, 1.05, "ratio", "ms") == "≤ +5 %" and bounds_text(None, None, "ratio", "ms") == ""
