"""One scheduler, two clocks: how far a served study and a simulated one lie apart.

Serves a study, then
- replays the arrivals that the engine recorded in virtual time: the difference of each TTFT and E2E, what really left
  the server against what the scheduler says (limit: 2 ms at p99);
- simulates the same manifest from its schedule: do the intervals of TTFT and E2E quantiles overlap?

Prints JSON; exit status 1 where either does not hold.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from tfbench.engine.config import EngineConfig
from tfbench.engine.process import start_engine
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import serve
from tfbench.manifest import Manifest, parse_manifest
from tfbench.metrics import figures
from tfbench.study import run_study
from tfbench.study.simulate import System, simulate_study
from tfbench.warehouse import Warehouse

LIMIT_MS = 2.0
CONFIG = EngineConfig(
    max_num_seqs=16,
    max_num_batched_tokens=512,
    step_time=StepTime(base_ms=6.0, prefill_token_ms=0.03, decode_seq_ms=0.1, context_token_ms=0.0002),
)
FIGURES = ("ttft_p50_ms", "ttft_p95_ms", "e2e_p50_ms", "e2e_p95_ms", "tpot_p50_ms")


def manifest_of(url: str | None, rate: float, seconds: float) -> Manifest:
    document = {
        "name": "real-and-virtual",
        "model": {"name": CONFIG.model},
        "endpoint": {"adapter": "tfbench", "url": url},
        "workload": {
            "input_tokens": {"dist": "lognormal", "mean": 200, "cv": 0.8, "max": 2000},
            "output_tokens": {"dist": "uniform", "min": 8, "max": 96},
        },
        "load": {"rates": [rate], "duration_s": seconds, "warmup_s": 2, "drain_s": 10, "repeats": 5, "seed": 4},
    }
    return parse_manifest(document, "real-and-virtual")


def replayed(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Recorded arrivals in virtual time, against what the server wrote and when."""
    requests = sorted(requests, key=lambda one: one["arrival_ns"])

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.array([one[name] for one in requests], dtype=np.int64)

    served = serve(CONFIG, column("arrival_ns"), column("prompt_tokens"), column("max_tokens"))
    whole = [i for i, one in enumerate(requests) if one["finish_reason"] in ("length", "stop")]
    sent = [requests[i]["chunks"]["sent_ns"] for i in whole]
    ttft = np.array([times[0] for times in sent]) - served.first_token_ns[whole]
    e2e = np.array([times[-1] for times in sent]) - served.end_ns[whole]

    def quantiles(values: npt.NDArray[np.int64]) -> dict[str, float]:
        return {f"p{p}": round(float(np.quantile(np.abs(values), p / 100)) / 1e6, 4) for p in (50, 95, 99, 100)}

    return {"requests": len(whole), "ttft_ms": quantiles(ttft), "e2e_ms": quantiles(e2e)}


def study_figures(warehouse: Path, study_id: str) -> dict[str, tuple[float | None, float | None, float | None]]:
    with Warehouse.open(warehouse, read_only=True) as store:
        frame = figures(store.con, study_id)
    rows = frame[frame["figure"].isin(FIGURES)].to_dict("records")
    return {row["figure"]: (row["value"], row["lo"], row["hi"]) for row in rows}


def overlap(one: tuple[Any, Any, Any], two: tuple[Any, Any, Any]) -> bool:
    lo = max(bounds[1] for bounds in (one, two) if bounds[1] is not None)
    hi = min((bounds[2] for bounds in (one, two) if bounds[2] is not None), default=lo)
    return bool(lo <= hi)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=12, help="requests per second")
    parser.add_argument("--seconds", type=float, default=10, help="length of each of the five windows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_engine(CONFIG) as engine:
            measured = run_study(manifest_of(engine.url, options.rate, options.seconds), folder / "real.duckdb")
            truth = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=60).json()
        simulated = simulate_study(
            manifest_of(None, options.rate, options.seconds), folder / "virtual.duckdb", [System("same", CONFIG)]
        )
        real, virtual = (study_figures(done.warehouse, done.study_id) for done in (measured, simulated))
    replay = replayed(truth["requests"])
    agree = {figure: {"real": real[figure], "virtual": virtual[figure]} for figure in FIGURES}
    holds = {
        "replayed_within_2_ms": max(replay["ttft_ms"]["p99"], replay["e2e_ms"]["p99"]) <= LIMIT_MS,
        "intervals_overlap": all(overlap(real[figure], virtual[figure]) for figure in FIGURES),
    }
    print(json.dumps({"replayed": replay, "figures": agree, "invalid_runs": measured.invalid, **holds}))
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
