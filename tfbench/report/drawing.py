"""What one drawing is, and the layout all of them share. Specs are plain Plotly JSON with colour roles (see theme)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfbench.report.escape import label
from tfbench.report.fmt import NOTHING, number, shown, unit_words
from tfbench.report.model import Figure, LoadPoint, ReportData

Spec = dict[str, Any]

HEIGHT = 330
DASHES = ("solid", "dash", "dot", "dashdot")
LOG_SPAN = 30.0
LOG_MOST = 1e12
LOG_STEPS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), tuple(n / 10 for n in range(10, 100, 2)))


@dataclass(frozen=True)
class Drawing:
    """A Plotly spec with its words. `caption` states n, K and method; without a spec it says why there is none."""

    key: str
    title: str
    lead: str
    caption: str
    notes: tuple[str, ...]
    spec: Spec | None
    wide: bool = False


def nothing_drawn(reasons: Iterable[str | None]) -> str:
    """Why a panel is empty, in one sentence."""
    known = list(dict.fromkeys(filter(None, reasons)))
    why = known[0] if len(known) == 1 else "no load point has a value that may be shown"
    return f"Nothing to draw (n = 0): {why.rstrip('.')}."


@dataclass(frozen=True)
class Scale:
    """An axis: its range in data units, whether it is logarithmic, and the most a value can be (None: no such)."""

    low: float
    high: float
    log: bool
    full: float | None = None

    def held(self, value: float) -> float:
        """`value`, or the axis's end beyond which it lies: what is shaded stays inside the axes."""
        return min(max(value, self.low), self.high)

    def axis(self) -> Spec:
        """The Plotly axis type and range."""
        if self.log:
            return log_axis(self.low, self.high)
        return {"type": "linear", "range": [self.low, self.high]}


def log_axis(low: float, high: float) -> Spec:
    """A logarithmic axis with ticks at round numbers, three or more where there are as many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in LOG_STEPS:
        ticks = [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]
        if len(ticks) >= 3:
            break
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
    }


def y_scale(figures: Sequence[Figure], extra: Sequence[float] = ()) -> Scale:
    """A range that holds values, bounds and `extra`; a far bound (over 3 times the top value) runs off the plot."""
    values = [x for f in figures for x in (f.value, f.lo) if x is not None] + list(extra)
    bounds = [f.hi for f in figures if f.hi is not None]
    top = max(values, default=0.0)
    top = max(top, min(max(bounds, default=0.0), 3 * top if top > 0 else math.inf))
    if top <= 0:
        return Scale(0.0, 1.0, False)
    positive = [x for x in values if x > 0]
    if positive and top / min(positive) > LOG_SPAN and min(values) > 0:
        return Scale(max(min(positive) / 1.6, top / LOG_MOST), top * 1.8, True)
    return Scale(0.0, top * 1.14, False)


def marked_simulated(drawing: Drawing) -> Drawing:
    """`drawing` with SIMULATED across its plot, where it stays when the plot is saved as an image, and in its words."""
    if drawing.spec is None:
        return drawing
    mark: Spec = {
        "text": "SIMULATED",
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "textangle": -14,
        "opacity": 0.16,
        "font": {"size": 40, "color": "@muted"},
    }
    layout = drawing.spec["layout"]
    spec = drawing.spec | {"layout": layout | {"annotations": [mark, *layout["annotations"]]}}
    return replace(drawing, caption=f"Simulated. {drawing.caption}", spec=spec)


def load_axis(data: ReportData) -> tuple[dict[LoadPoint, float], Spec]:
    """Where each load point stands on the x axis, and that axis. A load of infinity stands right of the others."""
    finite = sorted({load.value for load in data.loads if math.isfinite(load.value)})
    ends = finite or [1.0]
    log = len(finite) > 3 and finite[0] > 0 and finite[-1] / finite[0] > 10
    beyond = ends[-1] * (2.0 if log else 1.25) if finite else 1.0
    at = {load: load.value if math.isfinite(load.value) else beyond for load in data.loads}
    places = sorted(set(at.values())) or [1.0]
    words = {place: load.number for load, place in at.items()}
    axis: Spec = {
        "title": {"text": data.load_words},
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [label(words.get(place, f"{place:g}")) for place in places],
    }
    if log:
        axis |= {"type": "log", "range": [math.log10(places[0] / 1.3), math.log10(places[-1] * 1.3)]}
    else:
        pad = max((places[-1] - places[0]) * 0.09, places[-1] * 0.06)
        pad = pad if len(places) > 1 else places[0] / 2
        axis |= {"type": "linear", "range": [max(0.0, places[0] - pad), places[-1] + pad]}
    return at, axis


def axis(**more: Any) -> Spec:
    """An axis in the house style."""
    base: Spec = {
        "gridcolor": "@grid",
        "linecolor": "@axis",
        "tickcolor": "@axis",
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "tickfont": {"color": "@muted", "size": 11},
    }
    title = more.pop("title", None)
    if title is not None:
        base["title"] = {"font": {"color": "@muted", "size": 12}, "standoff": 8, **title}
    return base | more


def layout(x: Spec, y: Spec, **more: Any) -> Spec:
    """A layout in the house style."""
    base: Spec = {
        "height": HEIGHT,
        "autosize": True,
        "margin": {"l": 58, "r": 18, "t": 34, "b": 48},
        "paper_bgcolor": "@panel",
        "plot_bgcolor": "@panel",
        "font": {"family": FONT, "size": 12, "color": "@ink"},
        "hovermode": "closest",
        "hoverlabel": {
            "align": "left",
            "bgcolor": "@page",
            "bordercolor": "@axis",
            "font": {"family": FONT, "size": 12, "color": "@ink"},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"color": "@ink", "size": 11},
            "itemwidth": 30,
        },
        "xaxis": axis(**x),
        "yaxis": axis(**y),
        "shapes": [],
        "annotations": [],
    }
    return base | more


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"


def hover(figure: Figure, title: str) -> str:
    """A figure's whole statement, as Plotly label text."""
    text = shown(figure)
    n = NOTHING if figure.n is None else f"{figure.n:,}"
    lines = [
        f"<b>{label(title)}</b> at {label(figure.load.label)}",
        f"{label(text.line)} {label(unit_words(figure.unit))}",
        f"n = {n} · K = {figure.k if figure.k is not None else NOTHING}"
        + (f" · n_eff = {number(figure.n_eff)}" if figure.n_eff is not None else ""),
        label(figure.method or "no interval", 90),
    ]
    if not figure.settled:
        lines.append("not settled" + (f": {label(figure.reason, 90)}" if figure.reason else ""))
    return "<br>".join(lines)


def line_at(value: float, words: str, *, log: bool, vertical: bool = False) -> tuple[Spec, Spec]:
    """A dotted limit line with its words: (shape, annotation)."""
    ends: Spec = (
        {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper"}
        if vertical
        else {"x0": 0, "x1": 1, "xref": "paper", "y0": value, "y1": value}
    )
    shape: Spec = {"type": "line", "layer": "below", "line": {"color": "@bad", "width": 1.2, "dash": "dot"}} | ends
    # On a logarithmic axis Plotly takes shapes in data units, but annotations in log10 of them.
    at = math.log10(value) if log else value
    place: Spec = (
        {"x": at, "y": 0.02, "yref": "paper", "xanchor": "right", "yanchor": "bottom", "textangle": -90}
        if vertical
        else {"x": 0.005, "xref": "paper", "y": at, "xanchor": "left", "yanchor": "bottom"}
    )
    note: Spec = {"text": label(words), "showarrow": False, "font": {"size": 10, "color": "@bad"}} | place
    return shape, note
