"""What is waited for is told once that takes long: a line where nobody watches, a spinner on a terminal."""

import io
import time

import pytest
from rich.console import Console

from tfbench.cli import waiting
from tfbench.cli.live import LiveWatcher
from tfbench.cli.search import LiveSearch
from tfbench.cli.waiting import Waiting
from tfbench.manifest import RunPlan
from tfbench.study import StudyPlan


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A log, and waits that count as long at once."""
    monkeypatch.setattr(waiting, "LONG_S", 0.0)
    monkeypatch.setattr(waiting, "_LOOK_EVERY_S", 0.001)
    return Console(file=io.StringIO(), width=100)


def told(console: Console, words: str) -> str:
    """What was said, once `words` are in it."""
    assert isinstance(console.file, io.StringIO)
    for _ in range(5000):
        if words in console.file.getvalue():
            return console.file.getvalue()
        time.sleep(0.001)
    raise AssertionError(console.file.getvalue())


def test_a_long_wait_is_one_line_in_a_log(console: Console) -> None:
    with Waiting("the figures", console):
        told(console, "waiting for the figures (0 s)")
        time.sleep(0.02)
    assert told(console, "waiting").count("waiting for") == 1


def test_a_short_one_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_EVERY_S", 0.001)
    console = Console(file=io.StringIO(), width=100)
    with Waiting("the figures", console):
        time.sleep(0.02)
    assert isinstance(console.file, io.StringIO) and console.file.getvalue() == ""


@pytest.mark.usefixtures("console")
def test_on_a_terminal_a_spinner_shows_it() -> None:
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Waiting("the figures", terminal):
        told(terminal, "waiting for the figures")


@pytest.mark.parametrize("watcher", [LiveWatcher, LiveSearch])
def test_every_wait_of_a_study_is_told(watcher: type[LiveWatcher] | type[LiveSearch], console: Console) -> None:
    with watcher(console) as live:
        live.probing("http://h/v1")
        told(console, "waiting for an answer from http://h/v1")
        live.preparing("restart 1 of the system")
        told(console, "waiting for the end of: restart 1 of the system")
        live.waiting("the load's workers to start")
        told(console, "waiting for the load's workers to start")


def test_warm_up_and_drain_are_named(monkeypatch: pytest.MonkeyPatch, console: Console) -> None:
    monkeypatch.setattr("tfbench.cli.live._LINE_EVERY_S", 0.0)
    plan = RunPlan(point_index=0, load_value=4.0, repeat=0, order_index=0, seed=1, salt="")
    with LiveWatcher(console) as live:
        live.study_started(StudyPlan("s", "n", (plan,), 12.0, (), warmup_s=2.0))
        live.run_started(plan)
        for elapsed_s in (1.0, 5.0, 13.0):
            live.progress(plan, {"elapsed_s": elapsed_s, "sent": 7, "in_flight": 3})
    text = told(console, "in flight")
    assert "load 4 repeat 0: warm-up, 1 s, 7 sent" in text
    assert "load 4 repeat 0: 5 s, 7 sent" in text
    assert "load 4 repeat 0: drain: waiting for the last answers, 13 s, 7 sent, 3 in flight" in text
