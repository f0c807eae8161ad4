"""How many attempts a run takes, before anything is sent: at best, and with a queue's correlation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.stats.fraction import FEW
from tfbench.stats.quantile import SETTLED, check_p, needed_n

# A plan asks for three quarters more than settles, and 20 observations: n_eff is itself read from the runs and strays,
# the more the fewer they are. Measured by `benchmarks/coverage_study.py`: at least 95 % of such studies settle.
SPARE = 1.75
SPARE_DRAWS = 20.0
# Correlation times in a run from which t on rates and costs holds; shorter runs mostly miss the bad stretches.
RATE_DRAWS = 50.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What n attempts per run can say about one quantile, at best.

    Args:
        p: the quantile.
        bounded: whether independent observations give it an upper bound at all.
        settled: whether the figure is shown with both bounds: n_eff * min(p, 1 - p) >= 10.
        n_bounded, n_settled: attempts per run it takes.
    """

    p: float
    bounded: bool
    settled: bool
    n_bounded: int
    n_settled: int


def carried_quantiles(
    n: int, ps: Sequence[float] = (0.5, 0.9, 0.95, 0.99, 0.999), *, tau: float = 1.0, level: float = 0.95
) -> tuple[Carried, ...]:
    """Which quantiles n attempts per run can carry.

    Args:
        n: attempts per run.
        tau: correlation time in attempts, n_eff = n / tau. 1 is the best case.
    """
    _check_tau(tau)
    result = []
    for p in ps:
        n_bounded = math.ceil(needed_n(p, level=level) * tau)
        n_settled = math.ceil(SETTLED * tau / min(p, 1.0 - p) - 1e-6)
        result.append(Carried(p, n >= n_bounded, n >= n_settled, n_bounded, n_settled))
    return tuple(result)


def planned_attempts(p: float, tau: float) -> int:
    """Attempts per run to plan for a p-quantile: each of K >= 3 runs then settles it, nearly always.

    Args:
        p: the quantile, in (0, 1).
        tau: its correlation time in attempts: n / n_eff of an earlier study's figure, or `queue_correlation_time`.

    tau = 1: P50 55, P95 370, P99 1770.
    """
    check_p(p)
    _check_tau(tau)
    return math.ceil(tau * (SPARE * SETTLED / min(p, 1.0 - p) + SPARE_DRAWS) - 1e-6)


def planned_attempts_for_rates(tau: float) -> int:
    """Attempts per run to plan for goodput, cost or a good fraction; `tau` is that of being good."""
    _check_tau(tau)
    return math.ceil(tau * max(RATE_DRAWS, SPARE * FEW) - 1e-6)


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
