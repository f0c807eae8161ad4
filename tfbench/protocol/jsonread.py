"""JSON as servers write it: strict and fast first, forgiving where that fails."""

import json
from typing import Any

import orjson

_COUNT_LIMIT = 2**31  # token columns are int32


def loads(data: bytes) -> Any:
    """The value of `data`; raises ValueError where there is none.

    What orjson refuses is read once more with bytes that aren't UTF-8 replaced by U+FFFD (as the
    standard for event streams says), and with NaN, Infinity, raw control characters in strings
    and lone surrogates (also made U+FFFD) allowed.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return _scrubbed(json.loads(data.decode("utf-8", "replace"), strict=False))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _scrubbed(value: Any) -> Any:
    """`value` with lone surrogates replaced: they can't be stored as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
    return value


def count(value: Any) -> int | None:
    """`value` as a token count, None where it can't be one."""
    return value if type(value) is int and 0 <= value < _COUNT_LIMIT else None
