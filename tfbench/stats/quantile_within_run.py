"""A quantile from one run or two: what a run can say of itself, and nothing of how far runs differ."""

import math
from collections.abc import Sequence

from tfbench.stats.correlation import Worth, worth_between_stretches, worth_of_each, worth_together
from tfbench.stats.interval import BoolArray, FloatArray, IntArray, Interval, deflate, interval
from tfbench.stats.labels import approximate, withheld
from tfbench.stats.pool import Pool
from tfbench.stats.quantile import failed_share, infinite_reason, rank_interval, sample_quantile

# A run carries a quantile by itself when it holds this many effective observations beyond it.
SETTLED = 10.0
# Both bounds take this many sure observations in all, and twice SETTLED beyond the quantile: with fewer, runs that took
# their correlation for too short are most of those that would pass.
OWN_SCATTER = 300.0


def worth_by_run(values: Sequence[FloatArray], owners: Sequence[IntArray] | None, p: float) -> list[Worth]:
    """What each run is worth at its own p-quantile."""
    return worth_at(values, owners, [sample_quantile(one, p) for one in values])


def worth_at(values: Sequence[FloatArray], owners: Sequence[IntArray] | None, edges: Sequence[float]) -> list[Worth]:
    """What each run is worth at an edge of its own."""
    return worth_of_each([_inside(one, q, float(one.max())) for one, q in zip(values, edges, strict=True)], owners)


def is_settled(worth: Sequence[Worth], p: float) -> bool:
    """Whether every run carries the p-quantile."""
    return min(one.n_eff for one in worth) * min(p, 1.0 - p) >= SETTLED


def short_words(worth: Sequence[Worth], p: float) -> str:
    """Why not every run carries the p-quantile, and what to do, in one line."""
    least = min(one.n_eff for one in worth)
    needed = SETTLED / min(p, 1.0 - p)
    return (
        f"runs too short for P{100 * p:g} (the weakest is worth {math.floor(10 * least) / 10:g} independent requests, "
        f"{needed:.0f} needed): run {math.ceil(1.2 * needed / least)} times as long"
    )


def quantile_within_run(pool: Pool, p: float, *, level: float) -> Interval:
    """The p-quantile of one run or two, bounded by ranks with an effective sample size. Approximate.

    The indicator 1{x <= q} gives n_eff: the smallest of what its correlation time, the scatter of stretches and that
    between runs allow, each deflated for being estimated. The ranks of that many independent observations are then
    looked up in the sample. The bounds span the runs' own quantiles. Where too few observations remain, only the bound
    on the near side holds: a short run rarely sees the tail, and those that pass for long have taken their correlation
    for too short. A method measured to hold too rarely shows no bounds (`labels.withheld`).
    """
    values, owners, everything = pool.values, pool.owners, pool.ordered
    k, n, value = len(values), len(everything), pool.at(p)
    own = [value] if k == 1 else [sample_quantile(one, p) for one in values]
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

    notes = list(pool.missing)
    if math.isinf(value):
        notes.append(infinite_reason(everything, p))
        lo = lo if lo is not None and math.isfinite(lo) else None
        hi = None
    elif hi is not None and math.isinf(hi):
        notes.append(
            f"no upper bound: {failed_share(everything)} of the attempts failed, so P{100 * p:g} may lie among them"
        )
    if not whole:
        if settled:
            notes.append(
                f"too short to tell how far its requests depend on each other (worth {worth:.0f} independent ones for "
                f"sure, {enough:.0f} needed): run {math.ceil(enough / worth)} times as long, or 5 repeats"
            )
        else:
            notes.append(f"{short_words(by_run, p)}, or 5 repeats")
        lo, hi = (lo, None) if p >= 0.5 else (None, hi)
        if (lo if p >= 0.5 else hi) is None:
            notes.append(f"P{100 * p:g} can't be bounded by {n} requests")
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
        ties=True,
        reasons=notes,
    )


def _inside(x: FloatArray, q: float, largest: float) -> BoolArray:
    # Where q is the largest value (a failed attempt's inf, a cap that many hit), what separates is falling short of it.
    return x < q if q == largest else x <= q
