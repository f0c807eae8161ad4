"""Iteration-level (continuous) batching under a sequence limit and a token budget.

Pure: no clock, no sockets, no asyncio. Whoever drives it says what time it is, so the same code serves in real time
and in virtual time. The order is first come, first served.

    planned = scheduler.plan_step(now)            # what the next step computes, and who is in it
    ... the step takes duration_ns(model, planned.work) ...
    finished = scheduler.finish_step(planned, now + duration)

A step gives every decoding sequence one token, and spends what is left of the budget on prompts, in chunks where a
prompt is longer. The step that computes a prompt's last token yields the sequence's first output token.
"""

from collections import OrderedDict
from dataclasses import dataclass

from tfbench.engine.step_time import Work


@dataclass(slots=True, eq=False)
class Sequence:
    """One admitted request and how far it got. Times are the driver's, in ns; None = not there yet."""

    seq_id: int
    prompt_tokens: int
    output_tokens: int
    arrival_ns: int
    prefilled: int = 0
    generated: int = 0
    prefill_steps: int = 0
    first_step_ns: int | None = None
    first_token_ns: int | None = None
    end_ns: int | None = None
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        """Whether every token was produced."""
        return self.generated == self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step: prompt chunks as (sequence, tokens), and the sequences that decode one token each."""

    start_ns: int
    prefills: tuple[tuple[Sequence, int], ...]
    decodes: tuple[Sequence, ...]
    work: Work


@dataclass(frozen=True, slots=True)
class StepResult:
    """Sequences that a step gave one token, and how many prompt tokens of theirs it completed."""

    emitted: tuple[Sequence, ...]
    prompt_tokens: int


class Scheduler:
    """Decides which sequences each step serves.

    At most `max_num_seqs` sequences run at a time, at most `max_num_batched_tokens` tokens are computed a step, and
    at most `max_waiting` sequences wait beyond the free slots.
    """

    def __init__(self, *, max_num_seqs: int, max_num_batched_tokens: int, max_waiting: int) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < max_num_seqs:
            raise ValueError("needs 1 <= max_num_seqs <= max_num_batched_tokens")
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._prefilling: dict[int, Sequence] = {}
        self._decoding: dict[int, Sequence] = {}
        self._context_tokens = 0
        self._in_flight: Step | None = None

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._waiting)

    @property
    def next_arrival_ns(self) -> int | None:
        """Arrival of the sequence at the head of the queue."""
        head = next(iter(self._waiting.values()), None)
        return None if head is None else head.arrival_ns

    def admit(self, seq_id: int, prompt_tokens: int, output_tokens: int, now: int) -> Sequence | None:
        """Queue a sequence that arrives at `now` (never before an earlier one); None when the queue is full."""
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError("a sequence has at least one prompt token and one output token")
        if len(self._waiting) >= self._max_waiting + max(self._max_num_seqs - self.running, 0):
            return None
        seq = Sequence(seq_id, prompt_tokens, output_tokens, now)
        self._waiting[seq_id] = seq
        return seq

    def cancel(self, seq: Sequence, now: int) -> None:
        """Free what `seq` holds at once; a step under way gives it nothing. No effect on one that has ended."""
        if seq.end_ns is not None:
            return
        seq.cancelled = True
        seq.end_ns = now
        if self._waiting.pop(seq.seq_id, None) is None and self._prefilling.pop(seq.seq_id, None) is None:
            self._leave_decoding(seq)

    def plan_step(self, now: int) -> Step | None:
        """The step that starts at `now`, of the sequences that have arrived by then; None when there are none."""
        if self._in_flight is not None:
            raise RuntimeError("the step before has not finished")
        decodes = tuple(self._decoding.values())
        budget = self._budget - len(decodes)
        prefills: list[tuple[Sequence, int]] = []
        for seq in self._prefilling.values():
            if budget == 0:
                break
            tokens = min(budget, seq.prompt_tokens - seq.prefilled)
            prefills.append((seq, tokens))
            budget -= tokens
        while budget and self._waiting and self.running < self._max_num_seqs:
            seq_id, seq = next(iter(self._waiting.items()))
            if seq.arrival_ns > now:
                break
            del self._waiting[seq_id]
            self._prefilling[seq_id] = seq
            seq.first_step_ns = now
            tokens = min(budget, seq.prompt_tokens)
            prefills.append((seq, tokens))
            budget -= tokens
        if not decodes and not prefills:
            return None
        prefill_tokens = self._budget - len(decodes) - budget
        work = Work(prefill_tokens, len(decodes), self._context_tokens)
        self._in_flight = Step(now, tuple(prefills), decodes, work)
        return self._in_flight

    def finish_step(self, step: Step, now: int) -> StepResult:
        """Account for `step`, which ends at `now`: every token it gave, in slot order, decoding sequences first."""
        if step is not self._in_flight:
            raise RuntimeError("not the step under way")
        self._in_flight = None
        emitted: list[Sequence] = []
        prompt_tokens = 0
        for seq in step.decodes:
            if not seq.cancelled:
                seq.generated += 1
                self._context_tokens += 1
                emitted.append(seq)
                if seq.generated == seq.output_tokens:
                    seq.end_ns = now
                    self._leave_decoding(seq)
        for seq, tokens in step.prefills:
            if seq.cancelled:
                continue
            seq.prefilled += tokens
            seq.prefill_steps += 1
            if seq.prefilled == seq.prompt_tokens:
                del self._prefilling[seq.seq_id]
                seq.first_token_ns = now
                seq.generated = 1
                prompt_tokens += seq.prompt_tokens
                emitted.append(seq)
                if seq.output_tokens == 1:
                    seq.end_ns = now
                else:
                    self._decoding[seq.seq_id] = seq
                    self._context_tokens += seq.prompt_tokens + 1
        return StepResult(tuple(emitted), prompt_tokens)

    def _leave_decoding(self, seq: Sequence) -> None:
        del self._decoding[seq.seq_id]
        self._context_tokens -= seq.prompt_tokens + seq.generated
