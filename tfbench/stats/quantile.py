"""Quantiles by rank: which rank, how many observations it takes, and what a correlated sample can say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfbench.stats.correlation import Worth, worth_between_stretches, worth_of_each, worth_together
from tfbench.stats.interval import BoolArray, FloatArray, IntArray, Interval, check_level, deflate, interval
from tfbench.stats.labels import approximate, withheld

# A quantile is settled when each run holds this many effective observations beyond it.
SETTLED = 10.0
# K <= 2 runs give both bounds from this many sure observations in all, and from twice SETTLED beyond the quantile:
# with fewer, runs that took their correlation for too short are most of those that would pass.
OWN_SCATTER = 300.0


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


def worth_by_run(values: Sequence[FloatArray], owners: Sequence[IntArray] | None, p: float) -> list[Worth]:
    """What each run is worth at its own p-quantile."""
    return worth_at(values, owners, [sample_quantile(one, p) for one in values])


def worth_at(values: Sequence[FloatArray], owners: Sequence[IntArray] | None, edges: Sequence[float]) -> list[Worth]:
    """What each run is worth at an edge of its own."""
    return worth_of_each([_inside(one, q, float(one.max())) for one, q in zip(values, edges, strict=True)], owners)


def is_settled(worth: Sequence[Worth], p: float) -> bool:
    """Whether every run carries the p-quantile."""
    return min(one.n_eff for one in worth) * min(p, 1.0 - p) >= SETTLED


def unsettled_reason(worth: Sequence[Worth], p: float) -> str:
    """Why the p-quantile isn't settled, in one line."""
    least = min(one.n_eff for one in worth)
    return (
        f"not settled: the weakest run is worth {math.floor(10 * least) / 10:g} independent observations, "
        f"P{100 * p:g} takes {SETTLED / min(p, 1.0 - p):.0f}"
    )


def pooled_quantile(
    values: Sequence[FloatArray],
    owners: Sequence[IntArray] | None,
    p: float,
    *,
    level: float,
    reasons: Sequence[str] = (),
) -> Interval:
    """The p-quantile of all runs together, bounded by ranks with an effective sample size. Approximate.

    Args:
        values: one float64 array [n] per run, n >= 1, in schedule order, +inf allowed.
        owners: as in `Clusters`, one per run, or None.

    The indicator 1{x <= q} gives n_eff: the smallest of what its correlation time, the scatter of stretches and that
    between runs allow, each deflated for being estimated. The ranks of that many independent observations are then
    looked up in the sample. The bounds span the runs' own quantiles. Where too few observations remain, only the bound
    on the near side holds: a short run rarely sees the tail, and those that pass for long have taken their correlation
    for too short. A method measured to hold too rarely shows no bounds (`labels.withheld`).
    """
    k = len(values)
    everything = np.sort(np.concatenate(list(values)))
    n = len(everything)
    value = float(everything[rank(n, p) - 1])
    own = [sample_quantile(one, p) for one in values]
    by_run = worth_at(values, owners, own)
    inside = [_inside(one, value, float(everything[-1])) for one in values]
    together = worth_together(inside, owners)
    n_eff = together.n_eff
    # Gaps of one request aren't seen to correlate where there are few requests: none counts for more than one.
    seen = n_eff if owners is None else min(n_eff, together.draws)
    worth = deflate(seen, min(seen * min(p, 1.0 - p), together.draws) + 1.0, level)
    worth = min(worth, worth_between_stretches(inside, owners, level))
    settled = is_settled(by_run, p)
    enough = max(OWN_SCATTER, 2 * SETTLED / min(p, 1.0 - p))
    whole = settled and worth >= enough
    # Runs that pass narrowly mostly overrate themselves.
    independent = max(1, int(worth - enough / 2 if whole else worth))
    low, high = rank_interval(independent, p, level=level)
    # Rank r of that many observations sits where rank r (n + 1) / (independent + 1) of n does.
    step = (n + 1) / (independent + 1)
    lo = None if low is None else float(everything[max(0, math.floor(low * step) - 1)])
    hi = None if high is None else float(everything[min(n, math.ceil(high * step)) - 1])
    lo = None if lo is None else min(lo, *own)
    hi = None if hi is None else max(hi, *own)

    notes = list(reasons)
    if math.isinf(value):
        notes.append(infinite_reason(everything, p))
        lo = lo if lo is not None and math.isfinite(lo) else None
        hi = None
    elif hi is not None and math.isinf(hi):
        notes.append(f"the upper bound falls on attempts that failed ({_failed(everything)})")
    if not whole:
        if settled:
            notes.append(
                f"too short to tell its own correlation: worth {worth:.0f} observations for sure, "
                f"both bounds take {enough:.0f} with K={k}"
            )
        else:
            notes.append(unsettled_reason(by_run, p))
        lo, hi = (lo, None) if p >= 0.5 else (None, hi)
        if (lo if p >= 0.5 else hi) is None:
            notes.append(f"P{100 * p:g} can't be bounded by {n} observations")
    kind = ("gaps" if owners is not None else "quantile") + ("" if whole else ", one bound")
    if reason := withheld(kind, k):
        lo = hi = None
        notes.append(reason)
    name = "ranks with n_eff over requests" if owners is not None else "ranks with n_eff"
    return interval(
        value,
        lo,
        hi,
        level=level,
        method=approximate(name, k, kind, level),
        n=n,
        n_eff=n_eff,
        k=k,
        settled=settled and math.isfinite(value),
        reasons=notes,
    )


def infinite_reason(x: FloatArray, p: float) -> str:
    """Why the p-quantile of x has no value, in one line."""
    return f"P{100 * p:g} is infinite: {_failed(x)} of the attempts failed"


def _failed(x: FloatArray) -> str:
    return f"{100 * float(np.isinf(x).mean()):.3g} %"


def _inside(x: FloatArray, q: float, largest: float) -> BoolArray:
    # Where q is the largest value (a failed attempt's inf, a cap that many hit), what separates is falling short of it.
    return x < q if q == largest else x <= q
