"""Non-inferiority and equivalence: is an effect within a margin stated beforehand?"""

import math
from dataclasses import dataclass
from typing import Literal

from tfbench.stats.effect import Effect

Direction = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Margin:
    """How much worse is still acceptable: a share of the base (`relative`, compared on logs), or an amount.

    Raises ValueError for a size that is negative, not finite, or for a relative one 1 or more.
    """

    size: float
    relative: bool

    def __post_init__(self) -> None:
        if not math.isfinite(self.size) or self.size < 0.0 or (self.relative and self.size >= 1.0):
            raise ValueError(f"margin must be at least 0{' and below 1' if self.relative else ''}, not {self.size}")

    def limit(self, direction: Direction) -> float:
        """Where on the effect's scale it becomes too much: log(1 + m) up, log(1 - m) down, or the amount."""
        if direction == "lower":
            return math.log1p(self.size) if self.relative else self.size
        return math.log1p(-self.size) if self.relative else -self.size


@dataclass(frozen=True, slots=True)
class Tested:
    """p-values of two one-sided tests at the margin's limit.

    p_fine: small when the candidate is shown to be no worse than the margin allows (non-inferior).
    p_worse: small when it is shown to be worse than that.
    """

    p_fine: float
    p_worse: float


def against_margin(effect: Effect, limit: float, direction: Direction) -> Tested:
    """Both tests of an effect against `Margin.limit`; `direction` says which way is better."""
    if direction == "lower":
        return Tested(effect.below(limit), effect.above(limit))
    return Tested(effect.above(limit), effect.below(limit))


def tost(effect: Effect, low: float, high: float) -> float:
    """p-value of two one-sided tests: small when the effect is shown to lie in (low, high).

    At level a it is so exactly where the two-sided 1 - 2a interval lies inside. Source: Schuirmann (1987).
    """
    if not low < high:
        raise ValueError(f"low must be under high: {low}, {high}")
    return max(effect.above(low), effect.below(high))
