"""The sequences that decode together: one token each a step, kept track of without touching them each step.

Every decode step counts one up in `steps`. A sequence that joined at step j and has r tokens to come ends when the
count is j + r, which a heap knows; its tokens' times are the ends of the decode steps it was in, a slice of them all.
Joining and leaving cost O(log n), a step O(1), however many sequences there are.
"""

from collections.abc import Collection
from heapq import heappop, heappush
from itertools import count

from tfbench.engine.kv import BlockTable


class Sequence:
    """One admitted request and how far it got. Times are the driver's, in ns; None = not there yet.

    prefilled      tokens of `target` that are computed or were found cached
    target         tokens to compute before the next token comes: the prompt and, after a preemption, what was
                   generated until then
    cached_tokens  prompt tokens that were found cached when it was first taken up
    chunks         (start_ns, end_ns, tokens) of each step that computed a part of `target`
    preempted_ns   when it lost its slot
    spans          (time of the first token, from, to): each stretch of tokens without preemption that is over, the
                   first token from a prefill, the others at the ends of decode steps `from` to `to` - 1
    batch_sum      the batch sizes of all its decode steps, summed, once it decodes no more
    tag            the driver's own
    """

    __slots__ = (
        "_batch",
        "_generated",
        "_joined",
        "_ticket",
        "arrival_ns",
        "batch_sum",
        "blocks",
        "cached_tokens",
        "cancelled",
        "chunks",
        "end_ns",
        "first_step_ns",
        "first_token_ns",
        "output_tokens",
        "preempted_ns",
        "prefilled",
        "prompt_tokens",
        "seq_id",
        "spans",
        "table",
        "tag",
        "target",
    )

    def __init__(
        self,
        seq_id: int,
        prompt_tokens: int,
        output_tokens: int,
        arrival_ns: int,
        blocks: tuple[int, ...] = (),
        tag: object = None,
    ) -> None:
        self.seq_id = seq_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.arrival_ns = arrival_ns
        self.blocks = blocks
        self.tag = tag
        self.target = prompt_tokens
        self.prefilled = 0
        self.cached_tokens = 0
        self.chunks: tuple[tuple[int, int, int], ...] = ()
        self.preempted_ns: tuple[int, ...] = ()
        self.spans: tuple[tuple[int, int, int], ...] = ()
        self.first_step_ns: int | None = None
        self.first_token_ns: int | None = None
        self.end_ns: int | None = None
        self.cancelled = False
        self.batch_sum = 0
        self.table: BlockTable | None = None
        self._generated = 0
        self._joined = 0
        self._ticket = -1
        self._batch: Batch | None = None

    @property
    def generated(self) -> int:
        """Tokens produced so far."""
        batch = self._batch
        return self._generated if batch is None else self._generated + batch.steps - self._joined

    @property
    def finished(self) -> bool:
        """Whether every token was produced."""
        return self.end_ns is not None and not self.cancelled

    @property
    def prefill_steps(self) -> int:
        """Steps that computed a part of it."""
        return len(self.chunks)

    @property
    def preemptions(self) -> int:
        """How often it lost its slot and KV, and had to compute its tokens anew."""
        return len(self.preempted_ns)


class Batch:
    """The decoding sequences. `context_tokens` sums prompt and output so far over them.

    With `block_tokens` it also knows whose tables begin a new block of KV in which step: those that do so in step s do
    so again in step s + block_tokens, so they fall into as many classes.
    """

    def __init__(self, block_tokens: int | None) -> None:
        self.steps = 0
        self.context_tokens = 0
        self._seq_steps = 0
        self.seqs: dict[int, Sequence] = {}
        self._tickets = count()
        self._ends: list[tuple[int, int, Sequence]] = []
        self._growing: list[dict[int, BlockTable]] = [{} for _ in range(block_tokens or 0)]

    def __len__(self) -> int:
        return len(self.seqs)

    def join(self, seq: Sequence, now: int) -> None:
        """`seq` got its token from a prefill that ended at `now`, and decodes from the next step on."""
        seq._generated += 1
        seq._joined = self.steps
        seq._batch = self
        seq._ticket = next(self._tickets)
        seq.batch_sum -= self._seq_steps
        seq.spans += ((now, self.steps, -1),)
        self.seqs[seq.seq_id] = seq
        self.context_tokens += seq.prompt_tokens + seq._generated
        heappush(self._ends, (self.steps + seq.output_tokens - seq._generated, seq._ticket, seq))
        if self._growing and seq.table is not None:
            self._growing[self._class_of(seq)][seq.seq_id] = seq.table

    def leave(self, seq: Sequence) -> None:
        """`seq` decodes no more."""
        if self._growing:
            del self._growing[self._class_of(seq)][seq.seq_id]
        del self.seqs[seq.seq_id]
        seq._generated += self.steps - seq._joined
        seq.batch_sum += self._seq_steps
        seq._batch = None
        seq._ticket = -1
        self.context_tokens -= seq.prompt_tokens + seq._generated
        first_ns, start, _ = seq.spans[-1]
        seq.spans = (*seq.spans[:-1], (first_ns, start, self.steps))

    def until_end(self) -> int:
        """Steps until the next sequence ends. There must be one."""
        ends = self._ends
        while ends[0][2]._ticket != ends[0][1]:
            heappop(ends)
        return ends[0][0] - self.steps

    def advance(self, steps: int) -> list[Sequence]:
        """`steps` steps are over, at most `until_end()`; the sequences that ended with the last one, which leave."""
        self.steps += steps
        self.context_tokens += steps * len(self.seqs)
        self._seq_steps += steps * len(self.seqs)
        ended: list[Sequence] = []
        ends = self._ends
        while ends and ends[0][0] <= self.steps:
            _, ticket, seq = heappop(ends)
            if seq._ticket == ticket:
                self.leave(seq)
                ended.append(seq)
        return ended

    def growing(self, ahead: int) -> Collection[BlockTable]:
        """The tables in which a new block begins `ahead` steps after the next one."""
        return self._growing[(self.steps + ahead) % len(self._growing)].values()

    def steps_within(self, blocks: int, limit: int) -> int:
        """How many steps after the next one, at most `limit`, begin no more than `blocks` new blocks together."""
        period = len(self._growing)
        cycles, left = divmod(blocks, len(self.seqs))
        ahead = cycles * period
        while ahead < limit:
            left -= len(self.growing(ahead + 1))
            if left < 0:
                return ahead
            ahead += 1
        return limit

    def _class_of(self, seq: Sequence) -> int:
        """A step that computes token t of a sequence (its first is 1) begins a block when t - 1 fills whole blocks."""
        first = seq.prompt_tokens + seq._generated  # the token that its first decode step computes
        return (seq._joined - first + 1) % len(self._growing)
