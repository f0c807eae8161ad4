"""A quantile from three or more runs: the pooled sample's, bounded by what the runs' shares at it can tell.

How far the share of attempts at or under a value strays is known (Korn & Graubard's effective n: from the scatter
between runs, and from the correlation within them), whatever the distribution looks like there. The Clopper-Pearson
interval of the share p on that n is read back as ranks of the pooled sample (Woodruff 1952; Francisco & Fuller 1991).
So a gap or a step of the distribution at the quantile, ties, or a run that failed altogether bend nothing: value and
bounds are observed values. Means of the runs' own quantiles jump at a gap, and there more repeats cover less.
"""

import math

import numpy as np

from tfbench.stats.correlation import worth_between
from tfbench.stats.fraction import clopper_pearson
from tfbench.stats.interval import Interval, deflate, interval
from tfbench.stats.labels import t_method
from tfbench.stats.pool import Pool
from tfbench.stats.quantile import failed_share, infinite_reason

# Both bounds are shown from so many effective observations beyond the quantile on, of all runs together. With ten, nine
# in ten studies show them; the rest took their correlation for too long.
BEYOND = 5.0
# The correlation time to expect of a queue weighs as much as the quantile's own does with this many effective
# observations beyond: read from few, its own is long where the sample saw many bad stretches, and the bounds of those
# that saw few by luck would miss.
PRIOR = 10.0
# Shares read from few effective observations are askew: n_eff is taken (1 + SKEW / beyond)^2 times less.
SKEW = 2.0


def quantile_over_runs(pool: Pool, p: float, *, level: float) -> Interval:
    """The p-quantile over K >= 3 runs; see the module.

    Chosen by `benchmarks/coverage_study.py` among t on the runs' shares, either effective n alone, and the smaller of
    both, which holds where restarts differ and where few runs agree by luck.
    """
    k, x = len(pool.values), pool.ordered
    n, value = len(x), pool.at(p)
    worth, beyond = _worth(pool, value, p, level)
    low, high = clopper_pearson(p * worth, worth, level=level)
    first, last = math.floor(low * n + 1e-9), math.ceil(high * n - 1e-9) + 1
    lo = float(x[first - 1]) if first >= 1 else None
    hi = float(x[last - 1]) if last <= n else None

    notes = list(pool.missing)
    settled = beyond >= BEYOND
    near, far = (lo, hi) if p >= 0.5 else (hi, lo)
    if hi is not None and math.isinf(hi) and math.isfinite(value):
        hi = _slowest_answer(pool, p, level)
        if hi is None:
            notes.append(
                f"no upper bound: {failed_share(x)} of the attempts failed, so P{100 * p:g} may lie among them"
            )
    if not settled or far is None:
        notes.append(_short_words(beyond, p))
        lo, hi = (near, None) if p >= 0.5 else (None, near)
    if math.isinf(value):
        notes.append(infinite_reason(x, p))
        lo, hi = lo if lo is not None and math.isfinite(lo) else None, None
    return interval(
        value,
        lo,
        hi,
        level=level,
        method=t_method("ranks by the runs' shares", k),
        n=n,
        n_eff=worth,
        k=k,
        settled=settled and math.isfinite(value),
        ties=True,
        reasons=notes,
    )


def _worth(pool: Pool, edge: float, p: float, level: float) -> tuple[float, float]:
    """The deflated n_eff of all runs for the share at `edge`, and their effective observations beyond P(p)."""
    worth = seen = math.inf
    sizes = np.array([float(len(one)) for one in pool.values])
    for hits, own in pool.shares(edge):
        of_runs = np.array([float(one.sum()) for one in hits])
        share = float(of_runs.sum() / sizes.sum())
        prior = PRIOR / (PRIOR + own.n_eff * min(p, 1.0 - p))
        n_eff = own.n_eff / (1.0 + prior * max(0.0, pool.expected_tau(p) / own.tau - 1.0))
        rarer = min(share, 1.0 - share)
        worth = min(worth, deflate(n_eff, n_eff * (rarer or min(p, 1.0 - p)), level))
        worth = min(worth, worth_between(of_runs, sizes, level) if rarer else math.inf)
        seen = min(seen, n_eff)
    beyond = seen * min(p, 1.0 - p)
    return max(1.0, worth / (1.0 + SKEW / beyond) ** 2), beyond


def _slowest_answer(pool: Pool, p: float, level: float) -> float | None:
    """The largest finite value, where the share that failed is surely less than 1 - p: then P(p) is at most that."""
    failed = int(np.isinf(pool.ordered).sum())
    worth, _ = _worth(pool, math.inf, p, level)
    answered = 1.0 - failed / len(pool.ordered)
    least, _ = clopper_pearson(answered * worth, worth, level=level)
    return float(pool.ordered[-failed - 1]) if least > p else None


def _short_words(beyond: float, p: float) -> str:
    """Why the p-quantile has one bound only, and what to do."""
    times = math.ceil(2.0 * BEYOND / max(beyond, 0.1))
    return (
        f"too few requests beyond P{100 * p:g} (all runs together are worth {beyond:.1f} independent ones, "
        f"{2 * BEYOND:g} needed): run {'over 100' if times >= 100 else times} times as long"
    )
