"""Comparisons and verdicts as text: names from outside stay text, whatever is unknown stays a dash."""

import dataclasses
import io
import json
from xml.etree import ElementTree

from tests.verdict.schema import check
from tfbench.core.jsonio import dump_text
from tfbench.report.gate_files import junit_xml, smaller_is_better, step_summary, verdict_document
from tfbench.report.side_by_side import print_gate
from tfbench.report.verdict_schema import verdict_schema
from tfbench.verdict.gate_document import GateArm, GateLoad, GateResult, GateRow, Judged, Value
from tfbench.verdict.policy import parse_policy
from tfbench.verdict.words import bounds_text, effect_text

HOSTILE = "a|b<script>`x`\x1b[31m\n# [link](http://x) \x00\u202e"
ROW = GateRow(
    load="inf", figure="e2e_p95_ms", bucket_by="tenant", bucket=HOSTILE, unit="ms", direction="lower", critical=True,
    guard=False, verdict="FAIL", base=Value(10.0, 9.0, None, 5), candidate=Value(None, None, None, 0), scale="ratio",
    limit=1.05, effect=None, lo=1.2, hi=None, p_fine=1.0, p_worse=0.004, p_worse_adjusted=0.008, k=5, method="order",
    further_repeats=None, reason=HOSTILE,
)  # fmt: skip
BLANK = dataclasses.replace(ROW, verdict="INCONCLUSIVE", p_fine=None, p_worse=None, lo=None, critical=False)
RATE = dataclasses.replace(
    ROW, figure="goodput_requests_per_s", unit="requests/s", direction="higher", candidate=Value(4.0, 2.0, 5.0, 9),
    bucket=None, bucket_by=None, verdict="INCONCLUSIVE", effect=0.9, further_repeats=7,
)  # fmt: skip
LOAD = GateLoad("inf", 5, True, True, (f"base {HOSTILE}: late",), 0, 5, True)
ARM = GateArm("study", HOSTILE, "m", "w", "s", {"name": HOSTILE})
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
    assert {line.replace("\\|", "").count("|") for line in rows} == {10}


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


def test_effects_in_words() -> None:
    assert effect_text(1.1, "ratio", "ms") == "+10 %" and effect_text(20.0, "ratio", "ms") == "× 20"
    assert effect_text(-0.01, "difference", "1") == "-1 points" and effect_text(3.0, "difference", "ms") == "+3 ms"
    assert bounds_text(0.9, 1.05, "ratio", "ms") == "[-10, +5] %" and bounds_text(2, 12, "ratio", "") == "× [2, 12]"
    assert bounds_text(None, 1.05, "ratio", "ms") == "≤ +5 %" and bounds_text(None, None, "ratio", "ms") == ""
