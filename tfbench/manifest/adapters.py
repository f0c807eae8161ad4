"""Engine profiles from adapters/*.toml: how an engine speaks, what it understands, what it calls its metrics."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Outcome
from tfbench.core.resources import data_dir
from tfbench.manifest.base import Table, Text
from tfbench.manifest.body import Extra, Fields
from tfbench.manifest.models import Accounting

CanonicalMetric = Literal[
    "ttft_seconds",
    "itl_seconds",
    "tpot_seconds",
    "e2e_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "requests_finished",
    "requests_rejected",
    "running",
    "waiting",
    "kv_usage",
    "prefix_queries",
    "prefix_hits",
    "preemptions",
]
"""Names under which a profile maps an engine's Prometheus series.

`*_seconds` are histograms (series without _bucket, _sum, _count) unless the engine has only a counter of seconds;
tokens, requests, prefix and preemptions are counters; running, waiting (requests) and kv_usage (0 to 1) are gauges.
"""


class _File(Table):
    """The shape of adapters/NAME.toml."""

    title: Text
    dialect: Literal["openai_chat", "openai_completions"]
    include_usage: bool
    ignore_eos: bool
    connections: Literal["pooled", "per_request"] = "pooled"
    fields: Fields = Field({})
    extra: Extra = Field({})
    id_echo: Literal["header", "id"] | None = None
    metrics_path: Annotated[str, StringConstraints(pattern=r"^/")] | None = None
    metrics: dict[CanonicalMetric, Text] = Field({})
    accounting: Accounting = Accounting()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.metrics and self.metrics_path is None:
            raise ValueError("metrics need metrics_path")
        return self


@dataclass(frozen=True, slots=True)
class AdapterProfile:
    """What is known of an engine before it is asked.

    `include_usage`: it answers `stream_options.include_usage`; `ignore_eos`: it understands that flag, and it is sent
    unless the manifest says otherwise; `connections`: "per_request" where it is known to close kept-alive ones as new
    requests come; `fields` and `extra`: body fields that it wants renamed, left out or added; `id_echo`: where our
    X-Request-Id comes back ("header", inside the body's "id", or None); `metrics_path`: Prometheus page below the
    server's root; `metric_map`: canonical name to series; `bad` and `excluded`: accounting where the manifest has none.
    """

    name: str
    title: str
    dialect: str
    include_usage: bool
    ignore_eos: bool
    connections: str
    fields: Mapping[str, str | Literal[False]]
    extra: Mapping[str, Any]
    id_echo: str | None
    metrics_path: str | None
    metric_map: Mapping[str, str]
    bad: tuple[Outcome, ...]
    excluded: tuple[Outcome, ...]


def adapter_names() -> tuple[str, ...]:
    """The adapters that ship with this installation, sorted."""
    return tuple(sorted(path.stem for path in data_dir("adapters").glob("*.toml")))


def adapter(name: str) -> AdapterProfile:
    """The profile `name`; ManifestError with the nearest name where there is none."""
    names = adapter_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise ManifestError(f'endpoint.adapter: no adapter "{name}"; {hint}there are: {", ".join(names) or "none"}')
    return read_adapter(data_dir("adapters") / f"{name}.toml")


@cache
def read_adapter(path: Path) -> AdapterProfile:
    """The profile in the file `path`; ManifestError names the file and the field."""
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ManifestError(f"{path}: {error}; mend the adapter file") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ManifestError(f"{path}: {where}: {first['msg']}; mend the adapter file") from None
    return AdapterProfile(
        name=path.stem,
        title=file.title,
        dialect=file.dialect,
        include_usage=file.include_usage,
        ignore_eos=file.ignore_eos,
        connections=file.connections,
        fields=MappingProxyType(file.fields),
        extra=MappingProxyType(file.extra),
        id_echo=file.id_echo,
        metrics_path=file.metrics_path,
        metric_map=MappingProxyType({str(key): series for key, series in file.metrics.items()}),
        bad=file.accounting.bad,
        excluded=file.accounting.excluded,
    )
