"""A wake-up at an absolute monotonic time, for an asyncio loop.

asyncio's own timers go through epoll_wait, whose timeout counts whole milliseconds; a Linux timerfd doesn't. Python
has timerfd from 3.13 on only, hence ctypes. Elsewhere the loop's timer serves.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Timer(Protocol):
    """Calls its callback once after each `arm`, at or after the time given; a new `arm` replaces the one before."""

    def arm(self, at_ns: int) -> None:
        """Wake at CLOCK_MONOTONIC `at_ns`; a time that has passed wakes on the loop's next turn."""

    def close(self) -> None:
        """Release the timer; it calls no more."""


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _FdTimer:
    """A timerfd watched by the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._spec = _Itimerspec()
        self._pointer = ctypes.byref(self._spec)
        self._callback = callback
        self._loop = loop
        loop.add_reader(self._fd, self._fire)

    def arm(self, at_ns: int) -> None:
        value = self._spec.value
        value.sec, value.nsec = divmod(max(at_ns, 1), 1_000_000_000)  # zero would disarm it
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._pointer, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # armed anew since epoll reported it
        self._callback()


class _LoopTimer:
    """The loop's own timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, at_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_at(at_ns / 1e9, self._callback)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


def make_timer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Timer:
    """The most exact timer this system has."""
    return _FdTimer(loop, callback) if sys.platform == "linux" else _LoopTimer(loop, callback)
