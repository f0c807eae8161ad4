"""Two arms at one address: each is restarted when its turn comes, and meets nobody else's process."""

import sys
from pathlib import Path

from tests.load.scripted import ok_script, serving
from tfbench.manifest import Manifest, parse_manifest
from tfbench.study.arms import open_arms, run_arms
from tfbench.warehouse import Warehouse


def arm(name: str, url: str, folder: Path) -> Manifest:
    note = f"open({str(folder / 'turns')!r}, 'a').write({name[0]!r})"
    document = {
        "name": name,
        "model": {"name": "m"},
        "endpoint": {"url": url},
        "workload": {"input_tokens": 4, "output_tokens": 2},
        "load": {"rates": [50], "duration_s": 0.1, "warmup_s": 0, "drain_s": 1, "repeats": 2},
        "hooks": {"restart": [sys.executable, "-c", note]},
    }
    return parse_manifest(document, "test")


def test_arms_at_one_address_take_turns(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        arms = open_arms(arm("base", url, tmp_path), arm("candidate", url, tmp_path), tmp_path / "w.duckdb")
        assert (tmp_path / "turns").read_text() == "bc"
        assert arms.notes[0] == f"new warehouse {tmp_path / 'w.duckdb'}"
        run_arms(arms, reruns=0)
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        runs = store.con.execute("SELECT arm, repeat, restart FROM runs ORDER BY measure_start_ns").fetchall()
    # ABBA: the candidate's second run follows its first, and is a new repeat.
    assert runs == [("base", 0, 2), ("candidate", 0, 2), ("candidate", 1, 3), ("base", 1, 3)]
    assert (tmp_path / "turns").read_text() == "bcbccb"
