"""A timer the poller can wait on: timerfd on Linux (through ctypes where Python lacks it), else none."""

import ctypes
import errno
import os
import sys
from typing import Protocol

_TFD_TIMER_ABSTIME = 1
_TFD_NONBLOCK = 0o4000
_TFD_CLOEXEC = 0o2000000
_CLOCK_MONOTONIC = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Timer(Protocol):
    """Wakes the poller at an absolute CLOCK_MONOTONIC time; `fd` is -1 where there's nothing to wait on."""

    fd: int

    def arm(self, mono_ns: int) -> None:
        """Wake at `mono_ns`; a time in the past wakes at once."""

    def clear(self) -> None:
        """Take the wake-up note away after the poller reported it."""

    def close(self) -> None:
        """Give the file descriptor back."""


class _TimerFd:
    def __init__(self, libc: ctypes.CDLL, fd: int) -> None:
        self.fd = fd
        self._settime = libc.timerfd_settime
        self._spec = _Itimerspec()
        self._ref = ctypes.byref(self._spec)

    def arm(self, mono_ns: int) -> None:
        value = self._spec.it_value
        # A zero it_value would disarm the timer.
        value.tv_sec, value.tv_nsec = divmod(max(mono_ns, 1), 1_000_000_000)
        self._settime(self.fd, _TFD_TIMER_ABSTIME, self._ref, None)

    def clear(self) -> None:
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self.fd)


class _NoTimer:
    """Stands in where timerfd is missing: the loop then bounds its poll timeout by the next due time."""

    fd = -1

    def arm(self, mono_ns: int) -> None:
        del mono_ns

    def clear(self) -> None:
        return

    def close(self) -> None:
        return


def open_timer() -> Timer:
    """A timerfd on CLOCK_MONOTONIC, or a stand-in with fd -1 where the platform has none."""
    if sys.platform != "linux":
        return _NoTimer()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
    except AttributeError:
        return _NoTimer()
    if fd < 0:
        number = ctypes.get_errno()
        if number in (errno.EMFILE, errno.ENFILE):
            raise OSError(number, os.strerror(number))
        return _NoTimer()
    return _TimerFd(libc, fd)


class _Pipe:
    """A timer for where there's no timerfd but a descriptor is a must: armed, it is readable at once."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        self._armed = False

    def arm(self, mono_ns: int) -> None:
        del mono_ns
        if not self._armed:
            self._armed = True
            os.write(self._write, b"x")

    def clear(self) -> None:
        if self._armed:
            self._armed = False
            os.read(self.fd, 1)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write)


def open_alarm() -> Timer:
    """A timer that always has a descriptor; where the platform has none it wakes the poller until it's cleared."""
    timer = open_timer()
    return timer if timer.fd >= 0 else _Pipe()
