"""`tfbench sql`: a query over the warehouse."""

import math
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Annotated, Any

import typer

from tfbench.cli.options import READ_WAIT_S, JsonOption, WarehouseOption, warehouse_path
from tfbench.core.errors import StorageError, UsageError
from tfbench.core.exitcodes import ExitCode


def sql(
    query: Annotated[str, typer.Argument(help='DuckDB SQL, e.g. "select * from runs".')],
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Print the rows of QUERY over the warehouse's tables and the view attempt_metrics.

    attempt_metrics: a row per request with study_id, run_id, attempt_id, load_value, repeat, phase, outcome, good,
    ttft_ms, tpot_ms, icl_max_ms, e2e_ms, client_lag_ms, … as the figures count them; NULL is unknown. Tables: studies,
    runs, attempts, streams, verdicts, … ("show tables" lists all). E.g. "select load_value, median(ttft_ms) from
    attempt_metrics where counted group by all".

    With --json a row is an object: JSON columns as what they say, whole numbers with every digit, BLOBs as
    hexadecimal, NaN and infinities as null; a name that a column before it has gets _1, _2, … .
    """
    from tfbench.warehouse import Warehouse

    # What a query that fails half-way gave is not shown; and while a pager waits for its reader, the warehouse is
    # closed, or a study could not write to it.
    with _spool() as spool:
        with Warehouse.open(warehouse_path(warehouse), read_only=True, wait_s=READ_WAIT_S) as store:

            def fill() -> None:
                rows = _ask(store, query)
                parts = _json_parts(rows.names, rows.batches) if json else _text_parts(rows.names, rows.batches)
                for part in parts:
                    _keep(spool, part)

            _interruptibly(fill)
        spool.seek(0)
        shutil.copyfileobj(spool, sys.stdout)


def _ask(store: Any, query: str) -> Any:
    """The rows of a query; one that asks the wrong table for a latency is told where it is."""
    from tfbench.metrics.views import ATTEMPT_METRICS, add_views, metric_columns

    add_views(store.con)
    try:
        return store.rows(query)
    except UsageError as error:
        found = _NO_COLUMN.search(str(error))
        if found is None or found[1] not in metric_columns(store.con):
            raise
        raise UsageError(f"{error}; view {ATTEMPT_METRICS} has {found[1]}") from error


_NO_COLUMN = re.compile(r'column (?:named )?"(\w+)"')


def _interruptibly(work: Callable[[], None]) -> None:
    """Do `work` so that Ctrl-C is heard at once: inside a running query DuckDB looks for it only now and then."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        # The query only reads and nothing was printed yet, so leaving it where it stands loses nothing;
        # waiting for it may take as long as one of its steps.
        sys.stderr.write("tfbench: interrupted\n")
        sys.stderr.flush()
        os._exit(int(ExitCode.INTERRUPTED))
    if raised:
        raise raised[0]


def _spool() -> IO[str]:
    """A place in memory, and beyond 32 MiB on disk."""
    return tempfile.SpooledTemporaryFile(1 << 25, "w+", encoding="utf-8", newline="\n")


def _keep(spool: IO[str], part: str) -> None:
    try:
        spool.write(part + "\n")
    except OSError as error:
        raise StorageError(
            f"{tempfile.gettempdir()}: no room for the rows ({error.strerror}); free space or set TMPDIR"
        ) from error


def _json_parts(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> Iterator[str]:
    """One JSON array, a row a line; a part per batch."""
    from tfbench.warehouse import json_text

    heads = [json_text(name) + ":" for name in unlike(names)]
    before = "["
    for batch in batches:
        objects = ["{" + ",".join(h + json_text(v) for h, v in zip(heads, row, strict=True)) + "}" for row in batch]
        yield before + ",\n".join(objects)
        before = ","
    yield "]" if before == "," else "[]"


def unlike(names: Sequence[str]) -> list[str]:
    """`names`, each as it is, but a repeated one with the first of _1, _2, … that makes it unlike all others."""
    taken = set(names)
    seen: set[str] = set()
    told = []
    for name in names:
        if name in seen:
            count = 1
            while f"{name}_{count}" in taken:
                count += 1
            name = f"{name}_{count}"
            taken.add(name)
        seen.add(name)
        told.append(name)
    return told


def _text_parts(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> Iterator[str]:
    """A table, a part per batch: the first says how wide the columns are, and later ones may only widen them."""
    from tfbench.report.escape import plain

    heads = [plain(name) for name in names]
    widths = [len(head) for head in heads]
    right: list[bool] | None = None
    for batch in batches:
        cells = [[_cell(value) for value in row] for row in batch]
        widths = [max(width, *(len(row[i]) for row in cells)) for i, width in enumerate(widths)]
        lines = []
        if right is None:
            right = [_numeric(row[i] for row in batch) for i in range(len(names))]
            lines.append(_line(heads, widths, right))
        lines += [_line(row, widths, right) for row in cells]
        yield "\n".join(lines)
    if right is None:
        yield "no rows"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if flush else cell.ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()


def _numeric(values: Iterable[Any]) -> bool:
    from decimal import Decimal

    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _cell(value: Any) -> str:
    from tfbench.report.escape import plain
    from tfbench.warehouse import json_text

    if value is None:
        return "NULL"
    if isinstance(value, str):
        return plain(value)
    if type(value) is int or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    text = json_text(value)
    return plain(text[1:-1] if text.startswith('"') else text)
