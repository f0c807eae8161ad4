"""Each mechanism removes its own cost and nothing else: the expectations of `make ablations`, on shorter runs."""

import json
from pathlib import Path

import pytest

from benchmarks import ablations
from benchmarks.ablations import ABLATIONS, CAPACITY, Ablation, Expectation, judge, page, simulate
from tfbench.core.resources import data_dir

SHORT = {
    "batching": ["load.count=200", "load.rates=[12,24]"],
    "chunked-prefill": ["load.count=300"],
    "prefix-reuse": ["load.count=40"],
    "kv-precision": ["load.count=80"],
    "batch-size": ["load.count=200"],
    "tensor-parallel": ["load.count=100"],
    "combination": ["load.count=120"],
}


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.name)
def test_directions(ablation: Ablation, tmp_path: Path) -> None:
    sets = ["load.repeats=1", *SHORT[ablation.name]]
    values = simulate(ablation, tmp_path / "w.duckdb", sets)
    judged = judge(ablation, values)
    assert judged and all(one["holds"] for one in judged), json.dumps(judged)
    text = page([(ablation, values, judged)])
    assert text.count("SIMULATED") >= 2 and "NOT AS EXPECTED" not in text
    assert all(f">{arm}<" in text for arm in ablation.arms)


def test_every_manifest_is_an_ablation_and_every_profile_an_arm() -> None:
    manifests = {path.stem for path in (data_dir("manifests") / "ablations").glob("*.toml")}
    assert manifests == {one.name for one in ABLATIONS}
    for ablation in ABLATIONS:
        profiles = {path.stem for path in (data_dir("profiles") / "ablations" / ablation.name).glob("*.toml")}
        assert profiles == set(ablation.arms)
        assert {one.base for one in ablation.expected} | {one.arm for one in ablation.expected} <= profiles


def test_an_expectation_must_hold_in_every_repeat() -> None:
    one = Expectation("f", "a", "b", "falls", 1.0, 2.0)
    ablation = Ablation("x", "X", ("a", "b"), ("f",), (one,))

    def holds(base: list[float], arm: list[float]) -> bool:
        [judged] = judge(ablation, {("f", "a", 1.0): base, ("f", "b", 1.0): arm})
        return bool(judged["holds"])

    assert holds([4.0, 4.0], [1.0, 1.9])
    assert not holds([4.0, 4.0], [1.0, 2.1])
    assert not holds([4.0, 0.0], [1.0, 1.0]), "nothing to compare with is no proof"
    assert not holds([], [])
    assert "NOT AS EXPECTED" in page([(ablation, {("f", "a", 1.0): [1.0]}, judge(ablation, {}))])


def test_capacity_is_the_last_rate_before_the_first_that_misses() -> None:
    tails = {
        (ablations.E2E_TAIL, "a", load): [value] for load, value in {1.0: 5.0, 2.0: 9.0, 3.0: 11.0, 4.0: 8.0}.items()
    }
    assert ablations._capacities(tails, "a", [4.0, 3.0, 2.0, 1.0], 10.0) == [2.0]
    assert ablations._capacities(tails, "a", [4.0, 3.0, 2.0, 1.0], 4.0) == [0.0]
    assert CAPACITY in ABLATIONS[0].figures
