"""Empirical distributions for drawing: bounded in size, exact at every drawn point."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tfbench.metrics.facts import Facts, RunWindow
from tfbench.report.model import Cdf, LoadPoint

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

METRICS: Mapping[str, str] = {
    "ttft": "SELECT run_index, ttft_or_inf_ms AS value FROM attempt_facts WHERE counted",
    "tpot": "SELECT run_index, tpot_or_inf_ms AS value FROM attempt_facts WHERE counted",
    "icl": "SELECT run_index, unnest(gaps_ms) AS value FROM attempt_facts WHERE counted",
    "e2e": "SELECT run_index, e2e_or_inf_ms AS value FROM attempt_facts WHERE counted",
}
"""What each distribution is of; the same facts as the quantiles of that name."""

# Values are counted in steps of 0.1 %, so 20 million gaps stay small; a step stands at its upper edge, where the share
# at or under it is exact.
_COUNTED = """
SELECT
    run_index,
    CASE WHEN value <= 0 OR isinf(value) THEN value ELSE pow(1.001, ceil(ln(value) / ln(1.001))) END AS value,
    count(*) AS n
FROM ({}) WHERE value IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

POINTS = 200
_TAIL = (0.99, 0.995, 0.999, 0.9995, 0.9999)


def study_cdfs(facts: Facts, spoiled: Collection[tuple[str, str]] = ()) -> tuple[Cdf, ...]:
    """The distributions of every load point over its complete runs, without those `spoiled` (run_id, metric)."""
    out = []
    points: dict[LoadPoint, list[RunWindow]] = {}
    for run in facts.runs:
        if run.status == "complete":
            load = LoadPoint(math.inf if run.load_value is None else run.load_value, run.arm)
            points.setdefault(load, []).append(run)
    for metric, sql in METRICS.items():
        columns = facts.con.sql(_COUNTED.format(sql)).fetchnumpy()
        index = np.asarray(columns["run_index"])
        values, counts = np.asarray(columns["value"], dtype=np.float64), np.asarray(columns["n"], dtype=np.int64)
        for load, runs in points.items():
            kept = [run.index for run in runs if (run.run_id, metric) not in spoiled]
            held = [(values[index == run], counts[index == run]) for run in kept]
            cdf = empirical_cdf(load, metric, held, points_for(len(points)))
            if cdf is not None:
                out.append(cdf)
    return tuple(out)


def points_for(loads: int) -> int:
    """How many points a curve may take, so that a study of many load points still makes a small page."""
    return min(POINTS, max(60, 8 * POINTS // max(loads, 1)))


def empirical_cdf(
    load: LoadPoint, metric: str, runs: Sequence[tuple[FloatArray, IntArray]], points: int = POINTS
) -> Cdf | None:
    """The pooled distribution of several runs, and the range of the runs' own.

    Args:
        runs: per run (values [m] in ms, +inf for what never came; counts [m], how often each value was seen).
        points: at most about this many values are drawn; the tail is kept denser.

    None when no run holds a finite value.
    """
    held = [(x[c > 0], c[c > 0]) for x, c in runs]
    held = [(x, c) for x, c in held if x.size]
    if not held:
        return None
    values = np.concatenate([x for x, _ in held])
    counts = np.concatenate([c for _, c in held])
    n = int(counts.sum())
    finite = np.isfinite(values)
    n_inf = int(counts[~finite].sum())
    if n_inf == n:
        return None
    grid, at = np.unique(values[finite], return_inverse=True)
    cumulative = np.cumsum(np.bincount(at, weights=counts[finite]))
    if grid.size > points:
        keep = np.unique(
            np.searchsorted(
                cumulative, np.concatenate([np.linspace(0, 1, points), np.array(_TAIL)]) * cumulative[-1]
            ).clip(0, grid.size - 1)
        )
        grid, cumulative = grid[keep], cumulative[keep]
    lo = hi = None
    if len(held) > 1:
        shares = np.stack([_share_under(x, c, grid) for x, c in held])
        lo, hi = _floats(shares.min(axis=0)), _floats(shares.max(axis=0))
    return Cdf(load, metric, _floats(grid), _floats(cumulative / n), lo, hi, n, n_inf, len(held))


def _share_under(values: FloatArray, counts: IntArray, grid: FloatArray) -> FloatArray:
    order = np.argsort(values, kind="stable")
    running = np.concatenate([[0], np.cumsum(counts[order])])
    return np.asarray(running[np.searchsorted(values[order], grid, side="right")] / running[-1], dtype=np.float64)


def _floats(array: FloatArray) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in array)
