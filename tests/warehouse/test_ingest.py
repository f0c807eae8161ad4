"""Ingest: every row of a bundle or none, once, and only if it keeps the ledger's contract."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ledger.builder import MANIFEST, answer, row, run_facts, tables, write_run
from tfbench.core.errors import BundleError
from tfbench.ledger.bundle import write_bundle
from tfbench.ledger.schemas import RAW, SAMPLES, SERVER_EVENTS, TABLES
from tfbench.warehouse import Warehouse

ROWS = [
    answer(1, 0, quality='{"passed": true}'),
    row(2, 100, [(5, "text", None), (6, "usage", None)], outcome="timeout"),
    row(3, 200, sent=None, outcome="unsent", stream=False),
]


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(tmp_path / "w.duckdb") as opened:
        yield opened


def _counts(warehouse: Warehouse) -> dict[str, int]:
    names = ["studies", "runs", *TABLES]
    return {name: len(warehouse.con.execute(f"FROM {name}").fetchall()) for name in names}


def test_every_row_arrives_as_written(warehouse: Warehouse, tmp_path: Path) -> None:
    written = tables("run-1", ROWS) | {
        "raw": pa.Table.from_pylist([{"run_id": "run-1", "attempt_id": 1, "bytes": b"\x00\xff"}], schema=RAW),
        "samples": pa.Table.from_pylist(
            [{"run_id": "run-1", "source": "s", "series": "x", "labels": '{"a": "b"}', "t_ns": 1, "clock": "c"}],
            schema=SAMPLES,
        ),
        "server_events": pa.Table.from_pylist(
            [{"run_id": "run-1", "stage": "queue", "start_ns": 1, "clock": "c", "source": "s"}], schema=SERVER_EVENTS
        ),
    }
    path = write_bundle(tmp_path / "run-1", manifest=MANIFEST, run=run_facts(), tables=written)
    assert warehouse.ingest(path) == "run-1"
    for name, table in written.items():
        found = warehouse.con.execute(f"FROM {name}").fetchall()
        assert found == [
            tuple(values) for values in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
    assert _counts(warehouse)["texts"] == 0


def test_study_and_run_rows(warehouse: Warehouse, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"load_value": math.inf, "arm": "b", "pair": 3, "restart": None, "cache_state": "cold"}
    warehouse.ingest(write_run(tmp_path, ROWS, **facts))
    study = warehouse.con.execute("FROM studies").df().to_dict("records")[0]
    assert json.loads(study.pop("manifest")) == MANIFEST
    assert json.loads(study.pop("host")) == {"name": "here"}
    assert study == {
        key: run_facts()[key]
        for key in ("study_id", "manifest_id", "workload_id", "system_id", "created_ns", "tfbench_version")
    }
    [found] = warehouse.con.execute("FROM runs").fetchall()
    names = [column[0] for column in warehouse.con.execute("FROM runs").description or []]
    stored = dict(zip(names, found, strict=True))
    assert json.loads(stored.pop("observed")) == {"model": "m"}
    assert json.loads(stored.pop("signals")) == {"clock_steps": 0}
    wanted = {"schedule_sha256": None} | run_facts(**facts)
    assert stored == {key: wanted[key] for key in stored}


def test_the_same_run_again_changes_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write_run(tmp_path, ROWS)
    warehouse.ingest(path)
    before = _counts(warehouse)
    assert warehouse.ingest(path) == "run-1"
    assert _counts(warehouse) == before


def test_runs_of_one_study_share_its_row(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.ingest(write_run(tmp_path, ROWS))
    warehouse.ingest(write_run(tmp_path, ROWS, run_id="run-2", repeat=1))
    assert _counts(warehouse) | {"studies": 1, "runs": 2, "attempts": 6, "streams": 4} == _counts(warehouse)


def test_a_study_is_one_test(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.ingest(write_run(tmp_path, ROWS))
    with pytest.raises(BundleError, match="study study-1 is in the warehouse with another workload_id"):
        warehouse.ingest(write_run(tmp_path, ROWS, run_id="run-2", workload_id="other"))
    warehouse.ingest(write_run(tmp_path, ROWS, run_id="run-3", arm="b", manifest_id="other", system_id="other"))
    assert _counts(warehouse)["runs"] == 2


def _broken(**columns: Any) -> list[Any]:
    return [*ROWS, answer(9, 300, **columns)]


def _uneven() -> list[Any]:
    stream = dict(ROWS[0].stream or {}) | {"kind": ["text"]}
    return [dataclasses.replace(ROWS[0], stream=stream)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_broken(outcome="fine"), r"attempts.parquet: 1 rows with an unknown outcome"),
        (_broken(phase="later"), r"1 rows with an unknown phase"),
        (_broken(role="extra"), r"1 rows with an unknown role"),
        ([*ROWS, answer(1, 300)], r"attempts.parquet: 1 rows with an attempt_id given twice"),
        (_uneven(), r"streams.parquet: 1 rows whose lists differ in length"),
        ([*ROWS, dataclasses.replace(row(9, 0), stream=ROWS[0].stream)], r"streams.parquet: 1 rows with an attempt_id"),
        (
            [dataclasses.replace(ROWS[2], stream=ROWS[0].stream)],
            r"streams.parquet: 1 rows of an attempt that isn't there",
        ),
        (
            [dataclasses.replace(ROWS[0], attempt=ROWS[0].attempt | {"run_id": "run-2"})],
            r"1 rows of another run than run-1",
        ),
    ],
)
def test_a_bundle_that_breaks_the_contract_leaves_nothing(
    warehouse: Warehouse, tmp_path: Path, rows: list[Any], message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        warehouse.ingest(write_run(tmp_path, rows))
    assert set(_counts(warehouse).values()) == {0}
    warehouse.ingest(write_run(tmp_path, ROWS, run_id="run-2"))  # and the warehouse goes on


def test_a_damaged_bundle_leaves_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write_run(tmp_path, ROWS)
    pq.write_table(tables("run-1", ROWS[:1])["attempts"], path / "attempts.parquet")
    with pytest.raises(BundleError, match="damaged"):
        warehouse.ingest(path)
    assert set(_counts(warehouse).values()) == {0}


_LIMITED = """
import resource, sys
from pathlib import Path
from tfbench.core.errors import StorageError
from tfbench.warehouse import Warehouse
warehouse, bundle = Path(sys.argv[1]), Path(sys.argv[2])
size = warehouse.stat().st_size + 65536
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    with Warehouse.open(warehouse) as opened:
        opened.ingest(bundle)
except StorageError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with Warehouse.open(path) as opened:
        opened.ingest(write_run(tmp_path, ROWS))
    big = write_run(tmp_path, [answer(i, i, ttft=i, gap=i % 7, n=200) for i in range(1, 1500)], run_id="run-2")
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path), str(big)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "w.duckdb: can't write the warehouse" in done.stdout
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    with Warehouse.open(path) as opened:
        assert [run for (run,) in opened.con.execute("SELECT run_id FROM runs").fetchall()] == ["run-1"]
        assert opened.ingest(big) == "run-2"
