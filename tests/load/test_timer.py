"""Timers that wake a poller."""

import os
import time
from collections.abc import Callable

import pytest

from tfbench.load import timer as module
from tfbench.load.poller import READ, open_poller
from tfbench.load.timer import Timer, open_alarm, open_timer

MS = 1_000_000


@pytest.fixture(params=["timerfd", "pipe"])
def alarm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Timer]:
    if request.param == "pipe":
        monkeypatch.setattr(module.sys, "platform", "darwin")
    return open_alarm


def test_an_alarm_wakes_the_poller_until_cleared(alarm: Callable[[], Timer]) -> None:
    poller, timer = open_poller(), alarm()
    poller.add(timer.fd, READ)
    assert poller.poll(0) == []
    timer.clear()
    timer.arm(time.monotonic_ns() + 5 * MS)
    timer.arm(time.monotonic_ns() + 10 * MS)
    assert poller.poll(5) == [(timer.fd, READ)]
    timer.clear()
    assert poller.poll(0) == []
    poller.close()
    timer.close()
    with pytest.raises(OSError):
        os.fstat(timer.fd)


def test_a_timer_never_wakes_early_and_a_past_time_wakes_at_once() -> None:
    timer = open_timer()
    assert timer.fd >= 0
    poller = open_poller()
    poller.add(timer.fd, READ)
    due = time.monotonic_ns() + 20 * MS
    timer.arm(due)
    assert poller.poll(5) and time.monotonic_ns() >= due
    timer.clear()
    timer.arm(0)
    assert poller.poll(5)
    timer.clear()
    poller.close()
    timer.close()


def test_without_timerfd_there_is_nothing_to_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "darwin")
    timer = open_timer()
    assert timer.fd == -1
    timer.arm(1)
    timer.clear()
    timer.close()
