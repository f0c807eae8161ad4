"""A comparison or a gate as a page: effects with their bounds as forest plots, worst first, and all rows in a table."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.report.drawing import Drawing, Spec, layout, marked_simulated
from tfbench.report.escape import label, plain
from tfbench.report.fmt import NOTHING, gathered
from tfbench.report.page import Plotly, render_page
from tfbench.report.side_by_side import (
    MOST_ROWS,
    counts_words,
    effect_words,
    is_told,
    runs_words,
    values_words,
    verdict_words,
)
from tfbench.verdict.compare import CompareRow, Comparison
from tfbench.verdict.gate_document import GateResult, GateRow, more_repeats, samples_text
from tfbench.verdict.words import bounds_text, effect_text

Row = CompareRow | GateRow
STYLES = {
    **dict.fromkeys(("worse", "FAIL"), ("@bad", "diamond")),
    **dict.fromkeys(("better", "PASS"), ("@s4", "circle")),
    **dict.fromkeys(("undecided", "INCONCLUSIVE", "WATCHED", "no data"), ("@muted", "circle-open")),
}
"""Colour and symbol of what a row says."""
_TICKS = (0, 5, 10, 20, 50, 100, 200, 400, 900, 9900, -5, -10, -20, -50, -80, -90, -99)
"""Per cents that a logarithmic axis may mark, the first that have room."""
_MOST = 4.0
"""A bound further from nothing than this many times the furthest effect or limit runs off the plot."""


@dataclass(frozen=True)
class _Effect:
    """A row on its plot's axis: natural log of the ratio, or the difference; None where open."""

    row: Row
    says: str
    at: float | None
    lo: float | None
    hi: float | None
    limit: float | None


def comparison_page(found: Comparison, plotly: Plotly = "inline") -> str:
    """The page of `compare --html`."""
    runs = [(one.load, one.paired, one.base_runs, one.candidate_runs) for one in found.loads]
    drawn = [row for row in found.rows if is_told(row)][:MOST_ROWS]
    legend = "Intervals hold with 95 %; worse, better: at a false discovery rate of 5 % over the table."
    return _page(
        found,
        what="comparison",
        plotly=plotly,
        headline=counts_words(found.rows),
        notes=(*found.warnings, *found.notes),
        drawings=forests([(row, row.says) for row in drawn], f"K: {runs_words(runs) or 'no load'}. {legend}"),
        rows=[(row, row.says) for row in found.rows],
    )


def gate_page(result: GateResult, plotly: Plotly = "inline") -> str:
    """The page of `gate --html`."""
    runs = [(one.load, one.paired, one.base_runs, one.candidate_runs) for one in result.loads]
    more = () if result.further_repeats is None else (f"About {more_repeats(result.further_repeats)} would decide.",)
    again = result.confirmation
    confirmed = () if again is None else (f"Run again at {100 * again.level:g} %: {again.verdict}", *again.reasons)
    left_out = (f"left out: {why}" for load in result.loads for why in load.left_out)
    rows = [(row, row.verdict) for row in result.rows]
    legend = f"Each bound holds with {100 * result.policy.level:g} %; the bar across a row is its limit."
    return _page(
        result,
        what="gate",
        plotly=plotly,
        headline=verdict_words(result),
        notes=(*result.reasons, *more, *confirmed, *result.notes, *left_out),
        drawings=forests(rows[:MOST_ROWS], f"K: {runs_words(runs) or 'no load'}. {legend}"),
        rows=rows,
    )


def _page(
    found: Comparison | GateResult,
    *,
    plotly: Plotly,
    drawings: Sequence[Drawing],
    rows: Sequence[tuple[Row, str]],
    **words: Any,
) -> str:
    simulated = found.base.simulated or found.candidate.simulated
    drawings = [marked_simulated(one) for one in drawings] if simulated else drawings
    return render_page(
        "effects.html.j2",
        {one.key: one.spec for one in drawings if one.spec is not None},
        plotly=plotly,
        sides=(found.base, found.candidate),
        attribution=found.attribution,
        simulated=simulated,
        drawings=drawings,
        heads=("", "figure", "bucket", "load", "base → candidate", "n (n_eff)", "effect", "bounds", "limit", "note"),
        rows=[(says, _cells(row)) for row, says in rows],
        colours={says: {"@bad": "bad", "@s4": "good"}.get(role, "muted") for says, (role, _) in STYLES.items()},
        **words,
    )


def forests(rows: Sequence[tuple[Row, str]], caption: str) -> list[Drawing]:
    """A forest plot for each scale and direction among `rows`, in their order; rows without an effect are noted."""
    effects = [_effect(row, says) for row, says in rows]
    groups: dict[tuple[str, str, str], list[_Effect]] = {}
    for one in effects:
        row = one.row
        unit = "" if row.scale == "ratio" else row.unit
        groups.setdefault((row.scale, unit, row.direction or ""), []).append(one)
    return [_forest(f"effects-{i}", *key, group, caption) for i, (key, group) in enumerate(groups.items())]


def _effect(row: Row, says: str) -> _Effect:
    limit = row.limit if isinstance(row, GateRow) else None
    ends: Iterable[float | None] = (row.effect, row.lo, row.hi, limit)
    if row.scale == "ratio":
        ends = tuple(math.log(x) if x is not None and x > 0 else None for x in ends)
    elif row.unit == "1":
        ends = tuple(None if x is None else 100 * x for x in ends)
    return _Effect(row, says, *ends)


def _forest(key: str, scale: str, unit: str, direction: str, group: Sequence[_Effect], caption: str) -> Drawing:
    relative = scale == "ratio"
    better = {"lower": "Less is better: worse to the right", "higher": "More is better: worse to the left"}
    name = "candidate ÷ base" if relative else f"candidate − base, {'percentage points' if unit == '1' else unit}"
    title = f"{name[0].upper()}{name[1:]}"
    lead = f"{better.get(direction, 'Neither side is better')}. A line that ends in an arrow is open there."
    drawn = [one for one in group if not (one.at is None and one.lo is None and one.hi is None)]
    blank = [(plain(one.row.figure), f"load {one.row.load}") for one in group if one not in drawn]
    notes = (f"No effect to draw: {gathered(blank)}.",) if blank else ()
    if not drawn:
        return Drawing(key, title, lead, "Nothing to draw.", notes, None, True)
    low, high = _range(drawn)
    traces = [_segments(drawn, low, high)]
    for says in dict.fromkeys(one.says for one in drawn):
        traces.append(_points([(i, one) for i, one in enumerate(drawn) if one.says == says], says, low, high))
    if any(one.limit is not None for one in drawn):
        traces.append(_limits(drawn))
    x: Spec = {"title": {"text": label(f"{name}{' (log scale)' if relative else ''}")}, "range": [low, high]}
    if relative:
        ticks = _ticks(low, high)
        x |= {
            "tickmode": "array",
            "tickvals": [math.log1p(t / 100) for t in ticks],
            "ticktext": [_tick(t) for t in ticks],
        }
    y: Spec = {
        "range": [len(drawn) - 0.4, -0.6], "tickmode": "array", "tickvals": list(range(len(drawn))),
        "ticktext": [label(_name(one.row)) for one in drawn],
    }  # fmt: skip
    spec = layout(x, y, height=140 + 24 * len(drawn))
    none: Spec = {"type": "line", "layer": "below", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper"}
    spec["shapes"].append(none | {"line": {"color": "@muted", "width": 1.2}})
    return Drawing(key, title, lead, caption, notes, {"data": traces, "layout": spec}, True)


def _range(drawn: Sequence[_Effect]) -> tuple[float, float]:
    """An axis that holds zero, every effect and limit, and the bounds that are not far beyond them."""
    inner = [x for one in drawn for x in (one.at, one.limit) if x is not None]
    bounds = [x for one in drawn for x in (one.lo, one.hi) if x is not None]
    far = _MOST * max((abs(x) for x in inner), default=0.0) or math.inf
    held = [0.0, *inner, *(min(max(x, -far), far) for x in bounds)]
    pad = 0.08 * (max(held) - min(held)) or 0.1
    return min(held) - pad, max(held) + pad


def _segments(drawn: Sequence[_Effect], low: float, high: float) -> Spec:
    """The bounds as lines; one that is open runs to the edge and ends in an arrow."""
    held = [(i, one) for i, one in enumerate(drawn) if one.lo is not None or one.hi is not None]
    ends = [(_in(one.lo, low, low, high), _in(one.hi, high, low, high)) for _, one in held]
    tips = [
        ("triangle-left" if lo == low else "line-ns", "triangle-right" if hi == high else "line-ns") for lo, hi in ends
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [x for pair in ends for x in (*pair, None)],
        "y": [y for i, _ in held for y in (i, i, None)],
        "line": {"color": "@muted", "width": 2},
        "marker": {
            "color": "@muted",
            "size": 9,
            "symbol": [tip for pair in tips for tip in (*pair, "circle")],
            "line": {"color": "@muted", "width": 1.5},
        },
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _points(mine: Sequence[tuple[int, _Effect]], says: str, low: float, high: float) -> Spec:
    role, symbol = STYLES[says]
    held = [(i, one) for i, one in mine if one.at is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(says),
        "x": [_in(one.at, low, low, high) for _, one in held],
        "y": [i for i, _ in held],
        "marker": {"color": role, "size": 10, "symbol": symbol, "line": {"color": role, "width": 2}},
        "hoverinfo": "text",
        "hovertext": ["<br>".join(map(label, (_name(one.row), *_cells(one.row)[3:]))) for _, one in held],
        "showlegend": True,
    }


def _limits(drawn: Sequence[_Effect]) -> Spec:
    held = [(i, one.limit) for i, one in enumerate(drawn) if one.limit is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "limit",
        "x": [x for _, x in held],
        "y": [i for i, _ in held],
        "marker": {"color": "@bad", "size": 16, "symbol": "line-ns", "line": {"color": "@bad", "width": 2}},
        "hoverinfo": "skip",
        "showlegend": True,
    }


def _in(x: float | None, otherwise: float, low: float, high: float) -> float:
    return otherwise if x is None else min(max(x, low), high)


def _ticks(low: float, high: float) -> list[int]:
    kept: list[int] = []
    for tick in itertools.chain(_TICKS, (1, -1, 2, -2)):
        at = math.log1p(tick / 100)
        if low <= at <= high and all(abs(at - math.log1p(one / 100)) > (high - low) / 14 for one in kept):
            kept.append(tick)
    return sorted(kept)


def _tick(per_cent: int) -> str:
    return f"× {1 + per_cent // 100}" if per_cent >= 200 else f"{per_cent:+d} %" if per_cent else "0 %"


def _name(row: Row) -> str:
    bucket = "" if row.bucket is None else f" · {row.bucket_by} {plain(row.bucket, 24)}"
    return f"{row.figure}{bucket} · load {row.load}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.figure,
        NOTHING if row.bucket is None else f"{row.bucket_by} {plain(row.bucket, 60)}",
        row.load,
        values_words(row),
        samples_text(row.base, row.candidate),
        effect_words(row),
        bounds_text(row.lo, row.hi, row.scale, row.unit) or NOTHING,
        effect_text(row.limit, row.scale, row.unit) if isinstance(row, GateRow) else NOTHING,
        plain(row.reason or ""),
    )
