"""A capacity search: the highest load that meets a target. `tfbench.stats.search` decides, here runs are made.

A search is a study: its probes are runs like any others, in the warehouse and in the report. A probe's run is long
enough to show, if all goes well, that the target is met; apart from that and its load it is what the manifest says.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tfbench.core.errors import EndpointError, Interrupted, UsageError
from tfbench.core.kinds import Mode
from tfbench.manifest import Frozen, Manifest, RunPlan, freeze, parse_manifest
from tfbench.manifest.freezing import resolve
from tfbench.manifest.limits import MAX_ARRIVALS, MAX_RUN_S, MAX_USERS
from tfbench.manifest.plan import run_seed
from tfbench.metrics.samples import Flags
from tfbench.stats.combine import combine_fraction
from tfbench.stats.interval import Interval
from tfbench.stats.loads import LoadRuns, judge
from tfbench.stats.reach import Reach, expected_reach, longer_for
from tfbench.stats.search import LOOKS, Answer, Evidence, SearchPlan, conclude, decide, needed_requests, next_probe
from tfbench.study.conduct import is_gone, open_study, release, usage_notes
from tfbench.study.host import host_facts
from tfbench.study.interrupts import counted_interrupts
from tfbench.study.notes import warehouse_notes
from tfbench.study.ready import ready
from tfbench.study.record import RunDone, Study, keep, kept_words, new_study
from tfbench.study.run_one import run_one
from tfbench.study.simulate import System, check_system, simulate_run
from tfbench.study.target import Target, read_sample
from tfbench.study.watch import Silent, Watcher
from tfbench.verdict.stability import UNSTABLE
from tfbench.verdict.validity import Verdict
from tfbench.warehouse import Warehouse

_MARGIN = 2
"""A run expects so many times the independent requests that can show the target met: those of a queue count less."""
KIND = "capacity"
"""The kind of the verdict that holds a search's answer; it stands at the study's last run."""
_MANY = 120
"""A search that may make so many runs decides upon a load once more."""
_RANGE = 4096.0
"""Without --lo and --hi the search ends this far from where it started."""
_USUAL_RUNS = 60
"""Fewer leave a bracket wide, whatever their length."""
_HOPELESS = 100.0
"""Nobody makes runs so many times as long."""
_DECIDED = {True: "met", False: "not met", None: "open"}
_WAIT_S = 60.0
"""How long a reader may hold the warehouse before a search gives up on getting in."""

MakeRun = Callable[[Frozen, RunPlan, Callable[[], int]], RunDone]
"""Makes one run of a manifest and closes its bundle; the last argument counts presses of Ctrl-C."""


@dataclass(frozen=True)
class Row:
    """One load of the evidence table.

    runs: fit ones, of which `unstable` had a growing backlog; `unfit` more were INVALID. counted: their requests,
    worth n_eff independent ones. value, lo, hi: the share of good ones, with its bounds at `level`. met: the decision;
    leans: what the share alone says; scouted: what runs too few to decide upon would decide.
    """

    load: float
    runs: int
    unfit: int
    unstable: int
    counted: int
    n_eff: float | None
    value: float | None
    lo: float | None
    hi: float | None
    level: float
    met: bool | None
    leans: bool | None
    scouted: bool | None
    reason: str | None


@dataclass(frozen=True)
class Capacity:
    """What a search found; `rows` by load, `unit` of the loads.

    expected: how near it was expected to come, said before the first run; None where that depends on the system.
    advice: what to do for a nearer answer; None where this one is as near as asked for.
    """

    study_id: str
    warehouse: Path
    target: Target
    unit: str
    answer: Answer
    rows: tuple[Row, ...]
    expected: Reach | None = None
    advice: str | None = None

    def document(self) -> dict[str, Any]:
        """Plain JSON values: what the warehouse keeps and `--json` prints."""
        return {
            "target": {"figure": self.target.figure, "value": self.target.value, "words": self.target.words},
            "unit": self.unit,
            **asdict(self.answer),
            "expected": None if self.expected is None else asdict(self.expected),
            "advice": self.advice,
            "evidence": [asdict(row) for row in self.rows],
        }


class SearchWatcher(Watcher, Protocol):
    """Told of a search's progress besides that of its runs."""

    def search_started(
        self, study_id: str, name: str, target: Target, plan: SearchPlan, notes: tuple[str, ...]
    ) -> None:
        """Before the first probe."""

    def probe_ended(self, row: Row, so_far: Answer) -> None:
        """A load has been decided upon, with what the search would answer now."""


class SilentSearch(Silent):
    """Watches nothing."""

    def search_started(
        self, study_id: str, name: str, target: Target, plan: SearchPlan, notes: tuple[str, ...]
    ) -> None:
        del study_id, name, target, plan, notes

    def probe_ended(self, row: Row, so_far: Answer) -> None:
        del row, so_far


def find_capacity(
    manifest: Manifest,
    warehouse: Path,
    target: Target,
    *,
    low: float | None = None,
    high: float | None = None,
    max_runs: int = 60,
    budget_s: float | None = None,
    watcher: SearchWatcher | None = None,
    workers: int = 1,
    wait_s: float | None = None,
) -> Capacity:
    """Search the highest rate (or concurrency) at which `manifest`'s system meets `target`.

    The search starts at the manifest's first load and keeps within [low, high]; it ends after `max_runs` runs, or
    before a run that would exceed `budget_s` seconds. Raises as `run_study` does; after Ctrl-C the answer so far is
    kept too.
    """
    plan = search_plan(manifest, low=low, high=high, max_runs=max_runs)
    watcher = watcher or SilentSearch()
    notes = warehouse_notes(warehouse)
    context = open_study(manifest, warehouse, watcher, workers=workers, wait_s=wait_s)

    def make(frozen: Frozen, run: RunPlan, stop: Callable[[], int]) -> RunDone:
        return run_one(ready(replace(context, frozen=frozen), run, watcher), run, watcher, stop)

    try:
        notes += usage_notes(context)
        return search(context, make, warehouse, target, plan, watcher, budget_s=budget_s, notes=notes)
    finally:
        release(context)


def simulate_capacity(
    manifest: Manifest,
    warehouse: Path,
    target: Target,
    system: System,
    *,
    low: float | None = None,
    high: float | None = None,
    max_runs: int = 60,
    budget_s: float | None = None,
    watcher: SearchWatcher | None = None,
) -> Capacity:
    """`find_capacity` in virtual time, of a simulated `system`. `budget_s` is real time. Raises as `simulate_study`."""
    plan = search_plan(manifest, low=low, high=high, max_runs=max_runs)
    check_system(system)
    watch = watcher or SilentSearch()
    notes = warehouse_notes(warehouse)
    Warehouse.open(warehouse).close()
    study = new_study(freeze(manifest), warehouse, host_facts() | {"simulated": True})

    def make(frozen: Frozen, run: RunPlan, stop: Callable[[], int]) -> RunDone:
        return simulate_run(replace(study, frozen=frozen), run, system, watch, stop)

    return search(study, make, warehouse, target, plan, watch, budget_s=budget_s, notes=notes)


def search_plan(manifest: Manifest, *, low: float | None, high: float | None, max_runs: int = 60) -> SearchPlan:
    """Where the search starts and may go. Raises UsageError for a manifest or bounds that can't be searched."""
    load = manifest.load
    whole = load.mode is Mode.CLOSED
    if load.ramp is not None:
        raise UsageError("capacity: load.ramp moves the rate within a run; remove it (--set load.ramp=null)")
    for name, given in (("--lo", low), ("--hi", high)):
        if given is not None and not 0.0 < given < math.inf:
            raise UsageError(f"{name} {given:g}: must be a load above 0")
        if given is not None and whole and given != int(given):
            raise UsageError(f"{name} {given:g}: a closed loop has whole users")
    first = load.points[0]
    if math.isinf(first):
        raise UsageError("capacity: load.rates begins with inf, which is no load to start from; give a number first")
    most = float(MAX_USERS) if whole else _most(manifest)
    if low is not None and high is not None and low > high:
        raise UsageError(f"--lo {low:g} lies above --hi {high:g}; exchange them")
    if (low or 0.0) > most:
        raise UsageError(f"--lo {low:g}: a run may have at most {most:g} {'users' if whole else 'requests/s'}")
    high = min(max(first, low or 0.0) * _RANGE, most) if high is None else min(high, most)
    start = min(max(first, low or 0.0), high)
    low = (1.0 if whole else start / _RANGE) if low is None else low
    looks = LOOKS if max_runs < _MANY else (*LOOKS, 2 * LOOKS[-1])
    return SearchPlan(start=start, low=low, high=high, whole=whole, max_runs=max_runs, looks=looks)


def _most(manifest: Manifest) -> float:
    """About the highest rate whose schedule a run may hold."""
    load = manifest.load
    seconds = load.warmup_s if load.duration_s is None else load.warmup_s + load.duration_s + load.drain_s
    return 0.9 * MAX_ARRIVALS / max(seconds, 1.0)


def search(
    study: Study,
    make: MakeRun,
    warehouse: Path,
    target: Target,
    plan: SearchPlan,
    watcher: SearchWatcher,
    *,
    budget_s: float | None = None,
    notes: tuple[str, ...] = (),
) -> Capacity:
    """Conduct a search with the runs that `make` makes, and keep the answer beside them."""
    least = _MARGIN * needed_requests(target.share, plan.level)
    first_s = _run_s(at_load(study.frozen, plan.start, least), plan.start)
    if budget_s is not None and first_s > budget_s:
        raise UsageError(
            f"--budget-s {budget_s:g}: one run at {plan.start:g} takes {first_s:.4g} s ({least} requests, warm-up); "
            "raise it, lower the target, or start from a higher load"
        )
    hoped = expected(at_load(study.frozen, plan.start, least), target, plan)
    notes += _length_notes(study.frozen, target, least) + reach_notes(hoped, study.frozen, plan)
    watcher.search_started(study.study_id, study.frozen.manifest.name, target, plan, notes)
    return _Conductor(study, make, warehouse, target, plan, watcher, least, budget_s, hoped).conduct()


@dataclass
class _Load:
    """A load under search; `share` is that of all its samples, as of the last probe."""

    load: float
    samples: list[Flags] = field(default_factory=list)
    unfit: int = 0
    unstable: int = 0
    share: Interval | None = None

    @property
    def runs(self) -> LoadRuns:
        shares = tuple(float(one.value.mean()) for one in self.samples if len(one.value))
        empty = len(self.samples) - len(shares)
        return LoadRuns(self.load, shares, self.share, self.unstable, self.unfit, empty)


@dataclass
class _Conductor:
    """Makes the runs a search asks for. `least`: requests a run must expect; `done`: the runs made."""

    study: Study
    make: MakeRun
    warehouse: Path
    target: Target
    plan: SearchPlan
    watcher: SearchWatcher
    least: int
    budget_s: float | None
    expected: Reach | None
    loads: dict[float, _Load] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def conduct(self) -> Capacity:
        while not isinstance(step := next_probe(self.plan, self._evidence()), Answer):
            at = self.loads.setdefault(step.load, _Load(step.load))
            in_time = self._probe(at, len(at.samples) + step.runs)
            flags = at.samples
            if flags:
                at.share = combine_fraction(
                    [one.value for one in flags], score=[one.score for one in flags], level=self.plan.level
                )
            row = next(row for row in self._rows() if row.load == at.load)
            self.watcher.probe_ended(row, conclude(self.plan, self._evidence(), "so far"))
            if not in_time:
                step = conclude(self.plan, self._evidence(), f"the budget of {self.budget_s:g} s is spent")
                break
        return self._keep_answer(step)

    def _evidence(self) -> list[Evidence]:
        return judge([one.runs for one in self.loads.values()], self.target.share, self.plan)

    def _rows(self) -> list[Row]:
        pairs = zip(self.loads.values(), self._evidence(), strict=True)
        return sorted((_row(at, known, self.target, self.plan) for at, known in pairs), key=lambda row: row.load)

    def _probe(self, at: _Load, runs: int) -> bool:
        """Runs at a load until it has `runs` fit ones, the client has failed too often or the runs are spent.

        False where time ran out.
        """
        while len(at.samples) < runs and at.unfit < self.plan.unfit_tries and len(self.done) < self.plan.max_runs:
            frozen = at_load(self.study.frozen, at.load, self.least)
            left_s = math.inf if self.budget_s is None else self.budget_s - (time.monotonic() - self.began_s)
            if _run_s(frozen, at.load) > left_s and self.done:
                return False
            self._run(at, frozen)
        return True

    def _run(self, at: _Load, frozen: Frozen) -> None:
        repeat = len(at.samples) + at.unfit
        seed, salt = run_seed(frozen.manifest.load.seed, at.load, repeat)
        run = RunPlan(list(self.loads).index(at.load), at.load, repeat, len(self.done), seed, salt)
        self.watcher.run_started(run)
        with counted_interrupts() as presses:
            done = self.make(frozen, run, presses)
            end = keep(self.study, run, done, self.warehouse, self.target.stands)
            stopped = presses() > 0
        self.done.append(done.run_id)
        self.watcher.run_ended(end)
        self._stop_if(stopped, done)
        if not end.use.fit:
            at.unfit += 1
            return
        verdicts = {verdict.kind: verdict.verdict for verdict in end.verdicts}
        with Warehouse.open(self.warehouse, read_only=True, wait_s=_WAIT_S) as store:
            at.samples.append(read_sample(store.con, done.run_id, self.target))
        at.unstable += verdicts.get("stability") == UNSTABLE

    def _stop_if(self, stopped: bool, done: RunDone) -> None:
        gone = is_gone(done)
        if not stopped and not gone:
            return
        self._keep_answer(conclude(self.plan, self._evidence(), "interrupted" if stopped else "the endpoint is gone"))
        kept = kept_words(len(self.done), None, self.warehouse, self.study.study_id)
        if stopped:
            raise Interrupted(f"interrupted: {kept}")
        url = self.study.frozen.manifest.endpoint.url
        raise EndpointError(f"{url}: the endpoint is gone ({done.first_error}); {kept}")

    def _keep_answer(self, answer: Answer) -> Capacity:
        unit = "users" if self.plan.whole else "requests/s"
        capacity = Capacity(
            self.study.study_id,
            self.warehouse,
            self.target,
            unit,
            answer,
            tuple(self._rows()),
            self.expected,
            advice(answer, self.plan, self.study.frozen),
        )
        verdict = Verdict(KIND, answer.status, ()).row(self.done[-1]) | {"reasons": capacity.document()}
        with Warehouse.open(self.warehouse, wait_s=_WAIT_S) as store:
            store.add_verdicts([verdict])
        return capacity


def at_load(frozen: Frozen, load: float, requests: int) -> Frozen:
    """`frozen` for a probe at `load`, with at least `requests` expected; its document and ids stay the study's.

    A closed loop by duration is as long as the manifest says: how many requests it makes, the system decides.
    """
    given = frozen.manifest.load
    changes: dict[str, Any] = {"concurrency": [int(load)]} if given.mode is Mode.CLOSED else {"rates": [load]}
    if given.timestamps is not None:
        pass  # recorded arrivals are as many as they are
    elif given.count is not None:
        changes["count"] = max(given.count, requests)
    elif given.mode is not Mode.CLOSED and given.duration_s is not None:
        changes["duration_s"] = min(max(given.duration_s, requests / load), MAX_RUN_S / 2)
    document = {**frozen.document, "load": {**frozen.document["load"], **changes}}
    return replace(frozen, manifest=resolve(parse_manifest(document, f"a probe at {load:g}")))


def _run_s(frozen: Frozen, load: float) -> float:
    """How long a run will last at least, in seconds; 0 where only the system knows."""
    given = frozen.manifest.load
    if given.duration_s is not None:
        return given.warmup_s + given.duration_s
    return 0.0 if given.mode is Mode.CLOSED else given.warmup_s + (given.count or 0) / load


def _length_notes(frozen: Frozen, target: Target, least: int) -> tuple[str, ...]:
    load = frozen.manifest.load
    if load.timestamps is not None:
        return ()
    return (
        f"to show a share of {target.share:g} a run takes some {least} requests: "
        + (
            "give a duration_s with as many"
            if load.mode is Mode.CLOSED and load.count is None
            else "shorter ones are made so long"
        ),
    )


def expected(frozen: Frozen, target: Target, plan: SearchPlan) -> Reach | None:
    """How near the search may come, were the limit at the load of `frozen`; None where the system decides."""
    load = frozen.manifest.load
    if load.timestamps is not None or (load.mode is Mode.CLOSED and load.count is None):
        return None
    requests = load.count or math.floor((load.duration_s or 0.0) * plan.start)
    return expected_reach(
        max(1, requests), target.share, max_runs=plan.max_runs, resolution=plan.resolution, factor=plan.factor
    )


def reach_notes(hoped: Reach | None, frozen: Frozen, plan: SearchPlan) -> tuple[str, ...]:
    """What width of the answer the length and number of runs allow, said before the first."""
    if hoped is None:
        return ()
    where = "" if frozen.manifest.load.count else f" (at {plan.start:g} requests/s)"
    said = (
        f"with runs of {hoped.requests:,} requests{where} and at most {_runs(plan.max_runs)} the limit is found to "
        f"within a factor of about {hoped.width:.3g}"
    )
    if plan.max_runs < _USUAL_RUNS:
        said += f"; more come nearer (--max-probes {_USUAL_RUNS})"
    elif hoped.longer > 1.0:
        said += f"; for {plan.resolution:g} make runs {_times(hoped.longer)} as long"
    return (f"{said}: a rough figure, from a simple queue; runs that differ among themselves come less near",)


def advice(answer: Answer, plan: SearchPlan, frozen: Frozen) -> str | None:
    """What to do for a nearer answer."""
    if answer.status == "found":
        return None
    if answer.limit == "client":
        return "give the client more (--workers, a faster machine) and search again"
    if answer.limit == "range":
        return (
            f"search higher with --hi {2 * plan.high:g}"
            if answer.hi is None
            else f"search lower with --lo {plan.low / 2:g}"
        )
    runs = max(2 * plan.max_runs, _USUAL_RUNS)
    more = f"allow {_runs(runs)} with --max-probes {runs}"
    if plan.max_runs < _USUAL_RUNS:
        return more
    if answer.status != "wide" or answer.lo is None or answer.hi is None:
        return f"start nearer to the limit, make runs 4 times as long ({_length_of(frozen)}), or {more}"
    longer = longer_for(answer.hi / answer.lo, plan.resolution)
    if longer > _HOPELESS:
        return f"{more}, and start nearer to the limit, at {math.sqrt(answer.lo * answer.hi):.3g}"
    return (
        f"to find it to within {plan.resolution:g}, make runs {_times(longer)} as long ({_length_of(frozen)}); where "
        f"whole runs differ, as with restarts or outages, {more}"
    )


def _length_of(frozen: Frozen) -> str:
    return "load.count" if frozen.manifest.load.count is not None else "load.duration_s"


def _times(longer: float) -> str:
    return "twice" if longer <= 2.0 else f"{math.ceil(longer):,} times"


def _runs(n: int) -> str:
    return f"{n:,} run" if n == 1 else f"{n:,} runs"


def _row(at: _Load, known: Evidence, target: Target, plan: SearchPlan) -> Row:
    share, runs = at.share, len(at.samples)
    if share is None:
        why = f"{at.unfit} runs were INVALID" if at.unfit else "no run was made"
        return Row(at.load, runs, at.unfit, at.unstable, 0, None, None, None, None, plan.level, None, None, None, why)
    reason = share.reason
    own = decide(share, target.share, unstable=at.unstable)
    if known.met is False and 2 * at.unstable > runs:
        reason = f"unstable: the backlog grew in {at.unstable} of {_runs(runs)}"
    elif known.scouted is None and known.met is not own:
        says = "open, all" if own is None else f"{'met' if own else 'not met'}, all"
        reason = f"by its own runs {says} runs near it say {_DECIDED[known.met]}"
    return Row(
        at.load,
        runs,
        at.unfit,
        at.unstable,
        share.n,
        share.n_eff,
        share.value,
        share.lo,
        share.hi,
        plan.level,
        known.met,
        known.leans,
        known.scouted,
        reason,
    )
