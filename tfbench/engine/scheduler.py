"""Which sequences each step of the engine serves: batching, admission, preemption.

Pure: no clock, no sockets, no asyncio. Whoever drives it says what time it is, so the same code serves in real time
and in virtual time. The order is first come, first served.

    planned = scheduler.plan_step(now)            # what the next step computes, and who is in it
    ... the step takes duration_ns(model, planned.work) ...
    finished = scheduler.finish_step(planned, now + duration)

Iteration-level batching: a step gives every decoding sequence one token, and spends what is left of the budget on
prompts, in chunks where a prompt is longer. The step that computes a prompt's last token yields the sequence's first
output token. Without chunked prefill a prompt is computed whole, in a step that decodes nothing. With static batching
nobody joins until the whole batch is done.

A step in which nobody can join or end may be repeated: `Step.steady` says how often, and `finish_steps` takes the ends
of all of them. The result is that of planning each.
"""

import itertools
from collections import OrderedDict
from dataclasses import dataclass

from tfbench.bounds import Work, chunk_pairs
from tfbench.engine.batch import Batch, Sequence
from tfbench.engine.config import EngineConfig
from tfbench.engine.kv import KvCache

__all__ = ["Scheduler", "Sequence", "Step", "StepResult", "make_scheduler"]


@dataclass(slots=True, eq=False)
class Step:
    """A planned step.

    prefills  (sequence, tokens): the prompt chunks it computes
    work      what it has to do; `work.decode_seqs` sequences get a token each beside those whose prompt it completes
    slots     sequences that hold a slot; in a static batch also for those that have ended
    steady    how many steps like this may follow one another, it included, before the scheduler must be asked again
    open      whether one that arrives now could be in the step that follows
    """

    start_ns: int
    prefills: tuple[tuple[Sequence, int], ...]
    work: Work
    slots: int
    steady: int
    open: bool


@dataclass(slots=True, eq=False)
class StepResult:
    """Sequences that a step gave one token each: in slot order, the decoding ones first."""

    emitted: tuple[Sequence, ...]


class Scheduler:
    """Decides which sequences each step serves.

    At most `max_num_seqs` sequences run at a time, at most `max_num_batched_tokens` tokens are computed a step, and
    at most `max_waiting` wait beyond those that find a slot and blocks. `kv`: None where KV has no limit and no reuse.

    A sequence is taken up when there are blocks for its whole prompt. When decoding ones need more blocks than there
    are, the last to come loses its slot and its blocks and waits at the head of the queue, to compute its tokens anew.
    The first to come never does, so there is always progress.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_waiting: int,
        static: bool = False,
        chunked_prefill: bool = True,
        kv: KvCache | None = None,
    ) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < max_num_seqs:
            raise ValueError("needs 1 <= max_num_seqs <= max_num_batched_tokens")
        self.kv = kv
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._max_waiting = max_waiting
        self._static = static
        self._chunked = chunked_prefill
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._running: OrderedDict[int, Sequence] = OrderedDict()  # in order of arrival
        self._prefilling: OrderedDict[int, Sequence] = OrderedDict()
        self._batch = Batch(None if kv is None or kv.total is None else kv.block_tokens)
        self._batch_slots = 0  # of the static batch
        self._joining = 0  # members of it that wait for the budget
        self._in_flight: Step | None = None

    @property
    def running(self) -> int:
        """Sequences that are being served."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._waiting)

    @property
    def decoding(self) -> tuple[Sequence, ...]:
        """The sequences that decode, in slot order."""
        return tuple(self._batch.seqs.values())

    @property
    def decode_steps(self) -> int:
        """Steps so far in which sequences decoded; what `Sequence.spans` counts in."""
        return self._batch.steps

    @property
    def next_arrival_ns(self) -> int | None:
        """Arrival of the sequence at the head of the queue."""
        head = next(iter(self._waiting.values()), None)
        return None if head is None else head.arrival_ns

    def admit(
        self,
        seq_id: int,
        prompt_tokens: int,
        output_tokens: int,
        now: int,
        *,
        blocks: tuple[int, ...] = (),
        tag: object = None,
    ) -> Sequence | None:
        """Queue a sequence that arrives at `now` (never before an earlier one); None when the queue is full.

        `blocks` are the hashes of the prompt's first full blocks, for prefix reuse. Raises ValueError for one that
        has no tokens, more blocks than its prompt fills, or more tokens than the whole KV holds.
        """
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError("a sequence has at least one prompt token and one output token")
        kv = self.kv
        if kv is not None:
            if kv.total is not None and prompt_tokens + output_tokens > kv.total * kv.block_tokens:
                raise ValueError(
                    f"{prompt_tokens} + {output_tokens} tokens never fit into {kv.total} blocks of {kv.block_tokens}"
                )
            if len(blocks) * kv.block_tokens > prompt_tokens:
                raise ValueError(f"{prompt_tokens} prompt tokens don't fill {len(blocks)} blocks of {kv.block_tokens}")
        seq = Sequence(seq_id, prompt_tokens, output_tokens, now, blocks, tag)
        if len(self._waiting) >= self._max_waiting and len(self._waiting) + 1 > self._max_waiting + self._places(seq):
            return None
        self._waiting[seq_id] = seq
        return seq

    def _places(self, last: Sequence) -> int:
        """How many of those waiting, and `last` after them, find a slot and, as far as is known now, blocks."""
        if self._static and self._batch_slots:
            return 0
        slots = self._max_num_seqs - len(self._running)
        kv = self.kv
        if kv is None or kv.total is None:
            return slots
        room, places, claimed = kv.available, 0, set[int]()
        for seq in itertools.chain(self._waiting.values(), (last,)):
            room -= kv.takes(seq.target, seq.blocks, claimed)
            if room < 0 or places == slots:
                break
            places += 1
        return places

    def cancel(self, seq: Sequence, now: int) -> None:
        """Free what `seq` holds at once; a step under way gives it nothing. No effect on one that has ended."""
        if seq.end_ns is not None:
            return
        seq.cancelled = True
        seq.end_ns = now
        if seq.seq_id not in self._waiting:
            self._give_up_slot(seq)
            return
        if seq.seq_id in itertools.islice(self._waiting, max(self._joining, 0)):
            self._joining -= 1  # its place in the static batch stays empty
        del self._waiting[seq.seq_id]

    @property
    def admits_by_blocks(self) -> bool:
        """Whether it depends on free blocks of KV if the next sequence is refused."""
        return self.kv is not None and self.kv.total is not None and len(self._waiting) >= self._max_waiting

    def plan_step(self, now: int) -> Step | None:
        """The step that starts at `now`, of the sequences that have arrived by then; None when there are none."""
        if self._in_flight is not None:
            raise RuntimeError("the step before has not finished")
        batch = self._batch
        if not self._chunked and (prefills := self._prefill(now, self._budget, whole=True)):
            decoding, budget = 0, 0
        else:
            if batch.seqs and self.kv is not None and self.kv.total is not None:
                self._grow(now, self.kv)
            decoding = len(batch.seqs)
            budget = self._budget - decoding
            prefills = self._prefill(now, budget, whole=False) if self._chunked else []
        if prefills:
            step = self._mixed_step(now, prefills, decoding)
        elif decoding:
            step = self._decode_step(now, decoding, budget)
        else:
            return None
        self._in_flight = step
        return step

    def finish_step(self, step: Step, now: int) -> StepResult:
        """Account for `step`, which ends at `now`: the tokens it gave."""
        decoding = self._batch.seqs.values() if step.work.decode_seqs else ()
        emitted = [*decoding]
        self._decoded(step, 1, now)
        for seq, tokens in step.prefills:
            if self._prefilled(seq, tokens, step.start_ns, now):
                emitted.append(seq)
        return StepResult(tuple(emitted))

    def finish_steps(self, step: Step, steps: int, now: int) -> list[Sequence]:
        """Account for `step`, done `steps` times (up to `step.steady`), the last of which ends at `now`.

        The sequences that ended with it.
        """
        if not 1 <= steps <= step.steady:
            raise ValueError(f"a step that is steady for {step.steady} can't be done {steps} times")
        ended = self._decoded(step, steps, now)
        for seq, tokens in step.prefills:
            if self._prefilled(seq, tokens, step.start_ns, now) and seq.end_ns is not None:
                ended.append(seq)
        return ended

    def _decode_step(self, now: int, decoding: int, budget: int) -> Step:
        """A step without prompts: it can be repeated until a sequence ends or blocks run short."""
        batch, head = self._batch, next(iter(self._waiting.values()), None)
        work = Work(0, decoding, batch.context_tokens)
        slots = self._batch_slots if self._static else len(self._running)
        free_slot = len(self._running) < self._max_num_seqs and not self._static
        can_join = head is None and free_slot and (budget > 0 or not self._chunked)
        if head is not None and head.arrival_ns > now:
            return Step(now, (), work, slots, 1, True)
        steady = batch.until_end()
        if steady > 1 and self.kv is not None and self.kv.total is not None:
            steady = 1 + batch.steps_within(self.kv.available, steady - 1)
        return Step(now, (), work, slots, steady, can_join)

    def _mixed_step(self, now: int, prefills: list[tuple[Sequence, int]], decoding: int) -> Step:
        tokens = done = pairs = completed = 0
        for seq, chunk in prefills:
            tokens += chunk
            done += seq.prefilled
            pairs += chunk_pairs(chunk, seq.prefilled)
            completed += seq.prefilled + chunk == seq.target
        context = self._batch.context_tokens if decoding else 0
        work = Work(tokens, decoding, context, done, pairs, completed)
        slots = self._batch_slots if self._static else len(self._running)
        return Step(now, tuple(prefills), work, slots, 1, True)

    def _prefill(self, now: int, budget: int, *, whole: bool) -> list[tuple[Sequence, int]]:
        """Chunks of prompts within `budget`, taking up waiting sequences; `whole`: no part of one, but one at least."""
        prefills: list[tuple[Sequence, int]] = []
        for seq in self._prefilling.values():
            if budget <= 0:
                return prefills
            tokens = min(budget, seq.target - seq.prefilled)
            prefills.append((seq, tokens))
            budget -= tokens
        if self._waiting:
            if self._static and not self._running:
                self._batch_slots = self._joining = self._arrived(now)
            while budget > 0:
                taken = self._take_up(now, budget if whole and prefills else None)
                if taken is None:
                    break
                todo = taken.target - taken.prefilled
                tokens = todo if whole else min(budget, todo)
                prefills.append((taken, tokens))
                budget -= tokens
        return prefills

    def _arrived(self, now: int) -> int:
        """How many of those waiting make up a static batch."""
        count = 0
        for seq in self._waiting.values():
            if seq.arrival_ns > now or count == self._max_num_seqs:
                break
            count += 1
        return count

    def _take_up(self, now: int, budget: int | None) -> Sequence | None:
        """Give the head of the queue a slot and its blocks; None while it can't have them.

        With a `budget` also None when it has more than that to compute.
        """
        seq = next(iter(self._waiting.values()), None)
        if seq is None or seq.arrival_ns > now or len(self._running) >= self._max_num_seqs:
            return None
        if self._static and self._joining == 0:
            return None
        kv = self.kv
        if budget is not None and seq.target > budget:
            cached = 0 if kv is None else kv.cached_tokens(seq.target, seq.blocks)
            if seq.target - cached > budget:
                return None
        if kv is not None:
            seq.table = kv.open(seq.target, seq.blocks)
            if seq.table is None:
                self._joining = 0
                return None
            seq.prefilled = seq.table.cached_tokens
        del self._waiting[seq.seq_id]
        self._running[seq.seq_id] = self._prefilling[seq.seq_id] = seq
        self._joining -= 1
        if seq.first_step_ns is None:
            seq.first_step_ns = now
            seq.cached_tokens = seq.prefilled
        return seq

    def _grow(self, now: int, kv: KvCache) -> None:
        """Give a new block to each sequence whose next token begins one, preempting the last to come as needed."""
        growing = self._batch.growing(0)
        while len(growing) > kv.available:
            self._preempt(next(reversed(self._running.values())), now)
        kv.grow(growing, 1)

    def _preempt(self, seq: Sequence, now: int) -> None:
        self._give_up_slot(seq)
        seq.preempted_ns += (now,)
        seq.target = seq.prompt_tokens + seq.generated
        seq.prefilled = 0
        self._waiting[seq.seq_id] = seq
        self._waiting.move_to_end(seq.seq_id, last=False)

    def _give_up_slot(self, seq: Sequence) -> None:
        if self._prefilling.pop(seq.seq_id, None) is None:
            self._batch.leave(seq)
        self._leave(seq)

    def _leave(self, seq: Sequence) -> None:
        del self._running[seq.seq_id]
        if self.kv is not None and seq.table is not None:
            self.kv.close(seq.table)
            seq.table = None
        if not self._running:
            self._batch_slots = 0

    def _decoded(self, step: Step, steps: int, now: int) -> list[Sequence]:
        """Account for the tokens of the decoding sequences; those that ended."""
        if step is not self._in_flight:
            raise RuntimeError("not the step under way")
        self._in_flight = None
        if not step.work.decode_seqs:
            return []
        batch, kv = self._batch, self.kv
        if steps > 1 and kv is not None and kv.total is not None:
            self._grow_ahead(steps - 1, kv)
        ended = batch.advance(steps)
        for seq in ended:
            seq.end_ns = now
            self._leave(seq)
        return ended

    def _grow_ahead(self, steps: int, kv: KvCache) -> None:
        """The blocks that were begun in the `steps` steps after the first one of a run."""
        period = kv.block_tokens
        for ahead in range(1, min(steps, period) + 1):
            if growing := self._batch.growing(ahead):
                kv.grow(growing, (steps - ahead) // period + 1)

    def _prefilled(self, seq: Sequence, tokens: int, start_ns: int, now: int) -> bool:
        """Account for a chunk; whether it gave a token."""
        if seq.cancelled:
            return False
        seq.prefilled += tokens
        seq.chunks += ((start_ns, now, tokens),)
        if self.kv is not None and seq.table is not None and seq.blocks:
            self.kv.publish(seq.table, seq.blocks, seq.prefilled)
        if seq.prefilled < seq.target:
            return False
        del self._prefilling[seq.seq_id]
        if seq.first_token_ns is None:
            seq.first_token_ns = now
        self._batch.join(seq, now)
        if seq.generated == seq.output_tokens:
            self._batch.leave(seq)
            seq.end_ns = now
            self._leave(seq)
        return True


def make_scheduler(config: EngineConfig) -> Scheduler:
    """The scheduler of an engine with these settings."""
    kv = None
    if config.kv_total_blocks is not None or config.prefix_reuse:
        kv = KvCache(config.kv_total_blocks, config.block_tokens, reuse=config.prefix_reuse)
    return Scheduler(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_waiting=config.max_waiting,
        static=config.batching == "static",
        chunked_prefill=config.chunked_prefill,
        kv=kv,
    )
