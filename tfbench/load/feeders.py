"""When the next request is due: one feeder per load mode, all times CLOCK_MONOTONIC ns.

A feeder is asked for the next due time, gives the ticks that are due, and is told when a call
ended. It never skips a tick and never moves one.
"""

import bisect
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tfbench.core.kinds import Mode, Phase
from tfbench.manifest import Retry

FAILED_PAUSE_NS = 100_000_000
"""A closed loop's user whose request failed doesn't come back sooner: refusals at once would become a flood."""
RETRY_SHIFT = 40
"""A retry's attempt_id is its task's index plus its try shifted by this: unique, and after every first try."""


class Tick(NamedTuple):
    """One request to send.

    `attempt` is its id, `task` the index of the item it carries, `tries` how often that was tried
    before. `slot_ns` is 0 except in capped load, where it's the slot's grant.
    """

    attempt: int
    scheduled_ns: int
    slot_ns: int
    phase: str
    user: int
    task: int
    tries: int = 0


class Feeder(Protocol):
    """What the worker's loop asks of a load mode."""

    @property
    def measured_left(self) -> int:
        """Measured ticks not ended yet, as far as known; the loop may stop after the window when it is 0."""

    def next_due_ns(self) -> int | None:
        """When the next tick can be sent; None when nothing is due until something ends, or ever."""

    def take(self) -> Tick:
        """The tick that `next_due_ns` spoke of."""

    def ended(self, tick: Tick, end_ns: int, *, failed: bool) -> None:
        """A tick's task ended at `end_ns`: there will be no further try."""

    def waiting(self, now_ns: int) -> int:
        """Ticks past their time that were not taken yet."""


def phase_of(offset_ns: int, warmup_ns: int, duration_ns: int | None) -> str:
    """The phase of a scheduled offset from the run's start, as plain text (the spool takes no enums)."""
    if offset_ns < warmup_ns:
        return Phase.WARMUP.value
    if duration_ns is not None and offset_ns >= warmup_ns + duration_ns:
        return Phase.DRAIN.value
    return Phase.MEASURE.value


class OpenFeeder:
    """Ticks of a frozen schedule, each sent at its time whatever the system does."""

    def __init__(self, start_ns: int, offsets_ns: Any, phases: Any, worker: int, workers: int) -> None:
        self._indices = range(worker, len(offsets_ns), workers)
        self._due = [start_ns + int(offset) for offset in offsets_ns[worker::workers]]
        self._phases = [str(phase) for phase in phases[worker::workers]]
        self._next = 0
        self._measured_left = self._phases.count(Phase.MEASURE)

    @property
    def measured_left(self) -> int:
        return self._measured_left

    def next_due_ns(self) -> int | None:
        return self._due[self._next] if self._next < len(self._due) else None

    def take(self) -> Tick:
        i = self._next
        self._next = i + 1
        return Tick(self._indices[i], self._due[i], 0, self._phases[i], -1, self._indices[i])

    def ended(self, tick: Tick, end_ns: int, *, failed: bool) -> None:
        del end_ns, failed
        if tick.phase == Phase.MEASURE:
            self._measured_left -= 1

    def waiting(self, now_ns: int) -> int:
        return bisect.bisect_right(self._due, now_ns) - self._next

    @property
    def last_due_ns(self) -> int:
        """The last tick's time (0 without ticks)."""
        return self._due[-1] if self._due else 0


class CappedFeeder:
    """Another feeder behind at most `slots` requests in flight; a tick waits in order for a slot."""

    def __init__(self, inner: Feeder, start_ns: int, slots: int) -> None:
        self._inner = inner
        self._free: deque[int] = deque([start_ns] * slots)

    @property
    def measured_left(self) -> int:
        return self._inner.measured_left

    def next_due_ns(self) -> int | None:
        due = self._inner.next_due_ns()
        if due is None or not self._free:
            return None
        return max(due, self._free[0])

    def take(self) -> Tick:
        tick = self._inner.take()
        return tick._replace(slot_ns=max(tick.scheduled_ns, self._free.popleft()))

    def freed(self, end_ns: int) -> None:
        """A call ended, whatever becomes of its task."""
        self._free.append(end_ns)

    def ended(self, tick: Tick, end_ns: int, *, failed: bool) -> None:
        self._inner.ended(tick, end_ns, failed=failed)

    def waiting(self, now_ns: int) -> int:
        return self._inner.waiting(now_ns)


class RetryFeeder:
    """Another feeder's ticks and, between them, further tries of tasks that failed."""

    def __init__(self, inner: Feeder, phase_at: Callable[[int], str]) -> None:
        self._inner = inner
        self._phase_at = phase_at
        self._heap: list[tuple[int, int, Tick]] = []
        self._first: dict[int, Tick] = {}

    @property
    def measured_left(self) -> int:
        return self._inner.measured_left

    def next_due_ns(self) -> int | None:
        due = self._inner.next_due_ns()
        if self._heap and (due is None or self._heap[0][0] < due):
            return self._heap[0][0]
        return due

    def take(self) -> Tick:
        due = self._inner.next_due_ns()
        if self._heap and (due is None or self._heap[0][0] < due):
            return heapq.heappop(self._heap)[2]
        return self._inner.take()

    def again(self, tick: Tick, due_ns: int) -> Tick:
        """Plan one more try of the task of `tick`; its task's clock stays that of the first."""
        self._first.setdefault(tick.task, tick)
        tries = tick.tries + 1
        retry = Tick(tick.task + (tries << RETRY_SHIFT), due_ns, 0, self._phase_at(due_ns), tick.user, tick.task, tries)
        heapq.heappush(self._heap, (due_ns, retry.attempt, retry))
        return retry

    def ended(self, tick: Tick, end_ns: int, *, failed: bool) -> None:
        self._inner.ended(self._first.pop(tick.task, tick), end_ns, failed=failed)

    def waiting(self, now_ns: int) -> int:
        return self._inner.waiting(now_ns) + sum(due <= now_ns for due, _, _ in self._heap)


class ClosedFeeder:
    """Users who each send, wait for the end, think, and send again.

    A tick's index is turn × users + user, so that a user's n-th prompt doesn't depend on how fast
    the system is. With `count`, measured ticks stop at that many over all workers' shares.
    """

    def __init__(
        self,
        plan: Any,
        start_ns: int,
        worker: int,
        workers: int,
        *,
        warmup_ns: int,
        duration_ns: int | None,
        count: int | None,
    ) -> None:
        self._plan = plan
        self._start_ns = start_ns
        self._warmup_ns = warmup_ns
        self._duration_ns = duration_ns
        self._left = None if count is None else len(range(worker, count, workers))
        self._open_measured = 0
        self._heap: list[tuple[int, int, int]] = [
            (start_ns + plan.start_offset_ns(user), user, 0) for user in range(worker, plan.users, workers)
        ]
        heapq.heapify(self._heap)

    @property
    def measured_left(self) -> int:
        return self._open_measured + (self._left or 0)

    def next_due_ns(self) -> int | None:
        if not self._heap or self._left == 0:
            return None
        return self._heap[0][0]

    def take(self) -> Tick:
        due, user, turn = heapq.heappop(self._heap)
        phase = phase_of(due - self._start_ns, self._warmup_ns, self._duration_ns)
        if phase == Phase.MEASURE:
            self._open_measured += 1
            if self._left is not None:
                self._left -= 1
        index = turn * self._plan.users + user
        return Tick(index, due, 0, phase, user, index)

    def ended(self, tick: Tick, end_ns: int, *, failed: bool) -> None:
        if tick.phase == Phase.MEASURE:
            self._open_measured -= 1
        turn = tick.task // self._plan.users
        pause_ns = self._plan.think_ns(tick.user, turn)
        if failed:
            pause_ns = max(pause_ns, FAILED_PAUSE_NS)
        heapq.heappush(self._heap, (end_ns + pause_ns, tick.user, turn + 1))

    def waiting(self, now_ns: int) -> int:
        del now_ns
        return 0


@dataclass(frozen=True)
class Feeders:
    """What the loop drives: the outermost feeder; the retries inside it, and whom to tell that a slot is free."""

    feeder: Feeder
    retries: RetryFeeder | None
    freed: Callable[[int], None] | None
    last_due_ns: int


class Offer(Protocol):
    """What a load's feeders depend on; every `LoadJob` is one."""

    @property
    def worker(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def plan(self) -> Any:
        """A Schedule, or a ClosedPlan in a closed loop."""

    @property
    def warmup_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int | None: ...
    @property
    def count(self) -> int | None: ...
    @property
    def max_in_flight(self) -> int | None: ...
    @property
    def retry(self) -> Retry | None: ...


def make_feeders(job: Offer, start_ns: int) -> Feeders:
    """The feeders of the job's mode, retries between them."""
    feeder: Feeder
    last_due_ns = 0
    if job.mode == Mode.CLOSED:
        feeder = ClosedFeeder(
            job.plan,
            start_ns,
            job.worker,
            job.workers,
            warmup_ns=job.warmup_ns,
            duration_ns=job.duration_ns,
            count=job.count,
        )
    else:
        opened = OpenFeeder(start_ns, job.plan.offsets_ns, job.plan.phases(), job.worker, job.workers)
        feeder, last_due_ns = opened, opened.last_due_ns
    retries = None
    if job.retry is not None:
        feeder = retries = RetryFeeder(feeder, lambda ns: phase_of(ns - start_ns, job.warmup_ns, job.duration_ns))
    if job.mode != Mode.OPEN_CAPPED:
        return Feeders(feeder, retries, None, last_due_ns)
    assert job.max_in_flight is not None
    capped = CappedFeeder(feeder, start_ns, max(len(range(job.worker, job.max_in_flight, job.workers)), 1))
    return Feeders(capped, retries, capped.freed, last_due_ns)
