"""The self-contained HTML report: one file, no network, all text from outside kept text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tfbench.core.errors import StorageError
from tfbench.core.jsonio import dump_text
from tfbench.core.resources import data_dir
from tfbench.report.conditions import conditions
from tfbench.report.curves import EVIDENCE_HEADS, capacity_lines, evidence_rows
from tfbench.report.escape import csp_hash, harmless, plain, script_json
from tfbench.report.fmt import NOTHING, number, shown, unit_words
from tfbench.report.model import Definition, Figure, ReportData
from tfbench.report.overview import (
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
from tfbench.report.sections import best, sections, slo_words
from tfbench.report.share_drawings import outcome_table, share
from tfbench.report.theme import THEMES
from tfbench.report.validity import signal_table

HINTS = (
    "script-src {hashes}",
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
)
"""Plotly styles its SVG inline and exports images through blob: and data:; nothing else is allowed."""


def html_report(data: ReportData) -> str:
    """The report as one HTML document (about 5 MB, nearly all of it plotly.js)."""
    from plotly.offline import get_plotlyjs

    folder = data_dir("reports")
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"number": number, "shown": shown, "unit": unit_words, "when": when, "plain": plain, "share": share}
    plotly = get_plotlyjs()
    page_script = (folder / "report.js").read_text(encoding="utf-8")
    parts = sections(data)
    specs = {d.key: d.spec for part in parts for d in part.drawings if d.spec is not None}
    hashes = " ".join(csp_hash(script) for script in (plotly, page_script))
    return env.get_template("report.html.j2").render(
        csp="; ".join(HINTS).format(hashes=hashes),
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        plotly=Markup(plotly),  # noqa: S704
        page_script=Markup(page_script),  # noqa: S704
        drawings_json=Markup(script_json({"drawings": specs, "themes": THEMES})),  # noqa: S704
        data=data,
        study=data.study,
        sections=parts,
        columns=columns(data),
        states={load: state(data, load) for load in data.loads},
        headline=headline(data),
        capacity=capacity_lines(data.capacity) if data.capacity is not None else [],
        evidence_heads=EVIDENCE_HEADS,
        evidence=evidence_rows(data.capacity) if data.capacity is not None else [],
        bests=best(data),
        simulated=simulated_words(data),
        served=served_words(data),
        unfinished=unfinished(data),
        slo=slo_words(data),
        notes=standing_notes(data),
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
        nothing=NOTHING,
    )


def write_html(data: ReportData, path: Path) -> Path:
    """Writes the report to `path`. Raises StorageError when it can't be written."""
    text = html_report(data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: can't write the report: {error.strerror}; name another with --html") from error
    return path


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


def when(ns: int | None) -> str:
    """A client time as UTC text, to the second."""
    return NOTHING if ns is None else datetime.fromtimestamp(ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
