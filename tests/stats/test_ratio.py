"""Rates and costs over a window: time blocks, repeats, and zeros on either side."""

import math
from typing import Any

import numpy as np
import pytest

from tfbench.stats.combine import combine_ratio
from tfbench.stats.ratio import RatioRun

SECOND = 1_000_000_000


def poisson(seed: int, rate: float, seconds: float, **sides: Any) -> RatioRun:
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, seconds, rng.poisson(rate * seconds)))
    t_ns = (t * SECOND).astype(np.int64)
    num, den = sides.pop("num", 1.0), sides.pop("den", None)
    return RatioRun(
        0,
        int(seconds * SECOND),
        t_ns,
        None if num is None else np.full(len(t_ns), num),
        None if den is None else np.full(len(t_ns), den),
        **sides,
    )


def test_a_poisson_rate() -> None:
    run = poisson(1, 10.0, 100.0)
    got = combine_ratio([run])
    count = len(run.t_ns)
    assert got.value == count / 100.0
    assert got.n == count and got.settled
    assert got.lo is not None and got.hi is not None
    # Poisson: sd of the log is 1 / sqrt(n); the widest of four block intervals is somewhat wider than +- 1.96 of it.
    half = math.log(got.hi / got.lo) / 2
    assert 1.3 / math.sqrt(count) < half < 4.0 / math.sqrt(count)
    assert got.method.startswith("approximate: time blocks (K=1, within this run only), measured coverage ≈ ")


def test_blocks_worked_out() -> None:
    # Ten blocks of 1 s with 1..10 events in each block's middle: the widest of the intervals by hand.
    t = np.concatenate([np.full(i + 1, i + 0.5) for i in range(10)])
    got = combine_ratio([RatioRun(0, 10 * SECOND, (t * SECOND).astype(np.int64), np.ones(55), None)])
    halves = []
    for m, t_crit in ((5, 2.776445), (10, 2.262157), (20, 2.093024), (30, 2.045230)):
        y = np.bincount((t * m / 10).astype(int), minlength=m)
        halves.append(t_crit * y.std(ddof=1) / math.sqrt(m) / y.mean())
    assert got.value == 5.5
    assert got.hi == pytest.approx(5.5 * math.exp(max(halves)), rel=1e-5)
    assert got.lo == pytest.approx(5.5 * math.exp(-max(halves)), rel=1e-5)


def test_cost_is_the_inverse_of_a_rate() -> None:
    rate = combine_ratio([poisson(2, 5.0, 60.0)])
    cost = combine_ratio([poisson(2, 5.0, 60.0, num=None, den=1.0)], scale=7.0)
    assert rate.value is not None and rate.lo is not None and rate.hi is not None
    assert cost.value == pytest.approx(7.0 / rate.value)
    assert (cost.lo, cost.hi) == (pytest.approx(7.0 / rate.hi), pytest.approx(7.0 / rate.lo))


def test_five_runs_take_t_on_log() -> None:
    # 10, 20, 40, 80, 160 events in 10 s: 1, 2, 4, 8, 16 per second.
    runs = [
        RatioRun(0, 10 * SECOND, np.linspace(0, 9e9, n).astype(np.int64), np.ones(n), None)
        for n in (10, 20, 40, 80, 160)
    ]
    got = combine_ratio(runs, scale=3.0)
    assert got.value == pytest.approx(12.0)
    assert got.hi == pytest.approx(12.0 * 2**1.963243, rel=1e-6)
    assert (got.method, got.n, got.settled, got.reason) == ("t on log of runs (K=5)", 310, True, None)


def test_a_steady_stream_is_known_to_one_event() -> None:
    even = RatioRun(0, 60 * SECOND, ((np.arange(600) + 0.5) * 1e8).astype(np.int64), np.ones(600), None)
    for k in (1, 2, 5):
        got = combine_ratio([even] * k)
        assert got.value == pytest.approx(10.0)
        # One event more or less of all 600 k.
        assert got.lo == pytest.approx(10.0 * (1 - 1 / (600 * k))) and got.hi == pytest.approx(
            10.0 * (1 + 1 / (600 * k))
        )
        assert got.reason is not None and "one event more or less" in got.reason


def test_nothing_counted_gives_an_upper_bound() -> None:
    for k in (1, 5):
        empty = [RatioRun(0, 20 * SECOND, np.array([], dtype=np.int64), np.array([]), None)] * k
        got = combine_ratio(empty)
        # 1.5 times -ln(0.025) = 3.688879 events in 20 k seconds.
        assert (got.value, got.lo, got.hi) == (0.0, None, pytest.approx(1.5 * 3.688879 / (20 * k)))
        assert (got.settled, got.n) == (False, 0)
        assert got.reason == "nothing counted in the window: an upper bound only"


def test_no_qualified_token_gives_a_lower_bound_on_cost() -> None:
    bad = poisson(3, 2.0, 30.0, num=None, den=0.0, event_size=100.0)
    got = combine_ratio([bad], scale=2.0)
    # 30 s * 2 over at most 1.5 times 3.688879 events of 100 tokens.
    assert (got.value, got.hi, got.lo) == (None, None, pytest.approx(60.0 / 1.5 / 368.8879, rel=1e-6))
    assert got.reason == "infinite: nothing to divide by; a lower bound only"
    unknown = combine_ratio([poisson(3, 2.0, 30.0, num=None, den=0.0, event_size=None)])
    assert (unknown.value, unknown.lo, unknown.hi) == (None, None, None)


def test_some_runs_without_a_qualified_token() -> None:
    runs = [poisson(4 + i, 2.0, 30.0, num=None, den=0.0 if i == 0 else 10.0) for i in range(5)]
    got = combine_ratio(runs)
    inverse = [0.0 if math.isinf(run.ratio()) else 1.0 / run.ratio() for run in runs]
    assert got.value == pytest.approx(1.0 / np.mean(inverse))
    assert got.lo is not None and got.lo < got.value
    assert got.method == "t on inverse of runs (K=5)"
    assert got.reason is not None and got.reason.startswith("infinite in 1 of 5 runs")


def test_some_runs_without_a_good_attempt() -> None:
    runs = [poisson(10 + i, 4.0, 30.0, num=0.0 if i == 0 else 1.0) for i in range(5)]
    got = combine_ratio(runs)
    assert got.method == "t on runs (K=5)"
    assert got.value == pytest.approx(np.mean([run.ratio() for run in runs]))


def test_nothing_over_nothing() -> None:
    empty = np.array([])
    run = RatioRun(0, SECOND, np.array([], dtype=np.int64), empty, empty)
    for k in (1, 4):
        got = combine_ratio([run] * k)
        assert (got.value, got.lo, got.hi) == (None, None, None)
        assert got.reason is not None and "nothing to divide" in got.reason
    assert combine_ratio([]).reason == "no data"
    mixed = combine_ratio([run, *(poisson(20 + i, 5.0, 20.0, den=2.0) for i in range(3))])
    assert mixed.k == 3 and mixed.value == pytest.approx(0.5)
    assert mixed.reason is not None and mixed.reason.startswith("1 of 4 runs have no data")


def test_numerator_and_denominator_stay_together() -> None:
    # Tokens and requests come in the same bursts: their ratio is known far better than either rate.
    rng = np.random.default_rng(30)
    t = np.sort(np.concatenate([rng.uniform(c, c + 2.0, rng.poisson(80)) for c in (5, 40, 43, 80)]))
    t_ns, tokens = (t * SECOND).astype(np.int64), rng.normal(100.0, 5.0, len(t))
    rate = combine_ratio([RatioRun(0, 100 * SECOND, t_ns, tokens, None)])
    mean = combine_ratio([RatioRun(0, 100 * SECOND, t_ns, tokens, np.ones(len(t)))])
    assert mean.lo is not None and mean.hi is not None and rate.lo is not None and rate.hi is not None
    assert math.log(mean.hi / mean.lo) < 0.05 < 1.0 < math.log(rate.hi / rate.lo)


def test_an_event_at_the_very_end_counts() -> None:
    t = np.array([0, 5 * SECOND, 10 * SECOND], dtype=np.int64)
    assert combine_ratio([RatioRun(0, 10 * SECOND, t, np.ones(3), None)]).value == pytest.approx(0.3)


def test_misuse() -> None:
    t = np.array([1], dtype=np.int64)
    for match, make in (
        ("length", lambda: RatioRun(5, 5, t, np.ones(1), None)),
        ("entries", lambda: RatioRun(0, 5, t, np.ones(2), None)),
        ("not negative", lambda: RatioRun(0, 5, t, -np.ones(1), None)),
        ("finite", lambda: RatioRun(0, 5, t, np.array([math.nan]), None)),
        ("outside", lambda: RatioRun(2, 5, t, np.ones(1), None)),
        ("event_size", lambda: RatioRun(0, 5, t, np.ones(1), None, 0.0)),
        ("scale", lambda: combine_ratio([], scale=0.0)),
    ):
        with pytest.raises(ValueError, match=match):
            make()
