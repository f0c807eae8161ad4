"""What the schedule says and what the server got, for 1 and for 4 workers: one JSON line each.

    python benchmarks/arrivals.py --rate 200 --seconds 10

Counts per 100 ms of requests scheduled and of requests read by the server: their correlation (1 when every request came
in the slot it was planned for), their dispersion (variance ÷ mean, near 1 for Poisson) and the lag-1 autocorrelation
of the gaps at the server (near 0; near 0.9 where workers draw from one seed and send in bunches of their number).
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.study.fidelity import offer, prepare, start_truth

BIN_NS = 100_000_000


def measure(rate: float, seconds: float, workers: int, seed: int) -> dict[str, Any]:
    load = {"rates": [rate], "duration_s": seconds, "warmup_s": 0, "drain_s": 0, "seed": seed}
    with tempfile.TemporaryDirectory() as folder, start_truth(chunks=1) as truth:
        context, plan = prepare(truth.url, load, Path(folder), output_tokens=1)
        offered = offer(context, plan, workers=workers)
        arrived = np.sort(list(truth.arrivals().values())) - offered.end.start_ns
    scheduled = np.asarray(offered.jobs[0].plan.offsets_ns)
    bins = int(seconds * 1e9) // BIN_NS
    planned, got = (
        np.bincount(np.clip(times // BIN_NS, 0, bins - 1), minlength=bins)
        for times in (scheduled[scheduled < bins * BIN_NS], arrived[arrived < bins * BIN_NS])
    )
    gaps = np.diff(arrived)
    return {
        "workers": workers,
        "rate": rate,
        "scheduled": len(scheduled),
        "arrived": len(arrived),
        "bins_equal_share": round(float((planned == got).mean()), 4),
        "count_correlation": round(float(np.corrcoef(planned, got)[0, 1]), 5),
        "dispersion_scheduled": round(float(planned.var() / planned.mean()), 4),
        "dispersion_arrived": round(float(got.var() / got.mean()), 4),
        "gap_autocorrelation_scheduled": round(_lag_one(np.diff(scheduled)), 4),
        "gap_autocorrelation_arrived": round(_lag_one(gaps), 4),
        "validity": offered.verdict.verdict,
    }


def _lag_one(values: Any) -> float:
    return float(np.corrcoef(values[:-1], values[1:])[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=200, help="requests per second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for workers in options.workers:
        print(json.dumps(measure(options.rate, options.seconds, workers, options.seed)), flush=True)


if __name__ == "__main__":
    main()
