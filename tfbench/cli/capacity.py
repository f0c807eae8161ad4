"""`tfbench capacity`: the highest load that meets a target, with an interval and the evidence for it."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import (
    READ_WAIT_S,
    JsonOption,
    SetOption,
    VerboseOption,
    WaitOption,
    WarehouseOption,
    again,
    print_json,
    refuse_unused,
    telling_of,
    warehouse_path,
)
from tfbench.core.exitcodes import ExitCode


def capacity(
    manifest: Annotated[Path, typer.Argument(help="A manifest (TOML) or a frozen one (JSON).")],
    target: Annotated[
        str,
        typer.Option(help="What a load must meet: a fraction it must reach, or a quantile in ms, as ttft_p95_ms=300."),
    ] = "good_fraction=0.99",
    url: Annotated[
        str | None, typer.Option(help="Base URL of the endpoint, ending in /v1; overrides endpoint.url.")
    ] = None,
    lo: Annotated[
        float | None, typer.Option(help="Lowest load to probe; default 1/4096 of the manifest's first, or one user.")
    ] = None,
    hi: Annotated[float | None, typer.Option(help="Highest load to probe; default 4096 times the first.")] = None,
    max_probes: Annotated[int, typer.Option(min=1, max=10_000, help="Runs the search may make.")] = 60,
    budget_s: Annotated[
        float | None, typer.Option(min=1, help="Seconds the search may take; a run that would exceed them isn't begun.")
    ] = None,
    simulate: Annotated[bool, typer.Option(help="Search in virtual time, on --profile.")] = False,
    profile: Annotated[
        str | None, typer.Option(help="With --simulate: an engine profile, a shipped name or a TOML file.")
    ] = None,
    warehouse: WarehouseOption = None,
    sets: SetOption = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the schedule.")] = 1,
    verbose: VerboseOption = False,
    wait: WaitOption = None,
    json: JsonOption = False,
) -> None:
    """Find the highest rate (or concurrency) at which MANIFEST's system meets a target.

    Exit status: 0 an answer with at least one end; 3 no load could be decided; 4 the client itself was the limit; 2 bad
    manifest, target or warehouse; 5 endpoint trouble; 130 after Ctrl-C, with what was found kept.
    """
    from tfbench.core.errors import UsageError
    from tfbench.manifest import load_manifest

    if simulate != (profile is not None):
        raise UsageError("--simulate and --profile belong together; give both, or neither to measure the endpoint")
    if simulate:
        refuse_unused(
            {"--url": url, "--workers": workers != 1, "--wait": wait is not None}, "--simulate asks no endpoint"
        )
    path = warehouse_path(warehouse)
    loaded = load_manifest(manifest, sets or (), url)

    from tfbench.cli.search import LiveSearch
    from tfbench.report import build_report, print_summary
    from tfbench.study.capacity import find_capacity, simulate_capacity
    from tfbench.study.simulate import System
    from tfbench.study.target import parse_target
    from tfbench.warehouse import Warehouse

    wanted = parse_target(target)
    with LiveSearch() as watcher:
        if profile is None:
            found = find_capacity(
                loaded, path, wanted, low=lo, high=hi, max_runs=max_probes, budget_s=budget_s, watcher=watcher,
                workers=workers, wait_s=wait,
            )  # fmt: skip
        else:
            from tfbench.engine.profile import engine_profile

            system = System(Path(profile).name.removesuffix(".toml"), engine_profile(profile))
            found = simulate_capacity(
                loaded, path, wanted, system, low=lo, high=hi, max_runs=max_probes, budget_s=budget_s, watcher=watcher
            )
    if json:
        print_json({"study_id": found.study_id, **found.document()})
    else:
        with telling_of(found.study_id, path), Warehouse.open(path, read_only=True, wait_s=READ_WAIT_S) as store:
            data = build_report(store, found.study_id)
        known = again(path, warehouse, manifest=str(manifest), url=url, sets=tuple(sets or ()), simulated=profile)
        print_summary(data, verbose=verbose, again=known)
    if found.answer.limit == "client":
        raise typer.Exit(int(ExitCode.INVALID))
    if found.answer.status == "inconclusive":
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))
