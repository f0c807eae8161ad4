"""The scheduler in real time: steps that end when the step-time model says, and the writes at their ends.

Steps follow one another in the model's time, not in ours: a step that was handled late doesn't push back the next, so
lateness never adds up. Only when the process falls more than `MAX_LAG_NS` behind is the model's time set anew.
Requests are read between steps. One that is being read when a step ends delays it, and so does a late wake-up; how
early to wake is learned from that.
"""

import asyncio
import gc
import time

from tfbench.core.clocks import ClockBase
from tfbench.core.errors import UsageError
from tfbench.engine.api import ApiError, Submission, bad_request
from tfbench.engine.config import EngineConfig
from tfbench.engine.delivery import Event, Job, Sender
from tfbench.engine.metrics_page import Gauges, Metrics
from tfbench.engine.misbehave import MISBEHAVE_HEADER, Act, Chooser
from tfbench.engine.power import EnergyMeter
from tfbench.engine.records import Record, RecordStore
from tfbench.engine.scheduler import Sequence, Step, StepResult, make_scheduler
from tfbench.engine.step_time import duration_ns
from tfbench.engine.timer import make_timer

MAX_LAG_NS = 20_000_000
_PREPARE_NS = 4_000.0
"""What making one token's event ready takes, at first; then it is measured."""
_MOST_PREPARE_NS = 20_000.0
_LEARNING = 0.1
_LATER_NS = 250.0
_EARLIER_NS = 50_000.0
"""A step that wasn't ready in time has the next woken for earlier, one that was, later: so 1 of 200 isn't."""
_MOST_MARGIN_NS = 1_000_000.0
_MOST_MARGIN_SHARE = 0.2


class Runtime:
    """One engine: scheduler, timer, jobs, records and counters, on one event loop."""

    def __init__(self, config: EngineConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.clock = ClockBase.start()
        self.metrics = Metrics()
        self.records = RecordStore(self.clock, keep_requests=config.keep_requests, keep_chunks=config.keep_chunks)
        self.scheduler = make_scheduler(config)
        self.energy = EnergyMeter(config.step_model, time.monotonic_ns())
        self._chooser = Chooser(config.misbehave)
        self._jobs: dict[int, Job] = {}
        self._next_seq_id = 0
        self._step: Step | None = None
        self._deadline_ns = 0
        self._spin_ns = config.spin_us * 1000
        self._margin_ns = self._spin_ns
        self._prepare_ns = _PREPARE_NS
        self._sender = Sender()
        self._timer = make_timer(loop, self._end_step)

    def choose_act(self, header: str | None, submission: Submission) -> Act | None:
        """How the reply to the next request goes wrong, if at all. Raises ApiError (400) for a header it can't obey."""
        try:
            act = self._chooser.next(header)
        except UsageError as error:
            raise bad_request(f"{MISBEHAVE_HEADER}: {error}.") from error
        if act is None or act.fits(chat=submission.chat, stream=submission.stream):
            return act
        if header is None:
            return None
        raise bad_request(f"{MISBEHAVE_HEADER}: {act.kind} needs a streamed {'chat ' * act.needs_chat}reply.")

    def refuse(self, submission: Submission, request_id: str, response_id: str, status: int | None, act: Act) -> None:
        """Note a request that misbehaviour keeps from being computed; `status` None: its connection is cut."""
        now = time.monotonic_ns()
        self.metrics.misbehaved[act.kind] += 1
        self.records.close(Record(request_id, response_id, submission, status, now, act=act, end_ns=now))

    def submit(self, submission: Submission, request_id: str, response_id: str, act: Act | None = None) -> Job:
        """Queue a request. Raises ApiError (the config's overload status) when the queue is full."""
        now = time.monotonic_ns()
        seq = self.scheduler.admit(
            self._next_seq_id, submission.prompt_tokens, submission.output_tokens, now, blocks=submission.blocks
        )
        record = Record(request_id, response_id, submission, 200, now, seq, act)
        if seq is None:
            self.metrics.rejections += 1
            record.status, record.end_ns = self.config.overload_status, now
            self.records.close(record)
            kind = "RateLimitError" if record.status == 429 else "ServiceUnavailableError"
            message = "The engine is busy and cannot accept new requests. Please try again later."
            raise ApiError(record.status, message, kind)
        self._next_seq_id += 1
        self.records.open(record)
        job = Job(record, seq, self.config.prefix_reuse, act)
        self._jobs[seq.seq_id] = job
        if act is not None:
            self.metrics.misbehaved[act.kind] += 1
        if self._step is None:
            self._start_step(now)
        return job

    def release(self, job: Job) -> None:
        """A request has ended; if not all of it was handed to the socket, it was cut off, and its slot is freed."""
        seq, record, metrics = job.seq, job.record, self.metrics
        now = time.monotonic_ns()
        self.scheduler.cancel(seq, now)
        del self._jobs[seq.seq_id]
        if record.end_ns is None:
            record.end_ns = record.sent_ns[-1] if job.complete and record.sent_ns else now
        cut = "error" if job.broken else "abort"
        record.finish_reason = record.submission.finish_reason if job.complete else cut
        metrics.success[record.finish_reason] += 1
        metrics.preemptions += seq.preemptions
        self.records.close(record)
        if job.complete:
            metrics.observe_finished(seq, record.end_ns)

    def abort_all(self) -> None:
        """Cut every connection that is being served."""
        for job in list(self._jobs.values()):
            if job.transport is not None:
                job.transport.abort()

    def close(self) -> None:
        """Stop stepping."""
        self._sender.close()
        self._timer.close()

    def gauges(self) -> Gauges:
        """What the metrics page shows beside the counters."""
        scheduler, kv = self.scheduler, self.scheduler.kv
        return Gauges(
            running=scheduler.running,
            waiting=scheduler.waiting,
            kv_usage=0.0 if kv is None or kv.total is None else kv.used / kv.total,
            preemptions=sum(job.seq.preemptions for job in self._jobs.values()),
            energy_j=self.energy.joules(time.monotonic_ns()),
        )

    def _start_step(self, start_ns: int) -> None:
        step = self.scheduler.plan_step(start_ns)
        if step is None:
            arrival_ns = self.scheduler.next_arrival_ns
            if arrival_ns is None:
                return
            step = self.scheduler.plan_step(arrival_ns)
            if step is None:
                raise RuntimeError("a waiting sequence was not taken up by an idle engine")
        self._step = step
        lasts_ns = duration_ns(self.config.step_model, step.work)
        self._deadline_ns = step.start_ns + lasts_ns
        margin_ns = max(min(self._margin_ns, _MOST_MARGIN_SHARE * lasts_ns), self._spin_ns)
        tokens = step.work.decode_seqs + step.work.prefill_seqs
        lead_ns = min(self._sender.lead_ns(tokens), lasts_ns / 2)
        self._timer.arm(self._deadline_ns - round(lead_ns + margin_ns + self._prepare_ns * tokens))

    def _end_step(self) -> None:
        """Woken shortly before the step's end: make everything ready, wait for it, send.

        Nothing else runs on this loop from here to the end, so what is accounted for early can't change any more.
        """
        step, deadline_ns, metrics = self._step, self._deadline_ns, self.metrics
        if step is None:
            return
        self._step = None
        woken_ns = time.monotonic_ns()
        gc.disable()  # else it picks its moment by what is allocated here, and takes milliseconds
        try:
            result = self.scheduler.finish_step(step, deadline_ns)
            events = self._events(result.emitted, deadline_ns)
            ready_ns = time.monotonic_ns()
            begin_ns, began_ns = self._sender.send(events, deadline_ns, step.start_ns)
        finally:
            gc.enable()
        self._learn(ready_ns - woken_ns, len(result.emitted), late=ready_ns > begin_ns)
        metrics.step_lateness.observe((began_ns - begin_ns) / 1e9)
        self._observe(step, result, deadline_ns)
        lag_ns = time.monotonic_ns() - deadline_ns
        if lag_ns > MAX_LAG_NS:
            metrics.step_overruns += 1
            deadline_ns += lag_ns
        self._start_step(deadline_ns)

    def _learn(self, took_ns: int, tokens: int, *, late: bool) -> None:
        """How early to wake for the next step's end, of one whose events took so long to make ready."""
        self._prepare_ns += _LEARNING * (min(took_ns / max(tokens, 1), _MOST_PREPARE_NS) - self._prepare_ns)
        self._margin_ns = min(
            max(self._margin_ns + (_EARLIER_NS if late else -_LATER_NS), self._spin_ns), _MOST_MARGIN_NS
        )

    def _events(self, emitted: tuple[Sequence, ...], deadline_ns: int) -> list[Event]:
        """Take up a token for each of `emitted`; what can be sent of them at once."""
        jobs = self._jobs
        events: list[Event] = []
        for seq in emitted:
            job = jobs[seq.seq_id]
            job.produced += 1
            job.last_due_ns, job.due_ns = job.due_ns, deadline_ns
            transport = job.transport
            if transport is None:
                if job.produced == seq.output_tokens:
                    job.wake.set()
            elif transport.get_write_buffer_size():
                job.wake.set()
            elif (event := job.next_event()) is not None and not transport.is_closing():
                events.append(event)
        return events

    def _observe(self, step: Step, result: StepResult, deadline_ns: int) -> None:
        """Count a step, and note for each sequence that decoded in it how many did."""
        metrics, jobs, size = self.metrics, self._jobs, step.work.decode_seqs
        started = [seq for seq, _ in step.prefills if seq.prefilled == seq.target and not seq.cancelled]
        gaps: dict[int, int] = {}
        for place, seq in enumerate(result.emitted):
            job = jobs[seq.seq_id]
            if place < len(result.emitted) - len(started):
                job.record.batch.append(size)
            if job.produced > 1:
                gap_ns = deadline_ns - job.last_due_ns
                gaps[gap_ns] = gaps.get(gap_ns, 0) + 1
        for gap_ns, count in gaps.items():
            metrics.inter_token_latency.observe(gap_ns / 1e9, count)
        metrics.observe_step(step, len(result.emitted))
        for seq in started:
            if jobs[seq.seq_id].produced == 1:
                metrics.observe_first_token(seq, reuse=self.config.prefix_reuse)
        self.energy.observe_step(step.work)
