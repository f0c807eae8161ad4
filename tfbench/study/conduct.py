"""A study from a manifest: probe, run every load point and repeat, ingest, judge."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tfbench.core.errors import EndpointError, Interrupted
from tfbench.core.kinds import Outcome
from tfbench.core.redact import Redactor
from tfbench.manifest import Manifest, RunPlan, expand, freeze, resolve_headers
from tfbench.study.hooks import open_system
from tfbench.study.host import host_facts
from tfbench.study.interrupts import counted_interrupts
from tfbench.study.notes import sample_size_notes, warehouse_notes
from tfbench.study.ready import ready
from tfbench.study.record import RunDone, StudyDone, bundles_folder, keep, kept_words, new_study, study_salt
from tfbench.study.reruns import again_words, most_again, runs_again
from tfbench.study.run_one import StudyContext, run_one, stamps_available
from tfbench.study.watch import Silent, StudyPlan, Watcher
from tfbench.warehouse import Warehouse

_GONE = {Outcome.CONNECT_ERROR, Outcome.DISCONNECTED}


def run_study(
    manifest: Manifest,
    warehouse: Path,
    watcher: Watcher | None = None,
    *,
    workers: int = 1,
    reruns: int | None = None,
    wait_s: float | None = None,
) -> StudyDone:
    """Run every load point × repeat of `manifest` and keep the facts in `warehouse`.

    `workers` processes share each schedule by stride; what a run means is the same for any number. Runs in which this
    machine's client was so slow that it spoiled figures of the summary are made again, `reruns` at most (None: half as
    many as planned). `wait_s`: how long to wait for an endpoint that isn't ready, or isn't there; None waits a little
    for one that says so itself.

    Raises EndpointError when the endpoint isn't fit, WarehouseError or StorageError when facts can't
    be kept, and Interrupted after Ctrl-C, with what finished already in the warehouse.
    """
    watcher = watcher or Silent()
    notes = warehouse_notes(warehouse)
    context = open_study(manifest, warehouse, watcher, workers=workers, wait_s=wait_s)
    try:
        manifest = context.frozen.manifest
        plans = expand(manifest)
        load = manifest.load
        run_s = None if load.duration_s is None else load.warmup_s + load.duration_s
        notes += sample_size_notes(manifest, plans) + usage_notes(context)
        warmup_s = 0.0 if run_s is None else load.warmup_s
        watcher.study_started(StudyPlan(context.study_id, manifest.name, plans, run_s, notes, warmup_s=warmup_s))
        return _run_all(context, plans, warehouse, watcher, most_again(len(plans), reruns))
    finally:
        release(context)


def open_study(
    manifest: Manifest, warehouse: Path, watcher: Watcher, *, workers: int = 1, wait_s: float | None = None
) -> StudyContext:
    """What all runs of a new study share, once the endpoint has been probed. Raises as `run_study` does."""
    frozen = freeze(manifest)
    endpoint = frozen.manifest.endpoint
    headers = resolve_headers(endpoint)
    # A warehouse that can't be used is told before any load.
    Warehouse.open(warehouse).close()
    secrets_given = [headers[name] for name, value in endpoint.headers.items() if value.startswith("env:")]
    life = open_system(frozen.manifest, headers, Redactor(secrets_given), watcher, bundles_folder(warehouse), wait_s)
    assert life.target is not None
    with ExitStack() as undo:
        undo.callback(life.release)
        study = new_study(frozen, warehouse, host_facts())
        undo.pop_all()
    # Where the study chose the address itself, its runs know it; the frozen document and the ids don't.
    served = frozen.manifest.model_copy(update={"endpoint": endpoint.model_copy(update={"url": life.url})})
    return StudyContext(
        **vars(dataclasses.replace(study, frozen=dataclasses.replace(frozen, manifest=served))),
        target=life.target,
        headers=tuple(headers.items()),
        observed=life.observed,
        use_stamps=stamps_available(),
        workers=workers,
        secrets=tuple(secrets_given),
        lifecycle=life,
        salt=study_salt(served),
    )


def usage_notes(context: StudyContext) -> tuple[str, ...]:
    """What the probe found missing, said before the load."""
    if context.observed["usage"] or not context.frozen.manifest.endpoint.stream:
        return ()
    return ("the endpoint sends no usage: token counts, TPOT and token costs will be unknown",)


def release(*contexts: StudyContext) -> None:
    """Give the systems of these studies up: an engine that a study serves itself ends."""
    for context in contexts:
        if context.lifecycle is not None:
            context.lifecycle.release()


def is_gone(done: RunDone) -> bool:
    """Whether nobody answered any request of a run."""
    return bool(done.tried) and set(done.tried) <= _GONE


def _run_all(
    context: StudyContext, plans: Sequence[RunPlan], warehouse: Path, watcher: Watcher, reruns: int
) -> StudyDone:
    invalid = done_count = ok_count = 0
    last_error = ""
    where = f"study {context.study_id} in {warehouse}"
    made = list(plans)
    spoiled: list[float] = []
    # The list grows by what is made again, which may be spoiled itself.
    for place, plan in enumerate(made, start=1):
        prepared = ready(context, plan, watcher, kept_words(done_count, len(made), warehouse, context.study_id))
        watcher.run_started(plan)
        with counted_interrupts() as presses:
            done = run_one(prepared, plan, watcher, presses)
            end = keep(context, plan, done, warehouse)
            interrupted = presses() > 0
        done_count += 1
        invalid += not end.use.fit
        spoiled += [plan.load_value] if end.use.transient else []
        ok_count += done.tried.get(Outcome.OK, 0)
        last_error = done.first_error or last_error
        watcher.run_ended(end)
        if interrupted:
            raise Interrupted(f"interrupted: {kept_words(done_count, len(made), warehouse, context.study_id)}")
        if is_gone(done):
            raise EndpointError(
                f"{context.frozen.manifest.endpoint.url}: the endpoint is gone ({done.first_error}); "
                + kept_words(done_count, len(made), warehouse, context.study_id)
            )
        if place == len(made) and spoiled and reruns:
            again = runs_again(context.frozen.manifest, spoiled, made, reruns)
            watcher.runs_added(len(again), again_words(len(spoiled), "run"))
            made += again
            reruns -= len(again)
            spoiled = []
    if not ok_count:
        raise EndpointError(
            f"{context.frozen.manifest.endpoint.url}: no request was answered well ({last_error or 'none was sent'}); "
            f"the facts are kept as {where}"
        )
    return StudyDone(context.study_id, warehouse, done_count, invalid)
