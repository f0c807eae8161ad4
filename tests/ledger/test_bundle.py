"""Run bundles: whole or not at all, checked when read, told when the disk refuses."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ledger.builder import MANIFEST, answer, row, run_facts, tables, write_run
from tfbench.core.errors import BundleError, StorageError
from tfbench.ledger.bundle import CHECKSUMS_FILE, read_bundle, write_bundle
from tfbench.ledger.schemas import TEXTS

ROWS = [answer(1, 0), row(2, 100, sent=None, outcome="unsent", stream=False)]


class Killed(BaseException):
    """Stands for a kill: nothing in the code under test may catch it."""


def test_round_trip(tmp_path: Path) -> None:
    written = tables("run-1", ROWS) | {
        "texts": pa.Table.from_pylist(
            [{"run_id": "run-1", "attempt_id": 1, "prompt": "é\n", "output": None}], schema=TEXTS
        )
    }
    path = write_bundle(tmp_path / "deep" / "run-1", manifest=MANIFEST, run=run_facts(), tables=written)
    bundle = read_bundle(path)
    assert bundle.manifest == MANIFEST
    assert bundle.run == run_facts()
    assert set(bundle.tables) == set(written)
    for name, table in written.items():
        assert pq.read_table(bundle.tables[name]).equals(table)
    assert [child.name for child in path.parent.iterdir()] == ["run-1"]


def test_an_infinite_load_survives_json(tmp_path: Path) -> None:
    path = write_run(tmp_path, ROWS, load_value=math.inf)
    assert json.loads((path / "run.json").read_text())["load_value"] == "inf"
    assert read_bundle(path).run["load_value"] == math.inf


def test_empty_tables_are_facts_too(tmp_path: Path) -> None:
    bundle = read_bundle(write_run(tmp_path, []))
    assert pq.read_table(bundle.tables["attempts"]).num_rows == 0


def test_an_existing_bundle_is_kept(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    with pytest.raises(BundleError, match="already there"):
        write_run(tmp_path, [])
    assert pq.read_table(read_bundle(tmp_path / "run-1").tables["attempts"]).num_rows == 2


def test_a_leftover_of_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    partial = tmp_path / "run-1.partial"
    partial.mkdir()
    (partial / "old.parquet").write_bytes(b"old")
    path = write_run(tmp_path, ROWS)
    assert not partial.exists()
    assert not (path / "old.parquet").exists()


def _without(name: str) -> dict[str, pa.Table]:
    return {key: table for key, table in tables("run-1", ROWS).items() if key != name}


@pytest.mark.parametrize(
    ("run", "content", "message"),
    [
        (run_facts(), _without("streams"), "streams is missing"),
        (run_facts(), tables("run-1", ROWS) | {"other": pa.table({"a": [1]})}, "no table other"),
        (run_facts(), tables("run-1", ROWS) | {"texts": pa.table({"a": [1]})}, "schema isn't the ledger's"),
        (run_facts(), _without("attempts") | {"attempts": pa.table({"run_id": ["run-1"]})}, "schema isn't"),
        (run_facts(colour="red"), tables("run-1", ROWS), "unknown keys.*colour"),
        (run_facts(mode=None), tables("run-1", ROWS), "missing keys.*mode"),
    ],
)
def test_contents_that_break_the_contract(
    tmp_path: Path, run: dict[str, Any], content: dict[str, pa.Table], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_bundle(tmp_path / "run-1", manifest=MANIFEST, run=run, tables=content)
    assert list(tmp_path.iterdir()) == []


def _steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The durable steps a bundle takes, in order."""
    seen: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: seen.append("fsync"))
        rename = Path.rename
        patch.setattr(Path, "rename", lambda self, target: (seen.append("rename"), rename(self, target))[1])
        write_run(tmp_path, ROWS)
    shutil.rmtree(tmp_path / "run-1")
    return seen


def _break_at(patch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    left = [step]

    def breaking(real: Any) -> Any:
        def call(*args: Any) -> Any:
            if left[0] == 0:
                raise error
            left[0] -= 1
            return real(*args)

        return call

    patch.setattr(os, "fsync", breaking(os.fsync))
    patch.setattr(Path, "rename", breaking(Path.rename))


def test_a_kill_at_any_moment_leaves_no_bundle_or_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _steps(tmp_path, monkeypatch)
    assert steps == ["fsync"] * 6 + ["rename", "fsync"]  # four files, checksums, the directory; then its parent
    for step in range(len(steps)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            _break_at(patch, step, Killed())
            write_run(tmp_path, ROWS)
        whole = steps[:step].count("rename") == 1
        assert (tmp_path / "run-1").exists() == whole
        if not whole:
            with pytest.raises(BundleError):
                read_bundle(tmp_path / "run-1")
            write_run(tmp_path, ROWS)  # what the kill left is in nobody's way
        assert read_bundle(tmp_path / "run-1").run["run_id"] == "run-1"
        shutil.rmtree(tmp_path / "run-1")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    for step in range(len(_steps(tmp_path, monkeypatch)) - 1):
        with (
            monkeypatch.context() as patch,
            pytest.raises(StorageError, match=f"run-1: can't write the run bundle: {os.strerror(code)}"),
        ):
            _break_at(patch, step, OSError(code, os.strerror(code)))
            write_run(tmp_path, ROWS)
        assert list(tmp_path.iterdir()) == []


def test_a_parquet_writer_out_of_space_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "attempts.parquet"))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageError, match=r"attempts\.parquet: .*No space left on device"):
        write_run(tmp_path, ROWS)
    assert list(tmp_path.iterdir()) == []


_LIMITED = """
import resource, sys
from pathlib import Path
from tests.ledger.builder import answer, write_run
from tfbench.core.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_run(Path(sys.argv[1]), [answer(i, i, n=50) for i in range(200)])
except StorageError as error:
    print(error)
"""


def test_a_real_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "can't write the run bundle: File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Not a directory"):
        write_run(tmp_path / "file", ROWS)


@pytest.mark.parametrize("name", ["manifest.json", "run.json", "attempts.parquet", "streams.parquet"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = write_run(tmp_path, ROWS)
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(BundleError, match=rf"{name}: damaged"):
        read_bundle(path)


@pytest.mark.parametrize("name", ["manifest.json", "run.json", "attempts.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = write_run(tmp_path, ROWS)
    (path / name).unlink()
    with pytest.raises(BundleError, match=rf"{name}: can't be read: No such file"):
        read_bundle(path)


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"not a whole run bundle \(no checksums.json\)"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("checksums", "message"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("{}", "not a bundle's list"),
        ('{"bundle_version": 2, "files": {}}', "version 2 is newer"),
        ('{"bundle_version": 1, "files": {}}', "manifest.json is missing"),
        ('{"bundle_version": 1, "files": {"../secret": {}}}', "'../secret' isn't a file name"),
        ('{"bundle_version": 1, "files": {"..": {}}}', "isn't a file name"),
    ],
)
def test_strange_checksums(tmp_path: Path, checksums: str, message: str) -> None:
    path = write_run(tmp_path, ROWS)
    (path / CHECKSUMS_FILE).write_text(checksums)
    with pytest.raises(BundleError, match=message):
        read_bundle(path)
