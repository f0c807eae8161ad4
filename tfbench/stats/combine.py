"""One figure from the runs of one load point and arm; how, depends on the number of repeats K.

| K | quantile | ratio | fraction |
|---|---|---|---|
| >= 5 | pooled, ranks by the runs' shares at it | t on log of runs | Clopper-Pearson on n_eff between runs |
| 3, 4 | the same, labelled few | the same, labelled few | the same, labelled few |
| 1, 2 | within these runs only: ranks with n_eff | time blocks | Clopper-Pearson on n_eff |

Every function takes one entry per run (all runs of one load point and arm) and returns an `Interval`. Data never
raise: empty, all failed, all equal or zero give None bounds with a reason. Only misuse raises ValueError: NaN or -inf
among the data, p or level outside (0, 1), arrays of unequal length. Runs without data do not count towards K and are
named in `reason`. No runs at all give an Interval of Nones.
"""

import math
from collections.abc import Sequence

import numpy as np

from tfbench.stats.fraction import pooled_fraction
from tfbench.stats.interval import BoolArray, FloatArray, IntArray, Interval, check_level, interval
from tfbench.stats.labels import t_method
from tfbench.stats.pool import Pool
from tfbench.stats.quantile import Clusters, check_p
from tfbench.stats.quantile_over_runs import quantile_over_runs
from tfbench.stats.quantile_within_run import quantile_within_run
from tfbench.stats.ratio import SETTLED_EVENTS, RatioRun, few_events_reason, pooled_ratio
from tfbench.stats.repeats import Spread, over_runs


def combine_quantile(runs: Sequence[FloatArray] | Pool, p: float, *, level: float = 0.95) -> Interval:
    """The p-quantile over attempts (TTFT, TPOT, E2E, client lag): the value of rank ceil(n p) of all runs' attempts.

    Args:
        runs: one float64 array [n] per run, in order of *scheduled* time (the order carries the correlation), in any
            unit; +inf for an attempt that failed. Leave out nulls. Or a `pool` of them, which serves several p.
        p: in (0, 1), e.g. 0.99.

    `n` counts attempts.
    """
    check_p(p)
    check_level(level)
    pool = runs if isinstance(runs, Pool) else pooled(runs)
    if not pool.values:
        return _nothing(level, pool.missing)
    return (quantile_within_run if len(pool.values) < 3 else quantile_over_runs)(pool, p, level=level)


def combine_chunk_quantile(runs: Sequence[Clusters] | Pool, p: float, *, level: float = 0.95) -> Interval:
    """The p-quantile over gaps between chunks (ICL, ITL). As `combine_quantile`, but a draw is a request, not a gap.

    Args:
        runs: one `Clusters(values float64 [n], owner int64 [n])` per run; owner[i] is the index in schedule order of
            the attempt that gap i belongs to (any numbering that ascends with scheduled time). Rows in any order.

    `n` counts gaps.
    """
    return combine_quantile(runs if isinstance(runs, Pool) else pooled_chunks(runs), p, level=level)


def pooled(runs: Sequence[FloatArray]) -> Pool:
    """The runs that have data, checked, to take quantiles of. Args: `combine_quantile`."""
    values = [np.asarray(run, dtype=np.float64) for run in runs]
    _check_values(values)
    kept = [one for one in values if len(one)]
    return Pool(kept, None, tuple(_left_out(len(values), len(kept))))


def pooled_chunks(runs: Sequence[Clusters]) -> Pool:
    """The runs that have data, checked and in order of their requests. Args: `combine_chunk_quantile`."""
    values: list[FloatArray] = []
    owners: list[IntArray] = []
    for run in runs:
        if len(run.values) != len(run.owner):
            raise ValueError(f"{len(run.values)} values but {len(run.owner)} owners")
        value, owner = np.asarray(run.values, dtype=np.float64), np.asarray(run.owner, dtype=np.int64)
        if len(owner) and bool((np.diff(owner) < 0).any()):
            order = np.argsort(owner, kind="stable")
            value, owner = value[order], owner[order]
        if len(value):
            values.append(value)
            owners.append(owner)
    _check_values(values)
    return Pool(values, owners, tuple(_left_out(len(runs), len(values))))


def combine_fraction(
    runs: Sequence[BoolArray],
    *,
    score: Sequence[FloatArray] | None = None,
    seconds: float | None = None,
    level: float = 0.95,
) -> Interval:
    """A fraction of attempts (good fraction): the pooled share, bounds within [0, 1].

    Args:
        runs: one bool array [n] per run, in order of scheduled time.
        score: per run a float64 array [n], no NaN: the largest ratio of a latency to its limit, so bad above 1; +inf
            where the attempt failed. Near 0 or 1 it tells how bad attempts would cluster and how far off they are;
            without it such intervals are several times as wide.
        seconds: how long all runs were watched; what few bad attempts say of bursts is then told in time too.

    All False gives value 0, lo None and an upper bound; all True gives value 1, hi None and a lower bound; so do a few
    bad (good) attempts that can't tell how such ones cluster.
    """
    check_level(level)
    good = [np.asarray(run, dtype=np.bool_) for run in runs]
    scores: list[FloatArray] | None = None
    if score is not None:
        scores = [np.asarray(run, dtype=np.float64) for run in score]
        if [len(one) for one in scores] != [len(one) for one in good]:
            raise ValueError("score and runs differ in length")
        _check_values(scores)
        scores = [one for one in scores if len(one)]
    kept = [one for one in good if len(one)]
    notes = _left_out(len(runs), len(kept))
    if not kept:
        return _nothing(level, notes)
    return pooled_fraction(kept, scores, level=level, seconds=seconds, reasons=notes)


def combine_ratio(runs: Sequence[RatioRun], *, scale: float = 1.0, level: float = 0.95) -> Interval:
    """scale * sum(num) / sum(den) over the window: throughput, goodput, cost per token.

    Args:
        runs: one `RatioRun(start_ns, end_ns, t_ns, num, den, event_size)` per run; num or den None means "seconds of
            the window".
        scale: positive factor on the ratio, e.g. cost per second * 1e6 with num=None and den=qualified tokens.

    Examples: goodput = RatioRun(start, end, end_ns of the good attempts, num=ones, den=None). Cost per million
    qualified tokens = RatioRun(start, end, end_ns of the good attempts, num=None, den=their output tokens,
    event_size=mean output tokens of an attempt) with scale = cost per second * 1e6.

    The value is the geometric mean of the runs' ratios for K >= 3, the pooled ratio for K <= 2. A zero numerator gives
    value 0 and an upper bound; a zero denominator value None and a lower bound. If only some runs have a zero
    denominator, t is taken on the inverse ratios. `n` counts events that add to the ratio.
    """
    check_level(level)
    if not 0.0 < scale < math.inf:
        raise ValueError(f"scale must be positive and finite, not {scale}")
    if not runs:
        return _nothing(level, [])
    defined = [run for run in runs if not math.isnan(run.ratio())]
    notes = _left_out(len(runs), len(defined) or len(runs))
    kept = defined or list(runs)
    ratios = [run.ratio() for run in kept]
    k = len(kept)
    if k < 3 or all(r == 0.0 for r in ratios) or not any(map(math.isfinite, ratios)):
        return pooled_ratio(kept, scale=scale, level=level, reasons=notes)
    spread = _inverse(ratios, level=level) if any(map(math.isinf, ratios)) else over_runs(ratios, level=level)
    if spread.flat:
        return pooled_ratio(kept, scale=scale, level=level, reasons=[*notes, *spread.reasons])
    events = [run.events() for run in kept]
    return interval(
        scale * spread.value,
        None if spread.lo is None else scale * spread.lo,
        None if spread.hi is None else scale * spread.hi,
        level=level,
        method=t_method(spread.name, k),
        n=sum(events),
        k=k,
        settled=min(events) >= SETTLED_EVENTS,
        reasons=[*notes, *spread.reasons, *few_events_reason(events)],
    )


def _inverse(ratios: Sequence[float], *, level: float) -> Spread:
    """`over_runs` on 1 / ratio (0 where infinite), turned back."""
    spread = over_runs([0.0 if math.isinf(r) else 1.0 / r for r in ratios], level=level)
    infinite = sum(map(math.isinf, ratios))
    return Spread(
        value=_over(spread.value),
        lo=None if spread.hi is None else _over(spread.hi),
        hi=None if spread.lo is None else _over(spread.lo),
        name="t on inverse of runs",
        flat=spread.flat,
        reasons=(
            f"infinite in {infinite} of {len(ratios)} runs",
            *(("no upper bound",) if spread.lo is None else ()),
        ),
    )


def _over(x: float) -> float:
    return 1.0 / x if x > 0.0 else math.inf


def _check_values(values: Sequence[FloatArray]) -> None:
    for one in values:
        if one.ndim != 1:
            raise ValueError(f"each run must be one-dimensional, not {one.ndim}-dimensional")
        if bool(np.isnan(one).any()) or bool(np.isneginf(one).any()):
            raise ValueError("values must not be NaN or -inf; leave nulls out and give failed attempts as +inf")


def _left_out(total: int, kept: int) -> list[str]:
    return [] if kept == total else [f"{total - kept} of {total} runs have no data"]


def _nothing(level: float, notes: Sequence[str]) -> Interval:
    return interval(None, None, None, level=level, method="none", n=0, k=0, settled=False, reasons=[*notes, "no data"])
