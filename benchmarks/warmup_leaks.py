"""How often a warm-up that leaks into the window is told, and how often one is where there is none.

    python -m benchmarks.warmup_leaks --seed 1 --studies 400

One JSON line per process, attempts a run and repeats: the share of studies in which a leak is told. Leaks double the
latencies at a run's start, fading over 5 % of it, or for all of its first 5 %.
"""

import argparse
import json
from collections.abc import Iterator

import numpy as np

from benchmarks.processes import (
    Process,
    drift,
    failing,
    hits,
    independent,
    leaking,
    lognormal,
    queue,
    stalls,
    ticks,
)
from tfbench.stats.warmup import find_leak

SHARE = 0.05


def fading(base: Process) -> Process:
    """Twice the latencies at the start, fading over 5 % of the run."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> "np.typing.NDArray[np.float64]":
        return base.draw(rng, runs, n) * (1.0 + np.exp(-np.arange(n) / (SHARE * n)))

    return Process(f"{base.name}, fading leak", draw, base.beyond)


def stepping(base: Process) -> Process:
    """Twice the latencies in the first 5 % of the run."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> "np.typing.NDArray[np.float64]":
        return base.draw(rng, runs, n) * np.where(np.arange(n) < SHARE * n, 2.0, 1.0)

    return Process(f"{base.name}, stepping leak", draw, base.beyond)


def cells() -> Iterator[tuple[Process, int, int]]:
    """(process, attempts a run, repeats)."""
    steady = (queue(0.8), queue(0.5), independent(), lognormal(0.05), ticks(0.5), stalls(0.6), hits(0.9, stretch=20))
    for process in (*steady, failing(0.5, 0.02, 20), drift(0.6)):
        for n, k in ((300, 5), (1200, 1), (1200, 3), (1200, 5), (1200, 10), (6000, 5)):
            yield process, n, k
    for process in (leaking(2.0, SHARE), stepping(lognormal(0.02)), fading(lognormal(0.05)), fading(queue(0.3))):
        for n, k in ((1200, 1), (1200, 3), (1200, 5), (1200, 10), (6000, 5)):
            yield process, n, k


def told(process: Process, n: int, k: int, studies: int, seed: int) -> float:
    """The share of studies in which a leak is told."""
    rng = np.random.default_rng([seed, n, k])
    return sum(bool(find_leak({"E2E": list(process.draw(rng, k, n))}).detected) for _ in range(studies)) / studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--studies", type=int, default=400)
    options = parser.parse_args()
    for process, n, k in cells():
        share = told(process, n, k, options.studies, options.seed)
        print(
            json.dumps({"process": process.name, "n": n, "k": k, "studies": options.studies, "told": share}), flush=True
        )


if __name__ == "__main__":
    main()
