"""One run: plan its load, send it, close its bundle."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbench.core.clocks import ClockBase
from tfbench.core.kinds import RunStatus
from tfbench.core.version import VERSION
from tfbench.ledger.bundle import write_bundle_in_batches
from tfbench.ledger.schemas import TABLES
from tfbench.load import stamps
from tfbench.load.assemble import Assembler
from tfbench.load.job import Limits, LoadJob
from tfbench.load.signals import measure_signals
from tfbench.load.supervise import LoadEnd, run_load
from tfbench.load.tally import Tally
from tfbench.load.target import Target
from tfbench.manifest import Frozen, Manifest, RunPlan, adapter
from tfbench.schedule import build_schedule
from tfbench.study.watch import Watcher
from tfbench.verdict.validity import signals_with_limits
from tfbench.workload import build_workload

_NS = 1_000_000_000


@dataclass(frozen=True)
class StudyContext:
    """What all runs of a study share."""

    study_id: str
    created_ns: int
    frozen: Frozen
    target: Target
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    observed: dict[str, Any]
    probe_attempt: dict[str, Any]
    host: dict[str, Any]
    bundles: Path
    use_stamps: bool
    workers: int = 1
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class RunDone:
    """A closed bundle and what the judgement needs.

    `outcomes` counts the measured attempts, `tried` all that ended by themselves; `first_error` is one's text.
    """

    run_id: str
    bundle: Path
    status: RunStatus
    signals: dict[str, Any]
    notes: tuple[str, ...]
    outcomes: dict[str, int]
    tried: dict[str, int]
    first_error: str


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


def sampling_of(manifest: Manifest) -> dict[str, Any]:
    """The sampling parameters to send: those that are set."""
    given = manifest.sampling.model_dump(exclude={"max_tokens"}, exclude_none=True)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value != ()}


def make_jobs(context: StudyContext, plan: RunPlan, run_id: str) -> list[LoadJob]:
    """The workers' jobs of one run, each with its spool beside the bundles."""
    manifest = context.frozen.manifest
    workers = context.workers
    load = manifest.load
    limits = manifest.endpoint.timeouts
    cancel = load.cancel
    timing = build_schedule(manifest, plan)
    profile = adapter(manifest.endpoint.adapter)
    return [
        LoadJob(
            run_id=run_id,
            worker=worker,
            workers=workers,
            target=context.target,
            headers=context.headers,
            dialect=str(manifest.endpoint.dialect),
            model=manifest.model.name,
            stream=manifest.endpoint.stream,
            include_usage=profile.include_usage,
            sampling=sampling_of(manifest),
            workload=build_workload(manifest, plan),
            mode=load.mode,
            plan=timing,
            warmup_ns=_ns(load.warmup_s),
            duration_ns=None if load.duration_s is None else _ns(load.duration_s),
            count=load.count,
            drain_ns=_ns(load.drain_s),
            max_in_flight=load.max_in_flight,
            limits=Limits(_ns(limits.connect_s), _ns(limits.first_byte_s), _ns(limits.idle_s), _ns(limits.total_s)),
            use_stamps=context.use_stamps,
            keep_text=manifest.storage.text,
            retry=load.retry,
            cancel_after_ns=None if cancel is None or cancel.after_s is None else _ns(cancel.after_s),
            cancel_after_chunks=None if cancel is None else cancel.after_chunks,
            connections=manifest.endpoint.connections,
            preconnect=manifest.endpoint.preconnect,
            secrets=context.secrets,
            spool_path=str(context.bundles / f"{run_id}.spool-{worker}"),
        )
        for worker in range(workers)
    ]


def run_one(context: StudyContext, plan: RunPlan, watcher: Watcher, stop: Callable[[], int]) -> RunDone:
    """Execute `plan` and close its bundle; what a dead worker left is in it too. `stop` as for `run_load`."""
    run_id = f"{context.study_id}-p{plan.point_index}r{plan.repeat}"
    jobs = make_jobs(context, plan, run_id)
    base = ClockBase.start()
    end = run_load(jobs, on_progress=lambda counts: watcher.progress(plan, counts), stop=stop)
    return close_run(context, plan, run_id, jobs, base, end)


def close_run(
    context: StudyContext, plan: RunPlan, run_id: str, jobs: list[LoadJob], base: ClockBase, end: LoadEnd
) -> RunDone:
    """Read the spools, write the bundle, remove the spools."""
    assembler = Assembler(run_id, jobs, end, base, str(context.host.get("name")))
    tally = assembler.tally
    dead = tuple(worker.dead for worker in end.workers if worker.dead)
    status = RunStatus.INTERRUPTED if end.interrupted else RunStatus.FAILED if dead else RunStatus.COMPLETE
    manifest = context.frozen.manifest
    signals: dict[str, Any] = {}

    def facts() -> dict[str, Any]:
        # Known only once every batch went by.
        measured = measure_signals(str(manifest.load.mode), tally, assembler.summaries, end)
        signals.update(signals_with_limits(measured, manifest.slo.ttft_ms))
        start_ns, end_ns = _window(manifest, tally, end, base)
        return {
            "study_id": context.study_id,
            "created_ns": context.created_ns,
            "tfbench_version": VERSION,
            "host": context.host,
            "run_id": run_id,
            "manifest_id": context.frozen.manifest_id,
            "workload_id": context.frozen.workload_id,
            "system_id": context.frozen.system_id,
            "mode": str(manifest.load.mode),
            "load_value": plan.load_value,
            "repeat": plan.repeat,
            "order_index": plan.order_index,
            "seed": plan.seed,
            "schedule_sha256": jobs[0].plan.sha256,
            "status": status.value,
            "measure_start_ns": start_ns,
            "measure_end_ns": end_ns,
            "observed": _observed(context, jobs, assembler.summaries, base),
            "signals": signals,
            "origin": "measured",
        }

    bundle = write_bundle_in_batches(
        context.bundles / run_id,
        manifest=context.frozen.document,
        batches=itertools.chain(_probe_batch(context, plan, run_id), assembler.batches()),
        run=facts,
    )
    for worker in end.workers:
        worker.spool_path.unlink(missing_ok=True)
    return RunDone(run_id, bundle, status, signals, dead, dict(tally.outcomes), dict(tally.tried), tally.first_error)


def _probe_batch(context: StudyContext, plan: RunPlan, run_id: str) -> Iterator[dict[str, Any]]:
    """The probe's row, in the study's first run."""
    if plan.order_index == 0 and context.probe_attempt:
        import pyarrow as pa

        row = {**context.probe_attempt, "run_id": run_id, "host": context.host.get("name")}
        yield {"attempts": pa.Table.from_pylist([row], schema=TABLES["attempts"])}


def _observed(
    context: StudyContext, jobs: list[LoadJob], summaries: list[dict[str, Any]], base: ClockBase
) -> dict[str, Any]:
    first = summaries[0] if summaries else {}
    return {
        **context.observed,
        "address": context.target.shown_address,
        "stamps": "kernel" if context.use_stamps else "user",
        "timer": first.get("timer"),
        "scheduling": first.get("scheduling"),
        "connection_policy": jobs[0].connections,
        "connections": sum(one["connections"] for one in summaries),
        "workers": len(jobs),
        # Ticks of the frozen schedule, all phases; a closed loop has none.
        "schedule_count": len(jobs[0].plan.offsets_ns) if hasattr(jobs[0].plan, "offsets_ns") else None,
        "clock_offset_ns": base.offset_ns,
    }


def _window(manifest: Manifest, tally: Tally, end: LoadEnd, base: ClockBase) -> tuple[int, int]:
    load = manifest.load
    start_ns = end.start_ns + base.offset_ns
    if load.duration_s is not None:
        measure_start = start_ns + _ns(load.warmup_s)
        return measure_start, measure_start + _ns(load.duration_s)
    # With a count the window runs from the first measured schedule to the last end, that one included.
    first = start_ns if tally.first_scheduled_ns is None else tally.first_scheduled_ns
    return first, max(tally.last_end_ns or 0, first) + 1


def stamps_available() -> bool:
    """Whether this host stamps received bytes in the kernel."""
    return stamps.probe()
