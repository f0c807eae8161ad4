"""The candidate methods of the coverage study: each takes the runs and gives the bounds it would print, or None."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.queues import FloatArray
from tfbench.stats.combine import combine_chunk_quantile, combine_fraction, combine_quantile, combine_ratio, pooled
from tfbench.stats.correlation import worth_between, worth_together
from tfbench.stats.early_stopping import early_stopping
from tfbench.stats.fraction import clopper_pearson
from tfbench.stats.interval import Interval, student_t
from tfbench.stats.paired import paired_ratio, unpaired_ratio
from tfbench.stats.pool import Pool
from tfbench.stats.quantile import Clusters, rank, rank_interval, sample_quantile
from tfbench.stats.ratio import RatioRun, block_half_width
from tfbench.stats.repeats import over_runs

Bounds = tuple[float, float] | None
Method = Callable[[Sequence], Bounds]  # type: ignore[type-arg]
LEVEL = 0.95
RESAMPLES = 199
BOOTSTRAPPED = 2000  # requests in all; more take too long
AS_PRINTED = "as printed"
MEAN_OF_RUNS = "t on log of runs, unguarded"
PAIRED = "paired t on log"
LOADGEN = "LoadGen's early stopping (one-sided, 99 %)"


def quantile_methods(p: float, k: int) -> dict[str, Method]:
    """Of runs float64 [n] each, in schedule order."""
    methods: dict[str, Method] = {AS_PRINTED: lambda runs: _both(combine_quantile(runs, p))}
    if k >= 3:
        methods[MEAN_OF_RUNS] = lambda runs: _over([sample_quantile(one, p) for one in runs])
    if k > 1 and p >= 0.99:
        return methods  # the others take long there and say nothing new
    if k == 1:  # of several runs it is much like what is printed
        methods["ranks with n_eff, unguarded"] = lambda runs: _ranks(runs, p, correlated=True)
    methods["exact order statistics"] = lambda runs: _ranks(runs, p, correlated=False)
    if p >= 0.9:
        methods[LOADGEN] = lambda runs: _early_stopping(runs, p)
    return methods


def repeat_methods(p: float, k: int) -> dict[str, Method]:
    """Of runs float64 [n] each: what is printed, what was tried for it, and the geometric mean of runs' quantiles."""
    if k < 3:
        return {AS_PRINTED: lambda runs: _both(combine_quantile(runs, p))}
    held: list[Pool] = []

    def pool(runs: Sequence[FloatArray]) -> Pool:
        if not held:
            held.append(pooled(runs))  # every method is asked of the same runs
        return held[0]

    return {
        AS_PRINTED: lambda runs: _both(combine_quantile(pool(runs), p)),
        MEAN_OF_RUNS: lambda runs: _over([sample_quantile(one, p) for one in runs]),
        "t on the runs' shares": lambda runs: _t_on_shares(runs, pool(runs), p),
        "n_eff between runs alone": lambda runs: _shares(pool(runs), p, between=True),
        "n_eff within runs alone": lambda runs: _shares(pool(runs), p, between=False),
    }


def gap_methods(p: float, k: int, n: int) -> dict[str, Method]:
    """Of `Clusters`, one per run of n requests."""
    methods: dict[str, Method] = {
        AS_PRINTED: lambda runs: _both(combine_chunk_quantile(runs, p)),
        "exact order statistics": lambda runs: _ranks([one.values for one in runs], p, correlated=False),
    }
    if k >= 3:
        methods[MEAN_OF_RUNS] = lambda runs: _over([sample_quantile(one.values, p) for one in runs])
    if k * n <= BOOTSTRAPPED:
        methods["cluster bootstrap"] = lambda runs: _cluster_bootstrap(runs, p)
    return methods


def fraction_methods(k: int) -> dict[str, Method]:
    """Of scores float64 [n] each (latency over limit): the share at most 1."""
    methods: dict[str, Method] = {
        AS_PRINTED: lambda runs: _one_or_both(combine_fraction([one <= 1.0 for one in runs], score=runs)),
        "Clopper-Pearson": _clopper_pearson,
    }
    if k >= 3:
        methods["t on logit of runs"] = _t_on_logit
    return methods


def answer_methods(k: int) -> dict[str, Method]:
    """As `fraction_methods`, but two bounds only count where two are shown: bursts may have been missed."""
    return fraction_methods(k) | {
        AS_PRINTED: lambda runs: _both(combine_fraction([one <= 1.0 for one in runs], score=runs))
    }


def ratio_methods(k: int) -> dict[str, Method]:
    """Of `RatioRun`s."""
    methods: dict[str, Method] = {AS_PRINTED: lambda runs: _both(combine_ratio(runs)), "time blocks": _time_blocks}
    return methods if k < 3 else {**methods, "t on runs": _t_on_runs}


def pair_methods(k: int) -> dict[str, Method]:
    """Of pairs (base's figure, candidate's figure), one per run position; the ratio candidate / base."""
    if k < 2:
        return {}
    return {
        PAIRED: lambda pairs: _both(paired_ratio(*np.array(pairs).T)),
        "Welch's t on logs": lambda pairs: _both(unpaired_ratio(*np.array(pairs).T)),
    }


def _both(found: Interval) -> Bounds:
    return None if found.lo is None or found.hi is None else (found.lo, found.hi)


def _one_or_both(found: Interval) -> Bounds:
    """A fraction of 0 or 1 has its own end for the other bound."""
    lo = 0.0 if found.value == 0.0 else found.lo
    hi = 1.0 if found.value == 1.0 else found.hi
    return None if lo is None or hi is None else (lo, hi)


def _over(figures: Sequence[float]) -> Bounds:
    spread = over_runs(figures, level=LEVEL)
    return None if spread.lo is None or spread.hi is None else (spread.lo, spread.hi)


def _t_on_shares(runs: Sequence[FloatArray], pool: Pool, p: float) -> Bounds:
    """Woodruff: Student's t on the runs' shares at the pooled quantile, read back as ranks."""
    shares = np.array([float((one <= pool.at(p)).mean()) for one in runs])
    half = student_t(LEVEL, len(runs) - 1) * float(shares.std(ddof=1)) / math.sqrt(len(runs))
    return _at_ranks(pool, p - half, p + half)


def _shares(pool: Pool, p: float, *, between: bool) -> Bounds:
    """Clopper-Pearson of p on one of the two effective sizes, read back as ranks."""
    hits, within = pool.shares(pool.at(p))[0]
    of_runs, sizes = (np.array([float(one.sum()) for one in side]) for side in (hits, pool.sizes))
    worth = worth_between(of_runs, sizes, LEVEL) if between else within.n_eff
    worth = min(worth, float(len(pool.ordered)))
    return _at_ranks(pool, *clopper_pearson(p * worth, worth))


def _at_ranks(pool: Pool, low: float, high: float) -> Bounds:
    n = len(pool.ordered)
    first, last = math.floor(low * n), math.ceil(high * n) + 1
    if first < 1 or last > n or math.isinf(pool.ordered[last - 1]):
        return None
    return float(pool.ordered[first - 1]), float(pool.ordered[last - 1])


def _ranks(runs: Sequence[FloatArray], p: float, *, correlated: bool) -> Bounds:
    x = np.concatenate(list(runs))
    n = worth = len(x)
    if correlated:
        q = sample_quantile(x, p)
        worth = max(1, int(worth_together([one <= q for one in runs], None).n_eff))
    low, high = rank_interval(worth, p)
    if low is None or high is None:
        return None
    step = (n + 1) / (worth + 1)
    places = [max(0, math.floor(low * step) - 1), min(n, math.ceil(high * step)) - 1]
    x.partition(places)
    return float(x[places[0]]), float(x[places[1]])


def _early_stopping(runs: Sequence[FloatArray], p: float) -> Bounds:
    value = early_stopping(np.concatenate(list(runs)), p).value
    return None if value is None else (0.0, value)


def _cluster_bootstrap(runs: Sequence[Clusters], p: float) -> Bounds:
    """Percentile bootstrap over requests, runs pooled, drawn as if requests were independent."""
    values = np.concatenate([one.values for one in runs])
    shift = np.cumsum([0, *(int(one.owner[-1]) + 1 for one in runs)])
    owner = np.concatenate([one.owner + at for one, at in zip(runs, shift, strict=False)])
    order = np.argsort(values)
    requests = int(shift[-1])
    rng = np.random.default_rng(len(values))
    drawn = rng.multinomial(requests, np.full(requests, 1.0 / requests), RESAMPLES).astype(np.int32)
    found = []
    for weights in drawn:
        reached = np.cumsum(weights[owner[order]])
        found.append(values[order[np.searchsorted(reached, rank(int(reached[-1]), p))]])
    lo, hi = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(lo), float(hi)


def _clopper_pearson(runs: Sequence[FloatArray]) -> Bounds:
    return clopper_pearson(sum(int((one <= 1.0).sum()) for one in runs), sum(map(len, runs)))


def _t_on_logit(runs: Sequence[FloatArray]) -> Bounds:
    shares = np.array([float((one <= 1.0).mean()) for one in runs])
    if shares.min() == 0.0 or shares.max() == 1.0:
        return None
    logit = np.log(shares / (1.0 - shares))
    half = student_t(LEVEL, len(runs) - 1) * float(logit.std(ddof=1)) / math.sqrt(len(runs))
    lo, hi = (1.0 / (1.0 + math.exp(-(float(logit.mean()) + side * half))) for side in (-1, 1))
    return lo, hi


def _time_blocks(runs: Sequence[RatioRun]) -> Bounds:
    ratio = sum(run.total(run.num) for run in runs) / sum(run.total(run.den) for run in runs)
    half = block_half_width(runs, LEVEL)
    return ratio * math.exp(-half), ratio * math.exp(half)


def _t_on_runs(runs: Sequence[RatioRun]) -> Bounds:
    figures = np.array([run.ratio() for run in runs])
    half = student_t(LEVEL, len(runs) - 1) * float(figures.std(ddof=1)) / math.sqrt(len(runs))
    return float(figures.mean()) - half, float(figures.mean()) + half
