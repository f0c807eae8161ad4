"""What can be set on the reference engine; a value that can't work is a `UsageError` naming the field."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import orjson

from tfbench.core.errors import UsageError
from tfbench.engine.step_time import StepTime


@dataclass(frozen=True)
class EngineConfig:
    """The engine's settings. Token counts are whitespace words.

    model               the only model name served
    max_model_len       longest prompt + output of a request
    max_num_seqs        most sequences in one step
    max_num_batched_tokens  token budget of a step: one per decoding sequence, the rest prefills prompts in chunks
    max_waiting         requests that may wait for a slot; further ones get 503
    default_max_tokens  output limit of a request that names none
    mean_output_tokens  None: a reply runs to its limit. Else replies end by themselves (`stop`) after a geometric
                        number of tokens with this mean, unless the request sets `ignore_eos`
    step_time           how long a step takes
    spin_us             busy wait before each step's end, for exact step times at the price of CPU time
    keep_requests, keep_chunks  how many finished requests, and chunks of them, are kept for /tfbench/requests
    """

    model: str = "tfbench-engine"
    max_model_len: int = 32_768
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2_048
    max_waiting: int = 10_000
    default_max_tokens: int = 128
    mean_output_tokens: float | None = None
    step_time: StepTime = field(default_factory=StepTime)
    spin_us: float = 100.0
    keep_requests: int = 100_000
    keep_chunks: int = 10_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise UsageError(f"engine model: expected a name, got {self.model!r}")
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "default_max_tokens"):
            _check_int(name, getattr(self, name), least=1)
        for name in ("max_waiting", "keep_requests", "keep_chunks"):
            _check_int(name, getattr(self, name), least=0)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise UsageError(
                f"engine max_num_batched_tokens: {self.max_num_batched_tokens} is less than max_num_seqs "
                f"({self.max_num_seqs}), so a full batch could not decode; raise it"
            )
        if self.mean_output_tokens is not None:
            _check_number("mean_output_tokens", self.mean_output_tokens, least=1.0)
        _check_number("spin_us", self.spin_us, least=0.0)
        if not isinstance(self.step_time, StepTime):
            raise UsageError(f"engine step_time: expected a table, got {self.step_time!r}")
        for coefficient in dataclasses.fields(StepTime):
            _check_number(f"step_time.{coefficient.name}", getattr(self.step_time, coefficient.name), least=0.0)


def _check_int(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"engine {name}: expected a whole number of at least {least}, got {value!r}")


def _check_number(name: str, value: object, *, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise UsageError(f"engine {name}: expected a number of at least {least:g}, got {value!r}")


def config_to_json(config: EngineConfig) -> str:
    """`config` as JSON text that `config_from_json` takes."""
    return orjson.dumps(dataclasses.asdict(config)).decode()


def config_from_json(text: str) -> EngineConfig:
    """The config of a JSON object; absent fields keep their defaults. Raises UsageError."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"engine config: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise UsageError("engine config: expected a JSON object")
    values: dict[str, Any] = dict(document)
    _check_names(values, EngineConfig, "")
    if "step_time" in values:
        coefficients = values["step_time"]
        if not isinstance(coefficients, dict):
            raise UsageError(f"engine step_time: expected a table, got {coefficients!r}")
        _check_names(coefficients, StepTime, "step_time.")
        values["step_time"] = StepTime(**coefficients)
    return EngineConfig(**values)


def _check_names(values: dict[str, Any], kind: type[EngineConfig] | type[StepTime], prefix: str) -> None:
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise UsageError(f"engine {prefix}{name}: no such setting; there are {', '.join(known)}")
