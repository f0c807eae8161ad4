"""Running a hook's command: no shell, no secrets, its output kept where it fails."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tfbench.core.errors import EndpointError
from tfbench.core.redact import Redactor
from tfbench.manifest.base import one_line

_KEPT_BYTES = 256 << 10
_KILLED_S = 5.0


def run_command(
    name: str,
    command: Sequence[str],
    timeout_s: float,
    *,
    environment: Mapping[str, str],
    redactor: Redactor,
    log: Path,
) -> None:
    """Run `command` to its end. What it leaves in the background, in a session of its own, lives on.

    EndpointError, in one line, where it can't be run, ends with another status than 0, or takes longer than
    `timeout_s`; the end of what it printed is then in `log`, without secrets.
    """
    told = f"{name}: {_short(redactor.text(shlex.join(command)))}"
    # A file, not a pipe: a server left in the background may hold its end open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise EndpointError(f"{told}: can't be run ({reason}); name a program that is there") from None
        try:
            trouble = _trouble(process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            trouble = f"did not end within {timeout_s:g} s"
        finally:
            _kill(process)
        if trouble:
            raise EndpointError(f"{told} {trouble}{_output(output, redactor, log)}")


def _trouble(status: int) -> str:
    if status == 0:
        return ""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a command that still runs, with its children; no effect on one that has ended."""
    if process.poll() is not None:
        return
    # One that took another user's rights can't be killed, and isn't waited for either.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)


def _output(output: IO[bytes], redactor: Redactor, log: Path) -> str:
    """What was printed, for the error: its last line, and where the rest is kept."""
    output.seek(max(output.seek(0, os.SEEK_END) - _KEPT_BYTES, 0))
    text = redactor.text(output.read().decode(errors="replace"))
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return " and printed nothing"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8")
    except OSError:
        return f" ({_short(lines[-1])})"
    return f" ({_short(lines[-1])}; its output is in {log})"


def _short(text: str, most: int = 200) -> str:
    line = one_line(text.strip())
    return line if len(line) <= most else line[: most - 1] + "…"
