"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Any

import typer

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


def warehouse_path(given: Path | None) -> Path:
    """The warehouse to use."""
    from tfbench.warehouse import default_path

    return given if given is not None else default_path()


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from tfbench.core.jsonio import dump_text

    typer.echo(dump_text(value, indent=True))
