"""A server that plays scripts byte for byte, and a way to put one load through it."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.core.clocks import ClockBase
from tfbench.load import stamps
from tfbench.load.assemble import Assembled, assemble
from tfbench.load.job import Limits, LoadJob
from tfbench.load.signals import measure_signals
from tfbench.load.supervise import LoadEnd, run_load
from tfbench.load.target import resolve_target

RESET = object()
"""A script step: close with a TCP reset."""
BARE_CLOSE = object()
"""A script step: end the TCP connection without a word of TLS."""

Step = Any  # bytes to send, a float to sleep, or RESET
Script = Callable[[int, bytes], Iterable[Step]]


def sse(payload: Any) -> bytes:
    """One SSE event of a JSON payload (or of raw text)."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return b"data: " + text.encode() + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One chat chunk."""
    content = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": {**content, **fields}, "finish_reason": finish}
    return sse({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def usage(output: int, prompt: int = 5) -> bytes:
    """A usage-only chunk."""
    return sse(
        {"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}}
    )


DONE = sse("[DONE]")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def stream(*events: bytes) -> list[Step]:
    """A whole good chunked stream of `events`."""
    return [STREAM_HEAD, *(framed(event) for event in events), LAST]


def ok_script(index: int, request: bytes) -> Iterable[Step]:
    """Two tokens, finish, usage, end mark."""
    del index, request
    return stream(delta("", role="assistant"), delta("a"), delta("b"), delta(finish="stop"), usage(2), DONE)


def reply(status: str, body: bytes, kind: str = "application/json", *extra: str) -> list[Step]:
    """A whole Content-Length response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *extra]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + body]


@dataclass
class ScriptedServer:
    """Plays `script(n, request)` for the n-th request."""

    script: Script
    family: int = socket.AF_INET
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    path: str = ""
    context: ssl.SSLContext | None = None
    _listener: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self._listener = socket.socket(self.family)
        if self.path:
            self._listener.bind(self.path)
        else:
            self._listener.bind(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
        self._listener.listen(512)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        if not self.path:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is not None:
            try:
                conn = self.context.wrap_socket(conn, server_side=True)
            except OSError:
                conn.close()
                return
        with conn, contextlib.suppress(OSError):
            buffer = b""
            while True:
                request, buffer = _read_request(conn, buffer)
                if not request:
                    return
                with self._lock:
                    index = len(self.requests)
                    self.requests.append(request)
                if not _play(conn, self.script(index, request)):
                    return


def _read_request(conn: socket.socket, buffer: bytes) -> tuple[bytes, bytes]:
    while b"\r\n\r\n" not in buffer:
        data = conn.recv(65536)
        if not data:
            return b"", b""
        buffer += data
    head, _, rest = buffer.partition(b"\r\n\r\n")
    size = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(rest) < size:
        data = conn.recv(65536)
        if not data:
            return b"", b""
        rest += data
    return head + b"\r\n\r\n" + rest[:size], rest[size:]


def _play(conn: socket.socket, steps: Iterable[Step]) -> bool:
    closing = False
    for step in steps:
        if step is RESET:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            return False
        if step is BARE_CLOSE:
            return False
        if step is None:
            closing = True
        elif isinstance(step, float | int):
            time.sleep(step)
        else:
            conn.sendall(step)
    if closing and isinstance(conn, ssl.SSLSocket):
        conn.unwrap()
    return not closing


CLOSE = None
"""A script step: close the connection after the steps."""


@contextlib.contextmanager
def serving(script: Script, family: int = socket.AF_INET, **options: Any) -> Iterator[ScriptedServer]:
    """A running scripted server; `options` are its `path` (AF_UNIX) or `context` (TLS)."""
    server = ScriptedServer(script, family, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class FixedItem:
    """A prompt that tests can predict."""

    prompt: str
    input_tokens: int
    max_tokens: int
    class_name: str | None = None
    tenant: str | None = None
    lora: str | None = None
    cancel: bool = False


@dataclass(frozen=True)
class FixedWorkload:
    """Prompts "prompt N", padded to `size` characters."""

    size: int = 0

    def item(self, i: int) -> FixedItem:
        return FixedItem(f"prompt {i} ".ljust(self.size, "x"), 2, 8)


@dataclass(frozen=True)
class FixedSchedule:
    """Offsets and phases as given, in ms."""

    offsets_ns: Any
    names: tuple[str, ...]
    sha256: str = "0"

    def phases(self) -> tuple[str, ...]:
        return self.names


def schedule(*offsets_ms: float, phases: tuple[str, ...] | None = None) -> FixedSchedule:
    """A schedule of measured ticks (unless `phases` says otherwise)."""
    return FixedSchedule(
        np.array([round(ms * 1e6) for ms in offsets_ms], dtype=np.int64), phases or ("measure",) * len(offsets_ms)
    )


def make_job(url: str, tmp_path: Path, plan: Any, **changes: Any) -> LoadJob:
    """An open count-load job for one worker; `changes` override its fields."""
    values: dict[str, Any] = {
        "run_id": "run",
        "worker": 0,
        "workers": 1,
        "target": resolve_target(url, 2.0),
        "headers": (),
        "dialect": "openai_chat",
        "model": "m",
        "stream": True,
        "include_usage": True,
        "sampling": {},
        "workload": FixedWorkload(),
        "mode": "open",
        "plan": plan,
        "warmup_ns": 0,
        "duration_ns": None,
        "count": len(getattr(plan, "offsets_ns", ())) or None,
        "drain_ns": 2_000_000_000,
        "max_in_flight": None,
        "limits": Limits(2_000_000_000, 5_000_000_000, 5_000_000_000, 20_000_000_000),
        "use_stamps": stamps.probe(),
        "keep_text": True,
        "spool_path": str(tmp_path / "spool-0"),
    }
    return LoadJob(**(values | changes))


@dataclass(frozen=True)
class Result:
    """A load's facts as plain rows."""

    attempts: list[dict[str, Any]]
    streams: dict[int, dict[str, Any]]
    texts: dict[int, dict[str, Any]]
    raw: dict[int, bytes]
    signals: dict[str, float | None]
    end: LoadEnd
    assembled: Assembled

    @property
    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in self.attempts]

    def kinds(self, attempt: int = 0) -> list[str]:
        return list(self.streams[attempt]["kind"])


def put_through(*jobs: LoadJob, **watch: Any) -> Result:
    """Run a load and read its facts."""
    base = ClockBase.start()
    end = run_load(jobs, **watch)
    assembled = assemble("run", jobs, end, base, "host")
    tables = assembled.tables
    return Result(
        tables["attempts"].to_pylist(),
        {row["attempt_id"]: row for row in tables["streams"].to_pylist()},
        {row["attempt_id"]: row for row in tables["texts"].to_pylist()},
        {row["attempt_id"]: row["bytes"] for row in tables["raw"].to_pylist()},
        measure_signals(jobs[0].mode, assembled.tally, assembled.summaries, end),
        end,
        assembled,
    )


def one(script: Script, tmp_path: Path, **changes: Any) -> Result:
    """One request through `script`."""
    tmp_path.mkdir(exist_ok=True)
    with serving(script) as server:
        return put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0), **changes))
