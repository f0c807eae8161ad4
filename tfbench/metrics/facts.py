"""The derived tables figures are drawn from: `policy`, `windows` and `attempt_facts`, made by the SQL in sql/."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
import pandas as pd

from tfbench.core.errors import UsageError

Side = Literal["seen", "least", "most"]
"""Durations as seen, or as short or as long as the client's own lag and blur allow."""
_SQL = Path(__file__).resolve().parent / "sql"
_RUN_COLUMNS = "run_id, load_value, arm, repeat, order_index, mode, status, start_ns, end_ns, arrivals_end_ns"


@dataclass(frozen=True)
class RunWindow:
    """One run and its window; `index` is its run_index in the derived tables.

    arrivals_end_ns: where the arrivals end; before `end_ns` where the window holds drain, as it does with a count. None
    where all came at once.
    """

    index: int
    run_id: str
    load_value: float | None
    arm: str | None
    repeat: int
    order_index: int | None
    mode: str
    status: str
    start_ns: int | None
    end_ns: int | None
    arrivals_end_ns: int | None

    def span(self, *, arrivals: bool) -> tuple[int, int] | None:
        """Start and end of the window, or of its arrivals; None where that has no length."""
        end = self.arrivals_end_ns if arrivals else self.end_ns
        return None if self.start_ns is None or end is None or self.start_ns >= end else (self.start_ns, end)

    @property
    def drain_s(self) -> float | None:
        """Seconds of the window in which nothing arrives any more; None where no arrivals lie apart."""
        window, arrivals = self.span(arrivals=False), self.span(arrivals=True)
        return None if window is None or arrivals is None else max(0.0, (window[1] - arrivals[1]) / 1e9)

    @property
    def point(self) -> tuple[float | None, str | None]:
        """The load point and arm whose runs are combined."""
        return self.load_value, self.arm


@dataclass(frozen=True)
class Facts:
    """The derived tables of some runs of one study, on a cursor of their own."""

    con: duckdb.DuckDBPyConnection
    runs: tuple[RunWindow, ...]
    currency: str
    cost_per_hour: float | None


def read_sql(name: str) -> str:
    """The text of sql/`name`.sql."""
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def check_study(con: duckdb.DuckDBPyConnection, study_id: str) -> None:
    """Raises UsageError when the warehouse holds no such study."""
    if not con.execute("SELECT 1 FROM studies WHERE study_id = ?", [study_id]).fetchall():
        raise UsageError(f"no study {study_id!r} in this warehouse")


@contextlib.contextmanager
def study_facts(con: duckdb.DuckDBPyConnection, study_id: str, run_ids: Sequence[str] | None = None) -> Iterator[Facts]:
    """The derived tables of a study's runs, or of those `run_ids` names. Raises UsageError for no such study."""
    check_study(con, study_id)
    found = con.execute("SELECT run_id FROM runs WHERE study_id = ? ORDER BY run_id", [study_id]).fetchall()
    wanted = None if run_ids is None else set(run_ids)
    with run_facts(con, [run_id for (run_id,) in found if wanted is None or run_id in wanted]) as facts:
        yield facts


@contextlib.contextmanager
def run_facts(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str], side: Side = "seen") -> Iterator[Facts]:
    """The derived tables of runs of one study; `side`: with the client's own lag and blur, or without."""
    # A cursor is a connection of its own to the same database: the temporary tables stay out of the caller's sight.
    cursor = con.cursor()
    try:
        for table, file in (("policy", "policy"), ("windows", "windows"), ("attempt_facts", "attempts")):
            asked = {"run_ids": list(run_ids)} | ({"side": side} if table == "attempt_facts" else {})
            cursor.execute(f"CREATE TEMP TABLE {table} AS {read_sql(file)}", asked)
        rows = cursor.execute(f"SELECT run_index, {_RUN_COLUMNS} FROM windows ORDER BY run_index").fetchall()
        policy = cursor.execute("SELECT currency, cost_per_hour FROM policy").fetchall()
        yield Facts(cursor, tuple(RunWindow(*row) for row in rows), *(policy[0] if policy else ("USD", None)))
    finally:
        cursor.close()


def attempt_figures(con: duckdb.DuckDBPyConnection, study_id: str, *, gaps: bool = False) -> pd.DataFrame:
    """One row per attempt of role load, in order of run, then schedule: run, durations, outcome, whether it is good.

    Durations are milliseconds, NaN where unknown; the `*_or_inf_ms` columns are what quantiles run over (+inf for what
    never came). `gaps` adds `gaps_ms`, the list of gaps between output chunks. Raises UsageError for no such study.
    """
    left_out = "seq, run_index" if gaps else "seq, run_index, gaps_ms"
    with study_facts(con, study_id) as facts:
        return facts.con.execute(
            f"SELECT load_value, arm, repeat, status, a.* EXCLUDE ({left_out})"
            " FROM attempt_facts a JOIN windows USING (run_index) ORDER BY a.seq"
        ).df()


def outcomes(con: duckdb.DuckDBPyConnection, study_id: str) -> pd.DataFrame:
    """How many attempts of role load ended how: load_value, arm, repeat, phase, outcome, n. Every run, every phase.

    The n of a run add up to its rows in `attempts`. Raises UsageError for no such study.
    """
    check_study(con, study_id)
    return con.execute(read_sql("outcomes"), {"study_id": study_id}).df()


def counts(con: duckdb.DuckDBPyConnection, study_id: str) -> pd.DataFrame:
    """One row a run: how many attempts stand in each denominator, and what the report must say beside the figures.

    Columns: run_id, load_value, arm, repeat, status; counted, ok, good, bad, excluded (scheduled in the window); of the
    counted and ok ones: vacuous (one token or chunk, so a TPOT or ICL term met vacuously), term_unknown (a term not met
    because tokens or chunks are unknown), tokens_unknown (no output_tokens), shows_nothing (an answer without any text,
    whose TTFT is that of its first chunk), no_finish_reason; of any phase: ended_in_window, good_in_window. Raises
    UsageError for no such study.
    """
    with study_facts(con, study_id) as facts:
        return facts.con.execute(read_sql("counts")).df()
