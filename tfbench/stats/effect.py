"""How a candidate differs from a base on one scale, in the forms that evidence takes.

An effect is candidate minus base: of logs (so exp of it is a ratio) or of plain numbers. Each form answers the same:

| asked | answer |
|---|---|
| `above(x)` | p-value of "the effect is at most x": small when it is shown to be above |
| `below(x)` | p-value of "the effect is at least x": small when it is shown to be below |
| `bounds(level)` | lo and hi, each missing with (1 - level) / 2; None where these data give none. Never equal |
| `grown(factor)` | the same evidence, were there that many times as many runs; what plans are made with |
| `spread` | its standard error now, for plans; 0 where it has none to speak of |

Nothing here is ever NaN; what isn't finite is None.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np

from tfbench.stats.fraction import clopper_pearson
from tfbench.stats.interval import NO_WIDTH, FloatArray, student_t

Bounds = tuple[float | None, float | None]
LOGIT_STEPS = 40


class Effect(Protocol):
    """See the table above. `estimate` is None where it isn't finite; `k` counts the runs of an arm behind it."""

    @property
    def estimate(self) -> float | None: ...
    @property
    def k(self) -> int: ...
    @property
    def method(self) -> str: ...
    @property
    def spread(self) -> float: ...
    def above(self, x: float) -> float: ...
    def below(self, x: float) -> float: ...
    def bounds(self, level: float) -> Bounds: ...
    def grown(self, factor: float) -> "Effect": ...


@dataclass(frozen=True, slots=True)
class StudentEffect:
    """Student's t: estimate +- t_df * spread; spread > 0, df > 0."""

    estimate: float
    spread: float
    df: float
    k: int
    method: str

    def above(self, x: float) -> float:
        return self._tail((self.estimate - x) / self.spread)

    def below(self, x: float) -> float:
        return self._tail((x - self.estimate) / self.spread)

    def bounds(self, level: float) -> Bounds:
        half = student_t(level, self.df) * self.spread
        return self.estimate - half, self.estimate + half

    def grown(self, factor: float) -> Self:
        # Degrees of freedom follow the runs: k - 1 of paired ones, as Welch gives them of two arms.
        df = self.df * (self.k * factor - 1.0) / (self.k - 1.0)
        return replace(self, spread=self.spread / math.sqrt(factor), df=df)

    def _tail(self, t: float) -> float:
        from scipy.special import stdtr

        return float(stdtr(self.df, -t))


@dataclass(frozen=True)
class FractionEffect:
    """A difference of two fractions: Clopper-Pearson bounds of each, put together by square and add.

    Args:
        base, candidate: the shares, in [0, 1].
        base_worth, candidate_worth: effective numbers of attempts, >= 1.

    lo = d - sqrt((pc - lc)^2 + (ub - pb)^2), hi likewise; 0 % and 100 % are answered like any other share.
    Source: Newcombe (1998), "Interval estimation for the difference between independent proportions", method 10, with
    exact bounds instead of Wilson's. The arms count as independent, which a shared schedule makes cautious.
    """

    base: float
    base_worth: float
    candidate: float
    candidate_worth: float
    k: int
    method: str

    @property
    def estimate(self) -> float:
        return self.candidate - self.base

    @property
    def spread(self) -> float:
        arms = ((self.base, self.base_worth), (self.candidate, self.candidate_worth))
        return math.sqrt(sum(p * (1.0 - p) / n for p, n in arms))

    def above(self, x: float) -> float:
        return self._tail(lambda level: self.bounds(level)[0] > x)

    def below(self, x: float) -> float:
        return self._tail(lambda level: self.bounds(level)[1] < x)

    def bounds(self, level: float) -> tuple[float, float]:
        (lb, ub), (lc, uc) = (
            clopper_pearson(min(n, p * n), n, level=level)
            for p, n in ((self.base, self.base_worth), (self.candidate, self.candidate_worth))
        )
        down = math.hypot(self.candidate - lc, ub - self.base)
        up = math.hypot(uc - self.candidate, self.base - lb)
        return max(self.estimate - down, -1.0), min(self.estimate + up, 1.0)

    def grown(self, factor: float) -> Self:
        return replace(self, base_worth=self.base_worth * factor, candidate_worth=self.candidate_worth * factor)

    def _tail(self, clears: Callable[[float], bool]) -> float:
        """The smallest one-sided p at which the bound still clears: bisection on its log-odds."""
        lo, hi = -30.0, 0.0
        if not clears(1.0 - 2.0 * _expit(-1e-9)):
            return 1.0
        if clears(1.0 - 2.0 * _expit(lo)):
            return _expit(lo)
        for _ in range(LOGIT_STEPS):
            middle = (lo + hi) / 2
            lo, hi = (lo, middle) if clears(1.0 - 2.0 * _expit(middle)) else (middle, hi)
        return _expit(hi)


@dataclass(frozen=True)
class OrderEffect:
    """What order alone tells, where there is no spread to measure or a value is infinite (or 0, on logs).

    Args:
        base, candidate: float64 [k], +-inf allowed; pairs by position if `paired`.
        times: as if every pair had come so many times (plans only).

    Paired: the sign test, P(at least so many of K fair coins). All one arm's values beyond all the other's: one of
    the ways to choose K of both arms' runs. A pair that is infinite on both sides, alike, says nothing and is left out.
    """

    base: FloatArray
    candidate: FloatArray
    paired: bool
    method: str
    times: float = 1.0

    @cached_property
    def _differences(self) -> FloatArray:
        if not self.paired:
            return np.empty(0)
        with np.errstate(invalid="ignore", over="ignore"):
            found = self.candidate - self.base
        return found[~np.isnan(found)]

    @property
    def k(self) -> int:
        return min(len(self.base), len(self.candidate))

    @property
    def estimate(self) -> float | None:
        if not self.k or (self.paired and not len(self._differences)):
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            if self.paired:
                middle = float(np.median(self._differences))
            else:
                middle = float(np.median(self.candidate) - np.median(self.base))
        return middle if math.isfinite(middle) else None

    @property
    def spread(self) -> float:
        return 0.0

    def above(self, x: float) -> float:
        return min(self._sign(x), self._apart(self.base + x, self.candidate))

    def below(self, x: float) -> float:
        return min(self._sign(x, below=True), self._apart(self.candidate, self.base + x))

    def bounds(self, level: float) -> Bounds:
        """The extremes of the pairs, where enough of them make these bounds of the median."""
        found = self._differences
        if not len(found) or 0.5 ** len(found) > (1.0 - level) / 2:
            return None, None
        lo, hi = (x if math.isfinite(x) else None for x in (float(found.min()), float(found.max())))
        if lo is not None and hi is not None and hi - lo <= NO_WIDTH * max(abs(lo), abs(hi), 1.0):
            return None, None
        return lo, hi

    def grown(self, factor: float) -> Self:
        return replace(self, times=self.times * factor)

    def _sign(self, x: float, *, below: bool = False) -> float:
        from scipy.special import bdtrc

        found = self._differences
        hits = int((found < x).sum() if below else (found > x).sum())
        hits, n = int(hits * self.times), int(len(found) * self.times)
        return 1.0 if hits == 0 else float(bdtrc(hits - 1, n, 0.5))

    def _apart(self, lower: FloatArray, upper: FloatArray) -> float:
        from scipy.special import binom

        if not len(lower) or not len(upper) or not float(lower.max()) < float(upper.min()):
            return 1.0
        n, m = len(lower) * self.times, len(upper) * self.times
        return 1.0 / float(binom(n + m, n))


@dataclass(frozen=True, slots=True)
class WidenedEffect:
    """An effect of which the truth may lie `down` below and `up` above what the data say, whatever their number."""

    effect: Effect
    down: float
    up: float

    @property
    def estimate(self) -> float | None:
        return self.effect.estimate

    @property
    def k(self) -> int:
        return self.effect.k

    @property
    def method(self) -> str:
        return self.effect.method

    @property
    def spread(self) -> float:
        return self.effect.spread

    def above(self, x: float) -> float:
        return self.effect.above(x + self.down)

    def below(self, x: float) -> float:
        return self.effect.below(x - self.up)

    def bounds(self, level: float) -> Bounds:
        lo, hi = self.effect.bounds(level)
        return None if lo is None else lo - self.down, None if hi is None else hi + self.up

    def grown(self, factor: float) -> "WidenedEffect":
        return replace(self, effect=self.effect.grown(factor))


def normal_quantile(p: float) -> float:
    """The standard normal quantile."""
    from scipy.special import ndtri

    return float(ndtri(p))


def _expit(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
