import pytest

from tfbench.core.errors import UsageError
from tfbench.engine import EngineConfig, StepTime, config_from_json, config_to_json


def test_a_config_survives_json() -> None:
    config = EngineConfig(model="m", max_num_seqs=3, mean_output_tokens=7.5, step_time=StepTime(1.0, 2.0, 3.0, 4.0))
    assert config_from_json(config_to_json(config)) == config
    assert config_from_json("{}") == EngineConfig()
    assert config_from_json('{"step_time": {"base_ms": 3}}').step_time == StepTime(base_ms=3)


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
    ],
)
def test_what_cannot_work_is_named(text: str, names: str) -> None:
    with pytest.raises(UsageError, match=names) as caught:
        config_from_json(text)
    assert "\n" not in str(caught.value)
