"""What every study leaves, measured or simulated: ids, the `runs` row, a window, a run in the warehouse with its
judgements."""

import secrets
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.core.errors import StorageError, UsageError
from tfbench.core.kinds import Mode, RunStatus
from tfbench.core.version import VERSION
from tfbench.load.job import Limits
from tfbench.load.tally import Tally
from tfbench.manifest import Frozen, Manifest, RunPlan
from tfbench.study.watch import RunEnd
from tfbench.verdict.spoiled import Stands, figures_stand, use_of
from tfbench.verdict.stability import judge_stability
from tfbench.verdict.validity import Verdict, judge_validity
from tfbench.warehouse import Warehouse

_NS = 1_000_000_000
_WAREHOUSE_WAIT_S = 60.0
"""How long a reader may hold the warehouse before a finished run gives up on getting in."""


@dataclass(frozen=True)
class Study:
    """What all runs of a study share, however they come about."""

    study_id: str
    created_ns: int
    frozen: Frozen
    host: dict[str, Any]
    bundles: Path


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


@dataclass(frozen=True)
class StudyDone:
    """A finished study: its id, how many runs are in the warehouse, and how many of them are no evidence."""

    study_id: str
    warehouse: Path
    runs: int
    invalid: int


def kept_words(count: int, planned: int | None, warehouse: Path, *study_ids: str) -> str:
    """How many runs are kept, where, and the command that shows them."""
    runs = f"{count} runs" if planned is None else f"{count} of {planned} runs"
    studies = f"{'study' if len(study_ids) == 1 else 'studies'} {' and '.join(study_ids)}"
    look = shlex.join(["tfbench", "report", study_ids[0], "--warehouse", str(warehouse)])
    return f"{runs} are kept as {studies} in {warehouse}" + (f"; see them with: {look}" if count else "")


def bundles_folder(warehouse: Path) -> Path:
    """Where the bundles of a warehouse's runs lie: beside it."""
    return warehouse.with_name(warehouse.stem + ".bundles")


def new_study(frozen: Frozen, warehouse: Path, host: dict[str, Any]) -> Study:
    """A study's id and the folder its bundles go to. Raises StorageError when that can't be made."""
    created_ns = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(created_ns // _NS))
    study_id = f"{stamp}-{frozen.manifest_id[:6]}{secrets.token_hex(2)}"
    bundles = bundles_folder(warehouse) / study_id
    try:
        bundles.mkdir(parents=True)
    except OSError as error:
        raise StorageError(
            f"{bundles}: can't make the bundles' folder ({error.strerror}); name another place with --warehouse"
        ) from error
    return Study(study_id, created_ns, frozen, host, bundles)


def study_salt(manifest: Manifest) -> str:
    """What a measured study mixes into its prompts: the manifest's salt, else one of its own.

    Where the cache is declared warm, and primed, prompts are the seed's alone: what a server still holds of them is
    then what is wanted.
    """
    if manifest.load.salt is not None:
        return manifest.load.salt
    return "" if manifest.load.cache == "warm" else secrets.token_hex(8)


def whole_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * _NS)


def limits_of(manifest: Manifest) -> Limits:
    """The manifest's timeouts."""
    given = manifest.endpoint.timeouts
    return Limits(*map(whole_ns, (given.connect_s, given.first_byte_s, given.idle_s, given.total_s)))


def sampling_of(manifest: Manifest) -> dict[str, Any]:
    """The sampling parameters to send: those that are set. `ignore_eos` false says what every server does unasked."""
    given = manifest.sampling.model_dump(exclude={"max_tokens", "extra"}, exclude_none=True)
    chosen = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value != ()}
    if not chosen.get("ignore_eos"):
        chosen.pop("ignore_eos", None)
    return chosen | manifest.sampling.extra


def run_row(
    study: Study,
    plan: RunPlan,
    run_id: str,
    *,
    schedule_sha256: str,
    status: RunStatus,
    window_ns: tuple[int, int],
    observed: dict[str, Any],
    signals: dict[str, Any],
    origin: str,
    restart: int | None = None,
) -> dict[str, Any]:
    """What `run.json` holds: the study's facts and the columns of `runs`.

    `restart`: how often the study had restarted the system by then; None where it never does.
    """
    frozen = study.frozen
    return {
        "study_id": study.study_id,
        "created_ns": study.created_ns,
        "tfbench_version": VERSION,
        "host": study.host,
        "run_id": run_id,
        "manifest_id": frozen.manifest_id,
        "workload_id": frozen.workload_id,
        "system_id": frozen.system_id,
        "mode": str(frozen.manifest.load.mode),
        "load_value": plan.load_value,
        "repeat": plan.repeat,
        "order_index": plan.order_index,
        "arm": plan.arm,
        "pair": plan.pair,
        "restart": restart,
        "seed": plan.seed,
        "schedule_sha256": schedule_sha256,
        "cache_state": frozen.manifest.load.cache,
        "status": status.value,
        "measure_start_ns": window_ns[0],
        "measure_end_ns": window_ns[1],
        "observed": observed,
        "signals": signals,
        "origin": origin,
    }


def measured_window(manifest: Manifest, start_ns: int, tally: Tally) -> tuple[int, int]:
    """The window of a run that started at `start_ns`, in the clock of its attempts."""
    load = manifest.load
    if load.duration_s is not None:
        measure_start = start_ns + whole_ns(load.warmup_s)
        return measure_start, measure_start + whole_ns(load.duration_s)
    # With a count the window runs from the first measured schedule to the last end, that one included.
    first = start_ns if tally.first_scheduled_ns is None else tally.first_scheduled_ns
    return first, max(tally.last_end_ns or 0, first) + 1


def keep(study: Study, plan: RunPlan, done: RunDone, warehouse: Path, stands: Stands | None = None) -> RunEnd:
    """Ingest a run's bundle and judge it; `stands`: what is asked of it, the summary's figures by default."""
    try:
        opened = Warehouse.open(warehouse, wait_s=_WAREHOUSE_WAIT_S)
    except UsageError as error:
        raise type(error)(f"{error}; the run's facts are safe: tfbench ingest {done.bundle.parent}") from error
    with opened as store:
        store.ingest(done.bundle)
        verdicts: tuple[Verdict, ...] = (judge_validity(done.signals, status=done.status.value, notes=done.notes),)
        load = study.frozen.manifest.load
        # A closed loop's backlog is its users; a ramp's grows with its rate.
        if load.mode != Mode.CLOSED and load.ramp is None:
            verdicts += (judge_stability(store.con, done.run_id),)
        store.add_verdicts([verdict.row(done.run_id) for verdict in verdicts])
        use = use_of(store.con, done.run_id, done.signals, done.status.value, stands or figures_stand())
    return RunEnd(done.run_id, plan, done.status.value, done.outcomes, verdicts, use)
