"""What verdicts ask of a run."""

import math

import duckdb
import numpy as np
import pytest

from tests.ledger.builder import Row, answer, ns, row
from tests.metrics.conftest import AddRun
from tfbench.core.errors import UsageError
from tfbench.metrics import in_flight_series, in_flight_spans, validity_inputs
from tfbench.stats.slope import backlog_slope


def test_validity_inputs(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    late = {"sent": 3.0}
    add_run(
        [
            answer(1, -5, phase="warmup", sent=4.0, blur_ns=9_000_000),
            *(answer(i, i * 10) for i in range(2, 100)),
            answer(100, 990, **late),
            answer(101, 991, **late, outcome="cancelled", blur_ns=1_000_001),
            answer(102, 992, outcome="timeout", blur_ns=1_000_000),
            row(103, 993, sent=None, outcome="unsent", stream=False),
            row(104, 994, sent=None, outcome="connect_error", stream=False, dispatched_ns=ns(994)),
            row(105, 995, [(5, "role", None), (6, "comment", None)], stamp_source="user", blur_ns=5_000_000),
            answer(106, 996, role="probe", sent=50.0, blur_ns=9_000_000),
        ]
    )
    found = validity_inputs(con, "run-1")
    assert (found.scheduled_n, found.sent_n, found.refused_n) == (104, 102, 1)
    assert found.sent_share == pytest.approx(103 / 104)
    assert found.client_lag_n == 102
    assert found.client_lag_p99_ms == pytest.approx(3.0)  # rank 101 of 102, two of which are 3 ms
    assert (found.output_chunks, found.blurred_chunks) == (303, 3)
    assert found.blurred_chunk_share == pytest.approx(3 / 303)
    assert found.kernel_to_user_lag_n == 303
    assert found.kernel_to_user_lag_p99_ms == 0.05
    assert found.ttft_limit_ms == 100


def test_validity_of_a_run_without_facts(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([], manifest={"name": "empty"})
    found = validity_inputs(con, "run-1")
    assert (found.scheduled_n, found.client_lag_n, found.output_chunks, found.kernel_to_user_lag_n) == (0, 0, 0, 0)
    assert found.sent_share is found.client_lag_p99_ms is found.blurred_chunk_share is found.ttft_limit_ms is None


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
    found = in_flight_series(con, "run-1", since="scheduled_ns")
    assert found is not None
    steps = dict(zip(found.t_ns.tolist(), found.in_flight.tolist(), strict=True))
    assert steps == {ns(0): 1, ns(50): 0, ns(100): 2, ns(150): 3, ns(200): 2, ns(400): 3, ns(500): 2}


def test_in_flight_from_the_send(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(SPREAD, mode="open_capped")
    found = in_flight_series(con, "run-1")
    assert found is not None
    steps = dict(zip(found.t_ns.tolist(), found.in_flight.tolist(), strict=True))
    assert steps == {ns(0): 1, ns(50): 0, ns(100.1): 1, ns(200): 0, ns(300): 1, ns(400.1): 2, ns(500): 1}


def test_spans_are_what_the_slope_takes(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    growing: list[Row] = [row(i, i * 10, end=1000 - i * 10 + 0.5) for i in range(100)]
    add_run(growing)
    spans = in_flight_spans(con, "run-1")
    assert spans is not None
    assert bool(np.all(spans.end_ns >= spans.start_ns))
    slope = backlog_slope(spans.start_ns, spans.end_ns, spans.window_start_ns, spans.window_end_ns)
    assert slope.value == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("since", ["sent_ns", "scheduled_ns"])
def test_no_window_no_series(con: duckdb.DuckDBPyConnection, add_run: AddRun, since: str) -> None:
    add_run([], measure_start_ns=None, measure_end_ns=None, load_value=math.inf)
    assert in_flight_spans(con, "run-1", since=since) is None  # type: ignore[arg-type]
    assert in_flight_series(con, "run-1", since=since) is None  # type: ignore[arg-type]


def test_nothing_in_flight(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([])
    found = in_flight_series(con, "run-1")
    assert found is not None
    assert (found.t_ns.tolist(), found.in_flight.tolist()) == ([ns(0)], [0])


def test_no_such_run(con: duckdb.DuckDBPyConnection) -> None:
    for read in (validity_inputs, in_flight_spans, in_flight_series):
        with pytest.raises(UsageError, match="no run 'nope'"):
            read(con, "nope")
