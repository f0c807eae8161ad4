"""A study from a manifest: probe, run every load point and repeat, ingest, judge."""

import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tfbench.core.errors import Interrupted, ManifestError, StorageError
from tfbench.core.kinds import Mode, RunStatus
from tfbench.load.target import resolve_target
from tfbench.manifest import Manifest, adapter, expand, freeze, resolve_headers
from tfbench.study.host import host_facts
from tfbench.study.notes import sample_size_notes
from tfbench.study.probe import probe_endpoint
from tfbench.study.run_one import RunDone, StudyContext, run_one, sampling_of, stamps_available
from tfbench.study.watch import RunEnd, Silent, StudyPlan, Watcher
from tfbench.verdict.stability import judge_stability
from tfbench.verdict.validity import INVALID, Verdict, judge_validity
from tfbench.warehouse import Warehouse


@dataclass(frozen=True)
class StudyDone:
    """A finished study: its id, how many runs are in the warehouse, and whether any is INVALID."""

    study_id: str
    warehouse: Path
    runs: int
    invalid: int


def bundles_folder(warehouse: Path) -> Path:
    """Where the bundles of a warehouse's runs lie: beside it."""
    return warehouse.with_name(warehouse.stem + ".bundles")


def run_study(
    manifest: Manifest, warehouse: Path, watcher: Watcher | None = None, *, workers: int = 1
) -> StudyDone:
    """Run every load point × repeat of `manifest` and keep the facts in `warehouse`.

    `workers` processes share each schedule by stride; what a run means is the same for any number.

    Raises EndpointError when the endpoint isn't fit, WarehouseError or StorageError when facts can't
    be kept, and Interrupted after Ctrl-C, with what finished already in the warehouse.
    """
    watcher = watcher or Silent()
    frozen = freeze(manifest)
    manifest = frozen.manifest
    endpoint = manifest.endpoint
    if endpoint.url is None:
        raise ManifestError("endpoint.url is missing; set it in the manifest or give --url URL")
    headers = resolve_headers(endpoint)
    # A warehouse that can't be used is told before any load.
    Warehouse.open(warehouse).close()
    target = resolve_target(endpoint.url, endpoint.timeouts.connect_s)
    probe = probe_endpoint(
        endpoint.url,
        headers=headers,
        model=manifest.model.name,
        dialect=str(endpoint.dialect),
        stream=endpoint.stream,
        include_usage=adapter(endpoint.adapter).include_usage,
        sampling=sampling_of(manifest),
        connect_s=endpoint.timeouts.connect_s,
        timeout_s=endpoint.timeouts.first_byte_s,
    )
    created_ns = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(created_ns // 1_000_000_000))
    study_id = f"{stamp}-{frozen.manifest_id[:6]}{secrets.token_hex(2)}"
    bundles = bundles_folder(warehouse) / study_id
    try:
        bundles.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"{bundles}: can't make the bundles' folder ({error.strerror})") from error
    context = StudyContext(
        study_id=study_id,
        created_ns=created_ns,
        frozen=frozen,
        target=target,
        headers=tuple(headers.items()),
        observed=probe.observed,
        probe_attempt=probe.attempt,
        host=host_facts(),
        bundles=bundles,
        use_stamps=stamps_available(),
        workers=workers,
    )
    plans = expand(manifest)
    load = manifest.load
    run_s = None if load.duration_s is None else load.warmup_s + load.duration_s
    notes = sample_size_notes(manifest, plans)
    if not probe.observed["usage"] and endpoint.stream:
        notes += ("the endpoint sends no usage: token counts, TPOT and token costs will be unknown",)
    watcher.study_started(StudyPlan(study_id, manifest.name, plans, run_s, notes))
    return _run_all(context, plans, warehouse, watcher)


def _run_all(context: StudyContext, plans: Sequence[Any], warehouse: Path, watcher: Watcher) -> StudyDone:
    invalid = 0
    done_count = 0
    for plan in plans:
        watcher.run_started(plan)
        done = run_one(context, plan, watcher)
        with _uninterrupted():
            end = _keep(context, plan, done, warehouse)
        done_count += 1
        invalid += any(verdict.verdict == INVALID for verdict in end.verdicts)
        watcher.run_ended(end)
        if done.status == RunStatus.INTERRUPTED:
            raise Interrupted(
                f"interrupted: {done_count} of {len(plans)} runs of study {context.study_id} are in {warehouse}"
            )
    return StudyDone(context.study_id, warehouse, done_count, invalid)


def _keep(context: StudyContext, plan: Any, done: RunDone, warehouse: Path) -> RunEnd:
    with Warehouse.open(warehouse) as store:
        store.ingest(done.bundle)
        verdicts: tuple[Verdict, ...] = (judge_validity(done.signals, status=done.status.value, notes=done.notes),)
        if context.frozen.manifest.load.mode != Mode.CLOSED:
            verdicts += (judge_stability(store.con, done.run_id),)
        store.add_verdicts([verdict.row(done.run_id) for verdict in verdicts])
    return RunEnd(done.run_id, plan, done.status.value, done.outcomes, verdicts)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off until a run's facts are safe."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        pending.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt
