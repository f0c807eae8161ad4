"""Schedules that replay recorded arrivals."""

from collections.abc import Sequence

import numpy as np

from tfbench.core.errors import ManifestError
from tfbench.schedule.open_loop import Schedule, close_schedule

_NS = 1_000_000_000


def replay_schedule(
    timestamps: Sequence[float],
    speed: float,
    *,
    warmup_s: float,
    duration_s: float | None,
    drain_s: float,
    count: int | None,
) -> Schedule:
    """Arrivals at timestamp / speed, to the nanosecond; `timestamps` in seconds from the start, not decreasing.

    Exactly one of `duration_s` and `count` cuts them like those of any process: all before warmup_s + duration_s +
    drain_s, or `count` from warmup_s on. ManifestError where fewer than `count` come then; ValueError for arguments no
    manifest allows.
    """
    if not 0 < speed < float("inf") or (duration_s is None) == (count is None):
        raise ValueError("a replay needs a finite speed above 0, and exactly one of duration_s and count")
    offsets = np.rint(np.asarray(timestamps, dtype=np.float64) * (_NS / speed)).astype(np.int64)
    if offsets.size and (offsets[0] < 0 or bool(np.any(np.diff(offsets) < 0))):
        raise ValueError("timestamps must be at least 0 and not decrease")
    warmup_ns = round(warmup_s * _NS)
    if duration_s is not None:
        end_ns = warmup_ns + round(duration_s * _NS)
        return close_schedule(offsets[offsets < end_ns + round(drain_s * _NS)], warmup_ns, end_ns)
    first = int(np.searchsorted(offsets, warmup_ns))
    last = first + (count or 0)
    if last > offsets.size:
        found = offsets.size - first
        raise ManifestError(f"load.count: {found} timestamps come after the warm-up at speed {speed:g}; lower count")
    return close_schedule(offsets[:last], int(offsets[first]), None)
