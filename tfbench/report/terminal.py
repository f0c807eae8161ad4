"""The summary table a terminal shows, with rich. Takes the widest form that fits the width."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.report.conditions import conditions
from tfbench.report.curves import EVIDENCE_HEADS, capacity_lines, evidence_rows, operating_points
from tfbench.report.escape import plain
from tfbench.report.fmt import shown
from tfbench.report.model import LoadPoint, ReportData
from tfbench.report.overview import (
    Column,
    State,
    caution_notes,
    columns,
    headline,
    marks_notes,
    sample_notes,
    served_words,
    simulated_words,
    standing_notes,
    state,
    unfit_notes,
)
from tfbench.report.sections import slo_words

_LABEL = 16
REASONS = 4
"""At most so many reasons are told for one mark; the page tells all."""


def summary(data: ReportData, width: int) -> RenderableType:
    """The study's summary for a terminal `width` columns wide."""
    study = data.study
    model = plain(study.section("model").get("name") or "?", 48)
    engine = plain(study.section("engine").get("name") or study.section("endpoint").get("adapter") or "", 24)
    head = Text(plain(study.name, 48), style="bold")
    head.append(f"  {model}" + (f" on {engine}" if engine else ""), style="")
    if served := served_words(data):
        head.append(f", {served}")
    head.append(f"  study {plain(study.study_id, 40)}", style="dim")
    lines: list[RenderableType] = [head, Text(f"SLO: {slo_words(data)}. {headline(data)}.", style="dim")]
    if data.simulated:
        lines.append(Text(simulated_words(data), style="bold magenta"))
    if told := conditions(data):
        lines.append(_note("; ".join(told) + ".", "dim"))
    arms = _arm_names(data)
    if arms:
        lines.append(_note(f"Arms: {'; '.join(f'{short} = {plain(arm)}' for arm, short in arms.items())}.", "dim"))
    for table in _tables(data, width, arms):
        lines += [Text(""), table]
    lines += _curve(data, arms)
    lines += _capacity(data)
    lines += [Text(""), *_notes(data)]
    return Group(*lines)


def print_summary(data: ReportData, file: IO[str] | None = None, width: int | None = None) -> None:
    """Prints the summary to `file` (stdout), as wide as its terminal, or 100 columns where that isn't known."""
    stream = file if file is not None else sys.stdout
    console = Console(file=stream, width=width or (None if stream.isatty() else 100), highlight=False, soft_wrap=False)
    console.print(summary(data, console.width))


def _arm_names(data: ReportData) -> dict[str, str]:
    """Short names of the arms where those they have don't fit into a table, in which two might be cut alike."""
    if all(len(load.label) <= _LABEL for load in data.loads):
        return {}
    return {arm: f"arm {i}" for i, arm in enumerate(data.arms, start=1)}


def _place(load: LoadPoint, arms: Mapping[str, str]) -> str:
    return plain(replace(load, arm=arms.get(load.arm, load.arm) if load.arm is not None else None).label, _LABEL)


def _tables(data: ReportData, width: int, arms: Mapping[str, str]) -> list[RenderableType]:
    every = columns(data)
    measure = Console(width=1000)
    for comma, stacked in ((", ", False), (", ", True), (",", True)):
        table = _table(data, every, comma, stacked, arms)
        if measure.measure(table).maximum <= width:
            return [table]
    return [_table(data, part, ", ", True, arms) for part in (every[:4], every[4:])]


def _table(data: ReportData, wanted: Sequence[Column], comma: str, stacked: bool, arms: Mapping[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if stacked else 1, 0, 0), show_edge=False)
    unit = "users" if data.mode == "closed" else "req/s"
    table.add_column(Text(f"load\n{unit}"), no_wrap=True)
    for column in wanted:
        head = Text(f"{column.head}\n{plain(column.unit, 10)}", justify="right")
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(Text("state\nSIMULATED" if data.simulated else "state\n"), no_wrap=True)
    for load in data.loads:
        cells = [_cell(data, load, column, comma, stacked) for column in wanted]
        table.add_row(Text(_place(load, arms)), *cells, _state(state(data, load)))
    return table


def _cell(data: ReportData, load: LoadPoint, column: Column, comma: str, stacked: bool) -> Text:
    text = shown(data.figure(load, column.figure), comma)
    cell = Text(text.value, style="yellow" if text.mark else "")
    if text.interval:
        cell.append(("\n" if stacked else " ") + text.interval, style="dim")
    return cell


def _state(of: State) -> Text:
    colour = {True: "green", False: "bold red", None: "dim"}
    text = Text(of.validity.replace(" ", "\n"), style=colour[of.fit])
    text.append("\n")
    text.append(of.stability.replace(" ", "\n"), style="yellow" if of.steady is False else colour[of.steady])
    if not of.warm:
        text.append("\nwarm-up", style="yellow")
    return text


def _notes(data: ReportData) -> list[RenderableType]:
    out: list[RenderableType] = []
    out += [_note(line, "red" if invalid else "yellow") for invalid, line in unfit_notes(data)]
    out += [_note(f"Caution: {line}", "yellow") for line in caution_notes(data)]
    for meaning, reasons in marks_notes(data):
        out += [_note(f"{meaning[0]} {reason}", "yellow") for reason in reasons[:REASONS]]
        if len(reasons) > REASONS:
            out.append(_note(f"{meaning[0]} {len(reasons) - REASONS} more reasons are on the page (--html)", "yellow"))
    out += [_note(line, "dim") for line in sample_notes(data)]
    standing = standing_notes(data)
    if standing:
        out.append(_note("; ".join(standing) + ".", "bold"))
    return out


def _curve(data: ReportData, arms: Mapping[str, str]) -> list[RenderableType]:
    """The operating curve as a table: what the system gives in all, and each user of it."""
    points = [one for one in operating_points(data) if one.system.value is not None and one.user.value is not None]
    if len(points) < 2:
        return []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(Text("curve\nload"), no_wrap=True)
    table.add_column(Text("system\noutput tokens/s", justify="right"), justify="right", no_wrap=True)
    table.add_column(Text("per user\noutput tokens/s", justify="right"), justify="right", no_wrap=True)
    table.add_column(Text("\n"), no_wrap=True)
    for one in points:
        beaten = "" if one.dominated_by is None else f"dominated by {_place(one.dominated_by, arms)}"
        cells = [Text(shown(figure).line) for figure in (one.system, one.user)]
        table.add_row(Text(_place(one.load, arms)), *cells, Text(beaten, style="dim"))
    return [Text(""), table]


def _capacity(data: ReportData) -> list[RenderableType]:
    """The answer of a capacity search and its evidence."""
    if data.capacity is None:
        return []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for head in EVIDENCE_HEADS:
        table.add_column(Text(head), justify="left" if head in ("target", "note") else "right", overflow="fold")
    colours = {"met": "green", "not met": "red"}
    for *cells, decision, note in evidence_rows(data.capacity):
        table.add_row(
            *map(Text, cells), Text(decision, style=colours.get(decision, "yellow")), Text(plain(note), "dim")
        )
    first, *more = capacity_lines(data.capacity)
    return [Text(""), Text(plain(first), style="bold"), *(_note(line, "yellow") for line in more), Text(""), table]


def _note(line: str, style: str) -> Text:
    return Text(plain(line), style=style)
