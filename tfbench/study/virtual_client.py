"""The client of a run in virtual time: the load side's feeders against the engine's scheduler, event by event.

It does what a worker does. What worker, network and the server's front take is constants of the engine's config: a
request is in the queue `ingress_us` after it was due, `ingress_gap_us` after the one before at the earliest, and the
client sees a token `egress_us` after its step ended. A refusal, and the news that a client has left, travel as long.

The engine is run ahead of the client by the ingress: what the client does at t reaches it then, so nothing is too late.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from tfbench.core.errors import UsageError
from tfbench.core.kinds import Mode, Outcome
from tfbench.engine.api import ApiError, output_length
from tfbench.engine.config import EngineConfig
from tfbench.engine.scheduler import Sequence
from tfbench.engine.tokens import TokenSource, token_source
from tfbench.engine.virtual import Int64s, VirtualEngine
from tfbench.load.deadlines import limit_passed
from tfbench.load.feeders import Tick, make_feeders, phase_of
from tfbench.load.loop import CUT_BY_DRAIN, INTERRUPTED
from tfbench.manifest import Manifest, Retry, RunPlan, retry_delay_s
from tfbench.schedule import ClosedPlan, Schedule
from tfbench.study.prefix_blocks import PrefixBlocks
from tfbench.study.record import limits_of, whole_ns
from tfbench.workload import Item, build_workload

START_NS = 946_684_800 * 1_000_000_000
"""When every simulated run starts: 2000-01-01T00:00:00Z. Fixed, so that a run repeats to the last bit."""
_PRIMING_NS = 30 * 86_400 * 1_000_000_000
"""How long before a run its priming begins: time enough for any."""
_ASK_EVERY = 512
"""Events between two questions whether to stop."""
_NO_TIMES: Int64s = np.zeros(0, np.int64)
_NO_BATCHES: npt.NDArray[np.int32] = np.zeros(0, np.int32)
_NO_SOURCE = TokenSource(0)


class Answer(NamedTuple):
    """What became of one tick. `sent` is False for one that never was; `seq` is None where the engine took nothing.

    `end_ns` None: never sent. `times`: int64 ns at which the client saw each token; `batches`: how many decoded in each
    of its decode steps. `headed_ns`: when an accepted request's headers come, if its answer is streamed.
    """

    tick: Tick
    item: Item
    sent: bool
    seq: Sequence | None
    outcome: Outcome
    status: int | None
    error: str | None
    finish_reason: str | None
    end_ns: int | None
    times: Int64s
    batches: npt.NDArray[np.int32]
    headed_ns: int | None = None


@dataclass(slots=True, eq=False)
class _Flight:
    """A request under way. `cut`: the client leaves after its last token, as the plan wants.

    `seq` is None where the engine took nothing.
    """

    tick: Tick
    item: Item
    sent_ns: int
    finish_reason: str = ""
    cut: bool = False
    seq: Sequence | None = None
    ended: bool = False


class _Landing(NamedTuple):
    """An answer that is complete and reaches the client at `at_ns`."""

    at_ns: int
    flight: _Flight
    outcome: Outcome
    status: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Offer:
    """What the feeders want to know; see `tfbench.load.feeders.Offer`."""

    mode: str
    plan: Schedule | ClosedPlan
    warmup_ns: int
    duration_ns: int | None
    count: int | None
    max_in_flight: int | None
    retry: Retry | None
    worker: int = 0
    workers: int = 1


class VirtualClient:
    """Offers the load of `plan` to an engine of `config`; `answers` plays the run."""

    def __init__(self, manifest: Manifest, plan: RunPlan, config: EngineConfig, timing: Schedule | ClosedPlan) -> None:
        load = manifest.load
        self._manifest = manifest
        self._engine = VirtualEngine(config)
        self._ingress_ns = round(config.ingress_us * 1_000)
        self._gap_ns = round(config.ingress_gap_us * 1_000)
        self._egress_ns = round(config.egress_us * 1_000)
        self._workload = build_workload(manifest, plan)
        self._blocks = PrefixBlocks(config, self._workload.prefix_words)
        self._timing = timing
        self._limits = limits_of(manifest)
        cancel = load.cancel
        self._cancel_after_ns = None if cancel is None or cancel.after_s is None else whole_ns(cancel.after_s)
        self._cancel_after_chunks = None if cancel is None else cancel.after_chunks
        self._retry = load.retry
        self._warmup_ns = whole_ns(load.warmup_s)
        self._duration_ns = None if load.duration_s is None else whole_ns(load.duration_s)
        offer = _Offer(
            mode=load.mode,
            plan=timing,
            warmup_ns=self._warmup_ns,
            duration_ns=self._duration_ns,
            count=load.count,
            max_in_flight=load.max_in_flight,
            retry=load.retry,
        )
        self._feeders = make_feeders(offer, START_NS)
        self._feeder = self._feeders.feeder
        drain_ns = whole_ns(load.drain_s)
        # A run may end from `_window_end_ns` on, once its measured ticks have; at `_stop_ns`, if there is one, it does.
        last_due_ns = self._feeders.last_due_ns
        self._window_end_ns, self._stop_ns = last_due_ns or START_NS, last_due_ns + drain_ns if last_due_ns else None
        if self._duration_ns is not None:
            self._window_end_ns = START_NS + self._warmup_ns + self._duration_ns
            self._stop_ns = self._window_end_ns + drain_ns
        # Where an end makes something due, it can't be passed over on the way to the next arrival.
        self._ends_matter = load.mode != Mode.OPEN or load.retry is not None
        self._flights: dict[int, _Flight] = {}  # by attempt
        self._arrivals: deque[tuple[int, _Flight]] = deque()  # on their way to the engine, in order
        self._last_arrival_ns = START_NS - _PRIMING_NS
        self._landings: deque[_Landing] = deque()  # in order: all of them travel alike
        self._looks: list[tuple[int, int, _Flight]] = []
        self._numbers = itertools.count()
        self._planned: dict[int, Tick] = {}
        self._taken = 0
        self.interrupted = False
        self.now_ns = START_NS

    def prime(self, requests: Iterable[tuple[int, Item]]) -> list[tuple[Item, Sequence]]:
        """Send items, each with its index, one after the other before the run; UsageError for one that can't be served.

        What they leave is in the engine's prefix cache, where it has one.
        """
        at, sent = START_NS - _PRIMING_NS, []
        for index, item in requests:
            try:
                output_tokens, _ = self._reply(item)
            except ApiError as error:
                raise UsageError(f"load.prime: a priming request can't be served: {error}") from None
            seq = self._engine.submit(at, item.input_tokens, output_tokens, blocks=self._blocks.of(index, item))
            self._engine.drain()
            if seq is None or seq.end_ns is None or seq.end_ns >= START_NS:
                raise UsageError("load.prime: the engine refuses or never ends a priming request; change the profile")
            at = seq.end_ns
            sent.append((item, seq))
        return sent

    def counts(self) -> dict[str, float]:
        """How far the run got, as a worker reports it; `elapsed_s` is simulated time."""
        return {
            "sent": self._taken,
            "done": self._taken - len(self._flights),
            "in_flight": len(self._flights),
            "waiting": self._feeder.waiting(self.now_ns),
            "elapsed_s": (self.now_ns - START_NS) / 1e9,
        }

    def answers(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Answer]:
        """Every tick's answer, as they end; at the run's end those under way, and ticks that were never sent.

        `stop` is asked now and then; True interrupts the run.
        """
        feeder, landings, looks = self._feeder, self._landings, self._looks
        for turn in itertools.count(1):
            now = self._next_ns()
            if now is None:
                break
            self.now_ns = now
            self._run_engine(now)
            while landings and landings[0].at_ns <= now:
                yield from self._land(landings.popleft())
            while looks and looks[0][0] <= now:
                yield from self._look(heapq.heappop(looks)[2], now)
            while (due := feeder.next_due_ns()) is not None and due <= now:
                self._send(feeder.take(), now)
            if self._over(now):
                break
            if turn % _ASK_EVERY == 0 and stop():
                self.interrupted = True
                break
        yield from self._cut(self.now_ns)
        yield from self._never_sent()

    def _next_ns(self) -> int | None:
        """The next time at which something is to be done; None when nothing ever is."""
        looks, now = self._looks, self.now_ns
        while looks and looks[0][2].ended:
            heapq.heappop(looks)
        due = self._feeder.next_due_ns()
        over = self._window_end_ns if now < self._window_end_ns else self._stop_ns
        # Where ends matter, and once all is sent, they are asked for; else the way to the next arrival is one leap.
        end = self._next_end_ns() if due is None or self._ends_matter or now >= self._window_end_ns else None
        return min([ns for ns in (due, over, end, looks[0][0] if looks else None) if ns is not None], default=None)

    def _next_end_ns(self) -> int | None:
        """The client sees no answer's end before this time if it does nothing before; None when it never sees one."""
        if self._landings:
            return self._landings[0].at_ns
        if self._arrivals:
            return self._arrivals[0][0] - self._ingress_ns
        event = self._engine.next_event_ns()
        return None if event is None else event + self._egress_ns

    def _over(self, now: int) -> bool:
        if now < self._window_end_ns:
            return False
        return self._feeder.measured_left == 0 or (self._stop_ns is not None and now >= self._stop_ns)

    def _run_engine(self, now: int) -> None:
        """Run the engine to where it meets what the client does `now`."""
        until, arrivals = now + self._ingress_ns, self._arrivals
        while arrivals and arrivals[0][0] <= until:
            at_ns, flight = arrivals.popleft()
            self._finished(self._engine.run_until(at_ns))
            if not flight.ended:
                self._arrive(flight, at_ns)
        self._finished(self._engine.run_until(until))

    def _finished(self, sequences: Iterable[Sequence]) -> None:
        for seq in sequences:
            assert seq.end_ns is not None and isinstance(seq.tag, int)
            flight = self._flights[seq.tag]
            outcome = Outcome.CANCELLED if flight.cut else Outcome.OK
            self._landings.append(_Landing(seq.end_ns + self._egress_ns, flight, outcome, 200, None))

    # Sending.

    def _send(self, tick: Tick, now: int) -> None:
        self._planned.pop(tick.attempt, None)
        self._taken += tick.tries == 0
        item = self._workload.item(tick.task, text=self._lengths_need_text)
        flight = self._flights[tick.attempt] = _Flight(tick, item, now)
        self._last_arrival_ns = max(now + self._ingress_ns, self._last_arrival_ns + self._gap_ns)
        self._arrivals.append((self._last_arrival_ns, flight))
        self._watch(flight, now)

    def _arrive(self, flight: _Flight, at_ns: int) -> None:
        """Hand a request to the engine, which may refuse it."""
        item = flight.item
        try:
            output_tokens, flight.finish_reason = self._reply(item)
        except ApiError as error:
            self._refused(flight, at_ns, Outcome.HTTP_ERROR, error.status, str(error))
            return
        limit = self._cancel_after_chunks if item.cancel else None
        if limit is not None and limit < output_tokens:
            # A client that leaves after k tokens does to the engine what a reply of k tokens does.
            flight.cut, output_tokens = True, limit
        blocks = self._blocks.of(flight.tick.task, item)
        flight.seq = self._engine.submit(
            at_ns, item.input_tokens, output_tokens, blocks=blocks, tag=flight.tick.attempt
        )
        if flight.seq is None:
            status = self._engine.config.overload_status
            self._refused(flight, at_ns, Outcome.REJECTED, status, "the queue is full")

    def _refused(self, flight: _Flight, at_ns: int, outcome: Outcome, status: int, why: str) -> None:
        self._landings.append(_Landing(at_ns + self._egress_ns, flight, outcome, status, f"HTTP {status}: {why}"))

    @property
    def _lengths_need_text(self) -> bool:
        return self._engine.config.mean_output_tokens is not None and not self._manifest.sampling.ignore_eos

    def _reply(self, item: Item) -> tuple[int, str]:
        """How many tokens the engine gives, and its finish_reason, as its endpoints decide it."""
        source = _NO_SOURCE
        if self._lengths_need_text:
            chat = self._manifest.endpoint.dialect == "openai_chat"
            text = item.prompt
            source = token_source(orjson.dumps([{"role": "user", "content": text}]) if chat else text.encode())
        body: dict[str, Any] = {"max_tokens": item.max_tokens, "ignore_eos": self._manifest.sampling.ignore_eos}
        return output_length(body, self._engine.config, source, item.input_tokens)

    # Limits and planned cancellation.

    def _watch(self, flight: _Flight, now: int) -> None:
        # Nothing that happens from now on can set a deadline nearer than the shortest limit.
        limits = self._limits
        look = now + min(limits.first_byte_ns, limits.idle_ns, limits.total_ns)
        heapq.heappush(self._looks, (min(look, self._deadline(flight)[0]), next(self._numbers), flight))

    def _deadline(self, flight: _Flight) -> tuple[int, str]:
        """When the client gives `flight` up as things stand, and by which limit ("" for the plan's cancellation)."""
        limits, sent = self._limits, flight.sent_ns
        at, limit = sent + limits.first_byte_ns, "first_byte"
        # An answer that isn't streamed comes whole, so that all of it is the wait for its first byte.
        if self._manifest.endpoint.stream and flight.seq is not None:
            last = self._engine.last_token_ns(flight.seq, self.now_ns - self._egress_ns)
            if last is not None:
                at, limit = last + self._egress_ns + limits.idle_ns, "idle"
        if sent + limits.total_ns <= at:
            at, limit = sent + limits.total_ns, "total"
        if flight.item.cancel and self._cancel_after_ns is not None and sent + self._cancel_after_ns < at:
            at, limit = sent + self._cancel_after_ns, ""
        return at, limit

    def _look(self, flight: _Flight, now: int) -> Iterator[Answer]:
        if flight.ended:
            return
        at, limit = self._deadline(flight)
        if at > now:
            self._watch(flight, now)
        elif limit:
            error = limit_passed(f"{limit}_s", getattr(self._limits, f"{limit}_ns"))
            yield self._aborted(flight, Outcome.TIMEOUT, error, now)
        else:
            yield self._aborted(flight, Outcome.CANCELLED, None, now)

    # Ends.

    def _land(self, landing: _Landing) -> Iterator[Answer]:
        if not landing.flight.ended:
            yield self._ended(landing.flight, landing.outcome, landing.status, landing.error, landing.at_ns)

    def _aborted(self, flight: _Flight, outcome: Outcome, error: str | None, now: int) -> Answer:
        if flight.seq is not None:
            self._engine.cancel(flight.seq, now + self._ingress_ns)
        # A stream's headers come at once, those of a whole answer with it.
        headed = self._manifest.endpoint.stream and now >= flight.sent_ns + self._ingress_ns + self._egress_ns
        return self._ended(flight, outcome, 200 if headed else None, error, now)

    def _ended(self, flight: _Flight, outcome: Outcome, status: int | None, error: str | None, end_ns: int) -> Answer:
        flight.ended = True
        tick, seq = flight.tick, flight.seq
        del self._flights[tick.attempt]
        if self._feeders.freed is not None:
            self._feeders.freed(end_ns)
        self._hand_back(tick, outcome, end_ns)
        times, batches, headed_ns = _NO_TIMES, _NO_BATCHES, None
        if seq is not None:
            if self._manifest.endpoint.stream:
                headed_ns = seq.arrival_ns + self._egress_ns
            times, batches = self._engine.token_times(seq) + self._egress_ns, self._engine.decode_batches(seq)
            times = times[: times.searchsorted(end_ns, "right")]
        finish_reason = flight.finish_reason if outcome is Outcome.OK else None
        told = (outcome, status, error, finish_reason, end_ns)
        return Answer(tick, flight.item, True, seq, *told, times, batches, headed_ns)

    def _hand_back(self, tick: Tick, outcome: Outcome, end_ns: int) -> None:
        """Tell the feeder of an end; a failed task may be tried again."""
        retries, policy = self._feeders.retries, self._retry
        if retries is not None and policy is not None and outcome in policy.outcomes:
            delay_s = retry_delay_s(policy, tick.tries, None)
            if delay_s is not None:
                again = retries.again(tick, end_ns + whole_ns(delay_s))
                self._planned[again.attempt] = again
                return
        self._feeder.ended(tick, end_ns, failed=outcome is not Outcome.OK)

    def _cut(self, now: int) -> Iterator[Answer]:
        """The run is over: whoever is under way is cut."""
        error = INTERRUPTED if self.interrupted else CUT_BY_DRAIN
        for flight in list(self._flights.values()):
            yield self._aborted(flight, Outcome.UNFINISHED, error, now)

    def _never_sent(self) -> Iterator[Answer]:
        for tick in itertools.chain(self._planned.values(), self._untaken()):
            item = self._workload.item(tick.task, text=False)
            yield Answer(tick, item, False, None, Outcome.UNSENT, None, None, None, None, _NO_TIMES, _NO_BATCHES)

    def _untaken(self) -> Iterable[Tick]:
        """The ticks of a frozen schedule that were not taken: the last ones, since they are taken in order."""
        if isinstance(self._timing, ClosedPlan):
            return
        for i, offset in enumerate(self._timing.offsets_ns[self._taken :].tolist(), start=self._taken):
            phase = phase_of(offset, self._warmup_ns, self._duration_ns)
            yield Tick(i, START_NS + offset, 0, phase, -1, i)
