"""The manifest: one frozen model per table, with the issue's key names, defaults and bounds.

A model that exists is valid on its own. What depends on the adapter (dialect, ignore_eos, accounting) stays unset
here and is filled in by `freeze`.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from tfbench.core.kinds import Outcome
from tfbench.manifest.base import Count, NonNegative, Positive, Table, Text, Whole, refusal
from tfbench.manifest.body import Extra, Fields
from tfbench.manifest.dists import TAG
from tfbench.manifest.hooks import Hooks, check_served_engine
from tfbench.manifest.limits import MAX_RUN_S, MAX_SAFE_INT, MAX_TOKENS, MAX_USERS
from tfbench.manifest.load import Load
from tfbench.manifest.secrets import clean_url, header_problem, secret_in_args
from tfbench.manifest.workload import Workload

DEFAULT_BAD = tuple(outcome for outcome in Outcome if outcome not in (Outcome.OK, Outcome.CANCELLED))
DEFAULT_EXCLUDED = (Outcome.CANCELLED,)

_Texts = Annotated[tuple[Text, ...], Field(strict=False, max_length=10_000)]
_Outcomes = Annotated[tuple[Annotated[Outcome, Field(strict=False)], ...], Field(strict=False)]
_Wait = Annotated[Positive, Field(le=MAX_RUN_S)]
# So that no price overflows, whatever its currency, and none vanishes in sums.
MAX_HOURLY = 1e9
MAX_RESOURCES = 1e6
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Model(Table):
    """Which weights are served, and in which precisions (weights, activations, KV cache)."""

    name: Text = Field(examples=['"llama-3.1-8b"'])
    revision: Text | None = Field(None, examples=['"main"'])
    tokenizer: Text | None = Field(None, examples=['"meta-llama/Llama-3.1-8B-Instruct"'])
    chat_template_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="64 lower-case hex digits"
    )
    weights: Text | None = Field(None, examples=['"bf16"'])
    activations: Text | None = Field(None, examples=['"bf16"'])
    kv: Text | None = Field(None, examples=['"fp8"'])
    lora: _Texts = Field((), examples=['["adapter-a"]'])


def _check_args(value: Any) -> Any:
    if isinstance(value, list | tuple):
        if not all(isinstance(arg, str) for arg in value):
            raise refusal('must be a list of texts; for example ["--max-num-seqs=8"]')
        value = tuple(value)
    elif isinstance(value, dict):
        for key, arg in value.items():
            if not isinstance(key, str) or not isinstance(arg, str | int | float):
                raise refusal("must be a text, a number, true or false", str(key))
            if not isinstance(arg, str) and not abs(arg) <= MAX_SAFE_INT:
                raise refusal("is too large a number; write it as text, in quotes", key)
    else:
        raise refusal('must be a list of texts or a table; for example ["--max-num-seqs=8"] or { max-num-seqs = 8 }')
    secret = secret_in_args(value)
    if secret is not None:
        raise refusal(f'"{secret}" holds a literal secret; leave it out or write "env:NAME"')
    return value


class Engine(Table):
    """What serves the model. `args` is its command line, as a list or as a table of flags."""

    name: Text | None = Field(None, examples=['"vllm"'])
    version: Text | None = Field(None, examples=['"0.32.0"'])
    commit: Text | None = Field(None, examples=['"dbd26210"'])
    image_digest: Text | None = Field(None, examples=['"sha256:…"'])
    args: Annotated[tuple[str, ...] | dict[str, str | bool | int | float], BeforeValidator(_check_args)] = Field(
        (), examples=['["--max-num-seqs=8"]']
    )


class Topology(Table):
    """What it runs on. Unknown stays unset."""

    gpu: Text | None = Field(None, examples=['"H100-SXM"'])
    gpus: Annotated[Whole, Field(ge=0)] | None = Field(None, examples=["8"])
    nodes: Count | None = Field(None, examples=["1"])
    tp: Count | None = Field(None, examples=["8"])
    pp: Count | None = Field(None, examples=["1"])
    ep: Count | None = Field(None, examples=["1"])
    dp: Count | None = Field(None, examples=["1"])
    roles: dict[str, Count] = Field({}, examples=["{ prefill = 2, decode = 1 }"])
    interconnect: Text | None = Field(None, examples=['"nvlink"'])
    power_cap_w: Positive | None = Field(None, examples=["700"])


class Timeouts(Table):
    """Limits of one attempt in seconds: connecting, sent to first byte, silence within a stream, the whole attempt."""

    connect_s: _Wait = Field(5.0, examples=["5"])
    first_byte_s: _Wait = Field(60.0, examples=["60"])
    idle_s: _Wait = Field(30.0, examples=["30"])
    total_s: _Wait = Field(600.0, examples=["600"])


def _check_url(value: str) -> str:
    try:
        return clean_url(value)
    except ValueError as error:
        raise refusal(str(error)) from None


def _check_headers(value: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for name, text in value.items():
        problem = header_problem(name, text)
        if name.lower() in seen:
            problem = "is given twice; header names ignore case"
        if problem is not None:
            raise refusal(problem, name)
        seen.add(name.lower())
    return value


class Endpoint(Table):
    """Where requests go and how they are spoken. `url` ends in /v1; header secrets are "env:NAME".

    A Unix socket is written "http+unix://%2Fpath%2Fto.sock/v1". `connections` says who shares one: all requests
    (pooled), none (per_request), or those of one session, which in a closed loop is a user (per_session). `preconnect`
    of them are opened before the run.

    `fields` fits the body to the server: it names fields of the request, each with another name to send it under, or
    false to leave it out. `include_usage` asks for token counts (`stream_options`); unset, it is asked where the
    adapter says so, unless the server refuses that field. What is unset of `dialect` and `connections` is the
    adapter's, and so are those `fields` that aren't named here.
    """

    adapter: Text = Field("openai", examples=['"vllm"'])
    url: Annotated[Text, AfterValidator(_check_url)] | None = Field(None, examples=['"http://127.0.0.1:8000/v1"'])
    dialect: Literal["openai_chat", "openai_completions"] | None = Field(None, examples=['"openai_chat"'])
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(
        {}, examples=['{ Authorization = "env:API_KEY" }']
    )
    stream: bool = Field(True, examples=["true"])
    include_usage: bool | None = Field(None, examples=["false"])
    fields: Fields = Field({}, examples=['{ max_tokens = "max_completion_tokens", temperature = false }'])
    connections: Literal["pooled", "per_request", "per_session"] | None = Field(None, examples=['"pooled"'])
    preconnect: Annotated[Whole, Field(ge=0, le=MAX_USERS)] = Field(0, examples=["16"])
    timeouts: Timeouts = Timeouts()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.preconnect and self.connections == "per_request":
            raise refusal('has no meaning with connections = "per_request"; remove it', "preconnect")
        return self


_UNSETTABLE = ("temperature", "top_p", "seed", "max_tokens", "ignore_eos")


class Sampling(Table):
    """What each request asks for. Unset values are not sent; "unset" unsets one that has a default.

    `ignore_eos` is sent only where it is true; unset means the adapter's default. `extra` holds further fields of the
    request, whatever the server takes.
    """

    temperature: NonNegative | None = Field(0.0, examples=["0"])
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(None, examples=["0.95"])
    seed: Annotated[Whole, Field(ge=0)] | None = Field(None, examples=["1"])
    max_tokens: Annotated[Count, Field(le=MAX_TOKENS)] | None = Field(None, examples=["512"])
    stop: Annotated[tuple[Text, ...], Field(strict=False, max_length=16)] = Field((), examples=['["###"]'])
    ignore_eos: bool | None = Field(None, examples=["true"])
    extra: Extra = Field({}, examples=["{ top_k = 40, min_p = 0.05 }"])

    @model_validator(mode="before")
    @classmethod
    def _unset(cls, data: Any) -> Any:
        # TOML has no null.
        if not isinstance(data, dict):
            return data
        return {key: None if value == "unset" and key in _UNSETTABLE else value for key, value in data.items()}


_PERCENTILE = re.compile(r"p(?!0+(\.0+)?$)\d{1,2}(\.\d+)?")


def _limit(value: Any) -> Any:
    # { max = x } and x are the same limit and must hash alike.
    if isinstance(value, dict) and set(value) == {"max"}:
        return value["max"]
    if isinstance(value, dict):
        raise refusal("must be milliseconds or { max = milliseconds }; for example 500")
    return value


def _gap_limit(value: Any) -> Any:
    if not isinstance(value, dict) or set(value) == {"max"}:
        return _limit(value)
    if len(value) != 1 or not all(isinstance(key, str) and _PERCENTILE.fullmatch(key) for key in value):
        raise refusal("must be one of milliseconds, { max = … } or a percentile; for example { p99 = 100 }")
    [(key, number)] = value.items()
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MAX_SAFE_INT:
        raise refusal("must be milliseconds above 0; for example { p99 = 100 }", key)
    return {key: float(number)}


def _gap_tag(value: Any) -> str | None:
    return f"{TAG}percentile" if isinstance(value, dict) else f"{TAG}number"


_Limit = Annotated[Positive | None, BeforeValidator(_limit)]
_GapLimit = Annotated[
    Annotated[Positive, Tag("@number")] | Annotated[dict[str, float], Tag("@percentile")],
    Discriminator(_gap_tag),
    BeforeValidator(_gap_limit),
]


class Slo(Table):
    """Limits in milliseconds that make an attempt good. A plain number and { max = … } mean the same.

    `icl_ms` bounds the gaps between an attempt's output chunks: their maximum, or a percentile as { p99 = … }.
    """

    ttft_ms: _Limit = Field(None, examples=["500"])
    tpot_ms: _Limit = Field(None, examples=["50"])
    icl_ms: _GapLimit | None = Field(None, examples=["{ p99 = 100 }"])
    e2e_ms: _Limit = Field(None, examples=["10000"])


class Quality(Table):
    """Who judges the output's text."""

    judge: Literal["none"] = Field("none", examples=['"none"'])


class Accounting(Table):
    """What a unit of work is, and which outcomes count against the system (bad) or not at all (excluded)."""

    unit: Literal["attempt", "task"] = Field("attempt", examples=['"attempt"'])
    bad: _Outcomes = Field(DEFAULT_BAD, examples=['["timeout", "rejected", …]'])
    excluded: _Outcomes = Field(DEFAULT_EXCLUDED, examples=['["cancelled"]'])

    @model_validator(mode="after")
    def _check(self) -> Self:
        for outcome in Outcome:
            name = f'"{outcome.value}"'
            times = self.bad.count(outcome) + self.excluded.count(outcome)
            if outcome is Outcome.OK and times:
                raise refusal(f"{name} is neither bad nor excluded; remove it", _where(outcome, self.excluded))
            if outcome in (Outcome.UNFINISHED, Outcome.UNSENT) and outcome in self.excluded:
                raise refusal(f"{name} can't be excluded, or a stall would look well; move it to bad", "excluded")
            if outcome is not Outcome.OK and times == 0:
                raise refusal(f"{name} is in neither bad nor excluded; add it to one of them")
            if times > 1:
                raise refusal(f"{name} is listed {times} times in bad and excluded; keep it in exactly one of them")
        return self


def _where(outcome: Outcome, excluded: tuple[Outcome, ...]) -> str:
    return "excluded" if outcome in excluded else "bad"


class Resource(Table):
    """One thing that is paid for while the system serves."""

    name: Text = Field(examples=['"H100"'])
    hourly: Annotated[NonNegative, Field(le=MAX_HOURLY)] = Field(examples=["2.5"])
    count: Annotated[Positive, Field(le=MAX_RESOURCES)] = Field(1.0, examples=["1"])


class Cost(Table):
    """Prices per hour of everything the system occupies."""

    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = Field(
        "USD", description="three capital letters", examples=['"USD"']
    )
    resources: Annotated[tuple[Resource, ...], Field(strict=False)] = Field(
        (), examples=['[{ name = "H100", hourly = 2.5, count = 1 }]']
    )


class Storage(Table):
    """What is kept beside the facts: `text` keeps prompts and outputs."""

    text: bool = Field(False, examples=["false"])


class Manifest(Table):
    """The whole contract of a study. Only `model.name` and, to run it, `endpoint.url` have no default."""

    name: _Name = Field("manifest", description="a line of text", examples=['"chat-8b"'])
    model: Model
    engine: Engine = Engine()
    topology: Topology = Topology()
    endpoint: Endpoint = Endpoint()
    sampling: Sampling = Sampling()
    workload: Workload = Workload.model_validate({})
    load: Load = Load.model_validate({})
    slo: Slo = Slo()
    quality: Quality = Quality()
    accounting: Accounting = Accounting()
    cost: Cost = Cost()
    storage: Storage = Storage()
    hooks: Hooks = Hooks()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for i, one in enumerate(self.workload.classes):
            if one.lora is not None and one.lora not in self.model.lora:
                raise refusal(f'"{one.lora}" is not in model.lora; add it there', "workload", "classes", i, "lora")
        cancel = self.load.cancel
        if cancel is not None and cancel.after_chunks is not None and not self.endpoint.stream:
            raise refusal("needs endpoint.stream = true; give after_s instead", "load", "cancel", "after_chunks")
        prime = self.load.prime
        if prime is not None and prime.set == "prefix" and not self.workload.shared_prefix_tokens:
            text = 'has no prefix to prime: set workload.shared_prefix_tokens, or { set = "prompts", count = 64 }'
            raise refusal(text, "load", "prime")
        if self.hooks.flush is not None and self.load.cache is None:
            raise refusal('needs load.cache; set it to "cold" (or "warm": flushed, then primed)', "hooks", "flush")
        if self.hooks.serves_engine:
            check_served_engine(self.engine.args, self.endpoint.url)
        return self
