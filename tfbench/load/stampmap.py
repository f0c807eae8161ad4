"""Kernel stamps (CLOCK_REALTIME) to client time, whole columns at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfbench.core.clocks import STEP_LIMIT_NS, Anchor, ClockBase

I64 = NDArray[np.int64]

PLAUSIBLE_LAG_NS = 60_000_000_000
"""A kernel stamp further than this before its read is not of this clock."""


class StampMap:
    """Vectorised CLOCK_REALTIME → client time through one worker's anchors."""

    def __init__(self, base: ClockBase, anchors: Sequence[Anchor]) -> None:
        self._base = base
        self._monos = np.array([a.mono_ns for a in anchors], dtype=np.int64)
        self._offsets = np.array([a.offset_ns for a in anchors], dtype=np.int64)
        self._widths = np.array([a.width_ns for a in anchors], dtype=np.int64)

    @property
    def steps(self) -> int:
        """Stretches between anchors that hold a realtime step."""
        if len(self._monos) < 2:
            return 0
        limits = STEP_LIMIT_NS + self._widths[1:] + self._widths[:-1]
        return int(np.sum(np.abs(np.diff(self._offsets)) > limits))

    def to_client(self, kernel: I64, user_mono: I64) -> tuple[I64, NDArray[np.bool_]]:
        """(client ns, usable) of stamps read at `user_mono`; where not usable, the user time serves."""
        user = user_mono + self._base.offset_ns
        if not len(self._monos):
            return user, np.zeros(len(user), dtype=bool)
        last = len(self._monos) - 1
        after = np.clip(np.searchsorted(self._monos, user_mono, side="right"), 0, last)
        before = np.clip(after - 1, 0, last)
        change = self._offsets[after] - self._offsets[before]
        span = np.maximum(self._monos[after] - self._monos[before], 1)
        part = np.clip((user_mono - self._monos[before]) / span, 0.0, 1.0)
        offset = self._offsets[before] + (change * part).astype(np.int64)
        stepped = np.abs(change) > STEP_LIMIT_NS + self._widths[before] + self._widths[after]
        mapped = kernel - offset + self._base.offset_ns
        usable = (kernel > 0) & ~stepped & (mapped <= user + STEP_LIMIT_NS) & (mapped > user - PLAUSIBLE_LAG_NS)
        return np.where(usable, np.minimum(mapped, user), user), usable
