"""MLPerf LoadGen's early stopping: what it says of a run, to stand beside our own bounds.

A run with t queries over the limit among n may claim that "the p-quantile meets the limit" if a system that meets it
with probability exactly p - tolerance would show t or fewer such queries with probability below 1 - confidence. It
takes all queries for independent: on a queue its claims hold less often than it says (docs/statistics.md).

Source: MLPerf Inference LoadGen, early_stopping.cc; confidence 0.99 and tolerance 0 are fixed there.
"""

import math
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray
from tfbench.stats.quantile import check_p

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """LoadGen's estimate of a quantile from n queries.

    Args:
        value: an upper bound of the p-quantile (confidence 0.99 if queries were independent), in the unit of the data;
            None where n is too small or it falls on a failed query.
        n: queries.
        over: t, how many of them may lie beyond it; None where n is too small.
        index: its place in ascending order, from 0, as LoadGen counts: n - t; None where n is too small.
        needed: the fewest queries that give an estimate.
        reason: why there is no value, or None.
    """

    value: float | None
    n: int
    over: int | None
    index: int | None
    needed: int
    reason: str | None


def needed_queries(over: int, p: float, *, confidence: float = CONFIDENCE, tolerance: float = 0.0) -> int:
    """The fewest queries among which `over` may exceed the limit: h + t with the smallest h that serves.

    p = 0.99: 459, 662, 838, 2010, 12571 for t = 0, 1, 2, 10, 100. Raises ValueError for t < 0, p - tolerance or
    confidence outside (0, 1).
    """
    if over < 0:
        raise ValueError(f"over must not be negative, not {over}")
    least, most = 1, 2
    while not _serves(most, over, p, confidence, tolerance):
        least, most = most, 2 * most
    while least < most:
        middle = (least + most) // 2
        if _serves(middle, over, p, confidence, tolerance):
            most = middle
        else:
            least = middle + 1
    return least + over


def allowed_over(n: int, p: float, *, confidence: float = CONFIDENCE, tolerance: float = 0.0) -> int | None:
    """The most of n queries that may exceed the limit while the claim stands; None where not even 0 may."""
    if n < needed_queries(0, p, confidence=confidence, tolerance=tolerance):
        return None
    # h falls short of serving as t grows, so the largest t that serves lies between.
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if middle < n and _serves(n - middle, middle, p, confidence, tolerance):
            low = middle
        else:
            high = middle - 1
    return low


def meets(over: int, n: int, p: float) -> bool:
    """LoadGen's Server rule: whether n queries with `over` beyond the limit may claim that the p-quantile meets it."""
    allowed = allowed_over(n, p)
    return allowed is not None and over <= allowed


def early_stopping(x: FloatArray, p: float) -> EarlyStopping:
    """LoadGen's SingleStream and MultiStream estimate: sorted[n - t] for the largest t >= 1 that n allows.

    Args:
        x: float64 [n], n >= 0, any order, +inf for a failure, no NaN.
    """
    check_p(p)
    values = np.asarray(x, dtype=np.float64)
    if bool(np.isnan(values).any()):
        raise ValueError("values must not be NaN; leave nulls out and give failed attempts as +inf")
    n, needed = len(values), needed_queries(1, p)
    over = allowed_over(n, p)
    if over is None or over < 1:
        why = f"LoadGen's early stopping takes {needed} queries for P{100 * p:g}, not {n}"
        return EarlyStopping(None, n, None, None, needed, why)
    value = float(np.partition(values, n - over)[n - over])
    if not math.isfinite(value):
        return EarlyStopping(None, n, over, n - over, needed, "the estimate falls on queries that failed")
    return EarlyStopping(value, n, over, n - over, needed, None)


def _serves(within: int, over: int, p: float, confidence: float, tolerance: float) -> bool:
    """BinomialCDF(over; within + over, 1 - p + tolerance) < 1 - confidence, as the regularised beta I_q(h, t + 1)."""
    from scipy.special import betainc

    q = p - tolerance
    if not (0.0 < q < 1.0 and 0.0 < confidence < 1.0):
        raise ValueError(f"p - tolerance and confidence must lie strictly between 0 and 1, not {q} and {confidence}")
    return float(betainc(within, over + 1.0, q)) < 1.0 - confidence
