"""Runs of a study: order, and seeds that no two runs share."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tfbench.manifest import RunPlan, expand, parse_manifest


def plans(**load: Any) -> tuple[RunPlan, ...]:
    return expand(parse_manifest({"model": {"name": "m"}, "load": load}, "test"))


def by_repeat(**load: Any) -> list[list[float]]:
    made = plans(**load)
    return [[plan.load_value for plan in made if plan.repeat == i] for i in range(load["repeats"])]


def test_every_point_is_run_in_every_repeat() -> None:
    made = plans(rates=[2, 4, 8], repeats=3)
    assert sorted((plan.repeat, plan.load_value) for plan in made) == [(i, x) for i in range(3) for x in (2, 4, 8)]
    assert [plan.repeat for plan in made] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [plan.order_index for plan in made] == list(range(9))
    assert {(plan.point_index, plan.load_value) for plan in made} == {(0, 2.0), (1, 4.0), (2, 8.0)}


@given(st.lists(st.integers(1, 999), min_size=1, max_size=8, unique=True), st.integers(1, 9), st.integers(0, 2**40))
def test_a_steady_drift_weighs_on_all_points_alike_over_two_repeats(rates: list[int], repeats: int, seed: int) -> None:
    turns = by_repeat(rates=rates, repeats=repeats, seed=seed)
    for forth, back in zip(turns[::2], turns[1::2], strict=False):
        assert back == forth[::-1]
    assert by_repeat(rates=rates, repeats=repeats + 1, seed=seed)[:repeats] == turns


def test_the_order_is_drawn_from_the_seed() -> None:
    rates = [2, 4, 8, 16]
    turns = [tuple(turn) for turn in by_repeat(rates=rates, repeats=400)[::2]]
    assert turns != [tuple(turn) for turn in by_repeat(rates=rates, repeats=400, seed=1)[::2]]
    assert len(set(turns)) == 24
    # Every point comes first about as often: 50 of 200, with a standard deviation of 6.
    assert all(25 <= sum(turn[0] == rate for turn in turns) <= 75 for rate in rates)


def test_the_order_is_this_on_every_machine() -> None:
    # By sha256 of the text ["tfbench.order",7,2,0], and so on; infinity is the text "inf".
    assert by_repeat(rates=[2, 4.5, "inf"], count=3, repeats=3, seed=7) == [
        [2.0, math.inf, 4.5],
        [4.5, math.inf, 2.0],
        [math.inf, 2.0, 4.5],
    ]


def test_seeds_and_salts_are_never_shared() -> None:
    made = plans(rates=[2, 4, 8, 16], repeats=50) + plans(rates=[2, 4, 8, 16], repeats=50, seed=1)
    assert len({plan.seed for plan in made}) == len(made)
    assert len({plan.salt for plan in made}) == len(made)
    assert all(0 <= plan.seed < 2**63 for plan in made)


def test_seed_depends_on_seed_point_and_repeat_alone() -> None:
    by_run = {(plan.load_value, plan.repeat): (plan.seed, plan.salt) for plan in plans(rates=[2, 4], repeats=2)}
    other = plans(rates=[8, 4, 2], repeats=3, process="constant", duration_s=5)
    shared = [plan for plan in other if (plan.load_value, plan.repeat) in by_run]
    assert len(shared) == 4
    assert all((plan.seed, plan.salt) == by_run[plan.load_value, plan.repeat] for plan in shared)


def test_seed_is_this_on_every_machine() -> None:
    # sha256 of the text ["tfbench.run",7,2,0]: 63 bits of the first eight bytes, then the next eight in hex.
    [plan] = plans(rates=[2.0], repeats=1, seed=7)
    assert (plan.seed, plan.salt) == (2676487143297522571, "9189928e8968cacc")
    [burst] = plans(rates=[float("inf")], count=3, repeats=1, seed=7)
    assert burst.load_value == float("inf")
    assert burst.seed != plan.seed
