"""`tfbench run`: a manifest to facts in a warehouse, with live progress and a summary."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import (
    READ_WAIT_S,
    JsonOption,
    RerunsOption,
    SetOption,
    VerboseOption,
    WaitOption,
    WarehouseOption,
    again,
    print_json,
    telling_of,
    warehouse_path,
)
from tfbench.core.exitcodes import ExitCode


def run(
    manifest: Annotated[Path, typer.Argument(help="A manifest (TOML) or a frozen one (JSON).")],
    url: Annotated[
        str | None, typer.Option(help="Base URL of the endpoint, ending in /v1; overrides endpoint.url.")
    ] = None,
    warehouse: WarehouseOption = None,
    sets: SetOption = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that share the schedule; one carries some 50,000 chunks/s.")
    ] = 1,
    reruns: RerunsOption = None,
    verbose: VerboseOption = False,
    wait: WaitOption = None,
    json: JsonOption = False,
) -> None:
    """Run every load point and repeat of MANIFEST and keep the facts.

    Runs in which this machine's client was so slow that it spoiled figures are made again.

    Exit status: 0 done; 4 when no run is evidence (the client could not keep the load); 2 bad manifest or warehouse; 5
    endpoint trouble; 130 after Ctrl-C, with what finished kept.
    """
    from tfbench.manifest import load_manifest

    path = warehouse_path(warehouse)
    loaded = load_manifest(manifest, sets or (), url)

    from tfbench.cli.live import LiveWatcher
    from tfbench.report import build_report, json_document, print_summary
    from tfbench.study import run_study
    from tfbench.warehouse import Warehouse

    with LiveWatcher() as watcher:
        done = run_study(loaded, path, watcher, workers=workers, reruns=reruns, wait_s=wait)
    with telling_of(done.study_id, path), Warehouse.open(path, read_only=True, wait_s=READ_WAIT_S) as store:
        data = build_report(store, done.study_id)
    if json:
        print_json(json_document(data))
    else:
        options = () if workers == 1 else ("--workers", str(workers))
        known = again(path, warehouse, manifest=str(manifest), url=url, sets=tuple(sets or ()), options=options)
        print_summary(data, verbose=verbose, again=known)
    if done.invalid == done.runs:
        raise typer.Exit(int(ExitCode.INVALID))
