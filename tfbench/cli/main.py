"""`tfbench`: how every error becomes one line and an exit code. The verbs are put together in `app`."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from tfbench.cli.output import guard_output
from tfbench.core.errors import TfbenchError
from tfbench.core.exitcodes import ExitCode

DEBUG_VARIABLE = "TFBENCH_DEBUG"


def main() -> None:
    """Run the command line; every trouble is one line on stderr and an exit code."""
    guard_output()
    code = _outcome(_run)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is (
        signal.default_int_handler
    ):
        # All is said; a second Ctrl-C while the interpreter closes down shouldn't print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_outcome(_flush) or code)


def _run() -> int:
    # Imported here so that a Ctrl-C meanwhile is told like any other.
    import typer

    from tfbench.cli.app import app
    from tfbench.cli.refusals import refusal_line

    # Typer's own main() would turn Ctrl-C into a silent exit and any broken pipe into exit 1, which is FAIL here.
    command = typer.main.get_command(app)
    try:
        with command.make_context("tfbench", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.TyperException as refused:
        if type(refused).__name__ == "NoArgsIsHelpError":  # `tfbench` alone asks for the verbs
            typer.echo(refused.format_message(), err=True)
        else:
            _say(refusal_line(refused))
        return int(ExitCode.USAGE)
    return int(ExitCode.PASS)


def _flush() -> int:
    sys.stdout.flush()
    return int(ExitCode.PASS)


def _outcome(step: Callable[[], int]) -> int:
    """The exit code of `step`; what it raises is told in one line."""
    try:
        return step()
    except TfbenchError as error:
        _say(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:  # noqa: BLE001 - left to Python it would exit 1, which says FAIL; a bug judges nothing
        if _by_interrupt(error):
            return _interrupted()
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        _say(f"internal error ({_shown(error)}); please report it, with what {DEBUG_VARIABLE}=1 prints")
        return int(ExitCode.ENDPOINT)


def _interrupted() -> int:
    _say("interrupted")
    return int(ExitCode.INTERRUPTED)


def _by_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind `error`: extension modules that it meets while they load, and DuckDB, hide it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, RuntimeError) and "Query interrupted" in str(error)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _shown(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    return f"{type(error).__name__}: {error}{place}"


def _say(text: str) -> None:
    sys.stderr.write(f"tfbench: {' '.join(text.splitlines())}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
