"""What a gate takes, told beforehand: repeats and attempts per run, from the noise of a base study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfbench.metrics import Length, length_of
from tfbench.stats.effect import Effect, FractionEffect, StudentEffect, normal_quantile
from tfbench.stats.equivalence import against_margin
from tfbench.stats.fraction import clopper_pearson
from tfbench.stats.plan import MOST_REPEATS, repeats_needed, sd_limits, sd_upper
from tfbench.verdict.arms import load_text
from tfbench.verdict.cells import Cell, effect_of
from tfbench.verdict.policy import MetricRule, Policy

SCHEMA = "tfbench.gate-plan/1"
POWER = 0.9
ENOUGH_PAIRS = 10
"""Pilot pairs to plan from: ten tell the noise to within a factor of 1.8, five to 2.9."""
RANGE_LEVEL = 0.95
"""How surely the true noise lies between the limits of a plan's range."""


@dataclass(frozen=True)
class PlanRow:
    """What one row takes. sd: of one pair's effect, as measured and (sd_upper) with 80 % confidence at most.

    repeats: with which two equal arms pass; None where more than 1,000 would be needed, runs are too short, or nothing
    is known. repeats_measured: the same, were the noise just as measured; repeats_low, repeats_high: were it at its
    lower or upper 95 % limit; each None likewise. attempts: a run's now; attempts_needed: to plan for. length_factor:
    how many times as long runs have to be; None where they are long enough. reason: why something is unknown.
    """

    load: str
    figure: str
    bucket_by: str | None
    bucket: str | None
    limit: float
    sd: float | None
    sd_upper: float | None
    repeats: int | None
    repeats_measured: int | None
    repeats_low: int | None
    repeats_high: int | None
    attempts: int | None
    attempts_needed: int | None
    length_factor: float | None
    reason: str | None


@dataclass(frozen=True)
class GatePlan:
    """The document `gate --plan` prints.

    repeats: with which all rows of equal arms pass, with `power`, were the noise at its upper 80 % limit; None where no
    number is enough. repeats_measured, repeats_low, repeats_high: were it as measured, or at its lower or upper 95 %
    limit. pilot: pairs (runs an arm) it was read from. noise_factor: how many times as measured it may be at most.
    length_factor: how many times as long runs have to be first; longer: the manifest key and its least value.
    """

    schema: str
    paired: bool
    power: float
    level: float
    repeats: int | None
    repeats_measured: int | None
    repeats_low: int | None
    repeats_high: int | None
    pilot: int
    noise_factor: float | None
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
    effects = [_effect(rule, cell, paired) for rule, cell in entries]
    rows = tuple(_row(policy, *entry, effect, each) for entry, effect in zip(entries, effects, strict=True))
    factor = max((row.length_factor for row in rows if row.length_factor is not None), default=None)
    longer = None if factor is None else _longer(load or {}, factor)
    found = [effect for effect in effects if not isinstance(effect, str)]
    pilot = min((effect.k for effect in found), default=0)
    df = min((effect.df for effect in found if isinstance(effect, StudentEffect)), default=None)
    noise = None if df is None else sd_limits(1.0, df, RANGE_LEVEL)[1]
    return GatePlan(
        schema=SCHEMA,
        paired=paired,
        power=power,
        level=policy.level,
        repeats=_most(policy, [row.repeats for row in rows]),
        repeats_measured=_most(policy, [row.repeats_measured for row in rows]),
        repeats_low=_most(policy, [row.repeats_low for row in rows]),
        repeats_high=_most(policy, [row.repeats_high for row in rows]),
        pilot=pilot,
        noise_factor=noise,
        length_factor=factor,
        longer=longer,
        notes=(*notes, *_few_pairs(pilot, paired, noise)),
        rows=rows,
    )


def _most(policy: Policy, repeats: Sequence[int | None]) -> int | None:
    """The repeats of the row that takes the most; None where one has no number."""
    known = [one for one in repeats if one is not None]
    return max(policy.min_repeats, *known) if known and len(known) == len(repeats) else None


def _few_pairs(pilot: int, paired: bool, noise: float | None) -> tuple[str, ...]:
    """What so few pilot runs leave open, and what to do; nothing where they are enough."""
    if not 2 <= pilot < ENOUGH_PAIRS:
        return ()
    kind = "pairs" if paired else "runs"
    tell = "tell little of the noise" if noise is None else f"tell the noise to within a factor of {noise:.2g}"
    return (
        f"{pilot} pilot {kind} {tell}: run the pilot with {ENOUGH_PAIRS} or more {kind}"
        f" (load.repeats = {ENOUGH_PAIRS}) for a plan that is closer",
    )


def _longer(load: Mapping[str, Any], factor: float) -> str | None:
    for key in ("duration_s", "count"):
        now = load.get(key)
        if isinstance(now, int | float):
            return f"load.{key} ≥ {math.ceil(round(now * factor, 6))}"
    return None


def _effect(rule: MetricRule, cell: Cell, paired: bool) -> Effect | str:
    return effect_of(cell, relative=rule.margin.relative) if paired else _alone(cell, rule)


def _row(policy: Policy, rule: MetricRule, cell: Cell, effect: Effect | str, power: float) -> PlanRow:
    limit = rule.margin.limit(rule.direction)
    sd = upper = repeats = measured = low = high = reason = None
    if isinstance(effect, str):
        reason = effect
    elif isinstance(effect, StudentEffect):
        sd = effect.spread * math.sqrt(effect.k)
        upper = sd_upper(sd, effect.df)
        repeats, measured, low, high = (
            repeats_needed(noise, abs(limit), policy.level, power)
            for noise in (upper, sd, *sd_limits(sd, effect.df, RANGE_LEVEL))
        )
    else:
        repeats = measured = low = high = _by_growth(_even(effect), limit, rule, policy.level, power)
        if isinstance(effect, FractionEffect):
            low, high = (
                _by_growth(_even(effect, share), limit, rule, policy.level, power) for share in _share_limits(effect)
            )
    if repeats is None and reason is None:
        reason = f"takes more than {MOST_REPEATS} repeats: the margin is tight for this noise; make runs longer"
    lengths = [length_of(cell.figure, arm, resolved=_resolved(rule, cell)) for arm in (cell.base, cell.candidate)]
    known = [one for one in lengths if one is not None]
    factor = _factor(known)
    if factor is not None:
        # What runs are too short for never passes, or with bounds that hold too rarely: repeats don't mend that.
        repeats = measured = low = high = None
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
        repeats_measured=measured,
        repeats_low=low,
        repeats_high=high,
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
    effect = effect_of(twice, relative=rule.margin.relative)
    # The same runs twice say no more of the noise than they do once.
    return replace(effect, df=len(known) - 1.0) if isinstance(effect, StudentEffect) else effect


def _even(effect: Effect, share: float | None = None) -> Effect:
    """The same evidence of equal arms: both fractions at `share`, halfway between theirs if None."""
    if not isinstance(effect, FractionEffect):
        return effect
    both = (effect.base + effect.candidate) / 2 if share is None else share
    return replace(effect, base=both, candidate=both)


def _share_limits(effect: FractionEffect) -> tuple[float, float]:
    """Where the share may truly lie, in order of the repeats it takes: farthest from a half, then nearest to it."""
    n = effect.base_worth + effect.candidate_worth
    share = (effect.base + effect.candidate) / 2
    low, high = clopper_pearson(min(n, share * n), n, level=RANGE_LEVEL)
    return max(low, high, key=lambda end: abs(end - 0.5)), min(max(low, 0.5), high)


def _by_growth(effect: Effect, limit: float, rule: MetricRule, level: float, power: float) -> int | None:
    """Repeats with which equal arms of such evidence pass: exact shares of attempts, or order alone."""
    if effect.k < 2:
        return None
    z = normal_quantile(power)

    def passes(k: int) -> bool:
        grown = effect.grown(k / effect.k)
        inside = limit - z * grown.spread if rule.direction == "lower" else limit + z * grown.spread
        return against_margin(grown, inside, rule.direction).p_fine <= 1.0 - level

    if not passes(MOST_REPEATS):
        return None
    low, high = 1, MOST_REPEATS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high
