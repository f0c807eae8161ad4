"""How a golden row is written down, and how golden rows become the tables of a run bundle.

Nothing here works out a figure: what a row or a run should give stands beside it as a literal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tfbench.ledger.schemas import ATTEMPTS, STREAMS

EPOCH_NS = 1_767_225_600_000_000_001
"""Client time of the first run's start. Odd on purpose: a double near it is off by up to 128 ns, and one
golden attempt misses its limit by 1 ns, so times that pass through a double before the subtraction show."""

USER_LAG_NS = 70_000
"""Python reads every chunk this much after its kernel stamp; figures use the stamp."""

ACCOUNTING = """
[accounting]
unit = "attempt"
bad = ["timeout", "rejected", "http_error", "connect_error", "stream_error", "disconnected", "unfinished", "unsent"]
excluded = ["cancelled"]
[cost]
currency = "USD"
resources = [{ name = "H100", hourly = 4, count = 1 }, { name = "host", hourly = 1, count = 2 }]
"""
"""Every golden manifest's accounting and cost: 4*1 + 1*2 = 6 USD an hour."""

Chunk = tuple[float, str, int | None]
"""Milliseconds since the run's start, kind, tokens it carries (None: unknown)."""


@dataclass(frozen=True)
class Want:
    """What the definitions give for one attempt, in ms; None where there is no value."""

    ttft: float | None = None
    ttft_service: float | None = None
    tpot: float | None = None
    after_first: float | None = None
    gaps: tuple[float, ...] = ()
    one_token: bool = False
    e2e: float | None = None
    e2e_service: float | None = None
    lag: float | None = None
    counted: bool = False
    in_window: bool = False
    good: bool = False
    vacuous: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One attempt; times in ms since the run's start. `connected` is given for a new connection only."""

    n: int
    what: str
    phase: str
    scheduled: float
    dispatched: float | None
    sent: float | None
    end: float | None
    chunks: tuple[Chunk, ...] = ()
    want: Want = Want()
    slot: float | None = None
    connected: float | None = None
    new: bool = False
    outcome: str = "ok"
    status: int | None = 200
    finish: str | None = None
    prompt: int | None = None
    cached: int | None = None
    out: int | None = None
    reasoning: int | None = None
    quality: str | None = None
    task: str | None = None
    try_: int = 0
    role: str = "load"
    error: str | None = None
    stream: bool = True


@dataclass(frozen=True)
class GoldenRun:
    """One run of one study. Window in ms since the run's start; `figures` maps a figure's name to the
    value worked out on paper, None where no finite value exists; `outcomes` counts load attempts by (phase,
    outcome); `vacuous` counted attempts with a term met vacuously."""

    key: str
    toml: str
    load_value: float
    mode: str
    window: tuple[float, float]
    rows: tuple[Row, ...]
    figures: dict[str, float | None]
    outcomes: dict[tuple[str, str], int]
    vacuous: int
    qualified_input: int
    base_s: int

    @property
    def run_id(self) -> str:
        return f"run-golden-{self.key}"

    @property
    def study_id(self) -> str:
        return f"study-golden-{self.key}"

    def ns(self, ms: float | None) -> int | None:
        """Client time of `ms` after this run's start."""
        return None if ms is None else EPOCH_NS + self.base_s * 1_000_000_000 + round(ms * 1_000_000)


def role(ms: float) -> Chunk:
    return (ms, "role", None)


def text(ms: float, tokens: int | None = None) -> Chunk:
    return (ms, "text", tokens)


def reasoning(ms: float, tokens: int | None = None) -> Chunk:
    return (ms, "reasoning", tokens)


def tool(ms: float, tokens: int | None = None) -> Chunk:
    return (ms, "tool", tokens)


def empty(ms: float, tokens: int | None = None) -> Chunk:
    return (ms, "empty", tokens)


def finish(ms: float) -> Chunk:
    return (ms, "finish", None)


def usage(ms: float) -> Chunk:
    return (ms, "usage", None)


def comment(ms: float) -> Chunk:
    return (ms, "comment", None)


def error(ms: float) -> Chunk:
    return (ms, "error", None)


def _attempt(run: GoldenRun, row: Row) -> dict[str, object]:
    first = row.chunks[0][0] if row.chunks else (row.end if row.status is not None else None)
    return {
        "run_id": run.run_id,
        "attempt_id": row.n,
        "request_id": f"{run.key}-{row.n}",
        "task_id": row.task or f"task-{row.n}",
        "try": row.try_,
        "role": row.role,
        "phase": row.phase,
        "host": "golden",
        "worker": 0,
        "new_connection": None if row.dispatched is None else (row.new or row.connected is not None),
        "stamp_source": "kernel",
        "scheduled_ns": run.ns(row.scheduled),
        "dispatched_ns": run.ns(row.dispatched),
        "slot_ns": run.ns(row.slot),
        "connected_ns": run.ns(row.connected),
        "sent_ns": run.ns(row.sent),
        "first_byte_ns": run.ns(first),
        "end_ns": run.ns(row.end),
        "outcome": row.outcome,
        "http_status": row.status,
        "error": row.error,
        "finish_reason": row.finish or ("stop" if row.outcome == "ok" else None),
        "prompt_tokens": row.prompt,
        "cached_tokens": row.cached,
        "output_tokens": row.out,
        "reasoning_tokens": row.reasoning,
        "token_source": None if row.out is None else "usage",
        "quality": row.quality,
    }


def _stream(run: GoldenRun, row: Row) -> dict[str, object]:
    times = [run.ns(ms) for ms, _, _ in row.chunks]
    return {
        "run_id": run.run_id,
        "attempt_id": row.n,
        "t_ns": times,
        "user_ns": [t + USER_LAG_NS for t in times if t is not None],
        "kind": [kind for _, kind, _ in row.chunks],
        "tokens": [tokens for _, _, tokens in row.chunks],
        "blur_ns": [0] * len(times),
    }


def tables(run: GoldenRun) -> dict[str, pa.Table]:
    """The bundle tables of `run`: `attempts` one row each; `streams` only for rows that have one."""
    attempts = [_attempt(run, row) for row in run.rows]
    streams = [_stream(run, row) for row in run.rows if row.stream]
    return {
        "attempts": pa.Table.from_pylist(attempts, schema=ATTEMPTS),
        "streams": pa.Table.from_pylist(streams, schema=STREAMS),
    }


def cases(runs: Sequence[GoldenRun]) -> Iterator[tuple[GoldenRun, Row]]:
    """Every golden attempt with its run."""
    return ((run, row) for run in runs for row in run.rows)
