"""The gate: is a candidate no worse than its base, by a policy stated beforehand? Pure; arms and cells come in.

| verdict | when |
|---|---|
| FAIL | a row is shown to be worse than its margin, or the candidate is unstable where the base is stable |
| INVALID | a load has fewer valid runs than the policy asks for, none in the candidate, or no answer in the base |
| PASS | every row is shown to be no worse than its margin |
| INCONCLUSIVE | else |

The first that holds is the verdict; the guard against failures can only FAIL. "Shown" is at the policy's level; a
FAIL's p-values are Holm-adjusted over all rows, a PASS needs no adjustment (intersection-union). A row without data, or
of runs too short for its quantile, is never a PASS.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from tfbench.core.exitcodes import ExitCode
from tfbench.core.version import VERSION
from tfbench.metrics import FIGURES, combined
from tfbench.metrics.soundness import Moved, is_sound
from tfbench.stats.effect import Effect
from tfbench.stats.equivalence import Margin, against_margin
from tfbench.stats.multiple import holm
from tfbench.stats.paired import difference_interval, ratio_interval
from tfbench.stats.plan import repeats_to_decide
from tfbench.verdict.arms import Arm, Likeness, Match, load_text, missing_loads
from tfbench.verdict.cells import Cell, Sound, effect_of, spoiled, too_short
from tfbench.verdict.gate_document import (
    SCHEMA,
    GateArm,
    GateLoad,
    GateResult,
    GateRow,
    GateVerdict,
    Judged,
    RowVerdict,
    Value,
    row_words,
)
from tfbench.verdict.policy import GUARD, MetricRule, Policy
from tfbench.verdict.spoiled import Stands, figures_stand

_ORDER = {"FAIL": 0, "INCONCLUSIVE": 1, "PASS": 2, "WATCHED": 3}
_ROWS_TOLD = 3
_POINTS = ("rates", "concurrency")
_WITHHELD = ("quantile", "chunk_quantile")


def judge(policy: Policy, base: Arm, candidate: Arm, matches: Sequence[Match], cells: Sequence[Cell]) -> Judged:
    """The verdict on cells: every rule of the policy in each of its buckets, and the guard against failures."""
    by_load = {match.load: _load(policy, base, candidate, match) for match in matches}
    loads = tuple(by_load.values())
    entries = [
        (rule, cell, _effect(cell, rule, by_load[cell.load]))
        for rule in (*policy.metrics, *_guard(policy))
        for cell in cells
        if cell.figure.name == rule.name
        and by_load[cell.load].enough
        and (cell.bucket is None or cell.bucket.by in rule.buckets)
    ]
    tested = [
        None if isinstance(effect, str) else against_margin(effect, rule.margin.limit(rule.direction), rule.direction)
        for rule, _, effect in entries
    ]
    known = [one.p_worse for one in tested if one is not None]
    adjusted = iter(holm(known).tolist())
    rows = []
    for (rule, cell, effect), test in zip(entries, tested, strict=True):
        if isinstance(effect, str) or test is None:
            rows.append(_blank_row(rule, cell, str(effect), _is_guard(policy, rule)))
        else:
            ps = (test.p_fine, test.p_worse, next(adjusted))
            rows.append(_row(policy, rule, cell, effect, ps, len(known)))
    rows.sort(key=_worst_first)
    thin = [*_not_run(policy, base, candidate), *_spoiled_words(policy, entries)]
    verdict, reasons = _overall(policy, loads, rows, thin)
    further = [row.further_repeats for row in rows if row.verdict == "INCONCLUSIVE"]
    asked = [one for one in further if one is not None]
    ask = max(asked) if verdict == "INCONCLUSIVE" and asked and len(asked) == len(further) else None
    return Judged(verdict, policy.level, reasons, loads, tuple(rows), ask)


def sound_for(policy: Policy) -> Sound:
    """What figures of a run whose client was slow are evidence: those it moved by less than a tenth of their margin."""
    margins = _margins_of(policy)
    return lambda figure, moved, run: _within(margins[figure.name], moved) if run.slow else is_sound(figure, moved)


def stands_for(policy: Policy) -> Stands:
    """Whether the policy's figures stand in a run whose client was slow."""
    margins = _margins_of(policy)
    return figures_stand(tuple(margins), lambda figure, moved: _within(margins[figure.name], moved))


def _margins_of(policy: Policy) -> dict[str, list[Margin]]:
    margins: dict[str, list[Margin]] = {}
    for rule in (*policy.metrics, *_guard(policy)):
        margins.setdefault(rule.name, []).append(rule.margin)
    return margins


def _within(margins: Sequence[Margin], moved: Moved) -> bool:
    value = abs(moved.value or 0.0)
    return all(moved.most <= 0.1 * one.size * (value if one.relative else 1.0) for one in margins)


def gate_result(
    policy: Policy,
    base: Arm,
    candidate: Arm,
    alike: Likeness,
    judged: Judged,
    *,
    confirmation: Judged | None = None,
    notes: Sequence[str] = (),
) -> GateResult:
    """The document: `judged`, or what became of it when a FAIL was run again and came back otherwise.

    New runs that are INVALID refute nothing and confirm nothing: so is the verdict.
    """
    verdict, reasons = judged.verdict, judged.reasons
    if confirmation is not None and verdict == "FAIL" and not _failed(judged) & _failed(confirmation):
        verdict = "INVALID" if confirmation.verdict == "INVALID" else "INCONCLUSIVE"
        told = "another row failed" if confirmation.verdict == "FAIL" else confirmation.verdict
        reasons = (f"the FAIL was not confirmed by new runs ({told})", *confirmation.reasons, *reasons)
    notes = (*alike.notes, *missing_loads(base, candidate), *notes)
    return GateResult(
        schema=SCHEMA,
        tfbench_version=VERSION,
        verdict=verdict,
        exit_code=int(_exit_code(policy, verdict, judged)),
        reasons=reasons,
        further_repeats=judged.further_repeats,
        policy=policy,
        attribution=alike.attribution,
        notes=notes,
        base=_arm(base),
        candidate=_arm(candidate),
        loads=judged.loads,
        rows=judged.rows,
        confirmation=confirmation,
    )


def confirming(policy: Policy, judged: Judged) -> Policy:
    """The policy that new runs are judged by after a FAIL: the figures that failed, at the confirming level.

    Where the system's stability failed, no figure is taken out.
    """
    failed = {row.figure for row in judged.rows if row.verdict == "FAIL"}
    rules = tuple(rule for rule in policy.metrics if rule.name in failed) or policy.metrics
    return dataclasses.replace(policy, metrics=rules, level=policy.confirm_level)


def _failed(judged: Judged) -> set[tuple[str, ...]]:
    """What failed: rows by load, figure and bucket, and loads whose stability did."""
    rows = {
        (row.load, row.figure, row.bucket_by or "", row.bucket or "") for row in judged.rows if row.verdict == "FAIL"
    }
    return rows | {(load.load,) for load in judged.loads if load.candidate_worse}


def _guard(policy: Policy) -> tuple[MetricRule, ...]:
    """The rule that watches failures, unless the policy has one that lets no more pass."""
    guard = Margin(policy.failed_margin, False)
    if any(
        rule.name == GUARD and rule.direction == "higher" and rule.margin.size <= guard.size for rule in policy.metrics
    ):
        return ()
    return (MetricRule(GUARD, guard, "higher", (), False),)


def _not_run(policy: Policy, base: Arm, candidate: Arm) -> list[str]:
    """Loads of the base that the candidate has no run at, in words; none where it planned other loads.

    That is another test, which had to be allowed.
    """
    planned = [[(arm.manifest.get("load") or {}).get(key) for key in _POINTS] for arm in (base, candidate)]
    if planned[0] != planned[1]:
        return []
    missing = [load_text(load) for load in base.loads if load not in candidate.loads]
    return [f"the candidate has no run at load {one}" for one in missing if not policy.loads or one in policy.loads]


def _is_guard(policy: Policy, rule: MetricRule) -> bool:
    return rule.name == GUARD and rule not in policy.metrics


def _load(policy: Policy, base: Arm, candidate: Arm, match: Match) -> GateLoad:
    unstable = [sum(run.unstable for run in arm) for arm in (match.base, match.candidate)]
    left_out = tuple(
        f"{name} {run.run_id}: {run.unfit}"
        for name, arm in (("base", base), ("candidate", candidate))
        for run in arm.runs
        if run.load == match.load and run.unfit is not None
    )
    return GateLoad(
        load=load_text(match.load),
        repeats=match.k,
        paired=match.paired,
        enough=match.k >= policy.min_repeats,
        left_out=left_out,
        base_unstable=unstable[0],
        candidate_unstable=unstable[1],
        base_runs=len(match.base),
        candidate_runs=len(match.candidate),
        candidate_worse=match.k >= policy.min_repeats
        and _newly_unstable(unstable[0], len(match.base), unstable[1], len(match.candidate), policy.alpha),
    )


def _newly_unstable(base: int, of_base: int, candidate: int, of_candidate: int, alpha: float) -> bool:
    """Most of the candidate's runs are unstable, and none of the base's, or too few for chance (Fisher's exact test).

    One run in fifty or so is called unstable by chance, so single ones prove nothing.
    """
    from scipy.stats import hypergeom

    if 2 * candidate <= of_candidate:
        return False
    p = float(hypergeom.sf(candidate - 1, of_base + of_candidate, base + candidate, of_candidate))
    return base == 0 or p <= alpha


def _spoiled_words(policy: Policy, entries: Sequence[tuple[MetricRule, Cell, Effect | str]]) -> list[str]:
    """Figures for which a slow client left fewer runs than the policy asks for."""
    found = []
    for rule, cell, effect in entries:
        lost = spoiled(cell)
        left = 0 if isinstance(effect, str) else effect.k
        if lost and left < policy.min_repeats and cell.bucket is None:
            found.append(
                f"at load {load_text(cell.load)} this machine's client was slow and spoiled {rule.name} in {lost} of"
                f" {len(cell.base) if cell.paired else len(cell.base) + len(cell.candidate)}"
                f" {'pairs' if cell.paired else 'runs'}: use a quieter machine, or a core of its own for the client"
            )
    return found


def _effect(cell: Cell, rule: MetricRule, load: GateLoad) -> Effect | str:
    if cell.figure.kind in _WITHHELD:
        for name, unstable, runs in (
            ("base", load.base_unstable, load.base_runs),
            ("candidate", load.candidate_unstable, load.candidate_runs),
        ):
            if 2 * unstable > runs:
                return f"withheld: {name} is unstable in {unstable} of {runs} runs, so it grows with the run"
    return effect_of(cell, relative=rule.margin.relative)


def _row(
    policy: Policy, rule: MetricRule, cell: Cell, effect: Effect, p: tuple[float, float, float], tested: int
) -> GateRow:
    p_fine, p_worse, p_adjusted = p
    limit = rule.margin.limit(rule.direction)
    guard = _is_guard(policy, rule)
    short = None if guard else too_short(cell)
    verdict: RowVerdict = "WATCHED" if guard else "INCONCLUSIVE"
    if p_adjusted <= policy.alpha:
        verdict = "FAIL"
    elif p_fine <= policy.alpha and short is None:
        verdict = "PASS"
    further = None
    if verdict == "INCONCLUSIVE" and short is None:
        total = repeats_to_decide(effect, limit, rule.direction, policy.level, rows=tested)
        further = None if total is None else max(1, total - effect.k)
    told = (ratio_interval if rule.margin.relative else difference_interval)(effect, 2.0 * policy.level - 1.0)
    return GateRow(
        **_head(rule, cell, guard),
        verdict=verdict,
        effect=told.value,
        lo=told.lo,
        hi=told.hi,
        p_fine=p_fine,
        p_worse=p_worse,
        p_worse_adjusted=p_adjusted,
        k=effect.k,
        method=effect.method,
        further_repeats=further,
        reason="; ".join(dict.fromkeys(one for one in (short, told.reason) if one)) or None,
    )


def _blank_row(rule: MetricRule, cell: Cell, reason: str, guard: bool) -> GateRow:
    return GateRow(
        **_head(rule, cell, guard),
        verdict="WATCHED" if guard else "INCONCLUSIVE",
        effect=None,
        lo=None,
        hi=None,
        p_fine=None,
        p_worse=None,
        p_worse_adjusted=None,
        k=0,
        method="none",
        further_repeats=None,
        reason=reason,
    )


def _head(rule: MetricRule, cell: Cell, guard: bool) -> dict[str, Any]:
    limit = rule.margin.limit(rule.direction)
    values = [combined(cell.figure, arm) for arm in (cell.base, cell.candidate)]
    base, candidate = (Value(one.value, one.lo, one.hi, one.n, one.n_eff) for one in values)
    return {
        "load": load_text(cell.load),
        "figure": cell.figure.name,
        "bucket_by": None if cell.bucket is None else cell.bucket.by,
        "bucket": None if cell.bucket is None else cell.bucket.label,
        "unit": cell.unit,
        "direction": rule.direction,
        "critical": rule.critical,
        "guard": guard,
        "base": base,
        "candidate": candidate,
        "scale": "ratio" if rule.margin.relative else "difference",
        "limit": math.exp(limit) if rule.margin.relative else limit,
    }


def _worst_first(row: GateRow) -> tuple[Any, ...]:
    # Among failures the one that is the most of its margins away from the base: an infinite effect first.
    p = row.p_worse if row.p_worse is not None else 1.0
    far, size = _margins(row)
    return (
        _ORDER[row.verdict],
        not row.critical,
        row.guard,
        *((-far, -size) if row.verdict == "FAIL" else (p, 0.0)),
        list(FIGURES).index(row.figure),
    )


def _margins(row: GateRow) -> tuple[float, float]:
    """How far from the base a row is, in margins and by itself."""
    if row.effect is None or (row.scale == "ratio" and row.effect <= 0.0):
        return math.inf, math.inf
    logs = row.scale == "ratio"
    size, margin = (abs(math.log(x) if logs else x) for x in (row.effect, row.limit))
    return (size / margin if margin > 0.0 else math.inf), size


def _overall(
    policy: Policy, loads: Sequence[GateLoad], rows: Sequence[GateRow], thin: Sequence[str]
) -> tuple[GateVerdict, tuple[str, ...]]:
    reasons = [
        f"at load {one.load} the candidate is unstable in {one.candidate_unstable} of {one.candidate_runs} runs,"
        f" the base in {one.base_unstable} of {one.base_runs}"
        for one in loads
        if one.candidate_worse
    ]
    reasons += [f"{row.name}: {row_words(row)}" for row in rows if row.verdict == "FAIL"]
    if reasons:
        return "FAIL", tuple(reasons)
    unfit = [_thin_words(policy, one) for one in loads if not one.enough]
    unfit += [*thin, *_nothing_to_judge_by(rows)]
    if unfit or not loads:
        return "INVALID", tuple(unfit) or ("no load point is in both studies",)
    open_rows = [row for row in rows if row.verdict == "INCONCLUSIVE"]
    if open_rows or not rows:
        return "INCONCLUSIVE", tuple(_grouped(open_rows)) or ("nothing to judge",)
    return "PASS", ()


def _grouped(rows: Sequence[GateRow]) -> list[str]:
    """A reason for each undecided row; rows that have the same kind of reason share one line."""
    groups: dict[str, list[GateRow]] = {}
    for row in rows:
        # Of one kind are reasons that tell other numbers only.
        alone = row.reason is None or row.further_repeats is not None
        kind = row.name if alone else re.sub(r"\d[\d.,]*", "0", row.reason or "")
        groups.setdefault(kind, []).append(row)
    return [_group_words(group) for group in groups.values()]


def _group_words(rows: Sequence[GateRow]) -> str:
    first = rows[0]
    mend = "; gate --plan says how long" if "too short" in (first.reason or "") else ""
    if len(rows) == 1:
        return f"{first.name}: {row_words(first)}{mend}"
    names = ", ".join(row.name for row in rows[:_ROWS_TOLD])
    more = f", and {len(rows) - _ROWS_TOLD} more" if len(rows) > _ROWS_TOLD else ""
    return f"{len(rows)} rows ({names}{more}): {first.reason}{mend}"


def _nothing_to_judge_by(rows: Sequence[GateRow]) -> list[str]:
    """Loads at which an arm has no attempts, or the base answered none of them well."""
    found = []
    for row in rows:
        if row.figure == GUARD and row.bucket is None:
            empty = [name for name, arm in (("base", row.base), ("candidate", row.candidate)) if arm.value is None]
            if empty:
                found.append(f"at load {row.load} there is no attempt in the {' and the '.join(empty)}")
            elif row.base.value == 0.0:
                found.append(f"at load {row.load} the base answered nothing well")
    return list(dict.fromkeys(found))


def _thin_words(policy: Policy, load: GateLoad) -> str:
    kind = "pairs of valid runs" if load.paired else "valid runs an arm"
    why = f" ({len(load.left_out)} left out: {load.left_out[0]})" if load.left_out else ""
    return f"at load {load.load} there are {load.repeats} {kind}, the policy asks for {policy.min_repeats}{why}"


def _exit_code(policy: Policy, verdict: GateVerdict, judged: Judged) -> ExitCode:
    if verdict != "INCONCLUSIVE" or policy.inconclusive == "inconclusive":
        return ExitCode[verdict]
    if policy.inconclusive == "fail":
        return ExitCode.FAIL
    undecided = [row for row in judged.rows if row.verdict == "INCONCLUSIVE"]
    waved = judged.verdict == "INCONCLUSIVE" and not any(row.effect is None or row.critical for row in undecided)
    # No data is never a PASS, nor is a FAIL that didn't come again.
    return ExitCode.PASS if waved and undecided else ExitCode.INCONCLUSIVE


def _arm(arm: Arm) -> GateArm:
    ids = (arm.manifest_id, arm.workload_id, arm.system_id)
    return GateArm(arm.study_id, arm.name, arm.arm, *ids, arm.simulated, arm.manifest)
