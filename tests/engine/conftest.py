"""An engine in this process, behind a real socket, for tests."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestServer

from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.runtime import Runtime
from tfbench.engine.server import make_app

DATA = Path(__file__).parent / "data"
FAST = StepTime(base_ms=1.0, prefill_token_ms=0.0, decode_seq_ms=0.0)


@dataclass(frozen=True)
class Served:
    """An engine that serves, and a client session whose relative URLs go to it."""

    runtime: Runtime
    session: aiohttp.ClientSession
    host: str
    port: int

    async def json(self, path: str) -> Any:
        async with self.session.get(path) as response:
            assert response.status == 200
            return orjson.loads(await response.read())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)


Serving = Callable[[EngineConfig], AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def _serving(config: EngineConfig) -> AsyncIterator[Served]:
    runtime = Runtime(config, asyncio.get_running_loop())
    listener = socket.create_server(("127.0.0.1", 0))
    # Fixed and small, and inherited by every connection, so that a test soon fills it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)
    server = TestServer(make_app(runtime), socket_factory=lambda *_: listener)
    await server.start_server()
    try:
        async with aiohttp.ClientSession(server.make_url("/")) as session:
            yield Served(runtime, session, server.host, server.port or 0)
    finally:
        await server.close()
        runtime.close()


@pytest.fixture
def serving() -> Serving:
    return _serving


@pytest.fixture
def fast_config() -> EngineConfig:
    return EngineConfig(model="tiny", step_time=FAST, spin_us=0)


@pytest.fixture
def capture() -> Callable[[str], tuple[int, list[Any]]]:
    """Status and JSON documents (SSE events' data, or the one body) of a captured response; `[DONE]` stays text."""

    def read(name: str) -> tuple[int, list[Any]]:
        head, _, body = (DATA / name).read_text().partition("\n\n")
        return int(head.split()[1]), events_of(body)

    return read


@pytest.fixture
def vllm_metrics() -> Callable[[], str]:
    return (DATA / "vllm-cpu-metrics.txt").read_text


@pytest.fixture
def parse_events() -> Callable[[str], list[Any]]:
    return events_of


def events_of(body: str) -> list[Any]:
    if not body.startswith("data: "):
        return [orjson.loads(body)]
    events = [event.removeprefix("data: ") for event in body.strip().split("\n\n")]
    return [event if event == "[DONE]" else orjson.loads(event) for event in events]
