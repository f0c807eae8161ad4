"""The command line as a person uses it: output, exit codes, and one line for every trouble."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.load.scripted import reply, serving
from tests.study.conftest import TEXT
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import RunningEngine, start_engine
from tfbench.engine.step_time import StepTime

QUICK = ["--set", "load.repeats=1", "--set", "load.rates=[20]", "--set", "load.duration_s=0.8", "--reruns", "0"]


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with start_engine(EngineConfig(step_time=StepTime(base_ms=4.0))) as running:
        yield running


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


def tfbench(*arguments: str | Path, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tfbench.cli.main", *map(str, arguments)]
    here = Path(__file__).resolve().parents[2]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(here)} | env,
        timeout=120,
        check=False,
    )


def one_line(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """Nothing on stdout, the trouble in one line on stderr, the exit code."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("tfbench: ")]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(lines) == 1 and done.stderr.splitlines()[-1] == lines[0], done.stderr
    for part in parts:
        assert part in lines[0]


def test_run_report_sql_from_end_to_end(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    store = tmp_path / "w.duckdb"
    done = tfbench("run", manifest, "--url", engine.url, "--warehouse", store, *QUICK)
    assert done.returncode in (0, 4), done.stderr
    assert "run 1/1 load 20" in done.stderr and " report last --warehouse " in done.stdout
    assert done.stderr.count(f"new warehouse {store}") == 1
    page = tmp_path / "report.html"
    assert tfbench("report", "last", "--warehouse", store, "--html", page).returncode == 0
    assert page.read_text().startswith("<!doctype html>") or "<html" in page.read_text()[:200].lower()
    document = json.loads(tfbench("report", "small", "--warehouse", store, "--json").stdout)
    assert [run["load_value"] for run in document["runs"]] == [20]
    rows = json.loads(tfbench("sql", "select count(*) n from runs", "--json", TFBENCH_WAREHOUSE=str(store)).stdout)
    assert rows == [{"n": 1}]
    assert "n" in tfbench("sql", "select count(*) n from runs", "--warehouse", store).stdout


def test_json_prints_one_document_and_nothing_else(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    done = tfbench("run", manifest, "--url", engine.url, "--json", *QUICK, cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    document = json.loads(done.stdout)
    assert document["study"]["name"] == "small" and document["figures"]
    assert (tmp_path / "tfbench.duckdb").exists()


def test_freeze_gives_a_manifest_that_freezes_to_itself(manifest: Path, tmp_path: Path) -> None:
    first = tfbench("freeze", manifest)
    frozen = tmp_path / "frozen.json"
    frozen.write_text(first.stdout)
    again = tfbench("freeze", frozen)
    assert first.returncode == again.returncode == 0
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert first.stderr == again.stderr and "workload_id" in first.stderr
    assert json.loads(tfbench("freeze", manifest, "--ids").stdout)["manifest_id"] in first.stderr


def test_diff_names_the_primary_variables_and_warns(manifest: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(TEXT.replace('"small"', '"other"'))
    done = tfbench("diff", manifest, other)
    assert done.returncode == 0 and "warning" not in done.stderr
    text = TEXT.replace("rates = [10, 20]", "rates = [10, 30]").replace(
        'model = { name = "tfbench-engine" }', 'model = { name = "tfbench-engine", weights = "fp8" }'
    )
    other.write_text(text)
    done = tfbench("diff", manifest, other)
    assert tomllib.loads(done.stdout)["load"]["rates"] == [10, 30] and "# was [10, 20], primary" in done.stdout
    assert "model.weights" in done.stdout and "load.rates" in done.stdout and "warning" in done.stderr
    document = json.loads(tfbench("diff", manifest, other, "--json").stdout)
    assert not document["same_workload"] and not document["same_system"] and document["warning"]
    assert tfbench("diff", manifest, manifest).stdout.strip() == "# no difference"


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("duration_s", "durations_s", ("load.durations_s", "duration_s")),
        ("rates = [10, 20]", "rates = []", ("load.rates",)),
        ("rates = [10, 20]", "rates = [-1]", ("load.rates",)),
        ("rates = [10, 20]", 'rates = "fast"', ("load.rates",)),
        ("repeats = 2", 'repeats = "two"', ("load.repeats",)),
        ("storage", "storrage", ("storrage", "storage")),
        ('name = "small"', 'name = "small', ("small.toml",)),
    ],
)
def test_bad_manifests(old: str, new: str, parts: tuple[str, ...], manifest: Path) -> None:
    manifest.write_text(TEXT.replace(old, new))
    one_line(tfbench("run", manifest, "--url", "http://127.0.0.1:9/v1"), 2, "small.toml", *parts)


def test_bad_arguments(manifest: Path, tmp_path: Path) -> None:
    one_line(tfbench("run", tmp_path / "none.toml"), 2, "none.toml")
    one_line(tfbench("run", tmp_path), 2)
    one_line(tfbench("run", manifest), 2, "endpoint.url", "--url")
    one_line(tfbench("run", manifest, "--url", "ftp://x/v1"), 2, "endpoint.url")
    one_line(tfbench("freeze", manifest, "--set", "load.ratez=[1]"), 2, "load.ratez", "rates")
    one_line(tfbench("freeze", manifest, "--set", "load.rates"), 2, "--set")
    secret = ["--set", 'endpoint.headers={ Authorization = "env:TFBENCH_NO_SUCH_KEY" }']
    one_line(tfbench("run", manifest, "--url", "http://127.0.0.1:9/v1", *secret), 2, "TFBENCH_NO_SUCH_KEY")


def test_endpoint_trouble(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    def run(url: str, *more: str) -> "subprocess.CompletedProcess[str]":
        return tfbench("run", manifest, "--url", url, "--warehouse", tmp_path / "w.duckdb", *more)

    one_line(run("http://127.0.0.1:9/v1"), 5, "127.0.0.1:9", "is the server running")
    one_line(run(engine.url, "--set", "model.name=other"), 5, "'other'", "'tfbench-engine'")
    with serving(lambda index, request: reply("200 OK", b"<html>hello</html>", "text/html")) as server:
        one_line(run(f"http://127.0.0.1:{server.port}/v1"), 5, "HTML")
    with serving(lambda index, request: reply("401 Unauthorized", b"{}")) as server:
        one_line(run(f"http://127.0.0.1:{server.port}/v1"), 5, "Authorization")


def test_warehouse_trouble(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    store = tmp_path / "w.duckdb"
    one_line(tfbench("report", "last", "--warehouse", store), 2, str(store))
    tfbench("run", manifest, "--url", engine.url, "--warehouse", store, *QUICK)
    one_line(tfbench("report", "nothing-like-it", "--warehouse", store), 2, "nothing-like-it")
    one_line(tfbench("sql", "selec 1", "--warehouse", store), 2, "query")
    with duckdb.connect(str(store)):
        one_line(tfbench("run", manifest, "--url", engine.url, "--warehouse", store), 2, str(store), "process")
    with duckdb.connect(str(store)) as con:
        con.execute("INSERT INTO schema_migrations VALUES (999, 'from_the_future', 0)")
    one_line(tfbench("report", "last", "--warehouse", store), 2, "newer")
    junk = tmp_path / "junk.duckdb"
    junk.write_bytes(b"not a database" * 1000)
    one_line(tfbench("report", "last", "--warehouse", junk), 2, str(junk))


def test_a_disk_that_takes_no_more_is_one_line(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    here = Path(__file__).resolve().parents[2]
    command = (
        f"trap '' XFSZ; ulimit -f 4; PYTHONPATH={here} {sys.executable} -m tfbench.cli.main run {manifest}"
        f" --url {engine.url} --warehouse {tmp_path / 'w.duckdb'} {' '.join(QUICK)}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    one_line(done, 2, str(tmp_path))


def test_ctrl_c_keeps_what_finished_and_exits_130(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    store = tmp_path / "w.duckdb"
    here = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfbench.cli.main", "run", manifest, "--url", engine.url, "--warehouse", store],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(here)},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("run 1/"):
            break
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(60) == 130
    process.stderr.close()
    assert "Traceback" not in rest and "interrupted" in rest
    with duckdb.connect(str(store), read_only=True) as con:
        assert con.execute("SELECT status, count(*) FROM runs GROUP BY ALL ORDER BY ALL").fetchall() == [
            ("complete", 1),
            ("interrupted", 1),
        ]


def test_a_secret_is_nowhere(manifest: Path, engine: RunningEngine, tmp_path: Path) -> None:
    store = tmp_path / "w.duckdb"
    header = ["--set", 'endpoint.headers={ Authorization = "env:MY_KEY" }']
    done = tfbench(
        "run", manifest, "--url", engine.url, "--warehouse", store, *QUICK, *header, "--json", MY_KEY="s3cr3t-t0ken"
    )
    assert done.returncode in (0, 4)
    assert tfbench("report", "--warehouse", store, "--html", tmp_path / "r.html").returncode == 0
    for path in [store, *(p for p in tmp_path.rglob("*") if p.is_file())]:
        assert b"s3cr3t-t0ken" not in path.read_bytes(), path
    assert "s3cr3t-t0ken" not in done.stdout + done.stderr and "env:MY_KEY" in done.stdout


def test_help_names_every_verb() -> None:
    text = tfbench("--help").stdout
    for verb in ("run", "report", "freeze", "diff", "sql", "engine"):
        assert f"\n  {verb} " in text
        assert tfbench(verb, "--help").returncode == 0
    assert tfbench("--version").stdout.strip() == "0.1.0"
