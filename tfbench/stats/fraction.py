"""Fractions of attempts: Clopper-Pearson on an effective number of attempts."""

import math
from collections.abc import Sequence

import numpy as np

from tfbench.stats.correlation import worth_between, worth_between_stretches, worth_of_repeats, worth_together
from tfbench.stats.interval import BoolArray, FloatArray, Interval, check_level, deflate, interval
from tfbench.stats.labels import approximate, t_method, withheld
from tfbench.stats.quantile import sample_quantile

# Fewer effective attempts than this on the rarer side can't tell how they cluster; near misses then help.
FEW = 10.0
# Effective attempts on the rarer side, of all runs together, from which both bounds are shown: a stretch of failures or
# two can't tell how long such stretches are.
TOLD = 2.0
# Near misses are this share of the attempts, those whose score lies furthest towards the rarer side.
NEAR = 0.1
# A limit this many times as far from the median as the last attempt short of it is clear of the near misses.
CLEAR = 2.0


def clopper_pearson(hits: float, n: float, *, level: float = 0.95) -> tuple[float, float]:
    """Exact bounds of a fraction, hits of n (both may be fractional); each misses with (1 - level) / 2."""
    from scipy.special import betaincinv

    check_level(level)
    if not 0.0 <= hits <= n or n <= 0.0:
        raise ValueError(f"need 0 <= hits <= n and n > 0, not {hits} of {n}")
    miss = (1.0 - level) / 2
    low = 0.0 if hits <= 0.0 else float(betaincinv(hits, n - hits + 1.0, miss))
    high = 1.0 if hits >= n else float(betaincinv(hits + 1.0, n - hits, 1.0 - miss))
    return low, high


def one_sided_p(hits: float, n: float, share: float) -> tuple[float, float]:
    """Exact p-values of "the fraction is at most `share`" and "it is at least `share`"; a small one speaks against it.

    P(X >= hits) and P(X <= hits) of the binomial; hits and n may be fractional (effective attempts). With whole numbers
    they are `scipy.stats.binomtest(hits, n, share, alternative="greater" | "less").pvalue`.
    """
    from scipy.special import betainc

    if not 0.0 <= hits <= n or n <= 0.0:
        raise ValueError(f"need 0 <= hits <= n and n > 0, not {hits} of {n}")
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1, not {share}")
    at_most = 1.0 if hits <= 0.0 else float(betainc(hits, n - hits + 1.0, share))
    at_least = 1.0 if hits >= n else float(betainc(n - hits, hits + 1.0, 1.0 - share))
    return at_most, at_least


def pooled_fraction(
    good: Sequence[BoolArray],
    score: Sequence[FloatArray] | None,
    *,
    level: float,
    seconds: float | None = None,
    reasons: Sequence[str] = (),
) -> Interval:
    """The share of True over all runs.

    Args:
        good: one bool array [n] per run, n >= 1, in schedule order.
        score: one float64 array [n] per run, latency over its limit: bad above 1, +inf for a failure; or None.
        seconds: how long all runs together were watched, for a bound of bursts in time; None where unknown.

    n_eff comes from the indicator's correlation time. It is deflated for being estimated, with as many degrees of
    freedom as the rarer side has effective attempts, plus one. Where there are fewer than 10 of them, how they cluster
    can't be read from them; `_few` then asks the score. From K = 3 on, the scatter between runs caps n_eff (Korn &
    Graubard 1998: p (1 - p) / var times (z / t_{K-1})^2), which also holds where restarts differ. Measured on
    M/M/1 queues at load 0.5 and 0.8 with K = 5, 100 to 3000 attempts a run and shares from 0.1 to 0.999, it covers 93
    to 100 % with a score and 91 to 100 % without. Tried and left: t on logit (no answer at 0 and 1, 76 % with 10 short
    runs near 1) and plain n_eff (down to 16 %).

    At 0 and 1, and with fewer than TOLD effective attempts on the rarer side, one bound is shown, which says what it
    assumes. Measured where 0.5 to 5 % fail in bursts of 5 to 50, K = 5 and 10: with both bounds shown from 2 on they
    hold in 95 % or more; shown always, in 86 to 93 %. `n_eff` of the result is what the bounds were made with.
    """
    k = len(good)
    n = sum(len(one) for one in good)
    hits = sum(int(one.sum()) for one in good)
    share = hits / n
    seen = worth_together(good, None).n_eff
    rarer = seen * min(share, 1.0 - share)
    if score is not None and rarer < FEW:
        worth = _few(good, score, share, seen, rarer, level)
    else:
        worth = deflate(seen, rarer + 1.0, level)
    told = rarer
    if k >= 3:
        of_runs = np.array([float(one.sum()) for one in good]), np.array([float(len(one)) for one in good])
        worth = min(worth, worth_between(*of_runs, level))
        singles = [np.ones(len(one), dtype=np.int64) for one in good]
        told = worth_of_repeats([one.astype(np.int64) for one in good], singles).n_eff * min(share, 1.0 - share)
    else:
        worth = min(worth, worth_between_stretches(good, None, level))
    worth = max(worth, 1.0)
    low, high = clopper_pearson(min(worth, worth * share), worth, level=level)

    notes = list(reasons)
    settled = worth >= FEW
    if not settled:
        notes.append(
            f"too few requests for a share (all runs together are worth {worth:.1f} independent ones, {FEW:g} needed): "
            f"run {math.ceil(2 * FEW / worth)} times as long"
        )
    lo: float | None = low
    hi: float | None = high
    if told < TOLD:
        upper = share >= 0.5
        lo, hi = (low, None) if upper else (None, high)
        notes.append(_few_words(good, upper=upper, seconds=seconds))
    name = "Clopper-Pearson on n_eff"
    figure = ("fraction" if score is not None else "fraction, no score") + ("" if told >= TOLD else ", one bound")
    if k < 3 and (reason := withheld(figure, k)):
        lo = hi = None
        notes.append(reason)
    method = approximate(name, k, figure, level) if k < 3 else t_method(f"{name} between runs", k)
    return interval(
        share,
        lo,
        hi,
        level=level,
        method=method,
        n=n,
        n_eff=worth,
        k=k,
        settled=settled,
        reasons=notes,
    )


def _few_words(good: Sequence[BoolArray], *, upper: bool, seconds: float | None) -> str:
    """What a lone bound assumes, and a bound of the bursts in time: from c seen in T hours at most
    chi2(0.95; 2 c + 2) / 2 / T an hour, which is 3 / T of none (Poisson, 95 %)."""
    from scipy.special import gammaincinv

    n, word = sum(map(len, good)), "bad" if upper else "good"
    rare = [~one if upper else one for one in good]
    count = sum(int(one.sum()) for one in rare)
    bursts = sum(int(np.count_nonzero(np.diff(one, prepend=False) & one)) for one in rare)
    seen = (
        f"none of {n:,} requests was {word}"
        if not count
        else f"{count:,} of {n:,} requests were {word}, in {bursts} bursts"
    )
    said = f"{seen}: the bound assumes that {word} ones come singly{'' if not count else ' or in bursts like these'}"
    if seconds is None or seconds <= 0.0:
        return said
    most = float(gammaincinv(bursts + 1.0, 0.95)) * 3600.0 / seconds
    watched = f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:,.0f} min"
    often = f"{most:,.0f}" if most >= 10.0 else f"{most:.2g}"
    return f"{said}; in {watched} of load, bursts of any length come at most {often} times an hour"


def _few(
    good: Sequence[BoolArray], score: Sequence[FloatArray], share: float, seen: float, rarer: float, level: float
) -> float:
    """The deflated n_eff where the rarer side has too few attempts to tell how they cluster.

    The tenth of the attempts nearest to the rarer side stand in for it: theirs is the correlation time it would have,
    were the limit there. The limit lies further out, `_margin` times as far from the median as the last attempt short
    of it; a tail that falls at least in proportion to that distance (an exponential or any other of finite mean does)
    leaves as much less to it. So n_eff grows by the margin beyond CLEAR (for what so few attempts say of it), up to
    what the indicator itself allows: all n where it shows no clusters. Attempts that all have one score are infinitely
    far, and failures unlike anything the latencies show are taken to strike singly.
    """
    n = sum(len(one) for one in good)
    flat = np.concatenate(list(score))
    upper = share >= 0.5
    side = flat if upper else -flat
    edge = sample_quantile(side, 1.0 - NEAR)
    near = [(one if upper else -one) < edge for one in score]
    beyond = 1.0 - sum(int(one.sum()) for one in near) / n
    n_eff, df = seen, rarer + 1.0
    if beyond < 1.0:
        stands_in = worth_together(near, None).n_eff
        n_eff = min(n_eff, stands_in)
        df = max(rarer, min(beyond, 1.0 - beyond) * stands_in) + 1.0
    worth = deflate(n_eff, df, level)
    if len(good) < 3:
        worth = min(worth, worth_between_stretches(near, None, level))
    clear = _margin(flat, np.concatenate(list(good)), upper=upper) / CLEAR
    if clear <= 1.0 or min(share, 1.0 - share) >= NEAR:
        return worth
    # Of the correlation time n / seen the excess over 1 is what few clusters leave uncertain.
    most = n / (1.0 + (n / seen - 1.0) / deflate(1.0, rarer + 1.0, level))
    return max(worth, min(most, worth * clear))


def _margin(score: FloatArray, good: BoolArray, *, upper: bool) -> float:
    """How many times further from the median score the limit 1 lies than the last attempt short of it; at least 1."""
    median = float(sample_quantile(score, 0.5))
    last = float(score[good].max()) if upper else float(score[~good].min())
    if last == median:
        return math.inf
    if not (math.isfinite(median) and math.isfinite(last)):
        return 1.0
    return max(1.0, (1.0 - median) / (last - median))
