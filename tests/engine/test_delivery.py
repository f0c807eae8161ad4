"""Sending a step's events: all of them, once, about when they are due, by however many threads."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import cast

import pytest

from tfbench.engine import delivery
from tfbench.engine.api import Submission
from tfbench.engine.delivery import Event, Job, Sender, send_events
from tfbench.engine.records import Record
from tfbench.engine.scheduler import Sequence
from tfbench.engine.tokens import token_source

MANY = 120
TOKENS = 3


class Rest:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def job(fd: int, due_ns: int) -> Job:
    seq = Sequence(0, 1, TOKENS, 0)
    submission = Submission(True, "m", token_source(b""), 1, TOKENS, "length", True, False, False)
    transport = cast(asyncio.WriteTransport, Rest())
    return Job(Record("r", "c", submission, 200, 0, seq), seq, transport=transport, fd=fd, produced=1, due_ns=due_ns)


@contextmanager
def pairs(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(count)]
        for one in (end for pair in made for end in pair):
            stack.enter_context(one).setblocking(False)
        yield made


@pytest.fixture(params=[1, 2])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    """On one core and on two."""
    monkeypatch.setattr(delivery, "_cores", lambda: request.param)
    with closing(Sender()) as made:
        yield made


@pytest.mark.parametrize("count", [0, 1, MANY])
def test_each_event_is_sent_once_about_when_it_is_due(sender: Sender, count: int) -> None:
    with pairs(count) as sockets:
        for stop in range(1, TOKENS + 1):
            due_ns = time.monotonic_ns() + 2_000_000
            jobs = [job(near.fileno(), due_ns) for near, _ in sockets]
            events: list[Event] = [(one, stop, b"event %d" % place) for place, one in enumerate(jobs)]
            lead_ns = sender.lead_ns(count, count if stop == TOKENS else 0)
            begin_ns, began_ns = sender.send(events, due_ns)
            assert begin_ns == due_ns - lead_ns
            assert began_ns >= begin_ns
            # The next step may be planned now, and has to know of whoever came by then.
            assert time.monotonic_ns() >= due_ns
            for place, (one, (_, far)) in enumerate(zip(jobs, sockets, strict=True)):
                assert far.recv(100) == b"event %d" % place
                assert (list(one.record.due_ns), list(one.record.tokens)) == ([due_ns], [stop])
                # What ends a stream is never early: its client may ask again at once.
                assert (due_ns if stop == TOKENS else begin_ns) <= one.record.sent_ns[0] <= time.monotonic_ns()
                assert one.written == stop
                assert one.wake.is_set() == (stop == TOKENS)
                assert cast(Rest, one.transport).data == b""


def test_what_ends_a_stream_waits_for_its_time_and_is_sent_last(sender: Sender) -> None:
    with pairs(MANY) as sockets:
        due_ns = time.monotonic_ns() + 300_000_000  # far enough for a busy machine
        jobs = [job(near.fileno(), due_ns) for near, _ in sockets]
        stops = [TOKENS if place % 3 == 0 else 1 for place in range(MANY)]
        sender.send([(one, stop, b"event") for one, stop in zip(jobs, stops, strict=True)], due_ns)
        sent = [one.record.sent_ns[0] for one in jobs]
        ends = [at for at, stop in zip(sent, stops, strict=True) if stop == TOKENS]
        others = [at for at, stop in zip(sent, stops, strict=True) if stop != TOKENS]
        assert min(ends) >= due_ns
        assert min(others) < min(ends)
        assert [one.written for one in jobs] == stops


def test_nothing_is_sent_in_the_first_half_of_a_step(sender: Sender) -> None:
    with pairs(MANY) as sockets:
        due_ns = time.monotonic_ns() + 2_000_000
        jobs = [job(near.fileno(), due_ns) for near, _ in sockets]
        begin_ns, _ = sender.send([(one, 1, b"event") for one in jobs], due_ns, due_ns - 100_000)
        assert begin_ns == due_ns - 50_000
        assert min(one.record.sent_ns[0] for one in jobs) >= begin_ns


def test_sends_are_centred_on_when_they_are_due_by_what_they_take(sender: Sender) -> None:
    shared, alone = sender._is_shared(MANY), sender._each_ns[False]
    assert shared == (sender._helper is not None)
    assert sender.lead_ns(0) == sender.lead_ns(1) == 0
    assert sender.lead_ns(10) == round(alone * 9 / 2)
    assert sender.lead_ns(10, 10) == 0
    assert sender.lead_ns(10, 8) == round(alone * 2)
    assert sender.lead_ns(100_000) == delivery._MOST_LEAD_NS
    with pairs(MANY) as sockets:
        for _ in range(40):  # an idle socket pair takes a few µs an event, less than what is assumed at first
            jobs = [job(near.fileno(), 0) for near, _ in sockets]
            sender.send([(one, 1, b"x") for one in jobs], time.monotonic_ns() + 2_000_000)
        assert sender._each_ns[shared] not in (delivery._EACH_NS, delivery._EACH_NS / 2)
        assert 0 < sender._each_ns[shared] <= delivery._MOST_EACH_NS


def test_what_a_socket_did_not_take_is_left_to_its_transport(sender: Sender) -> None:
    event = bytes(range(256)) * 4096
    with pairs(MANY) as sockets:
        lost = {3, MANY - 4}
        jobs = [job(-1 if place in lost else near.fileno(), 0) for place, (near, _) in enumerate(sockets)]
        sender.send([(one, 1, event) for one in jobs], 0)
        for place, (one, (_, far)) in enumerate(zip(jobs, sockets, strict=True)):
            taken = b"" if place in lost else far.recv(len(event))
            assert (taken != b"") == (place not in lost)
            assert taken + cast(Rest, one.transport).data == event
            assert len(one.record.sent_ns) == 1


def test_a_closed_sender_sends_alone(sender: Sender) -> None:
    sender.close()
    with pairs(MANY) as sockets:
        jobs = [job(near.fileno(), 0) for near, _ in sockets]
        sender.send([(one, 1, b"late") for one in jobs], 0)
        assert [far.recv(100) for _, far in sockets] == [b"late"] * MANY


def test_an_event_can_be_sent_apart() -> None:
    with pairs(1) as ((near, far),):
        one = job(near.fileno(), 7)
        send_events([(one, 2, b"two tokens")])
        assert far.recv(100) == b"two tokens"
        assert (list(one.record.due_ns), list(one.record.tokens)) == ([7], [2])


def test_events_that_threads_share_keep_their_own_stamps() -> None:
    with pairs(4) as sockets:
        jobs = [job(near.fileno(), 0) for near, _ in sockets]
        burst = delivery._Burst([(one, 1, b"x" * (place + 1)) for place, one in enumerate(jobs)], held_from=len(jobs))
        burst.todo.rotate(2)
        burst.write()
        burst.settle()
        stamps = [one.record.sent_ns[0] for one in jobs]
        assert stamps[2:] + stamps[:2] == sorted(stamps)
        assert [far.recv(9) for _, far in sockets] == [b"x", b"xx", b"xxx", b"xxxx"]
        assert all(cast(Rest, one.transport).data == b"" for one in jobs)
