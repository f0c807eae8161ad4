from typing import Any

import orjson
import pytest

from tfbench.bounds import Roofline, Work, kv_capacity_tokens
from tfbench.core.errors import UsageError
from tfbench.engine import EngineConfig, StepTime, config_from_json, config_to_json
from tfbench.engine.config import Hardware
from tfbench.engine.step_time import duration_ns

H100 = Hardware(device="h100-sxm", model="llama-3.1-8b")


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(model="m", max_num_seqs=3, mean_output_tokens=7.5, step_time=StepTime(1.0, 2.0, 3.0, 4.0)),
        EngineConfig(batching="static", chunked_prefill=False, kv_blocks=9, prefix_reuse=True, overload_status=429),
        EngineConfig(hardware=Hardware("h100-sxm", "llama-3.1-70b", weights="int4", tp=2, link="nvlink", reserve=0.2)),
    ],
)
def test_a_config_survives_json(config: EngineConfig) -> None:
    assert config_from_json(config_to_json(config)) == config


def test_what_is_absent_keeps_its_default() -> None:
    assert config_from_json("{}") == EngineConfig()
    assert config_from_json('{"step_time": {"base_ms": 3}}').step_time == StepTime(base_ms=3)
    assert config_from_json('{"hardware": null}').hardware is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"max_seqs": 1}', "max_num_seqs"),
        ('{"step_time": {"bas_ms": 1}}', "step_time.bas_ms"),
        ('{"step_time": 3}', "step_time"),
        ('{"step_time": {"base_ms": -1}}', "step_time.base_ms"),
        ('{"step_time": {"base_ms": "1"}}', "step_time.base_ms"),
        ('{"model": ""}', "model"),
        ('{"max_num_seqs": 0}', "max_num_seqs"),
        ('{"max_num_seqs": true}', "max_num_seqs"),
        ('{"max_num_seqs": 2.0}', "max_num_seqs"),
        ('{"max_num_seqs": 99, "max_num_batched_tokens": 98}', "max_num_batched_tokens"),
        ('{"max_waiting": -1}', "max_waiting"),
        ('{"mean_output_tokens": 0.5}', "mean_output_tokens"),
        ('{"spin_us": null}', "spin_us"),
        ('{"ingress_us": -1}', "ingress_us: expected a number from 0 to 6e"),
        ('{"ingress_us": 1e300}', "ingress_us"),
        ('{"ingress_gap_us": "1"}', "ingress_gap_us"),
        ('{"egress_us": true}', "egress_us"),
        ('{"batching": "dynamic"}', 'batching: expected "iteration" or "static"'),
        ('{"batching": []}', "batching"),
        ('{"chunked_prefill": 1}', "chunked_prefill: expected true or false"),
        ('{"prefix_reuse": null}', "prefix_reuse"),
        ('{"overload_status": 500}', "overload_status: expected 429 or 503"),
        ('{"overload_status": true}', "overload_status"),
        ('{"overload_status": 503.0}', "overload_status"),
        ('{"overload_status": []}', "overload_status"),
        ('{"block_tokens": 0}', "block_tokens"),
        ('{"kv_blocks": 0}', "kv_blocks"),
        ('{"kv_blocks": "all"}', "kv_blocks"),
        ('{"hardware": 3}', "hardware: expected a table"),
        ('{"hardware": {}}', "hardware.device: not given"),
        ('{"hardware": {"device": "h100-sxm"}}', "hardware.model: not given"),
        ('{"hardware": {"device": "h100-sxm", "model": "llama-3.1-8b", "gpus": 2}}', "hardware.gpus: no such setting"),
        ('{"hardware": {"device": 1, "model": "llama-3.1-8b"}}', "hardware.device: expected a name"),
        ('{"misbehave": 1}', "misbehave"),
        ('{"step_time": null}', "step_time"),
        ('{"step_time": {"base_ms": 1e300}}', "step_time.base_ms: expected a number from 0 to 3.6e"),
        ('{"kv_blocks": 1000000000000}', "kv_blocks: expected a whole number of at most 20000000"),
        ('{"kv_blocks": 1, "block_tokens": 1000000000}', "block_tokens: expected a whole number of at most 1000000"),
        ('{"max_num_seqs": 10000000, "max_num_batched_tokens": 10000000}', "max_num_seqs: expected"),
        ('{"max_num_batched_tokens": 1000000000000000000}', "max_num_batched_tokens: expected"),
        ('{"max_waiting": 1000000000000000000}', "max_waiting: expected"),
    ],
)
def test_what_cannot_work_is_named(text: str, names: str) -> None:
    with pytest.raises(UsageError, match=names) as caught:
        config_from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"device": "h100"}, 'no profile "h100"'),
        ({"model": "llama"}, 'no profile "llama"'),
        ({"model": "llama-3.1-70b"}, r"needs 141\.\d+ GB of weights a device, .* has 85\.52 GB"),
        ({"model": "llama-3.1-70b", "tp": 128}, "tp = 128"),
        ({"tp": 3}, "tp = 3 does not split"),
        ({"tp": 0}, "hardware.tp"),
        ({"tp": 2, "link": "string"}, 'no link "string"'),
        ({"weights": "fp3"}, "fp3"),
        ({"kv": 8}, "hardware.kv: expected a name"),
        ({"overlap": 1}, "hardware.overlap"),
        ({"overhead_s": -1}, "hardware.overhead_s"),
        ({"reserve": 1.0}, "reserve"),
        ({"reserve": -0.1}, "reserve"),
        ({"reserve": 0.9}, "no KV fits"),
        ({"link": ""}, "hardware.link"),
    ],
)
def test_hardware_that_cannot_work_is_named(changes: dict[str, Any], says: str) -> None:
    document = {"hardware": {"device": "h100-sxm", "model": "llama-3.1-8b"} | changes}
    with pytest.raises(UsageError, match=says) as caught:
        config_from_json(orjson.dumps(document).decode())
    assert "\n" not in str(caught.value)


def test_hardware_says_how_long_a_step_takes_and_how_much_context_there_is() -> None:
    config = EngineConfig(hardware=H100, max_model_len=200_000, block_tokens=32)
    model = config.step_model
    assert isinstance(model, Roofline)
    assert duration_ns(model, Work(0, 1, 100)) > 5_000_000
    assert config.kv_total_blocks == kv_capacity_tokens(model, 0.1) // 32
    assert config.context_tokens == model.shape.max_context == 131_072
    few = EngineConfig(hardware=H100, kv_blocks=100)
    assert (few.kv_total_blocks, few.context_tokens) == (100, 1_600)
    with pytest.raises(UsageError, match=r"kv_blocks: 100000 blocks of 16 tokens don't fit; .* room for \d+"):
        EngineConfig(hardware=H100, kv_blocks=100_000)
    with pytest.raises(UsageError, match="step_time: hardware says"):
        EngineConfig(hardware=H100, step_time=StepTime(1.0))
    with pytest.raises(UsageError, match="no room for one KV block of 1000000 tokens"):
        EngineConfig(hardware=H100, block_tokens=1_000_000)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        (EngineConfig(), 32_768),
        (EngineConfig(kv_blocks=10), 160),
        (EngineConfig(kv_blocks=10, block_tokens=4), 40),
        (EngineConfig(kv_blocks=10_000, max_model_len=77), 77),
    ],
)
def test_the_longest_request(config: EngineConfig, tokens: int) -> None:
    assert config.context_tokens == tokens
