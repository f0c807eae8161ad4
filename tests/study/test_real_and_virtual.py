"""One scheduler, two clocks: what a served engine did is what virtual time gives, for the arrivals that it recorded to
the nanosecond, from the schedule within the figures' intervals."""

import dataclasses
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tfbench.engine.config import EngineConfig
from tfbench.engine.process import start_engine
from tfbench.engine.records import stage_events
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import VirtualEngine
from tfbench.manifest import parse_manifest
from tfbench.metrics import figures
from tfbench.study import StudyDone, run_study
from tfbench.study.simulate import System, simulate_study
from tfbench.warehouse import Warehouse

STEPS = StepTime(base_ms=4.0, prefill_token_ms=0.02, decode_seq_ms=0.1, context_token_ms=0.001)
MANIFEST = {
    "model": {"name": "tfbench-engine"},
    "endpoint": {"adapter": "tfbench"},
    "workload": {"input_tokens": {"dist": "uniform", "min": 4, "max": 90}, "output_tokens": 24},
    "load": {"rates": [60], "count": 80, "warmup_s": 0, "repeats": 1, "drain_s": 30},
}
TRIES = 5
"""A machine that is too busy makes the engine set its time anew, which `step_overruns` tells; then once more."""


def served_study(
    config: EngineConfig, document: dict[str, Any], folder: Path
) -> tuple[StudyDone, list[dict[str, Any]]]:
    """A study against an engine of its own, and the requests as that recorded them, the probe's included."""
    for number in range(TRIES):
        with start_engine(config) as engine:
            manifest = parse_manifest(document | {"endpoint": {"adapter": "tfbench", "url": engine.url}}, "test")
            done = run_study(manifest, folder / f"{number}.duckdb", reruns=0)
            page = httpx.get(f"{engine.root_url}/metrics", timeout=30).text
            requests: list[dict[str, Any]] = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=30).json()[
                "requests"
            ]
        [overruns] = [line.split()[1] for line in page.splitlines() if line.startswith("tfbench:step_overruns_total")]
        if float(overruns) == 0:
            return done, requests
    raise AssertionError(f"the engine fell behind in each of {TRIES} runs")


def intervals(done: StudyDone) -> dict[str, tuple[float, float]]:
    """The intervals of some figures; an end that is withheld is as far off as the other."""
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = figures(store.con, done.study_id).set_index("figure").to_dict("index")
    found = {}
    for name in ("ttft_p50_ms", "e2e_p50_ms", "tpot_p50_ms"):
        value, lo, hi = (rows[name][column] for column in ("value", "lo", "hi"))
        found[name] = (lo, hi if hi is not None and hi == hi else 2 * value - lo)
    return found


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(step_time=STEPS, max_num_seqs=5, max_num_batched_tokens=48),
        EngineConfig(step_time=STEPS, max_num_seqs=12, block_tokens=4, kv_blocks=120),
    ],
    ids=["chunks", "preemption"],
)
def test_recorded_arrivals_give_the_recorded_steps(config: EngineConfig, tmp_path: Path) -> None:
    """Queue, prompt chunks, decode steps with their batches, preemptions: equal to the nanosecond."""
    requests = sorted(served_study(config, MANIFEST, tmp_path)[1], key=lambda one: one["arrival_ns"])
    assert len(requests) == 81
    virtual = VirtualEngine(config)
    sequences = [virtual.submit(one["arrival_ns"], one["prompt_tokens"], one["max_tokens"]) for one in requests]
    virtual.drain()
    for one, seq in zip(requests, sequences, strict=True):
        assert one["status"] == 200 and seq is not None
        # Through JSON, as the recorded ones came.
        assert orjson.loads(orjson.dumps(stage_events(seq, virtual.decode_batches(seq), 0))) == one["events"]
        assert virtual.token_times(seq).tolist() == one["chunks"]["due_ns"][1:-1], "beside role and usage"
    events = [event for one in requests for event in one["events"]]
    if config.kv_blocks is None:
        assert any(event["attrs"]["steps"] > 1 for event in events if event["stage"] == "prefill")
        assert any(event["end_ns"] > event["start_ns"] for event in events if event["stage"] == "queue")
    else:
        assert "preempted" in {event["stage"] for event in events}


def test_from_the_schedule_the_figures_agree_within_their_intervals(tmp_path: Path) -> None:
    """Users in a closed loop: whatever it is that lies between client and scheduler, it makes a request miss the step
    that begins when the answer before it has come, so that leaving it out would halve TTFT."""
    config = EngineConfig(step_time=StepTime(base_ms=20.0, prefill_token_ms=0.1, decode_seq_ms=1.0))
    load = {"mode": "closed", "concurrency": [3], "count": 40, "warmup_s": 0, "repeats": 3, "drain_s": 30}
    lengths = {"dist": "uniform", "min": 4, "max": 30}  # equal ones would keep the users in step, or for ever out of it
    workload = {"input_tokens": {"dist": "uniform", "min": 4, "max": 90}, "output_tokens": lengths}
    document = MANIFEST | {"load": load, "workload": workload}
    real = intervals(served_study(config, document, tmp_path)[0])
    manifest = parse_manifest(document, "test")

    def simulated(config: EngineConfig) -> dict[str, tuple[float, float]]:
        path = tmp_path / f"virtual-{config.ingress_us:g}.duckdb"
        return intervals(simulate_study(manifest, path, [System("same", config)]))

    virtual, bare = simulated(config), simulated(dataclasses.replace(config, ingress_us=0.0, egress_us=0.0))

    def overlap(one: tuple[float, float], two: tuple[float, float]) -> bool:
        return max(one[0], two[0]) <= min(one[1], two[1])

    assert {name: overlap(real[name], virtual[name]) for name in real} == dict.fromkeys(real, True), (real, virtual)
    assert not overlap(real["ttft_p50_ms"], bare["ttft_p50_ms"])
