"""What verdicts ask of one run's facts: when its attempts were in flight."""

from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np
import numpy.typing as npt

from tfbench.core.errors import UsageError
from tfbench.metrics.facts import read_sql, run_facts


@dataclass(frozen=True, eq=False)
class Spans:
    """When attempts were about: start_ns and end_ns int64 [n], end >= start, and the run's window.

    What `tfbench.stats.slope.backlog_slope` takes. An attempt that never ended has the window's end.
    """

    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    window_start_ns: int
    window_end_ns: int


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
        if (window := run.span(arrivals=False)) is None:
            return None
        rows = facts.con.execute(read_sql("spans"), {"run_id": run_id, "since": since}).fetchall()
    spans = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Spans(spans[:, 0], spans[:, 1], *window)


def _check_run(con: duckdb.DuckDBPyConnection, run_id: str) -> None:
    if not con.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall():
        raise UsageError(f"no run {run_id!r} in this warehouse")
