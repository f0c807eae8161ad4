"""Ticks into ready-to-send requests, made a little ahead of their time."""

import time
from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

from tfbench.core.jsonio import sha256_hex
from tfbench.core.version import VERSION
from tfbench.load.call import Call
from tfbench.load.feeders import Tick
from tfbench.load.job import LoadJob
from tfbench.load.pool import Policy
from tfbench.protocol import DIALECTS

_AHEAD = 64
"""Bodies kept ready while the load runs."""
_EARLY_NS = 500_000_000
_EARLY_BYTES = 16 << 20
"""How much is made ready before the load starts, when it costs the load nothing."""


@lru_cache(maxsize=8)
def _id_prefix(run_id: str) -> str:
    digest = sha256_hex(run_id.encode())
    return f"{digest[:8]}-{digest[8:12]}-8{digest[12:15]}-8{digest[15:18]}-"


def request_id_of(run_id: str, index: int, attempt_try: int = 0) -> str:
    """The X-Request-Id of an attempt: in UUID form (version 8), since some servers refuse anything else."""
    return f"{_id_prefix(run_id)}{index:010x}{attempt_try:02x}"


class _Made(NamedTuple):
    """What doesn't depend on when a request is sent, or which try it is."""

    body: bytes
    item: Any
    prompt_sha256: str


class RequestMaker:
    """Makes the HTTP bytes of a tick; keeps the bodies of the next ones ready while there's time."""

    def __init__(self, job: LoadJob, upcoming: "deque[int] | None") -> None:
        self._job = job
        self._dialect = DIALECTS[job.dialect]
        path = job.target.base_path + self._dialect.path
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {job.target.authority}",
            f"User-Agent: tfbench/{VERSION}",
            "Accept: text/event-stream" if job.stream else "Accept: application/json",
            "Accept-Encoding: identity",
            "Content-Type: application/json",
            # Whoever closes first keeps the port in TIME_WAIT; a server has one port, a client runs out of them.
            *(("Connection: close",) if job.connections == Policy.PER_REQUEST else ()),
            *(f"{name}: {value}" for name, value in job.headers),
        ]
        self._head = "\r\n".join(lines).encode("latin-1")
        self._upcoming = upcoming
        self._ready: dict[int, _Made] = {}

    def _body(self, index: int) -> _Made:
        job = self._job
        item: Any = job.workload.item(index)
        sampling = job.sampling if item.tenant is None else {**job.sampling, "user": item.tenant}
        body = self._dialect.encode(
            item.prompt,
            model=job.model if item.lora is None else item.lora,
            max_tokens=item.max_tokens,
            stream=job.stream,
            include_usage=job.include_usage,
            sampling=sampling,
            fields=job.fields,
        )
        return _Made(body, item, sha256_hex(item.prompt.encode()))

    def prepare_early(self) -> None:
        """Make bodies before the load starts: half a second's worth, 16 MiB at most."""
        until, size = time.monotonic_ns() + _EARLY_NS, 0
        while self._upcoming and size < _EARLY_BYTES and time.monotonic_ns() < until:
            index = self._upcoming.popleft()
            made = self._ready[index] = self._body(index)
            size += len(made.body)

    def prepare(self) -> None:
        """Make one more body ahead of time, if fewer than a handful are ready."""
        upcoming = self._upcoming
        if upcoming and len(self._ready) < _AHEAD:
            index = upcoming.popleft()
            self._ready[index] = self._body(index)

    def make(self, tick: Tick) -> Call:
        """The call of `tick`, its request complete."""
        made = self._ready.pop(tick.task, None)
        if made is None:
            made = self._body(tick.task)
            if self._upcoming and self._upcoming[0] == tick.task:
                self._upcoming.popleft()
        body, item, prompt_sha256 = made
        request_id = request_id_of(self._job.run_id, tick.task, tick.tries)
        request = b"%s\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            self._head,
            request_id.encode(),
            len(body),
            body,
        )
        prompt = item.prompt
        call = Call(tick, request_id, request, prompt_sha256, prompt if self._job.keep_text else None)
        call.class_name, call.tenant, call.lora, call.cancel = item.class_name, item.tenant, item.lora, item.cancel
        return call
