"""A candidate against a base, from the figures of their runs: paired by run position, or two separate samples.

Pairs share a schedule and prompts, so what these do to a run cancels: for P95 at load 0.8 the standard deviation of the
log ratio is a fifth of the unpaired one (M/M/1, 3 % slower, 10 % noise per request).

Figures are finite and not negative, or +inf for a run whose figure is infinite (too many attempts failed). Data never
raise: without spread, with infinities or with zeros on logs the order of the runs decides (`OrderEffect`).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tfbench.stats.effect import Effect, FractionEffect, OrderEffect, StudentEffect
from tfbench.stats.interval import NO_WIDTH, FloatArray, Interval, check_level, interval
from tfbench.stats.labels import t_method

# Effective attempts on the rarer side of both arms from which t serves for differences of shares.
COMMON = 10.0
_CAPPED = 700.0


def paired_effect(base: Sequence[float], candidate: Sequence[float], *, logs: bool) -> Effect:
    """Student's t on the K differences candidate - base (of logs: log ratios), pair by pair.

    Args:
        base, candidate: float [K], K >= 1, the figures of runs that belong together by position.
        logs: compare on logs, where only ratios count.
    """
    b, c = _on_scale(base, logs), _on_scale(candidate, logs)
    if len(b) != len(c):
        raise ValueError(f"{len(b)} base runs, but {len(c)} candidate runs to pair with them")
    with np.errstate(invalid="ignore", over="ignore"):
        found = c - b
        k = len(found)
        plain = k >= 2 and bool(np.isfinite(found).all()) and not _flat(found, b, c)
        spread = float(found.std(ddof=1)) / math.sqrt(k) if plain else 0.0
    if not 0.0 < spread < math.inf:
        return OrderEffect(b, c, True, f"order of the pairs (K={k})")
    what = "log ratio of pairs" if logs else "differences of pairs"
    return StudentEffect(float(found.mean()), spread, k - 1.0, k, t_method(f"t on {what}", k))


def unpaired_effect(base: Sequence[float], candidate: Sequence[float], *, logs: bool) -> Effect:
    """Welch's t on the two arms' figures (of logs). Args: as `paired_effect`, but the lengths may differ."""
    b, c = _on_scale(base, logs), _on_scale(candidate, logs)
    k = min(len(b), len(c))
    finite = bool(np.isfinite(b).all() and np.isfinite(c).all())
    parts = [0.0, 0.0]
    if k >= 2 and finite and not (_flat(b, b) and _flat(c, c)):
        with np.errstate(over="ignore"):
            parts = [float(one.var(ddof=1)) / len(one) for one in (b, c)]
    weights = [part**2 / (len(one) - 1) for part, one in zip(parts, (b, c), strict=True)] if k >= 2 else [0.0]
    if not (0.0 < sum(weights) < math.inf):
        return OrderEffect(b, c, False, f"order of the runs (K={k})")
    name = t_method("Welch's t on logs of runs" if logs else "Welch's t on runs", k)
    return StudentEffect(float(c.mean() - b.mean()), math.sqrt(sum(parts)), sum(parts) ** 2 / sum(weights), k, name)


def fraction_effect(
    base: Sequence[float], candidate: Sequence[float], of_base: Interval, of_candidate: Interval, *, paired: bool
) -> Effect:
    """The difference of two fractions.

    Args:
        base, candidate: the runs' shares.
        of_base, of_candidate: `combine_fraction` of the same runs, for the pooled shares and what they are worth.

    Where both arms have 10 effective attempts on their rarer side, t on the differences; else, and where runs show no
    spread, exact bounds of each arm put together.
    """
    arms = [(one.value or 0.0, max(one.n_eff or 1.0, 1.0)) for one in (of_base, of_candidate)]
    k = min(len(base), len(candidate))
    if k >= 3 and all(min(share, 1.0 - share) * worth >= COMMON for share, worth in arms):
        effect = (paired_effect if paired else unpaired_effect)(base, candidate, logs=False)
        if isinstance(effect, StudentEffect):
            return effect
    name = f"Clopper-Pearson on n_eff of either arm, square and add (K={k})"
    return FractionEffect(*arms[0], *arms[1], k, name)


def paired_ratio(base: FloatArray, candidate: FloatArray, level: float = 0.95) -> Interval:
    """The ratio candidate / base: geometric mean over pairs with Student t bounds on its log. Args: `paired_effect`."""
    return ratio_interval(paired_effect(list(base), list(candidate), logs=True), level)


def unpaired_ratio(base: FloatArray, candidate: FloatArray, level: float = 0.95) -> Interval:
    """The ratio of the geometric means with Welch's t bounds on its log. Args: `unpaired_effect`."""
    return ratio_interval(unpaired_effect(list(base), list(candidate), logs=True), level)


def ratio_interval(effect: Effect, level: float) -> Interval:
    """An effect on logs as a ratio."""
    return _interval(effect, level, lambda x: math.exp(min(max(x, -_CAPPED), _CAPPED)))


def difference_interval(effect: Effect, level: float) -> Interval:
    """An effect on plain numbers as a difference."""
    return _interval(effect, level, float)


def _interval(effect: Effect, level: float, shown: Callable[[float], float]) -> Interval:
    check_level(level)
    value, (lo, hi) = effect.estimate, effect.bounds(level)
    return interval(
        None if value is None else shown(value),
        None if lo is None else shown(lo),
        None if hi is None else shown(hi),
        level=level,
        method=effect.method,
        n=effect.k,
        k=effect.k,
        settled=isinstance(effect, StudentEffect | FractionEffect),
        reasons=[why] if (why := _open_reason(effect, lo, hi)) else (),
    )


def _open_reason(effect: Effect, lo: float | None, hi: float | None) -> str | None:
    if isinstance(effect, OrderEffect):
        if effect.k < 2:
            return "one run an arm: how far runs differ isn't known"
        if effect.estimate is None:
            return "the figure is infinite or zero in some runs"
        return "the runs show no spread" if lo is None or hi is None else None
    return "an arm has no bound on that side" if lo is None or hi is None else None


def _on_scale(figures: Sequence[float], logs: bool) -> FloatArray:
    values = np.asarray(figures, dtype=np.float64)
    if np.isnan(values).any() or (logs and (values < 0.0).any()):
        raise ValueError("figures must not be NaN" + (" or negative" if logs else ""))
    if not logs:
        return values
    with np.errstate(divide="ignore"):
        return np.log(values)


def _flat(found: FloatArray, *scale: FloatArray) -> bool:
    """Whether differences agree to rounding, as measured by the size of what was subtracted."""
    size = max((float(np.abs(one).max()) for one in scale), default=0.0)
    return float(found.max() - found.min()) <= NO_WIDTH * max(size, 1.0)
