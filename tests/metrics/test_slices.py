"""Samples by run and bucket agree with the figures, and keep what figures can't say: infinities."""

import math

import duckdb
import pyarrow as pa
import pytest

from tests.ledger.builder import answer, row
from tests.metrics.conftest import AddRun
from tfbench.metrics import (
    FIGURES,
    Bucket,
    Length,
    bucket_samples,
    combined,
    figures,
    length_of,
    run_figures,
    short_reason,
)

NAMES = tuple(FIGURES)


@pytest.fixture
def study(add_run: AddRun) -> str:
    for repeat in range(3):
        rows = [answer(i, i * 8, ttft=20 + (i * 7 + repeat) % 90) for i in range(100)]
        rows += [row(100 + i, 900 + i, end=5, stream=False, outcome="timeout") for i in range(4)]
        add_run(rows, run_id=f"run-{repeat}", repeat=repeat)
    return "study-1"


def test_over_all_attempts_they_are_the_runs_figures(con: duckdb.DuckDBPyConnection, study: str) -> None:
    runs = [f"run-{i}" for i in range(3)]
    found = bucket_samples(con, study, runs, NAMES)
    frame = run_figures(con, study)
    for told in frame.itertuples():
        sample = found[None, told.figure][told.run_id]
        assert sample.n == told.n
        if told.value is None:
            assert sample.reason == told.reason and (sample.value is None or math.isinf(sample.value))
        else:
            assert sample.value == told.value
    whole = figures(con, study).set_index("figure")
    for name in NAMES:
        interval = combined(FIGURES[name], list(found[None, name].values()))
        assert (interval.value, interval.lo, interval.hi) == tuple(whole.loc[name, ["value", "lo", "hi"]])


def test_a_bucket_has_its_own_attempts_failed_ones_among_them(con: duckdb.DuckDBPyConnection, study: str) -> None:
    ids = [(f"run-{r}", i) for r in range(3) for i in (*range(0, 100, 2), *range(100, 104))]
    table = pa.table(
        {
            "run_id": [run for run, _ in ids],
            "attempt_id": [i for _, i in ids],
            "by": ["class"] * len(ids),
            "label": ["even"] * len(ids),
        }
    )
    found = bucket_samples(con, study, ["run-0", "run-1"], ["ttft_p50_ms", "e2e_p99_ms", "ok_fraction"], table)
    bucket = Bucket("class", "even")
    assert {key for key, _ in found} == {None, bucket}
    sample = found[bucket, "ok_fraction"]["run-0"]
    assert (sample.n, sample.value) == (54, pytest.approx(50 / 54))
    assert found[bucket, "e2e_p99_ms"]["run-1"].value == math.inf
    assert found[None, "ok_fraction"]["run-0"].n == 104
    assert set(found[bucket, "ttft_p50_ms"]) == {"run-0", "run-1"}


def test_short_runs_are_told_with_what_it_takes(con: duckdb.DuckDBPyConnection, study: str) -> None:
    names = ["ttft_p50_ms", "ttft_p99_ms", "ok_fraction", "good_fraction", "goodput_requests_per_s"]
    found = bucket_samples(con, study, ["run-0", "run-1"], names)

    def length(name: str, resolved: float = 0.0) -> Length:
        told = length_of(FIGURES[name], list(found[None, name].values()), resolved=resolved)
        assert told is not None
        return told

    def short(name: str) -> str | None:
        return short_reason(FIGURES[name], list(found[None, name].values()))

    assert short("ttft_p50_ms") is None and length("ttft_p50_ms").n == 104
    assert "runs too short" in (short("ttft_p99_ms") or "") and length("ttft_p99_ms").needed >= 1000
    assert short("ok_fraction") is None
    # 4 of 104 fail, in one stretch: the plan is that of a fraction so near 1, or of one no nearer than asked.
    assert length("ok_fraction").n == 104 and length("ok_fraction").needed > 100
    assert length("ok_fraction").needed > length("ok_fraction", 0.2).needed >= 50
    # Rates count attempts: as many as tell how being good is correlated.
    assert length("goodput_requests_per_s").n == 104
    assert length("goodput_requests_per_s", 0.5).needed == length("good_fraction", 0.5).needed
    assert length("goodput_requests_per_s").needed > length("goodput_requests_per_s", 0.5).needed
    assert length_of(FIGURES["ok_fraction"], []) is None


def test_what_was_always_so_needs_fifty_attempts(add_run: AddRun, con: duckdb.DuckDBPyConnection) -> None:
    add_run([answer(i, i * 8, ttft=20) for i in range(30)], run_id="run-0")
    found = bucket_samples(con, "study-1", ["run-0"], ["ok_fraction", "throughput_requests_per_s"])
    for name in ("ok_fraction", "throughput_requests_per_s"):
        length = length_of(FIGURES[name], list(found[None, name].values()))
        assert length is not None and (length.n, length.needed) == (30, 50)
        assert short_reason(FIGURES[name], list(found[None, name].values())) is None
