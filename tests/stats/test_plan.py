"""Plans keep what they promise, and say None where nothing can be promised."""

import math

import numpy as np
import pytest

from tfbench.stats.effect import FractionEffect, StudentEffect
from tfbench.stats.paired import paired_effect
from tfbench.stats.plan import repeats_needed, repeats_to_decide, sd_limits, sd_upper


def test_planned_repeats_have_the_power_and_one_fewer_does_not() -> None:
    rng = np.random.default_rng(1)
    sd, margin = 0.04, math.log(1.05)
    k = repeats_needed(sd, margin, 0.95, 0.9)
    assert k == 8

    def power(repeats: int) -> float:
        draws = rng.normal(0.0, sd, (4000, repeats))
        return float(np.mean([
            paired_effect([1.0] * repeats, np.exp(draw).tolist(), logs=True).below(margin) <= 0.05 for draw in draws
        ]))  # fmt: skip

    assert power(k) > 0.885 and power(k - 1) < 0.895


@pytest.mark.parametrize(
    ("sd", "margin", "k"), [(0.0, 0.1, 2), (0.02, 0.0, None), (0.02, 1e-9, None), (0.02, 0.05, 4), (10.0, 0.01, None)]
)
def test_edges_of_a_plan(sd: float, margin: float, k: int | None) -> None:
    assert repeats_needed(sd, margin) == k


@pytest.mark.parametrize(("name", "args"), [("sd", (-1.0, 0.1)), ("sd", (math.nan, 0.1)), ("level", (0.1, 0.1, 1.0))])
def test_nonsense_is_refused(name: str, args: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=name):
        repeats_needed(*args)


def test_a_pilots_spread_is_taken_high() -> None:
    # chi2_4 at 20 % is 1.6488.
    assert sd_upper(1.0, 4.0) == pytest.approx(math.sqrt(4 / 1.6488), rel=1e-4)


def test_few_pairs_tell_the_noise_roughly() -> None:
    # chi2_4 at 97.5 and 2.5 % is 11.143 and 0.4844, chi2_9 19.023 and 2.700.
    assert sd_limits(2.0, 4.0) == pytest.approx((2 * math.sqrt(4 / 11.143), 2 * math.sqrt(4 / 0.4844)), rel=1e-3)
    assert sd_limits(1.0, 9.0) == pytest.approx((math.sqrt(9 / 19.023), math.sqrt(9 / 2.700)), rel=1e-3)
    rng = np.random.default_rng(5)
    held = [
        low <= 1.0 <= high for low, high in (sd_limits(float(rng.normal(size=5).std(ddof=1)), 4.0) for _ in range(2000))
    ]
    assert 0.93 < np.mean(held) < 0.97


def test_how_many_more_would_decide() -> None:
    limit = math.log(1.05)
    near = StudentEffect(0.03, 0.015, 4.0, 5, "")
    far = StudentEffect(0.0, 0.025, 4.0, 5, "")
    needed = [repeats_to_decide(one, limit, "lower", 0.95) for one in (near, far)]
    assert needed[0] is not None and needed[1] is not None and needed[0] > needed[1] > 5
    # Too bad among twenty rows takes more than alone; fine takes no more.
    worse = StudentEffect(limit + 0.03, 0.02, 4.0, 5, "")
    assert repeats_to_decide(worse, limit, "lower", 0.95) < repeats_to_decide(worse, limit, "lower", 0.95, rows=20)
    assert repeats_to_decide(far, limit, "lower", 0.95) == repeats_to_decide(far, limit, "lower", 0.95, rows=20)
    assert repeats_to_decide(StudentEffect(limit, 0.02, 4.0, 5, ""), limit, "lower", 0.95) is None
    shares = FractionEffect(1.0, 100.0, 1.0, 100.0, 5, "")
    told = repeats_to_decide(shares, -0.01, "higher", 0.95)
    # 300 attempts an arm bound a share of 1 at 1 %: three times the hundred of 5 repeats.
    assert told == 15
    lost = paired_effect([math.inf] * 3, [math.inf] * 3, logs=True)
    assert repeats_to_decide(lost, limit, "lower", 0.95) is None
