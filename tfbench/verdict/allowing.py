"""What may differ, by name: `--allow`, and a policy's `allow`, checked against the manifest's keys."""

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tfbench.core.errors import UsageError
from tfbench.manifest import Manifest

ANY_KIND = ("test", "cache", "simulated")
"""Names that are no manifest keys: any of the test, the prefix cache's hits, simulated against measured."""
_SCALARS = (str, int, float, bool, type(None))


def check_allowed(names: Sequence[str], label: str) -> None:
    """Raises UsageError, which begins with `label`, for a name that nothing could ever differ by."""
    keys = manifest_keys()
    for name in names:
        if name in ANY_KIND or _is_key(name, keys):
            continue
        raise UsageError(f'{label}: no manifest key "{name[:80]}"{_near(name, keys)}')


def manifest_keys() -> dict[str, Any]:
    """Every key of a manifest, with dots, and its annotation."""
    return dict(_keys((), Manifest))


def _is_key(name: str, keys: Mapping[str, Any]) -> bool:
    if name in keys:
        return True
    # Below a key that holds no table, as engine.args or a distribution, any name may stand.
    parts = name.split(".")
    above = next((one for n in range(len(parts) - 1, 0, -1) if (one := ".".join(parts[:n])) in keys), None)
    return all(parts) and above is not None and not _is_closed(keys[above])


def _is_closed(annotation: Any) -> bool:
    """Whether nothing stands below a key: it is a table whose keys are known, or a single value."""
    if _table(annotation) is not None:
        return True
    return all(_is_scalar(one) for one in _choices(annotation))


def _is_scalar(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Literal:
        return True
    return isinstance(annotation, type) and issubclass(annotation, _SCALARS)


def _choices(annotation: Any) -> Iterator[Any]:
    """The members of a union, with what annotates them taken off."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _choices(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for one in typing.get_args(annotation):
            yield from _choices(one)
    else:
        yield annotation


def _table(annotation: Any) -> type[BaseModel] | None:
    """The one table that a key holds; None for a value, or where it can be one of several."""
    tables = [one for one in _choices(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    return tables[0] if len(tables) == 1 else None


def _keys(at: tuple[str, ...], table: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for key, field in table.model_fields.items():
        yield ".".join((*at, key)), field.annotation
        below = _table(field.annotation)
        if below is not None:
            yield from _keys((*at, key), below)


def _near(name: str, keys: Mapping[str, Any]) -> str:
    # A key without its table is nearest to the key of that name.
    last = {key.rpartition(".")[2]: key for key in reversed(list(keys))}
    whole = difflib.get_close_matches(name, (*keys, *ANY_KIND), n=1, cutoff=0.75)
    bare = difflib.get_close_matches(name.rpartition(".")[2], last, n=1, cutoff=0.75)
    near = whole[0] if whole else last[bare[0]] if bare else None
    if near is None:
        return f"; name one as load.repeats, or {', '.join(ANY_KIND)}"
    return f'; did you mean "{near}"?'
