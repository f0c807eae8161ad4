"""Intervals over repeats: Student t on the log of the runs' figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import NO_WIDTH, student_t


@dataclass(frozen=True, slots=True)
class Spread:
    """What the runs' figures say: value and bounds (+-inf and None left to the caller), the method's name, notes.

    `flat` means that all runs gave the same figure, so that their spread bounds nothing.
    """

    value: float
    lo: float | None
    hi: float | None
    name: str
    flat: bool
    reasons: tuple[str, ...]


def over_runs(figures: Sequence[float], *, level: float) -> Spread:
    """Value and bounds from K >= 2 figures, one per run.

    Args:
        figures: finite, or +inf for a run whose figure is infinite; no NaN.

    All positive: geometric mean, m +- t_{K-1} s / sqrt(K) on logs. Some zero or negative: the same on plain values (a
    lower bound at or below 0 is dropped when no figure is negative: it says nothing). Some infinite: no value; their
    minimum bounds the median run from below with probability 1 - 2^-K, so it serves from K = 5 on (97 % one-sided).
    All equal: value alone, `flat` set.
    """
    values = np.asarray(figures, dtype=np.float64)
    k = len(values)
    if np.isinf(values).any():
        infinite = int(np.isinf(values).sum())
        lo = float(values.min()) if k >= 5 and infinite < k else None
        return Spread(math.inf, lo, None, "lowest run", False, (f"infinite in {infinite} of {k} runs",))
    top, bottom = float(values.max()), float(values.min())
    if top - bottom <= NO_WIDTH * max(abs(top), abs(bottom)):
        return Spread(top, None, None, "equal runs", True, ("all runs gave the same figure",))
    factor = student_t(level, k - 1) / math.sqrt(k)
    if bottom > 0.0:
        logs = np.log(values)
        mean, half = float(logs.mean()), factor * float(logs.std(ddof=1))
        return Spread(_exp(mean), _exp(mean - half), _exp(mean + half), "t on log of runs", False, ())
    mean, half = float(values.mean()), factor * float(values.std(ddof=1))
    why = "some runs gave 0, so logs don't serve" if bottom == 0.0 else "some runs gave a negative figure"
    if bottom == 0.0 and mean <= half:
        return Spread(mean, None, mean + half, "t on runs", False, (why, "no lower bound above 0"))
    return Spread(mean, mean - half, mean + half, "t on runs", False, (why,))


def _exp(x: float) -> float:
    """exp without an overflow error: +inf beyond the largest number."""
    return math.exp(x) if x < 709.0 else math.inf
