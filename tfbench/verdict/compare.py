"""Two studies side by side: every figure's effect with its interval, by load and bucket, what got worse first.

Looking around, not a verdict: marks hold at a false discovery rate of 5 % over the whole table.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfbench.metrics import FIGURES, combined
from tfbench.stats.effect import Effect
from tfbench.stats.multiple import benjamini_hochberg
from tfbench.stats.paired import difference_interval, ratio_interval
from tfbench.verdict.arms import Arm, Likeness, Match, load_text, missing_loads
from tfbench.verdict.cells import Cell, effect_of, too_short
from tfbench.verdict.gate_document import Value

SCHEMA = "tfbench.comparison/1"
DISCOVERY_RATE = 0.05
COMPARED = (
    *(f"{stem}_p{p}_ms" for stem in ("ttft", "tpot", "icl", "e2e") for p in (50, 95, 99)),
    "good_fraction",
    "ok_fraction",
    "goodput_requests_per_s",
    "throughput_requests_per_s",
    "throughput_output_tokens_per_s",
    "cost_per_million_qualified_tokens",
)
_WITHHELD = ("quantile", "chunk_quantile")
_OVER_ALL_ONLY = ("rate", "cost")

Says = Literal["worse", "better", "undecided", "no data"]


@dataclass(frozen=True)
class CompareRow:
    """One figure's effect. scale: "ratio" (candidate / base) or "difference" (candidate - base, in `unit`).

    says: "worse" or "better" where shown at the table's false discovery rate, never from one run an arm. leans: the
    estimate's own side, from two runs an arm on.
    hidden_by: the figure that got no worse while this one leans worse: a median over its tail, all attempts over a
    bucket. settled: both arms' runs are long enough for the figure.
    """

    load: str
    figure: str
    bucket_by: str | None
    bucket: str | None
    unit: str
    direction: str | None
    base: Value
    candidate: Value
    scale: Literal["ratio", "difference"]
    effect: float | None
    lo: float | None
    hi: float | None
    level: float
    p: float | None
    p_adjusted: float | None
    k: int
    method: str
    settled: bool
    says: Says
    leans: Literal["worse", "better"] | None
    hidden_by: str | None
    reason: str | None


@dataclass(frozen=True)
class CompareLoad:
    """One load: how many runs of either arm, whether by pairs, which were left out, how many were unstable."""

    load: str
    paired: bool
    base_runs: int
    candidate_runs: int
    base_unstable: int
    candidate_unstable: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class CompareArm:
    """One side."""

    study_id: str
    name: str
    arm: str | None
    manifest_id: str
    workload_id: str
    system_id: str
    simulated: bool


@dataclass(frozen=True)
class Comparison:
    """The document `compare --json` prints."""

    schema: str
    base: CompareArm
    candidate: CompareArm
    same_test: bool
    attribution: str
    differences: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    loads: tuple[CompareLoad, ...]
    rows: tuple[CompareRow, ...]


def compare(
    base: Arm, candidate: Arm, alike: Likeness, matches: Sequence[Match], cells: Sequence[Cell], *, level: float = 0.95
) -> Comparison:
    """The comparison of two arms from their matched cells, what got worse first, then what got better."""
    loads = tuple(_load(base, candidate, match) for match in matches)
    unstable = {match.load: _unstable_in(match) for match in matches}
    kept = [cell for cell in cells if cell.bucket is None or cell.figure.kind not in _OVER_ALL_ONLY]
    effects = [_effect(cell, unstable[cell.load]) for cell in kept]
    ps = [None if isinstance(one, str) else min(1.0, 2 * min(one.above(0.0), one.below(0.0))) for one in effects]
    adjusted = iter(benjamini_hochberg([p for p in ps if p is not None]).tolist())
    rows = [
        _row(cell, effect, p, None if p is None else next(adjusted), level)
        for cell, effect, p in zip(kept, effects, ps, strict=True)
    ]
    rows = _hidden_marked([row for row in rows if row.says != "no data" or row.reason])
    rows.sort(key=_worst_first)
    warnings = [
        f"UNSTABLE: at load {one.load} the candidate's backlog grows in {one.candidate_unstable} of"
        f" {one.candidate_runs} runs, the base's in {one.base_unstable} of {one.base_runs}"
        for one in loads
        if _newly_unstable(one)
    ]
    warnings += [
        f"one run an arm at load {one.load}: how far runs differ isn't known, so nothing is called worse or better; run"
        " both with load.repeats = 5"
        for one in loads
        if min(one.base_runs, one.candidate_runs) == 1
    ]
    warnings += [f"left out: {why}" for one in loads for why in one.left_out]
    notes = [*alike.notes, *missing_loads(base, candidate)]
    if any(not one.paired for one in loads):
        notes.append("the arms' schedules differ: runs are not paired, and intervals are wider for it")
    return Comparison(
        schema=SCHEMA,
        base=_arm(base),
        candidate=_arm(candidate),
        same_test=base.workload_id == candidate.workload_id,
        attribution=alike.attribution,
        differences=tuple(
            {"path": one.path, "base": one.a, "candidate": one.b, "primary": one.primary}
            for one in (*alike.test, *alike.system)
        ),
        warnings=tuple(warnings),
        notes=tuple(notes),
        loads=loads,
        rows=tuple(rows),
    )


def _load(base: Arm, candidate: Arm, match: Match) -> CompareLoad:
    return CompareLoad(
        load=load_text(match.load),
        paired=match.paired,
        base_runs=len(match.base),
        candidate_runs=len(match.candidate),
        base_unstable=sum(run.unstable for run in match.base),
        candidate_unstable=sum(run.unstable for run in match.candidate),
        left_out=tuple(
            f"{name} {run.run_id}: {run.unfit}"
            for name, arm in (("base", base), ("candidate", candidate))
            for run in arm.runs
            if run.load == match.load and run.unfit is not None
        ),
    )


def _newly_unstable(load: CompareLoad) -> bool:
    most = 2 * load.candidate_unstable > load.candidate_runs
    return most and not 2 * load.base_unstable > load.base_runs


def _unstable_in(match: Match) -> str | None:
    for name, runs in (("base", match.base), ("candidate", match.candidate)):
        unstable = sum(run.unstable for run in runs)
        if 2 * unstable > len(runs):
            return f"withheld: {name} is unstable in {unstable} of {len(runs)} runs"
    return None


def _effect(cell: Cell, unstable: str | None) -> Effect | str:
    if unstable is not None and cell.figure.kind in _WITHHELD:
        return unstable
    return effect_of(cell, relative=cell.figure.kind != "fraction")


def _row(cell: Cell, effect: Effect | str, p: float | None, p_adjusted: float | None, level: float) -> CompareRow:
    figure = cell.figure
    relative = figure.kind != "fraction"
    short = too_short(cell)
    told = None if isinstance(effect, str) else (ratio_interval if relative else difference_interval)(effect, level)
    leans = None if isinstance(effect, str) else _leans(effect, figure.direction)
    says: Says = "no data" if told is None else "undecided"
    if p_adjusted is not None and p_adjusted <= DISCOVERY_RATE and leans is not None:
        says = leans
    why = effect if isinstance(effect, str) else None if told is None else told.reason
    intervals = [combined(figure, arm) for arm in (cell.base, cell.candidate)]
    base, candidate = (Value(one.value, one.lo, one.hi, one.n, one.n_eff) for one in intervals)
    return CompareRow(
        load=load_text(cell.load),
        figure=figure.name,
        bucket_by=None if cell.bucket is None else cell.bucket.by,
        bucket=None if cell.bucket is None else cell.bucket.label,
        unit=cell.unit,
        direction=figure.direction,
        base=base,
        candidate=candidate,
        scale="ratio" if relative else "difference",
        effect=None if told is None else told.value,
        lo=None if told is None else told.lo,
        hi=None if told is None else told.hi,
        level=level,
        p=p,
        p_adjusted=p_adjusted,
        k=0 if isinstance(effect, str) else effect.k,
        method="none" if isinstance(effect, str) else effect.method,
        settled=short is None and told is not None,
        says=says,
        leans=leans,
        hidden_by=None,
        reason="; ".join(dict.fromkeys(one for one in (why, short) if one)) or None,
    )


def _leans(effect: Effect, direction: str | None) -> Literal["worse", "better"] | None:
    up, down = effect.above(0.0), effect.below(0.0)
    if effect.k < 2 or up == down or effect.estimate == 0.0:
        return None
    return "worse" if (up < down) == (direction == "lower") else "better"


def _hidden_marked(rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Rows that lean worse under a figure that doesn't, marked with its name."""
    by_key = {(row.load, row.figure, row.bucket_by, row.bucket): row for row in rows}

    def cover(row: CompareRow) -> str | None:
        candidates: list[tuple[tuple[str, str, str | None, str | None], str]] = []
        if row.bucket is not None:
            candidates.append(((row.load, row.figure, None, None), f"{row.figure} over all attempts"))
        definition = FIGURES[row.figure]
        if definition.p is not None and definition.p > 0.5:
            median = row.figure.replace(f"_p{definition.p * 100:g}_", "_p50_")
            candidates.append(((row.load, median, row.bucket_by, row.bucket), median))
        for key, name in candidates:
            over = by_key.get(key)
            if over is not None and over.says != "no data" and over.leans != "worse":
                return name
        return None

    return [dataclasses.replace(row, hidden_by=cover(row)) if row.leans == "worse" else row for row in rows]


def _worst_first(row: CompareRow) -> tuple[Any, ...]:
    group = {"worse": 0, "better": 2, "undecided": 3 if row.leans == "worse" else 4, "no data": 5}[row.says]
    if group and row.hidden_by is not None:
        group = 1  # a better median or whole must not stand before it
    size = 0.0
    if row.says != "no data":
        size = (
            math.inf
            if row.effect is None
            else abs(math.log(row.effect))
            if row.scale == "ratio" and row.effect > 0
            else abs(row.effect)
        )
    return (group, row.hidden_by is None, -size, list(FIGURES).index(row.figure), row.load, row.bucket or "")


def _arm(arm: Arm) -> CompareArm:
    ids = (arm.manifest_id, arm.workload_id, arm.system_id)
    return CompareArm(arm.study_id, arm.name, arm.arm, *ids, arm.simulated)
