"""Ranks, the sizes they take, and what a sample can carry."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tfbench.stats.correlation import Worth
from tfbench.stats.quantile import needed_n, rank, rank_interval, sample_quantile
from tfbench.stats.quantile_within_run import is_settled, short_words

P = st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999])


@pytest.mark.parametrize(("p", "two", "one"), [(0.95, 72, 59), (0.99, 368, 299), (0.999, 3688, 2995)])
def test_needed_n_of_the_literature(p: float, two: int, one: int) -> None:
    assert needed_n(p) == two
    assert needed_n(p, sides=1) == one


@given(p=P, level=st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_needed_n_is_where_both_ranks_first_exist(p: float, level: float) -> None:
    n = needed_n(p, level=level)
    assert None not in rank_interval(n, p, level=level)
    assert n == 1 or None in rank_interval(n - 1, p, level=level)


def test_rank_interval_golden() -> None:
    assert rank_interval(1000, 0.99) == (983, 997)
    assert rank_interval(0, 0.5) == (None, None)
    assert rank_interval(1, 0.5) == (None, None)


@given(n=st.integers(1, 500), p=P)
def test_each_rank_misses_with_at_most_half_of_the_error(n: int, p: float) -> None:
    low, high = rank_interval(n, p)
    if low is not None:
        assert stats.binom.cdf(low - 1, n, p) <= 0.025 + 1e-12  # x_(low) > q
    if high is not None:
        assert stats.binom.sf(high - 1, n, p) <= 0.025 + 1e-12  # x_(high) < q


def test_rank_interval_agrees_with_scipy() -> None:
    x = np.sort(np.random.default_rng(5).exponential(size=1000))
    low, high = rank_interval(1000, 0.9)
    assert low is not None and high is not None
    theirs = stats.quantile_test(x, p=0.9).confidence_interval(0.95)
    assert (x[low - 1], x[high - 1]) == (theirs.low, theirs.high)


@given(
    x=st.lists(st.floats(-1e9, 1e9) | st.just(math.inf), min_size=1, max_size=60),
    p=st.sampled_from([0.05, 0.5, 0.95, 0.99]),
)
def test_sample_quantile_is_numpys_inverted_cdf(x: list[float], p: float) -> None:
    assert sample_quantile(np.array(x), p) == np.sort(x)[rank(len(x), p) - 1]
    if all(map(math.isfinite, x)):
        assert sample_quantile(np.array(x), p) == np.quantile(x, p, method="inverted_cdf")


def test_rank_is_not_fooled_by_rounding() -> None:
    assert [rank(n, 0.95) for n in (1, 20, 40, 100, 1000)] == [1, 19, 38, 95, 950]
    assert [rank(n, 0.99) for n in (50, 100, 300, 1000)] == [50, 99, 297, 990]


@pytest.mark.parametrize("p", [0.0, 1.0, -1.0, math.nan])
def test_p_outside_is_misuse(p: float) -> None:
    with pytest.raises(ValueError, match="p must lie"):
        sample_quantile(np.array([1.0]), p)


def test_other_misuse() -> None:
    with pytest.raises(ValueError, match="sides"):
        needed_n(0.9, sides=3)
    with pytest.raises(ValueError, match="level"):
        needed_n(0.9, level=1.0)


@pytest.mark.parametrize(("n_eff", "told"), [(19.6, "19.6"), (19.97, "19.9"), (8.0, "8")])
def test_a_sample_that_falls_short_is_not_told_to_have_what_it_takes(n_eff: float, told: str) -> None:
    worth = [Worth(n_eff, 9.0, 9.0, 1.0), Worth(40.0, 9.0, 9.0, 1.0)]
    assert not is_settled(worth, 0.5)
    assert f"is worth {told} independent requests, 20 needed): run " in short_words(worth, 0.5)
