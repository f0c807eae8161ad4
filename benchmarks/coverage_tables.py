"""Writes the tables of docs/statistics.md: python -m benchmarks.coverage_tables OUTPUT_OF_COVERAGE_STUDY"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coverage_methods import AS_PRINTED, MEAN_OF_RUNS, PAIRED
from benchmarks.coverage_processes import asked

DOCS = Path(__file__).resolve().parents[1] / "docs" / "statistics.md"
BEGIN, END = "<!-- coverage study: begin -->", "<!-- coverage study: end -->"
KS = (1, 3, 5, 10)

Row = dict[str, Any]


def tables(rows: Sequence[Row]) -> str:
    """All tables, from rows at the planned n."""
    rows = [row for row in rows if row["n"] == row["planned_n"]]
    others = [row for row in rows if (row["system"], row["figure"], row["n"]) in asked()]
    queues = [row for row in rows if row not in others]
    least = min(row["replications"] for row in queues)
    text = [*_printed(queues), "", *_candidates(queues), "", f"{least:,} replications a cell or more."]
    return "\n".join([*text, "", *processes(others)] if others else text)


def processes(rows: Sequence[Row]) -> Iterator[str]:
    """The table of what isn't a queue in steady state, beside Student's t on the logs of the runs' own quantiles."""
    least = min(row["replications"] for row in rows)
    yield f"What real serving shows besides, {least:,} replications a cell: coverage among printed / share printed, in"
    yield "percent. The last two columns: the geometric mean of the runs' own quantiles, unguarded. `answered` is the"
    yield "fraction that didn't fail; of bursts two bounds are shown only where enough were seen. A warm-up that leaks"
    yield "and repeats that follow one another no interval covers; they are told (above)."
    yield ""
    yield "| process | figure | n a run | K = 3 | K = 5 | K = 10 | t on log of runs, K = 5 | K = 10 |"
    yield "|---|---|---|---|---|---|---|---|"
    cells: dict[tuple[str, str, int], dict[tuple[str, int], Row]] = {}
    for row in rows:
        cells.setdefault((row["system"], row["figure"], row["n"]), {})[row["method"], row["k"]] = row
    shown = [(AS_PRINTED, 3), (AS_PRINTED, 5), (AS_PRINTED, 10), (MEAN_OF_RUNS, 5), (MEAN_OF_RUNS, 10)]
    for (system, figure, n), cell in sorted(cells.items()):
        yield f"| {system} | {figure} | {n:,} | " + " | ".join(_cell(cell.get(key)) for key in shown) + " |"


def _printed(rows: Sequence[Row]) -> Iterator[str]:
    yield "What is printed, at the n that a plan asks for: coverage among printed / share printed, in percent."
    yield ""
    yield "| figure | system | load | n a run | " + " | ".join(f"K = {k}" for k in KS) + " |"
    yield "|---|---|---|---|" + "---|" * len(KS)
    shown = [row for row in rows if row["method"] in (AS_PRINTED, PAIRED)]
    for figure in dict.fromkeys(row["figure"] for row in _in_order(shown)):
        of_figure = [row for row in _in_order(shown) if row["figure"] == figure]
        for system, load in dict.fromkeys((row["system"], row["load"]) for row in of_figure):
            cells = {row["k"]: row for row in of_figure if (row["system"], row["load"]) == (system, load)}
            n = next(iter(cells.values()))["n"]
            yield f"| {figure} | {system} | {load} | {n:,} | " + " | ".join(_cell(cells.get(k)) for k in KS) + " |"


def _candidates(rows: Sequence[Row]) -> Iterator[str]:
    yield "All candidates: the worst and the best coverage over systems and loads, in percent, of those printed."
    yield ""
    yield "| figure | method | " + " | ".join(f"K = {k}" for k in KS) + " |"
    yield "|---|---|" + "---|" * len(KS)
    for figure, method in dict.fromkeys((row["figure"], row["method"]) for row in _in_order(rows)):
        of_method = [row for row in rows if (row["figure"], row["method"]) == (figure, method)]
        yield f"| {figure} | {method} | " + " | ".join(_range(of_method, k) for k in KS) + " |"


def _in_order(rows: Sequence[Row]) -> list[Row]:
    order = {"p50": 0, "p95": 1, "p99": 2, "p95 ratio": 9}
    return sorted(rows, key=lambda row: (order.get(row["figure"], 5), row["figure"], row["load"], row["system"]))


def _cell(row: Row | None) -> str:
    if row is None or row["coverage"] is None:
        return "–"
    return f"{100 * row['coverage']:.1f} / {100 * row['printed_share']:.0f}"


def _range(rows: Sequence[Row], k: int) -> str:
    held = [100 * row["coverage"] for row in rows if row["k"] == k and row["coverage"] is not None]
    if not held:
        return "–"
    return f"{min(held):.0f}–{max(held):.0f}" if len(held) > 1 else f"{held[0]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("study", type=Path, nargs="+")
    lines = [line for path in parser.parse_args().study for line in path.read_text(encoding="utf-8").splitlines()]
    text = DOCS.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    DOCS.write_text(f"{head}{BEGIN}\n{tables([json.loads(line) for line in lines])}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
