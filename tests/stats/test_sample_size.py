"""How many attempts to plan for."""

import math

import numpy as np
import pytest

from benchmarks.queues import limit, queue
from tfbench.stats.correlation import worth_together
from tfbench.stats.sample_size import (
    carried_quantiles,
    planned_attempts,
    planned_attempts_for_rates,
    queue_correlation_time,
)


def test_carried_quantiles() -> None:
    p50, p95, p99 = carried_quantiles(250, (0.5, 0.95, 0.99))
    assert (p50.settled, p50.n_settled, p50.bounded) == (True, 20, True)
    assert (p95.settled, p95.n_settled, p95.n_bounded) == (True, 200, 72)
    assert (p99.settled, p99.n_settled, p99.bounded, p99.n_bounded) == (False, 1000, False, 368)
    (queued,) = carried_quantiles(250, (0.95,), tau=5.0)
    assert (queued.settled, queued.n_settled) == (False, 1000)
    assert not any(one.bounded or one.settled for one in carried_quantiles(0))


@pytest.mark.parametrize(("p", "planned"), [(0.5, 55), (0.95, 370), (0.05, 370), (0.99, 1770)])
def test_a_plan_asks_for_more_than_just_settles(p: float, planned: int) -> None:
    assert planned_attempts(p, 1.0) == planned
    assert planned_attempts(p, 7.5) == math.ceil(7.5 * planned)
    (least,) = carried_quantiles(0, (p,))
    assert planned > 1.5 * least.n_settled


def test_rates_take_correlation_times() -> None:
    assert planned_attempts_for_rates(1.0) == 50
    assert planned_attempts_for_rates(3.3) == 165


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
        ):
            with pytest.raises(ValueError, match="tau"):
                plan(tau)
    with pytest.raises(ValueError, match="p must"):
        planned_attempts(1.0, 1.0)
    for load in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="load"):
            queue_correlation_time(load)
