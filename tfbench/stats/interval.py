"""The one answer type of this room: a value with its bounds, or a reason why there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

# Bounds closer than this (relative) are rounding, not knowledge.
NO_WIDTH = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and how sure we are of it.

    A bound of None is open: not estimable from these data, or one-sided by nature (a fraction of 1 has no upper bound
    worth printing). `reason` then says why; it may also stand beside two bounds as a caution. Nothing here is ever NaN
    or infinite, and lo <= value <= hi where present. lo = hi only where so many attempts share one value (a coarse
    clock) that both bounds fall on it.

    Args:
        value: the figure, in the unit of the data; None when it is infinite or there are no data.
        lo, hi: bounds, jointly at `level`: each misses with probability (1 - level) / 2, a lone one too.
        level: nominal two-sided level.
        method: how the bounds were made, with K; approximate ones carry their measured coverage.
        n: observations behind the figure over all runs (attempts, gaps or events).
        n_eff: how many independent observations they are worth; None where no such number is used or known.
        k: runs that contributed.
        settled: whether the runs carry the figure; else its value is the sample's own, with one bound at most.
        reason: one line, or None.

    Raises:
        ValueError: a field breaks one of the rules above; a defect of the caller, never of the data.
    """

    value: float | None
    lo: float | None
    hi: float | None
    level: float
    method: str
    n: int
    n_eff: float | None
    k: int
    settled: bool
    reason: str | None

    def __post_init__(self) -> None:
        for name in ("value", "lo", "hi", "n_eff"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ValueError(f"Interval.{name} is {number}; give None and a reason")
        if self.lo is not None and self.hi is not None and not self.lo <= self.hi:
            raise ValueError(f"Interval is upside down: [{self.lo}, {self.hi}]")
        if self.value is not None and not (
            (self.lo is None or self.lo <= self.value) and (self.hi is None or self.value <= self.hi)
        ):
            raise ValueError(f"Interval value {self.value} lies outside [{self.lo}, {self.hi}]")
        if (self.value is None or self.lo is None or self.hi is None) and not self.reason:
            raise ValueError("Interval leaves something open without a reason")


def interval(
    value: float | None,
    lo: float | None,
    hi: float | None,
    *,
    level: float,
    method: str,
    n: int,
    k: int,
    settled: bool,
    n_eff: float | None = None,
    ties: bool = False,
    reasons: Sequence[str] = (),
) -> Interval:
    """An `Interval` from raw numbers: what is not finite becomes None, what has no width opens, and each says why.

    ties: bounds are observed values, which may be one and the same; others have no width only for want of spread.
    """
    notes = list(dict.fromkeys(reason for reason in reasons if reason))
    value, lo, hi = _finite(value), _finite(lo), _finite(hi)
    if value is not None:
        # Rounding alone may put a bound past the value.
        lo = None if lo is None else min(lo, value)
        hi = None if hi is None else max(hi, value)
    if not ties and lo is not None and hi is not None and hi - lo <= NO_WIDTH * max(abs(lo), abs(hi)):
        lo = hi = None
        notes.append("the data show no spread to make bounds from")
    if not notes and (value is None or lo is None or hi is None):
        notes.append("a bound is beyond what a number can hold")
    return Interval(
        value=value,
        lo=lo,
        hi=hi,
        level=level,
        method=method,
        n=n,
        n_eff=_finite(n_eff),
        k=k,
        settled=settled,
        reason="; ".join(notes) or None,
    )


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def check_level(level: float) -> None:
    """Raises ValueError unless 0 < level < 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")


def student_t(level: float, df: float) -> float:
    """Two-sided Student t multiplier; df > 0, may be a fraction."""
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2))


def deflate(n_eff: float, df: float, level: float) -> float:
    """`n_eff` made smaller for being estimated: n_eff * (z / t_df)^2.

    An effective sample size is itself read from few excursions; df is their number. The same factor makes a survey's
    degrees of freedom count (Korn & Graubard 1998, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data"). For P95 of one M/M/1 run of 3000 at load 0.8 it brings ranks with
    n_eff from 80 to 89 % coverage.
    """
    from scipy.special import ndtri

    return n_eff * (float(ndtri(0.5 + level / 2)) / student_t(level, max(df, 1.0))) ** 2
