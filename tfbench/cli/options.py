"""Options that several verbs share."""

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tfbench.core.errors import UsageError

WarehouseOption = Annotated[
    Path | None,
    typer.Option(help="Warehouse file; default $TFBENCH_WAREHOUSE, else ./tfbench.duckdb.", show_default=False),
]
READ_WAIT_S = 3.0
"""How long a verb that only reads waits for a warehouse that a study is writing; a run's facts take less."""

VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Add what stands behind the figures: reasons, methods, n.")
]
PlotlyOption = Annotated[
    Literal["inline", "cdn", "file"] | None,
    typer.Option(
        help="Where a page has plotly.js from: in itself (inline, the default, 5 MB), from the network (cdn), or from"
        " plotly.min.js beside it (file).",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a manifest field, e.g. --set load.rates=[2,4].", show_default=False),
]

RerunsOption = Annotated[
    int | None,
    typer.Option(
        min=0, help="Most runs made again where the client was slow; half as many as planned.", show_default=False
    ),
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


def again(path: Path, given: Path | None, **known: Any) -> Any:
    """An `Again` of a study that is in `path`; `given` is what --warehouse said."""
    from tfbench.report.again import Again

    tool = "tfbench" if shutil.which("tfbench") else sys.argv[0]
    return Again(warehouse=None if given is None else path, tool=tool, **known)


@contextlib.contextmanager
def telling_of(study_id: str, path: Path) -> Iterator[None]:
    """While a finished study's figures are made: says that they are waited for, and after Ctrl-C where the study is."""
    from tfbench.cli.waiting import Waiting
    from tfbench.core.errors import Interrupted

    try:
        with Waiting("the figures to be made from the facts", lines=False):
            yield
    except KeyboardInterrupt:
        look = shlex.join(["tfbench", "report", study_id, "--warehouse", str(path)])
        raise Interrupted(f"interrupted: study {study_id} is kept in {path}; see it with: {look}") from None


def check_folder(path: Path | None, option: str) -> None:
    """UsageError where `path` is to be written into a folder that isn't there: a mistyped one is not made."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}; make it, or name another")


def check_page(html: Path | None, plotly: str | None) -> None:
    """UsageError for a page that can't be written where --html says, and for --plotly without a page."""
    check_folder(html, "--html")
    if html is None:
        refuse_unused({"--plotly": plotly}, "it says how a page draws, and only --html writes one")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from tfbench.core.jsonio import dump_text

    typer.echo(dump_text(value, indent=True))
