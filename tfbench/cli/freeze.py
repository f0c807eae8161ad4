"""`tfbench freeze`: a manifest with nothing left open, and its ids."""

from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.options import SetOption, print_json


def freeze(
    manifest: Annotated[Path, typer.Argument(help="A manifest (TOML) or a frozen one (JSON).")],
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint; overrides endpoint.url.")] = None,
    sets: SetOption = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the three ids instead of the document.")] = False,
) -> None:
    """Print MANIFEST as JSON with every default resolved; `tfbench run` takes the result as it is."""
    from tfbench.manifest import freeze as freeze_manifest
    from tfbench.manifest import load_manifest

    frozen = freeze_manifest(load_manifest(manifest, sets or (), url))
    if ids:
        print_json(
            {
                "manifest_id": frozen.manifest_id,
                "workload_id": frozen.workload_id,
                "system_id": frozen.system_id,
            }
        )
    else:
        print_json(frozen.document)
        typer.echo(
            f"manifest_id {frozen.manifest_id}\nworkload_id {frozen.workload_id}\nsystem_id   {frozen.system_id}",
            err=True,
        )
