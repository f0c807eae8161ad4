"""Recorded arrivals: from a file of timestamps to the seconds that `load.timestamps` holds.

They are read when the manifest is, and become part of it: a frozen manifest holds the numbers themselves, so it can be
run anywhere, and its ids say which arrivals were replayed, not where a file lay.
"""

import csv
import datetime
import difflib
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import orjson

from tfbench.core.errors import ManifestError
from tfbench.manifest.base import one_line
from tfbench.manifest.files import read_text
from tfbench.manifest.limits import MAX_RUN_S, MAX_TIMESTAMPS

UNITS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
COLUMNS = ("timestamp", "arrival_timestamp", "arrival_time", "arrived_at")
"""Names of a column of timestamps, in lower case, in order of preference."""

_KEYS = ("file", "column", "unit")
_FRACTION = re.compile(r"(.*:\d\d)[.,](\d+)(.*)")
_EPOCH = datetime.datetime(1970, 1, 1)
_Cells = Iterator[tuple[int, Any]]


def read_arrivals(source: str | Mapping[str, Any], folder: Path, where: str) -> list[float]:
    """Seconds from the first timestamp of the file, in its order; to whole nanoseconds.

    `source` is a path (relative to `folder`) or a table with `file`, and perhaps `column` and `unit` (s, ms, us, ns).
    The file holds one number a line; or lines of JSON objects; or CSV with a header. Numbers are seconds unless `unit`
    says otherwise; ISO dates are taken too. Blank lines and lines that begin with # are passed over. ManifestError
    begins with `where`, then names the file and the line.
    """
    file, column, unit = _parts({"file": source} if isinstance(source, str) else source, where)
    where = f"{where}: {one_line(file)}"
    text = read_text(folder / file, where, "file of timestamps")
    arrivals: list[float] = []
    first = last = (Decimal(0), "")
    for line, cell in _cells(text, column, where):
        moment = _moment(cell, f"{where}: line {line}")
        if not arrivals:
            first = last = moment
        if moment[1] != first[1]:
            raise ManifestError(f"{where}: line {line}: {moment[1]} after {first[1]}; give one kind")
        if moment[0] < last[0]:
            raise ManifestError(f"{where}: line {line}: earlier than the one before it; sort the file by time")
        if len(arrivals) == MAX_TIMESTAMPS:
            raise ManifestError(f"{where}: more than {MAX_TIMESTAMPS:,} timestamps; give a part of the file")
        last = moment
        scale = UNITS[unit] if moment[1] == _NUMBER else Decimal(1)
        arrivals.append(round(float((moment[0] - first[0]) * scale), 9))
    if not arrivals:
        raise ManifestError(f"{where}: holds no timestamp; give one a line")
    if arrivals[-1] > MAX_RUN_S:
        mend = 'are they perhaps in milliseconds? then { file = "…", unit = "ms" }' if unit == "s" else "give a part"
        raise ManifestError(f"{where}: spans {arrivals[-1]:,.0f} s, over the limit of {MAX_RUN_S:,.0f}; {mend}")
    return arrivals


_NUMBER = "a number"


def _parts(source: Mapping[str, Any], where: str) -> tuple[str, str | None, str]:
    for key, value in source.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            mend = f"did you mean {near[0]}?" if near else f"it has: {', '.join(_KEYS)}"
            raise ManifestError(one_line(f"{where}.{key}: unknown key; {mend}"))
        if not isinstance(value, str) or not value:
            raise ManifestError(f'{where}.{key}: expected a text; for example {{ file = "arrivals.csv", unit = "ms" }}')
    if "file" not in source:
        raise ManifestError(f'{where}.file: is required; add it; for example file = "arrivals.csv"')
    unit = source.get("unit", "s")
    if unit not in UNITS:
        raise ManifestError(one_line(f'{where}.unit: expected one of {", ".join(UNITS)}, got "{unit[:60]}"'))
    return source["file"], source.get("column"), unit


def _cells(text: str, column: str | None, where: str) -> _Cells:
    """The line number and the timestamp of every record."""
    lines = [
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        return iter(())
    head = lines[0][1].strip()
    if head.startswith("{"):
        return _json_cells(lines, column, where)
    if column is None and _is_moment(head):
        return iter([(number, line.strip()) for number, line in lines])
    return _csv_cells(lines, column, where)


def _json_cells(lines: list[tuple[int, str]], column: str | None, where: str) -> _Cells:
    key: str | None = None
    for number, line in lines:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ManifestError(f"{where}: line {number}: not JSON ({error.msg}); mend it there") from None
        if not isinstance(record, dict):
            raise ManifestError(f"{where}: line {number}: not a JSON object; mend it there")
        if key is None:
            key = _column(list(record), column, where)
        if key not in record:
            raise ManifestError(one_line(f'{where}: line {number}: has no "{key}"; mend it there'))
        yield number, record[key]


def _csv_cells(lines: list[tuple[int, str]], column: str | None, where: str) -> _Cells:
    try:
        rows = list(csv.reader(line for _, line in lines))
    except csv.Error as error:
        raise ManifestError(f"{where}: not CSV ({error}); mend it") from None
    if len(rows) != len(lines):
        raise ManifestError(f"{where}: a quoted text runs over several lines; take it out")
    names = [name.strip() for name in rows[0]]
    at = names.index(_column(names, column, where))
    for (number, _), row in zip(lines[1:], rows[1:], strict=True):
        if len(row) <= at:
            raise ManifestError(f"{where}: line {number}: has {len(row)} columns, too few; mend it there")
        yield number, row[at].strip()


def _column(names: list[str], wanted: str | None, where: str) -> str:
    if wanted is not None:
        if wanted in names:
            return wanted
        near = difflib.get_close_matches(wanted, names, n=1)
        mend = f'did you mean "{near[0]}"?' if near else f"it has: {', '.join(names[:20])}"
        raise ManifestError(one_line(f'{where}: has no column "{wanted}"; {mend}'))
    for name in COLUMNS:
        for own in names:
            if own.lower() == name:
                return own
    known = ", ".join(COLUMNS)
    shown = ", ".join(names[:20])
    raise ManifestError(one_line(f"{where}: none of the columns {shown} is called {known}; name it with column = …"))


def _is_moment(text: str) -> bool:
    try:
        _moment(text, "")
    except ManifestError:
        return False
    return True


def _moment(cell: Any, where: str) -> tuple[Decimal, str]:
    """The number in `cell`, or the seconds of its date since 1970; and which kind it is."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise ManifestError(f"{where}: expected a number or a date; mend it there")
    text = str(cell)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _date(text, where)
    # A bound far beyond any clock, so that no later sum can overflow.
    if not number.is_finite() or abs(number) > Decimal("1e30"):
        raise ManifestError(one_line(f"{where}: {text[:60]} is no time; mend it there"))
    return number, _NUMBER


def _date(text: str, where: str) -> tuple[Decimal, str]:
    # datetime stops at microseconds; some traces have seven digits.
    split = _FRACTION.fullmatch(text)
    base, digits, zone = split.groups() if split else (text, "", "")
    try:
        moment = datetime.datetime.fromisoformat(base + zone)
    except ValueError:
        raise ManifestError(one_line(f'{where}: "{text[:60]}" is neither a number nor a date; mend it there')) from None
    kind = "a date without a time zone"
    if moment.tzinfo is not None:
        kind = "a date with a time zone"
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    since = moment - _EPOCH
    return Decimal(since.days * 86_400 + since.seconds) + Decimal(f"0.{digits or 0}"), kind
