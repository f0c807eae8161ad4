"""How often `compare` marks a row worse or better: of equal systems, and of a candidate that is 20 % slower.

    python -m benchmarks.compare_marks --seed 1 --comparisons 200

Twelve figures of a queue (TTFT), of independent output times (TPOT) and of both (E2E), 600 attempts a run, arms that
share arrivals and work; every run of either arm starts anew, at a speed of its own. One JSON line per spread of the
restarts' speed (CV), repeats K and candidate: comparisons, how many have a mark at all, and in how many the slower
candidate's TPOT and TTFT medians are called worse.
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.queues import responses
from tfbench.metrics import FIGURES, Sample
from tfbench.metrics.samples import Flags
from tfbench.stats.quantile import sample_quantile
from tfbench.stats.ratio import RatioRun
from tfbench.verdict.arms import Arm, ArmRun, Likeness, Match
from tfbench.verdict.cells import Cell
from tfbench.verdict.compare import Comparison, compare

LOAD = 0.6
ATTEMPTS = 600
WARM = 200
SLOWER = 1.2
NAMES = (
    *(f"{stem}_p{p}_ms" for stem in ("ttft", "tpot", "e2e") for p in (50, 95, 99)),
    *("good_fraction", "ok_fraction", "goodput_requests_per_s"),
)
SERVICE_MS, TPOT_MS, TOKENS = 100.0, 20.0, 32


def arm_runs(seed: Sequence[int], k: int, cv: float, slower: float) -> list[list[dict[str, Sample]]]:
    """Both arms' runs, paired: each run's figures with the facts behind them."""
    arms: list[list[dict[str, Sample]]] = [[], []]
    for repeat in range(k):
        shared = np.random.default_rng([*seed, repeat, 9])
        gaps = shared.exponential(1.0 / LOAD, (1, WARM + ATTEMPTS))
        service, spread = shared.exponential(1.0, gaps.shape), shared.normal(0.0, 0.2, gaps.shape)
        for i, times in enumerate((1.0, slower)):
            own = np.random.default_rng([*seed, repeat, i])
            speed = times * math.exp(float(own.normal(0.0, cv)))
            noise = np.exp(own.normal(0.0, 0.05, gaps.shape))
            arms[i].append(_figures(gaps, service * noise * speed, TPOT_MS * speed * np.exp(spread) * noise))
    return arms


def _figures(gaps: Any, service: Any, tpot: Any) -> dict[str, Sample]:
    ttft = SERVICE_MS * responses(gaps, service, np.zeros(1))[0, WARM:]
    arrive = SERVICE_MS * np.cumsum(gaps, axis=1)[0, WARM:]
    values = {"ttft": ttft, "tpot": tpot[0, WARM:], "e2e": ttft + TOKENS * tpot[0, WARM:]}
    strain = np.maximum(ttft / 800.0, values["tpot"] / 30.0)
    flags = {"good_fraction": Flags(strain <= 1.0, strain), "ok_fraction": Flags(strain <= 99.0, strain / 99.0)}
    found = {name: Sample(float(one.value.mean()), ATTEMPTS, one) for name, one in flags.items()}
    start, stop = (int(1e6 * t) for t in (arrive[0], arrive[-1]))
    ends = (1e6 * (arrive + values["e2e"])[strain <= 1.0]).astype(np.int64)
    ends = ends[(ends >= start) & (ends <= stop)]
    rate = RatioRun(start, stop, ends, np.ones(len(ends)), None)
    found["goodput_requests_per_s"] = Sample(rate.ratio(), len(ends), rate, counted=flags["good_fraction"])
    for name in NAMES:
        if (p := FIGURES[name].p) is not None:
            data = values[name.partition("_")[0]]
            found[name] = Sample(sample_quantile(data, p), len(data), data)
    return found


def compared(seed: Sequence[int], k: int, cv: float, slower: float) -> Comparison:
    """What `compare` says of one draw."""
    arms = arm_runs(seed, k, cv, slower)
    cells = [
        Cell(1.0, None, FIGURES[name], FIGURES[name].unit, True, *(tuple(run[name] for run in arm) for arm in arms))
        for name in NAMES
    ]
    runs = tuple(ArmRun(f"r{i}", 1.0, i, seed=i) for i in range(k))
    arm = Arm("study", "engine", None, "m", "w", "s", {}, {}, runs)
    return compare(arm, arm, Likeness((), (), None, ()), (Match(1.0, True, runs, runs),), cells)


def line(seed: int, comparisons: int, k: int, cv: float, slower: float) -> dict[str, object]:
    """The benchmark's line."""
    marked = ttft = tpot = 0
    for i in range(comparisons):
        says = {row.figure: row.says for row in compared((seed, i), k, cv, slower).rows}
        marked += any(one in ("worse", "better") for one in says.values())
        ttft += says["ttft_p50_ms"] == "worse"
        tpot += says["tpot_p50_ms"] == "worse"
    more = {} if slower == 1.0 else {"ttft_p50_worse": ttft, "tpot_p50_worse": tpot}
    return {"cv": cv, "k": k, "slower": slower, "comparisons": comparisons, "marked": marked, **more}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--comparisons", type=int, default=200)
    options = parser.parse_args()
    for cv in (0.02, 0.05):
        for k, slower in ((1, 1.0), (2, 1.0), (5, 1.0), (5, SLOWER)):
            print(json.dumps(line(options.seed, options.comparisons, k, cv, slower)), flush=True)


if __name__ == "__main__":
    main()
