"""The summary a terminal shows: who was measured, a table with a row per load point, and at most five plain lines.

The table takes the widest form that fits. `verbose` adds what stands behind the figures.
"""

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.report.again import Again
from tfbench.report.conditions import conditions
from tfbench.report.curves import EVIDENCE_HEADS, capacity_lines, evidence_rows, operating_points
from tfbench.report.escape import plain
from tfbench.report.fmt import NOTHING, UNSETTLED, compact, shown
from tfbench.report.lines import Line, no_evidence, plain_lines, row_words
from tfbench.report.model import LoadPoint, ReportData
from tfbench.report.overview import (
    Column,
    caution_notes,
    columns,
    marks_notes,
    method_notes,
    runs_words,
    sample_notes,
    served_words,
    simulated_words,
    standing_notes,
    state,
    unfit_notes,
)
from tfbench.report.sections import slo_words

_LABEL = 16
_LEAD = 10
_GAP = 2
_COLOURS = {"Result": "bold", "Caution": "bold yellow", "Problem": "bold red", "Next": "bold", "Details": "dim"}


def summary(data: ReportData, width: int, *, verbose: bool = False, again: Again | None = None) -> Group:
    """The study's summary for a terminal `width` columns wide; `again`: how it could be made once more."""
    arms = _arm_names(data)
    lines: list[RenderableType] = [*_heading(data)]
    if arms:
        lines.append(_note(f"Arms: {'; '.join(f'{short} = {plain(arm)}' for arm, short in arms.items())}.", "dim"))
    lines.append(Text(""))
    lines += _evidence(data) if data.capacity is not None else _figures(data, width, arms)
    lines.append(Text(""))
    for line in plain_lines(data, again):
        for i, part in enumerate(_wrapped(line, width - _LEAD)):
            text = Text((line.lead if i == 0 else "").ljust(_LEAD), style=_COLOURS[line.lead], no_wrap=True)
            lines.append(text.append(part, style="dim" if line.lead == "Details" else "not bold default"))
    if verbose:
        lines += _behind(data, width, arms)
    return Group(*lines)


def print_summary(
    data: ReportData,
    file: IO[str] | None = None,
    width: int | None = None,
    *,
    verbose: bool = False,
    again: Again | None = None,
) -> None:
    """Prints the summary to `file` (stdout), as wide as its terminal, or 100 columns where that isn't known."""
    stream = file if file is not None else sys.stdout
    console = Console(file=stream, width=width or (None if stream.isatty() else 100), highlight=False, soft_wrap=False)
    told = summary(data, console.width, verbose=verbose, again=again)
    for one in told.renderables:
        # What has its own line breaks keeps them; a command is broken by the terminal alone, so that it can be pasted.
        console.print(one, soft_wrap=isinstance(one, Text) and bool(one.no_wrap))


def _wrapped(line: Line, width: int) -> list[str]:
    if line.lead in ("Next", "Details"):
        return [line.text]
    return textwrap.wrap(line.text, max(width, 20), break_on_hyphens=False) or [""]


def _heading(data: ReportData) -> Iterator[Text]:
    """What was measured and which study holds it; the SLO and how many runs there are."""
    study = data.study
    head = Text(plain(study.name, 48), style="bold")
    head.append(f"  {system_words(data)}", style="not bold")
    head.append(f"  study {plain(study.study_id, 40)}", style="dim")
    yield head
    quality = "" if study.judged else " (quality not judged)"
    yield Text(f"SLO: {slo_words(data)}{quality}.  {runs_words(data)}.", style="dim")
    if data.simulated:
        yield Text(simulated_words(data), style="bold magenta")


def system_words(data: ReportData) -> str:
    """`llama-3.1-8b on vllm 0.33, 1 x H100`."""
    model, engine, topology = (data.study.section(name) for name in ("model", "engine", "topology"))
    words = plain(model.get("name") or "model not named", 48)
    served_by = " ".join(plain(engine[key], 24) for key in ("name", "version") if engine.get(key))
    if on := served_by or plain(data.study.section("endpoint").get("adapter") or "", 24):
        words += f" on {on}"
    if topology.get("gpu"):
        words += f", {topology.get('gpus') or 1} x {plain(topology['gpu'], 24)}"
    return ", ".join(filter(None, (words, served_words(data))))


def _arm_names(data: ReportData) -> dict[str, str]:
    """Short names of the arms where those they have don't fit into a table, in which two might be cut alike."""
    if all(len(load.label) <= _LABEL for load in data.loads):
        return {}
    return {arm: f"arm {i}" for i, arm in enumerate(data.arms, start=1)}


def _place(load: LoadPoint, arms: Mapping[str, str]) -> str:
    return plain(replace(load, arm=arms.get(load.arm, load.arm) if load.arm is not None else None).label, _LABEL)


@dataclass(frozen=True)
class _Cell:
    """A cell: its value, its interval, and the colour of the value."""

    value: str
    interval: str = ""
    style: str = ""

    def lines(self, *, stacked: bool) -> list[Text]:
        """One line, or the interval beneath."""
        value, interval = Text(self.value, style=self.style), Text(self.interval, style="dim")
        if stacked or not self.interval:
            return [value, *([interval] if self.interval else [])]
        return [value.append(" ").append(interval)]


@dataclass(frozen=True)
class _Row:
    """A row: its cells, words that stand in place of those after the second, words behind all of them."""

    cells: tuple[_Cell, ...]
    instead: str = ""
    behind: str = ""


def summary_columns(data: ReportData) -> tuple[Column, ...]:
    """The columns of the terminal's table: those of the page but goodput, and cost only where a price is named."""
    priced = bool(data.study.section("cost").get("resources"))
    return tuple(
        one
        for one in columns(data)
        if one.figure != "goodput_requests_per_s" and (priced or not one.figure.startswith("cost"))
    )


def _figures(data: ReportData, width: int, arms: Mapping[str, str]) -> list[RenderableType]:
    """The table, in two parts where even its narrowest form is too wide, and what its marks mean."""
    wanted = summary_columns(data)
    for stacked in (False, True):
        if (lines := _table(data, wanted, arms, width, stacked=stacked)) is not None:
            break
    else:
        half = (len(wanted) + 1) // 2
        parts = [_table(data, part, arms, 10_000, stacked=True) or [] for part in (wanted[:half], wanted[half:])]
        lines = [*parts[0], Text(""), *parts[1]]
    told = [_legend(data, wanted)]
    return [*lines, *(_note(line, "dim") for line in told if line)]


def _table(
    data: ReportData, wanted: Sequence[Column], arms: Mapping[str, str], width: int, *, stacked: bool
) -> list[Text] | None:
    """The table's lines, or None where they don't fit into `width`."""
    unit = "users" if data.mode == "closed" else "req/s"
    heads = [("load", unit), *((one.head, plain(one.unit, 10)) for one in wanted)]
    rows = [_row(data, load, wanted, arms) for load in data.loads]
    widths = [max(map(len, head)) for head in heads]
    for row in rows:
        for i, cell in enumerate(row.cells[: 2 if row.instead else None]):
            widths[i] = max(widths[i], *(len(line) for line in cell.lines(stacked=stacked)))
    if sum(widths) + _GAP * (len(widths) - 1) > width:
        return None
    out = [_line([Text(head[i], style="bold") for head in heads], widths) for i in (0, 1)]
    after = sum(widths[:2]) + 2 * _GAP
    for row in rows:
        columns_of = [cell.lines(stacked=stacked) for cell in row.cells[: 2 if row.instead else None]]
        high = max(map(len, columns_of))
        lines = [
            _line([held[i] if i < len(held) else Text("") for held in columns_of], widths) for i in range(high)
        ]  # fmt: skip
        for i, part in enumerate(textwrap.wrap(row.instead, max(width - after, 24))):
            if i == len(lines):
                lines.append(Text(""))
            lines[i].append(" " * (after - len(lines[i]))).append(part, style="yellow")
        if row.behind:
            lines += [Text(" " * (widths[0] + _GAP)).append(part, style="yellow") for part in textwrap.wrap(
                row.behind, max(width - widths[0] - _GAP, 24))]  # fmt: skip
        out += lines
    return out


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text("", no_wrap=True)
    for i, cell in enumerate(cells):
        line.append(cell)
        if i < len(cells) - 1:
            line.append(" " * (widths[i] - len(cell) + _GAP))
    return line


def _row(data: ReportData, load: LoadPoint, wanted: Sequence[Column], arms: Mapping[str, str]) -> _Row:
    cells = [_Cell(_place(load, arms))]
    for column in wanted:
        text = compact(data.figure(load, column.figure))
        cells.append(_Cell(text.value, text.interval, "yellow" if text.mark else ""))
    of = state(data, load)
    behind = [of.status, "invalid: no evidence" if no_evidence(data, load) else ""]
    return _Row(tuple(cells), row_words(data, load), "; ".join(filter(None, behind)))


def _legend(data: ReportData, wanted: Sequence[Column]) -> str:
    """What the marks in the table mean, those that are in it."""
    drawn = [
        (figure, compact(figure))
        for load in data.loads
        for i, column in enumerate(wanted)
        if not (i and row_words(data, load))
        for figure in [data.figure(load, column.figure)]
    ]
    levels = {figure.level for figure, text in drawn if figure is not None and text.interval and figure.level}
    marks = "".join(text.value + text.interval for _, text in drawn)
    parts = [
        f"±, [ ]: {100 * max(levels):g} % intervals" if levels else "",
        f"{UNSETTLED}: too little measured" if UNSETTLED in marks else "",
        "≥ ≤: only a bound" if "≥" in marks or "≤" in marks else "",
        f"{NOTHING}: no value" if any(text.mark == NOTHING for _, text in drawn) else "",
    ]
    return "   ".join(filter(None, parts))


def _behind(data: ReportData, width: int, arms: Mapping[str, str]) -> list[RenderableType]:
    """What stands behind the figures: conditions, the operating curve, every reason, methods and n."""
    lines: list[RenderableType] = []
    if data.capacity is not None:
        lines += [Text(""), *_figures(data, width, arms)]
    lines += [*_curve(data, arms), Text("")]
    if told := conditions(data):
        lines.append(_note("; ".join(told) + ".", "dim"))
    lines += [_note(line, "red" if invalid else "yellow") for invalid, line in unfit_notes(data)]
    if data.capacity is not None:
        lines += [_note(line, "yellow") for line in capacity_lines(data.capacity)[1:]]
    lines += [_note(f"Caution: {line}", "yellow") for line in caution_notes(data)]
    for meaning, reasons in marks_notes(data):
        lines += [_note(f"{meaning[0]} {reason}", "yellow") for reason in reasons]
    lines += [_note(line, "dim") for line in (*sample_notes(data), *method_notes(data))]
    if standing := standing_notes(data):
        lines.append(_note("; ".join(standing) + ".", "bold"))
    return lines


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


def _evidence(data: ReportData) -> list[RenderableType]:
    """The evidence of a capacity search: every load probed, and what it says of the target."""
    assert data.capacity is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for head in EVIDENCE_HEADS:
        table.add_column(Text(head), justify="left" if head in ("target", "note") else "right", overflow="fold")
    colours = {"met": "green", "not met": "red"}
    for *cells, decision, note in evidence_rows(data.capacity):
        table.add_row(
            *map(Text, cells), Text(decision, style=colours.get(decision, "yellow")), Text(plain(note), "dim")
        )
    return [table]


def _note(line: str, style: str) -> Text:
    return Text(plain(line), style=style)
