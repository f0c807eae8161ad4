"""Numbered migrations: `migrations/NNNN_name.sql`, each applied once, in a transaction, and recorded."""

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tfbench.core.errors import WarehouseError

MIGRATIONS = Path(__file__).resolve().parent / "migrations"

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
_RECORD = "schema_migrations"


@dataclass(frozen=True)
class Migration:
    """One step of the warehouse's schema."""

    version: int
    name: str
    path: Path


def migrations(folder: Path = MIGRATIONS) -> tuple[Migration, ...]:
    """Every migration in `folder`, in order. Raises ValueError unless they are numbered 1, 2, 3, …"""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name}: a migration is named NNNN_name.sql")
        found.append(Migration(int(match.group(1)), match.group(2), path))
    if [step.version for step in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations in {folder} aren't numbered 1, 2, 3, …")
    return tuple(found)


def applied_version(con: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The newest migration applied to the database, 0 for an empty one.

    Raises WarehouseError for a DuckDB file that holds somebody else's tables.
    """
    names = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if _RECORD not in names:
        if names:
            raise WarehouseError(f"{path}: a DuckDB file but not a tfbench warehouse; name another with --warehouse")
        return 0
    [(version,)] = con.execute(f"SELECT coalesce(max(version), 0) FROM {_RECORD}").fetchall()
    return int(version)


def migrate(con: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool, folder: Path = MIGRATIONS) -> None:
    """Bring the database at `path` to the newest version. Raises WarehouseError when that can't be."""
    steps = migrations(folder)
    version = applied_version(con, path)
    if version > len(steps):
        raise WarehouseError(
            f"{path}: warehouse version {version} is newer than this tfbench knows ({len(steps)}); upgrade tfbench"
        )
    pending = steps[version:]
    if pending and read_only:
        raise WarehouseError(
            f"{path}: warehouse version {version} is older than this tfbench ({len(steps)}); open it once for writing"
        )
    for step in pending:
        _apply(con, step)


def _apply(con: duckdb.DuckDBPyConnection, step: Migration) -> None:
    con.begin()
    try:
        con.execute(
            f"CREATE TABLE IF NOT EXISTS {_RECORD} (version INTEGER PRIMARY KEY, name VARCHAR, applied_ns BIGINT)"
        )
        con.execute(step.path.read_text(encoding="utf-8"))
        con.execute(f"INSERT INTO {_RECORD} VALUES (?, ?, ?)", [step.version, step.name, time.time_ns()])
        con.commit()
    except duckdb.Error:
        with contextlib.suppress(duckdb.TransactionException):  # a failed commit has already ended it
            con.rollback()
        raise
