"""pydantic's errors told in one line: the place, what is wrong, and the mend."""

import difflib
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tfbench.manifest.base import Table, one_line
from tfbench.manifest.dists import DISTS, TAG
from tfbench.manifest.models import Manifest

Loc = tuple[int | str, ...]

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_unicode": "valid Unicode",
    "bool_type": "true or false",
    "dict_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
}
_COMPARED = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_CHOICES = ("literal_error", "enum", "model_type")
_COMMON = ("max",)
"""Keys that mean something else in each table, so that one table's is no hint for another's."""
_PRIVATE = ("headers", "url", "args")


def explain(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """The key path of the first error of a Manifest, and "path: what is wrong; the mend".

    An unknown key comes first, since it is often why another one is missing.
    """
    details = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    loc, text = _explain(details[0])
    return tuple(str(part) for part in loc), one_line(f"{_path(loc)}: {text}" if loc else text)


def _explain(item: ErrorDetails) -> tuple[Loc, str]:
    raw, kind, context = item["loc"], item["type"], item.get("ctx", {})
    loc = tuple(part for part in raw if not str(part).startswith(TAG))
    if kind == "refusal":
        return (*loc, *context["at"]), str(context["text"])
    if kind == "extra_forbidden":
        return loc, _unknown(raw)
    if kind == "missing" and loc == ("model",):
        return ("model", "name"), 'is required; add [model] with name = "…"'
    _, key, field = _locate(raw)
    example = f"; for example {key} = {field.examples[0]}" if field is not None and field.examples else ""
    if kind == "missing":
        return loc, f"is required; add it{example}"
    return loc, f"{_wrong(item, context, field)}{'' if kind in _CHOICES else example}"


def _wrong(item: ErrorDetails, context: Mapping[str, Any], field: FieldInfo | None) -> str:
    kind, value = item["type"], item["input"]
    got = "" if any(part in _PRIVATE for part in item["loc"]) else f", got {_describe(value)}"
    if kind == "model_type":
        return f"expected a table{got}; write it as [{_path(item['loc'])}]"
    if kind == "union_tag_not_found":
        return f"needs dist, one of {', '.join(DISTS)}"
    if kind in _EXPECTED:
        quote = "; write it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"expected {_EXPECTED[kind]}{got}{quote}"
    if kind in _COMPARED:
        bound = _COMPARED[kind]
        return f"must be {_WORDS[bound]} {_number(context[bound])}{got}"
    if kind in _CHOICES:
        return f"expected {str(context['expected']).replace(chr(39), chr(34))}{got}{_near(value, context['expected'])}"
    if kind == "union_tag_invalid":
        name = str(context["tag"]).removeprefix(TAG)
        return f'has no dist "{name}", expected {", ".join(DISTS)}{_near(name, " ".join(DISTS))}'
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    if kind in ("too_long", "string_too_long"):
        return f"is too long; at most {context['max_length']}"
    if kind == "string_pattern_mismatch" and field is not None and field.description:
        return f"must be {field.description}{got}"
    return f"{item['msg'][:1].lower()}{item['msg'][1:]}{got}"


def _near(value: Any, choices: str) -> str:
    names = choices.replace("'", " ").replace(",", " ").split()
    near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
    return f'; did you mean "{near[0]}"?' if near else ""


def _unknown(raw: Loc) -> str:
    table, _, _ = _locate(raw[:-1])
    key = str(raw[-1])
    own = tuple(table.model_fields) if table is not None else ()
    prefix = tuple(part for part in raw[:-1] if not str(part).startswith(TAG))
    everywhere = _all_keys(prefix)
    near = difflib.get_close_matches(key, own, n=1, cutoff=0.7)
    if near:
        return f"unknown key; did you mean {_path((*prefix, near[0]))}?"
    if key in everywhere:
        return f"unknown key here; it is {_path((*everywhere[key], key))}, so move it there"
    far = difflib.get_close_matches(key, everywhere, n=1, cutoff=0.7)
    if far:
        return f"unknown key; did you mean {_path((*everywhere[far[0]], far[0]))}?"
    return f"unknown key; {_path(prefix) or 'the manifest'} has: {', '.join(own) or 'none'}"


def _all_keys(near: Loc) -> dict[str, Loc]:
    """Every key of a manifest with its table; of several, the one below `near`, else the first."""
    found: dict[str, Loc] = {}
    tables: list[tuple[Loc, type[BaseModel]]] = [((), Manifest)]
    while tables:
        at, table = tables.pop(0)
        for key, field in table.model_fields.items():
            below_near = at[: len(near)] == near and found.get(key, ())[: len(near)] != near
            if below_near or (key not in found and key not in _COMMON):
                found[key] = at
            below = table_in(field.annotation)
            if below is not None:
                tables.append(((*at, key), below))
    return found


def _locate(loc: Loc) -> tuple[type[BaseModel] | None, str, FieldInfo | None]:
    """The table at `loc` if there is one, and the innermost field on the way there with its key."""
    table: type[BaseModel] | None = Manifest
    key, field = "", None
    for part in loc:
        if isinstance(part, int):
            continue
        if part.startswith(TAG):
            table = DISTS.get(part.removeprefix(TAG))
        elif table is not None and part in table.model_fields:
            key, field = part, table.model_fields[part]
            table = table_in(field.annotation)
        else:
            table = None
    return table, key, field


def has_null(path: tuple[str, ...]) -> bool:
    """Whether the key at `path` can be unset though its default isn't."""
    field = _locate(path)[2]
    return field is not None and field.default is not None and type(None) in typing.get_args(field.annotation)


def table_in(annotation: Any) -> type[BaseModel] | None:
    """The table that an annotation holds, distributions aside; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return None if annotation in DISTS.values() else annotation
    for inner in typing.get_args(annotation):
        found = table_in(inner)
        if found is not None:
            return found
    return None


def _path(loc: Loc) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _describe(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        # Printing an int of more than some thousand digits is itself an error.
        text = f'"{value}"' if isinstance(value, str) else "a huge number" if abs(value) > 1e300 else f"{value}"
        return text if len(text) <= 60 else f"{text[:57]}…"
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else "a date"
