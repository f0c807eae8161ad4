"""Figures against load: latency quantiles, throughput, goodput, good fraction, cost, client lag."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.report.drawing import (
    DASHES,
    Drawing,
    Scale,
    Spec,
    hover,
    layout,
    line_at,
    load_axis,
    nothing_drawn,
    y_scale,
)
from tfbench.report.escape import label
from tfbench.report.fmt import caption, gathered, number, scale_of
from tfbench.report.judged import withheld_at
from tfbench.report.model import Figure, LoadPoint, ReportData
from tfbench.report.naming import figure_words


@dataclass(frozen=True)
class Series:
    """One drawn line: a figure's name, its words, colour role and Plotly symbol."""

    figure: str
    words: str
    role: str
    symbol: str


def quantiles(stem: str) -> tuple[Series, ...]:
    """P50, P95 and P99 of a latency."""
    return (
        Series(f"{stem}_p50_ms", "P50", "s1", "circle"),
        Series(f"{stem}_p95_ms", "P95", "s2", "square"),
        Series(f"{stem}_p99_ms", "P99", "s3", "diamond"),
    )


def against_load(
    data: ReportData,
    key: str,
    title: str,
    lead: str,
    series: Sequence[Series],
    y_title: str,
    *,
    limits: Sequence[tuple[float, str]] = (),
    scale: Scale | None = None,
    diagonal: bool = False,
    n_words: str = "attempts",
    y_more: Mapping[str, Any] | None = None,
) -> Drawing:
    """Draws figures over load points: line and marker at the value, bar and band for the interval.

    An open end is an arrow to the edge; an unsettled value is a hollow marker; a load point with nothing to show is
    named in the notes; faint dots are the single runs.
    """
    found = [(one, f) for one in series for f in data.figures if f.name == one.figure]
    drawn = [f for _, f in found if not f.empty]
    if not drawn:
        why = [f.reason for _, f in found] or ["nothing of the kind was measured in this study"]
        return Drawing(key, title, lead, nothing_drawn(why), (), None)
    notes = _notes(found)
    at, x = load_axis(data)
    names = {one.figure for one in series}
    extra = [r.value for r in data.run_figures if r.name in names and r.value is not None]
    extra += [limit for limit, _ in limits if limit <= 4 * max([f.value or f.lo or 0.0 for f in drawn] + extra)]
    if diagonal:
        extra += [load.value for load in data.loads if math.isfinite(load.value)]
    y = scale or y_scale(drawn, extra)
    _mark_loads(data, found, at, x)
    traces: list[Spec] = []
    if diagonal and len(at) > 1:
        traces.append(_diagonal([place for load, place in at.items() if math.isfinite(load.value)]))
    arms = sorted({f.load.arm or "" for f in drawn})
    shifts = _shifts(len(series), x, any(f.one_sided for f in drawn))
    for one, shift in zip(series, shifts, strict=True):
        places = {load: place + shift if x["type"] == "linear" else place * 10**shift for load, place in at.items()}
        for index, arm in enumerate(arms):
            mine = [f for which, f in found if which is one and (f.load.arm or "") == arm]
            mine.sort(key=lambda f: f.load.order)
            name = one.words if not arm else f"{one.words} · {arm}"
            traces += _series(data, mine, one, label(name), DASHES[index % len(DASHES)], places, y)
    spec_layout = layout(x, {"title": {"text": label(y_title)}, **y.axis(), **(y_more or {})})
    spec_layout["showlegend"] = len(series) * len(arms) > 1
    for limit, words in limits:
        if y.low < limit < y.high:
            shape, note = line_at(limit, words, log=y.log)
            spec_layout["shapes"].append(shape)
            spec_layout["annotations"].append(note)
    words = caption([f for _, f in found], n_words)
    return Drawing(key, title, lead, words, notes, {"data": traces, "layout": spec_layout})


def _shifts(count: int, x: Spec, needed: bool) -> list[float]:
    """Sideways steps (axis units; log10 on a log axis) that keep the arrows of several series apart."""
    step = 0.016 * (x["range"][1] - x["range"][0]) if needed else 0.0
    return [(index - (count - 1) / 2) * step for index in range(count)]


def _notes(found: Sequence[tuple[Series, Figure]]) -> tuple[str, ...]:
    """One line per reason: which of the drawn figures, at which load points."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for one, figure in found:
        if figure.reason or figure.empty:
            by_reason.setdefault(figure.reason or "no value", []).append((one.words, figure.load.label))
    return tuple(f"{gathered(where)}: {reason}" for reason, where in by_reason.items())


def _diagonal(places: Sequence[float]) -> Spec:
    low, high = min(places, default=0.0), max(places, default=0.0)
    line = [low + (high - low) * i / 40 for i in range(41)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "offered",
        "x": line,
        "y": line,
        "line": {"color": "@muted", "width": 1, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": True,
    }


def _series(
    data: ReportData, mine: Sequence[Figure], one: Series, name: str, dash: str, at: Mapping[LoadPoint, float], y: Scale
) -> list[Spec]:
    held = [f for f in mine if not f.empty]
    if not held:
        return []
    role = f"@{one.role}"
    group = f"{one.figure} {dash}"
    common: Spec = {"type": "scatter", "legendgroup": group, "name": name}
    out: list[Spec] = []
    for stretch in _stretches(mine):
        xs = [at[f.load] for f in stretch]
        up, down = (
            [y.held(bound) for f in stretch if (bound := getattr(f, side)) is not None] for side in ("hi", "lo")
        )
        out.append(
            common
            | {
                "mode": "lines",
                "x": xs + xs[::-1],
                "y": up + down[::-1],
                "fill": "toself",
                "fillcolor": f"{role}/0.13",
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    loads = {f.load for f in held}
    unfit = {run.run_id for run in data.runs if run.invalid}
    dots = [(r, r.value) for r in data.run_figures if r.name == one.figure and r.value is not None and r.load in loads]
    if len({r.run_id for r, _ in dots}) > len(held):
        out.append(
            common
            | {
                "mode": "markers",
                "x": [at[r.load] for r, _ in dots],
                "y": [value for _, value in dots],
                "marker": {
                    "color": [role if r.run_id in unfit else f"{role}/0.45" for r, _ in dots],
                    "size": [7 if r.run_id in unfit else 4 for r, _ in dots],
                    "symbol": ["x-thin-open" if r.run_id in unfit else "circle" for r, _ in dots],
                },
                "hoverinfo": "text",
                "hovertext": [
                    f"{name}, repeat {r.repeat}: {number(value * scale_of(r.unit))}"
                    + (" (INVALID run)" if r.run_id in unfit else "")
                    for r, value in dots
                ],
                "showlegend": False,
            }
        )
    valued = [f for f in mine if f.value is not None]
    if valued:
        out.append(
            common
            | {
                "mode": "lines+markers" if len(valued) > 1 else "markers",
                "x": [at[f.load] for f in mine],
                "y": [f.value for f in mine],
                "connectgaps": False,
                "line": {"color": role, "width": 2, "dash": dash},
                "marker": {
                    "color": role,
                    "size": 8,
                    "symbol": [one.symbol if f.settled else f"{one.symbol}-open" for f in mine],
                    "line": {"color": role, "width": 1.8},
                },
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_gap(f.hi, f.value) for f in mine],
                    "arrayminus": [_gap(f.value, f.lo) for f in mine],
                    "color": role,
                    "thickness": 1.3,
                    "width": 5,
                },
                "hoverinfo": "text",
                "hovertext": [hover(f, name_of(one, f)) for f in mine],
                "showlegend": True,
            }
        )
    out += _open_ends(held, one, common, at, y, legend=not valued)
    return out


def name_of(one: Series, figure: Figure) -> str:
    """What a hover calls a point."""
    name = figure_words(figure.name)
    return name if name.endswith(one.words) else f"{name} ({one.words})"


def _gap(above: float | None, below: float | None) -> float:
    return above - below if above is not None and below is not None else 0.0


def _stretches(figures: Sequence[Figure]) -> list[list[Any]]:
    """Neighbouring load points with both bounds, two or more in a row."""
    out: list[list[Figure]] = [[]]
    for figure in figures:
        if figure.lo is not None and figure.hi is not None:
            out[-1].append(figure)
        elif out[-1]:
            out.append([])
    return [stretch for stretch in out if len(stretch) > 1]


def _open_ends(
    held: Sequence[Figure], one: Series, common: Spec, at: Mapping[LoadPoint, float], y: Scale, *, legend: bool
) -> list[Spec]:
    """Bounds with an open end: a bar from the bound (or the value) to the edge, with an arrow head there."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    symbols: list[str] = []
    text: list[str] = []
    top = y.high / (y.high / y.low) ** 0.02 if y.log else y.high - 0.02 * (y.high - y.low)
    bottom = y.low * (y.high / y.low) ** 0.02 if y.log else y.low + 0.02 * (y.high - y.low)
    for figure in held:
        bound = figure.lo if figure.lo is not None else figure.hi
        start = figure.value if figure.value is not None else bound
        up = figure.lo is not None
        if not figure.one_sided or start is None or (start >= top or y.full == start if up else start <= bottom):
            continue
        xs += [at[figure.load], at[figure.load], None]
        ys += [start, top if up else bottom, None]
        foot = "line-ew-open" if figure.value is None else "circle-open"
        symbols += [foot, "triangle-up" if up else "triangle-down", "circle"]
        text += [hover(figure, name_of(one, figure))] * 3
    if not xs:
        return []
    role = f"@{one.role}"
    sizes = [10 if symbol.startswith("line") else 9 if symbol.startswith("triangle") else 1 for symbol in symbols]
    return [
        common
        | {
            "mode": "lines+markers",
            "x": xs,
            "y": ys,
            "line": {"color": role, "width": 1.3, "dash": "dot"},
            "marker": {"color": role, "size": sizes, "symbol": symbols, "line": {"color": role, "width": 1.8}},
            "hoverinfo": "text",
            "hovertext": text,
            "cliponaxis": False,
            "showlegend": legend,
        }
    ]


def _mark_loads(
    data: ReportData, found: Sequence[tuple[Series, Figure]], at: Mapping[LoadPoint, float], x: Spec
) -> None:
    """Writes under the load's tick that it holds INVALID runs, or that nothing is shown there and why."""
    marks: dict[float, list[str]] = {}
    for load in data.loads:
        mine = [f for _, f in found if f.load == load]
        runs = data.runs_at(load)
        invalid = sum(run.invalid for run in runs)
        words = []
        if invalid:
            words.append("INVALID" if invalid == len(runs) else f"{invalid}/{len(runs)} INVALID")
        if all(f.empty for f in mine):
            words.append("withheld" if mine and withheld_at(runs) else "no value")
        if words:
            marks.setdefault(at[load], []).append(" ".join([*words, *([load.arm] if load.arm else [])]))
    x["ticktext"] = [
        "<br>".join([text, *(f"<b>{label(words, 24)}</b>" for words in marks.get(place, []))])
        for place, text in zip(x["tickvals"], x["ticktext"], strict=True)
    ]
