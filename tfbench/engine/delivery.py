"""A request being served, and how its tokens reach its socket.

At a step's end one event is due on each of perhaps hundreds of sockets, and each has to wait for the sends before it.
So all that can be is done before the end (`Job.next_event`), and the sends that are left are centred on it (`Sender`).
"""

import asyncio
import os
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue

from tfbench.engine.frames import StreamFrames, encode_tokens
from tfbench.engine.misbehave import Act, Kind
from tfbench.engine.records import Record
from tfbench.engine.scheduler import Sequence

Event = tuple["Job", int, bytes]
"""A job, the token after the last one that its event carries, and the event's bytes."""


@dataclass(slots=True, eq=False)
class Job:
    """A request being served: `produced` tokens so far, of which `written` were handed to the socket.

    `wake` is set when its handler has something to do: the end has come, misbehaviour is due, or the socket took no
    more and what was produced since waits for it. Nothing is written before `open`.

    limit          tokens that may be written for now; all of them but for misbehaviour
    group          tokens that an event waits for
    due_ns, last_due_ns  when the last token, and the one before, was ready by the step-time model
    """

    record: Record
    seq: Sequence
    reuse: bool = False
    act: Act | None = None
    frames: StreamFrames | None = None
    transport: asyncio.WriteTransport | None = None
    fd: int = -1
    produced: int = 0
    written: int = 0
    limit: int = 0
    group: int = 1
    role_sent: bool = False
    due_ns: int = 0
    last_due_ns: int = 0
    broken: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.limit = total = self.seq.output_tokens
        if self.act is not None:
            self.group = self.act.k or 1
            if self.act.after is not None:
                self.limit = min(self.act.after, total - 1)

    @property
    def complete(self) -> bool:
        """Whether every token was handed to the socket."""
        return self.written == self.seq.output_tokens

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens found cached, for its usage; None where the engine reuses no prompts."""
        return self.seq.cached_tokens if self.reuse else None

    def open(self, frames: StreamFrames, transport: asyncio.WriteTransport) -> None:
        """The headers of a stream are out; its events may follow."""
        self.frames, self.transport = frames, transport
        self.fd = transport.get_extra_info("socket").fileno()
        if self.act is not None and self.act.kind is Kind.ROLE_ONLY:
            self._send_apart(frames.role, Record.ROLE)
            self.role_sent = True

    def next_event(self) -> Event | None:
        """What can be written now; None when that is nothing. The socket must have taken everything before."""
        stop = min(self.produced, self.limit)
        if self.frames is None or stop == self.written:
            return None
        if stop - self.written < self.group and stop != self.limit:
            return None
        role = not self.role_sent
        return self, stop, encode_tokens(self.frames, self.written, stop, role=role, cached_tokens=self.cached_tokens)

    def break_off(self, event: bytes) -> None:
        """End the stream with an error event."""
        self.broken = True
        self._send_apart(event, Record.ERROR)

    def _send_apart(self, event: bytes, mark: int) -> None:
        assert self.transport is not None
        now = time.monotonic_ns()
        self.transport.write(event)
        self.record.add_chunk(now, now, mark)


def send_events(events: list[Event]) -> None:
    """Send each event in this call, not some time later, and note when: its socket has taken everything before."""
    burst = _Burst(events)
    burst.write()
    burst.settle()


class Sender:
    """Sends the events of a step's end, together with a second thread where this process may use a second core.

    A send is some 10 µs in the kernel, without Python's lock. Both threads take events from the same queue: if the
    other one gets no time, the calling thread sends them all. Sends begin half of what they will take before they are
    due (`lead_ns`), at most `_MOST_LEAD_NS`: no event is late by more than half the burst. What ends a stream comes
    last and never early: its client may ask again at once, and is not to be there before the step's end.
    """

    def __init__(self) -> None:
        self._bursts: SimpleQueue[_Burst | None] = SimpleQueue()
        self._helper: threading.Thread | None = None
        self._each_ns = {False: _EACH_NS, True: _EACH_NS / 2}  # what one event takes, by whether two threads send
        if _cores() > 1:
            scheduling = _scheduling()
            self._helper = threading.Thread(target=self._help, args=(scheduling,), name="tfbench-sender", daemon=True)
            self._helper.start()

    def lead_ns(self, events: int, last: int = 0) -> int:
        """How long before they are due the sends of so many events begin, of which `last` end their streams."""
        each_ns = self._each_ns[self._is_shared(events)]
        return round(max(0.0, min(each_ns * (events - 1) / 2, each_ns * (events - last), _MOST_LEAD_NS)))

    def send(self, events: list[Event], due_ns: int, start_ns: int = 0) -> tuple[int, int]:
        """Wait, busily, until the sends are to begin, then send each event and note when; not over before `due_ns`.

        `start_ns`: of the step that ends then; nothing is sent in its first half. Returns when the sends were to begin
        and when they began. Without events that is `due_ns`.
        """
        ordered = sorted(events, key=_ends)
        last = sum(map(_ends, events))
        begin_ns = max(due_ns - self.lead_ns(len(events), last), (start_ns + due_ns) // 2)
        burst = _Burst(ordered, begin_ns, len(events) - last, due_ns)
        shared = self._is_shared(len(events))
        if shared:
            _wait_until(begin_ns - _WAKE_NS)
            self._bursts.put(burst)
        began_ns = _wait_until(begin_ns)
        burst.write()
        if -1 in burst.taken:
            burst.over.acquire()
        self._learn(burst, shared=shared)
        burst.settle()
        _wait_until(due_ns)
        return begin_ns, began_ns

    def _is_shared(self, events: int) -> bool:
        return self._helper is not None and events >= _SHARED_FROM

    def _learn(self, burst: "_Burst", *, shared: bool) -> None:
        early = burst.sent_ns[: burst.held_from]
        if len(early) >= _TELLING:
            took_ns = (max(early) - min(early)) / (len(early) - 1)
            self._each_ns[shared] += _LEARNING * (min(took_ns, _MOST_EACH_NS) - self._each_ns[shared])

    def close(self) -> None:
        """End the thread; what follows is sent without it."""
        if self._helper is not None:
            self._bursts.put(None)
            self._helper.join()
            self._helper = None

    def _help(self, scheduling: "_Scheduling | None") -> None:
        if scheduling is not None:
            try:
                os.sched_setscheduler(0, *scheduling)
            except OSError:
                self._helper = None  # it would be held up, and with it what it took
                return
        while (burst := self._bursts.get()) is not None:
            _wait_until(burst.begin_ns)
            burst.write()
            burst.over.release()


_SHARED_FROM = 48
"""Events that a second thread is woken for: fewer are out within half a millisecond, and others may need that core."""
_WAKE_NS = 50_000
"""What waking it takes."""
_EACH_NS = 10_000.0
"""What sending an event takes, at first; then it is measured, on bursts of so many:"""
_TELLING = 8
_MOST_EACH_NS = 40_000.0
_LEARNING = 0.1
_MOST_LEAD_NS = 800_000.0
_Scheduling = tuple[int, "os.sched_param"]


def _ends(event: Event) -> bool:
    """Whether an event is the last of its stream, or the last before something else happens to it."""
    job, stop, _ = event
    return stop == job.limit


class _Burst:
    """Events on their way, of which `todo` are left. Whoever helps releases `over` when there are none.

    begin_ns   when the first is to be sent
    held_from  the place from which on they aren't sent before `due_ns`
    sent_ns    when each was sent, right before the call
    taken      how many bytes its socket took; -1 until it is known
    """

    __slots__ = ("_events", "begin_ns", "due_ns", "held_from", "over", "sent_ns", "taken", "todo")

    def __init__(self, events: list[Event], begin_ns: int = 0, held_from: int = 0, due_ns: int = 0) -> None:
        self._events = events
        self.begin_ns, self.held_from, self.due_ns = begin_ns, held_from, due_ns
        self.todo = deque([(place, job.fd, data) for place, (job, _, data) in enumerate(events)])
        self.sent_ns = [0] * len(events)
        self.taken = [-1] * len(events)
        self.over = threading.Lock()
        self.over.acquire()

    def write(self) -> None:
        """Send what is left. As little as can be is done in Python here, where two threads contend."""
        take, clock, write, sent_ns, taken = self.todo.popleft, time.monotonic_ns, os.write, self.sent_ns, self.taken
        held_from, due_ns = self.held_from, self.due_ns
        try:
            while True:
                place, fd, data = take()
                sent_ns[place] = clock() if place < held_from else _wait_until(due_ns)
                try:
                    taken[place] = write(fd, data)
                except OSError:
                    taken[place] = 0
        except IndexError:
            return

    def settle(self) -> None:
        """Note in each job what became of its event, which all were sent."""
        for (job, stop, data), at_ns, size in zip(self._events, self.sent_ns, self.taken, strict=True):
            if size != len(data) and job.transport is not None:
                job.transport.write(data[size:])  # it waits for the socket, or meets the error and ends the connection
            job.record.add_chunk(at_ns, job.due_ns, stop - job.written)
            job.written = stop
            if stop == job.limit:
                job.wake.set()


def _wait_until(at_ns: int) -> int:
    """Keep the processor busy until then; the time that it is."""
    while (now := time.monotonic_ns()) < at_ns:
        pass
    return now


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _scheduling() -> _Scheduling | None:
    """This thread's precedence; on Linux others don't share it by themselves."""
    return (os.sched_getscheduler(0), os.sched_getparam(0)) if sys.platform == "linux" else None
