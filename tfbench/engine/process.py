"""The engine in a child process of its own, for runs and tests on this machine."""

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from tfbench.core.errors import EndpointError
from tfbench.engine.config import EngineConfig, config_to_json

_STOP_S = 5.0


@dataclass(frozen=True)
class RunningEngine:
    """A child process that serves. `url` is the base for clients and ends in /v1."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def root_url(self) -> str:
        """The server itself: where /metrics, /health and /tfbench/requests are."""
        return self.url.removesuffix("/v1")

    def stop(self) -> None:
        """End the child: ask by closing its stdin, then insist. A second call does nothing."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        for insist in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(_STOP_S)
                break
            except subprocess.TimeoutExpired:
                insist()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def start_engine(
    config: EngineConfig | None = None, *, host: str = "127.0.0.1", port: int = 0, timeout_s: float = 30.0
) -> Iterator[RunningEngine]:
    """An engine that serves while the block runs; it also ends when this process dies, however it dies.

    Raises EndpointError when it doesn't come up in `timeout_s`, with the reason it gave.
    """
    arguments = ["--host", host, "--port", str(port), "--config", config_to_json(config or EngineConfig())]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tfbench.engine", *arguments, "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for this process, which then stops the engine in good order
        )
        engine = RunningEngine("", process)
        try:
            yield RunningEngine(_await_url(process, log, timeout_s), process)
        finally:
            engine.stop()


def _await_url(process: subprocess.Popen[bytes], log: IO[bytes], timeout_s: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(deadline - time.monotonic(), 0.0)):
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                break
            line += piece
    if not line.endswith(b"\n"):
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it said nothing in {timeout_s:g} s"
        raise EndpointError(f"the reference engine did not start: {reason}")
    url: str = orjson.loads(line)["url"]
    return url


def _environment() -> dict[str, str]:
    """This process's environment, with the package's folder on the child's path even when it isn't installed."""
    package_parent = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{package_parent}{os.pathsep}{known}" if known else package_parent}
