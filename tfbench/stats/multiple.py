"""Many tests at once: p-values adjusted so that a table of them misleads no more often than a single one."""

from collections.abc import Sequence

import numpy as np

from tfbench.stats.interval import FloatArray


def holm(p: Sequence[float]) -> FloatArray:
    """Holm's step-down p-values: rejecting those at or under a keeps the chance of any false rejection under a.

    Args:
        p: p-values in [0, 1], any order and dependence; may be empty.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    values, order = _ordered(p)
    steps = (len(values) - np.arange(len(values))) * values[order]
    return _unordered(np.minimum(np.maximum.accumulate(steps), 1.0), order)


def benjamini_hochberg(p: Sequence[float]) -> FloatArray:
    """Benjamini and Hochberg's p-values: of those at or under q, a share of at most q is expected to be false.

    For looking around, not for verdicts. Args: as `holm`. Source: Benjamini & Hochberg (1995).
    """
    values, order = _ordered(p)
    steps = values[order] * len(values) / np.arange(1, len(values) + 1)
    return _unordered(np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0), order)


def _ordered(p: Sequence[float]) -> tuple[FloatArray, "np.typing.NDArray[np.intp]"]:
    values = np.asarray(p, dtype=np.float64)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError("p-values must lie in [0, 1]")
    return values, np.argsort(values, kind="stable")


def _unordered(adjusted: FloatArray, order: "np.typing.NDArray[np.intp]") -> FloatArray:
    back = np.empty_like(adjusted)
    back[order] = adjusted
    return back
