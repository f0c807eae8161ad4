"""Operating curves: what the system gives in all against what each user gets of it, and where its SLO capacity lies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfbench.report.drawing import DASHES, Drawing, Scale, Spec, hover, layout, nothing_drawn, y_scale
from tfbench.report.escape import label
from tfbench.report.fmt import caption, gathered, number
from tfbench.report.model import CapacityFound, Figure, LoadPoint, ReportData
from tfbench.report.naming import figure_words
from tfbench.verdict.words import decision_words, n_text

Box = tuple[float, float, float, float]
"""Two intervals: x low, x high, y low, y high."""
_EMPTY = Figure(LoadPoint(0.0), "", "", None, None, None, None, None, None, None, None, None, False, None)


@dataclass(frozen=True)
class OperatingPoint:
    """One load point: output tokens per second of the system and of a user, TTFT, goodput, cost.

    `dominated_by` is a load point that gives more of the first two (beyond both intervals) and no less of the other, or
    a lower load of the same arm with more goodput (likewise): beyond it the system gives less for being asked more.
    """

    load: LoadPoint
    system: Figure
    user: Figure
    ttft: Figure
    goodput: Figure
    cost: Figure
    dominated_by: LoadPoint | None = None


def operating_points(data: ReportData) -> tuple[OperatingPoint, ...]:
    """Every load point, in order; nothing where a study has only one."""
    if len(data.loads) < 2:
        return ()
    points = [
        OperatingPoint(
            load=load,
            system=_figure(data, load, "throughput_output_tokens_per_s"),
            user=per_user(_figure(data, load, "tpot_p50_ms")),
            ttft=_figure(data, load, "ttft_p95_ms"),
            goodput=_figure(data, load, "goodput_requests_per_s"),
            cost=_figure(data, load, "cost_per_million_qualified_tokens"),
        )
        for load in data.loads
    ]
    return tuple(
        replace(one, dominated_by=next((other.load for other in points if _dominates(other, one)), None))
        for one in points
    )


def per_user(tpot: Figure) -> Figure:
    """Tokens per second that a user sees while an answer runs: 1000 ÷ TPOT in ms. The bounds change places."""
    return replace(
        tpot,
        name="tokens_per_s_per_user",
        unit="tokens/s",
        direction="higher",
        value=_inverse(tpot.value),
        lo=_inverse(tpot.hi),
        hi=_inverse(tpot.lo),
    )


def _inverse(ms: float | None) -> float | None:
    return None if ms is None or ms <= 0 else 1000.0 / ms


def _figure(data: ReportData, load: LoadPoint, name: str) -> Figure:
    return data.figure(load, name) or replace(_EMPTY, load=load, name=name, reason="not in this study")


def _dominates(a: OperatingPoint, b: OperatingPoint) -> bool:
    if a.load.arm == b.load.arm and a.load.value < b.load.value and _surely_more(a.goodput, b.goodput):
        return True
    pairs = ((a.system, b.system), (a.user, b.user))
    if any(x.value is None or y.value is None or x.value < y.value for x, y in pairs):
        return False
    return any(_surely_more(x, y) for x, y in pairs)


def _surely_more(x: Figure, y: Figure) -> bool:
    return x.lo is not None and y.hi is not None and x.lo > y.hi


def curve_drawings(data: ReportData) -> tuple[Drawing, ...]:
    """The drawings of the section; empty for a study of one load point."""
    points = operating_points(data)
    if not points:
        return ()
    currency = str(data.study.section("cost").get("currency") or "cost")
    user = "output tokens/s per user (1 ÷ TPOT P50)"
    return (
        _plane(
            data,
            "operating",
            "What the system gives against what a user gets",
            "Up and to the right is better; points bear their load. Grey: dominated, another point gives more of one, "
            "beyond both intervals, and no less of the other, or a lower load more goodput.",
            points,
            [(one.user, one.system) for one in points],
            (user, "output tokens/s of the system"),
        ),
        _plane(
            data,
            "operating-ttft",
            "What a busier system costs in waiting",
            "Time to first token against what the system gives in all.",
            points,
            [(one.system, one.ttft) for one in points],
            ("output tokens/s of the system", "TTFT P95, ms"),
        ),
        _plane(
            data,
            "operating-cost",
            "What speed costs",
            "Cost of a million output tokens of good requests against what a user gets.",
            points,
            [(one.user, one.cost) for one in points],
            (user, f"{currency} per million qualified tokens"),
        ),
    )


def _plane(
    data: ReportData,
    key: str,
    title: str,
    lead: str,
    points: Sequence[OperatingPoint],
    pairs: Sequence[tuple[Figure, Figure]],
    titles: tuple[str, str],
) -> Drawing:
    figures = [figure for pair in pairs for figure in pair]
    drawn = [
        (at, x, y) for at, (x, y) in zip(points, pairs, strict=True) if x.value is not None and y.value is not None
    ]
    if not drawn:
        return Drawing(key, title, lead, nothing_drawn(f.reason for f in figures if f.value is None), (), None)
    notes = _notes(figures)
    xs, ys = y_scale([x for _, x, _ in drawn]), y_scale([y for _, _, y in drawn])
    traces: list[Spec] = []
    arms = sorted({at.load.arm or "" for at, _, _ in drawn})
    for index, arm in enumerate(arms):
        mine = [one for one in drawn if (one[0].load.arm or "") == arm]
        role, dash = f"@s{1 + index % 4}", DASHES[index % len(DASHES)]
        traces += _line(data, mine, label(arm or "load points"), role, dash, (xs, ys))
    x_axis = {"title": {"text": label(titles[0], 80)}, **xs.axis()}
    spec_layout = layout(x_axis, {"title": {"text": label(titles[1], 80)}, **ys.axis()})
    spec_layout["showlegend"] = len(arms) > 1
    if key == "operating":
        spec_layout["annotations"] += _capacity_note(data.capacity, drawn, xs, ys)
    return Drawing(
        key, title, lead, caption(figures), notes, {"data": traces, "layout": spec_layout}, wide=key == "operating"
    )


def _notes(figures: Sequence[Figure]) -> tuple[str, ...]:
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for figure in figures:
        if figure.reason or figure.value is None:
            by_reason.setdefault(figure.reason or "no value", []).append((figure_words(figure.name), figure.load.label))
    return tuple(f"{gathered(where)}: {reason}" for reason, where in by_reason.items())


def _line(
    data: ReportData,
    mine: Sequence[tuple[OperatingPoint, Figure, Figure]],
    name: str,
    role: str,
    dash: str,
    scales: tuple[Scale, Scale],
) -> list[Spec]:
    common: Spec = {"type": "scatter", "legendgroup": name, "name": name}
    out: list[Spec] = []
    boxes = [_box(x, y, *scales) for _, x, y in mine]
    for a, b in zip(boxes, boxes[1:] or boxes, strict=False):
        if a is None or b is None:
            continue
        corners = hull([*_corners(a), *_corners(b)])
        out.append(
            common
            | {
                "mode": "lines",
                "x": [x for x, _ in corners],
                "y": [y for _, y in corners],
                "fill": "toself",
                "fillcolor": f"{role}/0.13",
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    colours = ["@muted" if at.dominated_by else role for at, _, _ in mine]
    settled = [x.settled and y.settled for _, x, y in mine]
    out.append(
        common
        | {
            "mode": "lines+markers+text" if len(mine) > 1 else "markers+text",
            "x": [x.value for _, x, _ in mine],
            "y": [y.value for _, _, y in mine],
            "text": [label(at.load.number) for at, _, _ in mine],
            "textposition": "top right",
            "textfont": {"size": 11, "color": "@ink"},
            "line": {"color": role, "width": 1.4, "dash": dash},
            "marker": {
                "color": colours,
                "size": 8,
                "symbol": [
                    f"{'x' if at.dominated_by else 'circle'}{'' if sure else '-open'}"
                    for (at, _, _), sure in zip(mine, settled, strict=True)
                ],
                "line": {"color": colours, "width": 1.8},
            },
            "error_x": _bars([x for _, x, _ in mine], role),
            "error_y": _bars([y for _, _, y in mine], role),
            "hoverinfo": "text",
            "hovertext": [_hover(data, *one) for one in mine],
            "showlegend": True,
        }
    )
    return out


def _bars(figures: Sequence[Figure], role: str) -> Spec:
    def gap(above: float | None, below: float | None) -> float:
        return above - below if above is not None and below is not None else 0.0

    return {
        "type": "data",
        "symmetric": False,
        "array": [gap(one.hi, one.value) for one in figures],
        "arrayminus": [gap(one.value, one.lo) for one in figures],
        "color": role,
        "thickness": 1.3,
        "width": 4,
    }


def _hover(data: ReportData, at: OperatingPoint, x: Figure, y: Figure) -> str:
    lines = [hover(x, figure_words(x.name)), hover(y, figure_words(y.name))]
    if at.dominated_by is not None:
        lines.append(f"dominated by {label(data.load_text(at.dominated_by))}")
    return "<br>".join(lines)


def _box(x: Figure, y: Figure, xs: Scale, ys: Scale) -> Box | None:
    """The two intervals inside the axes, an open end closed at the value; None where neither figure has a bound."""
    if x.value is None or y.value is None or (x.lo is None and x.hi is None and y.lo is None and y.hi is None):
        return None
    return (
        xs.held(x.value if x.lo is None else x.lo),
        xs.held(x.value if x.hi is None else x.hi),
        ys.held(y.value if y.lo is None else y.lo),
        ys.held(y.value if y.hi is None else y.hi),
    )


def _corners(box: Box) -> list[tuple[float, float]]:
    return [(x, y) for x in box[:2] for y in box[2:]]


def hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The convex hull, counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted(set(points))
    if len(ordered) < 3:
        return ordered

    def half(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        out: list[tuple[float, float]] = []
        for x, y in run:
            while len(out) > 1 and (out[-1][0] - out[-2][0]) * (y - out[-2][1]) <= (out[-1][1] - out[-2][1]) * (
                x - out[-2][0]
            ):
                out.pop()
            out.append((x, y))
        return out[:-1]

    return half(ordered) + half(ordered[::-1])


def _capacity_note(
    capacity: CapacityFound | None, drawn: Sequence[tuple[OperatingPoint, Figure, Figure]], xs: Scale, ys: Scale
) -> list[Spec]:
    """An arrow at the highest load that met the target."""
    if capacity is None or capacity.lo is None:
        return []
    found = [(x.value, y.value) for at, x, y in drawn if math.isclose(at.load.value, capacity.lo, rel_tol=1e-9)]
    if not found:
        return []
    x, y = found[0]
    assert x is not None and y is not None
    return [
        {
            "x": math.log10(x) if xs.log else x,
            "y": math.log10(y) if ys.log else y,
            "text": label(f"SLO capacity: {capacity_words(capacity)}"),
            "showarrow": True,
            "arrowhead": 2,
            "arrowcolor": "@s4",
            "ax": -40,
            "ay": 46,
            "font": {"size": 11, "color": "@s4"},
        }
    ]


def capacity_words(capacity: CapacityFound) -> str:
    """`8.2 to 8.7 requests/s`; an open end in words."""
    lo, hi, unit = capacity.lo, capacity.hi, capacity.unit
    if lo is not None and hi is not None:
        return f"{lo:g} to {hi:g} {unit}"
    if lo is not None:
        return f"at least {lo:g} {unit}"
    return f"below {hi:g} {unit}" if hi is not None else "not decided"


def capacity_lines(capacity: CapacityFound) -> list[str]:
    """The answer in a sentence or two."""
    sure = "" if capacity.confidence is None else f" ({100 * capacity.confidence:g} % confidence)"
    lines = [f"SLO capacity: {capacity_words(capacity)}{sure}, the highest load at which {capacity.target}."]
    if capacity.limit == "client":
        lines.append("The client reached its own limit first: the server's lies higher, and nothing here says where.")
    if capacity.reason:
        lines.append(f"{capacity.reason[0].upper()}{capacity.reason[1:]}.")
    if capacity.advice:
        lines.append(f"Next: {capacity.advice}.")
    return lines


def evidence_rows(capacity: CapacityFound) -> list[tuple[str, ...]]:
    """The evidence table: load, runs, requests and their worth, share (or ms) with its interval, decision, reason."""
    return [
        (
            f"{one.load:g}",
            f"{one.runs}" + (f" + {one.unfit} INVALID" if one.unfit else ""),
            n_text(one.counted, one.n_eff),
            number(one.value, 4),
            f"[{number(one.lo, 4)}, {number(one.hi, 4)}]",
            decision_words(one.met, one.scouted),
            one.reason or "",
        )
        for one in capacity.probed
    ]


EVIDENCE_HEADS = ("load", "runs", "n (n_eff)", "value", "interval", "target", "note")


def with_capacity(data: ReportData, drawing: Drawing) -> Drawing:
    """`drawing`, whose x axis is the load, with a band where the SLO capacity lies."""
    capacity = data.capacity
    if capacity is None or drawing.spec is None or (capacity.lo is None and capacity.hi is None):
        return drawing
    spec = drawing.spec
    axis: Mapping[str, Any] = spec["layout"]["xaxis"]
    log = axis["type"] == "log"
    left, right = (10**edge if log else edge for edge in axis["range"])
    low = left if capacity.lo is None else capacity.lo
    high = right if capacity.hi is None else capacity.hi
    if not left <= low < high <= right:
        return drawing
    band: Spec = {
        "type": "rect",
        "layer": "below",
        "x0": low,
        "x1": high,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "fillcolor": "@s4/0.16",
        "line": {"width": 0},
    }
    middle = math.sqrt(low * high) if log else (low + high) / 2
    words: Spec = {
        "x": math.log10(middle) if log else middle,
        "y": 0.99,
        "yref": "paper",
        "yanchor": "top",
        "text": "SLO<br>capacity",
        "showarrow": False,
        "font": {"size": 10, "color": "@s4"},
    }
    changed = spec["layout"] | {
        "shapes": [*spec["layout"]["shapes"], band],
        "annotations": [*spec["layout"]["annotations"], words],
    }
    return replace(drawing, spec=spec | {"layout": changed})
