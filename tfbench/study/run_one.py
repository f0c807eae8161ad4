"""One run: plan its load, send it, close its bundle."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbench.core.clocks import ClockBase
from tfbench.core.kinds import Outcome, Phase, RunStatus
from tfbench.core.version import VERSION
from tfbench.ledger.bundle import write_bundle
from tfbench.load import stamps
from tfbench.load.assemble import Assembled, assemble, with_row
from tfbench.load.job import Limits, LoadJob
from tfbench.load.readback import read_worker
from tfbench.load.signals import measure_signals
from tfbench.load.supervise import LoadEnd, run_load
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
    facts = [read_worker(worker.spool_path, worker.worker) for worker in end.workers]
    assembled = assemble(run_id, jobs, end, facts, base, str(context.host.get("name")))
    mode = context.frozen.manifest.load.mode
    measured = measure_signals(mode, assembled, facts, end)
    ttft = context.frozen.manifest.slo.ttft_ms
    signals = signals_with_limits(measured, ttft)
    dead = tuple(worker.dead for worker in end.workers if worker.dead)
    status = RunStatus.INTERRUPTED if end.interrupted else RunStatus.FAILED if dead else RunStatus.COMPLETE
    start_ns, end_ns = _window(context.frozen.manifest, assembled, end, base)
    plan_hash = getattr(jobs[0].plan, "sha256", None)
    summary = [one.summary for one in facts if one.summary]
    observed = {
        **context.observed,
        "address": context.target.shown_address,
        "stamps": "kernel" if context.use_stamps else "user",
        "timer": summary[0]["timer"] if summary else None,
        "scheduling": summary[0]["scheduling"] if summary else None,
        "connection_policy": jobs[0].connections,
        "connections": sum(one["connections"] for one in summary),
        "workers": len(jobs),
        "clock_offset_ns": base.offset_ns,
    }
    run: dict[str, Any] = {
        "study_id": context.study_id,
        "created_ns": context.created_ns,
        "tfbench_version": VERSION,
        "host": context.host,
        "run_id": run_id,
        "manifest_id": context.frozen.manifest_id,
        "workload_id": context.frozen.workload_id,
        "system_id": context.frozen.system_id,
        "mode": str(mode),
        "load_value": plan.load_value,
        "repeat": plan.repeat,
        "order_index": plan.order_index,
        "seed": plan.seed,
        "schedule_sha256": plan_hash,
        "status": status.value,
        "measure_start_ns": start_ns,
        "measure_end_ns": end_ns,
        "observed": observed,
        "signals": signals,
        "origin": "measured",
    }
    tables = dict(assembled.tables)
    if plan.order_index == 0 and context.probe_attempt:
        probe = {**context.probe_attempt, "run_id": run_id, "host": context.host.get("name")}
        tables["attempts"] = with_row(tables["attempts"], probe)
    bundle = write_bundle(context.bundles / run_id, manifest=context.frozen.document, run=run, tables=tables)
    for worker in end.workers:
        worker.spool_path.unlink(missing_ok=True)
    attempts = assembled.tables["attempts"]
    pairs = list(zip(attempts["phase"].to_pylist(), attempts["outcome"].to_pylist(), strict=True))
    outcomes = Counter(outcome for phase, outcome in pairs if phase == Phase.MEASURE)
    # Retries and warm-up included: did anything at all get through?
    tried = Counter(outcome for _, outcome in pairs if outcome not in (Outcome.UNSENT, Outcome.UNFINISHED))
    error = next((text for text in attempts["error"].to_pylist() if text), "")
    return RunDone(run_id, bundle, status, signals, dead, dict(outcomes), dict(tried), error)


def _window(manifest: Manifest, assembled: Assembled, end: LoadEnd, base: ClockBase) -> tuple[int, int]:
    load = manifest.load
    start_ns = end.start_ns + base.offset_ns
    if load.duration_s is not None:
        measure_start = start_ns + _ns(load.warmup_s)
        return measure_start, measure_start + _ns(load.duration_s)
    # With a count the window runs from the first measured schedule to the last end, that one included.
    attempts = assembled.tables["attempts"].to_pydict()
    measured = [i for i, phase in enumerate(attempts["phase"]) if phase == Phase.MEASURE]
    first = min((attempts["scheduled_ns"][i] for i in measured), default=start_ns)
    last = max((attempts["end_ns"][i] or 0 for i in measured), default=0)
    return first, max(last, first) + 1


def stamps_available() -> bool:
    """Whether this host stamps received bytes in the kernel."""
    return stamps.probe()
