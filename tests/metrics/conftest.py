"""A warehouse of small runs, made from rows by hand."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.ledger.builder import Row, write_run
from tfbench.warehouse import Warehouse

AddRun = Callable[..., str]


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(tmp_path / "w.duckdb") as opened:
        yield opened


@pytest.fixture
def con(warehouse: Warehouse) -> duckdb.DuckDBPyConnection:
    return warehouse.con


@pytest.fixture
def add_run(warehouse: Warehouse, tmp_path: Path) -> AddRun:
    """`add_run(rows, run_id=…, manifest=…, **run facts)` puts a run of study-1 into the warehouse."""

    def add(rows: Sequence[Row], **facts: Any) -> str:
        return warehouse.ingest(write_run(tmp_path, rows, **facts))

    return add
