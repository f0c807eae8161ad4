"""A study from a manifest: probe, run every load point and repeat, ingest, judge."""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.core.errors import EndpointError, Interrupted, ManifestError, StorageError, UsageError
from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import Mode, Outcome
from tfbench.core.redact import Redactor
from tfbench.load.target import resolve_target
from tfbench.manifest import Manifest, RunPlan, adapter, expand, freeze, resolve_headers
from tfbench.study.host import host_facts
from tfbench.study.interrupts import counted_interrupts
from tfbench.study.notes import sample_size_notes
from tfbench.study.probe import Probe, probe_endpoint
from tfbench.study.run_one import RunDone, StudyContext, run_one, sampling_of, stamps_available
from tfbench.study.watch import RunEnd, Silent, StudyPlan, Watcher
from tfbench.verdict.stability import judge_stability
from tfbench.verdict.validity import INVALID, Verdict, judge_validity
from tfbench.warehouse import Warehouse

_GONE = {Outcome.CONNECT_ERROR, Outcome.DISCONNECTED}
_WAREHOUSE_WAIT_S = 60.0
"""How long a reader may hold the warehouse before a finished run gives up on getting in."""


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


def run_study(manifest: Manifest, warehouse: Path, watcher: Watcher | None = None, *, workers: int = 1) -> StudyDone:
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
    secrets_given = [headers[name] for name, value in endpoint.headers.items() if value.startswith("env:")]
    redactor = Redactor(secrets_given)
    watcher.probing(endpoint.url)
    probe = _probed(
        redactor,
        endpoint.url,
        headers=headers,
        model=manifest.model.name,
        dialect=str(endpoint.dialect),
        stream=endpoint.stream,
        include_usage=adapter(endpoint.adapter).include_usage,
        sampling=sampling_of(manifest),
        connect_s=endpoint.timeouts.connect_s,
        timeout_s=endpoint.timeouts.first_byte_s,
        total_s=endpoint.timeouts.total_s,
    )
    created_ns = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(created_ns // 1_000_000_000))
    study_id = f"{stamp}-{frozen.manifest_id[:6]}{secrets.token_hex(2)}"
    bundles = bundles_folder(warehouse) / study_id
    try:
        bundles.mkdir(parents=True)
    except OSError as error:
        raise StorageError(
            f"{bundles}: can't make the bundles' folder ({error.strerror}); name another place with --warehouse"
        ) from error
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
        secrets=tuple(secrets_given),
    )
    plans = expand(manifest)
    load = manifest.load
    run_s = None if load.duration_s is None else load.warmup_s + load.duration_s
    notes = sample_size_notes(manifest, plans)
    if not probe.observed["usage"] and endpoint.stream:
        notes += ("the endpoint sends no usage: token counts, TPOT and token costs will be unknown",)
    watcher.study_started(StudyPlan(study_id, manifest.name, plans, run_s, notes))
    return _run_all(context, plans, warehouse, watcher)


def _probed(redactor: Redactor, url: str, **request: Any) -> Probe:
    """The probe's findings without secrets, which a server may echo."""
    try:
        probe = probe_endpoint(url, **request)
    except EndpointError as error:
        raise EndpointError(redactor.text(str(error))) from None
    return Probe(json.loads(redactor.text(dump_text(probe.observed))), probe.attempt)


def _run_all(context: StudyContext, plans: Sequence[RunPlan], warehouse: Path, watcher: Watcher) -> StudyDone:
    invalid = done_count = ok_count = 0
    last_error = ""
    where = f"study {context.study_id} in {warehouse}"
    for plan in plans:
        watcher.run_started(plan)
        with counted_interrupts() as presses:
            done = run_one(context, plan, watcher, presses)
            end = _keep(context, plan, done, warehouse)
            interrupted = presses() > 0
        done_count += 1
        invalid += any(verdict.verdict == INVALID for verdict in end.verdicts)
        ok_count += done.tried.get(Outcome.OK, 0)
        last_error = done.first_error or last_error
        watcher.run_ended(end)
        if interrupted:
            raise Interrupted(f"interrupted: {done_count} of {len(plans)} runs are kept as {where}")
        if done.tried and set(done.tried) <= _GONE:
            raise EndpointError(
                f"{context.frozen.manifest.endpoint.url}: the endpoint is gone ({done.first_error}); "
                f"{done_count} of {len(plans)} runs are kept as {where}"
            )
    if not ok_count:
        raise EndpointError(
            f"{context.frozen.manifest.endpoint.url}: no request was answered well ({last_error or 'none was sent'}); "
            f"the facts are kept as {where}"
        )
    return StudyDone(context.study_id, warehouse, done_count, invalid)


def _keep(context: StudyContext, plan: RunPlan, done: RunDone, warehouse: Path) -> RunEnd:
    try:
        opened = Warehouse.open(warehouse, wait_s=_WAREHOUSE_WAIT_S)
    except UsageError as error:
        raise type(error)(f"{error}; the run's facts are safe: tfbench ingest {done.bundle.parent}") from error
    with opened as store:
        store.ingest(done.bundle)
        verdicts: tuple[Verdict, ...] = (judge_validity(done.signals, status=done.status.value, notes=done.notes),)
        load = context.frozen.manifest.load
        # A closed loop's backlog is its users; a ramp's grows with its rate.
        if load.mode != Mode.CLOSED and load.ramp is None:
            verdicts += (judge_stability(store.con, done.run_id),)
        store.add_verdicts([verdict.row(done.run_id) for verdict in verdicts])
    return RunEnd(done.run_id, plan, done.status.value, done.outcomes, verdicts)
