"""Open-loop schedules: when each request is due, fixed before anything is sent."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Phase
from tfbench.manifest.limits import MAX_ARRIVALS, MAX_RUN_S

_BLOCK = 65_536
_NS = 1_000_000_000
_Gaps = Callable[[int], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """When the requests of one run are due.

    `offsets_ns`: int64 [N], not decreasing, nanoseconds from the start of the run; read-only. The window is
    [measure_start_ns, measure_end_ns), also from the start of the run; `measure_end_ns` is None with a count, where
    the window ends with the last answer. `sha256` is over the offsets as little-endian int64 and then the window.
    """

    offsets_ns: npt.NDArray[np.int64]
    measure_start_ns: int
    measure_end_ns: int | None
    sha256: str

    def phases(self) -> npt.NDArray[np.str_]:
        """Phase names [N]: the phase of each request's scheduled time."""
        phases = np.full(self.offsets_ns.shape, Phase.MEASURE.value, dtype="U7")
        phases[self.offsets_ns < self.measure_start_ns] = Phase.WARMUP.value
        if self.measure_end_ns is not None:
            phases[self.offsets_ns >= self.measure_end_ns] = Phase.DRAIN.value
        return phases


def open_schedule(
    process: str,
    rate: float,
    burstiness: float | None,
    seed: int,
    *,
    warmup_s: float,
    duration_s: float | None,
    drain_s: float,
    count: int | None,
) -> Schedule:
    """Arrivals of `process` at `rate` per second, from a generator seeded with `seed` alone.

    Gaps are constant 1/rate, exponential, or Gamma(shape=burstiness, scale=1/(rate·burstiness)) (mean 1/rate,
    CV = 1/√burstiness). The process starts at time 0 with a drawn gap and is never rescaled: the number of arrivals is
    as random as the law makes it. Exactly one of `duration_s` and `count`:

    - duration: arrivals of warmup, window and drain, i.e. all before warmup_s + duration_s + drain_s;
    - count: the arrivals before warmup_s, then `count` measured ones; the window starts with the first of these.
      With rate inf, `count` arrivals at time 0 and nothing else.

    ManifestError where the law makes more than twice MAX_ARRIVALS; ValueError for arguments no manifest allows.
    """
    _check(process, rate, burstiness, warmup_s, duration_s, drain_s, count)
    if math.isinf(rate):
        return close_schedule(np.zeros(count or 0, dtype=np.int64), 0, None)
    warmup_ns = _ns(warmup_s)
    if process == "constant":
        offsets = _constant(rate, warmup_ns, duration_s, drain_s, count)
    else:
        gaps = _gaps(process, rate, burstiness, seed)
        offsets = _cumulate(gaps, warmup_ns, duration_s, drain_s, count)
    if duration_s is not None:
        return close_schedule(offsets, warmup_ns, warmup_ns + _ns(duration_s))
    first = int(np.searchsorted(offsets, warmup_ns))
    return close_schedule(offsets, int(offsets[first]), None)


def unit_process(process: str, burstiness: float | None, seed: int, arrivals: float) -> npt.NDArray[np.int64]:
    """The points of `process` at a rate of 1 in [0, `arrivals`), in billionths, from a generator seeded with `seed`.

    ManifestError where there are more than twice MAX_ARRIVALS.
    """
    if process == "constant":
        return _constant(1.0, 0, arrivals, 0.0, None)
    return _cumulate(_gaps(process, 1.0, burstiness, seed), 0, arrivals, 0.0, None)


def _check(
    process: str,
    rate: float,
    burstiness: float | None,
    warmup_s: float,
    duration_s: float | None,
    drain_s: float,
    count: int | None,
) -> None:
    if process not in ("constant", "poisson", "gamma"):
        raise ValueError(f"unknown arrival process {process!r}")
    if not rate > 0:
        raise ValueError(f"rate must be above 0, got {rate}")
    if process == "gamma" and not 0 < (burstiness or 0.0) < math.inf:
        raise ValueError(f"burstiness must be above 0, got {burstiness}")
    if (duration_s is None) == (count is None):
        raise ValueError("give exactly one of duration_s and count")
    if math.isinf(rate) and (count is None or warmup_s > 0):
        raise ValueError("a rate of inf needs count and no warm-up")
    if count is not None and not 1 <= count <= MAX_ARRIVALS:
        raise ValueError(f"count must be from 1 to {MAX_ARRIVALS}, got {count}")
    for name, seconds in (("warmup_s", warmup_s), ("duration_s", duration_s or 0.0), ("drain_s", drain_s)):
        if not 0 <= seconds <= MAX_RUN_S:
            raise ValueError(f"{name} must be from 0 to {MAX_RUN_S:.0f}, got {seconds}")


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


def _gaps(process: str, rate: float, burstiness: float | None, seed: int) -> _Gaps:
    # The bit generator is named, so that NumPy's choice of a default can't change a schedule. Each gap is rounded to
    # whole nanoseconds and summed as an integer: a last-bit difference between machines' log() then practically never
    # shows, and can't build up.
    generator = np.random.Generator(np.random.PCG64(seed))
    if process == "poisson":
        mean_ns = _NS / rate
        return lambda n: _whole(generator.standard_exponential(n, method="inv") * mean_ns)
    shape = burstiness or 1.0
    scale_ns = _NS / (rate * shape)
    return lambda n: _whole(generator.standard_gamma(shape, n) * scale_ns)


def _whole(gaps_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    # No gap of a lawful run comes near a year; the clip only keeps the conversion defined.
    return np.rint(np.minimum(gaps_ns, 1e17)).astype(np.int64)


def _cumulate(
    gaps: _Gaps, warmup_ns: int, duration_s: float | None, drain_s: float, count: int | None
) -> npt.NDArray[np.int64]:
    end_ns = None if duration_s is None else warmup_ns + _ns(duration_s) + _ns(drain_s)
    blocks: list[npt.NDArray[np.int64]] = []
    last, drawn, before = 0, 0, 0
    while True:
        block = last + np.cumsum(gaps(_BLOCK))
        blocks.append(block)
        last, drawn = int(block[-1]), drawn + _BLOCK
        if end_ns is not None:
            if last >= end_ns:
                offsets = np.concatenate(blocks)
                return offsets[: int(np.searchsorted(offsets, end_ns))]
        else:
            before += int(np.searchsorted(block, warmup_ns))
            if drawn - before >= (count or 0):
                return np.concatenate(blocks)[: before + (count or 0)]
        if drawn > 2 * MAX_ARRIVALS:
            raise ManifestError(f"load: more than {2 * MAX_ARRIVALS:,} arrivals in one run; lower rates or duration_s")


def _constant(
    rate: float, warmup_ns: int, duration_s: float | None, drain_s: float, count: int | None
) -> npt.NDArray[np.int64]:
    # Multiples, not a running sum: 1/rate is seldom a whole number of nanoseconds.
    gap_ns = _NS / rate
    end_ns = warmup_ns if duration_s is None else warmup_ns + _ns(duration_s) + _ns(drain_s)
    n = int(end_ns / gap_ns) + 2 + (count or 0)
    if n > 2 * MAX_ARRIVALS:
        raise ManifestError(f"load: more than {2 * MAX_ARRIVALS:,} arrivals in one run; lower rates or duration_s")
    offsets = np.rint(np.arange(1, n + 1, dtype=np.float64) * gap_ns).astype(np.int64)
    cut = int(np.searchsorted(offsets, end_ns))
    return offsets[: cut + (count or 0)]


def close_schedule(offsets: npt.NDArray[np.int64], start_ns: int, end_ns: int | None) -> Schedule:
    """The schedule of these offsets, made read-only, with the hash over them and the window."""
    offsets = np.ascontiguousarray(offsets)
    offsets.flags.writeable = False
    digest = hashlib.sha256(offsets.astype("<i8", copy=False).tobytes())
    digest.update(np.array([start_ns, -1 if end_ns is None else end_ns], dtype="<i8").tobytes())
    return Schedule(offsets, start_ns, end_ns, digest.hexdigest())
