"""Measures how often intervals hold the truth, for every candidate method, before any of them is trusted.

    python -m benchmarks.coverage_study --seed 1 [--replications 600] [--figures p95 goodput] [--systems M/M/1] …

Prints one JSON line per cell and method: figure, load, k, method, coverage (among printed; null where none is),
printed_share, mean_width (upper less lower bound, in units of the truth), and system, n (attempts a run), planned_n,
replications. "as printed" is what tfbench shows. Nominal coverage is 0.95, LoadGen's 0.99. Exits 1 where what is
printed of five repeats or more, at the planned n, falls short of its floors (`shortfalls`), and says so on stderr.
"""

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage_cells import (
    ENGINE,
    FIGURES,
    GAPS,
    LOADS,
    OTHERS,
    SYSTEMS,
    Case,
    Cell,
    case,
    cells_at,
    process_cells,
)
from benchmarks.coverage_engine import PILOTS, SLOWER, TAPES, read, write, write_pilot
from benchmarks.coverage_methods import AS_PRINTED, PAIRED, Bounds
from benchmarks.coverage_processes import asked

KS = (1, 3, 5, 10)
PROCESSES = 2
PART = 125  # replications in one piece of work
LEAST_COVERAGE, LEAST_PRINTED = 0.93, 0.95  # from MANY repeats on, at the planned n
LEAST_PRINTED_OF_OTHERS = 0.90
MANY = 5
MORE = {"goodput": 2, "cost per token": 2, "p95 ratio": 2}  # times as many replications
ATTEMPTS = 6_000_000  # a run's n times the replications; of long runs there are fewer
LEAST_REPLICATIONS = 200


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
    replications *= MORE.get(cell.figure, 1) * (2 if cell.system == ENGINE else 1)
    if (cell.system, cell.figure, cell.n) in asked():
        replications //= 2  # several candidates each, and many cells
        ks = [k for k in ks if k > 1]  # what one run can't know is in the cells of queues
    elif cell.system != ENGINE:  # whose runs are recorded once
        n = cell.n * (GAPS if cell.figure.startswith("gap") else 1)
        replications = min(replications, max(LEAST_REPLICATIONS, ATTEMPTS // n))
    name = zlib.crc32(f"{cell.system} {cell.figure} {cell.load} {cell.n}".encode())
    for i, first in enumerate(range(0, replications, PART)):
        yield Part(cell, tuple(ks), min(PART, replications - first), (seed, name, i))


def measure(part: Part, asked: Case, only: Sequence[str] = ()) -> Tallies:
    """Draws the replications and counts; runs of a smaller K are the first of the same draw. `only`: these methods."""
    rng = np.random.default_rng(part.seed)
    tallies: Tallies = {}
    for runs in asked.draws(rng, max(part.ks), part.replications):
        for k in part.ks:
            for name, method in asked.methods(k).items():
                if not only or name in only:
                    tallies.setdefault((k, name), Tally()).count(method(runs[:k]), asked.truth)
    return tallies


def lines(cell: Cell, tallies: Tallies) -> Iterator[dict[str, Any]]:
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


def shortfalls(rows: Iterable[dict[str, Any]]) -> list[str]:
    """What of 5 runs or more, at the planned n, covers less than 0.93 or is printed in less than 95 %, one line each.

    Of other processes than queues in steady state 90 % printed are enough, and only where they are to be.

    A floor is missed by more than three standard errors of that many replications: by less, chance alone may do it.
    """
    found = []
    for row in rows:
        if row["method"] not in (AS_PRINTED, PAIRED) or row["k"] < MANY or row["n"] != row["planned_n"]:
            continue
        printed, replications = row["printed_share"], row["replications"]
        other = asked().get((row["system"], row["figure"], row["n"]))
        place = "" if other else f" at load {row['load']}"
        cell = f"{row['figure']} of {row['system']}{place}, K = {row['k']}"
        least = LEAST_PRINTED if other is None else LEAST_PRINTED_OF_OTHERS if other.shown else 0.0
        if printed < _floor(least, replications):
            found.append(f"{cell}: printed in {printed:.3f}, floor {least}")
        holds = other is None or other.held
        if holds and row["coverage"] is not None and row["coverage"] < _floor(LEAST_COVERAGE, printed * replications):
            found.append(f"{cell}: covers {row['coverage']:.3f}, floor {LEAST_COVERAGE}")
    return found


def _floor(share: float, n: float) -> float:
    return share - 3.0 * math.sqrt(share * (1.0 - share) / n)


def record_tapes(pool: Pool, folder: Path, seed: int, loads: Sequence[float]) -> None:
    """The reference engine's tapes, and the pilots that its plans are made from; what is there already stays."""
    pilots = [(folder, load, slower, i) for load in loads for slower in (1.0, SLOWER) for i in range(PILOTS[load])]
    tapes = [(folder, seed, load, i) for load in loads for i in range(TAPES[load])]
    waits = [pool.starmap_async(write, tapes, chunksize=1), pool.starmap_async(write_pilot, pilots, chunksize=1)]
    for one in waits:
        one.get()


def study(
    pool: Pool, cells: Iterable[Cell], replications: int, seed: int, folder: Path
) -> Iterator[tuple[Cell, Tallies]]:
    """Each cell when the last of its parts is done; the reference engine's tapes are in `folder`."""
    work = [part for cell in cells for part in parts(cell, replications, seed)]
    # The heaviest first leaves neither process idle at the end.
    work.sort(key=lambda part: (part.cell.system != ENGINE, -part.cell.n * part.replications))
    left = Counter(part.cell for part in work)
    found: dict[Cell, Tallies] = {}
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
    parser.add_argument("--replications", type=int, default=600)
    parser.add_argument("--figures", nargs="+", default=FIGURES, choices=FIGURES)
    parser.add_argument("--systems", nargs="+", default=(*SYSTEMS, OTHERS), choices=(*SYSTEMS, OTHERS))
    parser.add_argument("--loads", nargs="+", type=float, default=LOADS, choices=LOADS)
    parser.add_argument("--scales", nargs="+", type=float, default=[1.0], help="of the planned n")
    parser.add_argument("--tapes", type=Path, help="a folder that keeps the reference engine's tapes for further calls")
    arguments = parser.parse_args()
    chosen = {name: getattr(arguments, name) for name in ("systems", "figures", "loads")}
    chosen["systems"] = [one for one in chosen["systems"] if one != OTHERS]
    rows = []
    with tempfile.TemporaryDirectory() as passing, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        folder = arguments.tapes or Path(passing)
        if ENGINE in arguments.systems:
            print("recording the reference engine", file=sys.stderr)
            record_tapes(pool, folder, arguments.seed, arguments.loads)
        cells = list(cells_at(arguments.scales, **chosen, folder=folder))
        cells += process_cells() if OTHERS in arguments.systems else ()
        measured = study(pool, cells, arguments.replications, arguments.seed, folder)
        for done, (cell, tallies) in enumerate(measured, 1):
            print(f"{done} of {len(cells)}: {cell.figure} of {cell.system} at load {cell.load}", file=sys.stderr)
            for row in lines(cell, tallies):
                print(json.dumps(row), flush=True)
                rows.append(row)
    short = shortfalls(rows)
    for one in short:
        print(f"falls short: {one}", file=sys.stderr)
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
