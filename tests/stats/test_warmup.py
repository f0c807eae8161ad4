"""MSER-5 on series whose warm-up is known, and leaks over repeats."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.processes import Process, leaking, lognormal, queue
from benchmarks.warmup_leaks import fading, stepping, told
from tfbench.stats.warmup import find_leak, mser5


def by_the_book(x: np.ndarray) -> int:
    z = x[: len(x) // 5 * 5].reshape(-1, 5).mean(axis=1)
    m = len(z)
    scores = [((z[d:] - z[d:].mean()) ** 2).sum() / (m - d) ** 2 for d in range(m // 2 + 1)]
    return 5 * int(np.argmin(scores))


def test_a_steady_series_loses_little() -> None:
    x = np.random.default_rng(1).exponential(size=1000)
    got = mser5(x)
    assert got.steady is True and got.reason is None
    assert got.discard == by_the_book(x)


def test_a_slow_start_is_found() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(10.0, 1.0, 1000)
    x[:100] += np.linspace(30.0, 0.0, 100)
    got = mser5(x)
    assert got.discard == by_the_book(x)
    assert got.discard is not None and 70 <= got.discard <= 110


def test_a_drift_has_no_steady_state() -> None:
    got = mser5(np.linspace(1.0, 50.0, 500))
    assert got.steady is False
    assert got.reason is not None and "no steady state" in got.reason


@pytest.mark.parametrize("n", [0, 1, 49])
def test_too_few_to_say(n: int) -> None:
    got = mser5(np.ones(n))
    assert (got.discard, got.steady, got.n) == (None, None, n)
    assert got.reason is not None and "too few" in got.reason


def test_failures() -> None:
    assert mser5(np.full(100, math.inf)).reason == "every observation failed"
    x = np.random.default_rng(3).exponential(size=200)
    x[150] = math.inf
    assert mser5(x).steady is not None
    with pytest.raises(ValueError, match="NaN"):
        mser5(np.array([math.nan] * 60))


def test_all_equal_is_steady() -> None:
    got = mser5(np.full(100, 0.3))
    assert (got.discard, got.steady) == (0, True)


@given(x=st.lists(st.floats(-1e300, 1e300) | st.just(math.inf), min_size=50, max_size=120))
def test_never_more_than_half(x: list[float]) -> None:
    got = mser5(np.array(x))
    assert got.discard is None or (0 <= got.discard <= len(x) // 2 and got.discard % 5 == 0)


# Leaks over repeats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [leaking(2.0, 0.05), stepping(lognormal(0.02)), fading(queue(0.3))])
def test_a_leak_is_told_with_where_it_ends(process: Process) -> None:
    rng = np.random.default_rng(1)
    found = [find_leak({"E2E": list(process.draw(rng, 5, 1200))}) for _ in range(25)]
    assert sum(bool(one.detected) for one in found) >= 24
    seen = [one for one in found if one.detected]
    assert all(one.cut is not None and 0.02 <= one.cut <= 0.5 and (one.effect or 0.0) > 0.0 for one in seen)


@pytest.mark.parametrize(("n", "k"), [(1200, 1), (1200, 5), (300, 5)])
def test_a_busy_queue_in_steady_state_is_rarely_called_leaking(n: int, k: int) -> None:
    # 5 % of 100 is 5; 11 come about once in 70.
    assert 100 * told(queue(0.8), n, k, 100, 3) <= 11


def test_what_find_leak_cannot_say() -> None:
    assert find_leak({}).detected is None
    short = find_leak({"TTFT": [np.ones(50)] * 5})
    assert short.detected is None and short.reason == "a run has fewer than 100 attempts"
    assert find_leak({"TTFT": [np.ones(500)] * 5}).detected is False
    with pytest.raises(ValueError, match="NaN"):
        find_leak({"TTFT": [np.full(500, math.nan)]})


@given(
    parts=st.lists(st.floats(0.0, 1e6) | st.just(math.inf), min_size=1, max_size=12),
    k=st.integers(1, 4),
    n=st.integers(100, 300),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_any_latencies_give_an_answer(parts: list[float], k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = find_leak({"E2E": [rng.choice(parts, n) for _ in range(k)]})
    assert found.detected in (True, False) and found.p is not None and 0.0 <= found.p <= 1.0 + 1e-9
    assert not found.detected or (found.cut is not None and found.series == "E2E")
