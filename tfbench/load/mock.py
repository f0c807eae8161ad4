"""A transport without sockets: scripts in memory, served through the same framing and records as the wire's.

Times are exact: a step is due at the request's sent time plus the pauses before it, and that is its
stamp, however late it is taken.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from tfbench.load.call import Call, Ending
from tfbench.load.framing import Framing
from tfbench.load.poller import READ, Poller
from tfbench.load.stamps import to_stamp
from tfbench.load.timer import open_alarm

RESET = "reset"
"""A step: the connection is reset."""
CLOSE = "close"
"""A step: the connection is closed."""

Step = bytes | float | str
"""Bytes that arrive at once, a pause in seconds, RESET or CLOSE."""
Script = Callable[[int, bytes], Iterable[Step]]
"""Called with how many requests there were before, and the request."""

_mono = time.monotonic_ns


class _Line:
    """One pretended connection; `steps` of the exchange it carries."""

    __slots__ = ("after_ns", "closed", "due_ns", "framing", "id", "next", "steps")
    quick_ns = 0

    def __init__(self, number: int) -> None:
        self.id = number
        self.framing = Framing()
        self.steps: Iterator[Step] = iter(())
        self.next: Step = b""
        self.due_ns = 0
        self.after_ns = 0
        self.closed = False


class Mock:
    """Plays `script` for each call; a Transport.

    With `stamped` each read carries its due time as a kernel stamp (CLOCK_REALTIME ns).
    """

    def __init__(
        self,
        poller: Poller,
        script: Script,
        *,
        sent: Callable[[Call], None],
        done: Callable[[Call], None],
        stamped: bool = True,
    ) -> None:
        self._poller = poller
        self._script = script
        self._sent = sent
        self._done = done
        self.stamped = stamped
        self._real_offset_ns = time.time_ns() - _mono()
        self._numbers = count()
        self._requests = count()
        self._order = count()
        self._idle: list[_Line] = []
        self._busy: dict[int, _Line] = {}
        self._queue: list[tuple[int, int, _Line, Call]] = []
        self._alarm = open_alarm()
        poller.add(self._alarm.fd, READ)
        self.opened = 0
        self.exhausted = 0
        self.crossed = 0
        self.closes_idle_ns: int | None = None

    def preconnect(self, number: int, timeout_s: float) -> int:
        """Open `number` lines."""
        del timeout_s
        self._idle += [self._new_line() for _ in range(number)]
        return len(self._idle)

    def _new_line(self) -> _Line:
        self.opened += 1
        return _Line(next(self._numbers))

    def begin(self, call: Call) -> None:
        """Take `call`; its script starts now."""
        call.new_connection = not self._idle
        line = self._idle.pop() if self._idle else self._new_line()
        line.framing.begin(call)
        call.connection = line
        call.connection_id = line.id
        self._busy[line.id] = line
        now = _mono()
        call.connected_ns = now if call.new_connection else 0
        call.sent_ns = call.last_ns = line.after_ns = line.due_ns = now
        line.steps = iter(self._script(next(self._requests), call.request))
        self._sent(call)
        if call.ending is None:
            self._queue_next(line, call)

    def _queue_next(self, line: _Line, call: Call) -> None:
        for step in line.steps:
            if isinstance(step, float | int):
                line.due_ns += round(step * 1e9)
                continue
            line.next = step
            heappush(self._queue, (line.due_ns, next(self._order), line, call))
            self._alarm.arm(self._queue[0][0])
            return

    def serve(
        self, events: Sequence[tuple[int, int]], previous_entry_ns: int, between: Callable[[], object]
    ) -> list[int]:
        """Deliver what is due."""
        del previous_entry_ns, between
        others = [fd for fd, _ in events if fd != self._alarm.fd]
        if len(others) < len(events):
            self._alarm.clear()
            while self._queue and self._queue[0][0] <= _mono():
                _, _, line, call = heappop(self._queue)
                if line.framing.call is call:
                    self._deliver(line, call)
            if self._queue:
                self._alarm.arm(self._queue[0][0])
        return others

    def _deliver(self, line: _Line, call: Call) -> None:
        step = line.next
        now = _mono()
        framing = line.framing
        if isinstance(step, bytes):
            stamp_ns = line.due_ns + self._real_offset_ns if self.stamped else 0
            lower_ns, line.after_ns = line.after_ns, line.due_ns
            if framing.take(call, step, len(step), now, to_stamp(stamp_ns), lower_ns, True):
                call.end_kernel_ns = stamp_ns
                ending = Ending.COMPLETE if framing.complete else Ending.BROKEN
                self._finish(call, ending, "" if framing.complete else framing.trouble, now)
            else:
                self._queue_next(line, call)
        elif step == CLOSE and call.status and framing.close_delimited:
            self._finish(call, Ending.COMPLETE, "", now)
        else:
            said = "connection closed by the server" if step == CLOSE else "Connection reset by peer"
            self._finish(call, Ending.BROKEN if call.status else Ending.LOST, said, now)

    def abort(self, call: Call, ending: Ending, error: str) -> None:
        """Let go of `call` now."""
        if isinstance(call.connection, _Line):
            self._finish(call, ending, error, _mono())

    def close(self) -> None:
        """Cut what is in flight and give the descriptor back."""
        for line in list(self._busy.values()):
            if line.framing.call is not None:
                self._finish(line.framing.call, Ending.CUT, "", _mono())
        for line in self._idle:
            line.framing.release()
        self._poller.drop(self._alarm.fd)
        self._alarm.close()

    def _finish(self, call: Call, ending: Ending, error: str, end_ns: int) -> None:
        line = call.connection
        assert isinstance(line, _Line)
        keep = ending is Ending.COMPLETE and line.framing.complete and line.framing.keep_alive
        line.framing.call = None
        del self._busy[line.id]
        # A server that closes after its answer, or says more, leaves nothing to reuse.
        if keep and not any(isinstance(step, bytes | str) for step in line.steps):
            self._idle.append(line)
        else:
            line.framing.release()
        call.connection = None
        call.ending = ending
        call.error = error
        call.end_ns = end_ns
        self._done(call)
