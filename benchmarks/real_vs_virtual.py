"""One scheduler, two clocks: how far a served study and a simulated one lie apart.

Serves a study, then
- replays what the engine recorded of arrivals, and of clients that left, in virtual time: the difference of each TTFT
  and E2E, what really left the server against what the scheduler says (limit: 2 ms at p99);
- simulates the same manifest from its schedule: do the intervals of the quantiles of TTFT, E2E and TPOT overlap? Beside
  that, whether each difference is at most half the narrower interval;
- says what lay between client and scheduler, for `ingress_us` and `egress_us` of the engine's config.

Prints JSON; exit status 1 where either of the first two does not hold.
"""

import argparse
import dataclasses
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from tfbench.engine.config import EngineConfig, config_from_table
from tfbench.engine.process import start_engine
from tfbench.engine.scheduler import Sequence
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import VirtualEngine
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
REPEATS = 5
Bounds = tuple[float, float, float | None]
"""A figure: value, lower end, upper end (None: withheld)."""


@dataclass(frozen=True)
class Load:
    """What is sent: `rate` a second, or by `users` of a closed loop."""

    rate: float
    users: int | None
    seconds: float
    prompt_tokens: int
    seed: int

    def manifest(self, url: str | None, model: str) -> Manifest:
        load = {"rates": [self.rate]} if self.users is None else {"mode": "closed", "concurrency": [self.users]}
        lengths = {"dist": "lognormal", "mean": self.prompt_tokens, "cv": 0.8, "max": 10 * self.prompt_tokens}
        document = {
            "name": "real-and-virtual",
            "model": {"name": model},
            "endpoint": {"adapter": "tfbench", "url": url},
            "workload": {"input_tokens": lengths, "output_tokens": {"dist": "uniform", "min": 8, "max": 96}},
            "load": {"duration_s": self.seconds, "warmup_s": 2, "drain_s": 10, "repeats": REPEATS, "seed": self.seed}
            | load,
        }
        return parse_manifest(document, "real-and-virtual")


def replayed(config: EngineConfig, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Recorded arrivals, and when clients left, in virtual time, against what the server wrote and when."""
    engine = VirtualEngine(config)
    sequences: dict[int, Sequence] = {}
    events = [(one["arrival_ns"], i, False) for i, one in enumerate(requests)]
    events += [(one["end_ns"], i, True) for i, one in enumerate(requests) if one["finish_reason"] == "abort"]
    for at_ns, i, leaves in sorted(events):
        if leaves:
            engine.cancel(sequences[i], at_ns)
        else:
            seq = engine.submit(at_ns, requests[i]["prompt_tokens"], requests[i]["max_tokens"])
            assert seq is not None, "the engine took it"
            sequences[i] = seq
    engine.drain()
    whole = [i for i, one in enumerate(requests) if one["finish_reason"] in ("length", "stop")]
    sent = [requests[i]["chunks"]["sent_ns"] for i in whole]
    times = [engine.token_times(sequences[i]) for i in whole]
    ttft = np.array([real[0] - virtual[0] for real, virtual in zip(sent, times, strict=True)])
    e2e = np.array([real[-1] - virtual[-1] for real, virtual in zip(sent, times, strict=True)])

    def quantiles(values: npt.NDArray[np.int64]) -> dict[str, float]:
        return {f"p{p}": round(float(np.quantile(np.abs(values), p / 100)) / 1e6, 4) for p in (50, 95, 99, 100)}

    return {"requests": len(whole), "ttft_ms": quantiles(ttft), "e2e_ms": quantiles(e2e)}


def study_figures(warehouse: Path, study_id: str) -> dict[str, Bounds]:
    with Warehouse.open(warehouse, read_only=True) as store:
        frame = figures(store.con, study_id)
    rows = frame[frame["figure"].isin(FIGURES)].to_dict("records")
    return {row["figure"]: (row["value"], row["lo"], row["hi"]) for row in rows}


def compared(real: Bounds, virtual: Bounds) -> dict[str, Any]:
    """Two figures side by side; an end that is withheld is as far off as the other one."""
    (value, lo, hi), (other, other_lo, other_hi) = (
        (value, lo, 2 * value - lo if hi is None else hi) for value, lo, hi in (real, virtual)
    )
    narrower = min(hi - lo, other_hi - other_lo) / 2
    return {
        "real": real,
        "virtual": virtual,
        "difference": round(value - other, 4),
        "half_width": round(narrower, 4),
        "overlap": max(lo, other_lo) <= min(hi, other_hi),
        "within_half_width": abs(value - other) <= narrower,
    }


def ways_us(warehouse: Path, truth: dict[str, Any]) -> dict[str, Any]:
    """Due time to arrival, and a token's step end to the client, by request: their median and mean."""
    records = {one["request_id"]: one for one in truth["requests"]}
    with Warehouse.open(warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT a.request_id, greatest(scheduled_ns, coalesce(slot_ns, 0)), t_ns, kind, observed FROM attempts a"
            " JOIN streams USING (run_id, attempt_id) JOIN runs USING (run_id)"
            " WHERE role = 'load' AND outcome = 'ok' AND phase = 'measure'"
        ).fetchall()
    ingress, first, last = [], [], []
    for request_id, due_ns, times, kinds, observed in rows:
        record, shift = records[request_id], json.loads(observed)["clock_offset_ns"] - truth["clock"]["offset_ns"]
        chunks = record["chunks"]
        ends = [t for t, kind in zip(chunks["due_ns"], chunks["kind"], strict=True) if kind == "text"]
        seen = [t for t, kind in zip(times, kinds, strict=True) if kind == "text"]
        ingress.append(record["arrival_ns"] + shift - due_ns)
        first.append(seen[0] - ends[0] - shift)
        last.append(seen[-1] - ends[-1] - shift)

    def said(values: list[int]) -> dict[str, float]:
        return {"median": round(float(np.median(values)) / 1e3), "mean": round(float(np.mean(values)) / 1e3)}

    return {"ingress": said(ingress), "egress_first_token": said(first), "egress_last_token": said(last)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=12, help="requests per second")
    parser.add_argument("--users", type=int, help="a closed loop of so many users instead")
    parser.add_argument("--seconds", type=float, default=10, help=f"length of each of the {REPEATS} windows")
    parser.add_argument("--prompt-tokens", type=int, default=200, help="mean length of a prompt")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--config", type=json.loads, default={}, help="engine settings that differ, as JSON")
    options = parser.parse_args()
    config = config_from_table(dataclasses.asdict(CONFIG) | {"misbehave": {}} | options.config)
    load = Load(options.rate, options.users, options.seconds, options.prompt_tokens, options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_engine(config) as engine:
            measured = run_study(load.manifest(engine.url, config.model), folder / "real.duckdb")
            truth = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=60).json()
            page = httpx.get(f"{engine.root_url}/metrics", timeout=60).text
        simulated = simulate_study(
            load.manifest(None, config.model), folder / "virtual.duckdb", [System("same", config)]
        )
        real, virtual = (study_figures(done.warehouse, done.study_id) for done in (measured, simulated))
        ways = ways_us(measured.warehouse, truth)
    replay = replayed(config, truth["requests"])
    agree = {figure: compared(real[figure], virtual[figure]) for figure in FIGURES}
    holds = {
        "replayed_within_2_ms": max(replay["ttft_ms"]["p99"], replay["e2e_ms"]["p99"]) <= LIMIT_MS,
        "intervals_overlap": all(one["overlap"] for one in agree.values()),
    }
    within = all(one["within_half_width"] for one in agree.values())
    # A machine that stops the engine for long makes it set its time anew, which virtual time knows nothing of.
    [overruns] = re.findall(r"^tfbench:step_overruns_total\S* (\S+)", page, re.MULTILINE)
    found = {
        "replayed": replay,
        "step_overruns": float(overruns),
        "figures": agree,
        "ways_us": ways,
        "invalid_runs": measured.invalid,
    }
    print(json.dumps({**vars(options), **found, **holds, "within_half_widths": within}))
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
