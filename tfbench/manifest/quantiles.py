"""Inverse distribution functions: a uniform number in, a token count or a time out.

Sampling by inversion makes the value of item i a pure function of its own uniform number, so items can be drawn in
any order, on any worker, and stay the same.
"""

import bisect
import itertools
import math
from dataclasses import dataclass
from statistics import NormalDist

from tfbench.manifest.dists import Dist, Empirical, LogNormal, Normal, Uniform

_INV_CDF = NormalDist().inv_cdf


@dataclass(frozen=True, slots=True)
class Sampler:
    """A distribution made ready for drawing; picklable.

    `at(u)` is the quantile at u in (0, 1), clipped to [low, high]. `index(u)` is the outcome drawn from an empirical
    distribution. Both cost about a microsecond.
    """

    kind: str
    a: float
    b: float
    low: float
    high: float
    values: tuple[float, ...]
    cumulative: tuple[float, ...]
    outcomes: int

    def index(self, u: float) -> int:
        """Which outcome of an empirical distribution u falls on."""
        if not self.cumulative:
            return min(int(u * self.outcomes), self.outcomes - 1)
        return min(bisect.bisect_right(self.cumulative, u * self.cumulative[-1]), self.outcomes - 1)

    def at(self, u: float) -> float:
        """The value at u in (0, 1)."""
        if self.kind == "number":
            return self.a
        if self.kind == "uniform":
            return self.a + u * (self.b - self.a)
        if self.kind == "empirical":
            return self.values[self.index(u)]
        z = self.a + self.b * _INV_CDF(u)
        return min(max(math.exp(z) if self.kind == "lognormal" else z, self.low), self.high)

    def whole_at(self, u: float) -> int:
        """`at` rounded to a whole number; a uniform law gives min..max with equal shares."""
        if self.kind == "uniform":
            return min(int(self.a + u * (self.b - self.a + 1)), int(self.b))
        return int(self.at(u) + 0.5)


def sampler(dist: float | Dist, low: float, high: float) -> Sampler:
    """`dist` ready for drawing, clipped to [low, high] where the distribution itself gives no tighter bound."""
    kind, a, b = "number", 0.0, 0.0
    values: tuple[float, ...] = ()
    cumulative: tuple[float, ...] = ()
    outcomes = 0
    if isinstance(dist, Uniform):
        kind, a, b = "uniform", dist.min, dist.max
    elif isinstance(dist, LogNormal):
        variance = math.log1p(dist.cv**2)
        kind, a, b = "lognormal", math.log(dist.mean) - variance / 2, math.sqrt(variance)
    elif isinstance(dist, Normal):
        sd = dist.sd if dist.sd is not None else dist.mean * (dist.cv or 0.0)
        kind, a, b = "normal", dist.mean, sd
    elif isinstance(dist, Empirical):
        kind, values = "empirical", dist.values or ()
        outcomes = len(dist.values or dist.pairs or ())
        cumulative = tuple(itertools.accumulate(dist.weights or ()))
    else:
        a = float(dist)
    if isinstance(dist, LogNormal | Normal):
        low = low if dist.min is None else max(low, dist.min)
        high = high if dist.max is None else min(high, dist.max)
    return Sampler(kind, a, b, low, high, values, cumulative, outcomes)
