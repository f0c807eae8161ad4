"""How many attempts to plan for."""

import math

import numpy as np
import pytest

from benchmarks.queues import limit, queue
from tfbench.stats.correlation import worth_together
from tfbench.stats.quantile import sample_quantile
from tfbench.stats.sample_size import (
    carried_quantiles,
    planned_attempts,
    planned_attempts_for_fraction,
    planned_attempts_for_rates,
    queue_correlation_time,
    tau_limit,
)


def test_carried_quantiles() -> None:
    p50, p95, p99 = carried_quantiles(250, (0.5, 0.95, 0.99))
    assert (p50.settled, p50.n_settled, p50.bounded) == (True, 20, True)
    assert (p95.settled, p95.n_settled, p95.n_bounded) == (True, 200, 72)
    assert (p99.settled, p99.n_settled, p99.bounded, p99.n_bounded) == (False, 1000, False, 368)
    # Three repeats carry together what none does alone; two don't.
    alone, two, three = (carried_quantiles(100, (0.95,), repeats=k)[0].settled for k in (1, 2, 3))
    assert (alone, two, three) == (False, False, True)
    (queued,) = carried_quantiles(250, (0.95,), tau=5.0)
    assert (queued.settled, queued.n_settled) == (False, 1000)
    assert not any(one.bounded or one.settled for one in carried_quantiles(0))


@pytest.mark.parametrize(("p", "planned"), [(0.5, 60), (0.95, 420), (0.05, 420), (0.99, 2020)])
def test_a_plan_asks_for_more_than_just_settles(p: float, planned: int) -> None:
    assert planned_attempts(p, 1.0) == planned
    assert planned_attempts(p, 7.5) == math.ceil(7.5 * planned)
    (least,) = carried_quantiles(0, (p,))
    assert planned > 1.5 * least.n_settled


def test_rates_take_correlation_times() -> None:
    assert planned_attempts_for_rates(1.0) == 50
    assert planned_attempts_for_rates(3.3) == 165


def test_fractions_near_an_end_take_attempts_on_the_rarer_side() -> None:
    found = [planned_attempts_for_fraction(share, 1.0) for share in (0.5, 0.9, 0.99, 0.01, 0.999)]
    assert found == [50, 50, 200, 200, 2000]
    assert planned_attempts_for_fraction(0.99, 3.3) == 660


def test_a_short_pilot_makes_tau_larger() -> None:
    # 1 + 9 * 11 / chi2 with 11 degrees of freedom at 20 %, 6.989.
    assert tau_limit(10.0, 30.0) == pytest.approx(1.0 + 9.0 * 11.0 / 6.9887, rel=1e-4)
    limits = [tau_limit(10.0, beyond) for beyond in (0.0, 10.0, 100.0, 1e4, 1e7)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == pytest.approx(10.0, rel=1e-2)
    assert tau_limit(1.0, 5.0) == 1.0
    assert tau_limit(10.0, 30.0, confidence=0.95) > tau_limit(10.0, 30.0)


@pytest.mark.parametrize(("p", "load"), [(0.95, 0.5), (0.99, 0.5), (0.95, 0.7)])
def test_the_limit_of_tau_holds_what_it_says(p: float, load: float) -> None:
    n = int(30.0 * queue_correlation_time(load) / (1.0 - p))
    _, response = queue(np.random.default_rng(6), 150, n, load)
    edge = limit(p, load)
    truth = response.size / worth_together([one <= edge for one in response], None).n_eff
    held = 0
    for one in response:
        n_eff = worth_together([one <= sample_quantile(one, p)], None).n_eff
        held += tau_limit(n / n_eff, n_eff * (1.0 - p)) >= truth
    # 80 % less three standard errors; beyond 98 % it would ask for more than it needs.
    assert 0.70 * len(response) <= held <= 0.98 * len(response)


@pytest.mark.parametrize(("load", "tau"), [(0.0, 1.0), (0.5, 29 / 3), (0.8, 82.3333333)])
def test_the_queue_of_the_literature(load: float, tau: float) -> None:
    assert queue_correlation_time(load) == pytest.approx(tau)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_tails_correlate_as_long_as_the_formula_says(load: float) -> None:
    _, response = queue(np.random.default_rng(4), 1, 400_000, load)
    for p, least in ((0.5, 0.2), (0.99, 0.7)):
        found = 400_000 / worth_together([response[0] <= limit(p, load)], None).n_eff
        assert least < found / queue_correlation_time(load) < 1.3


def test_misuse() -> None:
    for tau in (0.5, math.inf, math.nan):
        for plan in (
            lambda t: carried_quantiles(10, tau=t),
            lambda t: planned_attempts(0.9, t),
            planned_attempts_for_rates,
            lambda t: planned_attempts_for_fraction(0.9, t),
            lambda t: tau_limit(t, 10.0),
        ):
            with pytest.raises(ValueError, match="tau"):
                plan(tau)
    with pytest.raises(ValueError, match="p must"):
        planned_attempts(1.0, 1.0)
    with pytest.raises(ValueError, match="p must"):
        planned_attempts_for_fraction(1.0, 1.0)
    for beyond, confidence in ((-1.0, 0.8), (math.inf, 0.8), (math.nan, 0.8), (10.0, 1.0)):
        with pytest.raises(ValueError, match="beyond"):
            tau_limit(2.0, beyond, confidence=confidence)
    for load in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="load"):
            queue_correlation_time(load)
