"""Values as TOML text: for docs, and for people who paste a difference into a manifest."""

import json
import re
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(part: str) -> str:
    """One part of a dotted key, quoted where it must be."""
    return part if _BARE.fullmatch(part) else _text(part)


def toml_value(value: Any) -> str:
    """A value on one line. TOML has no null: unset keys of a table are left out."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, StrEnum | str):
        return _text(str(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        held = ", ".join(f"{toml_key(str(k))} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {held} }}" if held else "{}"
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return str(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
