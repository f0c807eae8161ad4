"""`tfbench report`: figures of a study as a table, a page or JSON."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tfbench.cli.options import (
    READ_WAIT_S,
    JsonOption,
    PlotlyOption,
    VerboseOption,
    WarehouseOption,
    again,
    check_page,
    print_json,
    warehouse_path,
)


def report(
    study: Annotated[str, typer.Argument(help='A study id, a unique part of its start, its name, or "last".')] = "last",
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page here.", show_default=False)] = None,
    plotly: PlotlyOption = None,
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Print the figures of STUDY, each with its interval; write a page with --html."""
    check_page(html, plotly)
    path = warehouse_path(warehouse)

    from tfbench.cli.waiting import Waiting
    from tfbench.report import build_report, json_document, print_summary, write_html
    from tfbench.warehouse import Warehouse

    with (
        Waiting("the figures to be made from the facts", lines=False),
        Warehouse.open(path, read_only=True, wait_s=READ_WAIT_S) as store,
    ):
        data = build_report(store, store.resolve_study(study))
    if html is not None:
        write_html(data, html, plotly or "inline")
        typer.echo(f"wrote {html}", err=True)
    if json:
        print_json(json_document(data))
    elif html is None:
        print_summary(data, verbose=verbose, again=_again(data, study, path, warehouse))


def _again(data: Any, study: str, path: Path, given: Path | None) -> Any:
    """How the study can be made again: by the manifest that its first run's bundle keeps, where that is there."""
    from tfbench.study.record import bundles_folder

    kept = [bundles_folder(path) / data.study.study_id / run.run_id / "manifest.json" for run in data.runs[:1]]
    manifest = next((str(one) for one in kept if one.is_file()), "MANIFEST")
    simulated = next(iter(data.profiles), None) if data.simulated else None
    return again(path, given, manifest=manifest, simulated=simulated, report=study)
