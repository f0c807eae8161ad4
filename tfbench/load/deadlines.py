"""How long a call may take: the manifest's limits, a planned cancellation, an end mark nobody followed up."""

import heapq
from collections.abc import Iterator
from itertools import count

from tfbench.load.call import Call, Ending
from tfbench.load.job import Limits

_SECOND_NS = 1_000_000_000
_LINGER_NS = _SECOND_NS
"""How long a response may stay open after its dialect's end mark."""


class Deadlines:
    """The nearest deadline of every call in flight, kept in a heap and looked at again as calls go on."""

    def __init__(self, limits: Limits, cancel_after_ns: int | None) -> None:
        self._limits = limits
        self._cancel_after_ns = cancel_after_ns
        # Made once: every call in flight is looked at each second.
        self._passed = {
            name: limit_passed(name, ns)
            for name, ns in (
                ("connect_s", limits.connect_ns),
                ("first_byte_s", limits.first_byte_ns),
                ("idle_s", limits.idle_ns),
                ("total_s", limits.total_ns),
            )
        }
        self._heap: list[tuple[int, int, Call]] = []
        self._numbers = count()
        shortest = min(limits.connect_ns, limits.first_byte_ns, limits.idle_ns, limits.total_ns)
        self._look_every_ns = min(_SECOND_NS, shortest // 4)
        if cancel_after_ns is not None:
            self._look_every_ns = min(self._look_every_ns, max(cancel_after_ns // 16, 1_000_000))

    def watch(self, call: Call, now_ns: int) -> None:
        """Look at `call` again at its deadline, or sooner: a deadline can move closer as a call goes on."""
        look_ns = min(self._nearest(call)[0], now_ns + self._look_every_ns)
        heapq.heappush(self._heap, (look_ns, next(self._numbers), call))

    def due(self, now_ns: int) -> bool:
        """Whether there is something to look at."""
        return bool(self._heap) and self._heap[0][0] <= now_ns

    def expired(self, now_ns: int) -> Iterator[tuple[Call, Ending, str]]:
        """Calls whose time is up, with what that means."""
        while self._heap and self._heap[0][0] <= now_ns:
            _, _, call = heapq.heappop(self._heap)
            if call.ending is not None:
                continue
            deadline, ending, error = self._nearest(call)
            if deadline > now_ns:
                self.watch(call, now_ns)
            else:
                yield call, ending, error

    def _nearest(self, call: Call) -> tuple[int, Ending, str]:
        limits = self._limits
        total = (call.dispatched_ns + limits.total_ns, Ending.TIMEOUT, self._passed["total_s"])
        if not call.sent_ns:
            name, start, limit = "connect_s", call.dispatched_ns, limits.connect_ns
        elif call.done_seen_ns:
            return min(total, (call.last_read_ns + _LINGER_NS, Ending.LINGERED, ""), key=_when)
        elif not call.body_seen:
            name, start, limit = "first_byte_s", call.sent_ns, limits.first_byte_ns
        else:
            name, start, limit = "idle_s", call.last_read_ns, limits.idle_ns
        nearest = min(total, (start + limit, Ending.TIMEOUT, self._passed[name]), key=_when)
        if call.cancel and call.sent_ns and self._cancel_after_ns is not None:
            return min(nearest, (call.sent_ns + self._cancel_after_ns, Ending.CANCELLED, ""), key=_when)
        return nearest


def _when(deadline: tuple[int, Ending, str]) -> int:
    return deadline[0]


def limit_passed(name: str, limit_ns: int) -> str:
    """The error of a call that took longer than its limit `name`."""
    return f"{name} = {limit_ns / 1e9:g} passed"
