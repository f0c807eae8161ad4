"""Has the system warmed up before the window begins? A test of the window's start over repeats, and MSER's cut.

Both only tell. No window is moved and no attempt dropped after the fact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tfbench.stats.interval import FloatArray, IntArray
from tfbench.stats.quantile import sample_quantile

BATCH = 5
LEAST_BATCHES = 10
# The start is looked at as the first block of so many equal ones: the first 2, 5 and 10 % of the attempts.
BLOCKS = (50, 20, 10)
# The rest that it is held against: the last 70 %, so that a leak of ordinary length isn't in it.
REST = 0.3
# Fewer attempts a run can't fill twenty blocks.
LEAST_ATTEMPTS = 100
# Told at this p. One run or two know their own correlation badly, so more is asked of them.
ALPHA, ALPHA_OF_FEW = 0.01, 0.002
# Told where P50 or P95 over the whole window differs by this share from that of the window without its start.
WORTH_TELLING = 0.01
QUANTILES = (0.5, 0.95)
# How finely a course is cut to find where it joins the rest.
STEPS = 100
METHOD = "first 2, 5 and 10 % of the window against its last 70 %, over repeats"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What MSER-5 says.

    Args:
        discard: leading observations it would drop, a multiple of 5; None = can't say.
        n: observations looked at.
        steady: False where the best cut lies at the half of the run (no steady state found); None = can't say.
        reason: why it can't say, or what is wrong; None when steady.
    """

    discard: int | None
    n: int
    steady: bool | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Leak:
    """Whether the start of the window differs from the rest of it, over the runs of one load point.

    Args:
        detected: it does, and by an amount worth telling; None = can't say.
        p: of no difference, over all series and lengths looked at; None = can't say.
        series: the series whose quantile moves most; None where nothing was found.
        quantile: which of its quantiles (0.5 or 0.95).
        effect: its value over the whole window / its value after `cut`, minus 1; +inf where only the first is infinite.
        cut: share of the attempts after which the course has joined the rest, at most a half.
        steady: False where it joins at that half only, so that no steady state is seen.
        n: observations of the longest series over all runs.
        k: runs.
        reason: why it can't say, or why a difference isn't told; else None.
    """

    detected: bool | None
    p: float | None
    series: str | None
    quantile: float | None
    effect: float | None
    cut: float | None
    steady: bool | None
    n: int
    k: int
    reason: str | None


def mser5(x: FloatArray) -> WarmUp:
    """Where a run's start stops disturbing its mean.

    d* = argmin over d <= m / 2 of sum_{j >= d} (Z_j - mean)^2 / (m - d)^2, Z the m means of 5 in schedule order. It
    warns; nobody moves a window after the fact.

    Args:
        x: float64 [n] in schedule order. +inf (failed) counts as the largest finite value. NaN raises ValueError.

    Source: White, Cobb & Spratt 2000, "A comparison of five steady-state truncation heuristics for simulation".
    """
    x = np.asarray(x, dtype=np.float64)
    n = len(x)
    if np.isnan(x).any():
        raise ValueError("mser5 takes no NaN; leave nulls out")
    finite = x[np.isfinite(x)]
    m = n // BATCH
    if m < LEAST_BATCHES:
        return WarmUp(None, n, None, f"{n} observations are too few, it takes {BATCH * LEAST_BATCHES}")
    if len(finite) == 0:
        return WarmUp(None, n, None, "every observation failed")
    level = float(np.abs(finite).max())
    scaled = np.clip(x, float(finite.min()), float(finite.max())) / (level if level > 0.0 else 1.0)
    best, steady = _best_cut(scaled[: m * BATCH].reshape(m, BATCH).mean(axis=1))
    reason = None if steady else "no steady state: the best cut is at half of the run"
    return WarmUp(best * BATCH, n, steady, reason)


def find_leak(series: Mapping[str, Sequence[FloatArray]]) -> Leak:
    """Does a warm-up leak into the window? The course of each series over it, pooled over repeats.

    Values become normal scores of their ranks within their run, so that heavy tails, failures and runs of different
    speed weigh no more than others. The mean score of the first 2, 5 and 10 % of the attempts, averaged over runs, is
    held against that of the last 70 % with Student's t. Its standard error comes from blocks of the same length in that
    rest: how far they stray within runs, or where the averaged course strays further (a drift that repeats) how far
    that does; corrected for the correlation of neighbouring blocks as of a first-order autoregression, of which the
    rest tells the coefficient. At least half of what the runs' own differences scatter by is taken too. The p of all
    series and lengths are combined by their harmonic mean (Wilson 2019).

    Args:
        series: by name (TTFT, say) one float64 array [n] per run, in schedule order; +inf is a failure. The same number
            of runs for each. Series with a run of under 100 values are left out. NaN raises ValueError.

    Source: Schruben 1982, "Detecting initialization bias in simulation output", and Heidelberger & Welch 1983,
    "Simulation run length control in the presence of an initial transient", for a test of the start whose variance is
    that of the later part; where it ends is MSER's (see `mser5`) on the averaged course.
    """
    if any(np.isnan(run).any() for runs in series.values() for run in runs):
        raise ValueError("find_leak takes no NaN; leave nulls out")
    k = max((len(runs) for runs in series.values()), default=0)
    n = max((sum(map(len, runs)) for runs in series.values()), default=0)
    held = {name: runs for name, runs in series.items() if runs and min(map(len, runs)) >= LEAST_ATTEMPTS}
    if not held:
        return no_answer(f"a run has fewer than {LEAST_ATTEMPTS} attempts", n, k)
    scores = {name: [_scores(run) for run in runs] for name, runs in held.items()}
    found = {name: _chances(runs) for name, runs in scores.items()}
    p = _harmonic([chance for chances in found.values() for chance in chances.values()])
    alpha = ALPHA if k >= 3 else ALPHA_OF_FEW
    if p > alpha:
        return Leak(False, p, None, None, None, None, None, n, k, None)
    told = []
    for name, chances in found.items():
        if _harmonic(list(chances.values())) > alpha:
            continue
        cut, steady = _joins(scores[name], 1.0 / min(chances, key=lambda blocks: chances[blocks]))
        for quantile in QUANTILES:
            effect = _moved(held[name], cut, quantile)
            if effect is not None:
                told.append((abs(effect), name, quantile, effect, cut, steady))
    if not told:
        return Leak(False, p, None, None, None, None, None, n, k, "the start differs, but moves neither P50 nor P95")
    size, name, quantile, effect, cut, steady = max(told)
    reason = None if size >= WORTH_TELLING else f"the start moves P50 and P95 by less than {WORTH_TELLING:.0%}"
    return Leak(reason is None, p, name, quantile, effect, cut, steady, n, k, reason)


def no_answer(reason: str, n: int = 0, k: int = 0) -> Leak:
    """Where nothing can be said."""
    return Leak(None, None, None, None, None, None, None, n, k, reason)


def _scores(x: FloatArray) -> FloatArray:
    """Normal quantiles of the ranks, ties at the middle of theirs (van der Waerden's scores)."""
    from scipy.special import ndtri

    order = np.argsort(x)
    ranked = x[order]
    first = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    counts = np.diff(first, append=len(x))
    result = np.empty(len(x))
    result[order] = np.repeat(ndtri((first + 0.5 * counts) / len(x)), counts)
    return result


def _chances(scores: Sequence[FloatArray]) -> dict[int, float]:
    """For each number of blocks the p of a first block that differs from the rest by chance."""
    from scipy.special import stdtr

    k = len(scores)
    out = {}
    for blocks in BLOCKS:
        # Three attempts a block at least; the shorter look takes longer runs.
        if min(map(len, scores)) < 3 * blocks:
            continue
        means = np.array([_block_means(run, blocks) for run in scores])
        gap = round(blocks * REST)
        rest = means[:, gap:]
        m = rest.shape[1]
        apart = means[:, 0] - rest.mean(axis=1)
        strays = rest - rest.mean(axis=1, keepdims=True)
        inside = float(np.square(strays).sum())
        course = strays.mean(axis=0)
        neighbours = float((strays[:, 1:] * strays[:, :-1]).sum()) / inside if inside > 0.0 else 0.0
        inflated, freedom = _for_correlation(m, gap, neighbours)
        variance = inflated * max(inside / (k * k * (m - 1)), float(course @ course) / (m - 1))
        if k >= 3:
            variance = max(variance, 0.5 * float(apart.var(ddof=1)) / k)
        # No less than independent attempts would give: a server whose answers all take alike leaves no scatter else.
        variance = max(variance, sum(float(run.var()) * blocks / len(run) for run in scores) / k**2)
        t = abs(float(apart.mean())) / math.sqrt(variance) if variance > 0.0 else 0.0
        out[blocks] = 2.0 * float(stdtr(freedom * k, -t))
    return out


def _block_means(x: FloatArray, blocks: int) -> FloatArray:
    edges = _edges(len(x), blocks)
    return np.asarray(np.add.reduceat(x, edges[:-1]) / np.diff(edges))


def _edges(n: int, blocks: int) -> IntArray:
    return np.arange(blocks + 1) * n // blocks


def _for_correlation(m: int, gap: int, neighbours: float) -> tuple[float, float]:
    """What blocks correlated like this do: (variance of first - rest / the rest's sample variance, degrees of freedom).

    Args:
        m: blocks of the rest; gap: the number of the first of them.
        neighbours: their lag-1 autocorrelation as the sample gives it, biased downwards.
    """
    expected, inflated, freedom = _autoregression(m, gap)
    at = float(np.interp(neighbours, expected, np.arange(len(expected))))
    steps = np.arange(len(expected))
    return float(np.interp(at, steps, inflated)), float(np.interp(at, steps, freedom))


@cache
def _autoregression(m: int, gap: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """By rising coefficient: the lag-1 autocorrelation of m centred blocks, and what `_for_correlation` gives."""
    lags = np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    centring = np.eye(m) - 1.0 / m
    rows = []
    for rho in (*np.linspace(0.0, 0.95, 39), 0.97, 0.98, 0.99, 0.995):
        covariance = rho**lags
        centred = centring @ covariance @ centring
        trace = float(np.trace(centred))
        seen = float(np.trace(centred, offset=1)) / trace
        first_and_rest = float((rho ** (gap + np.arange(m))).mean())
        apart = 1.0 + float(covariance.mean()) - 2.0 * first_and_rest
        rows.append((seen, apart / (trace / (m - 1)), trace**2 / float(np.square(centred).sum())))
    expected, inflated, freedom = np.array(rows).T
    return expected, inflated, freedom


def _harmonic(chances: Sequence[float]) -> float:
    """The harmonic mean of p, which holds however they depend on each other as long as it is small."""
    return len(chances) / sum(1.0 / max(p, 1e-300) for p in chances)


def _joins(scores: Sequence[FloatArray], least: float) -> tuple[float, bool]:
    """(the share of the attempts after which the averaged course has joined the rest, at least `least`; steady)."""
    steps = min(STEPS, *(len(run) // BATCH for run in scores))
    best, steady = _best_cut(np.mean([_block_means(run, steps) for run in scores], axis=0))
    return max(best / steps, least), steady


def _moved(runs: Sequence[FloatArray], cut: float, quantile: float) -> float | None:
    """By which share the start before `cut` moves the pooled quantile; None where it is infinite without it too."""
    rest = sample_quantile(np.concatenate([run[math.ceil(cut * len(run)) :] for run in runs]), quantile)
    if math.isinf(rest):
        return None
    whole = sample_quantile(np.concatenate(runs), quantile)
    if whole == rest:
        return 0.0
    return whole / rest - 1.0 if rest > 0.0 else math.inf


def _best_cut(batches: FloatArray) -> tuple[int, bool]:
    """MSER's cut: (leading batches to drop, False where that is half of them, so that no steady state is seen)."""
    m = len(batches)
    batches = batches - batches.mean()
    # Sums over the tail from each d on; centring first keeps the difference of squares exact enough.
    left = np.arange(m, 0, -1, dtype=np.float64)
    first = np.cumsum(batches[::-1])[::-1]
    second = np.cumsum(batches[::-1] ** 2)[::-1]
    score = np.maximum(second - first**2 / left, 0.0) / left**2
    last = m // 2
    best = int(np.argmin(score[: last + 1]))
    return best, not (best >= last and score[best] < score[0])
