"""Studies made by hand for comparisons: runs of streamed answers whose latencies the test chooses."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.ledger.builder import MANIFEST, Row, answer, row, run_facts, tables
from tfbench.verdict.validity import Verdict
from tfbench.warehouse import Warehouse

WINDOW_MS = 1000.0
RowsOf = Callable[[int], Sequence[Row]]


def latencies(repeat: int, *, arm: int = 0, n: int = 150, scale: float = 1.0, noise: float = 0.02) -> np.ndarray:
    """TTFTs of a run in ms: a part that pairs share (the schedule's), and the arm's own noise."""
    shared = np.random.default_rng([repeat, 7]).gamma(4.0, 10.0, n) + 5.0
    return shared * scale * np.exp(np.random.default_rng([repeat, arm, 8]).normal(0.0, noise, n))


def answers(ttfts: Sequence[float], **columns: Any) -> list[Row]:
    """Answers spread over the window, in order; `columns` hold for all, or one value per attempt as a list."""
    step = WINDOW_MS / len(ttfts)
    rows = []
    for i, ttft in enumerate(ttfts):
        own = {name: value[i] if isinstance(value, list) else value for name, value in columns.items()}
        rows.append(answer(i, i * step, ttft=float(ttft), gap=2.0, **own))
    return rows


def failures(n: int) -> list[Row]:
    """Attempts that got no answer."""
    return [row(i, i * WINDOW_MS / n, end=5.0, stream=False, outcome="rejected", http_status=503) for i in range(n)]


def add_study(
    warehouse: Path,
    study_id: str,
    rows: RowsOf,
    *,
    repeats: int = 5,
    load: float = 5.0,
    manifest: Mapping[str, Any] = MANIFEST,
    invalid: Sequence[int] = (),
    unstable: Sequence[int] = (),
    **facts: Any,
) -> None:
    """A study of `repeats` runs; `rows(repeat)` are its attempts; verdicts as a study would store them.

    Straight into the tables, in one transaction: bundles and their checks have tests of their own, and take ten times
    as long.
    """
    told = dict(manifest) | {"name": study_id}
    with Warehouse.open(warehouse) as store:
        store.con.begin()
        for repeat in range(repeats):
            own = {
                "run_id": f"{study_id}-{load:g}-{repeat}", "repeat": repeat, "order_index": repeat,
                "seed": repeat + 1, "schedule_sha256": f"s{repeat}", "load_value": load,
            }  # fmt: skip
            run = run_facts(study_id=study_id, **(own | facts))
            study = {key: run.pop(key) for key in ("created_ns", "tfbench_version", "host")} | {
                key: run[key] for key in ("study_id", "manifest_id", "workload_id", "system_id")
            }
            if not store.con.execute("SELECT 1 FROM studies WHERE study_id = ?", [study_id]).fetchall():
                _insert(store, "studies", study | {"manifest": told})
            _insert(store, "runs", run)
            for name, table in tables(run["run_id"], rows(repeat)).items():
                store.con.register("found", table)
                store.con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM found")
            bad = ("the client sent late",) if repeat in invalid else ()
            stability = "unstable" if repeat in unstable else "stable"
            for verdict in (
                Verdict("validity", "INVALID" if bad else "VALID", bad), Verdict("stability", stability, ())
            ):  # fmt: skip
                _insert(store, "verdicts", verdict.row(run["run_id"]))
        store.con.commit()


def _insert(store: Warehouse, table: str, row: Mapping[str, Any]) -> None:
    values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
    places = ", ".join("?" for _ in values)
    store.con.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", values)
