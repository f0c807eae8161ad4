"""The worker's loop: send what is due, read what came, write both down."""

import os
import time
from collections.abc import Callable

from tfbench.core.clocks import Anchor, read_anchor
from tfbench.load.call import Call, Ending
from tfbench.load.deadlines import Deadlines
from tfbench.load.decode import NEEDS_LOOKING, OutputCounter, outcome_of
from tfbench.load.feeders import Feeders, Tick
from tfbench.load.job import LoadJob
from tfbench.load.poller import READ, Poller
from tfbench.load.progress import Reporter
from tfbench.load.requests import RequestMaker
from tfbench.load.retry_after import retry_after_s
from tfbench.load.spool import RawRecord, SentRecord, SpoolWriter
from tfbench.load.timer import open_timer
from tfbench.load.transport import Transport
from tfbench.manifest import retry_delay_s

_mono = time.monotonic_ns
_SHORT_POLL_NS = 800_000
"""Polls stay this short while answers are awaited, which bounds how far back blur reaches. A poll's own timeout comes
in whole milliseconds, so the timer ends it; where there's no timer, polls are that long."""
_SHORT_POLL_S = 0.001
_LONG_POLL_S = 0.05
_DENSE_PER_S = 3000
"""From this many events a second on, waking up for each costs more than the reading: they are taken in batches."""
_BATCH_NS = 600_000
"""How long events are let gather then. Kernel stamps keep their times; blur reaches back this far at most."""
_DENSITY_WINDOW_NS = 20_000_000
_LOOK_NS = 2_000_000
_IDLE_NS = 200_000
"""A body for a later tick is made only when the next one is further off than this."""
_MANY_READS = 64
_DISPATCH_BURST = 16
_SECOND_NS = 1_000_000_000
CUT_BY_DRAIN = "cut at the end of drain"
INTERRUPTED = "interrupted"
"""What an unfinished call's error says."""


MakeTransport = Callable[[Callable[[Call], None], Callable[[Call], None]], Transport]
"""Makes the transport of a loop from its `sent` and `done` callbacks."""


class WorkerLoop:
    """Drives one worker's share of a run; `run` returns when it is over.

    Making it opens the connections that the job wants beforehand. `command_fd` becomes readable when
    the parent says stop (or is gone); `reporter` takes progress.
    """

    def __init__(
        self,
        job: LoadJob,
        poller: Poller,
        spool: SpoolWriter,
        maker: RequestMaker,
        make_transport: MakeTransport,
        *,
        command_fd: int,
        reporter: Reporter,
        scheduling: str = "",
    ) -> None:
        self._job = job
        self._poller = poller
        self._spool = spool
        spool.append("job", (job.dialect, job.keep_text))
        self._maker = maker
        self._command_fd = command_fd
        self._report = reporter
        self._scheduling = scheduling
        self._timer = open_timer()
        self._armed_ns = 0
        self._wire = make_transport(self._on_sent, self._on_done)
        self._preconnected = self._wire.preconnect(job.preconnect, job.limits.connect_ns / 1e9) if job.preconnect else 0
        self._in_flight: dict[int, Call] = {}
        self._deadlines = Deadlines(job.limits, job.cancel_after_ns)
        self._counted: dict[int, tuple[Call, OutputCounter]] = {}
        self._sent_count = 0
        self._done_count = 0
        self._interrupted = False
        self._stopping = False
        self._told = False
        # Some failures are known as such only from a call's bytes, so these must stay at hand.
        self._keep_reads = job.retry is not None and not NEEDS_LOOKING.isdisjoint(job.retry.outcomes)
        self._dense = False
        self._event_count = 0
        self._density_mark_ns = 0
        self._next_second_ns = 0
        self._cpu_windows: list[float] = []
        self._cpu_mark = (_mono(), time.process_time_ns())
        self._cpu_start_ns = 0

    # Dispatching.

    def _dispatch(self, tick: Tick) -> None:
        call = self._maker.make(tick)
        call.dispatched_ns = _mono()
        self._in_flight[id(call)] = call
        self._deadlines.watch(call, call.dispatched_ns)
        if call.cancel and self._job.cancel_after_chunks is not None:
            self._counted[id(call)] = (call, OutputCounter(call, self._job.dialect))
        elif not self._keep_reads:
            call.reads = self._spool.reads
        self._wire.begin(call)

    def _on_sent(self, call: Call) -> None:
        self._sent_count += 1
        self._write_sent(call)

    def _write_sent(self, call: Call) -> None:
        call.noted = True
        tick = call.tick
        record = SentRecord(
            attempt=tick.attempt,
            task=tick.task,
            tries=tick.tries,
            request_id=call.request_id,
            phase=tick.phase,
            user=tick.user,
            class_name=call.class_name,
            tenant=call.tenant,
            lora=call.lora,
            scheduled_ns=tick.scheduled_ns,
            dispatched_ns=call.dispatched_ns,
            slot_ns=tick.slot_ns,
            connected_ns=call.connected_ns,
            sent_ns=call.sent_ns,
            connection_id=call.connection_id,
            new_connection=call.new_connection,
            prompt_sha256=call.prompt_sha256,
        )
        self._spool.append("sent", record)

    def _on_done(self, call: Call) -> None:
        self._in_flight.pop(id(call), None)
        self._counted.pop(id(call), None)
        self._done_count += 1
        self._write_raw(call)
        if self._freed is not None:
            self._freed(call.end_ns)
        due_ns = self._retry_due_ns(call)
        if due_ns is None or self._retries is None:
            failed = call.ending not in (Ending.COMPLETE, Ending.LINGERED) or not 200 <= call.status < 300
            self._feeder.ended(call.tick, call.end_ns, failed=failed)
        else:
            self._spool.append("planned", tuple(self._retries.again(call.tick, due_ns)))
        # The deadlines hold on to a call for a while; its bytes aren't needed any more.
        call.reads = []

    def _retry_due_ns(self, call: Call) -> int | None:
        """When the task of a failed call is tried again; None when it isn't."""
        policy = self._job.retry
        if policy is None or call.ending is Ending.CUT:
            return None
        if outcome_of(call, self._job.dialect, look_inside=self._keep_reads) not in policy.outcomes:
            return None
        delay_s = retry_delay_s(policy, call.tick.tries, retry_after_s(call.retry_after, time.time()))
        return None if delay_s is None else call.end_ns + round(delay_s * 1e9)

    def _cut_counted(self) -> None:
        # Only calls that the plan cancels after k chunks are decoded while they run.
        limit = self._job.cancel_after_chunks or 0
        for call, counter in list(self._counted.values()):
            if counter.count() >= limit:
                self._wire.abort(call, Ending.CANCELLED, "")

    def _expire(self, now_ns: int) -> None:
        for call, ending, error in self._deadlines.expired(now_ns):
            self._wire.abort(call, ending, error)

    # Writing down.

    def _write_raw(self, call: Call) -> None:
        assert call.ending is not None
        if not call.noted:
            self._write_sent(call)
        if call.reads is not self._spool.reads:
            self._spool.reads.extend(call.reads)
        self._spool.write_reads()
        self._spool.append(
            "raw",
            RawRecord(
                attempt=call.tick.attempt,
                first_ns=call.first_ns,
                first_kernel_ns=call.first_kernel_ns,
                last_ns=call.last_read_ns,
                # A response left open after its end mark ended at the mark.
                end_ns=call.done_seen_ns if call.ending is Ending.LINGERED else call.end_ns,
                end_kernel_ns=call.end_kernel_ns,
                ending=call.ending.value,
                status=call.status,
                error=call.error,
                content_type=call.content_type,
                content_encoding=call.content_encoding,
                garbage=call.garbage,
                prompt=call.prompt,
            ),
        )

    def _write_anchor(self, anchor: Anchor) -> None:
        self._spool.append("anchor", (anchor.mono_ns, anchor.real_ns, anchor.width_ns))

    # The loop.

    def run(self, start_ns: int, feeders: Feeders) -> None:
        """Run to the end of the drain, a stop from the parent, or the parent's death."""
        self._write_anchor(read_anchor())
        self._start_ns = start_ns
        self._last_due_ns = feeders.last_due_ns
        self._retries, self._freed = feeders.retries, feeders.freed
        feeder = self._feeder = feeders.feeder
        poller, timer = self._poller, self._timer
        serve, dispatch_due, timer_fd, command_fd = self._wire.serve, self._dispatch_due, timer.fd, self._command_fd
        poller.add(self._command_fd, READ)
        if timer.fd >= 0:
            poller.add(timer.fd, READ)
        self._cpu_start_ns = time.process_time_ns()
        previous_entry = batch_end = _mono()
        self._next_second_ns = start_ns + _SECOND_NS
        next_look = 0
        while not self._stopping:
            due = feeder.next_due_ns()
            now = _mono()
            if self._dense:
                pause_ns = (batch_end if due is None or due > batch_end else due) - now
                if pause_ns > 0:
                    time.sleep(pause_ns / 1e9)
                timeout = 0.0
            else:
                self._arm(due, now)
                timeout = self._timeout(due, now)
            entry = _mono()
            batch_end = entry + _BATCH_NS
            events = poller.poll(0)
            if not events and timeout > 0:
                # What the empty poll didn't report came after its entry: that is as far as blur reaches back.
                previous_entry = entry
                entry = _mono()
                events = poller.poll(timeout)
            if events:
                for fd in serve(events, previous_entry, dispatch_due):
                    if fd == timer_fd:
                        timer.clear()
                        self._armed_ns = 0
                    elif fd == command_fd:
                        self._command()
            previous_entry = entry
            self._event_count += len(events)
            now = dispatch_due()
            if self._counted and events:
                self._cut_counted()
            self._spool.flush()
            if now >= next_look:
                next_look = now + _LOOK_NS
                if self._look(now):
                    break
        self._finish()

    def _look(self, now: int) -> bool:
        """What needs no more than a look every few milliseconds; True when the run is over."""
        if self._deadlines.due(now):
            self._expire(now)
        if len(self._spool.reads) >= _MANY_READS:
            self._spool.write_reads()
        since = now - self._density_mark_ns
        if since >= _DENSITY_WINDOW_NS:
            # Without stamps every delay would show, so events are then taken one by one.
            self._dense = self._wire.stamped and self._event_count * _SECOND_NS > _DENSE_PER_S * since
            self._event_count = 0
            self._density_mark_ns = now
        if now >= self._next_second_ns:
            self._each_second(now)
            self._next_second_ns = now + _SECOND_NS
        if now - self._report.last_ns >= self._report.every_ns:
            self._report.send(now, self._counts())
        return self._over(now)

    def _arm(self, due: int | None, now: int) -> None:
        """Have the timer end the next poll at the next due time, or after a short while when answers are awaited."""
        wake = due
        if self._in_flight:
            wake = now + _SHORT_POLL_NS if due is None else min(due, now + _SHORT_POLL_NS)
        if wake is not None and wake > now and wake != self._armed_ns:
            self._timer.arm(wake)
            self._armed_ns = wake

    def _timeout(self, due: int | None, now: int) -> float:
        if due is not None and due <= now:
            return 0.0
        limit = _SHORT_POLL_S if self._in_flight else _LONG_POLL_S
        if self._timer.fd < 0 and due is not None:
            return min(limit, (due - now) / 1e9)
        return limit

    def _dispatch_due(self) -> int:
        feeder = self._feeder
        for _ in range(_DISPATCH_BURST):
            due = feeder.next_due_ns()
            now = _mono()
            if due is None or due > now:
                # Bodies for later ticks are made in the time left.
                if due is None or due - now > _IDLE_NS:
                    self._maker.prepare()
                return now
            self._dispatch(feeder.take())
        return _mono()

    def _command(self) -> None:
        # "end": every worker's measured tasks are over. Anything else, and a parent that is gone, means stop.
        self._interrupted = os.read(self._command_fd, 64) != b"end\n"
        self._stopping = True

    def _each_second(self, now: int) -> None:
        self._write_anchor(read_anchor(3))
        cpu = time.process_time_ns()
        wall_then, cpu_then = self._cpu_mark
        self._cpu_windows.append((cpu - cpu_then) / max(now - wall_then, 1))
        self._cpu_mark = (now, cpu)
        self._spool.write_reads()

    def _over(self, now: int) -> bool:
        job = self._job
        if job.duration_ns is not None:
            window_end = self._start_ns + job.warmup_ns + job.duration_ns
            if now < window_end:
                return False
        else:
            window_end = self._last_due_ns
        if self._feeder.measured_left == 0:
            if job.workers == 1:
                return True
            # Others may still measure; load goes on until all have ended.
            if not self._told:
                self._told = True
                self._report.tell("measured")
        return now >= window_end + job.drain_ns if window_end else False

    def _counts(self) -> dict[str, int | float]:
        return {
            "sent": self._sent_count,
            "done": self._done_count,
            "in_flight": len(self._in_flight),
            "waiting": self._feeder.waiting(_mono()),
            "elapsed_s": (_mono() - self._start_ns) / 1e9,
        }

    def _finish(self) -> None:
        ended_ns = _mono()
        for call in list(self._in_flight.values()):
            self._wire.abort(call, Ending.CUT, INTERRUPTED if self._interrupted else CUT_BY_DRAIN)
        self._wire.close()
        self._write_anchor(read_anchor())
        wall_then, cpu_then = self._cpu_mark
        wall = _mono() - wall_then
        if wall > _SECOND_NS // 4:
            self._cpu_windows.append((time.process_time_ns() - cpu_then) / wall)
        summary = {
            "start_ns": self._start_ns,
            "ended_ns": ended_ns,
            "interrupted": self._interrupted,
            "cpu_ns": time.process_time_ns() - self._cpu_start_ns,
            "cpu_windows": self._cpu_windows,
            "exhausted": self._wire.exhausted,
            "crossed": self._wire.crossed,
            "closes_idle_ns": self._wire.closes_idle_ns,
            "connections": self._wire.opened,
            "preconnected": self._preconnected,
            "sent": self._sent_count,
            "scheduling": self._scheduling,
            "timer": "timerfd" if self._timer.fd >= 0 else "poll timeout",
        }
        self._spool.append("summary", (summary,))
        self._spool.flush()
        self._timer.close()
