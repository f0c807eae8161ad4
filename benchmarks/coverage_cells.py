"""The cells of the coverage study: which figure of which system at which load, what is true there, how runs are drawn.

Queues are drawn afresh for each replication; the reference engine's runs are cut from tapes (`coverage_engine`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import coverage_engine as engine
from benchmarks import coverage_methods as methods
from benchmarks.coverage_engine import SLOWER, Tape
from benchmarks.coverage_methods import Method
from benchmarks.coverage_processes import ANSWERED, Asked, asked
from benchmarks.queues import (
    EXPONENTIAL,
    HEAVY,
    FloatArray,
    limit,
    many_servers,
    many_servers_limit,
    product_tail_quantile,
    responses,
    steady_waits,
    traffic,
)
from tfbench.stats.correlation import worth_together
from tfbench.stats.quantile import Clusters, sample_quantile
from tfbench.stats.ratio import RatioRun
from tfbench.stats.sample_size import (
    plan_times,
    planned_attempts,
    planned_attempts_for_fraction,
    planned_attempts_for_rates,
)

QUEUES = {service.name: service for service in (EXPONENTIAL, HEAVY)}
SERVERS = 16
MANY_SERVERS = f"M/M/{SERVERS}"
ENGINE = "reference engine"
SYSTEMS = (*QUEUES, MANY_SERVERS, ENGINE)
OTHERS = "other processes"
LOADS = (0.5, 0.8)
FIGURES = (
    *("p50", "p95", "p99", "gap p95", "good fraction 0.9", "good fraction 0.99", "good fraction 0.999"),
    *("goodput", "cost per token", "p95 ratio"),
)
GOOD = 0.9  # share of good attempts behind goodput and cost
GAPS = 8  # per request; its response time scales them all
TOKENS_SD = 0.8  # of the log of output tokens
PILOT = 4_000_000  # attempts behind a queue's plans
PILOT_RUNS = 100  # of many servers, where they make it up together
BEFORE = 200  # service times simulated before a window opens, so that departures enter it

Draw = Callable[[np.random.Generator, int], list[Any]]


@dataclass(frozen=True, slots=True)
class Cell:
    """`n` attempts a run, `planned` as many as a plan asks for."""

    system: str
    figure: str
    load: float
    n: int
    planned: int


@dataclass(frozen=True, slots=True)
class Case:
    """What the methods of `methods(k)` take is drawn from `draw(rng, k)`; their bounds are to hold `truth`.

    at_once: whether many runs are drawn in one call, since one alone takes nearly as long.
    """

    truth: float
    draw: Draw
    methods: Callable[[int], dict[str, Method]]
    at_once: bool = False

    def draws(self, rng: np.random.Generator, k: int, replications: int) -> Iterator[list[Any]]:
        """k runs for each replication."""
        if not self.at_once:
            for _ in range(replications):
                yield self.draw(rng, k)
            return
        runs = self.draw(rng, k * replications)
        for first in range(0, len(runs), k):
            yield runs[first : first + k]


def cells_at(
    scales: Sequence[float] = (1.0,),
    *,
    systems: Sequence[str] = SYSTEMS,
    figures: Sequence[str] = FIGURES,
    loads: Sequence[float] = LOADS,
    folder: Path | None = None,
) -> Iterator[Cell]:
    """Each figure of each system and load at these multiples of the n that a plan asks for.

    Other multiples than 1 are for queues, without what takes long or says no more. `folder` holds the reference
    engine's pilots.
    """
    for load, system, figure in itertools.product(loads, systems, figures):
        if not is_asked(figure, system, load):
            continue
        planned = plan(system, figure, load, folder)
        for scale in scales:
            if scale == 1.0 or (system != ENGINE and figure not in ("p99", "p95 ratio")):
                yield Cell(system, figure, load, max(20, int(planned * scale)), planned)


def process_cells() -> Iterator[Cell]:
    """The cells that aren't queues in steady state; their n is asked for, not planned."""
    for one in asked().values():
        yield Cell(one.process.name, one.figure, 0.0, one.n, one.n)


def is_asked(figure: str, system: str, load: float) -> bool:
    """Gaps are asked of M/M/1 alone, 0.999 only at load 0.5: at 0.8 its plan is longer than that of P99.

    Of many servers what a slow queue under much noise may upset: quantiles and fractions. Not the paired ratio, which
    is that of the noise but for rare jams; it takes several times the n of P95.
    """
    if system == MANY_SERVERS:
        return figure in ("p50", "p95", "p99", "good fraction 0.9", "good fraction 0.99")
    return (figure != "gap p95" or system == EXPONENTIAL.name) and (figure != "good fraction 0.999" or load == 0.5)


def plan(system: str, figure: str, load: float, folder: Path | None = None) -> int:
    """Attempts a run, from the correlation that a long pilot shows; for a ratio, one of the slower candidate."""
    share = _share(figure)
    slower = SLOWER if figure == "p95 ratio" else 1.0
    if system == ENGINE:
        if folder is None:
            raise ValueError("the reference engine's plans take the folder of its pilots")
        pilot = engine.read_pilot(folder, load, slower)
    else:
        pilot = _queue_pilot(system, slower * load)
    requests, owners = sum(map(len, pilot)), None
    if figure == "gap p95":
        gaps = [_gaps(np.random.default_rng(20), one[: PILOT // GAPS]) for one in pilot]
        requests = sum(len(one) for one, _ in gaps) // GAPS
        pilot, owners = [one for one, _ in gaps], [owner for _, owner in gaps]
    edge = sample_quantile(np.concatenate(pilot), share)
    worth = worth_together([one <= edge for one in pilot], owners)
    times = plan_times([requests], [worth], min(share, 1.0 - share))
    if _is_quantile(figure):
        return planned_attempts(share, *times)
    if figure.startswith("good"):
        return planned_attempts_for_fraction(share, *times)
    return planned_attempts_for_rates(*times)


@cache
def _queue_pilot(system: str, load: float) -> list[FloatArray]:
    rng = np.random.default_rng(20)
    if system == MANY_SERVERS:
        return list(many_servers(rng, PILOT_RUNS, PILOT // PILOT_RUNS, SERVERS, load))
    return list(traffic(rng, 1, PILOT, load, QUEUES[system]).response)


def case(cell: Cell, tapes: Sequence[Tape] | None = None) -> Case:
    """How a cell is asked; `tapes` of its load for the reference engine."""
    if (of_process := asked().get((cell.system, cell.figure, cell.n))) is not None:
        return process_case(of_process)
    if cell.system == ENGINE:
        if tapes is None:
            raise ValueError("the reference engine's cells take tapes")
        return engine_case(cell, tapes)
    if cell.system == MANY_SERVERS:
        return many_case(cell)
    service, load, n, share = QUEUES[cell.system], cell.load, cell.n, _share(cell.figure)
    edge = limit(share, load, service)

    def drawn(rng: np.random.Generator, k: int) -> list[FloatArray]:
        return list(traffic(rng, k, n, load, service).response)

    if cell.figure == "p95 ratio":
        truth = SLOWER * limit(share, SLOWER * load, service) / edge
        return Case(truth, lambda rng, k: _pairs(rng, k, cell), methods.pair_methods)
    if cell.figure == "gap p95":
        truth = product_tail_quantile(share, load, service)
        return Case(
            truth,
            lambda rng, k: [Clusters(*_gaps(rng, one)) for one in drawn(rng, k)],
            lambda k: methods.gap_methods(share, k, n),
        )
    if _is_quantile(cell.figure):
        return Case(edge, drawn, lambda k: methods.quantile_methods(share, k))
    if cell.figure.startswith("good fraction"):
        return Case(share, lambda rng, k: [one / edge for one in drawn(rng, k)], methods.fraction_methods)
    cost = cell.figure.startswith("cost")
    truth = 1.0 / (load * GOOD * math.exp(TOKENS_SD**2 / 2)) if cost else load * GOOD
    return Case(truth, lambda rng, k: _windows(rng, k, cell, edge, cost), methods.ratio_methods)


def process_case(one: Asked) -> Case:
    """How a cell of another process is asked."""
    process, n = one.process, one.n
    if one.figure == ANSWERED:
        slowest = 1e6  # ms: whatever is answered is answered sooner
        return Case(
            1.0 - process.beyond(slowest, n),
            lambda rng, k: list(process.draw(rng, k, n) / slowest),
            methods.answer_methods,
        )
    share = _share(one.figure)
    return Case(
        process.quantile(share, n),
        lambda rng, k: list(process.draw(rng, k, n)),
        lambda k: methods.repeat_methods(share, k),
    )


def many_case(cell: Cell) -> Case:
    """How a cell is asked of a queue with many servers."""
    load, n, share = cell.load, cell.n, _share(cell.figure)
    edge = many_servers_limit(share, SERVERS, load)

    def drawn(rng: np.random.Generator, runs: int) -> FloatArray:
        return many_servers(rng, runs, n, SERVERS, load)

    if _is_quantile(cell.figure):
        asked = partial(methods.quantile_methods, share)
        return Case(edge, lambda rng, runs: list(drawn(rng, runs)), asked, at_once=True)
    return Case(share, lambda rng, runs: list(drawn(rng, runs) / edge), methods.fraction_methods, at_once=True)


def _share(figure: str) -> float:
    """The p of a quantile, the share of a fraction; that of good attempts behind a rate."""
    kind, _, rest = figure.partition(" ")
    if kind == "good":
        return float(rest.split()[-1])
    if kind in ("goodput", "cost"):
        return GOOD
    return float((rest if kind == "gap" else kind).removeprefix("p")) / 100


def _is_quantile(figure: str) -> bool:
    return figure.startswith(("p", "gap"))


def _gaps(rng: np.random.Generator, response: FloatArray) -> tuple[FloatArray, Any]:
    n = len(response)
    return (response[:, None] * rng.exponential(1.0, (n, GAPS))).ravel(), np.repeat(np.arange(n), GAPS)


def _pairs(rng: np.random.Generator, k: int, cell: Cell) -> list[tuple[float, float]]:
    """The base's and the slower candidate's quantile of k runs on the same schedule and work."""
    service, p = QUEUES[cell.system], _share(cell.figure)
    base = traffic(rng, k, cell.n, cell.load, service)
    first = SLOWER * steady_waits(rng, k, SLOWER * cell.load, service)
    candidate = responses(base.gaps, SLOWER * base.service, first)
    return [(sample_quantile(b, p), sample_quantile(c, p)) for b, c in zip(base.response, candidate, strict=True)]


def _windows(rng: np.random.Generator, k: int, cell: Cell, edge: float, cost: bool) -> list[RatioRun]:
    """Good departures, or time per token of theirs, in a window of n expected arrivals."""
    start = BEFORE
    stop = start + cell.n / cell.load
    expected = stop * cell.load
    drawn = traffic(rng, k, int(expected + 6 * math.sqrt(expected) + 20), cell.load, QUEUES[cell.system])
    tokens = rng.lognormal(0.0, TOKENS_SD, drawn.arrive.shape)
    return [
        ratio_run(start, stop, arrive + response, response <= edge, token, cost)
        for arrive, response, token in zip(drawn.arrive, drawn.response, tokens, strict=True)
    ]


def ratio_run(start: float, stop: float, end: FloatArray, good: Any, tokens: FloatArray, cost: bool) -> RatioRun:
    counts = good & (end >= start) & (end < stop)
    t_ns = (end[counts] * 1e9).astype(np.int64)
    window = int(start * 1e9), int(stop * 1e9) + 1
    return RatioRun(*window, t_ns, None, tokens[counts]) if cost else RatioRun(*window, t_ns, np.ones(len(t_ns)), None)


def engine_case(cell: Cell, tapes: Sequence[Tape]) -> Case:
    """How a cell is asked of the reference engine: TTFT stands for response time, the truth is that of all runs."""
    share, figure = _share(cell.figure), cell.figure
    runs = engine.runs(tapes, cell.load, cell.n, paired=figure == "p95 ratio")
    edge = sample_quantile(np.concatenate([run.ttft for run in runs]), share)

    def drawn_from(items: list[Any]) -> Draw:
        return lambda rng, k: [items[i] for i in rng.choice(len(items), k, replace=False)]

    if figure == "p95 ratio":
        slower = sample_quantile(np.concatenate([run.slower_ttft for run in runs]), share)
        pairs = [(sample_quantile(run.ttft, share), sample_quantile(run.slower_ttft, share)) for run in runs]
        return Case(slower / edge, drawn_from(pairs), methods.pair_methods)
    if _is_quantile(figure):
        return Case(edge, drawn_from([run.ttft for run in runs]), lambda k: methods.quantile_methods(share, k))
    if figure.startswith("good fraction"):
        return Case(share, drawn_from([run.ttft / edge for run in runs]), methods.fraction_methods)
    cost = figure.startswith("cost")
    windows = [ratio_run(*run.window, run.end, run.end_ttft <= edge, run.tokens, cost) for run in runs]
    truth = sum(one.total(one.num) for one in windows) / sum(one.total(one.den) for one in windows)
    return Case(truth, drawn_from(windows), methods.ratio_methods)
