"""What a gate leaves for machines and people: verdict.json, JUnit XML, a Markdown summary, benchmark JSON."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tfbench.core.errors import StorageError
from tfbench.core.jsonio import dump_text, finite
from tfbench.metrics import FIGURES
from tfbench.report.escape import plain
from tfbench.report.fmt import NOTHING, number
from tfbench.verdict.gate_document import (
    GateArm,
    GateResult,
    GateRow,
    Judged,
    Value,
    more_repeats,
    row_words,
    samples_text,
)
from tfbench.verdict.words import bounds_text, effect_text

MARKS = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️", "WATCHED": "👀"}
_SUITE = "tfbench gate"


def verdict_document(result: GateResult) -> dict[str, Any]:
    """The result as plain JSON values, as docs/verdict.schema.json describes it."""
    document: dict[str, Any] = finite(asdict(result))
    return document


def junit_xml(result: GateResult) -> str:
    """A test suite with a case per row, one for the runs' fitness, and one per load whose stability failed.

    An INCONCLUSIVE row is a failure where the policy says so, else skipped, and so is a FAIL that new runs didn't
    confirm; an INVALID measurement is an error.
    """
    cases: list[tuple[str, str | None, str]] = []
    invalid = result.verdict == "INVALID"
    cases.append(("measurement", "error" if invalid else None, "; ".join(result.reasons) if invalid else ""))
    undecided = "failure" if result.exit_code == 1 and result.verdict == "INCONCLUSIVE" else "skipped"
    stands = result.verdict == "FAIL"
    tags = {"PASS": None, "FAIL": "failure" if stands else undecided, "INCONCLUSIVE": undecided, "WATCHED": "skipped"}
    for load in result.loads:
        if load.candidate_worse:
            told = (
                f"candidate unstable in {load.candidate_unstable} of {load.candidate_runs} runs,"
                f" base in {load.base_unstable} of {load.base_runs}"
            )
            cases.append((f"stability at load {load.load}", tags["FAIL"], told + _unconfirmed(result)))
    for row in result.rows:
        words = row_words(row) + (_unconfirmed(result) if row.verdict == "FAIL" else "")
        cases.append((row.name + " (guard)" * row.guard, tags[row.verdict], words))
    count = {tag: str(sum(kind == tag for _, kind, _ in cases)) for tag in ("failure", "error", "skipped")}
    totals = {"tests": str(len(cases)), "failures": count["failure"], "errors": count["error"]}
    named = {"name": _SUITE + _simulated_mark(result)}
    root = ElementTree.Element("testsuites", named | totals)
    suite = ElementTree.SubElement(root, "testsuite", named | totals | {"skipped": count["skipped"]})
    for name, tag, words in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=named["name"], name=plain(name))
        if tag is not None:
            ElementTree.SubElement(case, tag, message=plain(words))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _simulated_mark(result: GateResult) -> str:
    return " (SIMULATED)" if result.base.simulated or result.candidate.simulated else ""


def _unconfirmed(result: GateResult) -> str:
    return "" if result.verdict == "FAIL" else "; not confirmed by new runs"


def step_summary(result: GateResult) -> str:
    """The verdict in Markdown: reasons, a table of rows worst first, what was left out."""
    base, candidate = result.base, result.candidate
    lines = [
        f"## {MARKS[result.verdict]} tfbench gate: {result.verdict}",
        "",
        f"Base **{_md(base.name)}** ({_study(base)}), candidate **{_md(candidate.name)}**"
        f" ({_study(candidate)}). A difference is {_md(result.attribution)}.",
        "",
        *(f"- {_md(reason)}" for reason in result.reasons),
    ]
    if result.further_repeats is not None:
        lines += ["", f"About {more_repeats(result.further_repeats)} of both would decide."]
    lines += ["", *_table(result.rows, result.policy.level)]
    if result.confirmation is not None:
        lines += ["", *_confirmation(result.confirmation)]
    left_out = [why for load in result.loads for why in load.left_out]
    notes = [*result.notes, *(f"left out: {why}" for why in left_out)]
    lines += ["", *(f"- {_md(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _study(side: GateArm) -> str:
    return _md(side.study_id if side.arm is None else f"{side.study_id}:{side.arm}")


def _table(rows: Sequence[GateRow], level: float) -> list[str]:
    if not rows:
        return ["No row could be judged."]
    head = ["", "figure", "bucket", "load", "base", "candidate", "n (n_eff)", "effect"]
    head += [f"bounds ({100 * level:g} % each)", "limit"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [
            MARKS[row.verdict],
            row.figure + (" (guard)" if row.guard else " (critical)" if row.critical else ""),
            NOTHING if row.bucket is None else f"{row.bucket_by} {row.bucket}",
            row.load,
            _value(row.base, row.unit),
            _value(row.candidate, row.unit),
            samples_text(row.base, row.candidate),
            NOTHING if row.blank else effect_text(row.effect, row.scale, row.unit),
            bounds_text(row.lo, row.hi, row.scale, row.unit) or NOTHING,
            effect_text(row.limit, row.scale, row.unit),
        ]
        lines.append(f"| {' | '.join(_md(cell) for cell in cells)} |")
    return lines


def _confirmation(again: Judged) -> list[str]:
    return [f"Run again at {100 * again.level:g} %: **{again.verdict}**", *(f"- {_md(one)}" for one in again.reasons)]


def _value(value: Value, unit: str) -> str:
    if value.value is None:
        return NOTHING
    return f"{number(value.value * 100)} %" if unit == "1" else f"{number(value.value)} {unit}"


def _md(text: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line."""
    line = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line)


def smaller_is_better(result: GateResult) -> list[dict[str, Any]]:
    """The candidate's figures as github-action-benchmark's customSmallerIsBetter takes them.

    What is better larger is turned over: shares to their rest, rates to the time one takes. What has no finite value
    is left out: the format has no null.
    """
    entries = []
    listed = {row.name for row in result.rows if not row.guard}
    for row in result.rows:
        if row.guard and row.name in listed:
            continue  # the same figure once more, under its other margin
        name, unit, turn = row.name, row.unit, _same
        if row.direction == "higher":
            fraction = FIGURES[row.figure].kind == "fraction"
            name = f"1 − {row.name}" if fraction else f"1 ÷ {row.name}"
            unit = unit if fraction else "/".join(reversed(unit.split("/")))
            turn = _rest if fraction else _inverse
        numbers = [None if x is None else turn(x) for x in (row.candidate.value, row.candidate.lo, row.candidate.hi)]
        if numbers[0] is None:
            continue
        name += _simulated_mark(result)  # a series of its own
        entry: dict[str, Any] = {"name": name, "unit": unit, "value": numbers[0], "extra": row_words(row)}
        if numbers[1] is not None and numbers[2] is not None:
            entry["range"] = f"± {abs(numbers[2] - numbers[1]) / 2:.3g}"
        entries.append(entry)
    return entries


def _same(x: float) -> float | None:
    return x


def _rest(x: float) -> float | None:
    return 1.0 - x


def _inverse(x: float) -> float | None:
    return 1.0 / x if x > 0.0 else None


FILES: dict[str, Callable[[GateResult], str]] = {
    "verdict.json": lambda result: dump_text(verdict_document(result), indent=True) + "\n",
    "junit.xml": junit_xml,
    "summary.md": step_summary,
    "benchmark.json": lambda result: dump_text(smaller_is_better(result), indent=True) + "\n",
}
"""What `--out DIR` holds."""


def write_gate(result: GateResult, folder: Path) -> None:
    """Writes `FILES` into `folder`, which is made in one that is there. Raises StorageError when that can't be done."""
    try:
        folder.mkdir(exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text(result), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder}: can't write the verdict: {error.strerror}; name another with --out") from error


def append_summary(result: GateResult, file: Path) -> None:
    """Adds the Markdown summary to a CI step's file. Raises StorageError when that can't be done."""
    try:
        with file.open("a", encoding="utf-8") as out:
            out.write(step_summary(result) + "\n")
    except OSError as error:
        raise StorageError(f"{file}: can't add the summary: {error.strerror}; unset GITHUB_STEP_SUMMARY") from error
