import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.report.fmt import caption, compact, gathered, method_sentence, number, per_load, repeats, shown, span
from tfbench.report.model import Figure, LoadPoint


def figure(value: float | None, lo: float | None, hi: float | None, **more: object) -> Figure:
    base: dict[str, object] = {
        "load": LoadPoint(2.0),
        "name": "ttft_p50_ms",
        "unit": "ms",
        "direction": "lower",
        "value": value,
        "lo": lo,
        "hi": hi,
        "level": 0.95,
        "method": "t on log of runs (K=5)",
        "n": 120,
        "n_eff": None,
        "k": 5,
        "settled": value is not None,
        "reason": None,
    }
    return Figure(**(base | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "line", "mark"),
    [
        (figure(12.34, 11.9, 12.81), "12.3 [11.9, 12.8]", ""),
        (figure(412.3, 398.2, 433.4), "412 [398, 433]", ""),
        (figure(0.9812, 0.9711, 0.9923, unit="1"), "98.1 [97.1, 99.2]", ""),
        (figure(1500, 1455.4, 1545.2), "1,500 [1,455, 1,545]", ""),
        (figure(2.0004, 2.0001, 2.0008), "2.0004 [2.0001, 2.0008]", ""),
        (figure(12.3, 11.9, None), "12.3 ≥ 11.9", "≥"),
        (figure(0.0, None, 0.012, unit="1"), "0 ≤ 1.20", "≤"),
        (figure(1.0, 0.9119, None, unit="1"), "100 ≥ 91.2", "≥"),
        (figure(0.9812, 0.9711, 0.99999, unit="1"), "98.1 [97.1, 100.0]", ""),
        (figure(12.3, 11.9, 12.8, settled=False), "12.3? [11.9, 12.8]", "?"),
        (figure(12.3, 11.9, None, settled=False), "12.3? ≥ 11.9", "?"),
        (figure(0.167, 1.08e-10, 0.99, unit="1", settled=False), "16.7? [< 0.01, 99.0]", "?"),
        (figure(1e-6, 1e-9, 0.05, unit="1"), "< 0.01 [< 0.01, 5.00]", ""),
        (figure(1.0, 1e-9, None, unit="1"), "100 ≥ 0", "≥"),
        (figure(0.0, None, 3e-5, unit="1"), "0 ≤ 0.00300", "≤"),
        (figure(2e-5, 1e-5, 4e-5, unit="1"), "0.00200 [0.00100, 0.00400]", ""),
        (figure(None, 91.2, None), "≥ 91.2", "≥"),
        (figure(None, None, 4.2), "≤ 4.20", "≤"),
        (figure(None, 1.0, 2.0), "[1.00, 2.00]", ""),
        (figure(None, None, None), "–", "–"),
        (figure(3.2e-7, 2.9e-7, 3.6e-7), "3.2e-07 [2.9e-07, 3.6e-07]", ""),
        (figure(0.5, 0.001, 120000.0), "0.500 [0.001, 120,000]", ""),
        (None, "–", "–"),
    ],
)
def test_shown(found: Figure | None, line: str, mark: str) -> None:
    text = shown(found)
    assert (text.line, text.mark) == (line, mark)


@given(st.floats(1e-3, 1e6), st.floats(1e-6, 0.5), st.floats(1e-6, 0.5))
def test_an_interval_never_looks_like_no_width(value: float, below: float, above: float) -> None:
    text = shown(figure(value, value * (1 - below), value * (1 + above)))
    low, high = text.interval.strip("[]").split(", ")
    assert low != high


@given(st.floats(0.0, 1.0), st.none() | st.floats(0.0, 1.0), st.none() | st.floats(0.0, 1.0))
def test_shares_never_need_an_exponent_beside_a_larger_one(value: float, lo: float | None, hi: float | None) -> None:
    lo, hi = None if lo is None else min(lo, value), None if hi is None else max(hi, value)
    line = shown(figure(value, lo, hi, unit="1")).line
    if max(x for x in (value, lo, hi) if x is not None) >= 1e-4:
        assert "e" not in line
    assert "≥ <" not in line and "≤ <" not in line


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_number_keeps_three_digits(value: float) -> None:
    read = float(number(value).replace(",", ""))
    assert math.isclose(read, value, rel_tol=5.1e-3, abs_tol=0)


def test_number_of_nothing() -> None:
    assert number(None) == "–"
    assert number(0.0) == "0"


def test_spans_and_counts() -> None:
    two, four = LoadPoint(2.0), LoadPoint(4.0)
    assert (span([]), span([5, 5]), span([118, 1240])) == ("–", "5", "118–1,240")
    assert per_load([(two, 118), (four, 240)], "attempts") == "118 / 240 attempts (at 2 / 4)"
    assert per_load([(LoadPoint(float(i)), i) for i in range(9)], "gaps") == "0–8 gaps"
    assert (repeats([1]), repeats([3, 5])) == ("K = 1 run a load point", "K = 3–5 runs a load point")
    assert (
        gathered([("P50", "2"), ("P99", "2"), ("P50", "4"), ("P99", "4"), ("P99", "8")]) == "P50, P99 at 2, 4; P99 at 8"
    )


def test_a_caption_states_n_k_level_and_method() -> None:
    one = figure(1.0, 0.9, 1.1)
    other = figure(2.0, 1.8, 2.2, load=LoadPoint(4.0), n=240, method="time blocks (K=2)", k=2)
    assert caption([one]) == "n = 120 attempts; K = 5 runs a load point. 95 % intervals: t on log of runs (K=5)."
    assert caption([one, other], "gaps") == (
        "n = 120 / 240 gaps (at 2 / 4); K = 2–5 runs a load point. "
        "95 % intervals: t on log of runs (K=5) (at 2); time blocks (K=2) (at 4)."
    )
    assert caption([figure(None, None, None)]).startswith("n = 0")
    assert method_sentence([figure(1.0, None, None, method=None)]) == "No interval."


@pytest.mark.parametrize(
    ("value", "lo", "hi", "unit", "line"),
    [
        (80.0, 77.6, 82.4, "ms", "80.0 ±2.4"),
        (1.99, 1.91, 2.07, "requests/s", "1.99 ±0.08"),
        (12.345, 12.0, 12.7, "ms", "12.3 ±0.4"),  # never narrower than the interval
        (188.0, 160.0, 240.0, "ms", "188 [160, 240]"),
        (0.99, 0.98, 1.0, "1", "99.0 [98.0, 100]"),
        (80.0, 80.0, 80.0, "ms", "80.0 [80.0, 80.0]"),
        (80.0, 70.0, None, "ms", "80.0 ≥ 70.0"),
        (None, 70.0, 80.0, "ms", "[70.0, 80.0]"),
    ],
)
def test_compact(value: float | None, lo: float | None, hi: float | None, unit: str, line: str) -> None:
    assert compact(figure(value, lo, hi, unit=unit, settled=True)).line == line
