"""MSER-5 on series whose warm-up is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.stats.warmup import mser5


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
