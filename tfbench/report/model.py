"""The frozen shapes a report is made from. Missing is None everywhere; no NaN or infinity but a load value's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfbench.core.kinds import RunStatus
from tfbench.manifest import engine_profile_arg
from tfbench.metrics.soundness import only_timing


@dataclass(frozen=True)
class LoadPoint:
    """One offered load: a rate (open loop; inf = all at once) or a concurrency (closed loop), of one arm."""

    value: float
    arm: str | None = None

    @property
    def order(self) -> tuple[float, str]:
        """Sorts load points by load, then arm."""
        return (self.value, self.arm or "")

    @property
    def number(self) -> str:
        """The load as text, without unit or arm."""
        return "inf" if math.isinf(self.value) else f"{self.value:g}"

    @property
    def label(self) -> str:
        """The load as text, with its arm when there is one. Not escaped."""
        return self.number if self.arm is None else f"{self.number} · {self.arm}"


@dataclass(frozen=True)
class Figure:
    """One figure of one load point over its repeats, with its interval at `level` (0..1)."""

    load: LoadPoint
    name: str
    unit: str
    direction: str | None
    value: float | None
    lo: float | None
    hi: float | None
    level: float | None
    method: str | None
    n: int | None
    n_eff: float | None
    k: int | None
    settled: bool
    reason: str | None

    @property
    def empty(self) -> bool:
        """Neither a value nor a bound is known."""
        return self.value is None and self.lo is None and self.hi is None

    @property
    def one_sided(self) -> bool:
        """Only one bound is known."""
        return (self.lo is None) != (self.hi is None)


@dataclass(frozen=True)
class RunFigure:
    """One figure of one run."""

    run_id: str
    load: LoadPoint
    repeat: int
    name: str
    unit: str
    value: float | None
    n: int | None
    reason: str | None


@dataclass(frozen=True)
class Signal:
    """One measured validity input with its limit; `text` holds what isn't a number."""

    name: str
    value: float | None
    limit: float | None
    unit: str
    relation: str
    ok: bool | None
    text: str | None


@dataclass(frozen=True)
class Run:
    """One run with its judgements; verdict None = not judged.

    `restart`: how often the study had restarted the system by then, None where it never does; `cached_share`: the part
    of the prompts' tokens that came from a prefix cache.
    """

    run_id: str
    load: LoadPoint
    mode: str
    repeat: int
    order_index: int
    status: str
    origin: str
    seed: int | None
    schedule_sha256: str | None
    cache_state: str | None
    cached_share: float | None
    restart: int | None
    window_s: float | None
    validity: str | None
    validity_reasons: tuple[str, ...]
    stability: str | None
    stability_reasons: tuple[str, ...]
    signals: tuple[Signal, ...]
    observed: Mapping[str, Any]

    @property
    def invalid(self) -> bool:
        """The measurement was judged unfit."""
        return (self.validity or "").lower() == "invalid"

    @property
    def slow_client(self) -> bool:
        """INVALID only because the client was slow: figures that this moved by little stand all the same."""
        signals = {one.name: {"ok": one.ok} for one in self.signals}
        return self.invalid and self.status == RunStatus.COMPLETE and only_timing(signals)

    @property
    def useless(self) -> bool:
        """INVALID, and nothing of it is evidence."""
        return self.invalid and not self.slow_client

    @property
    def unstable(self) -> bool:
        """The backlog grew: quantiles are withheld."""
        return (self.stability or "").lower() == "unstable"


@dataclass(frozen=True)
class OutcomeCount:
    """How many attempts of one run and phase ended with one outcome."""

    load: LoadPoint
    repeat: int
    phase: str
    outcome: str
    n: int


@dataclass(frozen=True)
class ErrorCount:
    """How often one error text was seen in the measured phase."""

    load: LoadPoint
    outcome: str
    http_status: int | None
    error: str | None
    n: int


@dataclass(frozen=True)
class Counts:
    """How many attempts scheduled in the window stand in each denominator, over the runs figures are made from."""

    load: LoadPoint
    counted: int
    excluded: int
    vacuous: int
    term_unknown: int
    tokens_unknown: int
    shows_nothing: int = 0
    no_finish_reason: int = 0


@dataclass(frozen=True)
class Cdf:
    """An empirical distribution at one load point, pooled over `k` runs.

    x: milliseconds, ascending; p: share of all `n` at or under x; lo, hi: lowest and highest of the runs' own
    shares (None when k is 1). `n_inf` of the n never came (failures): p ends at 1 - n_inf / n.
    """

    load: LoadPoint
    metric: str
    x: tuple[float, ...]
    p: tuple[float, ...]
    lo: tuple[float, ...] | None
    hi: tuple[float, ...] | None
    n: int
    n_inf: int
    k: int


@dataclass(frozen=True)
class Definition:
    """A figure's meaning: words, source, and what other tools call it (tool, name)."""

    name: str
    unit: str
    direction: str | None
    words: str
    source: str
    aliases: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Study:
    """The study's row: ids, the frozen manifest, the host it was measured from."""

    study_id: str
    manifest_id: str
    workload_id: str
    system_id: str
    created_ns: int | None
    version: str
    manifest: Mapping[str, Any]
    host: Mapping[str, Any]

    def section(self, name: str) -> Mapping[str, Any]:
        """A table of the manifest; empty when it has none."""
        value = self.manifest.get(name)
        return value if isinstance(value, Mapping) else {}

    @property
    def name(self) -> str:
        """The manifest's name."""
        return str(self.manifest.get("name") or self.study_id)

    @property
    def judged(self) -> bool:
        """A quality judge was named."""
        return str(self.section("quality").get("judge", "none")) != "none"


@dataclass(frozen=True)
class ProbedLoad:
    """One load of a capacity search: its fit runs (unstable ones among them), INVALID ones, what they say.

    counted: requests, worth n_eff independent ones (None: not known).

    value, lo, hi: the share of good requests, or ms; met: whether the target was decided met; None = undecided.
    scouted: what too few runs to decide upon would say.
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
    met: bool | None
    reason: str | None
    scouted: bool | None = None


@dataclass(frozen=True)
class CapacityFound:
    """The answer of a capacity search: the limit lies in [lo, hi] at `confidence`; an end of None is open.

    advice: what to do for a nearer one.
    """

    target: str
    unit: str
    lo: float | None
    hi: float | None
    confidence: float | None
    status: str
    limit: str | None
    reason: str | None
    runs: int
    probed: tuple[ProbedLoad, ...]
    advice: str | None = None


@dataclass(frozen=True)
class WarmUp:
    """Whether a warm-up leaks into the windows of a load point.

    detected: one does; None = can't say, for `reason`. p: of no leak. Where one does: series, quantile: the latency
    that it moves most; effect: by which share, of the value without the leak (None: without end). warmup_s: the warm-up
    that would do. steady: False where no end of it was seen.
    """

    load: LoadPoint
    detected: bool | None
    p: float | None
    reason: str | None
    series: str | None = None
    quantile: float | None = None
    effect: float | None = None
    warmup_s: float | None = None
    steady: bool | None = None


@dataclass(frozen=True)
class ReportData:
    """All a report needs, gathered once; every renderer is a pure function of it."""

    study: Study
    runs: tuple[Run, ...]
    figures: tuple[Figure, ...]
    run_figures: tuple[RunFigure, ...]
    outcomes: tuple[OutcomeCount, ...]
    errors: tuple[ErrorCount, ...]
    cdfs: tuple[Cdf, ...]
    counts: tuple[Counts, ...]
    definitions: tuple[Definition, ...]
    capacity: CapacityFound | None = None
    warm_ups: tuple[WarmUp, ...] = ()
    _index: dict[tuple[LoadPoint, str], Figure] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._index.update({(row.load, row.name): row for row in self.figures})

    @property
    def loads(self) -> tuple[LoadPoint, ...]:
        """Every load point that has a run, a figure or an outcome, in order."""
        seen = {r.load for r in self.runs} | {f.load for f in self.figures} | {row.load for row in self.outcomes}
        return tuple(sorted(seen, key=lambda load: load.order))

    @property
    def simulated(self) -> bool:
        """Any run was simulated, not measured."""
        return any(run.origin == "simulated" for run in self.runs)

    @property
    def all_simulated(self) -> bool:
        """Every run was simulated: the client had no part in it."""
        return bool(self.runs) and all(run.origin == "simulated" for run in self.runs)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The engine profiles simulated, or the one the study served itself; none for any other system."""
        simulated = [run.observed.get("profile") for run in self.runs if run.origin == "simulated"]
        if not self.simulated and self.study.section("hooks").get("restart") == "engine":
            simulated = [engine_profile_arg(self.study.section("engine").get("args") or ())]
        return tuple(dict.fromkeys(str(name) for name in simulated if name))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the runs, by name."""
        return tuple(sorted({load.arm for load in self.loads if load.arm is not None}))

    @property
    def planned_runs(self) -> int | None:
        """Load points × repeats × arms of the manifest; None where that isn't what was run (a search, an import)."""
        load = self.study.section("load")
        points = {
            math.inf if value is None else float(value) for value in load.get("rates") or load.get("concurrency") or ()
        }
        repeats = load.get("repeats")
        if not points or not isinstance(repeats, int) or self.capacity is not None:
            return None
        if any(run.origin.startswith("imported:") for run in self.runs):
            return None
        if any(run.load.value not in points or run.repeat >= repeats for run in self.runs):
            return None
        return len(points) * repeats * max(len(self.study.host.get("profiles") or ()), len(self.arms), 1)

    def origin(self, load: LoadPoint) -> str | None:
        """Whence the figures of a load point come: measured, simulated or imported:<tool>; None without a run."""
        return ", ".join(sorted({run.origin for run in self.runs_at(load)})) or None

    @property
    def mode(self) -> str:
        """open, closed or open_capped."""
        if self.runs:
            return self.runs[0].mode
        return str(self.study.section("load").get("mode", "open"))

    @property
    def load_words(self) -> str:
        """What the load axis counts."""
        return "concurrency (users)" if self.mode == "closed" else "offered load (requests/s)"

    def load_text(self, load: LoadPoint) -> str:
        """A load point in words: 8 req/s, 4 users, all at once. Not escaped."""
        unit = ("user" if load.value == 1 else "users") if self.mode == "closed" else "req/s"
        words = "all at once" if math.isinf(load.value) else f"{load.number} {unit}"
        return words if load.arm is None else f"{words} · {load.arm}"

    def offered_text(self, load: LoadPoint) -> str:
        """What was offered at a load point, in words, without its arm."""
        if math.isinf(load.value):
            return "with all requests offered at once"
        return (
            f"with {self.load_text(LoadPoint(load.value))}"
            if self.mode == "closed"
            else f"at an offered load of {load.number} req/s"
        )

    def figure(self, load: LoadPoint, name: str) -> Figure | None:
        """A load point's figure by name."""
        return self._index.get((load, name))

    @property
    def leaks(self) -> tuple[WarmUp, ...]:
        """The load points into whose windows a warm-up leaks."""
        return tuple(one for one in self.warm_ups if one.detected)

    def runs_at(self, load: LoadPoint) -> tuple[Run, ...]:
        """The runs of a load point, by repeat."""
        return tuple(sorted((run for run in self.runs if run.load == load), key=lambda run: run.repeat))
