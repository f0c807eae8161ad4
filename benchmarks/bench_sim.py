"""How fast virtual time passes: requests per CPU-second through the production scheduler. JSON lines.

    python benchmarks/bench_sim.py --requests 20000

Independent replicas, each under its own Poisson arrivals of 8 requests a second, 512 tokens in, 200 out, under a linear
and a roofline step model. Every step is accounted for, and every token's time is produced. The best of `--repeats`
runs, for a busy machine only ever makes it slower; loading the libraries is left out.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.profile import engine_profile
from tfbench.engine.virtual import serve

RATE_PER_S, INPUT_TOKENS, OUTPUT_TOKENS = 8.0, 512, 200
ENGINES = {
    "linear": EngineConfig(step_time=StepTime(context_token_ms=0.0001)),
    "roofline": engine_profile("h100-llama-3.1-8b"),
}


def measure(step_model: str, replicas: int, requests: int, repeats: int, seed: int) -> dict[str, Any]:
    """One line: `requests` on each of `replicas` engines."""
    config, best_s, simulated_s, tokens = ENGINES[step_model], float("inf"), 0.0, 0
    prompt, output = np.full(requests, INPUT_TOKENS), np.full(requests, OUTPUT_TOKENS)
    for _ in range(repeats):
        simulated_s, tokens = 0.0, 0
        start = time.process_time()
        for rng in np.random.default_rng(seed).spawn(replicas):
            arrival_ns = (np.cumsum(rng.exponential(1 / RATE_PER_S, requests)) * 1e9).astype(np.int64)
            served = serve(config, arrival_ns, prompt, output)
            tokens += sum(served.token_times(i).size for i in range(requests))
            simulated_s = max(simulated_s, float(served.end_ns.max() - arrival_ns[0]) / 1e9)
        best_s = min(best_s, time.process_time() - start)
    if tokens != replicas * requests * OUTPUT_TOKENS:
        raise SystemExit("error: tokens are missing")
    return {
        "benchmark": "sim",
        "step_model": step_model,
        "replicas": replicas,
        "requests": replicas * requests,
        "tokens": tokens,
        "cpu_s": round(best_s, 3),
        "requests_per_cpu_s": round(replicas * requests / best_s),
        "speedup_over_real_time": round(simulated_s / best_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000, help="on each replica")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for step_model in ENGINES:
        for replicas in (1, 16):
            requests = max(options.requests // replicas, 1_000)
            print(json.dumps(measure(step_model, replicas, requests, options.repeats, options.seed)), flush=True)


if __name__ == "__main__":
    main()
