"""A warehouse file opened: ingest, studies, verdicts, queries."""

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
from tfbench.warehouse.failures import first_line, open_error, writing
from tfbench.warehouse.ingest import ingest_bundle
from tfbench.warehouse.migrate import migrate

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
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open the warehouse at `path`, made and brought to the newest version unless `read_only`.

        Raises WarehouseError when it is locked by another process, from a newer version, not a
        warehouse, or (read-only) missing; StorageError when it can't be written.
        """
        if not read_only:
            _make_folder(path)
        try:
            con = duckdb.connect(str(path), read_only=read_only)
        except duckdb.Error as error:
            raise open_error(error, path) from error
        try:
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
        """The rows of `query`. Raises UsageError for a query DuckDB refuses."""
        try:
            with writing(self.path):
                return self.con.execute(query).df()
        except duckdb.Error as error:
            raise UsageError(f"query: {first_line(error)}") from error


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{error.filename}: can't make the warehouse's folder: {error.strerror}; name another with --warehouse"
        ) from error
