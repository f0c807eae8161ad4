"""The five lines that people read first: every kind of study, and that no headline rests on what isn't settled."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.sample import Sample
from tests.report.studies import SAMPLES
from tfbench.report.again import Again
from tfbench.report.lines import Line, plain_lines, row_words
from tfbench.report.model import ReportData

AGAIN = Again("m.toml", url="http://h/v1")


def lines(data: ReportData, again: Again = AGAIN) -> dict[str, str]:
    """What each lead word says; two of one are joined."""
    found: dict[str, str] = {}
    for line in plain_lines(data, again):
        found[line.lead] = f"{found[line.lead]} {line.text}" if line.lead in found else line.text
    return found


def study(*loads: tuple[float, float, str], mode: str = "open", repeats: int = 5, slo: bool = True) -> Sample:
    """Load points of (load, good fraction, stability), all else well; good has bounds 2 points below, 1 above."""
    sample = Sample(mode=mode)
    if not slo:
        sample.manifest["slo"] = {}
    key = "rates" if mode == "open" else "concurrency"
    sample.manifest["load"] = {"mode": mode, key: [one[0] for one in loads], "duration_s": 60, "repeats": repeats}
    for load, good, stability in loads:
        sample.add_runs(load, repeats, stability=lambda _, word=stability: word)  # type: ignore[misc]
        for stem in ("ttft", "tpot"):
            sample.add_latency(load, stem, 80.0, k=repeats)
        sample.add_work(load, load if stability == "stable" else 2.35, good)
        sample.add_outcomes(load, repeats, {"ok": 100})
    return sample


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (
            study((2, 0.99, "stable")),
            "2 req/s meets the SLO for at least 97 % of requests; no higher load was offered.",
        ),
        (
            study((2, 0.99, "stable"), (4, 0.5, "unstable")),
            "2 req/s meets the SLO for at least 97 % of requests; 4 req/s is beyond this server, which keeps up to"
            " about 2.4 req/s.",
        ),
        (
            study((2, 0.99, "stable"), (4, 0.7, "stable"), (8, 0.1, "unstable"), (16, 0.1, "unstable")),
            "2 req/s meets the SLO for at least 97 % of requests; at 4 req/s 68 to 71 % of them do; 8 req/s and above"
            " is beyond this server, which keeps up to about 2.4 req/s.",
        ),
        (
            study((2, 0.5, "stable"), (4, 0.3, "stable")),
            "no load surely meets the SLO for 90 % of requests: at 2 req/s 48 to 51 %, at 4 req/s 28 to 31 % of them"
            " do.",
        ),
        (study((4, 0.5, "unstable")), "4 req/s is beyond this server, which keeps up to about 2.4 req/s."),
        (study((1, 0.99, "stable"), (4, 0.6, "stable"), mode="closed"), "1 user meets the SLO for at least 97 %"),
        (study((4, 0.99, "stable"), mode="closed"), "4 users meet the SLO for at least 97 % of requests"),
        (study((math.inf, 0.99, "stable")), "all at once meets the SLO for at least 97 % of requests."),
        (
            study((2, 1.0, "stable"), (4, 1.0, "unstable"), slo=False),
            "at 2 req/s the server answered 2.00 requests/s, TTFT P50 80.0 ms, TPOT P50 80.0 ms; 4 req/s is beyond this"
            " server, which keeps up to about 2.4 req/s.",
        ),
    ],
)
def test_the_result_in_words(sample: Sample, says: str) -> None:
    assert lines(sample.data())["Result"].startswith(says)


def unsettle(sample: Sample) -> None:
    for row in sample.figures:
        row |= {"settled": False, "reason": "too few requests: run 4 times as long"}


def spoil(sample: Sample) -> None:
    for row in sample.verdicts:
        if row["kind"] == "validity":
            row |= {"verdict": "INVALID", "reasons": '["the client sent late: client_lag_p99_ms = 4.8 ms (limit ≤ 3)"]'}


@pytest.mark.parametrize("change", [unsettle, spoil])
def test_no_headline_rests_on_what_is_not_settled(change: Callable[[Sample], None]) -> None:
    sample = study((2, 0.99, "stable"), (4, 0.99, "unstable"))
    change(sample)
    says = lines(sample.data())["Result"]
    assert "meets" not in says and "2.4" not in says and "97" not in says


def test_an_invalid_load_is_not_called_overloaded() -> None:
    sample = study((4, 0.5, "unstable"))
    spoil(sample)
    data = sample.data()
    assert row_words(data, data.loads[0]) == "" and "beyond" not in lines(data)["Result"]


def lose(sample: Sample, outcome: str) -> None:
    for row in sample.outcomes:
        if row["phase"] == "measure":
            row |= {"outcome": outcome}


def drop_runs(sample: Sample) -> None:
    del sample.runs[3:]


def stop(sample: Sample) -> None:
    sample.runs[-1]["status"] = "interrupted"


def some_fail(sample: Sample) -> None:
    sample.add_outcomes(2, 1, {"timeout": 3, "rejected": 1})
    sample.errors.append({"load_value": 2.0, "arm": None, "outcome": "timeout", "http_status": None,
                          "error": "nothing came for 30 s", "n": 3})  # fmt: skip


def imported(sample: Sample) -> None:
    for run in sample.runs:
        run["origin"] = "imported:vllm"


def simulated(sample: Sample) -> None:
    for run in sample.runs:
        run["origin"] = "simulated"


def one_unstable(sample: Sample) -> None:
    row = next(row for row in sample.verdicts if row["kind"] == "stability")
    row["verdict"] = "unstable"


def one_invalid(sample: Sample) -> None:
    row = next(row for row in sample.verdicts if row["kind"] == "validity")
    row |= {"verdict": "INVALID", "reasons": '["the client sent late: client_lag_p99_ms = 4.8 ms (limit ≤ 3)"]'}


@pytest.mark.parametrize(
    ("change", "lead", "says"),
    [
        (spoil, "Problem", "5 runs were invalid (no evidence) at 2 req/s: the client sent late (4.8 ms, limit 3 ms)"),
        (one_invalid, "Problem", "1 run was invalid (left out) at 2 req/s: the client sent late (4.8 ms, limit 3 ms)"),
        (one_unstable, "Problem", "requests piled up in 1 of 5 runs at 2 req/s."),
        (lambda s: lose(s, "timeout"), "Result", "none of 500 requests was answered well, so no figure says"),
        (lambda s: lose(s, "timeout"), "Problem", "500 of 500 requests timed out."),
        (drop_runs, "Problem", "3 of 5 planned runs were made."),
        (stop, "Problem", "1 interrupted run at 2 req/s."),
        (some_fail, "Problem", "4 of 504 requests failed: 3 timed out, 1 was rejected (429 or 503)"
                               " (most often: nothing came for 30 s)"),
        (imported, "Problem", "imported:vllm: another tool measured this, and nobody judged how."),
        (simulated, "Result", "SIMULATED, no system was measured: 2 req/s meets the SLO"),
    ],
)  # fmt: skip
def test_no_problem_is_dropped(change: Callable[[Sample], None], lead: str, says: str) -> None:
    sample = study((2, 0.99, "stable"))
    change(sample)
    assert says in lines(sample.data())[lead]


def test_every_problem_at_once_is_told_in_one_line() -> None:
    sample = study((2, 0.99, "stable"), (4, 0.99, "stable"), (8, 0.99, "stable"))
    for change in (one_invalid, some_fail, stop):
        change(sample)
    del sample.runs[7]
    told = [line for line in plain_lines(sample.data(), AGAIN) if line.lead == "Problem"]
    assert len(told) == 1
    for piece in ("14 of 15 planned runs", "interrupted", "invalid (left out)", "4 of 1,504 requests failed"):
        assert piece in told[0].text


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (study((2, 0.99, "stable"), (4, 0.5, "unstable")), "tfbench capacity m.toml --target good_fraction=0.99"),
        (study((2, 0.99, "stable"), (4, 0.5, "stable")), "tfbench capacity m.toml --target good_fraction=0.99"),
        (study((2, 0.99, "stable")), "how much more it bears: tfbench capacity m.toml"),
        (
            study((4, 0.1, "unstable")),
            "try --set load.rates=[0.59,1.2,1.8], or tfbench capacity m.toml --target good_fraction=0.99 --url",
        ),
        (study((4, 0.1, "stable")), "try --set load.rates=[0.5,1,1.5], or tfbench capacity"),
        (study((8, 0.1, "stable"), mode="closed"), "try --set load.concurrency=[1,2,3], or tfbench capacity"),
        (study((2, 0.99, "stable"), repeats=1), "tfbench run m.toml --url http://h/v1 --set load.repeats=5"),
        (study((2, 0.99, "stable"), slo=False), "--set slo.ttft_ms=1000 --set slo.tpot_ms=100"),
    ],
)
def test_the_next_command(sample: Sample, says: str) -> None:
    assert says in lines(sample.data())["Next"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (unsettle, "tfbench run m.toml --url http://h/v1 --set load.duration_s=240"),
        (stop, "run it again: tfbench run m.toml --url http://h/v1"),
        (spoil, "what this machine's client can carry: tfbench calibrate; then"),
        (lambda s: lose(s, "connect_error"), "see what the server says, then run it again: tfbench run m.toml"),
    ],
)
def test_the_next_command_mends_what_is_wrong(change: Callable[[Sample], None], says: str) -> None:
    sample = study((2, 0.99, "stable"))
    change(sample)
    assert lines(sample.data())["Next"].startswith(says)


def test_cautions_stand_in_order_and_the_rest_is_counted() -> None:
    sample = study((2, 0.99, "stable"), repeats=1)
    unsettle(sample)
    sample.counts = [{"load_value": 2.0, "arm": None, "counted": 9, "excluded": 1, "vacuous": 0, "term_unknown": 2,
                      "tokens_unknown": 2}]  # fmt: skip
    told = [line.text for line in plain_lines(sample.data(), AGAIN) if line.lead == "Caution"]
    assert told[0].startswith("one run a load point")
    assert told[1].startswith("too few requests for achieved, TTFT P50, TTFT P95, TPOT P50, goodput, good, cost at 2")
    assert told[1].endswith("run 4 times as long, or make 5 repeats (3 more: --verbose)")


@pytest.mark.parametrize("name", SAMPLES)
def test_five_lines_at_most_and_a_way_on(name: str) -> None:
    told = plain_lines(SAMPLES[name]())
    assert 2 <= len(told) <= 5
    assert told[-1] == Line(
        "Details", f"tfbench report {SAMPLES[name]().study.study_id} --verbose, or --html report.html"
    )
    assert all(line.text and "\n" not in line.text for line in told)


@pytest.mark.parametrize(
    ("again", "run", "capacity"),
    [
        (Again(), "tfbench run MANIFEST --set a.b=1", "tfbench capacity MANIFEST --target good_fraction=0.99"),
        (
            Again(
                "a b.toml", sets=("a.b=2", "load.rates=[1,2]"), options=("--workers", "2"), warehouse=Path("w.duckdb")
            ),
            "tfbench run 'a b.toml' --workers 2 --warehouse w.duckdb --set 'load.rates=[1,2]' --set a.b=1",
            "tfbench capacity 'a b.toml' --target good_fraction=0.99 --workers 2 --warehouse w.duckdb --set a.b=2",
        ),
        (
            Again("m.toml", simulated="p"),
            "tfbench simulate m.toml --profile p --set a.b=1",
            "tfbench capacity m.toml --target good_fraction=0.99 --simulate --profile p",
        ),
        (
            Again(sets=('endpoint.headers={ A = "secret" }', 'endpoint.headers.A="env:KEY"')),
            "tfbench run MANIFEST --set 'endpoint.headers.A=\"env:KEY\"' --set a.b=1",
            "tfbench capacity MANIFEST --target good_fraction=0.99 --set 'endpoint.headers.A=\"env:KEY\"'",
        ),
    ],
)
def test_commands_can_be_pasted_and_hold_no_secret(again: Again, run: str, capacity: str) -> None:
    assert again.run("a.b=1") == run
    assert again.capacity() == capacity
