"""`tfbench engine`: the reference engine."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tfbench.cli.refusals import Verbs

engine_app = typer.Typer(
    cls=Verbs, help="The reference engine: a small serving system whose truth is known.", no_args_is_help=True
)


@engine_app.callback()
def _group() -> None:
    return


@engine_app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    model: Annotated[str | None, typer.Option(help="Model name to serve.", show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings as a JSON file; docs/engine.md lists them.", show_default=False)
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Settings as an engine profile: a shipped name, or a TOML file.", show_default=False),
    ] = None,
) -> None:
    """Serve OpenAI-style endpoints until Ctrl-C."""
    import dataclasses

    from tfbench.core.errors import UsageError
    from tfbench.core.precedence import take_precedence
    from tfbench.engine.config import EngineConfig, config_from_json
    from tfbench.engine.main import run_server
    from tfbench.engine.profile import engine_profile

    if config is not None and profile is not None:
        raise UsageError("--config, --profile: both give the engine's settings; leave one of them out")
    settings = EngineConfig() if profile is None else engine_profile(profile)
    if config is not None:
        try:
            settings = config_from_json(config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{config}: can't read the engine's settings ({error}); give a JSON file") from error
        except UsageError as error:
            raise UsageError(f"{config}: {error}") from error
    if model is not None:
        if not model.strip():
            raise UsageError(f"--model: expected a name, got {model!r}")
        settings = dataclasses.replace(settings, model=model)

    def ready(url: str) -> None:
        typer.echo(f"serving {settings.model} at {url} (Ctrl-C stops it)")
        typer.echo(f"try: {_try_it(settings.model, url)}", err=True)

    take_precedence()
    run_server(settings, host=host, port=port, on_ready=ready)


def _try_it(model: str, url: str) -> str:
    """A command that measures the engine which serves `model` at `url`, to be pasted into a shell."""
    from tfbench.engine.config import EngineConfig

    named = "" if model == EngineConfig().model else f" --set {shlex.quote(f'model.name={model}')}"
    return f"tfbench run manifests/quickstart.toml --url {url}{named}"
