"""Readiness of sockets: epoll where there is one, else whatever `selectors` offers."""

import select
import selectors
from functools import partial
from typing import Protocol

READ = 1
WRITE = 4
"""Bits of a readiness mask; anything else (error, hang-up) shows as READ, so that a read tells what it is."""


_MOST_EVENTS = 1 << 15


class Poller(Protocol):
    """Level-triggered readiness of file descriptors."""

    def add(self, fd: int, mask: int) -> None:
        """Watch `fd` for `mask`."""

    def change(self, fd: int, mask: int) -> None:
        """Watch `fd` for another mask."""

    def drop(self, fd: int) -> None:
        """Stop watching `fd`."""

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """(fd, mask) of what is ready, after at most `timeout_s`."""

    def close(self) -> None:
        """Give the poller's own descriptor back."""


class _Epoll:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.add = self._epoll.register
        self.change = self._epoll.modify
        self.drop = self._epoll.unregister
        # A full list would leave ready ones out, and "not reported" means "nothing there" to blur.
        self.poll = partial(self._epoll.poll, maxevents=_MOST_EVENTS)
        self.close = self._epoll.close


class _Selectors:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    @staticmethod
    def _events(mask: int) -> int:
        return (selectors.EVENT_READ if mask & READ else 0) | (selectors.EVENT_WRITE if mask & WRITE else 0)

    def add(self, fd: int, mask: int) -> None:
        self._selector.register(fd, self._events(mask))

    def change(self, fd: int, mask: int) -> None:
        self._selector.modify(fd, self._events(mask))

    def drop(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        ready = self._selector.select(timeout_s)
        return [
            (key.fd, (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0))
            for key, events in ready
        ]

    def close(self) -> None:
        self._selector.close()


def open_poller() -> Poller:
    """An epoll poller on Linux, a `selectors` one elsewhere."""
    return _Epoll() if hasattr(select, "epoll") else _Selectors()
