"""A run's facts on disk: a directory with `manifest.json`, `run.json`, a Parquet file per table and `checksums.json`.

A bundle is written beside its final name and renamed last, so a kill at any moment leaves
either no bundle or a whole one. `checksums.json` is the last file written and the first read.

`run.json` is one flat object: the study's facts (`STUDY_KEYS`) and the columns of the `runs`
row (`RUN_KEYS`), which share `study_id`. A key left out is null; an infinite `load_value` (all
requests at once) is the string "inf", which JSON can carry.
"""

import contextlib
import hashlib
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tfbench.core.errors import BundleError, StorageError
from tfbench.core.jsonio import dump_text
from tfbench.ledger.schemas import TABLES

BUNDLE_VERSION = 1
MANIFEST_FILE = "manifest.json"
RUN_FILE = "run.json"
CHECKSUMS_FILE = "checksums.json"

STUDY_KEYS = ("study_id", "created_ns", "tfbench_version", "host")
RUN_KEYS = (
    "run_id",
    "study_id",
    "manifest_id",
    "workload_id",
    "system_id",
    "mode",
    "load_value",
    "repeat",
    "order_index",
    "arm",
    "pair",
    "restart",
    "seed",
    "schedule_sha256",
    "cache_state",
    "status",
    "measure_start_ns",
    "measure_end_ns",
    "observed",
    "signals",
    "origin",
)
REQUIRED_KEYS = frozenset(
    {
        "study_id",
        "created_ns",
        "run_id",
        "manifest_id",
        "workload_id",
        "system_id",
        "mode",
        "repeat",
        "status",
        "origin",
    }
)
REQUIRED_TABLES = ("attempts", "streams")

_DELTA_LEAVES = frozenset(f"{name}.list.element" for name in ("t_ns", "user_ns", "blur_ns"))


@dataclass(frozen=True)
class Bundle:
    """A verified bundle: the frozen manifest, the facts of `run.json`, and where each table lies."""

    directory: Path
    manifest: dict[str, Any]
    run: dict[str, Any]
    tables: dict[str, Path]


def write_bundle(
    directory: Path, *, manifest: Mapping[str, Any], run: Mapping[str, Any], tables: Mapping[str, pa.Table]
) -> Path:
    """Write a whole bundle at `directory`, which must not exist yet, and return its path.

    `tables` maps names of `ledger.schemas.TABLES` to Arrow tables of exactly that schema.
    Raises ValueError for tables or run facts that break the contract, BundleError when
    `directory` exists, StorageError when the disk refuses.
    """
    _check_run(run)
    _check_tables(tables)
    for name in REQUIRED_TABLES:
        if name not in tables:
            raise ValueError(f"table {name} is missing")
    return write_bundle_in_batches(directory, manifest=manifest, batches=[tables], run=lambda: run)


def write_bundle_in_batches(
    directory: Path,
    *,
    manifest: Mapping[str, Any],
    batches: Iterable[Mapping[str, pa.Table]],
    run: Callable[[], Mapping[str, Any]],
) -> Path:
    """`write_bundle` for facts that come some at a time; `run` is asked once all batches are written.

    A bundle always has `attempts` and `streams`, though they be empty. Raises as `write_bundle` does.
    """
    if directory.exists():
        raise BundleError(f"{directory}: a run bundle is already there; name another directory")
    partial = directory.with_name(directory.name + ".partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        _write_files(partial, manifest, batches, run)
        _sync_directory(partial)
        partial.rename(directory)
        _sync_directory(directory.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise _storage_error(error, directory) from error
    return directory


def read_bundle(directory: Path) -> Bundle:
    """Open the bundle at `directory` after checking every file against its checksum.

    Raises BundleError when it isn't a bundle, is unfinished, damaged, or from a newer version.
    """
    listed = _read_checksums(directory)
    for name, entry in listed.items():
        _verify(directory / name, entry)
    for name in (MANIFEST_FILE, RUN_FILE, *(f"{table}.parquet" for table in REQUIRED_TABLES)):
        if name not in listed:
            raise BundleError(f"{directory}: {name} is missing from the bundle; run the measurement again")
    run = _read_object(directory / RUN_FILE)
    missing = sorted(key for key in REQUIRED_KEYS if run.get(key) is None)
    if missing:
        raise BundleError(f"{directory / RUN_FILE}: {', '.join(missing)} missing; run the measurement again")
    if run.get("load_value") == "inf":
        run["load_value"] = math.inf
    tables = {name: directory / f"{name}.parquet" for name in TABLES if f"{name}.parquet" in listed}
    return Bundle(directory, _read_object(directory / MANIFEST_FILE), run, tables)


def _check_run(run: Mapping[str, Any]) -> None:
    unknown = sorted(set(run) - set(STUDY_KEYS) - set(RUN_KEYS))
    missing = sorted(key for key in REQUIRED_KEYS if run.get(key) is None)
    if unknown or missing:
        raise ValueError(f"run facts: unknown keys {unknown}, missing keys {missing}")


def _check_tables(tables: Mapping[str, pa.Table]) -> None:
    for name, table in tables.items():
        if name not in TABLES:
            raise ValueError(f"no table {name} in the ledger")
        if not table.schema.equals(TABLES[name]):
            raise ValueError(f"table {name}: schema isn't the ledger's: {table.schema}")


def _write_files(
    folder: Path,
    manifest: Mapping[str, Any],
    batches: Iterable[Mapping[str, pa.Table]],
    run: Callable[[], Mapping[str, Any]],
) -> None:
    _write_json(folder / MANIFEST_FILE, dict(manifest))
    with contextlib.ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for batch in itertools.chain(batches, [{name: TABLES[name].empty_table() for name in REQUIRED_TABLES}]):
            _check_tables(batch)
            for name, table in batch.items():
                if name not in writers:
                    writers[name] = stack.enter_context(_parquet(folder / f"{name}.parquet", table.schema))
                writers[name].write_table(table)
    facts = dict(run())
    _check_run(facts)
    load_value = facts.get("load_value")
    if isinstance(load_value, float) and math.isinf(load_value):
        facts["load_value"] = "inf"
    _write_json(folder / RUN_FILE, facts)
    files = {path.name: _fingerprint(path) for path in sorted(folder.iterdir())}
    _write_json(folder / CHECKSUMS_FILE, {"bundle_version": BUNDLE_VERSION, "files": files})


def _write_json(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        file.write(dump_text(value, indent=True).encode())
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    # Time lists rise by small steps: delta encoding halves them; everything else repeats, so a dictionary serves.
    leaves = [_leaf(field) for field in schema]
    deltas = {leaf: "DELTA_BINARY_PACKED" for leaf in leaves if leaf in _DELTA_LEAVES}
    with path.open("wb") as file:
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=[leaf for leaf in leaves if leaf not in deltas],
            column_encoding=deltas or None,
        ) as writer:
            yield writer
        file.flush()
        os.fsync(file.fileno())


def _leaf(field: pa.Field) -> str:
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": path.stat().st_size}


def _storage_error(error: OSError, directory: Path) -> StorageError:
    name = error.filename if error.filename else directory
    reason = error.strerror or str(error)
    return StorageError(f"{name}: can't write the run bundle: {reason}; free space or name another directory")


def _read_checksums(directory: Path) -> dict[str, Any]:
    path = directory / CHECKSUMS_FILE
    if not path.is_file():
        raise BundleError(
            f"{directory}: not a whole run bundle (no {CHECKSUMS_FILE}); name one that `tfbench run` wrote"
        )
    document = _read_object(path)
    version, files = document.get("bundle_version"), document.get("files")
    if not isinstance(version, int) or not isinstance(files, dict):
        raise BundleError(f"{path}: not a bundle's list of checksums; run the measurement again")
    if version > BUNDLE_VERSION:
        raise BundleError(f"{directory}: bundle version {version} is newer than this tfbench knows; upgrade tfbench")
    for name in files:
        if Path(name).name != name or name in {"", ".", ".."}:
            raise BundleError(f"{path}: {name!r} isn't a file name; run the measurement again")
    return files


def _verify(path: Path, entry: Any) -> None:
    try:
        found = _fingerprint(path)
    except OSError as error:
        raise BundleError(f"{path}: can't be read: {error.strerror}; run the measurement again") from error
    if found != entry:
        raise BundleError(f"{path}: damaged (its checksum differs); copy the bundle again or repeat the run")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: can't be read: {error.strerror}; run the measurement again") from error
    except orjson.JSONDecodeError as error:
        raise BundleError(f"{path}: not JSON ({error}); copy the bundle again or repeat the run") from error
    if not isinstance(document, dict):
        raise BundleError(f"{path}: not a JSON object; copy the bundle again or repeat the run")
    return document
