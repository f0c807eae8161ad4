"""What verdicts ask of one run: was the load fit, and did the backlog grow."""

from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np
import numpy.typing as npt

from tfbench.core.errors import UsageError
from tfbench.metrics.facts import read_sql, run_facts


@dataclass(frozen=True)
class ValidityInputs:
    """The validity signals that follow from a run's facts; None where there is nothing to take them from.

    Over the attempts of role load scheduled in the window, whatever their outcome:
    - `client_lag_p99_ms` of `client_lag_n` lags;
    - `sent_n` of `scheduled_n` were sent, `refused_n` more taken up but kept from being sent by the endpoint (no
      connection), which isn't the load's fault: `sent_share` = (sent + refused) ÷ scheduled;
    - `blurred_chunks` of `output_chunks` arrived in a blur of over 1 ms, `blurred_chunk_share` is their ratio;
    - `kernel_to_user_lag_p99_ms` of the `kernel_to_user_lag_n` chunks that have a kernel stamp.
    `ttft_limit_ms` is the SLO's.
    """

    run_id: str
    scheduled_n: int
    sent_n: int
    refused_n: int
    sent_share: float | None
    client_lag_n: int
    client_lag_p99_ms: float | None
    output_chunks: int
    blurred_chunks: int
    blurred_chunk_share: float | None
    kernel_to_user_lag_n: int
    kernel_to_user_lag_p99_ms: float | None
    ttft_limit_ms: float | None


@dataclass(frozen=True, eq=False)
class Spans:
    """When attempts were about: start_ns and end_ns int64 [n], end >= start, and the run's window.

    What `tfbench.stats.slope.backlog_slope` takes. An attempt that never ended has the window's end.
    """

    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    window_start_ns: int
    window_end_ns: int


@dataclass(frozen=True, eq=False)
class InFlight:
    """A step function over the window: from t_ns[i] (int64, client time, rising) on, in_flight[i] (int64) attempts."""

    t_ns: npt.NDArray[np.int64]
    in_flight: npt.NDArray[np.int64]


def validity_inputs(con: duckdb.DuckDBPyConnection, run_id: str) -> ValidityInputs:
    """The validity signals of a run's facts. Raises UsageError for no such run."""
    _check_run(con, run_id)
    with run_facts(con, [run_id]) as facts:
        [row] = facts.con.execute(read_sql("validity"), {"run_ids": [run_id]}).fetchall()
    scheduled, sent, refused, lags, lag, chunks, blurred, reads, read_lag, limit = row
    return ValidityInputs(
        run_id=run_id,
        scheduled_n=scheduled,
        sent_n=sent,
        refused_n=refused,
        sent_share=(sent + refused) / scheduled if scheduled else None,
        client_lag_n=lags,
        client_lag_p99_ms=lag,
        output_chunks=chunks,
        blurred_chunks=blurred,
        blurred_chunk_share=blurred / chunks if chunks else None,
        kernel_to_user_lag_n=reads,
        kernel_to_user_lag_p99_ms=read_lag,
        ttft_limit_ms=limit,
    )


def in_flight_spans(
    con: duckdb.DuckDBPyConnection, run_id: str, *, since: Literal["sent_ns", "scheduled_ns"] = "scheduled_ns"
) -> Spans | None:
    """From when to when each attempt of role load was in flight, or None for a run without a window.

    From `scheduled_ns` attempts that wait in the client for a slot count too: there the backlog of a capped load grows.
    From `sent_ns` those that were never sent are left out. Raises UsageError for no such run.
    """
    _check_run(con, run_id)
    with run_facts(con, [run_id]) as facts:
        [run] = facts.runs
        if run.start_ns is None or run.end_ns is None or run.start_ns >= run.end_ns:
            return None
        rows = facts.con.execute(read_sql("spans"), {"run_id": run_id, "since": since}).fetchall()
    spans = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Spans(spans[:, 0], spans[:, 1], run.start_ns, run.end_ns)


def in_flight_series(
    con: duckdb.DuckDBPyConnection, run_id: str, *, since: Literal["sent_ns", "scheduled_ns"] = "sent_ns"
) -> InFlight | None:
    """How many attempts were in flight over the run's window, or None for a run without one; see `in_flight_spans`."""
    spans = in_flight_spans(con, run_id, since=since)
    if spans is None:
        return None
    changes = np.concatenate([[spans.window_start_ns], spans.start_ns, spans.end_ns])
    t_ns = np.unique(changes[(changes >= spans.window_start_ns) & (changes < spans.window_end_ns)])
    begun = np.searchsorted(np.sort(spans.start_ns), t_ns, side="right")
    gone = np.searchsorted(np.sort(spans.end_ns), t_ns, side="right")
    return InFlight(t_ns, begun - gone)


def _check_run(con: duckdb.DuckDBPyConnection, run_id: str) -> None:
    if not con.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall():
        raise UsageError(f"no run {run_id!r} in this warehouse")
