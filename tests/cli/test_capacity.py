"""`tfbench capacity` as a person uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MANIFEST = """
name = "cap"
model = { name = "tfbench-engine" }
endpoint = { adapter = "tfbench" }
workload = { input_tokens = 8, output_tokens = 10 }
load = { rates = [10], duration_s = 4, warmup_s = 0.5, drain_s = 1, seed = 5 }
slo = { ttft_ms = 150 }
"""
PROFILE = """
[engine]
max_num_seqs = 4
[step_time]
base_ms = 10.0
prefill_token_ms = 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capacity")
    (folder / "cap.toml").write_text(MANIFEST)
    (folder / "four.toml").write_text(PROFILE)
    return folder


def tfbench(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TFBENCH_")}
    command = [sys.executable, "-m", "tfbench.cli.main", "capacity", "cap.toml", *arguments]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_search_in_virtual_time_prints_answer_evidence_and_curve(folder: Path) -> None:
    done = tfbench(
        folder, "--simulate", "--profile", "four.toml", "--target", "good_fraction=0.5", "--max-probes", "8",
        "--set", "load.rates=[7]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for piece in (
        "SIMULATED",
        "SLO capacity: ",
        "90 % confidence",
        "good_fraction ≥ 0.5",
        "not met",
        "likely met",
        "Next allow 60 runs with --max-probes 60.",
    ):
        assert piece in text
    assert "n (n_eff)" in text and "in at most 8 runs" in done.stderr
    assert "the limit is found to within a factor of about" in done.stderr
    assert done.stderr.count("note: new warehouse tfbench.duckdb") == 1
    assert "load 7: 1 [" in done.stderr and "likely met; the limit lies above 7" in done.stderr


def test_json_is_the_answer_with_its_evidence_and_nothing_else(folder: Path) -> None:
    done = tfbench(
        folder, "--simulate", "--profile", "four.toml", "--target", "ttft_p50_ms=150", "--hi", "16", "--json",
        "--warehouse", "other.duckdb",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["lo"], answer["hi"], answer["status"], answer["limit"]) == (16, None, "open", "range")
    assert answer["target"] == {"figure": "ttft_p50_ms", "value": 150, "words": "ttft_p50_ms ≤ 150"}
    assert [row["load"] for row in answer["evidence"]] == [10, 16]
    assert [(row["met"], row["scouted"], row["runs"]) for row in answer["evidence"]] == [
        (None, True, 1),
        (True, None, 4),
    ]
    assert answer["expected"]["width"] >= 1.1 and "--hi 32" in answer["advice"]
    assert all(0 < row["n_eff"] <= row["counted"] for row in answer["evidence"])
    assert answer["confidence"] == 0.9 and answer["unit"] == "requests/s" and answer["study_id"]


def test_nothing_decided_is_inconclusive(folder: Path) -> None:
    sets = ["load.mode=closed", "load.rates=null", "load.concurrency=[1]", "load.duration_s=1"]
    given = [part for text in sets for part in ("--set", text)]
    done = tfbench(folder, "--simulate", "--profile", "four.toml", "--max-probes", "1", *given)
    assert done.returncode == 3, done.stderr
    assert "SLO capacity: not decided" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "speed=3", "--url", "http://127.0.0.1:9/v1"], "--target speed: no such figure"),
        (["--simulate"], "--simulate and --profile belong together"),
        (["--profile", "four.toml"], "--simulate and --profile belong together"),
        (["--simulate", "--profile", "five.toml"], "five.toml"),
        (["--simulate", "--profile", "four.toml", "--lo", "9", "--hi", "3"], "--lo 9 lies above --hi 3"),
        (
            ["--simulate", "--profile", "four.toml", "--url", "http://x/v1"],
            "--url: --simulate asks no endpoint; leave it out",
        ),
        (["--simulate", "--profile", "four.toml", "--workers", "2"], "--workers: --simulate asks no endpoint"),
        (["--set", "load.ramp={to=9}", "--url", "http://127.0.0.1:9/v1"], "load.ramp"),
        ([], "endpoint.url is missing"),
    ],
)
def test_each_trouble_is_one_line_before_any_load(folder: Path, arguments: list[str], told: str) -> None:
    done = tfbench(folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert told in done.stderr.splitlines()[-1] and done.stderr.splitlines()[-1].startswith("tfbench: ")
