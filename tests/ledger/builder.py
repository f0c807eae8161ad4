"""Small run bundles for tests: attempts by hand, everything else filled in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfbench.ledger.bundle import write_bundle
from tfbench.ledger.schemas import ATTEMPTS, STREAMS

BASE_NS = 1_790_000_000_000_000_001

MANIFEST: dict[str, Any] = {
    "name": "small",
    "accounting": {"unit": "attempt", "bad": ["timeout", "rejected", "unsent"], "excluded": ["cancelled"]},
    "slo": {"ttft_ms": 100},
    "quality": {"judge": "none"},
    "cost": {"currency": "EUR", "resources": [{"name": "gpu", "hourly": 3.6, "count": 1}]},
}


def ns(ms: float | None) -> int | None:
    """Client time `ms` after the start of every run here."""
    return None if ms is None else BASE_NS + round(ms * 1e6)


@dataclass(frozen=True)
class Row:
    """One attempt with its stream; `stream` None leaves the row of `streams` out."""

    attempt: dict[str, Any]
    stream: dict[str, Any] | None


def row(
    attempt_id: int,
    at: float,
    chunks: Sequence[tuple[float, str, int | None]] = (),
    *,
    end: float | None = None,
    sent: float | None = 0.1,
    stream: bool = True,
    blur_ns: int = 0,
    **columns: Any,
) -> Row:
    """An attempt scheduled at `at` ms; chunk times, `sent` and `end` are ms after that. Other columns as given."""
    last = chunks[-1][0] if chunks else 1.0
    attempt = {
        "attempt_id": attempt_id,
        "task_id": f"task-{attempt_id}",
        "try": 0,
        "role": "load",
        "phase": "measure",
        "stamp_source": "kernel",
        "new_connection": False,
        "scheduled_ns": ns(at),
        "dispatched_ns": None if sent is None else ns(at),
        "sent_ns": None if sent is None else ns(at + sent),
        "end_ns": None if sent is None else ns(at + (last if end is None else end)),
        "outcome": "ok",
    } | columns
    times = [ns(at + ms) for ms, _, _ in chunks]
    facts = {
        "attempt_id": attempt_id,
        "t_ns": times,
        "user_ns": [t + 50_000 for t in times if t is not None],
        "kind": [kind for _, kind, _ in chunks],
        "tokens": [tokens for _, _, tokens in chunks],
        "blur_ns": [blur_ns] * len(times),
    }
    return Row(attempt, facts if stream else None)


def answer(attempt_id: int, at: float, ttft: float = 50, gap: float = 10, n: int = 3, **columns: Any) -> Row:
    """A streamed answer of `n` one-token chunks, the first `ttft` ms after `at`, the others `gap` ms apart."""
    chunks = [(ttft + i * gap, "text", 1) for i in range(n)]
    return row(attempt_id, at, chunks, output_tokens=n, prompt_tokens=10, **columns)


def tables(run_id: str, rows: Sequence[Row]) -> dict[str, pa.Table]:
    """The bundle's two tables."""
    attempts = [{"run_id": run_id} | one.attempt for one in rows]
    streams = [{"run_id": run_id} | one.stream for one in rows if one.stream is not None]
    return {
        "attempts": pa.Table.from_pylist(attempts, schema=ATTEMPTS),
        "streams": pa.Table.from_pylist(streams, schema=STREAMS),
    }


def run_facts(run_id: str = "run-1", study_id: str = "study-1", **facts: Any) -> dict[str, Any]:
    """What `run.json` holds, of a complete run with the window [0, 1000) ms."""
    return {
        "study_id": study_id,
        "created_ns": BASE_NS,
        "tfbench_version": "0",
        "host": {"name": "here"},
        "run_id": run_id,
        "manifest_id": "m",
        "workload_id": "w",
        "system_id": "s",
        "mode": "open",
        "load_value": 5.0,
        "repeat": 0,
        "order_index": 0,
        "seed": 2**62,
        "status": "complete",
        "measure_start_ns": ns(0),
        "measure_end_ns": ns(1000),
        "observed": {"model": "m"},
        "signals": {"clock_steps": 0},
        "origin": "measured",
    } | facts


def write_run(
    folder: Path,
    rows: Sequence[Row],
    *,
    run_id: str = "run-1",
    manifest: Mapping[str, Any] = MANIFEST,
    **facts: Any,
) -> Path:
    """A whole bundle at `folder`/`run_id`."""
    return write_bundle(folder / run_id, manifest=manifest, run=run_facts(run_id, **facts), tables=tables(run_id, rows))
