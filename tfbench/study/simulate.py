"""A study in virtual time: the manifest's own load against the reference engine's scheduler, into the same ledger.

Schedules, seeds, prompts' lengths and ids are those that `run_study` would have; what lies between client and scheduler
takes what the profile says. Same manifest, same profile: the same figures, to the last bit.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.core.errors import Interrupted, UsageError
from tfbench.core.kinds import Outcome, RunStatus
from tfbench.engine.config import EngineConfig
from tfbench.ledger.bundle import write_bundle_in_batches
from tfbench.load.signals import tally_signals
from tfbench.load.tally import Tally
from tfbench.manifest import Manifest, RunPlan, expand, freeze
from tfbench.schedule import Schedule, build_schedule
from tfbench.study.host import host_facts
from tfbench.study.interrupts import counted_interrupts
from tfbench.study.notes import sample_size_notes, warehouse_notes
from tfbench.study.prime import cache_facts, prime_items
from tfbench.study.record import RunDone, Study, StudyDone, keep, kept_words, measured_window, new_study, run_row
from tfbench.study.simulated_tables import SIMULATED, prime_table, tables
from tfbench.study.virtual_client import START_NS, VirtualClient
from tfbench.study.watch import Silent, StudyPlan, Watcher
from tfbench.verdict.validity import INVALID, signals_with_limits
from tfbench.warehouse import Warehouse

_PROGRESS_EVERY_S = 0.25
_NO_LAGS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class System:
    """An engine to simulate, and what its profile is called."""

    name: str
    config: EngineConfig


def simulate_study(
    manifest: Manifest, warehouse: Path, systems: Sequence[System], watcher: Watcher | None = None
) -> StudyDone:
    """Simulate every load point × repeat of `manifest` on each of `systems` and keep the facts in `warehouse`.

    Several systems are the study's arms, each named after its profile. Raises UsageError for systems that can't be
    told apart and where no request is answered well, WarehouseError or StorageError when facts can't be kept, and
    Interrupted after Ctrl-C, with what finished already in the warehouse.
    """
    watcher = watcher or Silent()
    names = [system.name for system in systems]
    double = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if double is not None:
        raise UsageError(f'two profiles are named "{double}"; arms are told apart by their names, so rename one')
    for system in systems:
        check_system(system)
    frozen = freeze(manifest)
    notes = warehouse_notes(warehouse)
    Warehouse.open(warehouse).close()
    study = new_study(frozen, warehouse, host_facts() | {"simulated": True, "profiles": names})
    plans = expand(frozen.manifest)
    arms = [(plan, system) for plan in plans for system in systems]
    if len(systems) > 1:
        arms = [(dataclasses.replace(plan, arm=system.name, pair=plan.order_index), system) for plan, system in arms]
    runs = [(dataclasses.replace(plan, order_index=i), system) for i, (plan, system) in enumerate(arms)]
    load = frozen.manifest.load
    run_s = None if load.duration_s is None else load.warmup_s + load.duration_s
    notes += sample_size_notes(frozen.manifest, plans)
    watcher.study_started(
        StudyPlan(study.study_id, manifest.name, tuple(plan for plan, _ in runs), run_s, notes, simulated=True)
    )
    return _run_all(study, runs, warehouse, watcher)


def check_system(system: System) -> None:
    """Raises UsageError for an engine that can't be simulated."""
    if any(system.config.misbehave.shares.values()):
        raise UsageError(
            f"{system.name}: [misbehave] breaks responses on their way, of which there are none in virtual time; "
            "leave it out"
        )


def _run_all(study: Study, runs: Sequence[tuple[RunPlan, System]], warehouse: Path, watcher: Watcher) -> StudyDone:
    invalid = 0
    tried: Counter[str] = Counter()
    last_error = ""
    where = f"study {study.study_id} in {warehouse}"
    for done_count, (plan, system) in enumerate(runs, start=1):
        watcher.run_started(plan)
        with counted_interrupts() as presses:
            done = simulate_run(study, plan, system, watcher, presses)
            end = keep(study, plan, done, warehouse)
            interrupted = presses() > 0
        invalid += any(verdict.verdict == INVALID for verdict in end.verdicts)
        tried.update(done.tried)
        last_error = done.first_error or last_error
        watcher.run_ended(end)
        if interrupted:
            raise Interrupted(f"interrupted: {kept_words(done_count, len(runs), warehouse, study.study_id)}")
    if not tried[Outcome.OK]:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in tried.items() if count)
        raise UsageError(
            f"no simulated request was answered well ({last_error or ends or 'none was sent'}); change the manifest or "
            f"the profile; the facts are kept as {where}"
        )
    return StudyDone(study.study_id, warehouse, len(runs), invalid)


def simulate_run(
    study: Study, plan: RunPlan, system: System, watcher: Watcher, presses: Callable[[], int] = lambda: 0
) -> RunDone:
    """Simulate one run and close its bundle. `presses` says how often Ctrl-C was pressed: any stops the run."""
    manifest = study.frozen.manifest
    timing = build_schedule(manifest, plan)
    client = VirtualClient(manifest, plan, system.config, timing)
    arm = "" if plan.arm is None else f"-{plan.arm}"
    run_id = f"{study.study_id}-p{plan.point_index}r{plan.repeat}{arm}"
    primes = client.prime(prime_items(manifest, plan))
    tally = Tally()
    signals: dict[str, Any] = {}
    said = time.monotonic()

    def stop() -> bool:
        nonlocal said
        if time.monotonic() - said >= _PROGRESS_EVERY_S:
            said = time.monotonic()
            watcher.progress(plan, client.counts())
        return presses() > 0

    def batches() -> Iterator[dict[str, Any]]:
        if primes:
            yield prime_table(run_id, str(study.host.get("name")), primes)
        answers = client.answers(stop)
        for batch in tables(run_id, str(study.host.get("name")), answers, stream=manifest.endpoint.stream):
            tally.add(batch["attempts"], batch["streams"], _NO_LAGS)
            yield batch

    def status() -> RunStatus:
        return RunStatus.INTERRUPTED if client.interrupted else RunStatus.COMPLETE

    def facts() -> dict[str, Any]:
        signals.update(signals_with_limits(tally_signals(str(manifest.load.mode), tally), manifest.slo.ttft_ms))
        return run_row(
            study,
            plan,
            run_id,
            schedule_sha256=timing.sha256,
            status=status(),
            window_ns=measured_window(manifest, START_NS, tally),
            observed={
                "profile": system.name,
                "engine": dataclasses.asdict(system.config),
                "stamps": SIMULATED,
                # Every simulated run begins with an engine of its own, whose cache is empty.
                "cache": cache_facts(manifest, len(primes), flushed=False),
                "schedule_count": len(timing.offsets_ns) if isinstance(timing, Schedule) else None,
            },
            signals=signals,
            origin=SIMULATED,
        )

    bundle = write_bundle_in_batches(
        study.bundles / run_id, manifest=study.frozen.document, batches=batches(), run=facts
    )
    return RunDone(run_id, bundle, status(), signals, (), dict(tally.outcomes), dict(tally.tried), tally.first_error)
