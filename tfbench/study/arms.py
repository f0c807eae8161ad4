"""Two studies run against each other: base and candidate in turn, so that whatever drifts meets both alike."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tfbench.core.errors import EndpointError, Interrupted
from tfbench.core.kinds import Outcome
from tfbench.manifest import Manifest, RunPlan, expand
from tfbench.study.conduct import is_gone, open_study, release, usage_notes
from tfbench.study.interrupts import counted_interrupts
from tfbench.study.notes import sample_size_notes, warehouse_notes
from tfbench.study.ready import ready
from tfbench.study.record import keep, kept_words
from tfbench.study.reruns import again_words, most_again, runs_again
from tfbench.study.run_one import StudyContext, run_one
from tfbench.study.watch import Silent, StudyPlan, Watcher
from tfbench.verdict.spoiled import Stands, Use, figures_stand

BASE = "base"
CANDIDATE = "candidate"


@dataclass(frozen=True)
class ArmStudies:
    """Two open studies, how many repeats of each are done, and what to say before the first."""

    base: StudyContext
    candidate: StudyContext
    warehouse: Path
    repeats: int
    notes: tuple[str, ...]

    @property
    def contexts(self) -> dict[str, StudyContext]:
        return {BASE: self.base, CANDIDATE: self.candidate}


def open_arms(
    base: Manifest,
    candidate: Manifest,
    warehouse: Path,
    watcher: Watcher | None = None,
    *,
    workers: int = 1,
    wait_s: float | None = None,
) -> ArmStudies:
    """Both studies with their endpoints probed; nothing was sent yet. Raises as `run_study` does."""
    watcher = watcher or Silent()
    notes = warehouse_notes(warehouse)
    first = open_study(base, warehouse, watcher, workers=workers, wait_s=wait_s)
    with ExitStack() as undo:
        undo.callback(release, first)
        if base.endpoint.url == candidate.endpoint.url is not None:
            release(first)
        second = open_study(candidate, warehouse, watcher, workers=workers, wait_s=wait_s)
        undo.pop_all()
    # The runs of a pair have the same prompts.
    second = dataclasses.replace(second, salt=first.salt)
    notes += tuple(dict.fromkeys((*usage_notes(first), *usage_notes(second))))
    return ArmStudies(first, second, warehouse, 0, notes)


def run_arms(
    arms: ArmStudies, watcher: Watcher | None = None, stands: Stands | None = None, *, reruns: int | None = None
) -> ArmStudies:
    """As many repeats of every load point as the base's manifest plans, after those already done, in ABBA order.

    The two runs of a pair share a seed, so schedule and prompts; `pair` numbers them in both studies. Each arm's hooks
    serve that arm; where both are served at one URL, the one whose turn it is takes the other's place. Pairs in which
    a slow client spoiled what is asked (`stands`) are made again, `reruns` at most (None: half as many as planned).
    Raises as `run_study` does, with what finished kept.
    """
    try:
        return _run_arms(arms, watcher or Silent(), stands or figures_stand(), reruns)
    finally:
        release(arms.base, arms.candidate)


def _run_arms(arms: ArmStudies, watcher: Watcher, stands: Stands, reruns: int | None) -> ArmStudies:
    manifest = arms.base.frozen.manifest
    pairs = _pairs(manifest, arms.repeats)
    plans = tuple(_in_turn(pairs))
    load = manifest.load
    run_s = None if load.duration_s is None else load.warmup_s + load.duration_s
    name = f"{manifest.name} against {arms.candidate.frozen.manifest.name}"
    notes = () if arms.repeats else (*arms.notes, *sample_size_notes(manifest, expand(manifest)))
    watcher.study_started(StudyPlan(arms.base.study_id, name, plans, run_s, notes))
    answered: dict[str, int] = {BASE: 0, CANDIDATE: 0}
    made, left = list(plans), most_again(len(pairs), reruns)
    spoiled: dict[int, float] = {}
    # The list grows by what is made again, which may be spoiled itself.
    for count, plan in enumerate(made, start=1):
        ok, use = _run(arms, plan, count, len(made), watcher, stands)
        answered[str(plan.arm)] += ok
        if use.transient and plan.pair is not None:
            spoiled[plan.pair] = plan.load_value
        if count == len(made) and spoiled and left:
            again = runs_again(manifest, spoiled.values(), pairs, left)
            watcher.runs_added(2 * len(again), again_words(len(spoiled), "pair"))
            pairs += again
            made += _in_turn(again)
            left -= len(again)
            spoiled = {}
    if not answered[BASE]:
        # A candidate that answers nothing well has failed, and is judged; without a base there is nothing to judge by.
        raise EndpointError(f"{arms.base.frozen.manifest.endpoint.url}: no request of the base was answered well")
    return dataclasses.replace(arms, repeats=1 + max(plan.repeat for plan in pairs))


def _pairs(manifest: Manifest, done: int) -> list[RunPlan]:
    """The runs of either arm in further repeats, after `done` ones."""
    return [plan for plan in expand(manifest, done + manifest.load.repeats) if plan.repeat >= done]


def _in_turn(pairs: Iterable[RunPlan]) -> Iterator[RunPlan]:
    """The runs of both arms, a pair at a time: base first in even pairs, candidate first in odd ones."""
    for i, plan in enumerate(pairs):
        for arm in (BASE, CANDIDATE) if i % 2 == 0 else (CANDIDATE, BASE):
            yield dataclasses.replace(plan, arm=arm, pair=plan.order_index)


def _run(arms: ArmStudies, plan: RunPlan, count: int, total: int, watcher: Watcher, stands: Stands) -> tuple[int, Use]:
    """The `count`-th run, kept: how many of its requests were answered well, and what it is good for."""
    context = arms.contexts[str(plan.arm)]
    studies = (arms.base.study_id, arms.candidate.study_id)
    kept = kept_words(count, total, arms.warehouse, *studies)
    if len({one.frozen.manifest.endpoint.url for one in arms.contexts.values()}) == 1:
        release(arms.candidate if plan.arm == BASE else arms.base)
    prepared = ready(context, plan, watcher, kept_words(count - 1, total, arms.warehouse, *studies))
    watcher.run_started(plan)
    with counted_interrupts() as presses:
        done = run_one(prepared, plan, watcher, presses)
        end = keep(context, plan, done, arms.warehouse, stands)
        interrupted = presses() > 0
    watcher.run_ended(end)
    if interrupted:
        raise Interrupted(f"interrupted: {kept}")
    if is_gone(done):
        url = context.frozen.manifest.endpoint.url
        raise EndpointError(f"{url}: the endpoint is gone ({done.first_error}); {kept}")
    return done.tried.get(Outcome.OK, 0), end.use
