"""Adjusted p-values: worked examples, and what must hold for any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.stats.multiple import benjamini_hochberg, holm

P_VALUES = st.lists(st.floats(0.0, 1.0), max_size=20)


def test_holm_and_bh_by_hand() -> None:
    # Sorted .01 .03 .04 .2: Holm 4*.01, 3*.03, max(.09, 2*.04), max(.09, .2); BH .04, .06, .16/3, .2, from the right.
    p = [0.04, 0.01, 0.2, 0.03]
    assert holm(p) == pytest.approx([0.09, 0.04, 0.2, 0.09])
    assert benjamini_hochberg(p) == pytest.approx([0.16 / 3, 0.04, 0.2, 0.16 / 3])


def test_bh_agrees_with_scipy() -> None:
    from scipy.stats import false_discovery_control

    p = np.random.default_rng(1).uniform(size=50) ** 3
    assert benjamini_hochberg(p.tolist()) == pytest.approx(false_discovery_control(p))


@given(P_VALUES)
def test_adjusting_never_makes_a_p_value_smaller_nor_changes_their_order(p: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        found = adjust(p)
        assert len(found) == len(p) and (found >= np.asarray(p) - 1e-12).all() and (found <= 1.0).all()
        assert (np.diff(found[np.argsort(p, kind="stable")]) >= 0.0).all()
    assert (holm(p) >= benjamini_hochberg(p) - 1e-12).all()


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [float("nan")]])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm(bad)
