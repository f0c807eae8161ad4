"""Measures the approximate methods for one and two runs on queues, and prints the labels made from it.

    python -m benchmarks.coverage_labels --seed 1 --replications 400

One JSON line per cell (service, figure, load, n, k, share printed with both bounds and their coverage, the same for one
bound alone, median width over value), then one per label: the entries of MEASURED in tfbench/stats/labels.py.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.queues import EXPONENTIAL, HEAVY, Service, limit, product_tail_quantile, queue
from tfbench.stats import labels as label_table
from tfbench.stats.combine import combine_chunk_quantile, combine_fraction, combine_quantile, combine_ratio
from tfbench.stats.interval import Interval
from tfbench.stats.quantile import Clusters
from tfbench.stats.ratio import CLUSTERED, RatioRun
from tfbench.stats.sample_size import queue_correlation_time

QUANTILES = (0.5, 0.95, 0.99)
FRACTIONS = (0.1, 0.5, 0.9, 0.99, 0.999)
PRINTED = 0.25
HISTORY = 150  # service times simulated before the window opens, so that departures enter it
SHORTEST = 2  # correlation times; nothing can be said of a system from a run shorter than its memory
ONLY_QUANTILES = 3000  # attempts a run; the others take too long beyond, and hold


@dataclass(frozen=True, slots=True)
class Cell:
    """Coverage of one figure at one load, n per run and K. `sides` counts, per bound given, how often it held."""

    service: str
    figure: str
    load: float
    n: int
    k: int
    replications: int
    printed_share: float
    coverage: float | None
    near_bound_share: float
    near_bound_coverage: float | None
    median_width: float | None


def quantile_case(
    p: float, load: float, n: int, k: int, service: Service = EXPONENTIAL
) -> tuple[float, Callable[[np.random.Generator], Interval]]:
    def draw(rng: np.random.Generator) -> Interval:
        return combine_quantile(list(queue(rng, k, n, load, service)[1]), p)

    return limit(p, load, service), draw


def gap_case(
    p: float, load: float, n: int, k: int, service: Service = EXPONENTIAL
) -> tuple[float, Callable[[np.random.Generator], Interval]]:
    """Gaps of 8 to a request: its response time scales them all, so they come in clusters and requests correlate."""

    def draw(rng: np.random.Generator) -> Interval:
        runs = []
        for response in queue(rng, k, n, load, service)[1]:
            noise = rng.exponential(1.0, (n, 8))
            runs.append(Clusters((response[:, None] * noise).ravel(), np.repeat(np.arange(n), 8)))
        return combine_chunk_quantile(runs, p)

    return product_tail_quantile(p, load, service), draw


def fraction_case(
    share: float, load: float, n: int, k: int, scored: bool, service: Service = EXPONENTIAL
) -> tuple[float, Callable[[np.random.Generator], Interval]]:
    def draw(rng: np.random.Generator) -> Interval:
        times = list(queue(rng, k, n, load, service)[1])
        edge = limit(share, load, service)
        return combine_fraction([t <= edge for t in times], score=[t / edge for t in times] if scored else None)

    return share, draw


def goodput_case(
    share: float, load: float, n: int, k: int, tokens: bool, service: Service = EXPONENTIAL
) -> tuple[float, Callable[[np.random.Generator], Interval]]:
    """Good departures per second, or cost per token of them (lognormal tokens), in a window of n expected arrivals."""
    window = n / load
    start = HISTORY / load
    mean_tokens = math.exp(0.5 * 0.8**2)

    def draw(rng: np.random.Generator) -> Interval:
        arrive, response = queue(rng, k, int(HISTORY + n + 6 * math.sqrt(n) + 20), load, service)
        runs = []
        for a, r in zip(arrive, response, strict=True):
            leave = a + r
            good = (leave >= start) & (leave < start + window) & (r <= limit(share, load, service))
            t_ns = (leave[good] * 1e9).astype(np.int64)
            amount = rng.lognormal(0.0, 0.8, len(t_ns)) if tokens else np.ones(len(t_ns))
            bounds = (int(start * 1e9), int((start + window) * 1e9) + 1)
            runs.append(RatioRun(*bounds, t_ns, None if tokens else amount, amount if tokens else None))
        return combine_ratio(runs)

    return (1.0 / (load * share * mean_tokens) if tokens else load * share), draw


def measure(
    figure: str,
    load: float,
    n: int,
    k: int,
    truth: float,
    draw: Callable[[np.random.Generator], Interval],
    *,
    seed: int,
    replications: int,
    service: Service = EXPONENTIAL,
) -> Cell:
    """Draws `replications` intervals and counts how often they hold `truth`."""
    rng = np.random.default_rng([seed, k, n, int(1000 * load), *figure.encode(), *service.name.encode()])
    both: list[bool] = []
    near: list[bool] = []
    widths: list[float] = []
    for _ in range(replications):
        got = draw(rng)
        if got.lo is not None and got.hi is not None and got.value:
            both.append(got.lo <= truth <= got.hi)
            widths.append((got.hi - got.lo) / got.value)
        elif got.lo is not None or got.hi is not None:
            near.append((got.lo is None or got.lo <= truth) and (got.hi is None or truth <= got.hi))
    return Cell(
        service=service.name,
        figure=figure,
        load=load,
        n=n,
        k=k,
        replications=replications,
        printed_share=len(both) / replications,
        coverage=_mean(both),
        near_bound_share=len(near) / replications,
        near_bound_coverage=_mean(near),
        median_width=float(np.median(widths)) if widths else None,
    )


def cells(seed: int, replications: int, ks: Sequence[int], ns: Sequence[int]) -> Iterator[tuple[str, Cell]]:
    """All cells of the study with the label each belongs to."""
    places = [(k, load, service, n) for k in ks for load in (0.5, 0.8) for service in (EXPONENTIAL, HEAVY) for n in ns]
    for k, load, service, n in places:
        if n < SHORTEST * queue_correlation_time(load):
            continue
        at = load, n, k
        cases = [("quantile", f"p{100 * p:g}", *quantile_case(p, *at, service)) for p in QUANTILES]
        if n <= ONLY_QUANTILES:
            cases += [("gaps", f"gap p{100 * p:g}", *gap_case(p, *at, service)) for p in QUANTILES]
            for scored, label in ((True, "fraction"), (False, "fraction, no score")):
                for share in FRACTIONS:
                    cases.append((label, f"{label} {share:g}", *fraction_case(share, *at, scored, service)))
            cases.append(("ratio", "goodput", *goodput_case(0.9, *at, False, service)))
            cases.append(("ratio", "cost per token", *goodput_case(0.9, *at, True, service)))
        for label, figure, truth, draw in cases:
            cell = measure(figure, *at, truth, draw, seed=seed, replications=replications, service=service)
            yield label, cell
        if n <= ONLY_QUANTILES:
            yield "no events", no_events_cell(*at, seed=seed, replications=replications, service=service)


def no_events_cell(
    load: float, n: int, k: int, *, seed: int, replications: int, service: Service = EXPONENTIAL
) -> Cell:
    """The bound on a goodput of which nothing was seen, where it is hardest: just below as many events expected.

    A true rate just above the bound is missed each time no event is seen, so its coverage is how often one is.
    """
    expected = CLUSTERED * -math.log(0.025)
    _, draw = goodput_case(expected / (k * n), load, n, k, False, service)
    rng = np.random.default_rng([seed, k, n, int(1000 * load)])
    seen = [draw(rng).value != 0.0 for _ in range(replications)]
    return Cell(service.name, "no events", load, n, k, replications, 0.0, None, 1.0, _mean(seen), None)


def labels(measured: Sequence[tuple[str, Cell]]) -> list[dict[str, object]]:
    """Worst and best coverage in whole percent per label and K, from cells that print it in a quarter of the runs.

    Where fewer print, those that do are the ones that took their correlation for too short: they hold less often.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for label, cell in measured:
        if cell.coverage is not None and cell.printed_share >= PRINTED:
            found.setdefault((label, cell.k), []).append(cell.coverage)
        if cell.near_bound_coverage is not None and cell.near_bound_share >= PRINTED:
            found.setdefault((f"{label}, one bound", cell.k), []).append(cell.near_bound_coverage)
    return [
        {"label": label, "k": k, "worst": math.floor(100 * min(held)), "best": math.floor(100 * max(held))}
        for (label, k), held in found.items()
    ]


def _mean(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--n", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000])
    arguments = parser.parse_args()
    label_table.LEAST = 0  # what is withheld would not be measured
    measured = []
    for label, cell in cells(arguments.seed, arguments.replications, arguments.k, arguments.n):
        measured.append((label, cell))
        print(json.dumps(asdict(cell)), flush=True)
    for line in labels(measured):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
