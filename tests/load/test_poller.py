"""Readiness, from epoll and from what stands in for it."""

import socket
from collections.abc import Iterator

import pytest

from tfbench.load.poller import READ, WRITE, Poller, _Epoll, _Selectors, open_poller


@pytest.fixture(params=[_Epoll, _Selectors])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = request.param()
    yield made
    made.close()


def test_readiness_is_told_and_told_again(poller: Poller) -> None:
    a, b = socket.socketpair()
    with a, b:
        poller.add(a.fileno(), READ)
        assert poller.poll(0) == []
        b.send(b"x")
        assert poller.poll(1) == [(a.fileno(), READ)]
        assert poller.poll(0) == [(a.fileno(), READ)]
        poller.change(a.fileno(), READ | WRITE)
        assert poller.poll(0) == [(a.fileno(), READ | WRITE)]
        a.recv(1)
        assert poller.poll(0) == [(a.fileno(), WRITE)]
        poller.drop(a.fileno())
        assert poller.poll(0) == []


def test_a_hang_up_shows_as_something_to_read(poller: Poller) -> None:
    a, b = socket.socketpair()
    with a:
        poller.add(a.fileno(), READ)
        b.close()
        [(fd, mask)] = poller.poll(1)
        assert fd == a.fileno() and mask & READ


def test_no_ready_descriptor_is_left_out() -> None:
    """One that isn't reported counts as silent: the default of 1023 events a poll would make that untrue."""
    poller = open_poller()
    a, b = socket.socketpair()
    with a, b:
        b.send(b"x")
        copies = [a.dup() for _ in range(1500)]
        for copy in copies:
            poller.add(copy.fileno(), READ)
        assert len(poller.poll(0)) == 1500
        for copy in copies:
            copy.close()
    poller.close()
