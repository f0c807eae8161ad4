"""A request being served, and how its tokens reach its socket.

At a step's end one event is due on each of perhaps hundreds of sockets, and each is as late as the sends before it
took. So all that can be is done before the end (`Job.next_event`), and only the sends are left for it (`send_events`).
"""

import asyncio
import os
import time
from dataclasses import dataclass, field

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
    write, clock = os.write, time.monotonic_ns
    sent: list[int] = []
    for job, _, data in events:
        sent.append(clock())
        try:
            taken = write(job.fd, data)
        except OSError:
            taken = 0  # full, or lost: the transport waits for it, or meets the error again and ends the connection
        if taken != len(data) and job.transport is not None:
            job.transport.write(data[taken:])
    for (job, stop, _), sent_ns in zip(events, sent, strict=True):
        job.record.add_chunk(sent_ns, job.due_ns, stop - job.written)
        job.written = stop
        if stop == job.limit:
            job.wake.set()
