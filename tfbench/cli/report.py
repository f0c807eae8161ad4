"""`tfbench report`: figures of a study as a table, a page or JSON."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import READ_WAIT_S, JsonOption, WarehouseOption, print_json, warehouse_path


def report(
    study: Annotated[str, typer.Argument(help='A study id, a unique part of its start, its name, or "last".')] = "last",
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page here.", show_default=False)] = None,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Print the figures of STUDY, each with its interval; write a page with --html."""
    from tfbench.report import build_report, json_document, print_summary, write_html
    from tfbench.warehouse import Warehouse

    with Warehouse.open(warehouse_path(warehouse), read_only=True, wait_s=READ_WAIT_S) as store:
        data = build_report(store, store.resolve_study(study))
    if html is not None:
        write_html(data, html)
        typer.echo(f"wrote {html}", err=True)
    if json:
        print_json(json_document(data))
    elif html is None:
        print_summary(data)
