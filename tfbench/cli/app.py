"""The verbs of `tfbench`, put together."""

import typer

from tfbench.cli.calibrate import calibrate
from tfbench.cli.capacity import capacity
from tfbench.cli.compare import compare
from tfbench.cli.diff import diff
from tfbench.cli.engine import engine_app
from tfbench.cli.freeze import freeze
from tfbench.cli.gate import gate
from tfbench.cli.ingest import ingest
from tfbench.cli.refusals import Verbs
from tfbench.cli.report import report
from tfbench.cli.run import run
from tfbench.cli.simulate import simulate
from tfbench.cli.sql import sql
from tfbench.core.version import VERSION

app = typer.Typer(
    name="tfbench",
    cls=Verbs,
    help="Measure LLM serving the way an auditor would: facts first, every figure with its interval.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


app.command()(run)
app.command()(simulate)
app.command()(capacity)
app.command()(report)
app.command()(freeze)
app.command()(compare)
app.command()(gate)
app.command()(diff)
app.command()(sql)
app.command()(ingest)
app.command()(calibrate)
app.add_typer(engine_app, name="engine")
