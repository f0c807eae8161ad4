"""Reading profiles: TOML tables in which every number has bounds and says where it comes from.

An error is one line that names the file, the field and the mend.
"""

import difflib
import math
import reprlib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from tfbench.core.errors import UsageError
from tfbench.core.resources import data_dir

_LARGEST_COUNT = 10**9


def shown(value: object) -> str:
    """A value as an error names it: its repr, cut where long."""
    return reprlib.repr(value)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a finite number; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def profile_names(kind: str) -> tuple[str, ...]:
    """The profiles of a kind (devices, models) that ship with this installation, sorted."""
    return tuple(sorted(path.stem for path in (data_dir("profiles") / kind).glob("*.toml")))


def profile_path(kind: str, name_or_path: str | Path) -> Path:
    """The file of a shipped profile's name, or the path itself where it is one (a Path, with a slash, or .toml)."""
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    names = profile_names(kind)
    if name_or_path not in names:
        near = difflib.get_close_matches(name_or_path, names, n=1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise UsageError(
            f'{kind}: no profile "{name_or_path}"; {hint}there are: {", ".join(names) or "none"}; or give a .toml file'
        )
    return data_dir("profiles") / kind / f"{name_or_path}.toml"


@dataclass(frozen=True)
class Table:
    """A TOML table under reading. Every `take` marks its key as known; `done` refuses the others."""

    file: str
    at: str
    values: dict[str, object]
    known: list[str] = field(default_factory=list)

    def error(self, key: str, problem: str) -> UsageError:
        """The error of a key, to be raised: `problem` says what is wrong and, after a semicolon, the mend."""
        where = f"{self.at}{key}"
        return UsageError(f"{self.file}: {where if where.isprintable() else ascii(where)}: {problem}")

    def take(self, key: str, mend: str, *, optional: bool = False) -> object:
        """The value of `key`; None where an optional one is absent."""
        if key not in self.known:
            self.known.append(key)
        if key not in self.values and not optional:
            raise self.error(key, f"missing; {mend}")
        return self.values.get(key)

    def text(self, key: str, mend: str) -> str:
        """A text that isn't blank."""
        value = self.take(key, mend)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"{shown(value)} is no text; {mend}")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.take(key, "give true or false")
        if not isinstance(value, bool):
            raise self.error(key, f"{shown(value)} is neither true nor false; give one of them")
        return value

    def count(self, key: str) -> int:
        """A whole number, 1 or more."""
        value = self.take(key, "give a whole number, 1 or more")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
            raise self.error(key, f"{shown(value)} is no whole number from 1 to {_LARGEST_COUNT:,}; give one")
        return value

    def table(self, key: str, mend: str) -> "Table":
        """The table below `key`."""
        value = self.take(key, mend)
        if not isinstance(value, dict):
            raise self.error(key, f"{shown(value)} is no table; {mend}")
        return Table(self.file, f"{self.at}{key}.", value)

    def done(self) -> None:
        """Refuse keys that nothing has taken."""
        for key in self.values:
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, n=1)
                hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(self.known)}"
                raise self.error(key, f"unknown; {hint}")


def read_table(path: Path) -> Table:
    """The file `path` as a table; UsageError where it can't be read or isn't TOML."""
    try:
        return Table(str(path), "", tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give a profile's name or an existing .toml file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not TOML ({error}); mend the profile") from None


def read_quantity(parent: Table, key: str, unit: str, *, sheet: bool = False, zero: bool = False) -> tuple[float, str]:
    """The quantity in the table `key`, and its source: { value, source[, attainable, attainable_source] }.

    `attainable` is the share of `value` that can be had in practice, for a value from a data sheet; the quantity is
    their product. `sheet`: the share can't be left out. `zero`: the value may be zero.
    """
    wants = "value, source, attainable and attainable_source" if sheet else "value and source"
    table = parent.table(key, f"add [{parent.at}{key}] with {wants}, the value in {unit}")
    value = table.take("value", f"give it in {unit}")
    if not is_number(value):
        raise table.error("value", f"{shown(value)} is no finite number; give it in {unit}")
    if value < 0 or (value == 0 and not zero):
        raise table.error(
            "value", f"{shown(value)} is not {'zero or more' if zero else 'above zero'}; give it in {unit}"
        )
    source = table.text("source", "say where the number comes from")
    share = table.take(
        "attainable", "give the share of the value that is attainable, 1 if it was measured", optional=not sheet
    )
    if share is not None:
        if not is_number(share) or not 0 < share <= 1:
            raise table.error("attainable", f"{shown(share)} is no share; give one above 0, at most 1")
        source = f"{source}; attainable: {table.text('attainable_source', 'say where the share comes from')}"
    table.done()
    return float(value) * float(1 if share is None else share), source
