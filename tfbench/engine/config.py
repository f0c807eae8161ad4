"""What can be set on the reference engine; a value that can't work is a `UsageError` naming the field."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import orjson

from tfbench.bounds import Roofline, device, kv_capacity_tokens, model_shape
from tfbench.core.errors import UsageError
from tfbench.engine.misbehave import Misbehaviour, misbehaviour
from tfbench.engine.step_time import StepModel, StepTime

Batching = Literal["iteration", "static"]
_OVERLOAD_STATUSES = (429, 503)
_MOST = 1_000_000_000
_MOST_SEQS = 1_000_000
_MOST_BLOCKS = 20_000_000
_LONGEST_STEP_MS = 3_600_000.0
_LONGEST_WAY_US = 60e6


@dataclass(frozen=True)
class Hardware:
    """What a step runs on, in place of `step_time`: its time is then the roofline's, its KV what memory leaves.

    device, model   names of shipped profiles (profiles/devices, profiles/models), or paths to such files
    weights, activations, kv, tables, tp, link, overlap, overhead_s   as in `tfbench.bounds.Roofline`
    reserve         share of the device's memory that neither weights nor KV may take
    """

    device: str
    model: str
    weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"
    tables: str | None = None
    tp: int = 1
    link: str | None = None
    overlap: bool = False
    overhead_s: float = 0.0
    reserve: float = 0.1

    def __post_init__(self) -> None:
        for name in ("device", "model", "weights", "activations", "kv"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise UsageError(f"engine hardware.{name}: expected a name, got {value!r}")
        for name in ("tables", "link"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise UsageError(f"engine hardware.{name}: expected a name, got {value!r}")
        _check_int("hardware.tp", self.tp, least=1)
        _check_bool("hardware.overlap", self.overlap)
        _check_number("hardware.overhead_s", self.overhead_s, least=0.0)
        _check_number("hardware.reserve", self.reserve, least=0.0)

    def roofline(self) -> Roofline:
        """The model on the device. Raises UsageError for names that aren't there and for what can't work."""
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(Roofline) if hasattr(self, f.name)}
        del shared["device"]
        return Roofline(device=device(self.device), shape=model_shape(self.model), **shared)


@dataclass(frozen=True)
class EngineConfig:
    """The engine's settings. Token counts are whitespace words.

    model               the model name served
    loras               names of adapters of it, served as models of their own
    max_model_len       longest prompt + output of a request
    max_num_seqs        most sequences in one step
    max_num_batched_tokens  token budget of a step: one per decoding sequence, the rest prefills prompts in chunks
    batching            "iteration": sequences join and leave between steps. "static": a batch is taken up when the one
                        before is done, and its slots stay taken until its last sequence ends
    chunked_prefill     False: a prompt is computed whole, in a step without decoding, before decoding goes on
    max_waiting         requests that may wait for a slot; further ones get `overload_status`
    overload_status     429 or 503
    block_tokens        tokens in one block of KV
    kv_blocks           blocks of KV; None: as many as `hardware` leaves room for, or no limit where there is none
    prefix_reuse        keep the KV of prompts and reuse it for prompts that begin alike
    default_max_tokens  output limit of a request that names none
    mean_output_tokens  None: a reply runs to its limit. Else replies end by themselves (`stop`) after a geometric
                        number of tokens with this mean, unless the request sets `ignore_eos`
    step_time           how long a step takes, or
    hardware            what it runs on, whence its time follows
    misbehave           which share of the requests goes wrong, and how
    spin_us             least busy wait before each step's end, for exact step times at the price of CPU time; where
                        wake-ups come late the engine wakes earlier, by up to 1 ms or a fifth of the step
    ingress_us, egress_us  what lies between client and scheduler in a simulated study: from a request's due time to its
                        arrival in the queue, and from a step's end to its tokens at the client
    ingress_gap_us      requests that come together arrive one after another, so far apart. The defaults of these three
                        are about what this engine takes, served on loopback; a served one takes what it takes
    keep_requests, keep_chunks  how many finished requests, and chunks of them, are kept for /tfbench/requests
    """

    model: str = "tfbench-engine"
    loras: tuple[str, ...] = ()
    max_model_len: int = 32_768
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2_048
    batching: Batching = "iteration"
    chunked_prefill: bool = True
    max_waiting: int = 10_000
    overload_status: int = 503
    block_tokens: int = 16
    kv_blocks: int | None = None
    prefix_reuse: bool = False
    default_max_tokens: int = 128
    mean_output_tokens: float | None = None
    step_time: StepTime = field(default_factory=StepTime)
    hardware: Hardware | None = None
    misbehave: Misbehaviour = field(default_factory=Misbehaviour)
    spin_us: float = 100.0
    ingress_us: float = 750.0
    ingress_gap_us: float = 200.0
    egress_us: float = 60.0
    keep_requests: int = 100_000
    keep_chunks: int = 10_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise UsageError(f"engine model: expected a name, got {self.model!r}")
        if not isinstance(self.loras, tuple) or not all(isinstance(name, str) and name for name in self.loras):
            raise UsageError(f"engine loras: expected a list of names, got {self.loras!r}")
        for name in ("max_model_len", "max_num_batched_tokens", "default_max_tokens"):
            _check_int(name, getattr(self, name), least=1)
        for name in ("max_num_seqs", "block_tokens"):
            _check_int(name, getattr(self, name), least=1, most=_MOST_SEQS)
        for name in ("max_waiting", "keep_requests", "keep_chunks"):
            _check_int(name, getattr(self, name), least=0)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise UsageError(
                f"engine max_num_batched_tokens: {self.max_num_batched_tokens} is less than max_num_seqs "
                f"({self.max_num_seqs}), so a full batch could not decode; raise it"
            )
        if self.batching not in get_args(Batching):
            raise UsageError(f'engine batching: expected "iteration" or "static", got {self.batching!r}')
        if not isinstance(self.overload_status, int) or self.overload_status not in _OVERLOAD_STATUSES:
            raise UsageError(f"engine overload_status: expected 429 or 503, got {self.overload_status!r}")
        for name in ("chunked_prefill", "prefix_reuse"):
            _check_bool(name, getattr(self, name))
        if self.kv_blocks is not None:
            _check_int("kv_blocks", self.kv_blocks, least=1, most=_MOST_BLOCKS)
        if self.mean_output_tokens is not None:
            _check_number("mean_output_tokens", self.mean_output_tokens, least=1.0)
        _check_number("spin_us", self.spin_us, least=0.0)
        for name in ("ingress_us", "ingress_gap_us", "egress_us"):
            _check_number(name, getattr(self, name), least=0.0, most=_LONGEST_WAY_US)
        for name, kind in (("step_time", StepTime), ("misbehave", Misbehaviour)):
            if not isinstance(getattr(self, name), kind):
                raise UsageError(f"engine {name}: expected a table, got {getattr(self, name)!r}")
        for coefficient in dataclasses.fields(StepTime):
            _check_number(
                f"step_time.{coefficient.name}",
                getattr(self.step_time, coefficient.name),
                least=0.0,
                most=_LONGEST_STEP_MS,
            )
        self._check_hardware()

    def _check_hardware(self) -> None:
        if self.hardware is None:
            return
        if not isinstance(self.hardware, Hardware):
            raise UsageError(f"engine hardware: expected a table, got {self.hardware!r}")
        if self.step_time != StepTime():
            raise UsageError("engine step_time: hardware says how long a step takes; leave one of the two out")
        if (self.kv_total_blocks or 0) > _MOST_BLOCKS:
            raise UsageError(
                f"engine hardware: there is room for {self.kv_total_blocks:,} KV blocks of {self.block_tokens} tokens, "
                f"at most {_MOST_BLOCKS:,} are kept count of; raise block_tokens, or lower the device's memory"
            )
        if self.kv_total_blocks == 0:
            raise UsageError(
                f"engine hardware: beside the weights there is no room for one KV block of {self.block_tokens} tokens; "
                "take a larger device, quantise, or raise tp"
            )

    @cached_property
    def step_model(self) -> StepModel:
        """How long a step takes."""
        return self.step_time if self.hardware is None else self.hardware.roofline()

    @cached_property
    def kv_total_blocks(self) -> int | None:
        """Blocks of KV there are; None = no limit."""
        model = self.step_model
        if self.hardware is None or isinstance(model, StepTime):
            return self.kv_blocks
        room = kv_capacity_tokens(model, self.hardware.reserve) // self.block_tokens
        if self.kv_blocks is None or room == 0:
            return room
        if self.kv_blocks > room:
            raise UsageError(
                f"engine kv_blocks: {self.kv_blocks} blocks of {self.block_tokens} tokens don't fit; "
                f"{self.hardware.device} has room for {room} beside {self.hardware.model}'s weights"
            )
        return self.kv_blocks

    @cached_property
    def context_tokens(self) -> int:
        """Longest prompt + output served: `max_model_len`, unless the model's own limit or the whole KV is less."""
        limits = [self.max_model_len]
        model = self.step_model
        if not isinstance(model, StepTime):
            limits.append(model.shape.max_context)
        if self.kv_total_blocks is not None:
            limits.append(self.kv_total_blocks * self.block_tokens)
        return min(limits)


def _check_int(name: str, value: object, *, least: int, most: int = _MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"engine {name}: expected a whole number of at least {least}, got {value!r}")
    if value > most:
        raise UsageError(f"engine {name}: expected a whole number of at most {most}, got {value!r}")


def _check_number(name: str, value: object, *, least: float, most: float = math.inf) -> None:
    number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else value
    if not (math.isfinite(number) and least <= number <= most):
        limits = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise UsageError(f"engine {name}: expected a number {limits}, got {value!r}")


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"engine {name}: expected true or false, got {value!r}")


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
    return config_from_table(document)


def config_from_table(table: Mapping[str, Any]) -> EngineConfig:
    """The config whose fields are in `table`, nested ones as tables. Raises UsageError."""
    values = dict(table)
    _check_names(values, EngineConfig, "")
    if "step_time" in values:
        values["step_time"] = StepTime(**_table(values["step_time"], StepTime, "step_time"))
    if values.get("hardware") is not None:
        hardware = _table(values["hardware"], Hardware, "hardware")
        for name in ("device", "model"):
            if name not in hardware:
                raise UsageError(f"engine hardware.{name}: not given; name a profile or a file")
        values["hardware"] = Hardware(**hardware)
    if "misbehave" in values:
        values["misbehave"] = misbehaviour(values["misbehave"])
    if isinstance(values.get("loras"), list):
        values["loras"] = tuple(values["loras"])
    return EngineConfig(**values)


def _table(value: object, kind: type, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"engine {name}: expected a table, got {value!r}")
    _check_names(value, kind, f"{name}.")
    return value


def _check_names(values: Mapping[str, Any], kind: type, prefix: str) -> None:
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise UsageError(f"engine {prefix}{name}: no such setting; there are {', '.join(known)}")
