"""`--set a.b=value`: parsing, and putting the value into a document."""

import datetime
import tomllib
from typing import Any

from tfbench.core.errors import ManifestError
from tfbench.manifest.base import one_line

UNSET = "null"
"""The bare word that unsets a key, since TOML has no null: `--set load.duration_s=null`."""

_HINT = "write --set table.key=value, for example --set load.rates=[2,4]"


def parse_set(text: str) -> tuple[tuple[str, ...], Any]:
    """The key path and the value of one `--set`; None is the value that removes the key.

    The value is a TOML literal. What isn't one is taken as text, unless it begins like a list, a table or a quoted
    text, where a missing bracket would otherwise go unnoticed. ManifestError never quotes the value.
    """
    key, sign, literal = text.partition("=")
    key, literal = key.strip(), literal.strip()
    shown = f"--set {one_line(key[:80])}" if key else "--set"
    if not sign:
        raise ManifestError(f'{shown}: there is no "="; {_HINT}')
    path = _parse_key(key)
    if path is None:
        raise ManifestError(f"{shown}: the key is not a dotted path; {_HINT}")
    if not literal:
        raise ManifestError(f'{shown}: there is no value; write "" for an empty text, {UNSET} to remove the key')
    if literal == UNSET:
        return path, None
    return path, _parse_value(literal, shown)


def _parse_key(key: str) -> tuple[str, ...] | None:
    if not key or not key.isprintable() or not _encodable(key):
        return None
    try:
        node: Any = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(node, dict):
        # A comment sign in the key leaves nothing behind, an inline table more than one thing.
        if len(node) != 1:
            return None
        [(part, node)] = node.items()
        path.append(part)
    return tuple(path)


def _parse_value(literal: str, shown: str) -> Any:
    if not _encodable(literal):
        raise ManifestError(f"{shown}: the value is not UTF-8; {_HINT}")
    try:
        parsed = tomllib.loads(f"value = {literal}")
    except (ValueError, RecursionError):
        if literal[0] in "[{\"'":
            raise ManifestError(f"{shown}: the value is not a TOML literal; check brackets and quotes") from None
        return literal
    if set(parsed) != {"value"}:
        return literal
    value = parsed["value"]
    # No key takes a date; 2024-05-01 is then a revision or a version.
    return literal if isinstance(value, datetime.date | datetime.time) else value


def _encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def put(document: dict[str, Any], path: tuple[str, ...], value: Any, *, keep_null: bool = False) -> None:
    """Sets `path` in `document` to `value`, making tables on the way; None removes the key unless `keep_null`.

    A whole number steps into a list that is there (cost.resources.0.hourly). ManifestError where the way is barred.
    """
    shown = one_line(".".join(path))
    node: Any = document
    for depth, part in enumerate(path):
        here = one_line(".".join(path[:depth])) or "the manifest"
        last = depth == len(path) - 1
        if isinstance(node, list):
            if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node)):
                raise ManifestError(f"--set {shown}: {here} is a list of {len(node)}; give an index or the list")
            if last and value is None:
                raise ManifestError(f"--set {shown}: an entry of a list can't be removed; give the whole list")
            key: Any = int(part)
        elif isinstance(node, dict):
            key = part
        else:
            raise ManifestError(f"--set {shown}: {here} is not a table, so it has no keys; set {here} itself")
        if last:
            if value is None and not keep_null:
                node.pop(key, None)
            else:
                node[key] = value
        else:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
