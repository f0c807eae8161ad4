"""From a warehouse to a report, over facts made by hand."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.ledger.builder import MANIFEST as BY_HAND
from tests.ledger.builder import answer, row, write_run
from tests.report.pages import Page
from tfbench.core.errors import UsageError
from tfbench.ledger.bundle import write_bundle
from tfbench.ledger.schemas import ATTEMPTS, STREAMS
from tfbench.manifest import freeze, load_manifest
from tfbench.report import ReportData, build_report, html_report, json_document, print_summary
from tfbench.report.model import LoadPoint
from tfbench.report.overview import standing_notes
from tfbench.warehouse import Warehouse

MANIFEST = """
name = "by-hand"
[model]
name = "m"
[endpoint]
adapter = "openai"
[load]
rates = [2, 4, 8]
duration_s = 10
repeats = 3
[slo]
ttft_ms = 500
[cost]
resources = [{ name = "gpu", hourly = 3.6, count = 1 }]
"""
STUDY = "study-by-hand"
START_NS = 1_790_000_000_000_000_000
WINDOW_NS = 10 * 10**9
MS = 10**6
CHUNKS = 5


def _attempt(run_id: str, i: int, rate: float, slow: float, start: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attempt i: first chunk after 50 to 150 ms, four gaps of 10 ms; every tenth is turned away."""
    due = start + int(i / rate * 10**9)
    rejected = i % 10 == 9
    ttft = int(slow * (50 + 100 * ((i * 7) % 11) / 11) * MS)
    chunks = [] if rejected else [due + ttft + k * 10 * MS for k in range(CHUNKS)]
    attempt = {
        "run_id": run_id,
        "attempt_id": i,
        "task_id": f"t{i}",
        "try": 0,
        "role": "load",
        "phase": "measure",
        "new_connection": False,
        "stamp_source": "kernel",
        "scheduled_ns": due,
        "dispatched_ns": due + MS // 10,
        "sent_ns": due + MS // 5,
        "end_ns": due + MS if rejected else chunks[-1] + MS,
        "outcome": "rejected" if rejected else "ok",
        "http_status": 429 if rejected else 200,
        "error": "<b>busy</b>" if rejected else None,
        "output_tokens": None if rejected else CHUNKS,
    }
    stream = {
        "run_id": run_id,
        "attempt_id": i,
        "t_ns": chunks,
        "user_ns": chunks,
        "kind": ["text"] * len(chunks),
        "tokens": [1] * len(chunks),
        "blur_ns": [0] * len(chunks),
    }
    return attempt, stream


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Three rates of three repeats: at 4 one run is INVALID, at 8 every run is unstable."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "m.toml").write_text(MANIFEST)
    frozen = freeze(load_manifest(folder / "m.toml"))
    ids = {name: getattr(frozen, name) for name in ("manifest_id", "workload_id", "system_id")}
    with Warehouse.open(folder / "w.duckdb") as opened:
        for order, (rate, repeat) in enumerate((rate, repeat) for rate in (2.0, 4.0, 8.0) for repeat in range(3)):
            run_id = f"run-{rate:g}-{repeat}"
            start = START_NS + order * 60 * 10**9
            pairs = [_attempt(run_id, i, rate, 1 + 0.02 * repeat, start) for i in range(int(rate * 10))]
            facts = {
                "study_id": STUDY,
                "created_ns": START_NS,
                "tfbench_version": "0.1.0",
                "host": {"name": "h"},
                "run_id": run_id,
                **ids,
                "mode": "open",
                "load_value": rate,
                "repeat": repeat,
                "order_index": order,
                "seed": 2**62 + order,
                "status": "complete",
                "measure_start_ns": start,
                "measure_end_ns": start + WINDOW_NS,
                "signals": {"sent_share": {"value": 1.0, "limit": 0.99, "relation": ">=", "unit": "", "ok": True}},
                "origin": "measured",
            }
            tables = {
                "attempts": pa.Table.from_pylist([a for a, _ in pairs], schema=ATTEMPTS),
                "streams": pa.Table.from_pylist([s for _, s in pairs], schema=STREAMS),
            }
            opened.ingest(write_bundle(folder / run_id, manifest=frozen.document, run=facts, tables=tables))
            invalid, unstable = run_id == "run-4-1", rate == 8.0
            opened.add_verdicts(
                [
                    {"run_id": run_id, "ruleset": "test", "kind": kind, "verdict": verdict, "reasons": reasons}
                    for kind, verdict, reasons in (
                        ("validity", "INVALID" if invalid else "VALID", ["sent late"] if invalid else []),
                        ("stability", "unstable" if unstable else "stable", ["the backlog grows"]),
                    )
                ]
            )
        yield opened


@pytest.fixture(scope="module")
def data(warehouse: Warehouse) -> ReportData:
    return build_report(warehouse, STUDY)


def test_the_study_and_its_runs(data: ReportData) -> None:
    assert (data.study.name, data.study.judged, data.mode, data.simulated) == ("by-hand", False, "open", False)
    assert [load.value for load in data.loads] == [2.0, 4.0, 8.0]
    assert len(data.runs) == 9
    assert [run.run_id for run in data.runs if run.invalid] == ["run-4-1"]
    assert data.runs[0].window_s == 10.0
    assert data.runs[0].signals[0].ok is True


def test_figures_are_of_the_runs_that_are_fit(data: ReportData) -> None:
    goodput = {load.value: data.figure(load, "goodput_requests_per_s") for load in data.loads}
    assert {load: f.k for load, f in goodput.items() if f is not None} == {2.0: 3, 4.0: 2, 8.0: 3}
    told = {(f.run_id, f.name) for f in data.run_figures if f.load.value == 4.0}
    assert {run_id for run_id, name in told if name == "goodput_requests_per_s"} == {"run-4-0", "run-4-2"}
    assert ("run-4-1", "client_lag_p99_ms") in told, "the lag of an INVALID run is told"
    fraction = data.figure(LoadPoint(2.0), "good_fraction")
    assert fraction is not None
    assert fraction.value == pytest.approx(0.9)
    assert fraction.n == 60
    counts = {c.load.value: c.counted for c in data.counts}
    assert counts == {2.0: 60, 4.0: 80, 8.0: 240}


def test_quantiles_of_the_unstable_load_are_withheld(data: ReportData) -> None:
    shown, withheld = data.figure(LoadPoint(2.0), "ttft_p50_ms"), data.figure(LoadPoint(8.0), "ttft_p50_ms")
    assert shown is not None
    assert shown.value is not None
    assert 50 < shown.value < 160
    assert withheld is not None
    assert withheld.empty
    assert "withheld" in (withheld.reason or "")


def test_outcomes_are_of_every_run(data: ReportData) -> None:
    at_four = {(o.repeat, o.outcome): o.n for o in data.outcomes if o.load.value == 4.0}
    assert at_four == {(r, outcome): n for r in range(3) for outcome, n in (("ok", 36), ("rejected", 4))}
    assert {(e.load.value, e.error, e.n) for e in data.errors} == {
        (2.0, "<b>busy</b>", 6),
        (4.0, "<b>busy</b>", 12),
        (8.0, "<b>busy</b>", 24),
    }


def test_distributions(data: ReportData) -> None:
    found = {(cdf.load.value, cdf.metric): cdf for cdf in data.cdfs}
    assert set(found) == {(load, metric) for load in (2.0, 4.0, 8.0) for metric in ("ttft", "tpot", "icl", "e2e")}
    ttft, icl = found[2.0, "ttft"], found[2.0, "icl"]
    assert (ttft.n, ttft.n_inf, ttft.k) == (60, 6, 3)
    assert ttft.p[-1] == pytest.approx(0.9)
    assert (icl.n, icl.n_inf) == (54 * 4, 0)
    assert icl.x == pytest.approx([10.0], rel=1.1e-3)
    assert found[4.0, "e2e"].k == 2


def test_definitions_come_along(data: ReportData) -> None:
    names = {definition.name for definition in data.definitions}
    assert {figure.name for figure in data.figures} <= names


def test_all_three_forms_are_made_of_it(data: ReportData) -> None:
    text = Page(html_report(data)).text
    assert "8 of 9 runs VALID, 1 INVALID, 2 of 3 load points stable" in text
    assert "<b>busy</b>" in text
    document = json_document(data)
    assert all(f["value"] is None or math.isfinite(f["value"]) for f in document["figures"])
    assert document["runs"][0]["seed"] == 2**62


def test_no_such_study(warehouse: Warehouse) -> None:
    with pytest.raises(UsageError, match="no study"):
        build_report(warehouse, "nope")


def test_drain_in_a_window_is_a_caution_with_the_rate_between_arrivals(tmp_path: Path) -> None:
    # By count: 100 requests at 10/s that take 5 s each, of which every fifth shows nothing in time.
    with Warehouse.open(tmp_path / "w.duckdb") as opened:
        for repeat in range(5):
            rows = [
                answer(i, i * 100 + repeat * (i % 2), ttft=50 if i % 5 else 200, gap=2450 if i % 5 else 2400)
                for i in range(100)
            ]
            manifest = BY_HAND | {"load": {"count": 100, "rates": [10]}}
            facts = {"run_id": f"run-{repeat}", "repeat": repeat, "load_value": 10.0}
            opened.ingest(write_run(tmp_path, rows, manifest=manifest, **facts))
        data = build_report(opened, "study-1")
    out = io.StringIO()
    print_summary(data, out, 200)
    [said] = [note for note in standing_notes(data) if "drain" in note]
    assert said.startswith("at 10 the window holds 4.")
    assert "between arrivals the rate was 10.0 requests/s, the system's own if it kept up, and 7.99" in said
    assert said.endswith("] of them good")
    assert said in " ".join(out.getvalue().split())
    document = json_document(data)
    named = {figure["figure"]: figure for figure in document["figures"]}
    rate, between = (named[f"throughput{part}_requests_per_s"] for part in ("", "_between_arrivals"))
    assert rate["settled"] and "s of drain a run (33 %): between arrivals the rate was 10.0" in rate["reason"]
    assert between["value"] == pytest.approx(10.0, rel=0.002) and between["lo"] < between["value"] < between["hi"]
    assert list(named).index("throughput_between_arrivals_requests_per_s") > list(named).index(rate["figure"])
    page = " ".join(Page(html_report(data)).text.split())
    assert said in page and "throughput_between_arrivals_requests_per_s" in page


def test_runs_by_duration_say_nothing_of_drain(data: ReportData) -> None:
    assert not any("drain" in note for note in standing_notes(data))
    assert not any("drain" in (figure.reason or "") for figure in data.figures)


def test_answers_that_show_nothing_or_do_not_say_why_they_ended_are_counted(tmp_path: Path) -> None:
    rows = [
        row(0, 0, [(50, "empty", None), (60, "empty", None)], output_tokens=2, finish_reason="length"),
        row(1, 100, [(50, "finish", None)], output_tokens=1, finish_reason="stop"),
        answer(2, 200),
        answer(3, 300, finish_reason="stop"),
    ]
    with Warehouse.open(tmp_path / "w.duckdb") as opened:
        opened.ingest(write_run(tmp_path, rows, manifest=BY_HAND | {"endpoint": {"stream": False}}, load_value=10.0))
        data = build_report(opened, "study-1")
    notes = standing_notes(data)
    assert "answers that showed no text, so that their TTFT is that of their first chunk: 2 at 10" in notes
    assert "ok, though no finish_reason came: 1 at 10" in notes
    assert sum("TTFT is E2E" in note for note in notes) == 1
    [counted] = json_document(data)["counts"]
    assert (counted["shows_nothing"], counted["no_finish_reason"]) == (2, 1)
