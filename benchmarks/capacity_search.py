"""How often a capacity search holds the true limit, on the reference engine in virtual time and on queues.

    python -m benchmarks.capacity_search --seed 1 --searches 100 [--case chat --case "restarts 5 %"]

Each search starts far from the limit, makes at most `--max-runs` runs of a fixed number of requests (every run with its
own arrivals and lengths) and answers with an interval. The queues differ in what troubles a real server: restarts of
unlike speed, stalls, heavy tails, a run in five with an outage, a share that doesn't fall evenly with the load.

The truth is where the mean share of good requests, over runs as long as the search's, falls through the target: for the
engine from long runs, for queues from their formula or from 4000 runs. Where it falls through more than once, an answer
that holds any such load holds the truth.

One JSON line per case: held, how many searches' intervals held the truth, and how the others missed; the statuses, and
of those "found" how many were right; how wide the intervals are (median of hi / lo, and what was said beforehand); what
they cost in runs and requests.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from tfbench.engine.config import EngineConfig
from tfbench.engine.virtual import serve
from tfbench.stats.combine import combine_fraction
from tfbench.stats.loads import LoadRuns, judge
from tfbench.stats.reach import expected_reach
from tfbench.stats.search import Answer, SearchPlan, next_probe
from tfbench.stats.slope import backlog_slope

FloatArray = npt.NDArray[np.float64]
WARMUP = 300
ENGINES = ("chat", "long", "strict")


@dataclass(frozen=True, slots=True)
class Run:
    """n requests at a load: strain float64 [n], the largest ratio of a latency to its limit (bad above 1)."""

    strain: FloatArray
    unstable: bool


MakeRun = Callable[[np.random.Generator, float, int], Run]
"""(rng, load, n): one run."""


@dataclass(frozen=True)
class Case:
    """A system under load: `target` of the requests must be good; the search starts at `start` within [low, high]."""

    name: str
    make: MakeRun
    target: float
    requests: int
    start: float
    low: float
    high: float
    truth: float | None = None


def engine(
    config: EngineConfig, ttft_ms: float, tpot_ms: float, prompt_mean: float, output_mean: float, output_cv: float
) -> MakeRun:
    """Poisson arrivals at the reference engine, log-normal lengths, TTFT and TPOT limits."""

    def lengths(rng: np.random.Generator, mean: float, cv: float, n: int) -> npt.NDArray[np.int64]:
        sigma = math.sqrt(math.log1p(cv * cv))
        drawn = rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma, n)
        return np.clip(np.rint(drawn), 2, 16 * mean).astype(np.int64)

    def run(rng: np.random.Generator, load: float, n: int) -> Run:
        every = n + WARMUP
        arrival = np.cumsum(rng.exponential(1e9 / load, every)).astype(np.int64)
        output = lengths(rng, output_mean, output_cv, every)
        served = serve(config, arrival, lengths(rng, prompt_mean, 0.5, every), output)
        ttft = (served.first_token_ns - arrival) / 1e6
        tpot = (served.end_ns - served.first_token_ns) / 1e6 / (output - 1)
        worst = np.maximum(ttft / ttft_ms, tpot / tpot_ms)
        return _run(np.where(served.accepted, worst, np.inf), arrival, served.end_ns)

    return run


def queue(
    limit: float,
    *,
    restarts: float = 0.0,
    waves: float = 0.0,
    scv: float = 1.0,
    stalls: tuple[float, float] = (0.0, 0.0),
    outages: tuple[float, float] = (0.0, 0.0),
) -> MakeRun:
    """Response times of a queue with mean service 1 against `limit`; an overloaded one grows without end.

    Args:
        restarts: CV of a lognormal factor that each run's speed is multiplied by.
        waves: the speed goes up and down by this share with the load, steeply enough that good ones rise and fall too.
        scv: squared CV of the service times; above 1 they are hyperexponential with balanced means.
        stalls: (share of the time, length): all that arrive in such a stretch wait for its end besides.
        outages: (share of the runs, share of the run): all requests in such a stretch fail.
    """
    sigma = math.sqrt(math.log1p(restarts * restarts))
    often = (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0))) / 2.0

    def run(rng: np.random.Generator, load: float, n: int) -> Run:
        every = n + WARMUP
        speed = math.exp(rng.normal(-sigma * sigma / 2, sigma)) * (1.0 + waves * math.sin(60.0 * math.log(load)))
        gaps, service = rng.exponential(1.0 / load, every), rng.exponential(1.0, every)
        if scv > 1.0:
            service /= 2.0 * np.where(rng.random(every) < often, often, 1.0 - often)
        service /= speed
        walk = np.cumsum(np.concatenate([[0.0], service[:-1] - gaps[1:]]))
        wait = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
        arrival = np.cumsum(gaps)
        response = wait + service
        share, length = stalls
        if share > 0.0:
            begins = np.cumsum(
                rng.exponential(length * (1.0 - share) / share, 50 + int(2 * arrival[-1] * share / length))
            )
            begins += length * np.arange(len(begins))
            last = np.searchsorted(begins, arrival) - 1
            response += np.where(last >= 0, np.maximum(0.0, begins[last] + length - arrival), 0.0)
        if rng.random() < outages[0]:
            first = WARMUP + int(rng.random() * (1.0 - outages[1]) * n)
            response[first : first + int(outages[1] * n)] = np.inf
        at = (arrival * 1e9).astype(np.int64)
        lasts = np.where(np.isfinite(response), response, limit)
        return _run(response / limit, at, at + (lasts * 1e9).astype(np.int64))

    return run


def _run(strain: FloatArray, arrival_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64]) -> Run:
    """The run without its warm-up, judged as `tfbench.verdict.stability` does: does its backlog grow by over one?"""
    start_ns, last_ns = int(arrival_ns[WARMUP]), int(arrival_ns[-1])
    slope = backlog_slope(arrival_ns, np.maximum(arrival_ns, end_ns), start_ns, last_ns)
    grows = slope.lo is not None and slope.lo * (last_ns - start_ns) / 1e9 > 1.0
    return Run(np.asarray(strain[WARMUP:], dtype=np.float64), grows)


def cases() -> dict[str, Case]:
    """The systems searched."""
    small = EngineConfig(max_num_seqs=16, max_num_batched_tokens=512)
    return {
        "chat": Case("chat", engine(EngineConfig(), 150, 15, 128, 32, 0.0), 0.95, 1000, 8.0, 0.01, 4096.0),
        "long": Case("long", engine(small, 400, 14, 256, 64, 1.0), 0.9, 1000, 0.5, 0.001, 4096.0),
        "strict": Case("strict", engine(small, 400, 14, 256, 64, 1.0), 0.99, 2000, 100.0, 0.001, 4096.0),
        "queue": Case("queue", queue(8.0), 0.9, 3000, 0.05, 1e-4, 4.0, truth=1.0 + math.log(0.1) / 8.0),
    } | {
        name: Case(name, make, target, 2000 if target > 0.95 else 1000, 0.05, 1e-4, 4.0)
        for name, make, target in (
            ("restarts 0 %", queue(8.0), 0.9),
            ("restarts 2 %", queue(8.0, restarts=0.02), 0.9),
            ("restarts 5 %", queue(8.0, restarts=0.05), 0.9),
            ("restarts 10 %", queue(8.0, restarts=0.1), 0.9),
            ("restarts 5 %, strict", queue(8.0, restarts=0.05), 0.99),
            ("waves", queue(8.0, waves=0.03), 0.9),
            ("stalls", queue(8.0, stalls=(0.01, 16.0)), 0.95),
            ("heavy", queue(40.0, scv=10.0), 0.9),
            ("outages", queue(8.0, outages=(0.2, 0.2)), 0.9),
        )
    }


def true_limit(case: Case, seed: int, requests: int = 40_000, steps: int = 13) -> float:
    """Where the share of good requests falls through the target: bisection with one long run a step."""
    if case.truth is not None:
        return case.truth
    low = high = case.start
    while good(case, high, seed, requests // 4) >= case.target:
        low, high = high, 2 * high
    while good(case, low, seed, requests // 4) < case.target:
        low, high = low / 2, low
    for step in range(steps):
        middle = math.sqrt(low * high)
        met = good(case, middle, seed + step, requests) >= case.target
        low, high = (middle, high) if met else (low, middle)
    return math.sqrt(low * high)


def true_limits(case: Case, seed: int, runs: int = 2000) -> list[float]:
    """Every load where the mean share over runs of the case's length falls, or rises, through the target.

    Each load gets the same random numbers, so that neighbours differ by the load alone.
    """
    if case.truth is not None or case.name in ENGINES:
        return [true_limit(case, seed)]

    def above(load: float, count: int) -> float:
        return float(np.mean([good(case, load, seed + index, case.requests) for index in range(count)])) - case.target

    clear = 0.4 * (1.0 - case.target)
    low = high = case.start
    while above(high, 50) > -clear:
        high *= 1.1
        low = high if above(high, 50) > clear else low
    loads = np.geomspace(low, high, 1 + math.ceil(math.log(high / low) / 0.02))
    known = [(load, above(load, runs)) for load in loads]
    return [
        math.exp(math.log(low) + math.log(high / low) * a / (a - b))
        for (low, a), (high, b) in pairwise(known)
        if (a >= 0.0) != (b >= 0.0)
    ]


def good(case: Case, load: float, seed: int, requests: int) -> float:
    """The share of good requests in one run."""
    return float((case.make(np.random.default_rng([seed, 99]), load, requests).strain <= 1.0).mean())


def run_search(case: Case, plan: SearchPlan, rng: np.random.Generator) -> Answer:
    """One search, from its first probe to its answer."""
    runs: dict[float, list[Run]] = {}
    held: dict[float, LoadRuns] = {}
    while True:
        step = next_probe(plan, judge(list(held.values()), case.target, plan))
        if isinstance(step, Answer):
            return step
        made = runs.setdefault(step.load, [])
        made += [case.make(rng, step.load, case.requests) for _ in range(step.runs)]
        scores = [one.strain for one in made]
        flags = [one <= 1.0 for one in scores]
        share = combine_fraction(flags, score=scores, level=plan.level)
        unstable = sum(one.unstable for one in made)
        held[step.load] = LoadRuns(step.load, tuple(float(one.mean()) for one in flags), share, unstable)


def holds(answer: Answer, limits: Sequence[float]) -> bool:
    """Whether the answer's interval holds one of the true limits."""
    return any((answer.lo or 0.0) <= limit <= (answer.hi or math.inf) for limit in limits)


def study(case: Case, searches: int, seed: int, max_runs: int) -> dict[str, object]:
    """The benchmark's line for one case."""
    began = time.process_time()
    limits = true_limits(case, seed)
    plan = SearchPlan(case.start, case.low, case.high, max_runs=max_runs)
    answers = [run_search(case, plan, np.random.default_rng([seed, index])) for index in range(searches)]
    too_high = sum(one.lo is not None and one.lo > max(limits) for one in answers)
    too_low = sum(one.hi is not None and one.hi < min(limits) for one in answers)
    said = expected_reach(case.requests, case.target, max_runs=max_runs, resolution=plan.resolution)
    found = [one for one in answers if one.status == "found"]
    widths = [one.hi / one.lo for one in answers if one.lo is not None and one.hi is not None]
    return {
        "case": case.name,
        "target": case.target,
        "truth": [float(f"{limit:.5g}") for limit in limits],
        "searches": searches,
        "held": sum(holds(one, limits) for one in answers),
        "too_high": too_high,
        "too_low": too_low,
        "confidence": plan.confidence,
        "status": dict(Counter(one.status for one in answers)),
        "found_right": sum(holds(one, limits) for one in found),
        "median_width": round(median(widths), 3) if widths else None,
        "said_width": round(said.width, 3),
        "budget_runs": max_runs,
        "median_runs": median(one.runs for one in answers),
        "max_runs": max(one.runs for one in answers),
        "requests_a_run": case.requests,
        "cpu_s": round(time.process_time() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--max-runs", type=int, default=60)
    parser.add_argument("--case", choices=sorted(cases()), action="append")
    options = parser.parse_args()
    for name in options.case or cases():
        print(json.dumps(study(cases()[name], options.searches, options.seed, options.max_runs)), flush=True)


if __name__ == "__main__":
    main()
