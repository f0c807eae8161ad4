"""What verdicts ask of a run."""

import math
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.ledger.builder import Row, ns, row
from tests.metrics.conftest import AddRun
from tfbench.core.errors import UsageError
from tfbench.metrics import Spans, in_flight_spans
from tfbench.stats.slope import backlog_slope


def in_flight(spans: Spans, *at_ms: float) -> list[int]:
    """How many spans hold each moment."""
    return [int(np.sum((spans.start_ns <= ns(ms)) & (ns(ms) < spans.end_ns))) for ms in at_ms]


SPREAD = [
    row(1, -100, end=150),  # ends at 50
    row(2, 100, end=100),  # 100 to 200
    row(3, 100, end=400, sent=200),  # waits for 200 ms, sent at 300, ends at 500
    row(4, 150, sent=None, outcome="unsent", stream=False),
    row(5, 400, end_ns=None, outcome="unfinished"),
    row(6, 50, end=10, role="probe"),
    row(7, 1200, phase="drain"),
]


def test_in_flight_from_the_schedule(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(SPREAD, mode="open_capped")
    spans = in_flight_spans(con, "run-1")
    assert spans is not None
    assert in_flight(spans, 0, 50, 100, 150, 200, 400, 500) == [1, 0, 2, 3, 2, 3, 2]


def test_in_flight_from_the_send(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(SPREAD, mode="open_capped")
    spans = in_flight_spans(con, "run-1", since="sent_ns")
    assert spans is not None
    assert in_flight(spans, 0, 50, 100.1, 200, 300, 400.1, 500) == [1, 0, 1, 0, 1, 2, 1]


def test_spans_are_what_the_slope_takes(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    growing: list[Row] = [row(i, i * 10, end=1000 - i * 10 + 0.5) for i in range(100)]
    add_run(growing)
    spans = in_flight_spans(con, "run-1")
    assert spans is not None
    assert bool(np.all(spans.end_ns >= spans.start_ns))
    slope = backlog_slope(spans.start_ns, spans.end_ns, spans.window_start_ns, spans.window_end_ns)
    assert slope.value == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("since", ["sent_ns", "scheduled_ns"])
def test_no_window_no_series(con: duckdb.DuckDBPyConnection, add_run: AddRun, since: Any) -> None:
    add_run([], measure_start_ns=None, measure_end_ns=None, load_value=math.inf)
    assert in_flight_spans(con, "run-1", since=since) is None


def test_no_such_run(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UsageError, match="no run 'nope'"):
        in_flight_spans(con, "nope")
