"""The scheduler in real time: steps that end when the step-time model says, and the writes at their ends.

Steps follow one another in the model's time, not in ours: a step that was handled late doesn't push back the next, so
lateness never adds up. Only when the process falls more than `MAX_LAG_NS` behind is the model's time set anew.
"""

import asyncio
import time
from dataclasses import dataclass, field

from tfbench.core.clocks import ClockBase
from tfbench.engine.api import ApiError, Submission
from tfbench.engine.config import EngineConfig
from tfbench.engine.frames import StreamFrames, encode_tokens
from tfbench.engine.metrics_page import Metrics
from tfbench.engine.records import Record, RecordStore
from tfbench.engine.scheduler import Scheduler, Sequence, Step
from tfbench.engine.step_time import duration_ns
from tfbench.engine.timer import make_timer

MAX_LAG_NS = 5_000_000


@dataclass(slots=True, eq=False)
class Job:
    """A request being served.

    `wake` is set when its handler has something to do: the end has come, or the socket took no more and what was
    produced since waits for it. `transport` is set once the headers of a stream are out; before, nothing is written.
    """

    record: Record
    seq: Sequence
    frames: StreamFrames | None = None
    transport: asyncio.WriteTransport | None = None
    written: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def complete(self) -> bool:
        """Whether every token was handed to the socket."""
        return self.written == self.seq.output_tokens

    def write(self) -> None:
        """Hand all tokens produced but not yet written to the socket, in one event, and note the time.

        Only for a socket that has taken everything before: the bytes then leave in this call, not some time later.
        """
        if self.frames is None or self.transport is None or self.transport.is_closing():
            return
        stop = self.seq.generated
        data = encode_tokens(self.frames, self.written, stop)
        self.record.tokens.append(stop - self.written)
        self.written = stop
        sent_ns = time.monotonic_ns()
        self.transport.write(data)
        self.record.sent_ns.append(sent_ns)
        if stop == self.seq.output_tokens:
            self.wake.set()


class Runtime:
    """One engine: scheduler, timer, jobs, records and counters, on one event loop."""

    def __init__(self, config: EngineConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.clock = ClockBase.start()
        self.metrics = Metrics()
        self.records = RecordStore(self.clock, keep_requests=config.keep_requests, keep_chunks=config.keep_chunks)
        self.scheduler = Scheduler(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_waiting=config.max_waiting,
        )
        self._jobs: dict[int, Job] = {}
        self._next_seq_id = 0
        self._step: Step | None = None
        self._deadline_ns = 0
        self._spin_ns = round(config.spin_us * 1000)
        self._timer = make_timer(loop, self._end_step)

    def submit(self, submission: Submission, request_id: str, response_id: str) -> Job:
        """Queue a request. Raises ApiError (503) when the queue is full."""
        now = time.monotonic_ns()
        seq = self.scheduler.admit(self._next_seq_id, submission.prompt_tokens, submission.output_tokens, now)
        record = Record(request_id, response_id, submission, 200, now, seq)
        if seq is None:
            self.metrics.rejections += 1
            record.status, record.end_ns = 503, now
            self.records.close(record)
            message = "The engine is busy and cannot accept new requests. Please try again later."
            raise ApiError(503, message, "ServiceUnavailableError")
        self._next_seq_id += 1
        self.records.open(record)
        job = Job(record, seq)
        self._jobs[seq.seq_id] = job
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
        record.finish_reason = record.submission.finish_reason if job.complete else "abort"
        metrics.success[record.finish_reason] += 1
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
        self._timer.close()

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
        self._deadline_ns = step.start_ns + duration_ns(self.config.step_time, step.work)
        self._timer.arm(self._deadline_ns - self._spin_ns)

    def _end_step(self) -> None:
        step, deadline_ns, metrics, jobs = self._step, self._deadline_ns, self.metrics, self._jobs
        if step is None:
            return
        now = time.monotonic_ns()
        while now < deadline_ns:
            now = time.monotonic_ns()
        self._step = None
        result = self.scheduler.finish_step(step, deadline_ns)
        for seq in result.emitted:
            job = jobs[seq.seq_id]
            transport = job.transport
            if transport is None:
                if seq.finished:
                    job.wake.set()
            elif transport.get_write_buffer_size():
                job.wake.set()
            else:
                job.write()
        metrics.step_lateness.observe((now - deadline_ns) / 1e9)
        metrics.observe_step(step, result)
        lag_ns = time.monotonic_ns() - deadline_ns
        if lag_ns > MAX_LAG_NS:
            metrics.step_overruns += 1
            deadline_ns += lag_ns
        self._start_step(deadline_ns)
