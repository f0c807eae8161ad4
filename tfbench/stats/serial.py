"""Do repeats follow one another? Intervals over repeats take them for independent."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray

# Told at this p: of independent repeats one study in twenty.
ALPHA = 0.05
# So many orders are drawn where there are more than that.
ORDERS = 2000
LEAST_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Linked:
    """How far a repeat's figures follow those of the repeat before.

    Args:
        told: they do, at p <= 0.05.
        correlation: between neighbours (lag 1) of the series where it is largest, pooled over load points.
        p: the share of all orders of the repeats in which the largest correlation is as large.
        k: repeats.
    """

    told: bool
    correlation: float
    p: float
    k: int


def linked_repeats(series: FloatArray) -> Linked | None:
    """Von Neumann's ratio as a permutation test: exact, however figures and load points depend on each other.

    A trend over repeats counts as well: its neighbours are alike too. Of five repeats one order in sixty is as telling
    as can be, so that few repeats show little.

    Args:
        series: float64 [figures, load points, repeats], logs of the runs' figures in order of execution; NaN where
            there is none. A repeat's figures of all load points stay together.

    None where there are fewer than five repeats, or nothing varies. Source: von Neumann 1941, "Distribution of the
    ratio of the mean square successive difference to the variance".
    """
    k = series.shape[-1]
    if k < LEAST_REPEATS:
        return None
    known = np.isfinite(series)
    x = np.where(known, series, 0.0)
    counts = known.sum(axis=-1, keepdims=True)
    x = np.where(known & (counts >= LEAST_REPEATS), x - x.sum(axis=-1, keepdims=True) / np.maximum(counts, 1), 0.0)
    scale = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    x = x / np.where(scale > 0.0, scale, 1.0)
    points = np.maximum((scale > 0.0).sum(axis=(1, 2)), 1)
    if not (scale > 0.0).any():
        return None
    if math.factorial(k) <= ORDERS:
        orders = np.array(list(itertools.permutations(range(k))))
    else:
        orders = np.argsort(np.random.default_rng(k).random((ORDERS, k)), axis=1)
        orders[0] = np.arange(k)
    # Rows without spread are zero and add nothing.
    found = np.stack([(x[..., order][..., 1:] * x[..., order][..., :-1]).sum(axis=(1, 2)) / points for order in orders])
    largest = found.max(axis=1)
    p = float((largest >= largest[0] - 1e-12).mean())
    # Centring takes 1 / k of a correlation of neighbours; what independence gives is -1 / k.
    return Linked(p <= ALPHA, min(1.0, float(largest[0]) * k / (k - 1.0) + 1.0 / k), p, k)
