"""DuckDB's errors, told as ours: one line, the file, the mend."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb

from tfbench.core.errors import StorageError, WarehouseError

# DuckDB raises one IOException for every failure of a file; only its text says which.
_STORAGE = re.compile(
    r"No space left on device|File too large|Disk quota exceeded"
    r"|Permission denied|Read-only file system|Could not write",
    re.IGNORECASE,
)
_LOCKED = re.compile(r"Could not set lock on file.*?(?:\(PID (\d+)\)|$)", re.DOTALL)
_MOST_CANDIDATES = 300
_NEWER = re.compile(r"version number|storage version|newer version", re.IGNORECASE)


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def with_candidates(error: Exception) -> str:
    """The first line of a query's error, and what DuckDB thinks was meant."""
    lines = [line.strip() for line in str(error).splitlines()]
    meant = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
    return " ".join([first_line(error), *(line[:_MOST_CANDIDATES] for line in meant[:1])])


def storage_error(error: duckdb.Error, path: Path) -> StorageError | None:
    """The StorageError `error` stands for, or None when it isn't about writing files."""
    if _STORAGE.search(str(error)) is None:
        return None
    return StorageError(
        f"{path}: can't write the warehouse: {first_line(error)}; free space or name another with --warehouse"
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns DuckDB's failures to write the warehouse at `path` into StorageError; others pass."""
    try:
        yield
    except duckdb.Error as error:
        stored = storage_error(error, path)
        if stored is None:
            raise
        raise stored from error


def is_locked(error: duckdb.Error) -> bool:
    """Whether another process has the file open."""
    return _LOCKED.search(str(error)) is not None


def not_duckdb(path: Path) -> WarehouseError:
    """What's at `path` is something else."""
    return WarehouseError(f"{path}: not a DuckDB file; name a warehouse with --warehouse or $TFBENCH_WAREHOUSE")


def open_error(error: duckdb.Error, path: Path) -> WarehouseError | StorageError:
    """Why the warehouse at `path` can't be opened, and what to do."""
    text = str(error)
    locked = _LOCKED.search(text)
    if locked is not None:
        holder = f"process {locked.group(1)}" if locked.group(1) else "another process"
        return WarehouseError(
            f"{path}: the warehouse is locked by {holder}; wait for it or name another with --warehouse"
        )
    if "does not exist" in text:
        return WarehouseError(
            f"{path}: no warehouse there; `tfbench run` makes one, or name yours with --warehouse or $TFBENCH_WAREHOUSE"
        )
    if "different configuration" in text:
        return WarehouseError(f"{path}: the warehouse is already open in this process in another mode; close it first")
    if "not a valid DuckDB database" in text or "Is a directory" in text:
        return not_duckdb(path)
    if _NEWER.search(text):
        return WarehouseError(f"{path}: written by another DuckDB version ({first_line(error)}); upgrade tfbench")
    stored = storage_error(error, path)
    return stored or WarehouseError(
        f"{path}: can't open the warehouse: {first_line(error)}; check the file or name another"
    )
