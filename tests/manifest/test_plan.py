"""Runs of a study: order, and seeds that no two runs share."""

from typing import Any

from tfbench.manifest import RunPlan, expand, parse_manifest


def plans(**load: Any) -> tuple[RunPlan, ...]:
    return expand(parse_manifest({"model": {"name": "m"}, "load": load}, "test"))


def test_every_point_is_run_in_every_repeat_forth_and_back() -> None:
    made = plans(rates=[2, 4, 8], repeats=3)
    assert [(plan.load_value, plan.repeat) for plan in made] == [
        *[(2.0, 0), (4.0, 0), (8.0, 0)],
        *[(8.0, 1), (4.0, 1), (2.0, 1)],
        *[(2.0, 2), (4.0, 2), (8.0, 2)],
    ]
    assert [plan.order_index for plan in made] == list(range(9))
    assert [plan.point_index for plan in made] == [0, 1, 2, 2, 1, 0, 0, 1, 2]


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
