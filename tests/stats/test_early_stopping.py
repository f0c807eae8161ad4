"""LoadGen's early stopping, against the numbers of MLPerf's own code and logs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tfbench.stats.early_stopping import allowed_over, early_stopping, meets, needed_queries

# n for t over-limit queries 0, 1, 2, 10, 100.
NEEDED = {
    0.5: (7, 11, 14, 35, 237),
    0.9: (44, 64, 81, 197, 1246),
    0.95: (90, 130, 165, 398, 2504),
    0.97: (152, 219, 277, 667, 4182),
    0.99: (459, 662, 838, 2010, 12571),
    0.999: (4603, 6636, 8403, 20140, 125826),
}


@pytest.mark.parametrize("p", NEEDED)
def test_needed_queries_of_loadgen(p: float) -> None:
    assert tuple(needed_queries(t, p) for t in (0, 1, 2, 10, 100)) == NEEDED[p]


def test_other_confidence_and_tolerance() -> None:
    assert [needed_queries(t, 0.99, tolerance=0.005) - t for t in (0, 1, 10)] == [305, 439, 1328]
    assert [needed_queries(1, p, confidence=0.95) for p in (0.9, 0.95, 0.99)] == [46, 93, 473]


@pytest.mark.parametrize(
    ("n", "p", "over", "index"),
    [(24_576, 0.99, 209, 24_367), (10_000, 0.99, 77, 9923), (1000, 0.9, 78, 922), (662, 0.99, 1, 661)],
)
def test_the_estimate_of_loadgen(n: int, p: float, over: int, index: int) -> None:
    x = np.random.default_rng(1).permutation(n).astype(np.float64)
    found = early_stopping(x, p)
    assert (found.over, found.index, found.value, found.reason) == (over, index, float(index), None)


def test_too_few_queries_say_so() -> None:
    found = early_stopping(np.arange(661.0), 0.99)
    assert (found.value, found.over, found.index, found.needed) == (None, None, None, 662)
    assert found.reason == "LoadGen's early stopping takes 662 queries for P99, not 661"
    assert early_stopping(np.array([]), 0.5).value is None


def test_failures_may_carry_the_estimate_away() -> None:
    x = np.arange(1000.0)
    x[::5] = math.inf
    found = early_stopping(x, 0.9)
    assert (found.value, found.index, found.reason) == (None, 922, "the estimate falls on queries that failed")


def test_the_server_rule() -> None:
    # 24,576 queries: 210 to 245 misses leave the plain P99 within the limit, and still fail.
    assert meets(209, 24_576, 0.99)
    assert not meets(210, 24_576, 0.99)
    assert not meets(0, 458, 0.99)
    assert meets(0, 459, 0.99)


@given(n=st.integers(1, 3000), p=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_most_that_may_exceed_is_the_most(n: int, p: float) -> None:
    over = allowed_over(n, p)
    if over is None:
        assert n < needed_queries(0, p)
    else:
        assert needed_queries(over, p) <= n < needed_queries(over + 1, p)


@given(n=st.integers(10, 5000), over=st.integers(0, 9), p=st.sampled_from([0.5, 0.9, 0.99]))
def test_the_rule_is_a_binomial_tail(n: int, over: int, p: float) -> None:
    assert (n >= needed_queries(over, p)) == (stats.binom.cdf(over, n, 1 - p) < 0.01)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="negative"):
        needed_queries(-1, 0.9)
    with pytest.raises(ValueError, match="strictly between"):
        needed_queries(0, 0.9, tolerance=0.9)
    with pytest.raises(ValueError, match="strictly between"):
        needed_queries(0, 0.9, confidence=1.0)
    with pytest.raises(ValueError, match="NaN"):
        early_stopping(np.array([math.nan]), 0.9)
