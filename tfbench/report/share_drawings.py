"""Distributions per load point, and outcomes as stacked bars."""

from collections import Counter
from collections.abc import Sequence

from tfbench.core.kinds import Outcome, Phase
from tfbench.report.drawing import DASHES, Drawing, Spec, layout, line_at, log_axis, nothing_drawn
from tfbench.report.escape import label
from tfbench.report.fmt import number, per_load, repeats
from tfbench.report.judged import withheld_at
from tfbench.report.model import Cdf, LoadPoint, ReportData
from tfbench.report.naming import outcome_words
from tfbench.report.theme import PATTERNS, STEPS, step

FLOOR_MS = 1e-3
"""Gaps under a microsecond are drawn here: a logarithmic axis has no zero."""


def cdf_drawing(
    data: ReportData,
    metric: str,
    title: str,
    lead: str,
    *,
    limits: Sequence[tuple[float, str]] = (),
    n_words: str = "attempts",
) -> Drawing:
    """One step curve per load point; failures are mass at infinity, so such a curve stops below 1."""
    unstable = {load for load in data.loads if withheld_at(data.runs_at(load))}
    curves = [cdf for cdf in data.cdfs if cdf.metric == metric]
    drawn = [cdf for cdf in curves if cdf.load not in unstable]
    notes = []
    withheld = [cdf.load.label for cdf in curves if cdf.load in unstable]
    if withheld:
        notes.append(
            f"Withheld at {', '.join(withheld)}: unstable, so the curve would move with the length of the run."
        )
    none = [load.label for load in data.loads if load not in {cdf.load for cdf in curves}]
    if none:
        notes.append(f"No value at {', '.join(none)}.")
    key = f"cdf-{metric}"
    if not drawn:
        unsteady = "unstable, so a curve would move with the length of the run" if withheld else None
        return Drawing(key, title, lead, nothing_drawn([unsteady or "no request has a value"]), (), None)
    never = [f"{share(cdf.n_inf / cdf.n)} at {cdf.load.label}" for cdf in drawn if cdf.n_inf]
    if never:
        notes.append(f"Never came (mass at infinity, the curve stops below 1): {', '.join(never)}.")
    if any(cdf.x[0] < FLOOR_MS for cdf in drawn):
        notes.append("Values under 0.001 ms are drawn at 0.001 ms.")
    low = max(FLOOR_MS, min(cdf.x[0] for cdf in drawn)) / 1.3
    high = max(FLOOR_MS, *(cdf.x[-1] for cdf in drawn)) * 1.6
    traces: list[Spec] = []
    order = {load: index for index, load in enumerate(data.loads)}
    for cdf in sorted(drawn, key=lambda cdf: cdf.load.order):
        index = order[cdf.load]
        role = step(index, len(order))
        traces += _curve(cdf, role, DASHES[index // STEPS % len(DASHES)], high, label(data.load_text(cdf.load)))
    spec = layout(
        {"title": {"text": label(f"{title}, ms (log scale)")}, **log_axis(low, high)},
        {"title": {"text": "share at or under"}, "range": [0, 1.02], "tickformat": ".0%"},
    )
    for limit, words in limits:
        if low < limit < high:
            shape, note = line_at(limit, words, log=True, vertical=True)
            spec["shapes"].append(shape)
            spec["annotations"].append(note)
    ks = [cdf.k for cdf in drawn]
    text = f"n = {per_load([(cdf.load, cdf.n) for cdf in drawn], n_words)}; {repeats(ks)}. "
    text += "Empirical distribution, pooled over runs; " + (
        "band: lowest to highest of the runs' own curves (a range, not a confidence interval)."
        if max(ks) > 1
        else "one run, so no band: see the quantiles' intervals in the figures table."
    )
    return Drawing(key, title, lead, text, tuple(notes), {"data": traces, "layout": spec})


def share(fraction: float) -> str:
    """A share in per cent."""
    return f"{number(fraction * 100)} %"


def _curve(cdf: Cdf, role: str, dash: str, high: float, name: str) -> list[Spec]:
    x = [max(value, FLOOR_MS) for value in cdf.x]
    group = cdf.load.label
    out: list[Spec] = []
    if cdf.lo is not None and cdf.hi is not None:
        for index, bound in enumerate((cdf.lo, cdf.hi)):
            out.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "legendgroup": label(group),
                    "name": name,
                    "x": [*x, high],
                    "y": [*bound, bound[-1]],
                    "line": {"width": 0, "shape": "hv"},
                    "hoverinfo": "skip",
                    "showlegend": False,
                }
                | ({"fill": "tonexty", "fillcolor": f"{role}/0.16"} if index else {})
            )
    out.append(
        {
            "type": "scatter",
            "mode": "lines",
            "legendgroup": label(group),
            "name": name,
            "x": [x[0], *x, high],
            "y": [0.0, *cdf.p, cdf.p[-1]],
            "line": {"color": role, "width": 2, "shape": "hv", "dash": dash},
            "hoverinfo": "text",
            "hovertext": [
                "",
                *(f"{name}<br>{share(p)} ≤ {number(value)} ms" for value, p in zip(cdf.x, cdf.p, strict=True)),
                f"{name}<br>{share(cdf.n_inf / cdf.n)} never came" if cdf.n_inf else name,
            ],
            "showlegend": True,
        }
    )
    return out


def outcome_table(data: ReportData, phase: Phase = Phase.MEASURE) -> list[tuple[LoadPoint, dict[str, int]]]:
    """Per load point, how many attempts of the phase ended with each outcome; every outcome is named."""
    out = []
    for load in data.loads:
        counts: Counter[str] = Counter({str(outcome): 0 for outcome in Outcome})
        for row in data.outcomes:
            if row.load == load and row.phase == phase:
                counts[row.outcome] += row.n
        out.append((load, dict(counts)))
    return out


def outcomes_drawing(data: ReportData) -> Drawing:
    """Stacked bars: the share of every outcome among the attempts scheduled in the window."""
    title, lead = "Outcomes", "How every attempt scheduled in the window ended, unsent ones included."
    table = [(load, counts, sum(counts.values())) for load, counts in outcome_table(data)]
    table = [row for row in table if row[2]]
    if not table:
        why = "Nothing to draw (n = 0): no attempt was scheduled in the window."
        return Drawing("outcomes", title, lead, why, (), None, True)
    names = list(dict.fromkeys(outcome for _, counts, _ in table for outcome in counts))
    places = [label(data.load_text(load)) for load, _, _ in table]
    traces: list[Spec] = []
    for outcome in names:
        counted = [counts.get(outcome, 0) for _, counts, _ in table]
        role = f"@{outcome}" if outcome in PATTERNS else "@muted"
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label(outcome_words(outcome)),
                "y": places,
                "x": [n / total for n, (_, _, total) in zip(counted, table, strict=True)],
                "marker": {
                    "color": role,
                    "line": {"color": "@panel", "width": 0.5},
                    "pattern": {
                        "shape": PATTERNS.get(outcome, ""),
                        "fillmode": "overlay",
                        "fgcolor": "@panel/0.55",
                        "size": 6,
                        "solidity": 0.25,
                    },
                },
                "hoverinfo": "text",
                "hovertext": [
                    f"{label(outcome_words(outcome))}: {n:,} of {total:,} ({share(n / total)})"
                    for n, (_, _, total) in zip(counted, table, strict=True)
                ],
                "textposition": "none",
                "showlegend": True,
            }
        )
    spec = layout(
        {"title": {"text": "share of attempts scheduled in the window"}, "range": [0, 1], "tickformat": ".0%"},
        {"type": "category", "autorange": "reversed"},
        barmode="stack",
        bargap=0.35,
        height=130 + 42 * len(table),
    )
    spec["legend"] |= {"traceorder": "normal"}
    runs = [len(data.runs_at(load)) for load, _, _ in table]
    text = (
        f"n = {per_load([(load, total) for load, _, total in table], 'attempts')}; {repeats(runs)}. "
        "Exact counts summed over all runs, INVALID ones too; the good fraction carries the interval."
    )
    return Drawing("outcomes", title, lead, text, (), {"data": traces, "layout": spec}, True)
