"""Draws follow their laws; bounds hold; empirical shares are as weighted."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tfbench.manifest import parse_manifest
from tfbench.manifest.quantiles import Sampler, sampler

U = [(k + 0.5) / 4000 for k in range(4000)]


def tokens(**dist: Any) -> Sampler:
    manifest = parse_manifest({"model": {"name": "m"}, "workload": {"input_tokens": dist}}, "test")
    return sampler(manifest.workload.input_tokens, 1, 1_000_000)


def test_lognormal_mean_and_cv_are_those_before_clipping() -> None:
    law = tokens(dist="lognormal", mean=512, cv=0.8)
    sigma = math.sqrt(math.log(1 + 0.8**2))
    reference = stats.lognorm(s=sigma, scale=512 / math.sqrt(1 + 0.8**2))
    assert reference.mean() == pytest.approx(512)
    assert reference.std() == pytest.approx(512 * 0.8)
    assert [law.at(u) for u in U] == pytest.approx(reference.ppf(U), rel=1e-9)


def test_clipping_moves_values_to_the_bounds() -> None:
    law = tokens(dist="lognormal", mean=512, cv=0.8, min=100, max=1000)
    drawn = [law.at(u) for u in U]
    assert (min(drawn), max(drawn)) == (100, 1000)
    assert drawn.count(1000) > 1
    assert sum(drawn) / len(drawn) < 512


def test_constant_lognormal_is_taken() -> None:
    law = tokens(dist="lognormal", mean=512, cv=0)
    assert {law.whole_at(u) for u in U} == {512}


@pytest.mark.parametrize("spread", [{"sd": 64}, {"cv": 0.125}])
def test_normal(spread: dict[str, float]) -> None:
    law = tokens(dist="normal", mean=512, **spread)
    assert [law.at(u) for u in U] == pytest.approx(stats.norm(512, 64).ppf(U), rel=1e-9)


def test_uniform_gives_each_whole_number_its_share() -> None:
    law = tokens(dist="uniform", min=3, max=7)
    assert Counter(law.whole_at(u) for u in U) == dict.fromkeys(range(3, 8), 800)


def test_empirical_shares() -> None:
    assert Counter(tokens(dist="empirical", values=[5, 9, 7]).whole_at(u) for u in U[:3999]) == {
        5: 1333,
        9: 1334,
        7: 1332,
    }
    weighted = tokens(dist="empirical", values=[5, 9, 7, 8], weights=[0, 3, 1, 0])
    assert Counter(weighted.whole_at(u) for u in U) == {9: 3000, 7: 1000}


@given(
    u=st.floats(min_value=2.0**-54, max_value=1 - 2.0**-53),
    mean=st.floats(1, 1e6),
    cv=st.floats(0, 100),
    low=st.integers(1, 1000),
    span=st.integers(0, 1000),
)
def test_no_draw_leaves_its_bounds(u: float, mean: float, cv: float, low: int, span: int) -> None:
    for dist in ("lognormal", "normal"):
        assert low <= tokens(dist=dist, mean=mean, cv=cv, min=low, max=low + span).whole_at(u) <= low + span
        assert 1 <= tokens(dist=dist, mean=mean, cv=cv).whole_at(u) <= 1_000_000
    assert low <= tokens(dist="uniform", min=low, max=low + span).whole_at(u) <= low + span
    assert tokens(dist="empirical", values=[low, low + span], weights=[span, 1]).whole_at(u) in (low, low + span)
