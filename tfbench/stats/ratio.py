"""Ratios over a window: rates, goodput, cost per token. Numerator and denominator stay together, block by block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray, IntArray, Interval, interval, student_t
from tfbench.stats.labels import approximate, withheld

# Time blocks over all runs; the widest of the intervals is taken, since correlation may outlast short blocks.
BLOCKS = (5, 10, 20, 30)
# Events per run below which a ratio isn't settled.
SETTLED_EVENTS = 10
# Good attempts come in clusters, between queues, so none may be seen of this many times what singles allow.
CLUSTERED = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class RatioRun:
    """One run's window and the events in it.

    Args:
        start_ns, end_ns: the window, end > start.
        t_ns: int64 [n], when each event counts; start <= t <= end.
        num, den: float64 [n], what each event adds, finite and >= 0; None = the seconds of the window, spread evenly.
        event_size: what one event would add to a side whose sum is zero (1 for counts, the mean output tokens of an
            attempt for tokens); used only for the one bound of that case; None = no bound then.

    Raises:
        ValueError: arrays of unequal length, times outside the window, negative or non-finite amounts.
    """

    start_ns: int
    end_ns: int
    t_ns: IntArray
    num: FloatArray | None
    den: FloatArray | None
    event_size: float | None = 1.0

    def __post_init__(self) -> None:
        if not self.end_ns > self.start_ns:
            raise ValueError(f"window must have a length: [{self.start_ns}, {self.end_ns})")
        for name, side in (("num", self.num), ("den", self.den)):
            if side is None:
                continue
            if len(side) != len(self.t_ns):
                raise ValueError(f"{name} has {len(side)} entries, t_ns {len(self.t_ns)}")
            if not (np.isfinite(side).all() and (np.asarray(side) >= 0.0).all()):
                raise ValueError(f"{name} must be finite and not negative")
        if len(self.t_ns) and not self.start_ns <= int(self.t_ns.min()) <= int(self.t_ns.max()) <= self.end_ns:
            raise ValueError("events lie outside the window")
        if self.event_size is not None and not 0.0 < self.event_size < math.inf:
            raise ValueError(f"event_size must be positive and finite, not {self.event_size}")

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def total(self, side: FloatArray | None) -> float:
        return self.seconds if side is None else float(side.sum())

    def ratio(self) -> float:
        """sum(num) / sum(den); +inf over zero, NaN for 0 / 0."""
        num, den = self.total(self.num), self.total(self.den)
        if den > 0.0:
            return num / den
        return math.inf if num > 0.0 else math.nan

    def events(self) -> int:
        """Events that add to both sides."""
        counts = np.ones(len(self.t_ns), dtype=np.bool_)
        for side in (self.num, self.den):
            if side is not None:
                counts &= side > 0.0
        return int(counts.sum())


def pooled_ratio(runs: Sequence[RatioRun], *, scale: float, level: float, reasons: Sequence[str] = ()) -> Interval:
    """scale * sum(num) / sum(den) over all runs, bounded by the scatter between time blocks. Approximate.

    Blocks that all agree still leave the event at either edge: the bounds are then one event more or less.
    """
    k = len(runs)
    num, den = sum(run.total(run.num) for run in runs), sum(run.total(run.den) for run in runs)
    events = [run.events() for run in runs]
    n, settled = sum(events), min(events, default=0) >= SETTLED_EVENTS
    if num <= 0.0 or den <= 0.0:
        return _zero_ratio(runs, num, den, scale=scale, level=level, reasons=reasons)
    value = num / den
    notes = [*reasons, *few_events_reason(events)]
    half = block_half_width(runs, level)
    lo: float | None = value * math.exp(-min(half, 700.0))
    hi: float | None = value * math.exp(min(half, 700.0))
    if half < 1e-9:
        edge = edge_share(runs)
        lo, hi = value * (1.0 - edge) if edge < 1.0 else None, value * (1.0 + edge)
        notes.append("equal time blocks: bounds are one event more or less")
    if reason := withheld("ratio", k):
        lo = hi = None
        notes.append(reason)
    return interval(
        scale * value,
        None if lo is None else scale * lo,
        None if hi is None else scale * hi,
        level=level,
        method=approximate("time blocks", k, "ratio", level),
        n=n,
        k=k,
        settled=settled,
        reasons=notes,
    )


def block_half_width(runs: Sequence[RatioRun], level: float) -> float:
    """Half the width of the interval for the log of sum(num) / sum(den), both positive; 0 where all blocks agree.

    Delta method: se(r) = sqrt(sum (Y_j - r X_j)^2 / (m (m - 1))) / Xbar over m equal blocks of the window, t_{m-1}; for
    5, 10, 20 and 30 blocks in all, the widest.
    """
    num, den = sum(run.total(run.num) for run in runs), sum(run.total(run.den) for run in runs)
    half = 0.0
    for blocks in BLOCKS:
        per_run = max(2, blocks // len(runs))
        # Each block's share of either sum: se(r) / r without a unit, whatever the size of the amounts.
        y = np.concatenate([_blocks(run, run.num, per_run) for run in runs]) / num
        x = np.concatenate([_blocks(run, run.den, per_run) for run in runs]) / den
        m = len(y)
        residual = y - x
        half = max(half, student_t(level, m - 1) * math.sqrt(float(residual @ residual) * m / (m - 1)))
    return half


def few_events_reason(events: Sequence[int]) -> list[str]:
    """Why a ratio of runs with so many events isn't settled; empty when it is."""
    least = min(events, default=0)
    if least >= SETTLED_EVENTS:
        return []
    times = math.ceil(1.2 * SETTLED_EVENTS / max(least, 0.5))
    return [
        f"runs too short for a rate (the weakest counts {least} requests, {SETTLED_EVENTS} needed): run {times} times "
        "as long"
    ]


def edge_share(runs: Sequence[RatioRun]) -> float:
    """The largest share of a side's sum that one event holds."""
    shares = [0.0]
    for name in ("num", "den"):
        sides = [getattr(run, name) for run in runs]
        total = sum(float(side.sum()) for side in sides if side is not None)
        if total > 0.0:
            shares.append(max(float(side.max()) for side in sides if side is not None and len(side)) / total)
    return max(shares)


def _blocks(run: RatioRun, side: FloatArray | None, count: int) -> FloatArray:
    """Sums of one side over `count` equal stretches of the window, float64 [count]."""
    if side is None:
        return np.full(count, run.seconds / count)
    position = ((run.t_ns - run.start_ns) * (count / (run.end_ns - run.start_ns))).astype(np.int64)
    return np.bincount(np.minimum(position, count - 1), weights=side, minlength=count).astype(np.float64)


def _zero_ratio(
    runs: Sequence[RatioRun], num: float, den: float, *, scale: float, level: float, reasons: Sequence[str]
) -> Interval:
    """A ratio with a zero side: no event is compatible with up to -ln(a / 2) expected ones, 3.7 at 95 %, if they come
    singly. They come in clusters, so it is taken CLUSTERED times as large."""
    k = len(runs)
    sizes = [run.event_size for run in runs if run.event_size is not None]
    most = -CLUSTERED * math.log((1.0 - level) / 2) * max(sizes) if len(sizes) == k else None
    notes = list(reasons)
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    if num <= 0.0 and den <= 0.0:
        notes.append("nothing to divide: both sides are zero")
    elif num <= 0.0:
        value = 0.0
        hi = None if most is None else scale * most / den
        notes.append("nothing counted in the window: an upper bound only" if hi else "nothing counted in the window")
    else:
        lo = None if most is None else scale * num / most
        notes.append("infinite: nothing to divide by; a lower bound only" if lo else "infinite: nothing to divide by")
    if reason := withheld("no events, one bound", k):
        lo = hi = None
        notes.append(reason)
    return interval(
        value,
        lo,
        hi,
        level=level,
        method=approximate("Poisson bound on no events", k, "no events, one bound", level),
        n=0,
        k=k,
        settled=False,
        reasons=notes,
    )
