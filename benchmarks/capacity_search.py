"""How often a capacity search holds the true limit, on the reference engine in virtual time and on an M/M/1 queue.

    python benchmarks/capacity_search.py --seed 1 --searches 100 [--case chat --case long --case queue]

Each search starts far from the limit, makes at most `--max-runs` runs of a fixed number of requests (every run with its
own arrivals and lengths) and answers with an interval. The truth comes from long runs, for the queue from its formula.
One JSON line per case: held, the share of searches whose interval held the truth; where the others missed; how wide the
intervals are (median of hi / lo); what they cost in runs and requests.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from tfbench.engine.config import EngineConfig
from tfbench.engine.virtual import serve
from tfbench.stats.combine import combine_fraction
from tfbench.stats.search import Answer, Evidence, SearchPlan, decide, leans, next_probe
from tfbench.stats.slope import backlog_slope

FloatArray = npt.NDArray[np.float64]
WARMUP = 300


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


def queue(limit: float) -> MakeRun:
    """Response times of an M/M/1 queue with mean service 1 against `limit`; an overloaded one grows without end."""

    def run(rng: np.random.Generator, load: float, n: int) -> Run:
        every = n + WARMUP
        gaps, service = rng.exponential(1.0 / load, every), rng.exponential(1.0, every)
        walk = np.cumsum(np.concatenate([[0.0], service[:-1] - gaps[1:]]))
        wait = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
        arrival = (np.cumsum(gaps) * 1e9).astype(np.int64)
        response = wait + service
        return _run(response / limit, arrival, arrival + (response * 1e9).astype(np.int64))

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


def good(case: Case, load: float, seed: int, requests: int) -> float:
    """The share of good requests in one run."""
    return float((case.make(np.random.default_rng([seed, 99]), load, requests).strain <= 1.0).mean())


def run_search(case: Case, plan: SearchPlan, rng: np.random.Generator) -> Answer:
    """One search, from its first probe to its answer."""
    runs: dict[float, list[Run]] = {}
    known: dict[float, Evidence] = {}
    while True:
        step = next_probe(plan, list(known.values()))
        if isinstance(step, Answer):
            return step
        held = runs.setdefault(step.load, [])
        held += [case.make(rng, step.load, case.requests) for _ in range(step.runs)]
        scores = [one.strain for one in held]
        share = combine_fraction([one <= 1.0 for one in scores], score=scores, level=plan.level)
        met = decide(share, case.target, unstable=sum(one.unstable for one in held))
        known[step.load] = Evidence(step.load, len(held), 0, met, leans(share, case.target))


def study(case: Case, searches: int, seed: int, max_runs: int) -> dict[str, object]:
    """The benchmark's line for one case."""
    began = time.process_time()
    truth = true_limit(case, seed)
    plan = SearchPlan(case.start, case.low, case.high, max_runs=max_runs)
    answers = [run_search(case, plan, np.random.default_rng([seed, index])) for index in range(searches)]
    too_high = sum(one.lo is not None and one.lo > truth for one in answers)
    too_low = sum(one.hi is not None and one.hi < truth for one in answers)
    widths = [one.hi / one.lo for one in answers if one.lo is not None and one.hi is not None]
    return {
        "case": case.name,
        "target": case.target,
        "truth": float(f"{truth:.5g}"),
        "searches": searches,
        "held": searches - too_high - too_low,
        "too_high": too_high,
        "too_low": too_low,
        "confidence": plan.confidence,
        "status": dict(Counter(one.status for one in answers)),
        "median_width": round(median(widths), 3) if widths else None,
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
