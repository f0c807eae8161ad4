"""Opening a warehouse, and every way it can't be; studies, verdicts, queries."""

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.builder import MANIFEST, answer, write_run
from tfbench.core.errors import StorageError, UsageError, WarehouseError
from tfbench.warehouse import Warehouse, default_path, json_text
from tfbench.warehouse.migrate import migrations

TABLES = {
    "studies": "study_id manifest_id workload_id system_id manifest created_ns tfbench_version host",
    "runs": "run_id study_id manifest_id workload_id system_id mode load_value repeat order_index arm pair restart seed"
    " schedule_sha256 cache_state status measure_start_ns measure_end_ns observed signals origin",
    "attempts": "run_id attempt_id request_id task_id try role session_id turn tenant lora class phase host worker"
    " connection_id new_connection stamp_source scheduled_ns dispatched_ns slot_ns connected_ns sent_ns first_byte_ns"
    " end_ns outcome http_status error finish_reason prompt_tokens cached_tokens output_tokens reasoning_tokens"
    " token_source quality prompt_sha256 output_sha256",
    "streams": "run_id attempt_id t_ns user_ns kind tokens blur_ns",
    "texts": "run_id attempt_id prompt output",
    "raw": "run_id attempt_id bytes",
    "server_events": "run_id request_id stage start_ns end_ns clock source attrs",
    "samples": "run_id source series labels t_ns clock value",
    "clock_anchors": "run_id host mono_ns real_ns width_ns",
    "clock_links": "run_id clock_a clock_b t_ns offset_lo_ns offset_hi_ns",
    "verdicts": "run_id ruleset kind verdict reasons",
    "foreign_figures": "run_id lens name stat unit value lo hi n source",
    "calibrations": "host t_ns figures",
    "schema_migrations": "version name applied_ns",
}
"""The contract: names are fixed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.duckdb"


@pytest.fixture
def warehouse(path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(path) as opened:
        yield opened


def test_tables_are_the_contract(warehouse: Warehouse) -> None:
    rows = warehouse.con.execute(
        "SELECT table_name, string_agg(column_name, ' ' ORDER BY column_index) FROM duckdb_columns()"
        " WHERE NOT internal GROUP BY ALL"
    ).fetchall()
    assert dict(rows) == TABLES


def test_json_columns_are_json(warehouse: Warehouse) -> None:
    rows = warehouse.con.execute(
        "SELECT table_name || '.' || column_name FROM duckdb_columns() WHERE data_type = 'JSON' ORDER BY ALL"
    ).fetchall()
    assert [name for (name,) in rows] == [
        *("attempts.quality", "calibrations.figures", "runs.observed", "runs.signals", "samples.labels"),
        *("server_events.attrs", "studies.host", "studies.manifest", "verdicts.reasons"),
    ]


def test_open_makes_the_file_and_reopens(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    Warehouse.open(path).close()
    with Warehouse.open(path) as again:
        versions = again.sql("SELECT version, name FROM schema_migrations ORDER BY version").to_dict("list")
    steps = migrations()
    assert versions == {"version": [step.version for step in steps], "name": [step.name for step in steps]}


def test_two_readers_at_once(path: Path) -> None:
    Warehouse.open(path).close()
    with Warehouse.open(path, read_only=True) as one, Warehouse.open(path, read_only=True) as two:
        assert one.studies().empty
        assert two.studies().empty
        with pytest.raises(UsageError, match="read-only"):
            one.sql("DELETE FROM runs")


def test_reading_one_that_is_not_there(path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"w\.duckdb: no warehouse there; `tfbench run` makes one"):
        Warehouse.open(path, read_only=True)
    assert not path.exists()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(WarehouseError, match="not a DuckDB file"):
        Warehouse.open(path)


@pytest.mark.parametrize("name", ["r.json", "r.csv", "r.parquet", "r.txt", "r.duckdb"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_duckdb_would_read_as_a_table(tmp_path: Path, name: str, read_only: bool) -> None:
    other = tmp_path / name
    if name == "r.parquet":
        duckdb.sql("SELECT 1 AS a").write_parquet(str(other))
    else:
        other.write_text('{"a": 1}\n' if name == "r.json" else "a,b\n1,2\n")
    held = other.read_bytes()
    with pytest.raises(WarehouseError, match="not a DuckDB file") as told:
        Warehouse.open(other, read_only=read_only)
    assert "\n" not in str(told.value) and other.read_bytes() == held


@pytest.mark.parametrize("name", ["r.json", "r.csv", "r.parquet"])
def test_an_empty_file_that_duckdb_would_keep_nothing_in(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(WarehouseError, match="not a DuckDB file"):
        Warehouse.open(tmp_path / name)


def test_a_database_in_memory_keeps_nothing() -> None:
    with pytest.raises(WarehouseError, match="not a DuckDB file"):
        Warehouse.open(Path(":memory:"))


def test_any_name_does_for_a_new_one(tmp_path: Path) -> None:
    Warehouse.open(tmp_path / "new.json").close()
    with Warehouse.open(tmp_path / "new.json", read_only=True) as again:
        assert again.studies().empty


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="not a DuckDB file"):
        Warehouse.open(tmp_path)


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE mine (a INTEGER)")
    with pytest.raises(WarehouseError, match="not a tfbench warehouse"):
        Warehouse.open(path)
    with duckdb.connect(path) as con:
        assert con.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("mine",)]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_warehouse(path: Path, read_only: bool) -> None:
    with Warehouse.open(path) as opened:
        opened.con.execute("INSERT INTO schema_migrations VALUES (9999, 'future', 0)")
    with pytest.raises(WarehouseError, match=r"version 9999 is newer .* upgrade tfbench"):
        Warehouse.open(path, read_only=read_only)


def test_an_older_warehouse_is_not_read_half(path: Path) -> None:
    duckdb.connect(path).close()
    with pytest.raises(WarehouseError, match="version 0 is older .* open it once for writing"):
        Warehouse.open(path, read_only=True)
    Warehouse.open(path).close()
    Warehouse.open(path, read_only=True).close()


_HOLDER = """
import sys
from pathlib import Path
from tfbench.warehouse import Warehouse
with Warehouse.open(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _hold(path: Path) -> "subprocess.Popen[str]":
    root = str(Path(__file__).parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": root},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.parametrize("read_only", [False, True])
def test_a_warehouse_another_process_holds(path: Path, read_only: bool) -> None:
    with _hold(path) as holder:
        with pytest.raises(WarehouseError, match=f"locked by process {holder.pid}; wait for it") as told:
            Warehouse.open(path, read_only=read_only)
        assert "\n" not in str(told.value)
        holder.communicate()
    Warehouse.open(path, read_only=read_only).close()


@pytest.mark.parametrize("read_only", [False, True])
def test_waiting_until_another_process_is_done(path: Path, read_only: bool) -> None:
    with _hold(path) as holder:
        assert holder.stdin is not None
        release = threading.Timer(0.5, holder.stdin.close)
        release.start()
        with Warehouse.open(path, read_only=read_only, wait_s=60) as opened:
            assert opened.studies().empty
        release.join()


def test_waiting_ends(path: Path) -> None:
    with _hold(path) as holder:
        began = time.monotonic()
        with pytest.raises(WarehouseError, match=f"locked by process {holder.pid}"):
            Warehouse.open(path, wait_s=0.5)
        assert time.monotonic() - began >= 0.5
        holder.communicate()


def test_only_a_lock_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", refuse)
    with pytest.raises(WarehouseError, match="no warehouse there"):
        Warehouse.open(path, read_only=True, wait_s=60)
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(WarehouseError, match="not a DuckDB file"):
        Warehouse.open(path, wait_s=60)


def test_open_in_this_process_in_another_mode(warehouse: Warehouse, path: Path) -> None:
    with pytest.raises(WarehouseError, match="already open in this process"):
        Warehouse.open(path, read_only=True)


@pytest.mark.parametrize("folder", ["file", "mistyped", "mistyped/deep"])
def test_a_folder_that_is_not_there_is_not_made(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"there is no such folder for the warehouse; make it, or name another"):
        Warehouse.open(tmp_path / folder / "w.duckdb")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_default_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFBENCH_WAREHOUSE", raising=False)
    assert default_path() == Path("tfbench.duckdb")
    monkeypatch.setenv("TFBENCH_WAREHOUSE", "")
    assert default_path() == Path("tfbench.duckdb")
    monkeypatch.setenv("TFBENCH_WAREHOUSE", "elsewhere/w.duckdb")
    assert default_path() == Path("elsewhere/w.duckdb")


def test_verdicts_are_stored_and_replaced(warehouse: Warehouse) -> None:
    first = {"run_id": "r", "ruleset": "1", "kind": "validity", "verdict": "VALID", "reasons": []}
    other = first | {"kind": "stability", "verdict": "stable"}
    warehouse.add_verdicts([])
    warehouse.add_verdicts([first, other])
    warehouse.add_verdicts([first | {"verdict": "INVALID", "reasons": ["late", {"p99": 2.5}]}])
    rows = warehouse.con.execute("SELECT kind, verdict, reasons FROM verdicts ORDER BY kind").fetchall()
    assert [(kind, verdict, json.loads(reasons)) for kind, verdict, reasons in rows] == [
        ("stability", "stable", []),
        ("validity", "INVALID", ["late", {"p99": 2.5}]),
    ]


def _study(warehouse: Warehouse, folder: Path, study_id: str, name: str, created_ns: int, runs: int = 1) -> None:
    for repeat in range(runs):
        bundle = write_run(
            folder,
            [answer(1, 0)],
            run_id=f"{study_id}-{repeat}",
            study_id=study_id,
            created_ns=created_ns,
            repeat=repeat,
            status="complete" if repeat == 0 else "interrupted",
            load_value=float(2 + repeat),
            manifest=MANIFEST | {"name": name},
        )
        warehouse.ingest(bundle)


def test_studies(warehouse: Warehouse, tmp_path: Path) -> None:
    assert list(warehouse.studies()["study_id"]) == []
    _study(warehouse, tmp_path, "bb", "second", 2, runs=2)
    _study(warehouse, tmp_path, "aa", "first", 1)
    frame = warehouse.studies()
    assert list(frame["study_id"]) == ["aa", "bb"]
    assert list(frame["name"]) == ["first", "second"]
    assert list(frame["runs"]) == [1, 2]
    assert list(frame["complete_runs"]) == [1, 1]
    assert [list(values) for values in frame["load_values"]] == [[2.0], [2.0, 3.0]]


def test_resolve_study(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no studies yet"):
        warehouse.resolve_study("last")
    _study(warehouse, tmp_path, "abc1", "chat", 1)
    _study(warehouse, tmp_path, "abd2", "chat", 3)
    _study(warehouse, tmp_path, "abc", "code", 2)
    assert warehouse.resolve_study("last") == "abd2"
    assert warehouse.resolve_study("abc") == "abc"  # an exact id, though abc1 begins with it
    assert warehouse.resolve_study("abd") == "abd2"
    assert warehouse.resolve_study("code") == "abc"
    assert warehouse.resolve_study("chat") == "abd2"  # the newest of that name
    with pytest.raises(UsageError, match="'ab' fits 3 studies: abd2, abc, abc1; give more"):
        warehouse.resolve_study("ab")
    for text in ("nope", ""):
        with pytest.raises(UsageError, match=f"no study '{text}' in .* the newest are abd2"):
            warehouse.resolve_study(text)


def test_sql(warehouse: Warehouse) -> None:
    assert warehouse.sql("SELECT 1 AS a UNION ALL SELECT NULL ORDER BY a").shape == (2, 1)
    for query in ("SELECT nothing", "SELEC 1", "SELECT 1; SELECT * FROM nowhere", "SELECT CAST('x' AS INTEGER)"):
        with pytest.raises(UsageError, match="^query: ") as told:
            warehouse.sql(query)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(("query", "says"), [("", "it is empty"), ("--", "it is empty"), ("BEGIN", "gives no rows")])
def test_a_query_that_can_give_no_rows(warehouse: Warehouse, query: str, says: str) -> None:
    for ask in (warehouse.sql, warehouse.rows):
        with pytest.raises(UsageError, match=f"^query: .*{says}"):
            ask(query)


def test_rows_come_in_batches(warehouse: Warehouse) -> None:
    rows = warehouse.rows("SELECT i, i AS i, '{}'::JSON AS j FROM range(2500) t(i) ORDER BY ALL")
    assert rows.names == ("i", "i", "j")
    batches = list(rows.batches)
    assert [len(batch) for batch in batches] == [1000, 1000, 500]
    assert [row for batch in batches for row in batch] == [(i, i, {}) for i in range(2500)]
    assert list(warehouse.rows("SELECT 1 WHERE false").batches) == []


def test_a_query_that_fails_while_its_rows_are_read(warehouse: Warehouse) -> None:
    # Wide rows, so that the failing one lies beyond what DuckDB reads ahead.
    late = "CASE i WHEN 40000 THEN ('x' || i)::INT ELSE i END"
    rows = warehouse.rows(f"SELECT {late}, repeat('x', 1000) FROM range(50000) t(i)")
    with pytest.raises(UsageError, match="^query: .*Could not convert") as told:
        for _ in rows.batches:
            pass
    assert "\n" not in str(told.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_text_says_what_was_given(value: Any) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1.10"), "1.1"),
        (Decimal("0.1000000000000000055511151231257827"), '"0.1000000000000000055511151231257827"'),
        (Decimal(10**30), str(10**30)),
        ([math.nan, math.inf, -math.inf, 1.0], "[null,null,null,1.0]"),
        ({"a": (b"\x00\xff", math.nan)}, '{"a":["00ff",null]}'),
    ],
)
def test_json_text_of_other_values(value: Any, text: str) -> None:
    assert json_text(value) == text
