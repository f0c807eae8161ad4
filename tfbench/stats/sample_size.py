"""How many attempts a run takes, before anything is sent: at best, and with a queue's correlation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.stats.correlation import Worth
from tfbench.stats.fraction import FEW
from tfbench.stats.quantile import check_p, needed_n
from tfbench.stats.quantile_over_runs import BEYOND
from tfbench.stats.quantile_within_run import SETTLED

# A plan asks for twice what settles, and 20 good or bad stretches: n_eff is itself read from the runs and strays, the
# more the fewer they are, and figures of runs that saw few bad stretches are askew. Measured by
# `benchmarks/coverage_study.py`: at least 95 % of such studies of 5 runs settle.
SPARE = 2.0
SPELLS = 20.0
# Correlation times in a run, beside the stretches, from which t on rates and costs holds.
RATE_DRAWS = 30.0
# Effective attempts on the rarer side of a fraction, per run: what five runs take to show how bad attempts cluster.
FRACTION_DRAWS = FEW / 5
# The variance of an estimated tau, relative to its square, times the effective observations beyond the quantile it was
# read from. Measured: 3 for the tails of M/D/1, M/M/1 and M/H2/1 queues, 6 for P99 of the reference engine at load 0.8.
TAU_NOISE = 6.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What n attempts per run can say about one quantile, at best.

    Args:
        p: the quantile.
        bounded: whether independent observations give it an upper bound at all.
        settled: whether the figure is shown with both bounds, in nine of ten studies.
        n_bounded, n_settled: attempts per run it takes.
    """

    p: float
    bounded: bool
    settled: bool
    n_bounded: int
    n_settled: int


def carried_quantiles(
    n: int,
    ps: Sequence[float] = (0.5, 0.9, 0.95, 0.99, 0.999),
    *,
    repeats: int = 1,
    tau: float = 1.0,
    level: float = 0.95,
) -> tuple[Carried, ...]:
    """Which quantiles n attempts per run can carry: from 3 repeats on all runs together, a run alone before.

    Args:
        n: attempts per run.
        repeats: runs of a load point.
        tau: correlation time in attempts, n_eff = n / tau. 1 is the best case.
    """
    _check_tau(tau)
    result = []
    for p in ps:
        n_bounded = math.ceil(needed_n(p, level=level) * tau)
        beyond = 2.0 * BEYOND / repeats if repeats >= 3 else SETTLED
        n_settled = math.ceil(beyond * tau / min(p, 1.0 - p) - 1e-6)
        result.append(Carried(p, n >= n_bounded, n >= n_settled, n_bounded, n_settled))
    return tuple(result)


def planned_attempts(p: float, tau: float, slow: float = 1.0) -> int:
    """Attempts per run to plan for a p-quantile: each of K >= 3 runs then settles it, nearly always.

    Args:
        p: the quantile, in (0, 1).
        tau: its correlation time in attempts: `tau_limit` of an earlier study's n / n_eff, or `queue_correlation_time`.
        slow: how long its good and bad stretches last, n / spells, likewise; tau where that is more.

    tau = 1: P50 60, P95 420, P99 2020.
    """
    check_p(p)
    return _attempts(tau * SPARE * SETTLED / min(p, 1.0 - p), tau, slow)


def planned_attempts_for_rates(tau: float, slow: float = 1.0) -> int:
    """Attempts per run to plan for goodput or cost; `tau` and `slow` are those of being good. tau = 1: 50."""
    return _attempts(tau * RATE_DRAWS, tau, slow)


def planned_attempts_for_fraction(share: float, tau: float, slow: float = 1.0) -> int:
    """Attempts per run to plan for a good fraction near `share`; `tau` and `slow` are those of being good.

    As for rates, and 2 effective attempts on the rarer side: tau = 1 and 0.9 takes 50, 0.99 200, 0.999 2000. A system
    that is rarely bad but then for long looks better than it is to runs that saw none of that.
    """
    check_p(share)
    at_all = planned_attempts_for_rates(tau, slow)
    return max(at_all, math.ceil(tau * FRACTION_DRAWS / min(share, 1.0 - share) - 1e-6))


def _attempts(some: float, tau: float, slow: float) -> int:
    """`some` attempts beside those that hold SPELLS stretches."""
    _check_tau(tau)
    _check_tau(slow)
    return math.ceil(some + SPELLS * max(tau, slow) - 1e-6)


def plan_times(sizes: Sequence[int], worth: Sequence[Worth], rarer: float) -> tuple[float, float]:
    """tau and slow to plan with, at their upper limits: of the run of an earlier study that has the largest.

    Args:
        sizes: observations of each run, in the unit that the plan is to be in.
        worth: what each is worth.
        rarer: the share of those beyond the quantile, or of the rarer side.
    """
    beyond = sum(min(one.n_eff * rarer, one.draws) for one in worth)
    found = [(size / one.n_eff, size / one.spells) for size, one in zip(sizes, worth, strict=True)]
    tau, slow = (tau_limit(max(1.0, *column), beyond) for column in zip(*found, strict=True))
    return tau, slow


def tau_limit(tau: float, beyond: float, *, confidence: float = 0.8) -> float:
    """An upper confidence limit of an estimated tau, so that a plan from few attempts isn't too short by luck.

    Args:
        tau: n / n_eff (or n / spells) of a quantile or fraction in an earlier study, over all its runs.
        beyond: the effective observations on the rarer side, n_eff * min(p, 1 - p), over all its runs; >= 0.

    tau is a variance, so its excess over 1 is taken df / chi2_df(1 - confidence) times, as `plan.sd_upper` does, with
    df = 2 / (relative variance) = beyond / 3, plus 1.
    """
    from scipy.special import chdtri

    _check_tau(tau)
    if not (0.0 <= beyond < math.inf and 0.0 < confidence < 1.0):
        raise ValueError(f"beyond must be finite and >= 0, confidence in (0, 1), not {beyond} and {confidence}")
    df = 2.0 * beyond / TAU_NOISE + 1.0
    return 1.0 + (tau - 1.0) * df / float(chdtri(df, confidence))


def queue_correlation_time(load: float) -> float:
    """What to expect of tau where nothing was measured yet: that of waiting in an M/M/1 queue.

    Args:
        load: arrivals over what the system can serve, in [0, 1).

    (2 + 5 r - 4 r^2 + r^3) / ((2 - r) (1 - r)^2): 10 at load 0.5, 82 at 0.8. The tail's own is close to it, that of the
    median a third. Servers with many slots do better; services of high variance do worse. Source: Blomqvist 1967, "The
    covariance function of the M/G/1 queuing system".
    """
    if not 0.0 <= load < 1.0:
        raise ValueError(f"load must lie in [0, 1), not {load}")
    rest = 1.0 - load
    return (2.0 + 5.0 * load - 4.0 * load**2 + load**3) / ((2.0 - load) * rest**2)


def _check_tau(tau: float) -> None:
    if not 1.0 <= tau < math.inf:
        raise ValueError(f"tau must be at least 1 and finite, not {tau}")
