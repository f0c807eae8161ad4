"""Has the run warmed up? MSER-5 on a series in schedule order."""

from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray

BATCH = 5
LEAST_BATCHES = 10


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What MSER-5 says.

    Args:
        discard: leading observations it would drop, a multiple of 5; None = can't say.
        n: observations looked at.
        steady: False where the best cut lies at the half of the run (no steady state found); None = can't say.
        reason: why it can't say, or what is wrong; None when steady.
    """

    discard: int | None
    n: int
    steady: bool | None
    reason: str | None


def mser5(x: FloatArray) -> WarmUp:
    """Where a run's start stops disturbing its mean.

    d* = argmin over d <= m / 2 of sum_{j >= d} (Z_j - mean)^2 / (m - d)^2, Z the m means of 5 in schedule order. It
    warns; nobody moves a window after the fact.

    Args:
        x: float64 [n] in schedule order. +inf (failed) counts as the largest finite value. NaN raises ValueError.

    Source: White, Cobb & Spratt 2000, "A comparison of five steady-state truncation heuristics for simulation".
    """
    x = np.asarray(x, dtype=np.float64)
    n = len(x)
    if np.isnan(x).any():
        raise ValueError("mser5 takes no NaN; leave nulls out")
    finite = x[np.isfinite(x)]
    m = n // BATCH
    if m < LEAST_BATCHES:
        return WarmUp(None, n, None, f"{n} observations are too few, it takes {BATCH * LEAST_BATCHES}")
    if len(finite) == 0:
        return WarmUp(None, n, None, "every observation failed")
    level = float(np.abs(finite).max())
    scaled = np.clip(x, float(finite.min()), float(finite.max())) / (level if level > 0.0 else 1.0)
    batches = scaled[: m * BATCH].reshape(m, BATCH).mean(axis=1)
    batches = batches - batches.mean()
    # Sums over the tail from each d on; centring first keeps the difference of squares exact enough.
    left = np.arange(m, 0, -1, dtype=np.float64)
    first = np.cumsum(batches[::-1])[::-1]
    second = np.cumsum(batches[::-1] ** 2)[::-1]
    score = np.maximum(second - first**2 / left, 0.0) / left**2
    last = m // 2
    best = int(np.argmin(score[: last + 1]))
    if best >= last and score[best] < score[0]:
        return WarmUp(best * BATCH, n, False, "no steady state: the best cut is at half of the run")
    return WarmUp(best * BATCH, n, True, None)
