"""One run: plan its load, send it, close its bundle."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tfbench.core.clocks import ClockBase
from tfbench.core.kinds import RunStatus
from tfbench.ledger.bundle import write_bundle_in_batches
from tfbench.ledger.schemas import TABLES
from tfbench.load import stamps
from tfbench.load.assemble import Assembler
from tfbench.load.job import LoadJob
from tfbench.load.signals import measure_signals
from tfbench.load.supervise import LoadEnd, run_load
from tfbench.load.target import Target
from tfbench.manifest import RunPlan
from tfbench.schedule import build_schedule
from tfbench.study.hooks import Lifecycle
from tfbench.study.record import RunDone, Study, limits_of, measured_window, run_row, sampling_of, whole_ns
from tfbench.study.watch import Watcher
from tfbench.verdict.validity import signals_with_limits
from tfbench.workload import build_workload


@dataclass(frozen=True)
class StudyContext(Study):
    """What all runs of a measured study share, and, once made `ready`, what is one run's own.

    `requests_beside`: rows of `attempts`, without run and host, of requests that are served beside the load. `salt`:
    see `record.study_salt`; None takes the manifest's.
    """

    target: Target
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    observed: dict[str, Any]
    use_stamps: bool
    workers: int = 1
    secrets: tuple[str, ...] = field(default=(), repr=False)
    lifecycle: Lifecycle | None = None
    requests_beside: tuple[dict[str, Any], ...] = ()
    salt: str | None = None


def make_jobs(context: StudyContext, plan: RunPlan, run_id: str) -> list[LoadJob]:
    """The workers' jobs of one run, each with its spool beside the bundles."""
    manifest = context.frozen.manifest
    workers = context.workers
    load = manifest.load
    cancel = load.cancel
    timing = build_schedule(manifest, plan)
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
            include_usage=bool(context.observed.get("include_usage", True)),
            sampling=sampling_of(manifest),
            fields=manifest.endpoint.fields,
            workload=build_workload(manifest, plan, context.salt),
            mode=load.mode,
            plan=timing,
            warmup_ns=whole_ns(load.warmup_s),
            duration_ns=None if load.duration_s is None else whole_ns(load.duration_s),
            count=load.count,
            drain_ns=whole_ns(load.drain_s),
            max_in_flight=load.max_in_flight,
            limits=limits_of(manifest),
            use_stamps=context.use_stamps,
            keep_text=manifest.storage.text,
            retry=load.retry,
            cancel_after_ns=None if cancel is None or cancel.after_s is None else whole_ns(cancel.after_s),
            cancel_after_chunks=None if cancel is None else cancel.after_chunks,
            connections=str(manifest.endpoint.connections),
            preconnect=manifest.endpoint.preconnect,
            closes_idle_ns=None if context.lifecycle is None else context.lifecycle.closes_idle_ns,
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
    watcher.waiting("the load's workers to start")
    end = run_load(jobs, on_progress=lambda counts: watcher.progress(plan, counts), stop=stop)
    watcher.waiting("the run's facts to be kept and judged")
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
        return run_row(
            context,
            plan,
            run_id,
            schedule_sha256=jobs[0].plan.sha256,
            status=status,
            window_ns=measured_window(manifest, end.start_ns + base.offset_ns, tally),
            observed=_observed(context, jobs, assembler.summaries, base),
            signals=signals,
            origin="measured",
            restart=None if context.lifecycle is None else context.lifecycle.restarts,
        )

    bundle = write_bundle_in_batches(
        context.bundles / run_id,
        manifest=context.frozen.document,
        batches=itertools.chain(_beside(context, run_id), assembler.batches()),
        run=facts,
    )
    if context.lifecycle is not None:
        for one in assembler.summaries:
            context.lifecycle.closes_idle(one["closes_idle_ns"])
    for worker in end.workers:
        worker.spool_path.unlink(missing_ok=True)
    return RunDone(run_id, bundle, status, signals, dead, dict(tally.outcomes), dict(tally.tried), tally.first_error)


def _beside(context: StudyContext, run_id: str) -> Iterator[dict[str, Any]]:
    """The rows of what was sent beside the load: probes and primes."""
    if context.requests_beside:
        import pyarrow as pa

        own = {"run_id": run_id, "host": context.host.get("name")}
        rows = [{**row, **own} for row in context.requests_beside]
        yield {"attempts": pa.Table.from_pylist(rows, schema=TABLES["attempts"])}


def _observed(
    context: StudyContext, jobs: list[LoadJob], summaries: list[dict[str, Any]], base: ClockBase
) -> dict[str, Any]:
    first = summaries[0] if summaries else {}
    closed_ns = min((one["closes_idle_ns"] for one in summaries if one["closes_idle_ns"] is not None), default=None)
    return {
        **context.observed,
        "address": context.target.shown_address,
        "stamps": "kernel" if context.use_stamps else "user",
        "timer": first.get("timer"),
        "scheduling": first.get("scheduling"),
        "connection_policy": jobs[0].connections,
        "connections": sum(one["connections"] for one in summaries),
        "closed_idle_ms": None if closed_ns is None else round(closed_ns / 1e6, 1),
        "lost_to_closing": sum(one["crossed"] for one in summaries),
        "workers": len(jobs),
        # Ticks of the frozen schedule, all phases; a closed loop has none.
        "schedule_count": len(jobs[0].plan.offsets_ns) if hasattr(jobs[0].plan, "offsets_ns") else None,
        "clock_offset_ns": base.offset_ns,
    }


def stamps_available() -> bool:
    """Whether this host stamps received bytes in the kernel."""
    return stamps.probe()
