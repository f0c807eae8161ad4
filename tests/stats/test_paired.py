"""Effects of a candidate against a base: right by hand, covering when simulated, and answering whatever comes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.stats.combine import combine_fraction
from tfbench.stats.effect import Effect, FractionEffect, OrderEffect, StudentEffect
from tfbench.stats.equivalence import Margin, against_margin, tost
from tfbench.stats.interval import Interval
from tfbench.stats.paired import (
    difference_interval,
    fraction_effect,
    paired_effect,
    paired_ratio,
    ratio_interval,
    unpaired_effect,
    unpaired_ratio,
)

FIGURE = st.one_of(st.floats(0.0, 1e12), st.just(math.inf), st.sampled_from([0.0, 1.0, 5e-324, 1e308]))


def test_paired_t_agrees_with_scipy() -> None:
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(3)
    base = np.exp(rng.normal(0, 0.3, 6))
    candidate = base * np.exp(rng.normal(0.05, 0.02, 6))
    effect = paired_effect(base.tolist(), candidate.tolist(), logs=True)
    theirs = ttest_rel(np.log(candidate), np.log(base), alternative="greater")
    assert effect.above(0.0) == pytest.approx(theirs.pvalue)
    lo, hi = ttest_rel(np.log(candidate), np.log(base)).confidence_interval(0.95)
    found = paired_ratio(base, candidate)
    assert (found.lo, found.hi) == (pytest.approx(math.exp(lo)), pytest.approx(math.exp(hi)))


def test_welch_agrees_with_scipy_and_pairing_pays() -> None:
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(4)
    base = np.exp(rng.normal(0, 0.3, 5))
    candidate = base * np.exp(rng.normal(0.0, 0.02, 5))
    effect = unpaired_effect(base.tolist(), candidate.tolist(), logs=False)
    theirs = ttest_ind(candidate, base, equal_var=False, alternative="less")
    assert effect.below(0.0) == pytest.approx(theirs.pvalue)
    paired, unpaired = paired_ratio(base, candidate), unpaired_ratio(base, candidate)
    assert paired.lo is not None and paired.hi is not None and unpaired.lo is not None and unpaired.hi is not None
    assert unpaired.hi - unpaired.lo > 5 * (paired.hi - paired.lo)


def test_bounds_and_p_values_agree() -> None:
    effects: list[Effect] = [
        paired_effect([1.0, 2.0, 3.0, 4.0], [1.1, 2.0, 3.3, 4.2], logs=True),
        unpaired_effect([1.0, 2.0, 3.0], [2.0, 3.0, 5.0, 4.0], logs=False),
        FractionEffect(0.97, 400.0, 0.93, 350.0, 5, ""),
        FractionEffect(1.0, 50.0, 1.0, 50.0, 5, ""),
    ]
    for effect in effects:
        lo, hi = effect.bounds(0.9)
        assert lo is not None and hi is not None and lo < hi
        assert effect.above(lo) == pytest.approx(0.05, rel=1e-6) and effect.below(hi) == pytest.approx(0.05, rel=1e-6)


def test_pairs_without_spread_are_decided_by_their_order() -> None:
    same = paired_effect([3.0, 5.0, 7.0, 9.0, 4.0], [3.0, 5.0, 7.0, 9.0, 4.0], logs=True)
    assert isinstance(same, OrderEffect) and same.estimate == 0.0 and same.bounds(0.95) == (None, None)
    assert same.below(math.log(1.05)) == pytest.approx(1 / 32) and same.above(math.log(1.05)) == 1.0
    assert ratio_interval(same, 0.95).reason == "the runs show no spread"


def test_a_candidate_whose_quantile_is_lost_among_failures_is_worse() -> None:
    lost = paired_effect([3.0, 5.0, 7.0, 9.0, 4.0], [math.inf] * 5, logs=True)
    assert lost.above(math.log(1.05)) == pytest.approx(1 / math.comb(10, 5)) and lost.below(math.log(1.05)) == 1.0
    assert lost.estimate is None
    both = paired_effect([math.inf] * 5, [math.inf] * 5, logs=True)
    assert (both.above(0.0), both.below(0.0), both.estimate) == (1.0, 1.0, None)


def test_one_pair_proves_nothing() -> None:
    one = paired_effect([1.0], [2.0], logs=True)
    assert one.above(0.0) == 0.5 and one.bounds(0.9) == (None, None)
    assert paired_ratio(np.array([1.0]), np.array([2.0])).reason == "one run an arm: how far runs differ isn't known"


@settings(max_examples=60)
@given(st.lists(st.tuples(FIGURE, FIGURE), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_any_figures_are_answered(pairs: list[tuple[float, float]], logs: bool, paired: bool) -> None:
    base, candidate = [b for b, _ in pairs], [c for _, c in pairs]
    effect = (paired_effect if paired else unpaired_effect)(base, candidate, logs=logs)
    for x in (-1.0, 0.0, 0.1):
        assert 0.0 <= effect.above(x) <= 1.0 and 0.0 <= effect.below(x) <= 1.0
    for level in (0.9, 0.95):
        told = (ratio_interval if logs else difference_interval)(effect, level)  # checks itself: no NaN, no zero width
        assert isinstance(told, Interval)
    assert effect.grown(3.0).above(0.0) <= 1.0


@given(st.lists(st.tuples(st.lists(st.booleans(), min_size=2, max_size=30)), min_size=1, max_size=6))
def test_any_fractions_are_answered(runs: list[tuple[list[bool]]]) -> None:
    flags = [np.array(run) for (run,) in runs]
    shares = [float(one.mean()) for one in flags]
    whole = combine_fraction(flags)
    effect = fraction_effect(shares, shares, whole, whole, paired=True)
    told = difference_interval(effect, 0.9)
    assert told.lo is not None and told.hi is not None and -1.0 <= told.lo < told.hi <= 1.0


def test_fractions_at_one_have_bounds_that_shrink_with_n() -> None:
    small, large = (FractionEffect(1.0, n, 1.0, n, 5, "").bounds(0.9) for n in (100.0, 1000.0))
    assert small[0] < large[0] < 0.0 < large[1] < small[1]
    # Three of a hundred, the rule of three: nothing seen in 100 is compatible with 3 % at 95 %.
    assert small[0] == pytest.approx(-0.0295, abs=1e-3)


def test_paired_t_covers_and_keeps_its_level() -> None:
    rng = np.random.default_rng(6)
    held = wrong = 0
    for _ in range(1000):
        shared = rng.normal(0, 0.4, 5)
        base, candidate = np.exp(shared + rng.normal(0, 0.03, 5)), np.exp(shared + 0.05 + rng.normal(0, 0.03, 5))
        found = paired_ratio(base, candidate)
        assert found.lo is not None and found.hi is not None
        held += found.lo <= math.exp(0.05) <= found.hi
        wrong += paired_effect(base.tolist(), candidate.tolist(), logs=True).below(0.05) <= 0.05
    assert 930 <= held <= 970 and 30 <= wrong <= 72


@pytest.mark.parametrize("share", [0.5, 0.95, 0.995, 1.0])
def test_fraction_bounds_cover(share: float) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        arms = [[rng.random(80) < share for _ in range(5)] for _ in range(2)]
        shares = [[float(run.mean()) for run in arm] for arm in arms]
        effect = fraction_effect(*shares, combine_fraction(arms[0]), combine_fraction(arms[1]), paired=True)
        lo, hi = effect.bounds(0.95)
        assert lo is not None and hi is not None
        held += lo <= 0.0 <= hi
    assert held >= 182


def test_margins_have_sides() -> None:
    assert Margin(0.05, True).limit("lower") == pytest.approx(math.log(1.05))
    assert Margin(0.05, True).limit("higher") == pytest.approx(math.log(0.95))
    assert Margin(3.0, False).limit("higher") == -3.0
    effect = StudentEffect(0.02, 0.01, 4.0, 5, "")
    fine = against_margin(effect, math.log(1.1), "lower")
    assert fine.p_fine < 0.01 < 0.9 < fine.p_worse
    assert against_margin(effect, -0.1, "higher").p_fine < 0.01
    for bad in ((-0.1, True), (1.0, True), (math.nan, False), (math.inf, False)):
        with pytest.raises(ValueError, match="margin"):
            Margin(*bad)


def test_tost_is_the_interval_inclusion() -> None:
    effect = StudentEffect(0.01, 0.01, 9.0, 10, "")
    lo, hi = effect.bounds(0.9)
    assert tost(effect, lo - 1e-9, hi + 1e-9) < 0.05 < tost(effect, lo + 1e-6, hi + 1.0)
    with pytest.raises(ValueError, match="low"):
        tost(effect, 0.1, 0.1)
