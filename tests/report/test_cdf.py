import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfbench.report.cdf import empirical_cdf
from tfbench.report.model import LoadPoint

LOAD = LoadPoint(4.0)
# Four digits, so that rounding to five for the page keeps values apart.
VALUES = st.integers(1, 9999).map(float) | st.just(math.inf)
RUNS = st.lists(arrays(np.float64, st.integers(1, 60), elements=VALUES), min_size=1, max_size=4)


def counted(runs: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(run, np.ones(run.size, dtype=np.int64)) for run in runs]


@given(RUNS, st.integers(4, 30))
def test_every_drawn_point_is_the_exact_share(runs: list[np.ndarray], points: int) -> None:
    pooled = np.concatenate(runs)
    cdf = empirical_cdf(LOAD, "ttft", counted(runs), points)
    if np.isinf(pooled).all():
        assert cdf is None
        return
    assert cdf is not None
    assert (cdf.n, cdf.n_inf, cdf.k) == (pooled.size, np.isinf(pooled).sum(), len(runs))
    finite = pooled[np.isfinite(pooled)]
    drawn = list(cdf.x)
    assert set(drawn) <= set(finite)
    assert cdf.p == pytest.approx([np.mean(pooled <= x) for x in drawn], abs=1e-4)
    assert cdf.p[-1] == pytest.approx(1 - cdf.n_inf / cdf.n, abs=1e-4)
    assert list(cdf.x) == sorted(cdf.x)
    if len(runs) == 1:
        assert cdf.lo is None
    else:
        assert cdf.lo == pytest.approx([min(np.mean(run <= x) for run in runs) for x in drawn], abs=1e-4)
        assert cdf.hi == pytest.approx([max(np.mean(run <= x) for run in runs) for x in drawn], abs=1e-4)


def test_counts_stand_for_repeated_values() -> None:
    short = empirical_cdf(LOAD, "icl", [(np.array([1.0, 2.0, math.inf]), np.array([3, 1, 1]))])
    long = empirical_cdf(LOAD, "icl", counted([np.array([2.0, 1.0, math.inf, 1.0, 1.0])]))
    assert short == long
    assert short is not None
    assert (short.x, short.p, short.n_inf) == ((1.0, 2.0), (0.6, 0.8), 1)


def test_a_long_sample_stays_small_and_keeps_its_tail() -> None:
    x = np.sort(np.random.default_rng(1).lognormal(4, 1, 50_000))
    cdf = empirical_cdf(LOAD, "e2e", counted([x]), 200)
    assert cdf is not None
    assert len(cdf.x) <= 210
    assert cdf.x[-1] == pytest.approx(x[-1], rel=1e-4)
    for p in (0.99, 0.999, 0.9999):
        assert min(abs(q - p) for q in cdf.p) < 5e-5


def test_runs_without_data_do_not_count() -> None:
    cdf = empirical_cdf(LOAD, "tpot", counted([np.array([1.0]), np.array([])]))
    assert cdf is not None
    assert cdf.k == 1
    assert empirical_cdf(LOAD, "tpot", []) is None
