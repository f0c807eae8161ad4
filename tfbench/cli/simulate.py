"""`tfbench simulate`: a manifest in virtual time, on a profile of the reference engine."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import (
    READ_WAIT_S,
    JsonOption,
    SetOption,
    VerboseOption,
    WarehouseOption,
    again,
    print_json,
    telling_of,
    warehouse_path,
)
from tfbench.core.exitcodes import ExitCode


def simulate(
    manifest: Annotated[Path, typer.Argument(help="A manifest (TOML) or a frozen one (JSON).")],
    profile: Annotated[
        list[str],
        typer.Option(help="An engine profile: a shipped name or a TOML file; several are compared as arms."),
    ],
    warehouse: WarehouseOption = None,
    sets: SetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Simulate every load point and repeat of MANIFEST: the reference engine's scheduler in virtual time, no endpoint.

    Same schedule, seeds and ids as `tfbench run`, into the same ledger, marked as simulated everywhere. Exit status: 0
    done; 4 when every run is INVALID; 2 bad manifest, profile or warehouse; 130 after Ctrl-C, with what finished kept.
    """
    from tfbench.manifest import load_manifest

    path = warehouse_path(warehouse)
    loaded = load_manifest(manifest, sets or ())

    from tfbench.cli.live import LiveWatcher
    from tfbench.engine.profile import engine_profile
    from tfbench.report import build_report, json_document, print_summary
    from tfbench.study.simulate import System, simulate_study
    from tfbench.warehouse import Warehouse

    systems = [System(Path(name).name.removesuffix(".toml"), engine_profile(name)) for name in profile]
    with LiveWatcher() as watcher:
        done = simulate_study(loaded, path, systems, watcher)
    with telling_of(done.study_id, path), Warehouse.open(path, read_only=True, wait_s=READ_WAIT_S) as store:
        data = build_report(store, done.study_id)
    if json:
        print_json(json_document(data))
    else:
        known = again(path, warehouse, manifest=str(manifest), sets=tuple(sets or ()), simulated=profile[0])
        print_summary(data, verbose=verbose, again=known)
    if done.invalid == done.runs:
        raise typer.Exit(int(ExitCode.INVALID))
