"""Everything one worker process needs to offer its share of a run's load; picklable."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tfbench.load.target import Target
from tfbench.manifest import Retry


@dataclass(frozen=True)
class Limits:
    """The manifest's timeouts, in ns: connecting, up to the first body byte, between reads, whole attempt."""

    connect_ns: int
    first_byte_ns: int
    idle_ns: int
    total_ns: int


@dataclass(frozen=True)
class LoadJob:
    """One worker's share of a run.

    `plan` is a Schedule (open, open_capped) or a ClosedPlan; `workload` gives the item of an index.
    Worker w of n takes the indices (or users) i with i % n == w.
    """

    run_id: str
    worker: int
    workers: int
    target: Target
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    dialect: str
    model: str
    stream: bool
    include_usage: bool
    sampling: dict[str, Any]
    workload: Any
    mode: str
    plan: Any
    warmup_ns: int
    duration_ns: int | None
    count: int | None
    drain_ns: int
    max_in_flight: int | None
    limits: Limits
    use_stamps: bool
    keep_text: bool
    spool_path: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    retry: Retry | None = None
    cancel_after_ns: int | None = None
    cancel_after_chunks: int | None = None
    connections: str = "pooled"
    preconnect: int = 0
    fields: dict[str, str | Literal[False]] = field(default_factory=dict)
    closes_idle_ns: int | None = None
    """How soon this server is known to close a connection that has nothing to do; None: not seen to."""
