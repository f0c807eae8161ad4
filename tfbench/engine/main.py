"""Running the engine in this process."""

import argparse
import asyncio
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import orjson
from aiohttp import web

from tfbench.core.errors import EndpointError, TfbenchError, UsageError
from tfbench.engine.config import EngineConfig, config_from_json
from tfbench.engine.runtime import Runtime
from tfbench.engine.server import make_app

_SHUTDOWN_S = 0.5
_BACKLOG = 4096


async def serve(config: EngineConfig, host: str, port: int, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `ready` gets the base URL, which ends in /v1. Port 0 takes a free one.

    Streams still open at the stop are cut. Raises EndpointError when the address can't be listened on.
    """
    runtime = Runtime(config, asyncio.get_running_loop())
    runner = web.AppRunner(make_app(runtime), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    try:
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        except OSError as error:
            raise EndpointError(f"the engine can't listen on {host}:{port}: {error.strerror or error}") from error
        bound_port = runner.addresses[0][1]
        shown_host = f"[{host}]" if ":" in host else host
        # What was made so far lives as long as the process; the collector needn't look at it again.
        gc.collect()
        gc.freeze()
        ready(f"http://{shown_host}:{bound_port}/v1")
        await stop.wait()
        runtime.abort_all()
    finally:
        await runner.cleanup()
        runtime.close()


def run_server(
    config: EngineConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    on_ready: Callable[[str], None],
    exit_with_stdin: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT (or, if asked, until stdin closes); blocks. `on_ready` gets the base URL.

    Raises EndpointError when the address can't be listened on, UsageError for a host or port that can't be.
    """
    if not host:
        raise UsageError("engine host: expected an address such as 127.0.0.1, got nothing")
    if not 0 <= port <= 65_535:
        raise UsageError(f"engine port: expected 0 to 65535, got {port}")
    _raise_file_limit()
    asyncio.run(_serve_until_signal(config, host, port, on_ready, exit_with_stdin))


async def _serve_until_signal(
    config: EngineConfig, host: str, port: int, on_ready: Callable[[str], None], exit_with_stdin: bool
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    if exit_with_stdin:
        stdin = sys.stdin.fileno()

        def read_stdin() -> None:
            if not os.read(stdin, 4096):
                loop.remove_reader(stdin)
                stop.set()

        try:
            loop.add_reader(stdin, read_stdin)
        except PermissionError as error:  # epoll takes no plain files
            raise UsageError("to stop with standard input, it must be a pipe or a terminal") from error
    await serve(config, host, port, on_ready, stop)


def _raise_file_limit() -> None:
    """As many open sockets as the system allows without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # macOS names no usable hard limit; the soft one then stands


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m tfbench.engine`: serve, and print one JSON line with the URL once ready; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tfbench.engine", description="The reference engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--config", default="{}", help="settings as a JSON object")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input closes")
    options = parser.parse_args(argv)

    def announce(url: str) -> None:
        sys.stdout.write(orjson.dumps({"url": url, "pid": os.getpid()}).decode() + "\n")
        sys.stdout.flush()

    try:
        run_server(
            config_from_json(options.config),
            host=options.host,
            port=options.port,
            on_ready=announce,
            exit_with_stdin=options.exit_with_stdin,
        )
    except TfbenchError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    return 0
