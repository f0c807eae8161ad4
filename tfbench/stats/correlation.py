"""How many independent observations a correlated series is worth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfbench.stats.interval import BoolArray, FloatArray, IntArray, deflate

# Sokal's window: stop at the first lag W >= 5 tau(W).
WINDOW = 5.0
# Into how many stretches few runs are cut to see correlation that outlasts the window.
STRETCHES = (5, 10)
# Into how many stretches the course that runs share is cut.
COURSE = 20
# Standard errors that the correlation of neighbours lies above 0 where it is told from noise.
TOLD = 4.0


@dataclass(frozen=True, slots=True)
class Correlation:
    """How a series is correlated, in its own steps; both at least 1.

    Args:
        tau: 1 + 2 * the sum of its autocorrelations: the variance of its mean is tau times what independence gives.
        slow: the same of its correlated part alone: how long a good or bad stretch lasts. About tau where neighbours
            share nearly all their luck; far above it where most of the variance is each point's own (the service times
            of a system with many servers) and the rest is a queue's.
    """

    tau: float
    slow: float


@dataclass(frozen=True, slots=True)
class Worth:
    """What a sample is worth.

    Args:
        n_eff: the n for which share * (1 - share) / n is the variance of the share of True; within [1, n].
        draws: requests / correlation time: how many times the sample saw its system afresh.
        spells: requests / `Correlation.slow`: how many good or bad stretches it saw.
        tau: the correlation time, in requests.
    """

    n_eff: float
    draws: float
    spells: float
    tau: float


def correlation(series: Sequence[FloatArray], centred_over: float) -> Correlation:
    """tau = 1 + 2 * sum of autocorrelations up to a window W, times 1 + (2 W + 1) / n; at least 1.

    W is Sokal's, W >= 5 tau(W), taken of the correlated part alone where there is one: of the autocorrelations from lag
    1 on, relative to the first. Taken of the whole, a series that is mostly noise closes the window before its slow
    part is seen: for the median of M/M/16 at load 0.8 at 2.4 instead of 6.9.

    Args:
        series: one float64 array [n] per run, already centred, in order of time. Autocovariances are summed over runs,
            so that several short runs estimate one tau together.
        centred_over: n, the number of points that the mean taken off each was estimated from. Taking it off hides
            correlation; the factor gives it back (at most double).

    Source: Sokal, "Monte Carlo methods in statistical mechanics" (1989), section 3, with c = 5; factor: Wolff, "Monte
    Carlo errors with less errors" (2004), eq. 49. Negative correlation does not make n_eff larger than n. A series
    without variance gives 1.
    """
    longest = max((len(one) for one in series), default=0)
    if longest == 0:
        return Correlation(1.0, 1.0)
    lags = 1024
    while True:
        covariance = np.zeros(min(lags, longest))
        for one in series:
            found = _covariances(one, len(covariance))
            covariance[: len(found)] += found
        if not covariance[0] > 0.0:
            return Correlation(1.0, 1.0)
        noise = TOLD * covariance[0] / math.sqrt(sum(map(len, series)))
        told = len(covariance) > 1 and covariance[1] > noise
        part = covariance[1:] if told else covariance
        slow = 2.0 * np.cumsum(part / part[0]) - 1.0
        enough = np.arange(len(part)) >= WINDOW * slow
        if enough.any() or lags >= longest:
            break
        lags *= 8
    window = int(np.argmax(enough)) if enough.any() else len(part) - 1
    upto = window + told
    tau = 2.0 * float(covariance[: upto + 1].sum()) / float(covariance[0]) - 1.0
    tau = max(1.0, tau * (1.0 + min(1.0, (2 * upto + 1) / centred_over)))
    return Correlation(tau, max(tau, float(slow[window])))


def _covariances(x: FloatArray, lags: int) -> FloatArray:
    """Sums of x[i] * x[i + lag] for each lag below `lags` and the length of x, float64 [min(lags, n)].

    In blocks of a few times `lags`, each against itself and what follows it: one transform of the whole series takes
    twenty times as long at 175,000 points.
    """
    lags = min(lags, len(x))
    size = min(1 << (8 * lags - 1).bit_length(), 1 << (2 * len(x) - 1).bit_length())
    block = min(len(x), size - lags)
    blocks = -(-len(x) // block)
    padded = np.zeros(blocks * block + size)
    padded[: len(x)] = x
    ahead = np.lib.stride_tricks.sliding_window_view(padded, size)[::block][:blocks]
    spectra = np.conj(np.fft.rfft(ahead[:, :block], size)) * np.fft.rfft(ahead, size)
    return np.fft.irfft(spectra.sum(axis=0), size)[:lags]


def worth_of_each(inside: Sequence[BoolArray], owners: Sequence[IntArray] | None) -> list[Worth]:
    """What each run is worth for its own share of True, with one correlation time for all runs.

    Args:
        inside: one bool array [n] per run, in schedule order, none empty.
        owners: per run the request each observation belongs to (int64 [n], ascending = schedule order); None where
            every observation is its own request. Observations of one request count as one draw.

    An indicator without variance tells nothing: its n_eff is then the number of requests.
    """
    shares = [float(one.mean()) for one in inside]
    totals = _totals(inside, shares, owners)
    found = correlation(totals, sum(map(len, totals)) / len(totals))
    return [_worth(len(one), share, [total], found) for one, share, total in zip(inside, shares, totals, strict=True)]


def worth_together(inside: Sequence[BoolArray], owners: Sequence[IntArray] | None) -> Worth:
    """What all runs together are worth for the pooled share of True; a shift between runs lowers it.

    Args: as `worth_of_each`.
    """
    count = sum(len(one) for one in inside)
    share = sum(int(one.sum()) for one in inside) / count
    totals = _totals(inside, [share] * len(inside), owners)
    return _worth(count, share, totals, correlation(totals, sum(map(len, totals))))


def worth_of_repeats(hits: Sequence[IntArray], sizes: Sequence[IntArray]) -> Worth:
    """What two or more runs together are worth for the pooled share of True, as if all were draws of one system.

    A course over time that the runs share (a rate that swings once a run) is no correlation: it comes again in every
    repeat. So deviations are taken from the runs' common course, in 20 stretches, which takes 1 / K of what is
    correlated with it; tau's excess over 1 is given that back. How far runs differ it doesn't see.

    Args:
        hits, sizes: per run, how many observations of each request are True, and how many there are; int64 [requests]
            in schedule order, K >= 2.
    """
    count = sum(int(one.sum()) for one in sizes)
    share = sum(int(one.sum()) for one in hits) / count
    parts = min(COURSE, *map(len, hits))
    edges = [np.arange(parts) * len(one) // parts for one in hits]
    course = sum(np.add.reduceat(one, at) for one, at in zip(hits, edges, strict=True)) / sum(
        np.add.reduceat(size, at) for size, at in zip(sizes, edges, strict=True)
    )
    totals = [
        one - np.repeat(course, np.diff(at, append=len(one))) * size
        for one, size, at in zip(hits, sizes, edges, strict=True)
    ]
    totals = [one - one.mean() for one in totals]
    found = correlation(totals, sum(map(len, totals)) / len(totals))
    again = len(hits) / (len(hits) - 1.0)
    tau, slow = (1.0 + again * (one - 1.0) for one in (found.tau, found.slow))
    return _worth(count, share, totals, Correlation(tau, slow), spent=parts + len(hits))


def worth_between(hits: FloatArray, sizes: FloatArray, level: float) -> float:
    """The n_eff that the scatter of parts (runs, or stretches of one) allows their pooled share; inf where they agree.

    Args:
        hits, sizes: float64 [m], of each part; m >= 2.

    share (1 - share) / var, deflated for being read from m parts. Source: Korn & Graubard 1998, "Confidence intervals
    for proportions with small expected number of positive counts estimated from survey data".
    """
    m = len(hits)
    share = float(hits.sum() / sizes.sum())
    residuals = hits - share * sizes
    variance = float(residuals @ residuals) * m / (m - 1) / float(sizes.sum()) ** 2
    if variance <= 0.0:
        return float("inf")
    return deflate(share * (1.0 - share) / variance, m - 1.0, level)


def worth_between_stretches(inside: Sequence[BoolArray], owners: Sequence[IntArray] | None, level: float) -> float:
    """`worth_between` over equal stretches of the runs, 5 and 10 in all: the smaller.

    A correlation that outlasts what `correlation` could see in so short a sample shows in these.

    Args: as `worth_of_each`.
    """
    return min(_stretches(inside, owners, count, level) for count in STRETCHES)


def _stretches(inside: Sequence[BoolArray], owners: Sequence[IntArray] | None, count: int, level: float) -> float:
    per_run = max(2, count // len(inside))
    hits, sizes = [], []
    for i, one in enumerate(inside):
        # A request's observations stay in one stretch.
        request = np.arange(len(one)) if owners is None else owners[i] - owners[i][0]
        part = request * per_run // (int(request[-1]) + 1)
        hits.append(np.bincount(part, weights=one, minlength=per_run))
        sizes.append(np.bincount(part, minlength=per_run).astype(np.float64))
    return worth_between(np.concatenate(hits), np.concatenate(sizes), level)


def _totals(
    inside: Sequence[BoolArray], shares: Sequence[float], owners: Sequence[IntArray] | None
) -> list[FloatArray]:
    """Deviations from the share, summed over each request: one float64 array [requests] per run."""
    deviations = [one.astype(np.float64) - share for one, share in zip(inside, shares, strict=True)]
    if owners is None:
        return deviations
    return [
        np.add.reduceat(deviation, np.flatnonzero(np.diff(owner, prepend=owner[0] - 1)))
        for deviation, owner in zip(deviations, owners, strict=True)
    ]


def _worth(count: int, share: float, totals: Sequence[FloatArray], found: Correlation, spent: int = 0) -> Worth:
    """`spent`: how many means the deviations were taken from, beyond one."""
    requests = sum(len(total) for total in totals)
    spread = sum(float(np.square(total).sum()) for total in totals) * requests / max(1, requests - spent)
    if requests == 1:
        n_eff = 1.0
    elif share in (0.0, 1.0) or spread <= 1e-12 * count:
        n_eff = float(requests)
    else:
        n_eff = min(float(count), max(1.0, count * count * share * (1.0 - share) / (found.tau * spread)))
    return Worth(n_eff, requests / found.tau, requests / found.slow, found.tau)
