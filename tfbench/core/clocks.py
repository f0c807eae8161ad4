"""One client clock per host: int64 ns since the Unix epoch, CLOCK_MONOTONIC mapped by anchors.

A `ClockBase` fixes the offset once for a whole run and is shared by all its processes, so
client time can't step. Kernel receive stamps are CLOCK_REALTIME; anchors taken at 1 Hz carry
them over to client time and reveal realtime steps.
"""

import time
from dataclasses import dataclass

STEP_LIMIT_NS = 100_000
"""A change of realtime against monotonic over this between two anchors is a clock step."""


@dataclass(frozen=True)
class Anchor:
    """A bracketed reading: at `mono_ns` (CLOCK_MONOTONIC) realtime was `real_ns`, within `width_ns`."""

    mono_ns: int
    real_ns: int
    width_ns: int

    @property
    def offset_ns(self) -> int:
        """Realtime minus monotonic."""
        return self.real_ns - self.mono_ns


def read_anchor(tries: int = 5) -> Anchor:
    """The narrowest of `tries` monotonic/realtime/monotonic readings."""
    best: Anchor | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        anchor = Anchor((before + after) // 2, real, after - before)
        if best is None or anchor.width_ns < best.width_ns:
            best = anchor
    assert best is not None
    return best


@dataclass(frozen=True)
class ClockBase:
    """The fixed offset that turns CLOCK_MONOTONIC into client time."""

    offset_ns: int

    @classmethod
    def start(cls) -> "ClockBase":
        """A base from a fresh anchor."""
        return cls(read_anchor().offset_ns)

    def now_ns(self) -> int:
        """Client time now."""
        return time.monotonic_ns() + self.offset_ns
