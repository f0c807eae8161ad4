"""The page docs/manifest.md, generated from the models: `python -m tfbench.manifest.docs > docs/manifest.md`."""

import inspect
import sys
import types
import typing
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tfbench.manifest.adapters import adapter_names
from tfbench.manifest.models import Manifest
from tfbench.manifest.problems import table_in
from tfbench.manifest.toml import toml_value

_HEAD = """# The manifest

One TOML file is the contract of a study. Only `model.name` and an endpoint URL (`endpoint.url`, or `--url`) have no
default. Unknown keys are errors that name the nearest. `tfbench freeze` shows a manifest with every default resolved;
`--set table.key=VALUE` overrides a key with a TOML value; `--set table.key=null` unsets one, or takes it back to its
default where it can't be unset.

Token lengths, and think times in seconds, are a number or a distribution:
`{{ dist = "uniform", min = 64, max = 256 }}`,
`{{ dist = "lognormal", mean = 512, cv = 0.8, max = 4096 }}`, `{{ dist = "normal", mean = 512, sd = 64 }}`,
`{{ dist = "empirical", values = [128, 512], weights = [3, 1] }}`; as `input_tokens` also
`{{ dist = "empirical", pairs = [[512, 128], [64, 256]] }}`, which carries the output lengths too.

Adapters: {adapters}.

A key whose default is unset, and the tables below another (`load.retry` and the like), need not be given.

`workload_id` is the sha256 of workload, sampling, load, slo, quality and accounting (*the same test*), `system_id` of
model, engine, topology and endpoint (*the same thing tested*), `manifest_id` of everything.

<!-- Generated from tfbench/manifest by `python -m tfbench.manifest.docs`. -->
"""


def manifest_markdown() -> str:
    """The whole page."""
    parts = [_HEAD.format(adapters=", ".join(f"`{name}`" for name in adapter_names()))]
    for name, field in Manifest.model_fields.items():
        table = field.annotation
        if inspect.isclass(table) and issubclass(table, BaseModel):
            parts.append(_table(f"## [{name}]", table))
            parts += _below(name, table)
    return "\n".join(parts)


def _below(name: str, table: type[BaseModel]) -> list[str]:
    """The tables inside a table; a list of tables is marked by []."""
    parts: list[str] = []
    for key, field in table.model_fields.items():
        inner = table_in(field.annotation)
        if inner is not None:
            many = isinstance(field.get_default(), tuple)
            parts.append(_table(f"### {name}.{key}{'[]' if many else ''}", inner))
    return parts


def _table(title: str, table: type[BaseModel]) -> str:
    lines = [
        f"\n{title}",
        inspect.cleandoc(table.__doc__ or ""),
        "",
        "| key | default | for example |",
        "|---|---|---|",
    ]
    for key, field in table.model_fields.items():
        lines.append(f"| `{key}` | {_default(field)} | {_example(field)} |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "unset" if value is None else f"`{toml_value(value)}`"


def _example(field: FieldInfo) -> str:
    examples = [f"`{example}`" for example in field.examples or ()]
    choices = _choices(field.annotation)
    return ", ".join(dict.fromkeys((*choices, *examples)))


def _choices(annotation: Any) -> list[str]:
    """The words a field takes, where they are few."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [word for part in typing.get_args(annotation) for word in _choices(part)]
    if typing.get_origin(annotation) is typing.Literal:
        return [f'`"{word}"`' for word in typing.get_args(annotation)]
    if inspect.isclass(annotation) and issubclass(annotation, StrEnum):
        return [f'`"{word.value}"`' for word in annotation]
    return []


if __name__ == "__main__":
    sys.stdout.write(manifest_markdown())
