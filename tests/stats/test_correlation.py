"""Correlation times against ones known in closed form."""

import numpy as np
import pytest
from scipy.signal import lfilter

from tfbench.stats.correlation import correlation_time, worth_of_each, worth_together


def autoregression(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = rng.normal(size=n + 500)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise)[500:])


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_autoregression(phi: float) -> None:
    x = autoregression(np.random.default_rng(1), 200_000, phi)
    assert correlation_time([x - x.mean()], len(x)) == pytest.approx((1 + phi) / (1 - phi), rel=0.1)


def test_independent_and_alternating_series_are_worth_n() -> None:
    rng = np.random.default_rng(2)
    x = rng.random(20_000) < 0.5
    assert worth_together([x], None).n_eff == pytest.approx(20_000, rel=0.1)
    alternating = np.arange(1000) % 2 == 0
    assert worth_together([alternating], None).n_eff == 1000.0


def test_short_runs_estimate_one_tau_together() -> None:
    rng = np.random.default_rng(3)
    runs = [autoregression(rng, 500, 0.9) > 0.0 for _ in range(200)]
    whole = autoregression(rng, 100_000, 0.9) > 0.0
    together = sum(one.n_eff for one in worth_of_each(runs, None))
    assert together == pytest.approx(worth_together([whole], None).n_eff, rel=0.15)


def test_a_shift_between_runs_lowers_the_pooled_worth() -> None:
    rng = np.random.default_rng(4)
    runs = [rng.random(2000) < share for share in (0.2, 0.8)]
    assert sum(one.n_eff for one in worth_of_each(runs, None)) > 2500
    assert worth_together(runs, None).n_eff < 100


def test_copies_within_a_request_add_nothing() -> None:
    requests = np.random.default_rng(5).random(3000) < 0.3
    owner = np.repeat(np.arange(3000), 20)
    copies = worth_together([np.repeat(requests, 20)], [owner])
    assert copies.n_eff == pytest.approx(worth_together([requests], None).n_eff)
    assert copies.draws == pytest.approx(3000, rel=0.2)


def test_what_tells_nothing() -> None:
    assert correlation_time([], 1) == 1.0
    assert correlation_time([np.zeros(5)], 5) == 1.0
    assert worth_together([np.ones(7, dtype=bool)], None).n_eff == 7.0
    assert worth_together([np.array([True])], None).n_eff == 1.0
    # All of one request: one draw, however many gaps.
    assert worth_together([np.array([True, False, True])], [np.zeros(3, dtype=np.int64)]).n_eff == 1.0
