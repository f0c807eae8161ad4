"""This machine's client: how wrong it is, what a chunk costs, and the highest load it holds. Kept in the warehouse."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.core.jsonio import dump_text
from tfbench.core.version import VERSION
from tfbench.study.fidelity import fidelity, offer, prepare, start_truth
from tfbench.study.host import host_facts
from tfbench.verdict.validity import VALID
from tfbench.warehouse import Warehouse
from tfbench.warehouse.failures import writing

FIRST_RATE = 100.0
"""Requests per second of the first probe; each is a stream of 64 chunks."""
HIGHEST_RATE = 12_800.0
CLOSE_ENOUGH = 1.1
"""The search ends when the lowest rate that fails is no more than this many times the highest that holds."""
_LATE_SERVER = 1.25
"""A median gap this many times the planned one: the server can't send what is asked of it."""
_GAP_MS = 10.0
_PROBES = 14
"""Probes a calibration's time is cut into: doubling, repeats of those that failed, bisection."""
_OVERHEAD_S = 4.0
"""What a probe takes beside its window: starting, warm-up, drain, reading its facts."""
_WARMUP_S = 0.5

Figures = dict[str, Any]


@dataclass(frozen=True)
class Search:
    """What a search found. `highest` is the fastest probe that held, `failed` the slowest that did not.

    `limit` says what ended the way up: "client" (a rate failed twice), "server" (the truth server couldn't send that
    much), "time" or "range".
    """

    highest: Figures | None
    failed: Figures | None
    limit: str
    probes: tuple[Figures, ...]


def search(probe: Callable[[float], Figures], time_left: Callable[[], bool]) -> Search:
    """Double the rate until it fails, then bisect; `time_left` is asked before each probe but the first.

    A rate fails when it was INVALID twice on the way up (once could be the machine's mood), or once in the bisection.
    `probe(rate)` gives figures with `asked_per_s`, `validity` and `server_gap_ms`.
    """
    probes: list[Figures] = []
    highest: Figures | None = None
    failed: Figures | None = None
    limit = "range"
    rate, tries = FIRST_RATE, 0
    while rate <= HIGHEST_RATE:
        if probes and not time_left():
            limit = "time"
            break
        figures = probe(rate)
        probes.append(figures)
        if _server_is_late(figures):
            limit = "server"
            break
        if figures["validity"] == VALID:
            highest, rate, tries = figures, rate * 2, 0
            continue
        tries += 1
        if tries == 2:
            limit, failed = "client", figures
            break
    low = rate / 2 if highest is not None else 0.0
    high = rate
    while limit == "client" and low and high / low > CLOSE_ENOUGH and time_left():
        figures = probe(round((low * high) ** 0.5))
        probes.append(figures)
        if figures["validity"] == VALID and not _server_is_late(figures):
            low, highest = figures["asked_per_s"], figures
        else:
            high, failed = figures["asked_per_s"], figures
    return Search(highest, failed, limit, tuple(probes))


def _server_is_late(figures: Figures) -> bool:
    gap = figures["server_gap_ms"]["p50"]
    return gap is not None and gap > _LATE_SERVER * _GAP_MS


def calibrate(seconds: float = 60.0, say: Callable[[str], None] = lambda _: None) -> Figures:
    """Measure the client on this machine for about `seconds`; `say` is told of each probe.

    Returns what `calibrations.figures` holds: the host, errors and cost at the highest load that is valid (null where
    none is), what limited it, and every probe's figures. Raises EndpointError when the truth server doesn't start.
    """
    began = time.monotonic()
    window_s = max(seconds / _PROBES - _OVERHEAD_S / 2, 1.0)
    spent: list[float] = []

    def probe(rate: float) -> Figures:
        start = time.monotonic()
        figures = _probe(rate, window_s, seed=len(spent))
        spent.append(time.monotonic() - start)
        lag, ttft = figures["client_lag_ms"]["p99"], figures["ttft_error_ms"]["p99"]
        say(f"{rate:g} requests/s: {figures['validity']}; client lag p99 {lag} ms, TTFT error p99 {ttft} ms")
        return figures

    found = search(probe, lambda: time.monotonic() - began + max(spent) <= seconds)
    highest = found.highest
    return {
        "tfbench_version": VERSION,
        "host": host_facts(),
        "window_s": window_s,
        "highest_valid_requests_per_s": None if highest is None else highest["asked_per_s"],
        "highest_valid_chunks_per_s": None if highest is None else highest["server_chunks_per_s"],
        "lowest_failed_requests_per_s": None if found.failed is None else found.failed["asked_per_s"],
        "limited_by": found.limit,
        "failed_for": [] if found.failed is None else found.failed["reasons"],
        "at_highest": highest,
        "probes": list(found.probes),
    }


def _probe(rate: float, seconds: float, seed: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder, start_truth(gap_ms=_GAP_MS) as truth:
        load = {"rates": [rate], "duration_s": seconds, "warmup_s": _WARMUP_S, "drain_s": 2, "seed": seed}
        offered = offer(*prepare(truth.url, load, Path(folder)))
        return fidelity(offered, truth.chunks())


def store_calibration(warehouse: Path, figures: Figures) -> None:
    """Add `figures` to the warehouse's calibrations. Raises as `Warehouse.open` does, or StorageError."""
    with Warehouse.open(warehouse) as store, writing(store.path):
        store.con.execute(
            "INSERT INTO calibrations (host, t_ns, figures) VALUES (?, ?, ?)",
            [str(figures["host"]["name"]), time.time_ns(), dump_text(figures)],
        )
