"""The scheduler driven one step at a time, every token noted: what the skipping of steps must equal."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tfbench.engine.config import EngineConfig
from tfbench.engine.scheduler import Scheduler, Sequence, Step, make_scheduler
from tfbench.engine.step_time import duration_ns


@dataclass(frozen=True)
class Arrival:
    """A request, and when its client leaves, if it does."""

    at_ns: int
    prompt: int
    output: int
    cancel_ns: int | None = None
    blocks: tuple[int, ...] = ()


@dataclass
class History:
    """What happened; `sequences[i]` is None where arrival i was refused, `token_ns[i]` has the times of its tokens."""

    sequences: list[Sequence | None] = field(default_factory=list)
    token_ns: list[list[int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def drive(
    config: EngineConfig,
    arrivals: list[Arrival],
    check: Callable[[Scheduler, Step], None] | None = None,
) -> History:
    """Serve `arrivals` (ascending). At one instant: a step ends, clients come and leave, the next step begins."""
    scheduler, model, history = make_scheduler(config), config.step_model, History()
    events: list[tuple[int, int, int]] = [(a.at_ns, 0, i) for i, a in enumerate(arrivals)]
    events += [(max(a.cancel_ns, a.at_ns), 1, i) for i, a in enumerate(arrivals) if a.cancel_ns is not None]
    events.sort()

    def happen(until_ns: int) -> None:
        while events and events[0][0] <= until_ns:
            at, kind, i = events.pop(0)
            if kind == 0:
                a = arrivals[i]
                history.sequences.append(scheduler.admit(i, a.prompt, a.output, at, blocks=a.blocks))
                history.token_ns.append([])
            elif (seq := history.sequences[i]) is not None:
                scheduler.cancel(seq, at)

    now = 0
    while True:
        happen(now)
        step = scheduler.plan_step(now)
        if step is None:
            if not events:
                return history
            now = events[0][0]
            continue
        history.steps.append(step)
        if check is not None:
            check(scheduler, step)
        end = now + duration_ns(model, step.work)
        happen(end - 1)
        for seq in scheduler.finish_step(step, end).emitted:
            history.token_ns[seq.seq_id].append(end)
        now = end
