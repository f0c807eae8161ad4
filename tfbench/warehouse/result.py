"""What a query gave, a batch of rows at a time, and its values as JSON and as text."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb

from tfbench.core.errors import UsageError
from tfbench.core.jsonio import finite
from tfbench.warehouse.failures import with_candidates

BATCH = 1000

_Reader = Callable[[Any], Any]


@dataclass(frozen=True)
class Rows:
    """A query's columns and its rows, read as they are asked for: `batches` can be walked once.

    `names` may hold a name twice. Values are DuckDB's Python ones, but JSON text is parsed into what it says.
    """

    names: tuple[str, ...]
    batches: Iterator[list[tuple[Any, ...]]]


def run_query(con: duckdb.DuckDBPyConnection, query: str) -> Rows:
    """The rows of `query`'s last statement. Raises UsageError for one that DuckDB refuses, or that can't give rows.

    A query may also fail while its rows are read; `batches` then raises UsageError.
    """
    try:
        check_gives_rows(con, query)
        con.execute(query)
        first = con.fetchmany(BATCH)
    except duckdb.Error as error:
        raise query_error(error) from error
    described = con.description or []
    return Rows(
        tuple(name for name, *_ in described), _batches(con, first, [_reader(kind) for _, kind, *_ in described])
    )


def check_gives_rows(con: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raises UsageError when `query` is empty or its last statement never gives rows, before any of it is run."""
    statements = con.extract_statements(query)
    if not statements:
        raise UsageError('query: it is empty; give SQL, e.g. "select * from runs"')
    last = statements[-1]
    if list(last.expected_result_type) == [duckdb.ExpectedResultType.NOTHING]:
        raise UsageError(f"query: {last.type.name} gives no rows; end with a SELECT")


def query_error(error: duckdb.Error) -> UsageError:
    """A query DuckDB refuses, told as ours."""
    return UsageError(f"query: {with_candidates(error)}")


def _batches(
    con: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]], readers: list[_Reader | None]
) -> Iterator[list[tuple[Any, ...]]]:
    plain = not any(readers)
    while rows:
        yield (
            rows
            if plain
            else [
                tuple(value if read is None else read(value) for read, value in zip(readers, row, strict=True))
                for row in rows
            ]
        )
        try:
            rows = con.fetchmany(BATCH)
        except duckdb.Error as error:
            raise query_error(error) from error


def _reader(kind: Any) -> _Reader | None:
    """What to do with values of the DuckDB type `kind`; None when they can stay as they are."""
    if str(kind) == "JSON":
        return _parsed
    if kind.id == "map":
        return _map_reader(dict(kind.children))
    if kind.id in ("list", "array"):
        item = _reader(dict(kind.children)["child"])
        return None if item is None else lambda value: None if value is None else [item(one) for one in value]
    if kind.id == "struct":
        fields = [(name, read) for name, child in kind.children if (read := _reader(child)) is not None]
        return None if not fields else lambda value: _with_fields(value, fields)
    return None


def _map_reader(children: dict[str, Any]) -> _Reader:
    """JSON's keys are text: other keys become their JSON text, and what Python can't use as a key does too."""
    value_of = _reader(children["value"]) or (lambda value: value)
    as_lists = children["key"].id in ("list", "array", "struct", "map")

    def read(value: Any) -> Any:
        if value is None:
            return None
        pairs = zip(value["key"], value["value"], strict=True) if as_lists else value.items()
        return {key if isinstance(key, str) else _json_key(key): value_of(one) for key, one in pairs}

    return read


def _json_key(key: Any) -> str:
    text = json_text(key)
    return text[1:-1] if text.startswith('"') else text


def _with_fields(value: Any, fields: list[tuple[str, _Reader]]) -> Any:
    if not isinstance(value, dict):  # null, or a row without field names
        return value
    return value | {name: read(value[name]) for name, read in fields}


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def json_text(value: Any) -> str:
    """JSON of any value a query gives, on one line, with every digit of whole numbers.

    NaN and infinities become null, BLOBs hexadecimal, times ISO 8601; a DECIMAL is a number where a double holds it
    exactly as written, else a string.
    """
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(finite(value))


def _told(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and value.as_tuple().exponent == 0:
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_told)
