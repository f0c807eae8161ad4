"""Closed-loop plans: staggered starts, think times by user and turn, one hash over all of it."""

import pickle
from typing import Any

import pytest
from scipy import stats

from tfbench.manifest import expand, parse_manifest
from tfbench.schedule import ClosedPlan, build_schedule, closed_plan


def plan(**load: Any) -> ClosedPlan:
    document = {"model": {"name": "m"}, "load": {"mode": "closed", "concurrency": [4], "repeats": 1, **load}}
    manifest = parse_manifest(document, "test")
    made = build_schedule(manifest, expand(manifest)[0])
    assert isinstance(made, ClosedPlan)
    return made


def test_starts_are_spread_over_half_the_warmup() -> None:
    made = plan(warmup_s=8)
    assert [made.start_offset_ns(user) for user in range(4)] == [0, 1_000_000_000, 2_000_000_000, 3_000_000_000]
    assert [plan(warmup_s=0).start_offset_ns(user) for user in range(4)] == [0, 0, 0, 0]


def test_window_by_time_and_by_count() -> None:
    timed = plan(warmup_s=2, duration_s=6, drain_s=3)
    assert (timed.users, timed.count) == (4, None)
    assert (timed.measure_start_ns, timed.measure_end_ns, timed.stop_ns) == (2 * 10**9, 8 * 10**9, 11 * 10**9)
    counted = plan(warmup_s=2, count=100)
    assert (counted.measure_start_ns, counted.measure_end_ns, counted.stop_ns, counted.count) == (
        2 * 10**9,
        None,
        None,
        100,
    )


def test_think_times_depend_on_user_and_turn_and_follow_the_law() -> None:
    made = plan(think_s={"dist": "lognormal", "mean": 0.5, "cv": 1})
    times = {(user, turn): made.think_ns(user, turn) for user in range(40) for turn in range(50)}
    assert len(set(times.values())) == 2000
    again = pickle.loads(pickle.dumps(made))
    assert all(again.think_ns(*key) == times[key] for key in reversed(times))
    sigma = 0.8325546111576977  # √ln 2
    law = stats.lognorm(s=sigma, scale=0.5 / 2**0.5)
    assert law.mean() == pytest.approx(0.5)
    assert stats.kstest([value / 1e9 for value in times.values()], law.cdf).pvalue > 0.01


def test_a_number_is_a_constant_think_time() -> None:
    assert plan(think_s=0.25).think_ns(3, 9) == 250_000_000
    assert plan().think_ns(3, 9) == 0


def test_hash_covers_every_number_and_no_two_runs_share_one() -> None:
    variants = [
        plan(),
        plan(seed=1),
        plan(think_s=1),
        plan(think_s={"dist": "uniform", "min": 0, "max": 1}),
        plan(warmup_s=1),
        plan(drain_s=1),
        plan(duration_s=1),
        plan(count=1),
        plan(concurrency=[5]),
    ]
    assert len({made.sha256 for made in variants}) == len(variants)
    assert plan().sha256 == plan().sha256
    manifest = parse_manifest({"model": {"name": "m"}, "load": {"mode": "closed", "repeats": 5}}, "test")
    made = [build_schedule(manifest, run) for run in expand(manifest)]
    assert len({one.sha256 for one in made}) == 5


@pytest.mark.parametrize("bad", [{"users": 0}, {"count": 3}, {"duration_s": None}])
def test_arguments_no_manifest_allows_are_refused(bad: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"users": 2, "seed": 1, "think_s": 0.0, "warmup_s": 0.0, "drain_s": 0.0}
    arguments |= {"duration_s": 5.0, "count": None, **bad}
    with pytest.raises(ValueError, match="a closed loop needs users"):
        closed_plan(**arguments)
