"""The self-contained HTML report: one file, no network, all text from outside kept text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfbench.core.jsonio import dump_text
from tfbench.report.conditions import conditions
from tfbench.report.curves import EVIDENCE_HEADS, capacity_lines, evidence_rows
from tfbench.report.lines import plain_lines, requests_words
from tfbench.report.model import Definition, Figure, ReportData
from tfbench.report.naming import figure_words, outcome_words
from tfbench.report.overview import (
    caution_notes,
    columns,
    headline,
    marks_notes,
    method_notes,
    served_words,
    simulated_words,
    standing_notes,
    state,
    unfinished,
    unfit_notes,
)
from tfbench.report.page import Plotly, render_page, write_page
from tfbench.report.sections import best, sections, slo_words
from tfbench.report.share_drawings import outcome_table
from tfbench.report.validity import signal_table


def html_report(data: ReportData, plotly: Plotly = "inline") -> str:
    """The report as one HTML document."""
    parts = sections(data)
    return render_page(
        "report.html.j2",
        {d.key: d.spec for part in parts for d in part.drawings if d.spec is not None},
        plotly=plotly,
        data=data,
        study=data.study,
        sections=parts,
        columns=columns(data),
        states={load: state(data, load) for load in data.loads},
        headline=headline(data),
        requests=requests_words(data),
        told=[line for line in plain_lines(data) if line.lead in ("Result", "Problem")],
        outcome_words=outcome_words,
        figure_words=figure_words,
        capacity=capacity_lines(data.capacity) if data.capacity is not None else [],
        evidence_heads=EVIDENCE_HEADS,
        evidence=evidence_rows(data.capacity) if data.capacity is not None else [],
        bests=best(data),
        simulated=simulated_words(data),
        served=served_words(data),
        unfinished=unfinished(data),
        slo=slo_words(data),
        notes=(*(f"Caution: {line}" for line in caution_notes(data)), *standing_notes(data)),
        conditions=conditions(data),
        marks=marks_notes(data),
        methods=method_notes(data),
        unfit=unfit_notes(data),
        signals=signal_table(data),
        outcomes=outcome_table(data),
        figures=by_name(data),
        definitions=families(data.definitions),
        manifest_json=dump_text(data.study.manifest, indent=True),
        observed=sorted({dump_text(run.observed, indent=True) for run in data.runs if run.observed}),
    )


def write_html(data: ReportData, path: Path, plotly: Plotly = "inline") -> Path:
    """Writes the report to `path`. Raises StorageError when it can't be written."""
    return write_page(html_report(data, plotly), path, plotly)


def families(definitions: Sequence[Definition]) -> list[Definition]:
    """Definitions with those that differ in their quantile only told once, as pNN."""
    told = [
        replace(d, name=re.sub(r"_p[0-9]+_", "_pNN_", d.name), words=re.sub(r"^P[0-9]+ of ", "PNN of ", d.words))
        for d in definitions
    ]
    return list(dict.fromkeys(told))


def by_name(data: ReportData) -> list[tuple[str, Any, list[Figure]]]:
    """Figures grouped by name in the frame's order: (name, its definition or None, rows by load)."""
    definitions = {definition.name: definition for definition in data.definitions}
    groups: dict[str, list[Figure]] = {}
    for figure in data.figures:
        groups.setdefault(figure.name, []).append(figure)
    return [
        (name, definitions.get(name), sorted(rows, key=lambda figure: figure.load.order))
        for name, rows in groups.items()
    ]
