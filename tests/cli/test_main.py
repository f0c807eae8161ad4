"""How the command line ends: full disks, readers who leave, Ctrl-C at any moment, bugs."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.builder import answer, write_run
from tests.study.conftest import TEXT
from tfbench.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[2]
VERBS = {
    "report": ["report"],
    "report --json": ["report", "--json"],
    "sql": ["sql", "SELECT * FROM attempts"],
    "sql --json": ["sql", "SELECT * FROM attempts", "--json"],
    "freeze": ["freeze", str(ROOT / "manifests" / "quickstart.toml")],
    "diff": ["diff", *[str(ROOT / "manifests" / "quickstart.toml")] * 2],
    "--help": ["--help"],
    "--version": ["--version"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("main")
    rows = [answer(i, i) for i in range(300)]
    with Warehouse.open(folder / "w.duckdb") as warehouse:
        warehouse.ingest(write_run(folder, rows))
    return folder / "w.duckdb"


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


def tfbench(*arguments: str, stdout: Any, code: str | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    start = ["-m", "tfbench.cli.main"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**env),
        timeout=60,
        check=False,
    )


@pytest.fixture
def nobody() -> Iterator[int]:
    """A pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full stands in for a full disk")
@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_under_stdout_is_one_line(verb: str, store: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = tfbench(*VERBS[verb], stdout=full, TFBENCH_WAREHOUSE=str(store))
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == "tfbench: stdout: can't write: No space left on device; free space or send it elsewhere"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_reader_who_left_is_no_trouble(verb: str, store: Path, nobody: int) -> None:
    done = tfbench(*VERBS[verb], stdout=nobody, TFBENCH_WAREHOUSE=str(store))
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if not line.partition(" ")[0].endswith("_id")] == []


def test_the_exit_code_of_the_work_stands_when_the_reader_left(store: Path, nobody: int) -> None:
    code = (
        "import typer, tfbench.cli.app as app\n"
        "@app.app.command()\n"
        "def judge() -> None:\n"
        "    typer.echo('x' * 100000)\n"
        "    raise typer.Exit(3)\n"
        "from tfbench.cli.main import main; main()\n"
    )
    assert tfbench("judge", stdout=nobody, code=code).returncode == 3


def test_trouble_under_stderr_changes_nothing(store: Path, nobody: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfbench.cli.main", "sql", "SELEC", "--warehouse", str(store)],
        stdout=nobody,
        stderr=nobody,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 2


def test_streams_closed_by_the_caller(store: Path) -> None:
    command = f"{sys.executable} -m tfbench.cli.main report --warehouse {store} >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", command], env=environment(), timeout=60, check=False).returncode == 0


def test_a_terminal_that_lacks_a_character(store: Path) -> None:
    done = tfbench(
        "sql", "SELECT '雪' AS s", "--warehouse", str(store), stdout=subprocess.PIPE, PYTHONIOENCODING="ascii"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u96ea" in done.stdout


def test_usage_is_one_line_and_exit_2() -> None:
    done = tfbench("report", "--htlm", "x", stdout=subprocess.PIPE)
    told = 'tfbench: report: no option "--htlm"; did you mean --html?\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


BROKEN = """
import sys
import tfbench.cli.options as options
def broken(given):
    raise {error}
options.warehouse_path = broken
from tfbench.cli.main import main
sys.argv[1:] = ["report"]
main()
"""


def test_a_bug_is_one_line_and_no_verdict() -> None:
    code = BROKEN.format(error="KeyError('two\\nlines')")
    done = tfbench(stdout=subprocess.PIPE, code=code)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("tfbench: internal error (KeyError: ") and "please report it" in done.stderr
    assert done.stderr.count("\n") == 1
    done = tfbench(stdout=subprocess.PIPE, code=code, TFBENCH_DEBUG="1")
    assert done.returncode == 5
    assert "Traceback" in done.stderr and "in broken" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tfbench: internal error (KeyError")


def test_a_broken_pipe_elsewhere_is_no_reader_who_left() -> None:
    done = tfbench(stdout=subprocess.PIPE, code=BROKEN.format(error="BrokenPipeError(32, 'Broken pipe')"))
    assert done.returncode == 5
    assert "internal error (BrokenPipeError" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        "KeyboardInterrupt",
        "ImportError('initialization failed') from KeyboardInterrupt()",
        "RuntimeError('Query interrupted')",
    ],
)
def test_ctrl_c_however_it_comes(error: str) -> None:
    done = tfbench(stdout=subprocess.PIPE, code=BROKEN.format(error=error))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tfbench: interrupted\n")


@pytest.mark.parametrize("module", ["typer", "tfbench.cli.app", "duckdb"])
def test_ctrl_c_while_modules_load(module: str, store: Path) -> None:
    code = f"""
import signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
from tfbench.cli.main import main
sys.argv[1:] = ["report", "--warehouse", {str(store)!r}]
main()
"""
    done = tfbench(stdout=subprocess.PIPE, code=code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tfbench: interrupted\n")


def interrupted(arguments: list[str], wait_until_busy: Callable[[], None]) -> tuple[int, str]:
    """Exit code and stderr of a command that gets Ctrl-C once it is busy."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tfbench.cli.main", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        try:
            wait_until_busy()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, told


def test_ctrl_c_while_the_endpoint_is_probed(tmp_path: Path) -> None:
    manifest = tmp_path / "small.toml"
    manifest.write_text(TEXT)
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as accepted:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        arguments = ["run", str(manifest), "--url", url, "--warehouse", str(tmp_path / "w.duckdb")]

        def wait_until_busy() -> None:
            accepted.enter_context(silent.accept()[0])

        code, told = interrupted(arguments, wait_until_busy)
    assert code == 130
    assert told.splitlines()[-1].startswith("tfbench: interrupted") and "Traceback" not in told


def test_ctrl_c_while_a_query_runs(store: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun.csv"
    endless = "SELECT sum(sin(a.i * b.i)) FROM range(1000000) a(i), range(1000000) b(i)"
    query = f"COPY (SELECT 1) TO '{begun}'; {endless}"

    def wait_until_busy() -> None:
        for _ in range(600):
            if begun.exists():
                return
            time.sleep(0.1)

    code, told = interrupted(["sql", query, "--warehouse", str(store)], wait_until_busy)
    assert (code, told) == (130, "tfbench: interrupted\n")


def test_the_verbs_load_nothing_heavy() -> None:
    heavy = {
        "numpy",
        "pandas",
        "duckdb",
        "pyarrow",
        "scipy",
        "plotly",
        "pydantic",
        "aiohttp",
        "httpx",
        "jinja2",
        "rich",
    }
    code = f"import sys, tfbench.cli.app; print(sorted(set(sys.modules) & {heavy!r}))"
    assert tfbench(stdout=subprocess.PIPE, code=code).stdout.strip() == "[]"
