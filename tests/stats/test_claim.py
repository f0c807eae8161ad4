"""One-sided tests of fractions: "P95 <= X" without estimating a quantile."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.queues import limit, queue
from tfbench.stats.claim import fraction_claim
from tfbench.stats.fraction import clopper_pearson, one_sided_p


@given(n=st.integers(1, 400), data=st.data(), share=st.floats(0.01, 0.99))
def test_the_exact_test_is_scipys(n: int, data: st.DataObject, share: float) -> None:
    hits = data.draw(st.integers(0, n))
    greater = stats.binomtest(hits, n, share, alternative="greater").pvalue
    less = stats.binomtest(hits, n, share, alternative="less").pvalue
    assert one_sided_p(hits, n, share) == pytest.approx((greater, less), abs=1e-9)


@given(n=st.floats(1.0, 500.0), at=st.floats(0.0, 1.0), share=st.floats(0.02, 0.98))
def test_it_agrees_with_the_exact_interval(n: float, at: float, share: float) -> None:
    hits = min(n, n * at)
    low, high = clopper_pearson(hits, n, level=0.9)
    at_most, at_least = one_sided_p(hits, n, share)
    if abs(low - share) > 1e-9:
        assert (at_most < 0.05) == (low > share)
    if abs(high - share) > 1e-9:
        assert (at_least < 0.05) == (high < share)


@pytest.mark.parametrize(("true", "decision"), [(0.99, "supported"), (0.95, "undecided"), (0.9, "refuted")])
def test_five_runs_judge_a_claim(true: float, decision: str) -> None:
    rng = np.random.default_rng(3)
    found = fraction_claim([rng.random(800) < true for _ in range(5)], 0.95)
    assert found.decision == decision
    assert found.p_supported is not None and found.p_refuted is not None
    assert (found.p_supported <= 0.05) == (decision == "supported")
    assert (found.p_refuted <= 0.05) == (decision == "refuted")
    assert found.fraction.level == pytest.approx(0.9)


def test_a_true_claim_is_rarely_refuted_and_a_false_one_rarely_supported() -> None:
    rng = np.random.default_rng(5)
    wrong = {"supported": 0, "refuted": 0}
    for _ in range(200):
        runs = list(queue(rng, 5, 400, 0.5)[1])
        # Exactly at the claim, where either decision is hardest to avoid.
        edge = limit(0.95, 0.5)
        found = fraction_claim([one <= edge for one in runs], 0.95, score=[one / edge for one in runs])
        if found.decision != "undecided":
            wrong[found.decision] += 1
    # 5 % of 200, and three standard errors.
    assert max(wrong.values()) <= 19


def test_what_nothing_can_be_said_of() -> None:
    empty = fraction_claim([], 0.95)
    assert (empty.decision, empty.p_supported, empty.p_refuted) == ("undecided", None, None)
    one = fraction_claim([np.array([True])], 0.95)
    assert one.decision == "undecided"
    dead = fraction_claim([np.zeros(50, dtype=bool)] * 5, 0.95, score=[np.full(50, math.inf)] * 5)
    assert dead.decision == "refuted" and dead.p_supported == 1.0
    perfect = fraction_claim([np.ones(50, dtype=bool)] * 5, 0.95, score=[np.full(50, 0.1)] * 5)
    assert perfect.decision == "supported" and perfect.p_refuted == 1.0


@given(
    runs=st.lists(st.lists(st.floats(0.0, 3.0) | st.just(math.inf), max_size=30), max_size=6),
    share=st.floats(0.01, 0.99),
)
def test_any_scores_are_judged(runs: list[list[float]], share: float) -> None:
    score = [np.array(one) for one in runs]
    found = fraction_claim([one <= 1.0 for one in score], share, score=score)
    for p in (found.p_supported, found.p_refuted):
        assert p is None or 0.0 <= p <= 1.0
    assert (found.p_supported is None) == (sum(map(len, runs)) == 0)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="share"):
        fraction_claim([], 1.0)
    with pytest.raises(ValueError, match="level"):
        fraction_claim([], 0.5, level=0.5)
    for hits, n in ((2.0, 1.0), (-1.0, 5.0), (0.0, 0.0)):
        with pytest.raises(ValueError, match="hits"):
            one_sided_p(hits, n, 0.5)
    with pytest.raises(ValueError, match="share"):
        one_sided_p(1.0, 2.0, 0.0)
