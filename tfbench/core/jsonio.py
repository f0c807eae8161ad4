"""JSON as the project reads, writes and hashes it."""

import hashlib
import math
from typing import Any

import orjson
import rfc8785


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 canonical JSON of `value` (str keys; finite numbers; |int| < 2**53)."""
    return rfc8785.dumps(value)


def sha256_hex(data: bytes) -> str:
    """Lower-case hex sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def canonical_sha256(value: Any) -> str:
    """sha256 of the RFC 8785 form of `value`."""
    return sha256_hex(canonical_bytes(value))


def finite(value: Any) -> Any:
    """`value` with every NaN or infinite float replaced by None, through dicts, lists and tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def dump_text(value: Any, *, indent: bool = False) -> str:
    """JSON text of `value`; NumPy scalars and arrays are taken; NaN and inf become null."""
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    if indent:
        option |= orjson.OPT_INDENT_2
    return orjson.dumps(value, option=option).decode()
