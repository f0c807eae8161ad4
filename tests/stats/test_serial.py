"""Repeats that follow one another, and those that don't."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.stats.serial import LEAST_REPEATS, linked_repeats


def speeds(rng: np.random.Generator, k: int, rho: float) -> np.ndarray:
    found = rng.normal(0.0, 0.03, k)
    for i in range(1, k):
        found[i] = rho * found[i - 1] + np.sqrt(1.0 - rho**2) * found[i]
    return found


@pytest.mark.parametrize("loads", [1, 3])
@pytest.mark.parametrize("k", [5, 10])
def test_independent_repeats_are_rarely_called_linked(loads: int, k: int) -> None:
    rng = np.random.default_rng(k + loads)
    told = 0
    for _ in range(80):
        shared = speeds(rng, k, 0.0)  # all figures and load points of a repeat share its restart
        found = linked_repeats(shared + rng.normal(0.0, 0.01, (3, loads, k)))
        told += found is not None and found.told
    # 5 % of 80 are 4; 10 come about once in 200.
    assert told <= 10


def test_many_repeats_that_follow_one_another_are_told() -> None:
    rng = np.random.default_rng(1)
    found = [linked_repeats(speeds(rng, 20, 0.8) + rng.normal(0.0, 0.01, (3, 1, 20))) for _ in range(60)]
    assert sum(one is not None and one.told for one in found) >= 36
    assert np.mean([one.correlation for one in found if one is not None]) > 0.4


def test_a_trend_is_told() -> None:
    found = linked_repeats(np.linspace(0.0, 0.1, 8).reshape(1, 1, 8))
    assert found is not None and found.told and found.p < 0.01 and found.k == 8


def test_what_cannot_be_told() -> None:
    assert linked_repeats(np.zeros((2, 1, 3))) is None
    assert linked_repeats(np.zeros((2, 1, 6))) is None, "nothing varies"
    assert linked_repeats(np.full((2, 1, 6), np.nan)) is None
    alternating = linked_repeats(np.array([[[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]]]))
    assert alternating is not None and not alternating.told and alternating.correlation < 0.0


@given(st.lists(st.lists(st.floats(-5.0, 5.0) | st.just(float("nan")), min_size=6, max_size=6), min_size=1, max_size=4))
def test_any_series_gives_a_p(rows: list[list[float]]) -> None:
    found = linked_repeats(np.array(rows).reshape(1, len(rows), 6))
    if found is not None:
        assert 0.0 < found.p <= 1.0 and found.correlation <= 1.0 and found.k >= LEAST_REPEATS
