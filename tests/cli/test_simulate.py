"""`tfbench simulate` as a person uses it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_cli import one_line, tfbench
from tests.study.conftest import TEXT

QUICK = ["--set", "load.repeats=1", "--set", "load.rates=[20]", "--set", "load.duration_s=2"]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


def simulate(manifest: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return tfbench("simulate", manifest, "--warehouse", manifest.parent / "w.duckdb", *QUICK, *arguments)


def test_simulate_and_report_from_end_to_end(manifest: Path) -> None:
    store = manifest.parent / "w.duckdb"
    done = simulate(manifest, "--profile", "reference")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"new warehouse {store}") == 1
    assert "SIMULATED on reference" in done.stdout
    assert "SIMULATED small: 1 run, no system is measured" in done.stderr
    assert "simulated run 1/1 load 20 repeat 0: " in done.stderr
    assert "SIMULATED" in done.stdout and " report last --warehouse " in done.stdout
    document = json.loads(tfbench("report", "last", "--warehouse", store, "--json").stdout)
    assert document["study"]["simulated"] is True and [run["origin"] for run in document["runs"]] == ["simulated"]
    page = manifest.parent / "report.html"
    assert tfbench("report", "last", "--warehouse", store, "--html", page).returncode == 0
    assert "<title>SIMULATED on reference · " in page.read_text()
    assert document["study"]["profiles"] == ["reference"] and document["study"]["planned_runs"] == 1
    assert "new warehouse" not in simulate(manifest, "--profile", "reference").stderr
    query = "SELECT DISTINCT prompt_sha256, output_sha256, (SELECT count(*) FROM texts) AS texts FROM attempts"
    unknown = {"prompt_sha256": None, "output_sha256": None, "texts": 0}
    assert json.loads(tfbench("sql", query, "--warehouse", store, "--json").stdout) == [unknown], "nothing was sent"
    other = manifest.parent / "r.json"
    other.write_bytes(page.read_bytes())
    refused = simulate(manifest, "--profile", "reference", "--warehouse", other)
    one_line(refused, 2, "r.json", "not a DuckDB file")


def test_json_is_one_document_and_the_same_every_time(manifest: Path, tmp_path: Path) -> None:
    profile = tmp_path / "own.engine.toml"
    profile.write_text("[engine]\nmax_num_seqs = 2\n[step_time]\nbase_ms = 5\n")
    both = ["--json", "--profile", profile, "--profile", "reference"]
    one, two = (json.loads(simulate(manifest, *both).stdout) for _ in range(2))
    assert one["figures"] == two["figures"] and one["outcomes"] == two["outcomes"]
    assert sorted(run["arm"] for run in one["runs"]) == ["own.engine", "reference"]


@pytest.mark.parametrize(
    ("profile", "parts"),
    [
        ("nonsense", ["nonsense", "there are: "]),
        ("missing.toml", ["missing.toml"]),
        ("[engine]\nmax_num_seqs = 0", ["max_num_seqs", "at least 1"]),
        ("[engine]\nspeed = 1", ["speed"]),
        ("[hardware]\ndevice = 'l4'\nmodel = 'llama-3.1-70b'", ["needs", "GB"]),
        ("[hardware]\ndevice = 'h100-sxm'\nmodel = 'llama-3.1-8b'\ntp = 64", ["tp = 64"]),
        ("[engine]\nmax_model_len = 9", ["no simulated request was answered well", "9 tokens"]),
        ("[misbehave.shares]\nreset = 0.5", ["[misbehave]"]),
    ],
)
def test_nonsense_profiles_are_one_line(manifest: Path, tmp_path: Path, profile: str, parts: list[str]) -> None:
    if "[" in profile:
        path = tmp_path / "bad.toml"
        path.write_text(profile)
        profile = str(path)
    one_line(simulate(manifest, "--profile", profile), 2, *parts)


def test_nonsense_manifests_are_one_line(manifest: Path, tmp_path: Path) -> None:
    one_line(simulate(manifest, "--profile", "reference", "--set", "load.rate=4"), 2, "load.rate", "rates")
    one_line(tfbench("simulate", tmp_path / "none.toml", "--profile", "reference"), 2, "none.toml")
    refused = tfbench("simulate", manifest)
    assert refused.returncode == 2 and "--profile" in refused.stderr
