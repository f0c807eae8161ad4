"""What verdicts do to figures: useless runs are left out, unstable load points lose their quantiles.

Metrics are pure functions of facts and know no verdicts; this is where the two meet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfbench.report.model import Figure, LoadPoint, Run, WarmUp


def chosen_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs figures are made from: of each load point those not useless, or all of them where every one is."""
    return tuple(run for point in _by_load(runs).values() for run in ([r for r in point if not r.useless] or point))


def apply_verdicts(figures: Iterable[Figure], runs: Sequence[Run], quantiles: frozenset[str]) -> tuple[Figure, ...]:
    """The figures as they may be shown.

    `quantiles` names the figures an unstable system makes meaningless: they grow with the length of the run. Where
    most chosen runs of a load point are unstable they are withheld; where some are, they stand unsettled. Where every
    run is useless each figure stands unsettled: it describes the run, and is no evidence.
    """
    points = _by_load(chosen_runs(runs))
    return tuple(_shown(figure, points.get(figure.load, []), figure.name in quantiles) for figure in figures)


def apply_warm_ups(figures: Iterable[Figure], leaks: Sequence[WarmUp], leaked: frozenset[str]) -> tuple[Figure, ...]:
    """The figures as they may be shown where a warm-up leaks into the window: those named `leaked` stand unsettled.

    Nothing is cut: what was measured stands, with what would mend it.
    """
    words = {one.load: warm_up_words(one) for one in leaks}
    return tuple(
        replace(one, settled=False, reason="; ".join(filter(None, (words[one.load], one.reason))))
        if one.load in words and one.name in leaked and not one.empty
        else one
        for one in figures
    )


def warm_up_words(one: WarmUp) -> str:
    """What leaks, by how much it moves figures, and what to do."""
    size = "without end" if one.effect is None else f"by {one.effect:+.0%}"
    end = "" if one.steady else " at least"
    quantile = 100 * (one.quantile or 0.0)
    longer = "make the warm-up longer" if one.warmup_s is None else f"set load.warmup_s ={end} {one.warmup_s:g}"
    return f"the start of the window differs from the rest (it moves {one.series} P{quantile:g} {size}): {longer}"


def withheld_at(runs: Sequence[Run]) -> bool:
    """Whether quantiles over these runs of one load point are withheld: most of those chosen are unstable."""
    chosen = chosen_runs(runs)
    return 2 * sum(run.unstable for run in chosen) > len(chosen)


def _by_load(runs: Iterable[Run]) -> Mapping[LoadPoint, list[Run]]:
    out: dict[LoadPoint, list[Run]] = {}
    for run in runs:
        out.setdefault(run.load, []).append(run)
    return out


def _shown(figure: Figure, runs: Sequence[Run], quantile: bool) -> Figure:
    if figure.empty:
        return figure
    unstable = sum(run.unstable for run in runs)
    if quantile and withheld_at(runs):
        why = f"withheld: unstable in {unstable} of {len(runs)} runs, so it would grow with the length of the run"
        return replace(figure, value=None, lo=None, hi=None, settled=False, reason=why)
    reasons = [figure.reason] if figure.reason else []
    if runs and all(run.useless for run in runs):
        reasons.insert(0, "every run is INVALID: this describes them and is no evidence")
    if quantile and unstable:
        reasons.insert(0, f"unstable in {unstable} of {len(runs)} runs")
    if len(reasons) == bool(figure.reason):
        return figure
    return replace(figure, settled=False, reason="; ".join(reasons))
