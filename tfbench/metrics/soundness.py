"""Which figures of a run stand although its client was slow: those that it moved by little."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfbench.metrics.definitions import FigureDef
from tfbench.stats.interval import Interval

TIMING = frozenset({"client_lag_p99_ms", "blurred_chunk_share", "kernel_to_user_lag_p99_ms", "worker_cpu_max_share"})
"""The signals of a slow client: what that did to a figure can be computed. Others say that the load was not offered as
planned, or that facts are wrong."""
SHARE, LEAST_MS = 0.01, 0.5
"""A figure that the client moved by less than this share of itself, or by less than so many milliseconds, is sound."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a run's figure is, and how far the client may have moved it: the truth lies in [value - down, value + up].

    In the figure's unit, down and up never negative, +inf where nobody knows. value: None where it is unknown or
    infinite.
    """

    value: float | None
    down: float = 0.0
    up: float = 0.0

    @property
    def most(self) -> float:
        return max(self.down, self.up)

    @property
    def share(self) -> float | None:
        """`most` as a share of the value; None where that is unknown or 0."""
        return self.most / abs(self.value) if self.value else None


Moves = Mapping[tuple[str, str], Moved]
"""By run_id and figure; what isn't in it was not moved."""


def over_limits(signals: Mapping[str, Any]) -> set[str]:
    """The names of a run's signals that are over their limits."""
    return {name for name, one in signals.items() if isinstance(one, Mapping) and one.get("ok") is False}


def only_timing(signals: Mapping[str, Any]) -> bool:
    """Whether every signal of a run that is over its limit is one of a slow client, and some are."""
    over = over_limits(signals)
    return bool(over) and over <= TIMING


def is_sound(figure: FigureDef, moved: Moved | None) -> bool:
    """Whether a run's figure stands: moved by less than 1 % of itself, a latency by less than 0.5 ms."""
    if moved is None or moved.most == 0.0:
        return True
    floor = LEAST_MS if figure.unit == "ms" else 0.0
    return moved.value is not None and moved.most <= max(SHARE * (abs(moved.value) - moved.most), floor)


def widened(interval: Interval, moved: Sequence[Moved], *, fraction: bool = False) -> Interval:
    """An interval whose bounds leave room for what the client may have moved: as much as in any of its runs."""
    if not moved:
        return interval
    down, up = max(one.down for one in moved), max(one.up for one in moved)
    # Nothing here falls below 0, and no fraction rises above 1.
    top = 1.0 if fraction else math.inf
    return replace(
        interval,
        lo=None if interval.lo is None else min(interval.lo, max(0.0, interval.lo - down)),
        hi=None if interval.hi is None else min(top, interval.hi + up),
    )


def spoiled_words(moved: Sequence[Moved], runs: int) -> str:
    """That the client spoiled a figure in these of so many runs."""
    shares = [one.share for one in moved]
    known = [share for share in shares if share is not None and share < 10.0]
    size = f"by up to {max(known):.0%}" if len(known) == len(shares) else "by more than can be told"
    where = f"in {len(moved)} of {runs} runs" if runs > 1 else "in this run"
    return f"{where} this machine's client was slow and moved it {size}"
