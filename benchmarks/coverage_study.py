"""Measures how often intervals hold the truth, for every candidate method, before any of them is trusted.

    python benchmarks/coverage_study.py --seed 1 [--replications 1000] [--figures p95 goodput] [--systems M/M/1] …
    python benchmarks/coverage_study.py --write-docs FILE     # the tables of docs/statistics.md from a study's output
    python benchmarks/coverage_study.py --labels              # the entries of MEASURED in tfbench/stats/labels.py

Prints one JSON line per cell and method: figure, load, k, method, coverage (among printed; null where none is),
printed_share, mean_width (upper less lower bound, in units of the truth), and system, n (attempts a run), planned_n,
replications. "as printed" is what tfbench shows. Nominal coverage is 0.95, LoadGen's 0.99.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.coverage_cells import ENGINE, FIGURES, LOADS, SYSTEMS, Case, Cell, case, cells_at
from benchmarks.coverage_engine import TAPES, read, write
from benchmarks.coverage_methods import Bounds

KS = (1, 3, 5, 10)
PROCESSES = 2
PART = 125  # replications in one piece of work
MORE = {"goodput": 4, "cost per token": 4, "p95 ratio": 2}  # times as many replications


@dataclass(slots=True)
class Tally:
    """What one method did in the replications so far."""

    replications: int = 0
    printed: int = 0
    held: int = 0
    widths: float = 0.0

    def count(self, bounds: Bounds, truth: float) -> None:
        self.replications += 1
        if bounds is not None:
            self.printed += 1
            self.held += bounds[0] <= truth <= bounds[1]
            self.widths += (bounds[1] - bounds[0]) / truth

    def add(self, other: "Tally") -> None:
        self.replications += other.replications
        self.printed += other.printed
        self.held += other.held
        self.widths += other.widths


Tallies = dict[tuple[int, str], Tally]


@dataclass(frozen=True, slots=True)
class Part:
    """Some replications of a cell."""

    cell: Cell
    ks: tuple[int, ...]
    replications: int
    seed: tuple[int, ...]


def parts(cell: Cell, replications: int, seed: int, ks: Sequence[int] = KS) -> Iterator[Part]:
    """A cell's work in pieces, each with its own random stream; what is quickly drawn is drawn more often."""
    replications *= MORE.get(cell.figure, 1)
    name = zlib.crc32(f"{cell.system} {cell.figure} {cell.load} {cell.n}".encode())
    for i, first in enumerate(range(0, replications, PART)):
        yield Part(cell, tuple(ks), min(PART, replications - first), (seed, name, i))


def measure(part: Part, asked: Case, only: Sequence[str] = ()) -> Tallies:
    """Draws the replications and counts; runs of a smaller K are the first of the same draw. `only`: these methods."""
    rng = np.random.default_rng(part.seed)
    tallies: Tallies = {}
    for _ in range(part.replications):
        runs = asked.draw(rng, max(part.ks))
        for k in part.ks:
            for name, method in asked.methods(k).items():
                if not only or name in only:
                    tallies.setdefault((k, name), Tally()).count(method(runs[:k]), asked.truth)
    return tallies


def lines(cell: Cell, tallies: Tallies) -> Iterator[dict[str, object]]:
    """What is printed of a cell."""
    for (k, method), tally in sorted(tallies.items()):
        yield {
            "figure": cell.figure,
            "load": cell.load,
            "k": k,
            "method": method,
            "coverage": round(tally.held / tally.printed, 4) if tally.printed else None,
            "printed_share": round(tally.printed / tally.replications, 4),
            "mean_width": round(tally.widths / tally.printed, 6) if tally.printed else None,
            "system": cell.system,
            "n": cell.n,
            "planned_n": cell.planned,
            "replications": tally.replications,
        }


def study(cells: Iterable[Cell], replications: int, seed: int, folder: Path) -> Iterator[tuple[Cell, Tallies]]:
    """Each cell when the last of its parts is done, on two processes; tapes go to `folder`."""
    work = [part for cell in cells for part in parts(cell, replications, seed)]
    # The heaviest first leaves neither process idle at the end.
    work.sort(key=lambda part: (part.cell.system != ENGINE, -part.cell.n * part.replications))
    left = Counter(part.cell for part in work)
    found: dict[Cell, Tallies] = {}
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        loads = sorted({cell.load for cell in left if cell.system == ENGINE}, reverse=True)
        pool.starmap(write, [(folder, seed, load, i) for load in loads for i in range(TAPES[load])], chunksize=1)
        for cell, tallies in pool.imap_unordered(partial(_measured, folder), work):
            whole = found.setdefault(cell, {})
            for key, tally in tallies.items():
                whole.setdefault(key, Tally()).add(tally)
            left[cell] -= 1
            if not left[cell]:
                yield cell, found.pop(cell)


def _measured(folder: Path, part: Part) -> tuple[Cell, Tallies]:
    return part.cell, measure(part, _case(folder, part.seed[0], part.cell))


@cache
def _case(folder: Path, seed: int, cell: Cell) -> Case:
    return case(cell, read(folder, seed, cell.load) if cell.system == ENGINE else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--figures", nargs="+", default=FIGURES, choices=FIGURES)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--loads", nargs="+", type=float, default=LOADS, choices=LOADS)
    parser.add_argument("--scales", nargs="+", type=float, default=[1.0], help="of the planned n")
    parser.add_argument("--tapes", type=Path, help="a folder that keeps the reference engine's tapes for further calls")
    arguments = parser.parse_args()
    chosen = {name: getattr(arguments, name) for name in ("systems", "figures", "loads")}
    cells = list(cells_at(arguments.scales, **chosen))
    with tempfile.TemporaryDirectory() as passing:
        folder = arguments.tapes or Path(passing)
        for done, (cell, tallies) in enumerate(study(cells, arguments.replications, arguments.seed, folder), 1):
            print(f"{done} of {len(cells)}: {cell.figure} of {cell.system} at load {cell.load}", file=sys.stderr)
            for line in lines(cell, tallies):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
