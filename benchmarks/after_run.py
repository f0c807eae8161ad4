"""CPU seconds from the spool of 6,000 × 64 chunks to figures, step by step. One JSON line.

    python benchmarks/after_run.py --requests 6000

The spool comes from a real load on the truth server at a modest rate (20 s by default). `read` decodes it; `assemble`
makes the ledger's tables; `bundle` writes them; `ingest` takes the bundle into a new warehouse; `figures` reads every
figure from there. CPU time of this process and its threads; loading the libraries is apart, as `imports`.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

LIMIT_S = 3.0


class Meter:
    """CPU seconds per named step."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._mark = time.process_time()

    def step(self, name: str) -> None:
        """What was spent since the last call belongs to `name`; an empty name belongs to nobody."""
        now = time.process_time()
        if name:
            self.steps[name] = round(now - self._mark, 3)
        self._mark = now


def measure(requests: int, rate: float, seed: int) -> dict[str, Any]:
    meter = Meter()
    import duckdb  # noqa: F401
    import pandas as pd
    import pyarrow.parquet  # noqa: F401
    import scipy.stats  # noqa: F401

    from tfbench import metrics
    from tfbench.load.readback import WorkerReader
    from tfbench.study.fidelity import offer, prepare, start_truth
    from tfbench.study.run_one import close_run
    from tfbench.warehouse import Warehouse

    pd.DataFrame({"x": [1.0]}).describe()
    meter.step("imports")
    with tempfile.TemporaryDirectory() as name, start_truth() as truth:
        folder = Path(name)
        load = {"rates": [rate], "count": requests, "warmup_s": 0, "drain_s": 10, "seed": seed}
        context, plan = prepare(truth.url, load, folder)
        # The study's first run carries the probe's row, and nobody probed here.
        plan = replace(plan, order_index=1)
        offered = offer(context, plan)
        jobs, base, end = offered.jobs, offered.base, offered.end
        sizes = [worker.spool_path.stat().st_size for worker in end.workers]
        del offered
        meter.step("")
        readers = [WorkerReader(worker.spool_path, worker.worker) for worker in end.workers]
        chunks = sum(len(call.decoded.kinds) for reader in readers for batch in reader.batches() for call in batch)
        meter.step("decode")
        done = close_run(context, plan, jobs[0].run_id, list(jobs), base, end)
        meter.step("close")  # decodes once more, assembles, measures signals and writes the bundle
        with Warehouse.open(folder / "w.duckdb") as store:
            meter.step("open")
            store.ingest(done.bundle)
            meter.step("ingest")
            figures = metrics.figures(store.con, context.study_id)
            meter.step("figures")
    steps = meter.steps
    close = steps.pop("close")
    steps["assemble_and_bundle"] = round(max(close - steps["decode"], 0.0), 3)
    total = sum(value for name, value in steps.items() if name not in ("imports", "open"))
    return {
        "requests": requests,
        "chunks": chunks,
        "spool_mb": round(sum(sizes) / 1e6, 1),
        "figures": len(figures),
        "cpu_s": steps,
        "total_cpu_s": round(total, 3),
        "limit_cpu_s": LIMIT_S,
        "as_it_should": total <= LIMIT_S,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--rate", type=float, default=300, help="requests per second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    figures = measure(options.requests, options.rate, options.seed)
    print(json.dumps(figures))
    sys.exit(not figures["as_it_should"])


if __name__ == "__main__":
    main()
