"""The answer type keeps its promises, whatever raw numbers it is made from."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tfbench.stats.interval import Interval, deflate, interval, student_t

NUMBER = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))


def raw(value: float | None, lo: float | None, hi: float | None, reason: str | None = "because") -> Interval:
    return Interval(value, lo, hi, 0.95, "m", 3, None, 1, False, reason)


@pytest.mark.parametrize(
    ("value", "lo", "hi"),
    [
        (math.nan, None, None),
        (1.0, -math.inf, None),
        (1.0, None, math.inf),
        (1.0, 2.0, 1.0),
        (1.0, 1.5, 2.0),
        (3.0, 1.0, 2.0),
    ],
)
def test_a_broken_interval_is_refused(value: float, lo: float | None, hi: float | None) -> None:
    with pytest.raises(ValueError, match="Interval"):
        raw(value, lo, hi)


def test_an_open_side_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        raw(1.0, 0.5, None, reason=None)
    assert raw(1.0, 0.5, 2.0, reason=None).reason is None


@given(value=NUMBER, lo=NUMBER, hi=NUMBER)
def test_any_raw_numbers_make_an_honest_interval(value: float | None, lo: float | None, hi: float | None) -> None:
    got = interval(value, lo, hi, level=0.95, method="m", n=1, k=1, settled=False)
    for number in (got.value, got.lo, got.hi):
        assert number is None or math.isfinite(number)
    if got.lo is not None and got.hi is not None:
        assert got.lo < got.hi
    if got.value is not None:
        assert got.lo is None or got.lo <= got.value
        assert got.hi is None or got.value <= got.hi
    if None in (got.value, got.lo, got.hi):
        assert got.reason


def test_reasons_are_joined_once_each() -> None:
    got = interval(1.0, None, None, level=0.95, method="m", n=1, k=1, settled=False, reasons=["a", "b", "a", ""])
    assert got.reason == "a; b"


def test_only_observed_values_that_tie_may_have_no_width() -> None:
    tied = interval(1.0, 1.0, 1.0, level=0.95, method="m", n=9, k=3, settled=True, ties=True)
    assert (tied.lo, tied.hi, tied.reason) == (1.0, 1.0, None)
    assert interval(1.0, 1.0, 1.0, level=0.95, method="m", n=9, k=3, settled=True).lo is None


def test_bounds_a_rounding_apart_are_not_knowledge() -> None:
    got = interval(1.0, 1.0, 1.0 + 2e-16, level=0.95, method="m", n=1, k=1, settled=False)
    assert (got.lo, got.hi) == (None, None)
    assert got.reason == "the data show no spread to make bounds from"


def test_student_t_and_deflation() -> None:
    assert student_t(0.95, 4) == pytest.approx(2.776445)
    # df = 10: (1.95996 / 2.22814)^2 = 0.77377
    assert deflate(1000.0, 10.0, 0.95) == pytest.approx(773.77, abs=0.01)
    assert deflate(1000.0, 0.1, 0.95) == deflate(1000.0, 1.0, 0.95)
    assert deflate(1000.0, 1e9, 0.95) == pytest.approx(1000.0)
    assert student_t(0.9, 3.5) == pytest.approx(stats.t.ppf(0.95, 3.5))
