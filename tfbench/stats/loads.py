"""What the runs of a search say of each load: its own, and those at all loads together.

Where runs are too short to tell loads apart, ends that lie close together by luck are seen more often than ends that
are right: of all loads tried, the one that happened to do well becomes the lower end and its neighbour that did badly
the upper one. So where a load has neighbours, a line through all their runs decides it, provided that its own share
points the same way; the line also knows more than a load's own runs do. A load by itself is decided by its own runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import FloatArray, Interval, student_t
from tfbench.stats.search import LEAST, Evidence, SearchPlan, decide, leans

# Loads up to this many times apart lie on one line: the logit of a queue's share of good requests is nearly straight
# so far, and a search's last loads lie within it.
NEAR = 1.5
# The line is asked after every probe and at every load, so each of its answers may be wrong so many times more rarely
# than that of the search.
STRICTER = 10.0
# The mean of so many runs scatters as Student's t says, though a few of them went wrong.
ENOUGH = 12


@dataclass(frozen=True, slots=True)
class LoadRuns:
    """The runs at one load.

    Args:
        shares: of good requests, of each fit run that has any request; empty: fit runs without.
        share: of all of them, with its interval at `SearchPlan.level`; None without a fit run.
        unstable: fit runs with a growing backlog; unfit: runs in which the client failed.
    """

    load: float
    shares: tuple[float, ...]
    share: Interval | None
    unstable: int = 0
    unfit: int = 0
    empty: int = 0


def judge(held: Sequence[LoadRuns], target: float, plan: SearchPlan) -> list[Evidence]:
    """What is known of each load, in the order given. A load's decision may change with runs made at others."""
    return [_judge(one, held, target, plan) for one in held]


def _judge(one: LoadRuns, held: Sequence[LoadRuns], target: float, plan: SearchPlan) -> Evidence:
    runs = len(one.shares) + one.empty
    if one.share is None:
        return Evidence(one.load, runs, one.unfit, None)
    own, leaning = decide(one.share, target, unstable=one.unstable), leans(one.share, target)
    if len(one.shares) < LEAST:
        return Evidence(one.load, runs, one.unfit, None, leaning, own)
    met = own
    if 2 * one.unstable < runs:
        level = 1.0 - (1.0 - plan.confidence) / STRICTER
        line = line_at(one.load, held, level=level)
        if line is not None:
            together = True if line[0] >= target else False if line[1] < target else None
            met = together if together is leaning else None
        if met is None and leaning is not None and _beyond(one.load, held, target, leaning, level):
            met = leaning
    return Evidence(one.load, runs, one.unfit, met, leaning)


def line_at(load: float, held: Sequence[LoadRuns], *, level: float) -> tuple[float, float] | None:
    """Bounds of the mean share at `load`, by a line through the runs near it; None where too few lie there.

    The logit of the share is a line in log load, nearer runs weigh more (tricube), and runs scatter about it as
    p (1 - p) times what their own scatter says: local quasi-binomial regression, McCullagh & Nelder 1989, ch. 4.5.

    What befalls one run in several, as an outage does, may spare all that lie near. So a run at a lower load that did
    worse than the line says of this one, or at a higher load better, adds to the scatter wherever it lies.
    """
    x = np.log(np.array([one.load for one in held for _ in one.shares]) / load)
    y = np.array([share for one in held for share in one.shares])
    weight = np.clip(1.0 - np.abs(x / math.log(NEAR)) ** 3, 0.0, None) ** 3
    near = weight > 1e-3
    w, total = weight[near], float(weight[near].sum())
    df = total**2 / float(w @ w) - 2.0 if total > 0.0 else 0.0
    if df < 1.0 or np.ptp(x[near]) == 0.0:
        return None
    design = np.stack([np.ones_like(x[near]), x[near]], axis=1)
    line = _fit(design, y[near], w)
    p = _expit(design @ line)
    spread = p * (1.0 - p)
    inverse = np.linalg.pinv(design.T @ (design * (w * spread)[:, None]))
    here = float(_expit(line[:1])[0])
    dispersion = float(w @ ((y[near] - p) ** 2 / spread)) / total * (df + 2.0) / df
    variance = (inverse @ (design.T @ (design * (w**2 * spread)[:, None])) @ inverse)[0, 0] * dispersion
    times = student_t(level, df)
    reach = times * math.sqrt(max(0.0, float(variance)))
    low, high = _expit(np.array([line[0] - reach, line[0] + reach]))
    worse = times * _shock(here - y[~near & (x < 0.0)], df + 2.0)
    better = times * _shock(y[~near & (x > 0.0)] - here, df + 2.0)
    return here - math.hypot(here - float(low), worse), here + math.hypot(float(high) - here, better)


def _shock(contrary: FloatArray, runs: float) -> float:
    """The standard error, over so many runs, of what befell some of the runs far off; those on the right side had 0."""
    off = np.clip(contrary, 0.0, None)
    return math.sqrt(float(off @ off) / (max(1, len(off) - 1) * runs))


def _beyond(load: float, held: Sequence[LoadRuns], target: float, met: bool, level: float) -> bool:
    """Whether the loads from here on say so together, up to the first that leans the other way.

    More load makes no more requests good, so the mean over runs at higher loads is at most that at this one: where it
    reaches the target, this load's does. This decides loads far below the limit where now and then a whole run goes
    wrong. Likewise for what lower loads don't meet.
    """
    shares: list[float] = []
    for one in sorted(held, key=lambda one: one.load, reverse=not met):
        if (one.load >= load if met else one.load <= load) and one.share is not None:
            if leans(one.share, target) is not met or 2 * one.unstable > len(one.shares):
                break
            shares += one.shares
    if len(shares) < ENOUGH:
        return False
    reach = student_t(level, len(shares) - 1.0) * float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    mean = float(np.mean(shares))
    return mean - reach >= target if met else mean + reach < target


def _fit(design: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Logistic regression of shares by Newton's method with short steps; all good or all bad stays finite."""
    share = float(np.clip(weight @ y / weight.sum(), 1e-4, 1.0 - 1e-4))
    line = np.array([math.log(share / (1.0 - share)), 0.0])
    for _ in range(30):
        p = _expit(design @ line)
        curvature = design.T @ (design * (weight * p * (1.0 - p))[:, None])
        step = np.linalg.pinv(curvature) @ (design.T @ (weight * (y - p)))
        size = float(np.abs(step).max())
        line = line + step / max(1.0, size / 5.0)
        if size < 1e-8:
            break
    return line


def _expit(logit: FloatArray) -> FloatArray:
    return np.clip(1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0))), 1e-6, 1.0 - 1e-6)
