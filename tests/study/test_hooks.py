"""Restarts, flushes and failures of hooks: what a study does to its system between runs."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.load.scripted import ok_script, serving
from tfbench.core.errors import EndpointError, Interrupted, ManifestError, TfbenchError
from tfbench.core.redact import Redactor
from tfbench.manifest import Manifest, freeze, parse_manifest
from tfbench.metrics import counts, run_figures
from tfbench.report import build_report, json_document
from tfbench.report.conditions import conditions
from tfbench.study import Silent, run_study
from tfbench.study.command import run_command
from tfbench.study.hooks import Lifecycle, open_system
from tfbench.warehouse import Warehouse

RESTART = """
import json, os, signal, socket, subprocess, sys, time
port, folder = int(sys.argv[1]), sys.argv[2]
pids = os.path.join(folder, "pids")
old = open(pids).read().split() if os.path.exists(pids) else []
if old:
    os.kill(int(old[-1]), signal.SIGTERM)
while True:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)):
            break
    time.sleep(0.02)
config = json.dumps({"step_time": {"base_ms": 4.0 * (1 + len(old))}})
log = open(os.path.join(folder, "engine.log"), "ab")
command = [sys.executable, "-m", "tfbench.engine", "--port", str(port), "--config", config]
child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
with open(pids, "a") as file:
    file.write(f"{child.pid} ")
child.returncode = 0
"""


class Told(Silent):
    """Keeps what it was told of hooks."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def preparing(self, what: str) -> None:
        self.said.append(what)


def manifest(url: str | None, **tables: Any) -> Manifest:
    document = {
        "name": "hooked",
        "model": {"name": "tfbench-engine"},
        "endpoint": {"adapter": "tfbench", "url": url} if url else {"adapter": "tfbench"},
        "workload": {"input_tokens": 8, "output_tokens": 8},
        "load": {"rates": [40], "duration_s": 0.5, "warmup_s": 0, "drain_s": 2, "repeats": 2, "seed": 3},
    }
    return parse_manifest(
        {
            name: {**value, **tables.pop(name, {})} if isinstance(value, dict) else value
            for name, value in document.items()
        }
        | tables,
        "test",
    )


@pytest.fixture
def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def restart(free_port: int, tmp_path: Path) -> Iterator[list[str]]:
    """A command that serves the engine afresh at `free_port`, each time with 4 ms more a step."""
    (tmp_path / "restart.py").write_text(RESTART)
    yield [sys.executable, str(tmp_path / "restart.py"), str(free_port), str(tmp_path)]
    last = (tmp_path / "pids").read_text().split()[-1]
    with suppress(ProcessLookupError):
        os.kill(int(last), signal.SIGTERM)


def test_each_repeat_meets_a_fresh_process_at_the_same_port(restart: list[str], free_port: int, tmp_path: Path) -> None:
    told = Told()
    made = manifest(
        f"http://127.0.0.1:{free_port}/v1", load={"rates": [20, 40], "cache": "cold"}, hooks={"restart": restart}
    )
    done = run_study(made, tmp_path / "w.duckdb", told, reruns=0)
    with Warehouse.open(done.warehouse, read_only=True) as store:
        runs = store.con.execute(
            "SELECT load_value, repeat, restart, cache_state, observed->>'$.cache.prompts',"
            " (SELECT count(*) FROM attempts a WHERE a.run_id = r.run_id AND role = 'probe')"
            " FROM runs r ORDER BY order_index"
        ).fetchall()
        frame = run_figures(store.con, done.study_id)
        report = build_report(store, done.study_id)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert told.said == ["restart 1 of the system", "restart 2 of the system"]
    salted = "salted per run and study"
    assert [run[2:] for run in runs] == [(n, "cold", salted, k) for n, k in ((1, 1), (1, 0), (2, 1), (2, 0))]
    assert [run[0] for run in runs[2:]] == [run[0] for run in runs[:2]][::-1]
    tpot = frame[frame["figure"] == "tpot_p50_ms"].set_index(["repeat", "load_value"])["value"]
    for load in (20.0, 40.0):
        # The second process takes 8 ms a step, the first 4.
        assert tpot[1, load] - tpot[0, load] > 2.5
    order = " | ".join(" ".join(f"{run[0]:g}" for run in part) for part in (runs[:2], runs[2:]))
    said = conditions(report)
    assert said[0] == f"order of loads by repeat: {order}"
    assert said[1] == "2 restarts, each repeat in a fresh process"
    assert said[2].startswith("prefix cache cold, ")
    assert [run["restart"] for run in json_document(report)["runs"]] == [1, 2, 1, 2]


def test_the_study_serves_the_engine_itself(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[engine]\nprefix_reuse = true\n[step_time]\nbase_ms = 3.0\n")
    made = manifest(
        None,
        model={"name": "mine"},
        engine={"args": {"profile": str(tmp_path / "p.toml")}},
        workload={"input_tokens": 16, "output_tokens": 4, "shared_prefix_tokens": 64},
        load={"cache": "warm", "prime": {"count": 2}},
        hooks={"restart": "engine"},
    )
    told = Told()
    done = run_study(made, tmp_path / "w.duckdb", told, reruns=0)
    assert told.said == [
        *("restart 1 of the system", "priming with 2 requests"),
        *("restart 2 of the system", "priming with 2 requests"),
    ]
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT restart, cache_state, observed->'$.cache', observed->'$.engine', system_id, address FROM"
            " (SELECT *, observed->>'$.address' AS address FROM runs) ORDER BY order_index"
        ).fetchall()
        beside = store.con.execute(
            'SELECT role, attempt_id, "try", phase, output_tokens, cached_tokens, outcome FROM attempts'
            " WHERE role <> 'load' ORDER BY run_id, attempt_id DESC"
        ).fetchall()
        counted = counts(store.con, done.study_id)["counted"]
        report = build_report(store, done.study_id)
    assert [row[:2] for row in rows] == [(1, "warm"), (2, "warm")]
    assert json.loads(rows[0][2]) == {
        "declared": "warm",
        "prompts": "salted per run",
        "salt": "",
        "flushed": False,
        "primes": 2,
    }
    served = json.loads(rows[0][3])
    assert (served["model"], served["prefix_reuse"], served["step_time"]["base_ms"]) == ("mine", True, 3.0)
    assert {row[4] for row in rows} == {freeze(made).system_id}, "the port is not part of what was tested"
    one = [("probe", -1, None, "warmup", 2, 0, "ok"), ("prime", -2, None, "warmup", 1, 0, "ok")]
    assert beside == [*one, ("prime", -3, None, "warmup", 1, 64, "ok")] * 2
    # 64 of 80 tokens, from the first request on.
    assert [run.cached_share for run in report.runs] == [0.8, 0.8]
    assert sum(counted) == sum(row.n for row in report.outcomes if row.phase == "measure")
    assert conditions(report)[-1] == "prefix cache warm, 80% of prompt tokens from it"


def lifecycle(url: str, folder: Path, watcher: Silent, **tables: Any) -> Lifecycle:
    made = freeze(manifest(url, **tables)).manifest
    return open_system(made, {}, Redactor([]), watcher, folder)


def script(folder: Path, text: str) -> list[str]:
    path = folder / "hook.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_restart_comes_with_every_new_repeat_and_after_a_release(tmp_path: Path) -> None:
    command = script(tmp_path, f"open({str(tmp_path / 'count')!r}, 'a').write('x')")
    told = Told()
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        life = lifecycle(url, tmp_path, told, load={"cache": "cold"}, hooks={"restart": command, "flush": command})
        seen = [life.restarts]
        for repeat in (0, 0, 1, 1):
            life.begin(repeat, told)
            seen.append(life.restarts)
        assert [row["role"] for row in life.take_probe()] == ["probe"] and life.take_probe() == ()
        life.release()
        life.begin(1, told)
        life.flush(told)
    assert seen == [1, 1, 1, 2, 2] and life.restarts == 3
    assert (tmp_path / "count").read_text() == "xxxx"
    assert told.said[-1] == "flushing caches"


def test_without_a_hook_nothing_is_known_of_restarts(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        life = lifecycle(f"http://127.0.0.1:{server.port}/v1", tmp_path, Silent())
        life.begin(0, Silent())
        life.begin(1, Silent())
        life.flush(Silent())
    assert life.restarts is None


def test_a_hook_that_fails_ends_the_study_with_what_was_run_kept(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = script(
        tmp_path,
        f"import os, sys\nif os.path.exists({str(mark)!r}): sys.exit('no such unit')\nopen({str(mark)!r}, 'w')",
    )
    with serving(ok_script) as server, pytest.raises(EndpointError) as caught:
        made = manifest(f"http://127.0.0.1:{server.port}/v1", load={"rates": [20]}, hooks={"restart": command})
        run_study(made, tmp_path / "w.duckdb", reruns=0)
    text = str(caught.value)
    log = tmp_path / "w.bundles" / "restart.log"
    assert text.startswith("hooks.restart: ") and "\n" not in text and int(caught.value.exit_code) == 5
    assert f"ended with status 1 (no such unit; its output is in {log}); 1 of 2 runs are kept as study" in text
    assert log.read_text() == "no such unit\n"
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        assert store.con.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]


_KEPT = r"^interrupted: 1 of 2 runs are kept as study (\S+) in \S+; see them with: tfbench report \1 --warehouse \S+$"


class Pressed(Silent):
    """Ctrl-C while the system is restarted for the second repeat."""

    def preparing(self, what: str) -> None:
        if what.startswith("restart 2"):
            raise KeyboardInterrupt


def test_ctrl_c_during_a_hook_keeps_what_was_run(tmp_path: Path) -> None:
    with serving(ok_script) as server, pytest.raises(Interrupted, match=_KEPT):
        url = f"http://127.0.0.1:{server.port}/v1"
        run_study(manifest(url, hooks={"restart": script(tmp_path, "")}), tmp_path / "w.duckdb", Pressed(), reruns=0)


def test_a_secret_reaches_no_hook_and_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hunter2-hunter2")
    monkeypatch.setenv("COPY", "hunter2-hunter2")
    command = script(tmp_path, "import os, sys\nsys.exit(f\"{os.environ.get('KEY')} {os.environ['COPY']}\")")
    endpoint = {"headers": {"Authorization": "env:KEY"}}
    with serving(ok_script) as server, pytest.raises(EndpointError) as caught:
        made = manifest(f"http://127.0.0.1:{server.port}/v1", endpoint=endpoint, hooks={"restart": command})
        run_study(made, tmp_path / "w.duckdb", reruns=0)
    assert "(None [redacted]; its output" in str(caught.value)
    assert (tmp_path / "w.bundles" / "restart.log").read_text() == "None [redacted]\n"


def run(command: list[str], folder: Path, timeout_s: float = 20.0) -> None:
    run_command("hook", command, timeout_s, environment=os.environ, redactor=Redactor([]), log=folder / "log")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('a\\n\\nb\\x1b[1m\\n')\nraise SystemExit(3)", "ended with status 3 (b\\x1b[1m; its output is in"),
        ("raise SystemExit(4)", "ended with status 4 and printed nothing"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
        ("import sys; sys.stdout.buffer.write(b'\\xff' * 900); raise SystemExit(1)", "\ufffd…; its output"),
    ],
)
def test_how_a_command_fails_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(EndpointError) as caught:
        run(script(tmp_path, text), tmp_path)
    assert said in str(caught.value) and str(caught.value).isprintable()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    for program in (str(tmp_path / "no-such"), str(tmp_path)):
        with pytest.raises(EndpointError, match="can't be run"):
            run([program], tmp_path)


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    child = f"import time; time.sleep(1.5); open({str(tmp_path / 'late')!r}, 'w')"
    text = f"import subprocess, sys\nprint('began', flush=True)\nsubprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(EndpointError, match=r"did not end within 0\.8 s \(began; its output"):
        run(script(tmp_path, text), tmp_path, timeout_s=0.8)
    time.sleep(1.0)
    assert not (tmp_path / "late").exists()


def test_what_a_command_leaves_in_the_background_lives_on(tmp_path: Path) -> None:
    child = f"import time; time.sleep(0.3); open({str(tmp_path / 'late')!r}, 'w')"
    run(script(tmp_path, f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {child!r}])"), tmp_path)
    end = time.monotonic() + 10
    while not (tmp_path / "late").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert (tmp_path / "late").exists()


def test_an_endpoint_that_never_answers_is_told_with_how_long_was_waited(free_port: int, tmp_path: Path) -> None:
    hooks = {"restart": script(tmp_path, ""), "ready_s": 0.4}
    with pytest.raises(EndpointError, match=r"hooks\.restart: not ready 0\.4 s after the restart: .*is the server"):
        lifecycle(f"http://127.0.0.1:{free_port}/v1", tmp_path, Silent(), hooks=hooks)


@pytest.mark.parametrize(
    ("tables", "error", "said"),
    [
        ({"hooks": {}}, ManifestError, "endpoint.url is missing"),
        ({"hooks": {"restart": "engine"}, "engine": {"args": {"profile": "no-such"}}}, TfbenchError, "no-such"),
    ],
)
def test_what_cannot_be_served_is_told_before_anything_runs(
    tables: dict[str, Any], error: type[TfbenchError], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        run_study(manifest(None, **tables), tmp_path / "w.duckdb", reruns=0)


def test_an_engine_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    with serving(ok_script) as server, pytest.raises(EndpointError, match="did not start: the engine can't listen on"):
        made = manifest(f"http://127.0.0.1:{server.port}/v1", hooks={"restart": "engine"})
        run_study(made, tmp_path / "w.duckdb", reruns=0)
