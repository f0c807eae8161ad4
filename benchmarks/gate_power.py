"""How often the gate is right: equal arms, and a candidate whose steps take 10 % longer, on the engine in virtual time.

    python benchmarks/gate_power.py --seed 1 --gates 200
    python benchmarks/gate_power.py --table --restart-cv 0.5 2 5 --pairs 600

A pilot of the base against itself plans repeats and attempts per run, as `tfbench gate --plan` does; each gate then
runs that many pairs at load 0.7. Pairs share arrivals and prompts; replies' lengths (sigma 5 %) and the speed of a
restart (sigma 0.5 %) are each arm's own. Prints a JSON line for the plan and one per kind of gate.

With --table nothing is planned: of --pairs pairs at each of --restart-cv (the restarts' sigma in %), at 1,500 attempts
a run, every K make one gate. Prints a JSON line per restart CV and K, and the table of docs/gate.md on stderr.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from tfbench.engine.config import EngineConfig
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import serve
from tfbench.metrics import FIGURES, Sample
from tfbench.metrics.samples import Flags
from tfbench.stats.quantile import sample_quantile
from tfbench.verdict.arms import Arm, ArmRun, Match
from tfbench.verdict.cells import Cell
from tfbench.verdict.gate import judge
from tfbench.verdict.gate_plan import GatePlan, plan_gate
from tfbench.verdict.policy import Policy, parse_policy

LOAD = 0.7
SLOWER = 1.10
PILOT_PAIRS = 20
PILOT_ATTEMPTS = 1500
BASE = EngineConfig(max_num_seqs=16, max_num_batched_tokens=512, step_time=StepTime(base_ms=10.0))
POLICY = parse_policy(
    {
        "metric": [
            {"name": "ttft_p50_ms", "margin": {"relative": 0.05}},
            {"name": "tpot_p50_ms", "margin": {"relative": 0.05}},
            {"name": "e2e_p95_ms", "margin": {"relative": 0.05}},
            {"name": "good_fraction", "margin": {"absolute": 0.02}},
        ]
    }
)
LIMITS_MS = {"ttft": 200.0, "e2e": 1250.0}
LENGTH_NOISE = 0.05
RESTART_NOISE = 0.005
TABLE_CVS, TABLE_PAIRS = (0.5, 2.0, 5.0), (5, 10, 20)


@cache
def capacity() -> float:
    """Requests per second that the base serves of this traffic when it never idles."""
    rng = np.random.default_rng(0)
    prompts, outputs = _lengths(rng, 2000)
    served = serve(BASE, np.zeros(2000, np.int64), prompts, outputs)
    return 2000 / (float(served.end_ns.max()) / 1e9)


def run_samples(
    seed: Sequence[int], arm: int, *, n: int, slower: float = 1.0, restart_cv: float = RESTART_NOISE
) -> dict[str, Sample]:
    """One run's figures with the facts behind them; `seed` is the pair's, `arm` makes the arm's own noise."""
    shared, own = np.random.default_rng([*seed, 0]), np.random.default_rng([*seed, 1 + arm])
    warm = n // 10
    arrivals = np.cumsum(shared.exponential(1e9 / (LOAD * capacity()), n + warm)).astype(np.int64)
    prompts, outputs = _lengths(shared, n + warm)
    outputs = np.maximum(2, np.rint(outputs * np.exp(own.normal(0.0, LENGTH_NOISE, n + warm)))).astype(np.int64)
    speed = slower * math.exp(float(own.normal(0.0, restart_cv)))
    model = StepTime(**{name: speed * value for name, value in dataclasses.asdict(BASE.step_time).items()})
    served = serve(dataclasses.replace(BASE, step_time=model), arrivals, prompts, outputs)
    ttft, e2e = ((times - arrivals)[warm:] / 1e6 for times in (served.first_token_ns, served.end_ns))
    strain = np.maximum(ttft / LIMITS_MS["ttft"], e2e / LIMITS_MS["e2e"])
    values = {"ttft": ttft, "e2e": e2e, "tpot": (e2e - ttft) / (outputs[warm:] - 1)}
    found = {}
    for name in POLICY.names:
        p = FIGURES[name].p
        if p is not None:
            data = values[name.split("_")[0]]
            found[name] = Sample(sample_quantile(data, p), n, data)
        else:
            flags = Flags(strain <= 1.0, strain) if name == "good_fraction" else Flags(np.ones(n, bool), strain / 10.0)
            found[name] = Sample(float(flags.value.mean()), n, flags)
    return found


def _lengths(rng: np.random.Generator, n: int) -> tuple["np.typing.NDArray[np.int64]", "np.typing.NDArray[np.int64]"]:
    return rng.integers(16, 129, n), 2 + np.minimum(rng.geometric(1 / 30, n), 200)


def cells(seed: Sequence[int], pairs: int, n: int, slower: float = 1.0) -> list[Cell]:
    """The cells of one gate."""
    base = [run_samples([*seed, pair], 0, n=n) for pair in range(pairs)]
    candidate = [run_samples([*seed, pair], 1, n=n, slower=slower) for pair in range(pairs)]
    return paired_cells(base, candidate)


def paired_cells(base: Sequence[dict[str, Sample]], candidate: Sequence[dict[str, Sample]]) -> list[Cell]:
    """A cell per figure of the policy, from runs that are pairs by position."""
    return [
        Cell(LOAD, None, FIGURES[name], FIGURES[name].unit, True,
             tuple(run[name] for run in base), tuple(run[name] for run in candidate))
        for name in POLICY.names
    ]  # fmt: skip


def verdict(policy: Policy, found: Sequence[Cell], pairs: int) -> str:
    """What the gate says of these cells; no run is unfit or unstable."""
    runs = tuple(ArmRun(f"r{pair}", LOAD, pair, seed=pair) for pair in range(pairs))
    arm = Arm("study", "engine", None, "m", "w", "s", {}, {}, runs)
    return judge(policy, arm, arm, (Match(LOAD, True, runs, runs),), found).verdict


def make_plan(seed: int, pairs: int = PILOT_PAIRS, n: int = PILOT_ATTEMPTS) -> tuple[GatePlan, int]:
    """The plan from a pilot of equal arms, made longer for as long as the plan says so, and its attempts a run."""
    while True:
        plan = plan_gate(POLICY, cells([seed, 0], pairs, n), paired=True)
        if plan.length_factor is None:
            return plan, n
        n = math.ceil(n * plan.length_factor)


def measure_power(
    seed: int, restart_cv: float, repeats: Sequence[int], pairs: int, n: int = PILOT_ATTEMPTS
) -> dict[int, dict[str, Counter[str]]]:
    """What gates of each number of repeats say of equal and of slower arms: pairs // K gates that share no run."""
    told: dict[int, dict[str, Counter[str]]] = {k: {"equal": Counter(), "slower": Counter()} for k in repeats}
    batch = math.lcm(*repeats)
    for first in range(0, pairs, batch):
        those = range(first, min(first + batch, pairs))
        base, equal, slower = (
            [run_samples([seed, 0, pair], arm, n=n, slower=times, restart_cv=restart_cv) for pair in those]
            for arm, times in ((0, 1.0), (1, 1.0), (1, SLOWER))
        )
        for k in repeats:
            for at in range(0, len(those) - k + 1, k):
                for kind, candidate in (("equal", equal), ("slower", slower)):
                    found = paired_cells(base[at : at + k], candidate[at : at + k])
                    told[k][kind][verdict(POLICY, found, k)] += 1
    return told


def print_table(seed: int, restart_cvs: Sequence[float], pairs: int) -> None:
    """How often gates of K repeats fail a slower candidate, and pass or fail one that is equal, by the restarts' CV."""
    rows = [
        "| restart CV | repeats | gates | 10 % slower: FAIL | equal: PASS | equal: FAIL |",
        "|---|---|---|---|---|---|",
    ]
    for cv in restart_cvs:
        for k, told in measure_power(seed, cv / 100.0, TABLE_PAIRS, pairs).items():
            equal, slower = told["equal"], told["slower"]
            line = {"restart_cv_percent": cv, "repeats": k, "gates": equal.total()}
            print(json.dumps(line | {"equal": equal, "10 % slower": slower}), flush=True)
            counts = (slower["FAIL"], equal["PASS"], equal["FAIL"])
            shares = [f"{100 * count / max(1, equal.total()):.0f} %" for count in counts]
            rows.append(f"| {' | '.join([f'{cv:g} %', str(k), str(equal.total()), *shares])} |")
    print("\n".join(rows), file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gates", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first gate, to run in parts")
    parser.add_argument("--table", action="store_true", help="measure power by the restarts' CV and repeats")
    parser.add_argument("--restart-cv", type=float, nargs="+", default=list(TABLE_CVS), help="in %%; with --table")
    parser.add_argument("--pairs", type=int, default=600, help="pairs of runs at each restart CV; with --table")
    args = parser.parse_args()
    if args.table:
        print_table(args.seed, args.restart_cv, args.pairs)
        return 0
    started = time.monotonic()
    plan, n = make_plan(args.seed)
    if plan.repeats is None:
        print(json.dumps({"plan": [row.reason for row in plan.rows]}))
        return 1
    rows = {row.figure: row.repeats for row in plan.rows}
    print(json.dumps({"plan": plan.repeats, "rows": rows, "attempts_a_run": n, "rate_per_s": LOAD * capacity()}))
    wanted = {"equal": ("PASS", 0.8), "10 % slower": ("FAIL", 0.9)}
    good = True
    for kind, (says, share) in wanted.items():
        slower = 1.0 if kind == "equal" else SLOWER
        told = Counter(
            verdict(POLICY, cells([args.seed, 1 + gate], plan.repeats, n, slower), plan.repeats)
            for gate in range(args.first, args.first + args.gates)
        )
        good &= told[says] >= share * args.gates and (kind != "equal" or told["FAIL"] <= 0.09 * args.gates)
        print(
            json.dumps({"arms": kind, "gates": args.gates} | told | {"seconds": round(time.monotonic() - started, 1)})
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
