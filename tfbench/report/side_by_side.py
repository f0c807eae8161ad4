"""Comparisons, gates and their plans on a terminal."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.report.escape import plain
from tfbench.report.fmt import NOTHING, gathered, number
from tfbench.stats.plan import MOST_REPEATS
from tfbench.verdict.compare import CompareRow, Comparison
from tfbench.verdict.gate_document import GateResult, GateRow, more_repeats, samples_text
from tfbench.verdict.gate_plan import RANGE_LEVEL, GatePlan, PlanRow
from tfbench.verdict.words import bounds_text, effect_text

COLOURS = {
    **{"PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "yellow", "INVALID": "red", "WATCHED": "dim"},
    **{"worse": "bold red", "better": "green", "undecided": "dim", "no data": "dim"},
}
_Row = tuple[CompareRow | GateRow, str, str, str, list[str]]
"""A row, its mark, its figure's name, its effect, and what further columns say."""
WIDTH = 160
"""As wide as this where nobody's terminal says."""
MOST_ROWS = 60
"""So many rows are shown; --json has all."""


def print_comparison(found: Comparison, file: IO[str] | None = None, width: int | None = None) -> None:
    """The comparison: who, warnings, the table with what got worse first, then what got better, notes."""
    console = _console(file, width)
    lines: list[RenderableType] = [_sides(found.base, found.candidate)]
    lines.append(Text(f"A difference is {plain(found.attribution)}.", style="dim"))
    if not found.same_test:
        paths = ", ".join(str(one["path"]) for one in found.differences)
        lines.append(Text(f"NOT THE SAME TEST: {plain(paths)} differ.", style="bold yellow"))
    lines += [Text(plain(warning), style="bold red") for warning in found.warnings]
    lines.append(Text(counts_words(found.rows), style="bold"))
    told = [row for row in found.rows if is_told(row)]
    open_buckets = [row for row in found.rows if not is_told(row)]
    shown = told[:MOST_ROWS]
    rows: list[_Row] = [(row, row.says, row.figure, effect_words(row), []) for row in shown]
    nothing = Text("No load point is in both." if not found.loads else "No row is decided.")
    lines += [Text(""), _table(console, "95 % interval", rows) if rows else nothing]
    if len(told) > MOST_ROWS:
        lines.append(Text(f"{len(told) - MOST_ROWS} more rows are in --json", style="dim"))
    if open_buckets:
        leaning = sum(row.hidden_by is not None for row in open_buckets)
        hidden = f", {leaning} of them leaning worse where the figure over all, or the median, doesn't (!)"
        text = f"{len(open_buckets)} bucket rows that show nothing are in --json{hidden if leaning else ''}"
        lines.append(Text(text, style="dim"))
    if any(row.hidden_by for row in shown):
        lines.append(Text("! worse, or leaning so, while its median or all attempts together are not", style="yellow"))
    if any(not row.settled and row.says != "no data" for row in shown):
        lines.append(Text("? runs are too short for the figure: its effect is that of their samples", style="dim"))
    lines.append(Text("worse, better: at a false discovery rate of 5 % over the table", style="dim"))
    runs = [(one.load, one.paired, one.base_runs, one.candidate_runs) for one in found.loads]
    lines += [Text(f"K: {runs_words(runs)}", style="dim")] if runs else []
    lines += [Text(plain(note), style="dim") for note in found.notes]
    console.print(Group(*lines))


def print_gate(result: GateResult, file: IO[str] | None = None, width: int | None = None) -> None:
    """The verdict, its reasons, the rows worst first."""
    console = _console(file, width)
    head = Text(verdict_words(result), style=COLOURS[result.verdict])
    lines: list[RenderableType] = [head, _sides(result.base, result.candidate)]
    lines.append(Text(f"A difference is {plain(result.attribution)}.", style="dim"))
    lines += [Text(f"· {plain(reason)}") for reason in result.reasons]
    if result.further_repeats is not None:
        lines.append(Text(f"About {more_repeats(result.further_repeats)} of both would decide."))
    rows = [
        (row, row.verdict, row.figure + (" (guard)" if row.guard else " (critical)" if row.critical else ""),
         effect_words(row),
         [effect_text(row.limit, row.scale, row.unit)])
        for row in result.rows[:MOST_ROWS]
    ]  # fmt: skip
    lines += [Text(""), _table(console, "bounds", rows, "limit")] if rows else []
    if len(result.rows) > MOST_ROWS:
        lines.append(Text(f"{len(result.rows) - MOST_ROWS} more rows are in verdict.json", style="dim"))
    if result.confirmation is not None:
        again = result.confirmation
        lines.append(Text(f"Run again at {100 * again.level:g} %: {again.verdict}", style=COLOURS[again.verdict]))
        lines += [Text(f"· {plain(reason)}") for reason in again.reasons]
    runs = runs_words([(one.load, one.paired, one.base_runs, one.candidate_runs) for one in result.loads])
    lines.append(Text(f"Each bound holds with {100 * result.policy.level:g} %. K: {runs or 'no load'}", style="dim"))
    left_out = [f"left out: {why}" for load in result.loads for why in load.left_out]
    lines += [Text(plain(note), style="dim") for note in (*result.notes, *left_out)]
    console.print(Group(*lines))


def print_plan(plan: GatePlan, file: IO[str] | None = None, width: int | None = None) -> None:
    """What the gate takes: repeats over all, then row by row."""
    lines: list[RenderableType] = [Text(plain(_plan_head(plan)), style="bold")]
    lines += [Text(plain(told)) for told in _plan_range(plan)]
    lines += [Text(plain(note), style="dim") for note in plan.notes]
    table = _new_table("figure", "load", "sd of an effect", "repeats", "between", "attempts a run", "to settle it")
    for row in plan.rows:
        table.add_row(
            _named(plain(row.figure), row), Text(row.load), Text(number(row.sd)),
            Text(NOTHING if row.repeats is None else f"{row.repeats:,}"),
            Text(NOTHING if row.repeats_low is None else _between(row)),
            Text(NOTHING if row.attempts is None else f"{row.attempts:,}"),
            Text(NOTHING if row.attempts_needed is None else f"{row.attempts_needed:,}"),
        )  # fmt: skip
    lines += [Text(""), table]
    why: dict[str, list[str]] = {}
    for row in plan.rows:
        # The table and the first line already say which runs are too short.
        if row.reason and row.length_factor is None:
            why.setdefault(row.reason, []).append(f"{row.figure} at load {row.load}")
    for reason, names in why.items():
        lines.append(Text(plain(f"{', '.join(dict.fromkeys(names))}: {reason}"), style="yellow"))
    _console(file, width).print(Group(*lines))


def verdict_words(result: GateResult) -> str:
    """The verdict, and what the policy makes of an undecided one."""
    taken = result.verdict == "INCONCLUSIVE" and result.exit_code != 3
    return result.verdict + (
        f" (the policy takes it as a {'pass' if result.exit_code == 0 else 'fail'})" if taken else ""
    )


def is_told(row: CompareRow) -> bool:
    """Whether a row is shown: a bucket's only where it shows something."""
    return row.bucket is None or row.says in ("worse", "better")


def counts_words(rows: Sequence[CompareRow]) -> str:
    """`2 worse, 1 better, 5 undecided`."""
    count = Counter(row.says for row in rows)
    blank = f", {count['no data']} without data" if count["no data"] else ""
    return f"{count['worse']} worse, {count['better']} better, {count['undecided']} undecided{blank}"


def runs_words(loads: Sequence[tuple[str, bool, int, int]]) -> str:
    """`5 pairs of runs at load 5, load 10` from (load, paired, runs of the base, of the candidate)."""
    told = []
    for load, paired, base, candidate in loads:
        runs = f"{base} pair{'' if base == 1 else 's'} of runs" if paired else f"{base} and {candidate} runs"
        told.append((runs, f"load {plain(load)}"))
    return gathered(told)


def _plan_head(plan: GatePlan) -> str:
    if plan.length_factor is not None:
        longer = f" ({plan.longer})" if plan.longer else ""
        return f"No number of repeats promises a pass: make runs {plan.length_factor:g} times as long{longer}"
    if plan.repeats is None:
        return f"No number of repeats up to 1,000 lets equal arms pass with {100 * plan.power:g} %"
    return f"{plan.repeats} repeats of either arm: equal arms then pass with {100 * plan.power:g} %"


def _plan_range(plan: GatePlan) -> list[str]:
    """How far the pilot leaves the repeats open, in a line; none where nothing is known of it."""
    if plan.repeats_low is None:
        return []
    tell = f"as far as {plan.pilot} pilot {'pairs' if plan.paired else 'runs'} can tell ({100 * RANGE_LEVEL:g} %)"
    if plan.repeats_low == plan.repeats_high:
        return [f"{plan.repeats_low:,} whatever the noise is, {tell}"]
    return [f"{_repeats(plan.repeats_measured)} with the noise as measured; between {_between(plan)}, {tell}"]


def _between(one: GatePlan | PlanRow) -> str:
    """`6 and 31`."""
    return f"{_repeats(one.repeats_low)} and {_repeats(one.repeats_high)}"


def _repeats(count: int | None) -> str:
    return f"more than {MOST_REPEATS:,}" if count is None else f"{count:,}"


def _sides(base: Any, candidate: Any) -> Text:
    def side(one: Any) -> str:
        arm = getattr(one, "arm", None)
        return plain(one.name, 48) + f" ({plain(one.study_id, 40)}{'' if arm is None else ':' + plain(arm, 24)})"

    return Text(f"{side(base)} → {side(candidate)}")


def effect_words(row: CompareRow | GateRow) -> str:
    """The effect with its marks: ! under a figure that hides it, ? not settled."""
    if row.blank if isinstance(row, GateRow) else row.says == "no data":
        return NOTHING
    effect = effect_text(row.effect, row.scale, row.unit)
    return effect if isinstance(row, GateRow) else f"{effect}{'!' * bool(row.hidden_by)}{'?' * (not row.settled)}"


def _table(console: Console, bounds: str, rows: Sequence[_Row], *more: str) -> Table:
    """Rows of either kind; where they don't fit, values and n stand under the figure's name."""
    wide = _rows_table(bounds, rows, more, stacked=False)
    fits = Console(width=1000).measure(wide).maximum <= console.width
    return wide if fits else _rows_table(bounds, rows, more, stacked=True)


def _rows_table(bounds: str, rows: Sequence[_Row], more: Sequence[str], *, stacked: bool) -> Table:
    beside = [] if stacked else ["base → candidate", "n (n_eff)"]
    table = _new_table("", "figure", "load", *beside, "effect", bounds, *more)
    for row, mark, name, effect, further in rows:
        figure = _named(name, row)
        values = [values_words(row), samples_text(row.base, row.candidate)]
        if stacked:
            figure.append(f"\n  {', n '.join(values)}", style="dim")
        why = plain((row.reason or "").partition(";")[0], 40)
        interval = Text(bounds_text(row.lo, row.hi, row.scale, row.unit) or why, style="dim")
        table.add_row(
            Text(mark, style=COLOURS[mark]), figure, Text(row.load), *map(Text, [] if stacked else values),
            Text(effect), interval, *map(Text, further),
        )  # fmt: skip
    return table


def _named(name: str, row: CompareRow | GateRow | PlanRow) -> Text:
    """The figure, with its bucket on a line of its own."""
    figure = Text(name)
    if row.bucket is not None:
        figure.append(f"\n  {plain(row.bucket_by or '')} {plain(row.bucket, 32)}", style="dim")
    return figure


def values_words(row: CompareRow | GateRow) -> str:
    """`42.4 → 54.9 ms`."""
    scale, unit = (100.0, "%") if row.unit == "1" else (1.0, plain(row.unit, 16))
    base, candidate = (None if x.value is None else x.value * scale for x in (row.base, row.candidate))
    return f"{number(base)} → {number(candidate)} {unit}"


def _new_table(*heads: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in heads:
        left = head in ("", "figure", "load")
        table.add_column(head, justify="left" if left else "right", no_wrap=left)
    return table


def _console(file: IO[str] | None, width: int | None) -> Console:
    stream = file if file is not None else sys.stdout
    return Console(file=stream, width=width or (None if stream.isatty() else WIDTH), highlight=False)
