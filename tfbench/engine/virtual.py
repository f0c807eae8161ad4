"""The scheduler in virtual time: no clock, no sockets; a day of traffic takes seconds.

    engine = VirtualEngine(config)
    seq = engine.submit(arrival_ns, prompt_tokens=512, output_tokens=200, tag=anything)   # None: refused (overload)
    for done in engine.run_until(t_ns): engine.token_times(done)                          # int64 ns, one per token

Times are int64 ns on the caller's scale and never go back: each call's time is at least the last one's. What happens
at one instant goes in this order: steps end, then the caller's submissions and cancellations of that instant, then the
next step is planned, even one that takes no time. So hand in everything due at t after `run_until(t)` and before asking
`next_event_ns()`, which plans. `serve` does all of it for arrays of requests.

Steps that are alike are computed together, as one array of their ends, up to the next that differs; the times are
those of stepping one by one, to the nanosecond.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfbench.engine.config import EngineConfig
from tfbench.engine.scheduler import Sequence, Step, make_scheduler
from tfbench.engine.step_time import duration_ns, durations_ns

Int64s = npt.NDArray[np.int64]

_LONGEST_RUN = 512
"""Steps computed together at most: an arrival may come and make the rest of them moot."""
_BEFORE_ALL_NS = -(1 << 63)


class VirtualEngine:
    """One engine whose time is the caller's."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.scheduler = make_scheduler(config)
        self._model = config.step_model
        self._now = _BEFORE_ALL_NS
        self._free_at = _BEFORE_ALL_NS  # when the last step ended, or an idle engine was last looked at
        self._step: Step | None = None
        self._steps = 0
        self._ends: Int64s | None = None  # of the steps under way; None when it is one
        self._last_end = 0
        self._decode_ends = np.empty(1024, np.int64)  # by the scheduler's count of decode steps
        self._decode_seqs = np.empty(1024, np.int32)  # how many were in it
        self._submitted = 0
        self._done: list[Sequence] = []

    @property
    def now_ns(self) -> int:
        """The latest time handed in."""
        return self._now

    def submit(
        self, now_ns: int, prompt_tokens: int, output_tokens: int, *, blocks: Items[int] = (), tag: object = None
    ) -> Sequence | None:
        """A request that arrives at `now_ns`; None when the engine refuses it: its queue is full.

        `blocks` are the chained hashes of the prompt's first full blocks (`tfbench.engine.kv.chain`,
        `segment_blocks`), for prefix reuse; `tag` comes back as `seq.tag`. Raises ValueError for one that could never
        be served: prompt + output may be `config.context_tokens` at most.
        """
        self._advance(now_ns)
        if self.scheduler.admits_by_blocks:
            self._commit_until(now_ns)
        seq = self.scheduler.admit(self._submitted, prompt_tokens, output_tokens, now_ns, blocks=tuple(blocks), tag=tag)
        self._submitted += 1
        step = self._step
        if seq is not None and self._ends is not None and step is not None and step.open:
            self._cut(int(self._ends.searchsorted(now_ns)) + 1)
        return seq

    def cancel(self, seq: Sequence, now_ns: int) -> None:
        """The client of `seq` leaves at `now_ns`: slot and KV are free at once. No effect on one that has ended.

        A cancelled sequence is in no list of finished ones; its `end_ns` is `now_ns`, and `token_times` gives the
        tokens it got.
        """
        self._advance(now_ns)
        self._commit_until(now_ns)
        self._cut(1)
        self.scheduler.cancel(seq, now_ns)

    def next_event_ns(self) -> int | None:
        """When sequences may finish next if nothing is handed in before; None when there is no work.

        Nothing finishes before that time. It may pass without a finish: then ask again.
        """
        if self._step is None:
            self._plan()
        return None if self._step is None else self._last_end

    def run_until(self, t_ns: int) -> list[Sequence]:
        """Let time pass to `t_ns`; the sequences that finished since the last call, by their end, `t_ns` included."""
        self._advance(t_ns)
        done, self._done = self._done, []
        return done

    def drain(self) -> list[Sequence]:
        """Run until no work is left; the sequences that finished since the last call, by their end."""
        while (t_ns := self.next_event_ns()) is not None:
            self._advance(max(t_ns, self._now))
        done, self._done = self._done, []
        return done

    def token_times(self, seq: Sequence) -> Int64s:
        """When each of the `generated` tokens of `seq` was produced: int64 ns, ascending.

        Raises ValueError while it is being served; cancel it, and it has ended.
        """
        if seq.end_ns is None:
            raise ValueError(f"sequence {seq.seq_id} has not ended")
        if len(seq.spans) == 1:
            ((first_ns, start, stop),) = seq.spans
            times = np.empty(1 + stop - start, np.int64)
            times[0] = first_ns
            times[1:] = self._decode_ends[start:stop]
            return times
        parts = [np.empty(0, np.int64)]
        for first_ns, start, stop in seq.spans:
            parts += (np.array([first_ns], np.int64), self._decode_ends[start:stop])
        return np.concatenate(parts)

    def decode_batches(self, seq: Sequence) -> npt.NDArray[np.int32]:
        """How many sequences decoded in each of the decode steps of `seq`, which has ended, itself included."""
        parts = [self._decode_seqs[start:stop] for _, start, stop in seq.spans]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int32), *parts])

    def last_token_ns(self, seq: Sequence, t_ns: int) -> int | None:
        """When `seq` got the last of its tokens up to `t_ns`, which is `now_ns` at most; None where it had none."""
        for first_ns, start, stop in reversed(seq.spans):
            if first_ns > t_ns:
                continue
            if stop < 0:  # it decodes
                over = 0 if self._ends is None else int(self._ends.searchsorted(t_ns, "right"))
                if self._ends is not None and over:
                    return int(self._ends[over - 1])
                stop = self.scheduler.decode_steps
            seen = int(self._decode_ends[start:stop].searchsorted(t_ns, "right"))
            return int(self._decode_ends[start + seen - 1]) if seen else first_ns
        return None

    def _plan(self) -> None:
        """Begin what comes next, when the last step ended."""
        step = self._step = self.scheduler.plan_step(self._free_at)
        if step is None:
            return
        self._steps = min(step.steady, _LONGEST_RUN)
        if self._steps == 1:
            self._ends = None
            self._last_end = step.start_ns + duration_ns(self._model, step.work)
        else:
            ends = durations_ns(self._model, step.work, self._steps)
            ends[0] += step.start_ns
            self._ends = np.add.accumulate(ends, out=ends)
            self._last_end = int(ends[-1])

    def _cut(self, steps: int) -> None:
        """Of the steps under way let only the first `steps` be."""
        if self._ends is None or steps >= self._steps:
            return
        self._steps = steps
        self._ends = self._ends[:steps]
        self._last_end = int(self._ends[-1])

    def _commit(self) -> None:
        """The steps under way are over."""
        step, steps, end_ns = self._step, self._steps, self._last_end
        if step is None:
            return
        if step.work.decode_seqs:
            start = self.scheduler.decode_steps
            if start + steps > self._decode_ends.size:
                self._decode_ends = np.concatenate((self._decode_ends, np.empty_like(self._decode_ends)))
                self._decode_seqs = np.concatenate((self._decode_seqs, np.empty_like(self._decode_seqs)))
            self._decode_seqs[start : start + steps] = step.work.decode_seqs
            if self._ends is None:
                self._decode_ends[start] = end_ns
            else:
                self._decode_ends[start : start + steps] = self._ends
        self._done += self.scheduler.finish_steps(step, steps, end_ns)
        self._step = self._ends = None
        self._free_at = end_ns

    def _commit_until(self, now_ns: int) -> None:
        """Of steps that are computed together those that are over, so that the scheduler is as of now."""
        over = 0 if self._ends is None else int(self._ends.searchsorted(now_ns, "right"))
        if over:
            self._cut(over)
            self._commit()
            if self._free_at < now_ns:
                self._plan()

    def _advance(self, t_ns: int) -> None:
        if t_ns < self._now:
            raise ValueError(f"time goes back from {self._now} to {t_ns}")
        self._now = t_ns
        while True:
            if self._step is None:
                if self._free_at >= t_ns:
                    return
                self._plan()
                if self._step is None:
                    self._free_at = t_ns
                    return
            if self._last_end > t_ns:
                return
            self._commit()


@dataclass(frozen=True, slots=True)
class Served:
    """What became of n requests, in the order given. Times are int64 ns; -1 where there is none (a refused request).

    accepted        bool[n]; False: refused, the queue was full
    first_step_ns, first_token_ns, end_ns   int64[n]
    cached_tokens, preemptions              int64[n]
    """

    accepted: npt.NDArray[np.bool_]
    first_step_ns: Int64s
    first_token_ns: Int64s
    end_ns: Int64s
    cached_tokens: Int64s
    preemptions: Int64s
    engine: VirtualEngine
    sequences: list[Sequence | None]

    def token_times(self, index: int) -> Int64s:
        """When each output token of request `index` was produced: int64[output_tokens]; empty for a refused one."""
        seq = self.sequences[index]
        return np.empty(0, np.int64) if seq is None else self.engine.token_times(seq)


def serve(
    config: EngineConfig,
    arrival_ns: Int64s,
    prompt_tokens: Int64s,
    output_tokens: Int64s,
    *,
    blocks: Items[Items[int]] | None = None,
) -> Served:
    """Serve n requests, ascending in `arrival_ns` (int64[n]), by one engine, until the last has ended.

    `blocks[i]`: block hashes of request i, for prefix reuse. Raises ValueError for arrays that don't fit together, and
    for a request that could never be served.
    """
    engine = VirtualEngine(config)
    rows = zip(arrival_ns.tolist(), prompt_tokens.tolist(), output_tokens.tolist(), strict=True)
    if blocks is None:
        sequences = [engine.submit(at, prompt, output) for at, prompt, output in rows]
    else:
        sequences = [
            engine.submit(at, prompt, output, blocks=keys)
            for (at, prompt, output), keys in zip(rows, blocks, strict=True)
        ]
    engine.drain()

    def column(name: str) -> Int64s:
        values = (None if seq is None else getattr(seq, name) for seq in sequences)
        return np.array([-1 if value is None else value for value in values], dtype=np.int64)

    return Served(
        accepted=np.array([seq is not None for seq in sequences], dtype=np.bool_),
        first_step_ns=column("first_step_ns"),
        first_token_ns=column("first_token_ns"),
        end_ns=column("end_ns"),
        cached_tokens=column("cached_tokens"),
        preemptions=column("preemptions"),
        engine=engine,
        sequences=sequences,
    )
