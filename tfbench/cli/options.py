"""Options that several verbs share."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfbench.core.errors import UsageError

WarehouseOption = Annotated[
    Path | None,
    typer.Option(help="Warehouse file; default $TFBENCH_WAREHOUSE, else ./tfbench.duckdb.", show_default=False),
]
READ_WAIT_S = 3.0
"""How long a verb that only reads waits for a warehouse that a study is writing; a run's facts take less."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a manifest field, e.g. --set load.rates=[2,4].", show_default=False),
]

WaitOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds to wait for an endpoint that isn't up; default 30 for one that says it isn't ready, else 0.",
    ),
]


def refuse_unused(given: Mapping[str, object], why: str) -> None:
    """UsageError for options that were given where they would do nothing; `why` follows their names."""
    names = [name for name, value in given.items() if value not in (None, False, [])]
    if names:
        raise UsageError(f"{', '.join(names)}: {why}; leave {'it' if len(names) == 1 else 'them'} out")


def warehouse_path(given: Path | None) -> Path:
    """The warehouse to use."""
    from tfbench.warehouse import default_path

    return given if given is not None else default_path()


def report_hint(study_id: str, path: Path, given: Path | None) -> str:
    """How to get a page of a study that is now in `path`; `given` is what --warehouse said."""
    where = "" if given is None else f" --warehouse {path}"
    tool = "tfbench" if shutil.which("tfbench") else sys.argv[0]
    return f"\nstudy {study_id} is in {path}; a page of it: {tool} report last{where} --html report.html"


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from tfbench.core.jsonio import dump_text

    typer.echo(dump_text(value, indent=True))
