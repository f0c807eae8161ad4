"""Which bucket an attempt is in."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.ledger.builder import answer, row
from tests.verdict.ledgers import add_study
from tfbench.manifest import RunPlan, freeze, parse_manifest
from tfbench.manifest.plan import run_seed
from tfbench.verdict.arms import read_arm
from tfbench.verdict.buckets import length_edges, memberships, read_attempts
from tfbench.warehouse import Warehouse
from tfbench.workload import build_workload

MANIFEST = parse_manifest(
    {
        "model": {"name": "m"},
        "workload": {"input_tokens": {"dist": "uniform", "min": 10, "max": 99}, "output_tokens": 4},
        "load": {"rates": [5], "seed": 3},
    },
    "test",
)


def test_lengths_are_the_planned_ones_whatever_came_back(tmp_path: Path) -> None:
    seed, salt = run_seed(3, 5.0, 0)
    path = tmp_path / "w.duckdb"
    retry = (1 << 40) + 7
    rows = [answer(i, i * 10) for i in range(20)] + [row(retry, 300, end=5, stream=False, outcome="timeout")]
    add_study(path, "s", lambda _: rows, repeats=1, manifest=freeze(MANIFEST).document, seed=seed)
    add_study(path, "foreign", lambda _: rows, repeats=1, manifest=freeze(MANIFEST).document, seed=seed + 1)
    with Warehouse.open(path, read_only=True) as store:
        planned, returned = (
            read_attempts(store.con, arm, arm.runs) for arm in (read_arm(store.con, name) for name in ("s", "foreign"))
        )
    workload = build_workload(freeze(MANIFEST).manifest, RunPlan(0, 5.0, 0, 0, seed, salt))
    assert planned["input_tokens"].tolist() == [workload.item(i).input_tokens for i in (*range(20), 7)]
    assert set(planned["output_tokens"]) == {4}
    assert set(returned["input_tokens"].dropna()) == {10} and returned["input_tokens"].isna().sum() == 1


def frame(**columns: list[object]) -> pd.DataFrame:
    n = len(next(iter(columns.values())))
    empty = {name: [None] * n for name in ("tenant", "lora", "class")}
    return pd.DataFrame({"run_id": "r", "attempt_id": range(n)} | empty | columns)


def test_few_lengths_stand_alone_many_fall_into_quarters_edges_are_kept() -> None:
    few = frame(input_tokens=[8.0, 512.0, 8.0], output_tokens=[1.0, 1.0, 1.0])
    edges = length_edges(few, {})
    assert memberships(few, edges, ["input_tokens"])["label"].tolist() == ["≤ 8", "9–512", "≤ 8"]
    many = frame(input_tokens=list(np.arange(100.0)), output_tokens=[np.nan] * 100)
    found = memberships(many, length_edges(many, {}), ["input_tokens", "output_tokens"])
    assert found.groupby(["by", "label"]).size().to_dict() == {
        ("input_tokens", "≤ 24"): 25, ("input_tokens", "25–49"): 25, ("input_tokens", "50–74"): 25,
        ("input_tokens", "> 74"): 25, ("output_tokens", "unknown"): 100,
    }  # fmt: skip
    given = memberships(many, length_edges(many, {"input_tokens": [9]}), ["input_tokens"])
    assert given.groupby("label").size().to_dict() == {"≤ 9": 10, "> 9": 90}


def test_every_attempt_is_in_one_bucket_of_each_kind() -> None:
    mixed = frame(input_tokens=[1.0, np.nan, 700.0], output_tokens=[2.0, 3.0, 4.0], tenant=["a", None, "b"])
    found = memberships(mixed, length_edges(mixed, {}), ["input_tokens", "tenant", "class"])
    assert found.groupby("by").size().tolist() == [3, 3, 3]
    assert found[found["by"] == "tenant"]["label"].tolist() == ["a", "none", "b"]
    assert memberships(mixed, {}, []).empty


@pytest.mark.parametrize("values", [[], [5.0]])
def test_no_or_one_length(values: list[float]) -> None:
    one = frame(input_tokens=values, output_tokens=values)
    assert len(memberships(one, length_edges(one, {}), ["input_tokens"])) == len(values)
