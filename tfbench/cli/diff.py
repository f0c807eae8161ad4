"""`tfbench diff`: what differs between two manifests, and what a comparison of them could show."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import JsonOption, print_json


def diff(
    a: Annotated[Path, typer.Argument(help="A manifest or frozen manifest.")],
    b: Annotated[Path, typer.Argument(help="The manifest to hold against it.")],
    json: JsonOption = False,
) -> None:
    """List the fields in which manifests A and B differ, as B's TOML; warn when more than one primary variable does."""
    from tfbench.manifest import diff as diff_manifests
    from tfbench.manifest import freeze, load_manifest

    first, second = freeze(load_manifest(a)), freeze(load_manifest(b))
    found = diff_manifests(first.manifest, second.manifest)
    primary = [one for one in found if one.primary]
    warning = None
    if len(primary) > 1:
        names = ", ".join(one.path for one in primary)
        warning = f"{len(primary)} primary variables differ ({names}); a difference in figures has no single cause"
    if json:
        print_json(
            {
                "same_workload": first.workload_id == second.workload_id,
                "same_system": first.system_id == second.system_id,
                "differences": [{"path": d.path, "a": d.a, "b": d.b, "primary": d.primary} for d in found],
                "warning": warning,
            }
        )
        return
    if not found:
        typer.echo("# no difference")
    for one in found:
        typer.echo(one.toml)
    if warning:
        typer.echo(f"warning: {warning}", err=True)
