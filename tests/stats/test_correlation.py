"""Correlation times against ones known in closed form."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from benchmarks.queues import many_servers, many_servers_limit
from tfbench.stats.correlation import Correlation, correlation, worth_of_each, worth_together


def autoregression(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = rng.normal(size=n + 500)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise)[500:])


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_autoregression(phi: float) -> None:
    x = autoregression(np.random.default_rng(1), 200_000, phi)
    assert correlation([x - x.mean()], len(x)).tau == pytest.approx((1 + phi) / (1 - phi), rel=0.1)


@pytest.mark.parametrize(("share", "phi"), [(0.05, 0.99), (0.2, 0.95), (1.0, 0.9)])
def test_a_slow_part_is_seen_under_much_noise(share: float, phi: float) -> None:
    n = 400_000
    rng = np.random.default_rng(2)
    slow = lfilter([math.sqrt(1 - phi**2)], [1, -phi], rng.normal(size=n))
    x = math.sqrt(share) * slow + math.sqrt(1 - share) * rng.normal(size=n)
    found = correlation([x - x.mean()], n)
    assert found.tau == pytest.approx(1 + 2 * share * phi / (1 - phi), rel=0.15)
    assert found.slow == pytest.approx((1 + phi) / (1 - phi), rel=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_has_no_slow_part(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=20_000)
    found = correlation([x - x.mean()], len(x))
    assert found.tau == pytest.approx(1.0, abs=0.1) and found.slow == pytest.approx(1.0, abs=0.1)


def test_a_queue_of_many_servers_is_worth_what_the_scatter_of_its_stretches_says() -> None:
    response = many_servers(np.random.default_rng(3), 40, 10_000, 16, 0.8)
    inside = [one <= many_servers_limit(0.5, 16, 0.8) for one in response]
    shares = np.array([one.reshape(10, -1).mean(axis=1) for one in inside]).ravel()
    tau = 1000 * float(shares.var()) / 0.25
    worth = worth_together(inside, None)
    assert response.size / worth.n_eff == pytest.approx(tau, rel=0.25) and tau > 5
    assert response.size / worth.spells > 50


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
    assert correlation([], 1) == Correlation(1.0, 1.0)
    assert correlation([np.zeros(5)], 5) == Correlation(1.0, 1.0)
    assert worth_together([np.ones(7, dtype=bool)], None).n_eff == 7.0
    assert worth_together([np.array([True])], None).n_eff == 1.0
    # All of one request: one draw, however many gaps.
    assert worth_together([np.array([True, False, True])], [np.zeros(3, dtype=np.int64)]).n_eff == 1.0
