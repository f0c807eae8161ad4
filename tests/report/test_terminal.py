import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.report.sample import Sample
from tests.report.studies import PROFILES, SAMPLES, profiles
from tfbench.metrics.courses import Course
from tfbench.report import json_document, print_summary, summary
from tfbench.report.model import CapacityFound, LoadPoint
from tfbench.report.overview import caution_notes
from tfbench.stats.warmup import Leak

COMMANDS = ("Next", "Details")
"""Lines that only the terminal breaks, so that what they say can be pasted."""


def printed(name: str, width: int, *, verbose: bool = False) -> str:
    out = io.StringIO()
    print_summary(SAMPLES[name](), out, width, verbose=verbose)
    return out.getvalue()


def test_one_row_per_load_point_in_a_hundred_columns() -> None:
    text = printed("healthy", 100)
    assert text.count("TTFT P95") == 1, "one table, and no line about its columns where nothing is amiss"
    for piece in ("1.99 ±0.08", "80.0 ±2.4", "187 ±14", "99.5 [97.5, 100.0]", "2.92 ±0.12", "USD/Mtok"):
        assert piece in text
    for row in ("2      1.99", "4      3.98", "8      7.96"):
        assert row in text
    assert "15 runs: 15 valid." in text and "±, [ ]: 95 % intervals" in text


@pytest.mark.parametrize("name", SAMPLES)
def test_after_the_table_come_at_most_five_plain_lines(name: str) -> None:
    text = printed(name, 110)
    lines = [line for line in text.rpartition("\n\n")[2].rstrip("\n").split("\n") if not line.startswith(" ")]
    assert 2 <= len(lines) <= 5
    leads = [line.partition(" ")[0] for line in lines]
    assert leads[0] == "Result" and leads[-1] == "Details"
    assert set(leads) <= {"Result", "Caution", "Problem", "Next", "Details"}
    assert printed(name, 110, verbose=True).startswith(text.rstrip("\n")), "what is behind follows"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [170, 100, 80])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_cut(name: str, width: int) -> None:
    text = printed(name, width)
    assert max(len(line) for line in text.split("\n") if not line.startswith(COMMANDS)) <= width
    table = text.split("\n\n")[1]
    if name != "troubled":  # its currency is cut on purpose
        assert "…" not in table
    verbose = printed(name, width, verbose=True)
    assert max(len(line) for line in verbose.split("\n") if not line.startswith(COMMANDS)) <= width


def test_at_eighty_columns_every_figure_is_still_there() -> None:
    text = printed("healthy", 80)
    for piece in ("±0.08", "±2.4", "±14", "±0.4", "[97.5, 100.0]", "0.772"):
        assert piece in text


def test_verbose_says_what_intervals_rest_on_and_how() -> None:
    assert "t on log" not in printed("healthy", 100)
    text = " ".join(printed("healthy", 100, verbose=True).split())
    assert "Intervals hold with 95 %, from 5 runs a load point and 600–2,400 requests in all." in text
    assert "this run only" not in text and "t on log of runs (K=5)" in text
    assert "quality not judged" in text
    assert "vacuously (one output token or chunk): 3 at 2" in text
    assert "quality not judged" not in printed("arms", 100)


def test_marks_are_explained_in_a_line_and_in_full_where_asked() -> None:
    text = " ".join(printed("troubled", 120).split())
    for piece in (
        "110? ≥ 107",
        "≥ 750",
        "?: too little measured",
        "≥ ≤: only a bound",
        "–: no value",
        "8 4.00 ±0.16 overloaded: 900 of 2,415 requests timed out",
        "5 interrupted",
    ):
        assert piece in text
    healthy = printed("healthy", 100)
    assert "?:" not in healthy and "≥ ≤" not in healthy and "–:" not in healthy
    text = " ".join(printed("troubled", 100, verbose=True).split())
    for piece in (
        "? TTFT P50, TTFT P95, TPOT P50 at 4: P99 not settled",
        "zero qualified tokens: lower bound only",
        "INVALID at 4, repeat 1, 3: client lag p99 5.17 ms > 5 ms",
        "unstable at 8, repeat 0, 1, 2, 3, 4: backlog grows",
        "4: 2 of 5 runs INVALID and left out of the figures",
        "16: 5 interrupted of 5 runs",
    ):
        assert piece in text


def test_reasons_that_differ_in_numbers_are_one_line() -> None:
    sample = Sample()
    for load, worth, times in ((2.0, 1.2, 9), (4.0, 3.4, 3)):
        sample.add_runs(load, 3)
        why = f"too few requests beyond P95 (worth {worth} independent ones, 10 needed): run {times} times as long"
        sample.add_figure(load, "ttft_p95_ms", "ms", 80.0, lo=70.0, settled=False, reason=why)
    out = io.StringIO()
    print_summary(sample.data(), out, 170, verbose=True)
    told = [line for line in out.getvalue().splitlines() if "TTFT P95 at 2, 4" in line]
    assert [line.strip() for line in told if line.startswith("?")] == [
        "? TTFT P95 at 2, 4: too few requests beyond P95 (worth 1.2–3.4 independent ones, 10 needed): "
        "run 3–9 times as long"
    ]


@pytest.mark.parametrize(
    ("k", "says"),
    [
        (1, "one run a load point: the figures speak of this run only, how far runs differ isn't known."),
        (2, "two runs a load point: the figures speak of these runs only, how far runs differ isn't known."),
    ],
)
def test_one_run_or_two_speak_of_themselves_only(k: int, says: str) -> None:
    sample = Sample()
    sample.add_runs(2.0, k)
    sample.add_figure(2.0, "ttft_p50_ms", "ms", 80.0, lo=70.0, hi=90.0, k=k)
    out = io.StringIO()
    print_summary(sample.data(), out, 170)
    told = " ".join(out.getvalue().split())
    assert f"Caution {says}" in told


def test_a_warm_up_that_leaks_is_in_the_state_and_says_what_would_do() -> None:
    sample = Sample()
    for load in (2.0, 4.0):
        sample.add_runs(load, 5)
        sample.add_latency(load, "ttft", 80.0)
        sample.add_work(load, load, 0.99)
    leak = Leak(True, 1e-9, "TTFT", 0.95, 0.09, 0.08, True, 6000, 5, None)
    data = sample.data(courses=[Course(4.0, None, leak, 9.6)])
    out = io.StringIO()
    print_summary(data, out, 170)
    text = " ".join(out.getvalue().split())
    # One and a half times 9.6 s, rounded up; this manifest has no warm-up.
    assert (
        "Caution warm-up at 4: the start of the window differs from the rest (it moves TTFT P95 by +9%):"
        " set load.warmup_s = 15" in text
    )
    figure = data.figure(LoadPoint(4.0), "ttft_p95_ms")
    assert figure is not None and not figure.settled and figure.value is not None and figure.hi is not None
    assert data.figure(LoadPoint(2.0), "ttft_p95_ms").settled  # type: ignore[union-attr]
    (told,) = json_document(data)["warm_ups"]
    assert (told["load_value"], told["detected"], told["warmup_s"], told["p"]) == (4.0, True, 15.0, 1e-9)
    assert "last 70 %" in told["method"]


@pytest.mark.parametrize(
    ("restarted", "mend"),
    [(False, "restart the server before each ([hooks] restart)"), (True, "something besides the server's process")],
)
def test_repeats_that_follow_one_another_are_told(restarted: bool, mend: str) -> None:
    sample = Sample()
    sample.add_runs(2.0, 8)
    sample.add_latency(2.0, "ttft", 80.0, k=8)
    ids = {run["repeat"]: run["run_id"] for run in sample.runs}
    for run in sample.runs:
        run["restart"] = run["repeat"] if restarted else None
    for row in sample.run_figures:
        row |= {"value": 80.0 + 2.0 * row["repeat"], "run_id": ids[row["repeat"]]}
    data = sample.data()
    (told,) = caution_notes(data)
    assert told.startswith("repeats follow one another (neighbours correlate by 0.")
    assert f"intervals over 8 repeats are too narrow; {mend}" in told
    # The loads of a search depend on what came before; its repeats come back to them in no order.
    searched = CapacityFound("good fraction >= 0.9", "req/s", 1.0, 2.0, 0.95, "found", None, None, 8, ())
    assert caution_notes(replace(data, capacity=searched)) == []


def test_arms_with_long_names_are_told_apart() -> None:
    text = printed("profiles", 100)
    flat = " ".join(text.split())
    assert f"Arms: arm 1 = {PROFILES[0]}; arm 2 = {PROFILES[1]}." in flat
    for label in ("4 · arm 1", "4 · arm 2", "16 · arm 1", "16 · arm 2"):
        assert label in text
    assert "Arms:" not in printed("arms", 100) and "4 · candidate" in printed("arms", 100)


def test_the_profile_is_named_and_missing_runs_are_told() -> None:
    out = io.StringIO()
    print_summary(profiles(done=5), out, 120)
    assert f"SIMULATED on {PROFILES[0]}, {PROFILES[1]}" in out.getvalue()
    assert "5 of 12 planned runs: 5 valid." in out.getvalue()
    served = Sample()
    served.manifest |= {"hooks": {"restart": "engine"}}
    served.manifest["engine"] |= {"args": {"profile": "l4-llama-3.2-1b"}}
    out = io.StringIO()
    print_summary(served.data(), out, 120)
    assert "profile l4-llama-3.2-1b" in out.getvalue()


def test_simulated_is_marked() -> None:
    assert "SIMULATED" in printed("lone", 100).splitlines()[2]
    assert "SIMULATED" not in printed("healthy", 100)


@pytest.mark.parametrize("name", SAMPLES)
def test_outside_text_cannot_steer_the_terminal(name: str) -> None:
    out = io.StringIO()
    Console(file=out, width=100, force_terminal=False, color_system=None).print(summary(SAMPLES[name](), 100))
    assert not {c for c in out.getvalue() if ord(c) < 32 and c != "\n"}
    assert "\u202e" not in out.getvalue()


def test_markup_in_names_is_text() -> None:
    sample = Sample()
    sample.manifest["name"] = "[bold red]x[/] \x1b[31m"
    out = io.StringIO()
    print_summary(sample.data(), out, 100)
    assert "[bold red]x[/]" in out.getvalue()
    assert "\x1b" not in out.getvalue()
