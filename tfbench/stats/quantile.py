"""Quantiles by rank: which rank, and how many observations it takes."""

import math
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray, IntArray, check_level


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Values that come in clusters, such as the gaps between the chunks of a request.

    Args:
        values: float64 [n], any unit, finite.
        owner: int64 [n], the request each value belongs to, numbered in schedule order.
    """

    values: FloatArray
    owner: IntArray


def check_p(p: float) -> None:
    """Raises ValueError unless 0 < p < 1."""
    if not 0.0 < p < 1.0:
        raise ValueError(f"p must lie strictly between 0 and 1, not {p}")


def rank(n: float, p: float) -> int:
    """ceil(n * p), at least 1, untroubled by rounding (0.95 * 20 is 19, not 19.000000000000004)."""
    return max(1, math.ceil(n * p - 1e-9 * max(1.0, n * p)))


def sample_quantile(x: FloatArray, p: float) -> float:
    """The value of rank ceil(n * p) (numpy's "inverted_cdf"): always an observed value, +inf where that one failed.

    Args:
        x: float64 [n], n >= 1, any order; +inf allowed.
    """
    check_p(p)
    position = rank(len(x), p) - 1
    return float(np.partition(x, position)[position])


def needed_n(p: float, *, level: float = 0.95, sides: int = 2) -> int:
    """The smallest number of independent observations that bounds the p-quantile by order statistics.

    sides = 2: both bounds at `level`; sides = 1: the bound on the far side alone. P95, P99, P99.9: 72, 368, 3688 and
    59, 299, 2995. The largest of n values misses the quantile with probability p^n.
    """
    check_p(p)
    check_level(level)
    if sides not in (1, 2):
        raise ValueError(f"sides must be 1 or 2, not {sides}")
    miss = (1.0 - level) / sides
    return max(1, math.ceil(math.log(miss) / math.log(max(p, 1.0 - p)) - 1e-9))


def rank_interval(n: int, p: float, *, level: float = 0.95) -> tuple[int | None, int | None]:
    """Ranks (1-based) whose values bound the p-quantile of n independent observations; None where no rank does.

    l = binom.ppf(a/2, n, p), u = binom.ppf(1 - a/2, n, p) + 1. n = 1000, P99: (983, 997).
    """
    from scipy.stats import binom

    check_p(p)
    check_level(level)
    if n < 1:
        return None, None
    lower = int(binom.ppf((1.0 - level) / 2, n, p))
    upper = int(binom.ppf((1.0 + level) / 2, n, p)) + 1
    return lower if lower >= 1 else None, upper if upper <= n else None


def infinite_reason(x: FloatArray, p: float) -> str:
    """Why the p-quantile of x has no value, in one line."""
    return f"P{100 * p:g} is infinite: {failed_share(x)} of the attempts failed"


def failed_share(x: FloatArray) -> str:
    """The share of attempts that failed (+inf), in words."""
    return f"{100 * float(np.isinf(x).mean()):.3g} %"
