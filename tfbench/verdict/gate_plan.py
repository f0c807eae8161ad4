"""What a gate takes, told beforehand: repeats and attempts per run, from the noise of a base study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.metrics import Length, length_of
from tfbench.stats.effect import Effect, FractionEffect, StudentEffect, normal_quantile
from tfbench.stats.equivalence import against_margin
from tfbench.stats.plan import MOST_REPEATS, repeats_needed, sd_lower, sd_upper
from tfbench.verdict.arms import load_text
from tfbench.verdict.cells import Cell, effect_of
from tfbench.verdict.policy import MetricRule, Policy

SCHEMA = "tfbench.gate-plan/1"
POWER = 0.9
ENOUGH_PAIRS = 10
"""Pilot pairs to plan from: ten tell the repeats to within a factor of 2.3 (80 % limits), five to 3.6."""


@dataclass(frozen=True)
class PlanRow:
    """What one row takes. sd: of one pair's effect, as measured and (sd_upper) with 80 % confidence at most.

    repeats: with which two equal arms pass; None where more than 1,000 would be needed, runs are too short, or nothing
    is known. repeats_low: the same, were the noise as small as the pilot allows (80 %); None where that isn't known.
    attempts: a run's now; attempts_needed: to plan for. length_factor: how many times as long runs have to be; None
    where they are long enough. reason: why something is unknown.
    """

    load: str
    figure: str
    bucket_by: str | None
    bucket: str | None
    limit: float
    sd: float | None
    sd_upper: float | None
    repeats: int | None
    repeats_low: int | None
    attempts: int | None
    attempts_needed: int | None
    length_factor: float | None
    reason: str | None


@dataclass(frozen=True)
class GatePlan:
    """The document `gate --plan` prints.

    repeats: with which all rows of equal arms pass, with `power`, were the noise as large as the pilot allows (80 %);
    None where no number is enough. repeats_low: were it as small as that. pilot: pairs (runs an arm) it was read from.
    length_factor: how
    many times as long runs have to be first; longer: the manifest key and its least value.
    """

    schema: str
    paired: bool
    power: float
    level: float
    repeats: int | None
    repeats_low: int | None
    pilot: int
    length_factor: float | None
    longer: str | None
    notes: tuple[str, ...]
    rows: tuple[PlanRow, ...]


def plan_gate(
    policy: Policy,
    cells: Sequence[Cell],
    *,
    paired: bool,
    load: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    power: float = POWER,
) -> GatePlan:
    """The plan from cells of two studies of the same system (`paired`), or of one study on both sides.

    One study alone can't say how much its runs share with those of another arm: its whole spread is taken as noise, so
    the plan is an upper bound. Chance of passing is shared out over the rows, since all must pass. `load`
    is the manifest's table, by which longer runs are told.
    """
    entries = [
        (rule, cell)
        for rule in policy.metrics
        for cell in cells
        if cell.figure.name == rule.name and (cell.bucket is None or cell.bucket.by in rule.buckets)
    ]
    each = 1.0 - (1.0 - power) / max(1, len(entries))
    rows = tuple(_row(policy, rule, cell, paired, each) for rule, cell in entries)
    known = [row.repeats for row in rows if row.repeats is not None]
    repeats = max(policy.min_repeats, *known) if rows and len(known) == len(rows) else None
    factor = max((row.length_factor for row in rows if row.length_factor is not None), default=None)
    longer = None if factor is None else _longer(load or {}, factor)
    low = [one for row in rows if (one := row.repeats_low or row.repeats) is not None]
    repeats_low = None if repeats is None else max(policy.min_repeats, *low)
    pilot = min((len(cell.base) for _, cell in entries), default=0)
    return GatePlan(
        schema=SCHEMA,
        paired=paired,
        power=power,
        level=policy.level,
        repeats=repeats,
        repeats_low=repeats_low,
        pilot=pilot,
        length_factor=factor,
        longer=longer,
        notes=(*notes, *_few_pairs(pilot, paired)),
        rows=rows,
    )


def _few_pairs(pilot: int, paired: bool) -> tuple[str, ...]:
    """What so few pilot runs leave open, and what to do; nothing where they are enough."""
    if not 2 <= pilot < ENOUGH_PAIRS:
        return ()
    times = (sd_upper(1.0, pilot - 1.0) / sd_lower(1.0, pilot - 1.0)) ** 2
    return (
        f"{pilot} pilot {'pairs' if paired else 'runs'} tell the noise so roughly that the repeats may be off "
        f"{times:.1f} times; plan from {ENOUGH_PAIRS} or more (load.repeats = {ENOUGH_PAIRS})",
    )


def _longer(load: Mapping[str, Any], factor: float) -> str | None:
    for key in ("duration_s", "count"):
        now = load.get(key)
        if isinstance(now, int | float):
            return f"load.{key} ≥ {math.ceil(round(now * factor, 6))}"
    return None


def _row(policy: Policy, rule: MetricRule, cell: Cell, paired: bool, power: float) -> PlanRow:
    limit = rule.margin.limit(rule.direction)
    effect = effect_of(cell, relative=rule.margin.relative) if paired else _alone(cell, rule)
    sd = upper = repeats = low = reason = None
    if isinstance(effect, str):
        reason = effect
    elif isinstance(effect, StudentEffect):
        sd = effect.spread * math.sqrt(effect.k)
        upper = sd_upper(sd, effect.df)
        repeats = repeats_needed(upper, abs(limit), policy.level, power)
        low = repeats_needed(sd_lower(sd, effect.df), abs(limit), policy.level, power)
    else:
        repeats = _by_growth(effect, limit, rule, policy.level, power)
    if repeats is None and reason is None:
        reason = f"takes more than {MOST_REPEATS} repeats: the margin is tight for this noise; make runs longer"
    lengths = [length_of(cell.figure, arm, resolved=_resolved(rule, cell)) for arm in (cell.base, cell.candidate)]
    known = [one for one in lengths if one is not None]
    factor = _factor(known)
    if factor is not None:
        # What runs are too short for never passes, or with bounds that hold too rarely: repeats don't mend that.
        repeats = low = None
        reason = f"runs are too short for it: make them {factor:g} times as long"
    return PlanRow(
        load=load_text(cell.load),
        figure=cell.figure.name,
        bucket_by=None if cell.bucket is None else cell.bucket.by,
        bucket=None if cell.bucket is None else cell.bucket.label,
        limit=math.exp(limit) if rule.margin.relative else limit,
        sd=sd,
        sd_upper=upper,
        repeats=repeats,
        repeats_low=low,
        attempts=min((one.n for one in known), default=None),
        attempts_needed=max((one.needed for one in known), default=None),
        length_factor=factor,
        reason=reason,
    )


def _resolved(rule: MetricRule, cell: Cell) -> float:
    """The margin as a share of the base: attempts rarer than that needn't be told apart."""
    if rule.margin.relative or cell.figure.kind == "fraction":
        return rule.margin.size
    values = [one.value for one in cell.base if one.value is not None and 0.0 < one.value < math.inf]
    return rule.margin.size * len(values) / math.fsum(values) if values else 0.0


def _factor(lengths: Sequence[Length]) -> float | None:
    """How many times as long runs have to be, in tenths, rounded up; None where they are long enough."""
    short = [one.needed / max(1, one.n) for one in lengths if one.n < one.needed]
    return max(1.1, math.ceil(10.0 * max(short) - 1e-9) / 10.0) if short else None


def _alone(cell: Cell, rule: MetricRule) -> Effect | str:
    """The effect of a study on one just like it that shares nothing with it."""
    known = tuple(one for one in cell.base if one.value is not None)
    twice = Cell(cell.load, cell.bucket, cell.figure, cell.unit, False, known, known)
    return effect_of(twice, relative=rule.margin.relative)


def _by_growth(effect: Effect, limit: float, rule: MetricRule, level: float, power: float) -> int | None:
    """Repeats with which equal arms of such evidence pass: exact shares of attempts, or order alone."""
    if effect.k < 2:
        return None
    even = effect
    if isinstance(effect, FractionEffect):
        share = (effect.base + effect.candidate) / 2
        even = FractionEffect(share, effect.base_worth, share, effect.candidate_worth, effect.k, effect.method)
    z = normal_quantile(power)
    for k in range(2, MOST_REPEATS + 1):
        grown = even.grown(k / effect.k)
        inside = limit - z * grown.spread if rule.direction == "lower" else limit + z * grown.spread
        if against_margin(grown, inside, rule.direction).p_fine <= 1.0 - level:
            return k
    return None
