"""What the runs at all loads say of one of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.stats.interval import interval
from tfbench.stats.loads import LoadRuns, judge, line_at
from tfbench.stats.search import SearchPlan

PLAN = SearchPlan(1.0, 1e-3, 1e3)


def runs(load: float, *shares: float, lo: float | None = None, hi: float | None = None, unstable: int = 0) -> LoadRuns:
    """Runs at a load whose own interval is [lo, hi]."""
    value = sum(shares) / len(shares) if shares else None
    own = interval(value, lo, hi, level=PLAN.level, method="m", n=100, k=len(shares), settled=True, reasons=())
    return LoadRuns(load, shares, own, unstable)


def decisions(held: list[LoadRuns]) -> dict[float, bool | None]:
    return {one.load: one.met for one in judge(held, 0.9, PLAN)}


@pytest.mark.parametrize("many", [1, 2])
def test_one_or_two_runs_scout_and_decide_nothing(many: int) -> None:
    (met,) = judge([runs(1.0, *[1.0] * many, lo=0.99)], 0.9, PLAN)
    assert (met.met, met.scouted, met.way) == (None, True, True)
    (not_met,) = judge([runs(1.0, *[0.1] * many, hi=0.2)], 0.9, PLAN)
    assert (not_met.met, not_met.scouted, not_met.leans) == (None, False, False)
    (open_one,) = judge([runs(1.0, *[0.92] * many, lo=0.5, hi=0.99)], 0.9, PLAN)
    assert (open_one.way, open_one.leans) == (None, True)


def test_three_runs_without_neighbours_decide_by_themselves() -> None:
    assert decisions([runs(1.0, 0.99, 0.98, 0.99, lo=0.95), runs(2.0, 0.5, 0.4, 0.6, hi=0.8)]) == {
        1.0: True,
        2.0: False,
    }
    assert judge([LoadRuns(1.0, (), None, unfit=2)], 0.9, PLAN)[0].met is None
    # Runs without a request tell nothing of how runs differ.
    assert judge([LoadRuns(1.0, (1.0,), runs(1.0, 1.0, lo=0.99).share, empty=3)], 0.9, PLAN)[0].met is None


def test_a_lucky_load_is_not_decided_against_all_around_it() -> None:
    """Its own four runs say met; the loads on both sides say that the limit lies below."""
    around = [
        runs(0.8, 0.97, 0.9, 0.95, 0.99, 0.93, 0.98),
        runs(0.9, 0.91, 0.82, 0.9, 0.93, 0.84, 0.9),
        runs(1.1, 0.7, 0.75, 0.6, 0.72, 0.7, 0.66),
    ]
    lucky = runs(1.0, 0.95, 0.94, 0.96, 0.95, lo=0.91)
    assert decisions([lucky]) == {1.0: True}
    assert decisions([*around, lucky])[1.0] is None


def test_the_line_decides_what_few_runs_at_a_load_leave_open() -> None:
    rng = np.random.default_rng(3)

    def at(load: float, count: int) -> LoadRuns:
        mean = 1 / (1 + math.exp(8 * math.log(load) - math.log(9)))
        return runs(load, *np.clip(rng.normal(mean, 0.03, count), 0, 1), lo=0.1, hi=0.99)

    held = [at(load, 6) for load in (0.8, 0.87, 0.94, 1.0, 1.07, 1.15, 1.25)]
    known = decisions(held)
    assert known[0.8] is True and known[1.25] is False and known[1.0] is None


def test_outages_at_other_loads_speak_against_a_load_that_saw_none() -> None:
    clean = [runs(load, *[share] * 4, lo=share - 0.02) for load, share in ((1.0, 0.945), (1.1, 0.935), (1.2, 0.93))]
    assert decisions(clean)[1.1] is True
    outages = runs(0.2, 1.0, 0.6, 1.0, 1.0, 0.6, 1.0, 1.0, 1.0)
    assert decisions([outages, *clean])[1.1] is None


def test_loads_beyond_decide_a_low_one_at_which_a_whole_run_goes_wrong_now_and_then() -> None:
    low = [runs(load, *[1.0] * 7, 0.8, lo=0.8) for load in (0.25, 0.5, 1.0)]
    assert decisions(low[:1]) == {0.25: None}
    assert decisions([*low, runs(2.0, 0.2, 0.3, 0.2, 0.3, hi=0.5)]) == {0.25: True, 0.5: True, 1.0: None, 2.0: False}


def test_a_growing_backlog_is_not_met_whatever_the_line_says() -> None:
    near = [runs(load, *[0.99, 0.98, 1.0, 0.99], lo=0.97) for load in (0.9, 1.0)]
    grows = runs(1.1, 0.99, 0.98, 0.99, 0.98, lo=0.96, unstable=4)
    assert decisions([*near, grows])[1.1] is False


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.lists(st.floats(0, 1), min_size=1, max_size=6)), min_size=1, max_size=6),
    st.floats(0.1, 10),
)
def test_the_line_has_bounds_or_none_whatever_the_runs(data: list[tuple[float, list[float]]], load: float) -> None:
    held = [runs(at, *shares) for at, shares in data]
    bounds = line_at(load, held, level=0.99)
    assert bounds is None or (bounds[0] <= bounds[1] and all(map(math.isfinite, bounds)))
    assert len(judge(held, 0.9, PLAN)) == len(held)


def test_the_line_is_as_wide_as_the_runs_differ() -> None:
    def width(spread: float) -> float:
        held = [
            runs(load, *(mean + spread * sign for sign in (-1, 1, -1, 1)))
            for load, mean in ((0.8, 0.95), (1.0, 0.9), (1.2, 0.8))
        ]
        bounds = line_at(1.0, held, level=0.95)
        assert bounds is not None and bounds[0] < 0.9 < bounds[1]
        return bounds[1] - bounds[0]

    assert width(0.01) < width(0.03) < width(0.05)
    assert line_at(1.0, [runs(1.0, 0.9, 0.9, 0.9)], level=0.95) is None
