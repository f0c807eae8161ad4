"""One transport, one scripted peer, and the worker's polling loop in small."""

import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from tests.load.scripted import BARE_CLOSE, CLOSE, RESET, Script, ScriptedServer, serving
from tfbench.load import mock, stamps
from tfbench.load.call import FRAMED, Call, Read
from tfbench.load.feeders import Tick
from tfbench.load.mock import Mock
from tfbench.load.poller import Poller, open_poller
from tfbench.load.target import resolve_target
from tfbench.load.transport import Transport
from tfbench.load.wire import Wire

KINDS = ("ipv4", "ipv6", "unix", "tls", "mock")
_numbers = itertools.count()
_MOCK_STEPS = {RESET: mock.RESET, BARE_CLOSE: mock.CLOSE, CLOSE: mock.CLOSE}


def request(body: bytes = b"{}", number: int = 0) -> bytes:
    """A POST as the worker sends it."""
    return b"POST /v1/x HTTP/1.1\r\nHost: h\r\nX-Number: %d\r\nContent-Length: %d\r\n\r\n%s" % (number, len(body), body)


def make_call(body: bytes = b"{}", number: int = 0, user: int = -1) -> Call:
    """A call that is not on its way yet."""
    return Call(Tick(number, 0, 0, "measure", user, number), f"r{number}", request(body, number), "", None)


def plain_reads(reads: Iterable[Read]) -> list[tuple[int, bytes, int, bool, bytes]]:
    """(user ns, kernel stamp, lower ns, exact, body bytes) of reads, without HTTP framing."""
    return [
        (user, stamp, lower, bool(form), data[data.index(b"\n") + 1 : -2] if form == FRAMED else data)
        for user, stamp, lower, form, data, _ in reads
    ]


def body_of(call: Call) -> bytes:
    """All body bytes read for a call."""
    return b"".join(read[4] for read in plain_reads(call.reads))


def tls_server_context(*names: str, **options: Any) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(a server's, a client's) TLS settings around a fresh authority."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.set_alpn_protocols(["http/1.1"])
    authority.issue_cert(*(names or ("127.0.0.1",)), **options).configure_cert(server)
    client = ssl.create_default_context()
    client.set_alpn_protocols(["http/1.1"])
    authority.configure_trust(client)
    return server, client


@dataclass
class Rig:
    """A transport in its loop; `sent` and `done` list calls in the order of its callbacks."""

    poller: Poller
    server: ScriptedServer | None = None
    sent: list[Call] = field(default_factory=list)
    done: list[Call] = field(default_factory=list)
    transport: Transport = field(init=False)
    requests: list[bytes] = field(default_factory=list)
    entry_ns: int = 0

    def begin(self, *calls: Call) -> None:
        """Send calls now."""
        for call in calls:
            call.dispatched_ns = time.monotonic_ns()
            self.transport.begin(call)

    def turn(self) -> None:
        """One poll and its reports, as the worker's loop does it."""
        previous, self.entry_ns = self.entry_ns, time.monotonic_ns()
        self.transport.serve(self.poller.poll(0.001), previous, lambda: None)

    def until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        """Poll until `condition` holds."""
        end = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end, "the transport didn't get there"
            self.turn()

    def talk(self, *calls: Call) -> tuple[Call, ...]:
        """Send calls and wait for all their ends."""
        self.begin(*calls)
        self.until(lambda: all(call.ending is not None for call in calls))
        return calls

    def one(self, body: bytes = b"{}") -> Call:
        """One request to its end."""
        return self.talk(make_call(body))[0]


def _mock_script(script: Script, rig: Rig) -> mock.Script:
    def play(index: int, data: bytes) -> Iterable[mock.Step]:
        rig.requests.append(data)
        for step in script(index, data):
            yield step if isinstance(step, bytes | float | int) else _MOCK_STEPS[step]

    return play


@contextlib.contextmanager
def rig(kind: str, script: Script, folder: Path, *, policy: str = "pooled") -> Iterator[Rig]:
    """A running rig over one kind of transport."""
    poller = open_poller()
    if kind == "mock":
        bench = Rig(poller)
        bench.transport = Mock(poller, _mock_script(script, bench), sent=bench.sent.append, done=bench.done.append)
        try:
            yield bench
        finally:
            bench.transport.close()
            poller.close()
        return
    family, host, options = socket.AF_INET, "127.0.0.1", {}
    context = None
    url = "http://127.0.0.1:{port}/v1"
    if kind == "ipv6":
        family, url = socket.AF_INET6, "http://[::1]:{port}/v1"
    elif kind == "unix":
        path = folder / f"{next(_numbers)}.sock"
        family, options, url = (
            socket.AF_UNIX,
            {"path": str(path)},
            "http+unix://" + str(path).replace("/", "%2F") + "/v1",
        )
    elif kind == "tls":
        options["context"], context = tls_server_context(host)
    with serving(script, family, **options) as server:
        target = resolve_target(url.format(port=server.port), 5.0)
        bench = Rig(poller, server, requests=server.requests)
        bench.transport = Wire(
            poller,
            target,
            context,
            use_stamps=stamps.probe(),
            sent=bench.sent.append,
            done=bench.done.append,
            policy=policy,
        )
        try:
            yield bench
        finally:
            bench.transport.close()
            poller.close()
