"""A warehouse file opened: ingest, studies, verdicts, queries."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pandas as pd

from tfbench.core.errors import StorageError, UsageError
from tfbench.core.jsonio import dump_text
from tfbench.ledger.bundle import read_bundle
from tfbench.warehouse.failures import is_locked, not_duckdb, open_error, writing
from tfbench.warehouse.ingest import ingest_bundle
from tfbench.warehouse.migrate import migrate
from tfbench.warehouse.result import Rows, check_gives_rows, query_error, run_query

LOCK_POLL_S = 0.2
_MAGIC_AT, _MAGIC = 8, b"DUCK"

_VERDICT = "run_id, ruleset, kind, verdict, reasons"
_STUDIES = """
SELECT s.study_id, s.manifest->>'$.name' AS name, s.created_ns, count(r.run_id) AS runs,
    count(r.run_id) FILTER (r.status = 'complete') AS complete_runs,
    list_sort(list(DISTINCT r.load_value) FILTER (r.load_value IS NOT NULL)) AS load_values,
    s.manifest_id, s.workload_id, s.system_id, s.tfbench_version
FROM studies s LEFT JOIN runs r USING (study_id)
GROUP BY ALL ORDER BY s.created_ns, s.study_id
"""


@dataclass(frozen=True)
class Warehouse:
    """An open warehouse. Use it as a context manager, or close it; `con` is its DuckDB connection."""

    path: Path
    con: duckdb.DuckDBPyConnection

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, wait_s: float = 0.0) -> Self:
        """Open the warehouse at `path`, made and brought to the newest version unless `read_only`.

        While another process has it open, tries again for `wait_s` seconds: a study writes after each
        run, a report reads, and neither takes long. Raises WarehouseError when it stays locked, is from
        a newer version, not a warehouse, or (read-only) missing; StorageError when it can't be written.
        """
        _check_file(path)
        if not read_only:
            _check_folder(path)
        con = _connect(path, read_only, wait_s)
        try:
            if _in_memory(con):
                raise not_duckdb(path)
            migrate(con, path, read_only=read_only)
        except duckdb.Error as error:
            con.close()
            raise open_error(error, path) from error
        except UsageError:
            con.close()
            raise
        return cls(path, con)

    def close(self) -> None:
        """Close the file. Raises StorageError when what was written can't be kept."""
        with writing(self.path):
            self.con.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ingest(self, bundle_dir: Path) -> str:
        """Add the run bundle at `bundle_dir` in one transaction and return its run_id.

        A run already in the warehouse is left as it is. Raises BundleError for a bundle that is
        damaged or breaks the contract, StorageError when the warehouse can't be written.
        """
        bundle = read_bundle(bundle_dir)
        with writing(self.path):
            return ingest_bundle(self.con, bundle)

    def add_verdicts(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store judgements: run_id, ruleset, kind, verdict, reasons (JSON); one made again replaces the old one."""
        values = [
            [row["run_id"], row["ruleset"], row["kind"], str(row["verdict"]), dump_text(row.get("reasons"))]
            for row in rows
        ]
        if not values:
            return
        with writing(self.path):
            self.con.executemany(f"INSERT OR REPLACE INTO verdicts ({_VERDICT}) VALUES (?, ?, ?, ?, ?)", values)

    def studies(self) -> pd.DataFrame:
        """One row a study, oldest first: study_id, name, created_ns, runs, complete_runs, load_values, ids, version."""
        return self.con.execute(_STUDIES).df()

    def resolve_study(self, text: str) -> str:
        """The study `text` names: its id, "last", its manifest's name (the newest so named) or a unique prefix.

        Raises UsageError when there is none, or a prefix fits several.
        """
        rows = self.con.execute(
            "SELECT study_id, manifest->>'$.name' FROM studies ORDER BY created_ns DESC, study_id DESC"
        ).fetchall()
        if not rows:
            raise UsageError(f"{self.path}: no studies yet; `tfbench run MANIFEST` makes one")
        ids = [row[0] for row in rows]
        if text in ids:
            return text
        if text == "last":
            return str(ids[0])
        named = [row[0] for row in rows if row[1] == text]
        if named:
            return str(named[0])
        fitting = [study_id for study_id in ids if text and study_id.startswith(text)]
        if len(fitting) == 1:
            return str(fitting[0])
        if fitting:
            raise UsageError(
                f"study {text!r} fits {len(fitting)} studies: {', '.join(fitting[:5])}; give more of the id"
            )
        raise UsageError(f'no study {text!r} in {self.path}; the newest are {", ".join(ids[:5])} (or say "last")')

    def sql(self, query: str) -> pd.DataFrame:
        """The rows of `query`. Raises UsageError for one that DuckDB refuses, is empty or gives no rows."""
        try:
            with writing(self.path):
                check_gives_rows(self.con, query)
                return self.con.execute(query).df()
        except duckdb.Error as error:
            raise query_error(error) from error

    def rows(self, query: str) -> Rows:
        """The rows of `query` in batches, so that they needn't fit into memory; errors as `sql`."""
        with writing(self.path):
            return run_query(self.con, query)


def _connect(path: Path, read_only: bool, wait_s: float) -> duckdb.DuckDBPyConnection:
    give_up = time.monotonic() + wait_s
    while True:
        try:
            return duckdb.connect(str(path), read_only=read_only)
        except duckdb.Error as error:
            left_s = give_up - time.monotonic()
            if left_s <= 0 or not is_locked(error):
                raise open_error(error, path) from error
        time.sleep(min(LOCK_POLL_S, left_s))


def _check_file(path: Path) -> None:
    """Raises WarehouseError for a file with something else in it, before DuckDB reads it as a table."""
    try:
        with path.open("rb") as file:
            head = file.read(_MAGIC_AT + len(_MAGIC))
    except OSError:
        return  # Missing, a folder or unreadable: DuckDB says which.
    if head and head[_MAGIC_AT:] != _MAGIC:
        raise not_duckdb(path)


def _in_memory(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether all that is written would be lost, as where an empty .json, .csv or .parquet was opened, or :memory:."""
    row = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchone()
    return row is None or row[0] is None


def _check_folder(path: Path) -> None:
    """Raises StorageError where the warehouse's folder isn't there: a mistyped one is not made."""
    if not path.parent.is_dir():
        raise StorageError(
            f"{path.parent}: there is no such folder for the warehouse; make it, or name another with --warehouse"
        )
