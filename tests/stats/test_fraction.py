"""Fractions: exact bounds, correlation, and the ends 0 and 1."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    score = np.random.default_rng(1).random(5000) / 0.7
    good = score <= 1.0
    got = combine_fraction([good], score=[score])
    low, high = clopper_pearson(int(good.sum()), 5000)
    assert got.value == good.mean()
    assert got.lo == pytest.approx(low, abs=0.008) and got.hi == pytest.approx(high, abs=0.008)
    assert got.method.startswith(
        "approximate: Clopper-Pearson on n_eff (K=1, within this run only), measured coverage ≈ "
    )


def test_runs_of_bad_attempts_widen_it() -> None:
    rng = np.random.default_rng(2)
    spread, bursts = rng.random(4000) < 0.9, np.repeat(rng.random(100) < 0.9, 40)
    in_bursts, singly = (combine_fraction([good], score=[np.where(good, 0.5, 2.0)]) for good in (bursts, spread))
    assert width(in_bursts) > 3 * width(singly)


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
    assert whole.reason is not None and f"none of {400 * k:,} requests was bad" in whole.reason
    assert "assumes that bad ones come singly" in whole.reason
    none = combine_fraction([np.zeros(400, dtype=bool)] * k)
    assert (none.value, none.lo) == (0.0, None)
    assert none.hi == pytest.approx(1.0 - whole.lo)
    assert none.reason is not None and f"none of {400 * k:,} requests was good" in none.reason


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


@pytest.mark.parametrize("n", [18, 100, 400])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(("answer", "score"), [(True, 0.0), (True, 0.07), (True, 1.0), (False, math.inf), (False, 3.0)])
def test_a_dead_and_a_perfect_server_get_the_exact_bound(n: int, k: int, answer: bool, score: float) -> None:
    got = combine_fraction([np.full(n, answer)] * k, score=[np.full(n, score)] * k)
    low, high = clopper_pearson(n * k * answer, n * k)
    assert got.lo == (pytest.approx(low) if answer else None)
    assert got.hi == (None if answer else pytest.approx(high))
    assert (got.n_eff, got.settled) == (n * k, True)


@pytest.mark.parametrize(("load", "attempts"), [(8, 46), (16, 90)])
def test_a_limit_far_from_every_latency_is_no_matter_of_the_queue(load: int, attempts: int) -> None:
    # Correlated latencies that vary by a few per cent, the worst at a quarter of the limit, as of an idle server.
    rng = np.random.default_rng(load)
    score = [0.2 + 0.01 * smooth(rng.exponential(size=attempts + 5), 6) for _ in range(5)]
    got = combine_fraction([one <= 1.0 for one in score], score=score)
    exact, _ = clopper_pearson(5 * attempts, 5 * attempts)
    assert got.lo is not None and exact - 0.01 < got.lo <= exact
    # The same latencies against a limit just above the worst of them say much less.
    worst = max(float(one.max()) for one in score)
    near = combine_fraction([one <= worst for one in score], score=[one / (1.01 * worst) for one in score])
    assert near.lo is not None and near.lo < got.lo - 0.01


def test_one_lone_failure_moves_the_bound_a_little() -> None:
    rng = np.random.default_rng(6)
    score = [0.2 + 0.01 * smooth(rng.exponential(size=95), 6) for _ in range(5)]
    whole = combine_fraction([one <= 1.0 for one in score], score=score)
    score[2][40] = math.inf
    one_failed = combine_fraction([one <= 1.0 for one in score], score=score)
    assert whole.lo is not None and one_failed.lo is not None
    assert whole.lo - 0.03 < one_failed.lo < whole.lo
    # A burst of failures says that they come in bursts.
    score[2][40:60] = math.inf
    burst = combine_fraction([one <= 1.0 for one in score], score=score)
    assert burst.n_eff is not None and one_failed.n_eff is not None
    assert burst.n_eff < one_failed.n_eff / 5


@pytest.mark.parametrize("share", [0.0, 0.002, 0.05, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("k", [1, 5])
def test_the_n_eff_told_is_what_the_bounds_were_made_with(share: float, k: int) -> None:
    rng = np.random.default_rng(9)
    score = [rng.exponential(size=500) for _ in range(k)]
    limit = np.inf if share == 1.0 else float(np.quantile(np.concatenate(score), share))
    good = [one < limit for one in score]
    got = combine_fraction(good, score=[one / limit for one in score] if 0.0 < limit < math.inf else None)
    assert got.value is not None and got.n_eff is not None
    low, high = clopper_pearson(min(got.n_eff, got.n_eff * got.value), got.n_eff)
    few = min(share, 1.0 - share) * 500 * k < 2
    assert got.lo == (None if few and share < 0.5 else pytest.approx(low))
    assert got.hi == (None if few and share > 0.5 else pytest.approx(high))
    assert got.settled is (got.n_eff >= 10)
    assert got.settled or (got.reason is not None and "too few requests" in got.reason)


@given(
    score=st.lists(st.floats(0.0, 10.0) | st.sampled_from([0.0, 1.0, math.inf]), min_size=1, max_size=60),
    k=st.integers(1, 6),
)
def test_the_bounds_are_never_tighter_than_of_independent_attempts(score: list[float], k: int) -> None:
    one = np.array(score)
    got = combine_fraction([one <= 1.0] * k, score=[one] * k)
    assert got.n_eff is not None and 1.0 <= got.n_eff <= got.n


@pytest.mark.parametrize("k", [1, 5])
def test_a_burst_or_two_leave_one_bound_that_says_what_it_assumes(k: int) -> None:
    good = [np.ones(1000, dtype=bool) for _ in range(k)]
    good[0][100:130] = False
    score = [np.where(one, 0.3, math.inf) for one in good]
    got = combine_fraction(good, score=score, seconds=600.0)
    assert got.value == 1 - 30 / (1000 * k) and got.lo is not None and got.lo < got.value and got.hi is None
    assert got.reason is not None and f"30 of {1000 * k:,} requests were bad, in 1 bursts" in got.reason
    # Poisson, 95 %: chi2(0.95; 4) / 2 = 4.744 from one burst in a sixth of an hour, 2.996 from none.
    assert "in 10 min of load, bursts of any length come at most 28 times an hour" in got.reason
    none = combine_fraction([np.ones(1000, dtype=bool)] * k, seconds=600.0)
    assert none.reason is not None and "at most 18 times an hour" in none.reason
    # As many that come singly tell how they come.
    spread = [np.ones(1000, dtype=bool) for _ in range(k)]
    spread[0][::33] = False
    assert combine_fraction(spread, score=[np.where(one, 0.3, math.inf) for one in spread]).hi is not None


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


def smooth(x: np.ndarray, over: int) -> np.ndarray:
    """Moving means: neighbours share what they are made of."""
    return np.convolve(x, np.ones(over) / over, mode="valid")


def width(interval: object) -> float:
    lo, hi = getattr(interval, "lo", None), getattr(interval, "hi", None)
    assert lo is not None and hi is not None
    return float(hi - lo)
