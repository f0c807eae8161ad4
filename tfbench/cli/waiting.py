"""Says what is waited for once that takes long: a spinner on a terminal, else a line now and then."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

LONG_S = 2.0
"""Shorter waits are not told."""
LINE_EVERY_S = 15.0
_LOOK_EVERY_S = 0.25


class Waiting:
    """Tells of one wait at a time; use as a context manager.

    show: where a terminal's bar already stands, what changes its words; else a spinner of its own is shown. lines:
    whether a log is told, too.
    """

    def __init__(self, what: str | None = None, console: Console | None = None, *, lines: bool = True) -> None:
        self._lines = lines
        self.console = console or Console(stderr=True, highlight=False)
        self.show: Callable[[str], None] | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._status: Status | None = None
        self._what: str | None = None
        self._since_s = self._said_s = 0.0
        if what is not None:
            self.begin(what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._over.set()

    def begin(self, what: str) -> None:
        """From now on `what` is waited for; the same again goes on."""
        with self._lock:
            if what == self._what:
                return
            self._what, self._since_s, self._said_s = what, time.monotonic(), -LINE_EVERY_S
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nothing is waited for."""
        with self._lock:
            self._what = None
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            with self._lock:
                self._tell(time.monotonic())

    def _tell(self, now_s: float) -> None:
        waited_s = now_s - self._since_s
        if self._what is None or waited_s < LONG_S:
            return
        text = f"waiting for {self._what} ({waited_s:.0f} s)"
        if self.show is not None:
            self.show(text)
        elif self.console.is_terminal:
            if self._status is None:
                self._status = self.console.status(text)
                self._status.start()
            self._status.update(text)
        elif self._lines and waited_s - self._said_s >= LINE_EVERY_S:
            self._said_s = waited_s
            self.console.print(f"  {text}", style="dim", markup=False, soft_wrap=True)
