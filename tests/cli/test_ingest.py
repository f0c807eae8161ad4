"""`tfbench ingest`: bundles into the warehouse, as often as one likes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.ledger.builder import answer, write_run
from tfbench.cli.ingest import ingest
from tfbench.core.errors import BundleError
from tfbench.warehouse import Warehouse

ROWS = [answer(i, i * 10) for i in range(20)]
SIGNALS = {"clock_steps": {"value": 1.0, "limit": 0.0, "relation": "<=", "unit": "", "ok": False}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two studies' bundles, and what an interrupted write left."""
    bundles = tmp_path / "w.bundles"
    write_run(bundles / "s1", ROWS, run_id="r1", study_id="s1", signals=SIGNALS)
    write_run(bundles / "s1", ROWS, run_id="r2", study_id="s1", mode="closed", signals={})
    write_run(bundles / "s2", ROWS, run_id="r3", study_id="s2", signals=None)
    (bundles / "s2" / "r4.partial").mkdir()
    (bundles / "s2" / "r4.partial" / "run.json").write_text("{}")
    return bundles


def _verdicts(store: Path) -> list[tuple[str, str, str]]:
    with duckdb.connect(str(store), read_only=True) as con:
        return con.execute("SELECT run_id, kind, verdict FROM verdicts ORDER BY ALL").fetchall()


def test_new_ones_are_taken_once_and_judged(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "other.duckdb"
    ingest([folder / "s1" / "r1"], store)
    assert capsys.readouterr().out == "1 new, 0 already there\n"
    ingest([folder, folder / "s1", folder / "s1" / "r1"], store)
    assert capsys.readouterr().out == "2 new, 1 already there\n"
    ingest([folder], store, json=True)
    assert json.loads(capsys.readouterr().out) == {"new": [], "known": ["r1", "r2", "r3"]}
    judged = _verdicts(store)
    assert [(run, kind) for run, kind, _ in judged] == [("r1", "stability"), ("r1", "validity"), ("r2", "validity")]
    assert {run: verdict for run, kind, verdict in judged if kind == "validity"} == {
        "r1": "INVALID",
        "r2": "VALID",
    }


def test_a_verdict_that_is_there_stays(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "w.duckdb"
    with Warehouse.open(store) as warehouse:
        warehouse.ingest(folder / "s1" / "r2")
        row = {"run_id": "r2", "ruleset": "mine", "kind": "validity", "verdict": "INVALID", "reasons": ["seen"]}
        warehouse.add_verdicts([row])
    ingest([folder / "s1" / "r2"], store)
    assert _verdicts(store) == [("r2", "validity", "INVALID")]


def test_a_damaged_one_keeps_no_other_out(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s1" / "r1" / "manifest.json").write_text("{}")
    (folder / "s1" / "r2" / "checksums.json").unlink()
    store = tmp_path / "w.duckdb"
    with pytest.raises(BundleError, match=r"manifest\.json: damaged .* \(and 1 more like it\); 1 new") as told:
        ingest([folder], store)
    assert "\n" not in str(told.value) and capsys.readouterr().out == ""
    with duckdb.connect(str(store), read_only=True) as con:
        assert con.execute("SELECT run_id FROM runs").fetchall() == [("r3",)]


@pytest.mark.parametrize(
    ("name", "says"), [("none", "can't be read"), ("empty", "no run bundle"), ("file", "can't be read")]
)
def test_where_no_bundle_is(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    store = tmp_path / "w.duckdb"
    with pytest.raises(BundleError, match=f"{name}: {says}"):
        ingest([tmp_path / name], store)
    assert not store.exists()


def test_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfbench.cli.main", "ingest", str(folder / "s1"), str(folder / "s2"), "--json"],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": str(Path(__file__).parents[2]), "TFBENCH_WAREHOUSE": str(tmp_path / "w.duckdb")},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"new": ["r1", "r2", "r3"], "known": []}
