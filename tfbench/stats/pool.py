"""The values of all runs of a load point, put together once for all their quantiles."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tfbench.stats.correlation import Worth, worth_of_repeats
from tfbench.stats.interval import BoolArray, FloatArray, IntArray
from tfbench.stats.quantile import rank

# The correlation time of a queue's tail is about so many times that of its median (M/M/1: three).
TAIL = 3.0


@dataclass(frozen=True)
class Pool:
    """Values of runs in schedule order.

    Args:
        values: one float64 array [n] per run, n >= 1, in schedule order, +inf allowed.
        owners: as in `Clusters`, one per run, ascending, or None.
        missing: what to say of runs without data, which are not among these.
    """

    values: Sequence[FloatArray]
    owners: Sequence[IntArray] | None
    missing: tuple[str, ...] = ()
    _shares: dict[float, list[tuple[list[IntArray], Worth]]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def ordered(self) -> FloatArray:
        """All values, ascending."""
        return np.sort(np.concatenate(list(self.values)))

    @cached_property
    def starts(self) -> list[IntArray] | None:
        """Where each request's values begin, run by run; None where each value is its own request."""
        if self.owners is None:
            return None
        return [np.flatnonzero(np.diff(owner, prepend=owner[0] - 1)) for owner in self.owners]

    @cached_property
    def sizes(self) -> list[IntArray]:
        """How many values each request has, run by run."""
        if self.starts is None:
            return [np.ones(len(one), dtype=np.int64) for one in self.values]
        return [np.diff(start, append=len(one)) for start, one in zip(self.starts, self.values, strict=True)]

    @cached_property
    def middle_tau(self) -> float:
        """The correlation time at the median, in requests: little strays there."""
        return max(worth.tau for _, worth in self.shares(self.at(0.5)))

    def at(self, p: float) -> float:
        """The value of rank ceil(n p)."""
        return float(self.ordered[rank(len(self.ordered), p) - 1])

    def shares(self, value: float) -> list[tuple[list[IntArray], Worth]]:
        """How many of each request's values lie at or under `value`, run by run; and under it, where several equal it.

        With each, what two or more runs together are worth for that share, were they draws of one system.
        """
        if value not in self._shares:
            below, upto = (int(np.searchsorted(self.ordered, value, side)) for side in ("left", "right"))
            found = [self._hits([one <= value for one in self.values])] if upto < len(self.ordered) or not below else []
            if below and (upto - below > 1 or not found):
                found.append(self._hits([one < value for one in self.values]))
            self._shares[value] = [(hits, worth_of_repeats(hits, self.sizes)) for hits in found]
        return self._shares[value]

    def _hits(self, inside: Sequence[BoolArray]) -> list[IntArray]:
        if self.starts is None:
            return [one.astype(np.int64) for one in inside]
        return [
            np.add.reduceat(one.view(np.uint8), start, dtype=np.int32)
            for one, start in zip(inside, self.starts, strict=True)
        ]

    def expected_tau(self, p: float) -> float:
        """The correlation time to expect at the p-quantile from that at the median."""
        return 1.0 + (1.0 + (TAIL - 1.0) * abs(2.0 * p - 1.0)) * (self.middle_tau - 1.0)
