"""Fractions: exact bounds, correlation, and the ends 0 and 1."""

import math

import numpy as np
import pytest
from scipy import stats

from tfbench.stats.combine import combine_fraction
from tfbench.stats.fraction import clopper_pearson


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (3, 10), (950, 1000), (1, 1), (0, 1)])
def test_clopper_pearson_is_scipys(hits: int, n: int) -> None:
    theirs = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, n) == pytest.approx((theirs.low, theirs.high))


def test_clopper_pearson_misuse() -> None:
    for hits, n in ((2, 1), (-1, 5), (0, 0)):
        with pytest.raises(ValueError, match="hits"):
            clopper_pearson(hits, n)


def test_independent_attempts_come_close_to_the_exact_interval() -> None:
    good = np.random.default_rng(1).random(5000) < 0.7
    got = combine_fraction([good])
    low, high = clopper_pearson(int(good.sum()), 5000)
    assert got.value == good.mean()
    assert got.lo == pytest.approx(low, abs=0.004) and got.hi == pytest.approx(high, abs=0.004)
    assert got.method.startswith("approximate: Clopper-Pearson on n_eff (K=1), measured coverage ≈ ")


def test_runs_of_bad_attempts_widen_it() -> None:
    rng = np.random.default_rng(2)
    spread, bursts = rng.random(4000) < 0.9, np.repeat(rng.random(100) < 0.9, 40)
    assert width(combine_fraction([bursts])) > 3 * width(combine_fraction([spread]))


def test_unlike_runs_widen_it() -> None:
    rng = np.random.default_rng(3)
    alike = [rng.random(1000) < 0.9 for _ in range(5)]
    unlike = [rng.random(1000) < share for share in (0.80, 0.85, 0.90, 0.95, 1.0)]
    assert width(combine_fraction(unlike)) > 3 * width(combine_fraction(alike))
    got = combine_fraction(unlike)
    assert got.method == "Clopper-Pearson on n_eff between runs (K=5)"
    # It must reach about as far as t on the five shares: 0.9 +- 2.776 * 0.079 / sqrt(5) = 0.9 +- 0.098
    assert got.lo is not None and got.hi is not None
    assert got.lo < 0.83 and got.hi > 0.95


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10])
def test_all_good_and_none_good_are_one_sided(k: int) -> None:
    whole = combine_fraction([np.ones(400, dtype=bool)] * k)
    assert (whole.value, whole.hi) == (1.0, None)
    assert whole.lo is not None and 0.5 < whole.lo < 1.0
    assert whole.reason == f"all of {400 * k}: a lower bound only"
    none = combine_fraction([np.zeros(400, dtype=bool)] * k)
    assert (none.value, none.lo) == (0.0, None)
    assert none.hi == pytest.approx(1.0 - whole.lo)
    assert none.reason == f"none of {400 * k}: an upper bound only"


def test_near_misses_narrow_the_bound_where_nothing_was_bad() -> None:
    rng = np.random.default_rng(4)
    runs = [np.ones(400, dtype=bool)] * 5
    blind = combine_fraction(runs)
    scored = combine_fraction(runs, score=[rng.exponential(size=400) for _ in runs])
    slow_waves = [np.repeat(rng.exponential(size=10), 40) for _ in runs]
    waves = combine_fraction(runs, score=slow_waves)
    assert blind.lo is not None and scored.lo is not None and waves.lo is not None
    # 2000 independent attempts, none bad: 1 - 0.025^(1/2000) = 0.9982.
    assert blind.lo < 0.95 and waves.lo < 0.95
    assert 0.995 < scored.lo < 0.9982


def test_a_score_that_says_nothing_is_passed_over() -> None:
    runs = [np.ones(400, dtype=bool)] * 3
    flat = combine_fraction(runs, score=[np.full(400, math.inf)] * 3)
    assert flat == combine_fraction(runs)


def test_few_attempts() -> None:
    assert combine_fraction([]).reason == "no data"
    assert combine_fraction([np.array([], dtype=bool)]).value is None
    one = combine_fraction([np.array([True])])
    assert (one.value, one.hi, one.settled, one.n) == (1.0, None, False, 1)
    assert one.lo == pytest.approx(0.025)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        combine_fraction([np.array([True])], score=[np.array([1.0, 2.0])])
    with pytest.raises(ValueError, match="NaN"):
        combine_fraction([np.array([True])], score=[np.array([math.nan])])
    with pytest.raises(ValueError, match="level"):
        combine_fraction([], level=2.0)


def width(interval: object) -> float:
    lo, hi = getattr(interval, "lo", None), getattr(interval, "hi", None)
    assert lo is not None and hi is not None
    return float(hi - lo)
