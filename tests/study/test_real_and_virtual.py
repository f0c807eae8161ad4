"""One scheduler, two clocks: what a served engine did is what virtual time gives for the arrivals it recorded."""

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
from tfbench.study import run_study

STEPS = StepTime(base_ms=4.0, prefill_token_ms=0.02, decode_seq_ms=0.1, context_token_ms=0.001)
MANIFEST = {
    "model": {"name": "tfbench-engine"},
    "endpoint": {"adapter": "tfbench"},
    "workload": {"input_tokens": {"dist": "uniform", "min": 4, "max": 90}, "output_tokens": 24},
    "load": {"rates": [60], "count": 80, "warmup_s": 0, "repeats": 1, "drain_s": 30},
}
TRIES = 5
"""A machine that is too busy makes the engine set its time anew, which `step_overruns` tells; then once more."""


def served_study(config: EngineConfig, folder: Path) -> list[dict[str, Any]]:
    """The requests that an engine served in a study, the probe included, as it recorded them."""
    for number in range(TRIES):
        with start_engine(config) as engine:
            manifest = parse_manifest(MANIFEST | {"endpoint": {"adapter": "tfbench", "url": engine.url}}, "test")
            run_study(manifest, folder / f"{number}.duckdb")
            page = httpx.get(f"{engine.root_url}/metrics", timeout=30).text
            requests: list[dict[str, Any]] = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=30).json()[
                "requests"
            ]
        [overruns] = [line.split()[1] for line in page.splitlines() if line.startswith("tfbench:step_overruns_total")]
        if float(overruns) == 0:
            return requests
    raise AssertionError(f"the engine fell behind in each of {TRIES} runs")


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
    requests = sorted(served_study(config, tmp_path), key=lambda one: one["arrival_ns"])
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
