"""The wire against a server in the same thread: each step of both is ours, so a read holds exactly what one step sent.

No worker process and no server thread: a case costs well under a millisecond, and runs the same each time.
"""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from tests.conformance.cases import CLOSE, RESET
from tests.conformance.pure import Facts, decode, new_call
from tfbench.load import mock
from tfbench.load.call import Call, Ending
from tfbench.load.poller import open_poller
from tfbench.load.target import UNIX_SCHEME, Target
from tfbench.load.transport import Transport
from tfbench.load.wire import Wire

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
PATIENCE_S = 5.0
"""Longest wait for what must come; running into it is a failure."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Peer:
    """The server's end of one connection, TLS included."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        self.sock = sock
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._secure = context and context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._out = b""

    def receive(self) -> bytes:
        """What has come, b"" when nothing has; answers handshakes."""
        try:
            data = self.sock.recv(65536)
        except (BlockingIOError, ConnectionError):
            return b""
        if self._secure is None:
            return data
        self._incoming.write(data)
        try:
            return self._secure.read(65536)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError:
            return b""
        finally:
            self._out += self._outgoing.read()
            self.push()

    def queue(self, data: bytes) -> None:
        """Have `data` sent by the next pushes."""
        if self._secure is None:
            self._out += data
        elif data:
            self._secure.write(data)
            self._out += self._outgoing.read()

    def push(self) -> int | None:
        """Bytes the kernel took of what is queued; None when nothing is left or the client is gone."""
        if not self._out:
            return None
        try:
            sent = self.sock.send(self._out)
        except BlockingIOError:
            return 0
        except OSError:
            self._out = b""
            return None
        self._out = self._out[sent:]
        return sent

    def close(self, *, reset: bool) -> None:
        """Close at once, with a reset or without."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.sock.close()

    def finish(self) -> None:
        """Say that no more will come."""
        if self._secure is not None:
            with contextlib.suppress(ssl.SSLError):
                self._secure.unwrap()
            self._out += self._outgoing.read()
        while self.push():
            pass
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)


class Loopback:
    """One wire and its server. A failure inside the wire leaves it unusable: make a new one."""

    def __init__(
        self,
        listener: socket.socket,
        target: Target,
        *,
        client: ssl.SSLContext | None = None,
        server: ssl.SSLContext | None = None,
        use_stamps: bool = False,
    ) -> None:
        self._listener = listener
        self._context = server
        self._poller = open_poller()
        self._ended: list[Call] = []
        self._wire = Wire(
            self._poller,
            target,
            client,
            use_stamps=use_stamps,
            sent=lambda call: None,
            done=self._ended.append,
        )
        self._peer: Peer | None = None
        self._played = 0
        self._entry_ns = time.monotonic_ns()

    def close(self) -> None:
        """Close both ends; the listener stays its owner's."""
        self._wire.close()
        if self._peer is not None:
            self._peer.close(reset=True)
        self._poller.close()

    def _pump(self, timeout_s: float) -> bool:
        """One turn of the client's loop; whether anything was ready."""
        entry = time.monotonic_ns()
        ready = self._poller.poll(timeout_s)
        self._wire.serve(ready, self._entry_ns, lambda: None)
        self._entry_ns = entry
        return bool(ready)

    def _pump_until(self, over: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not over():
            self._pump(0.001)
            assert time.monotonic() < limit, "the wire waits for something that has come"

    def play(self, parts: Sequence[bytes], end: str, dialect: str = "openai_chat", *, settle_s: float = 0.02) -> Facts:
        """Send one request, answer it as `receive` does, and decode."""
        return decode(self.receive(parts, end, settle_s=settle_s), dialect)

    def receive(self, parts: Sequence[bytes], end: str, *, settle_s: float = 0.02) -> Call:
        """Send one request, answer it with `parts` (one read each) and close as `end` says.

        Where the response doesn't end by itself, the loop's deadlines are stood in for after `settle_s`
        of silence.
        """
        self._ended.clear()
        call = new_call(self._played, REQUEST)
        self._played += 1
        call.dispatched_ns = time.monotonic_ns()
        self._wire.begin(call)
        assert call.ending is None, call.error
        peer = self._take_request(call)
        for part in parts:
            self._deliver(peer, part, call)
        if call.ending is None and end != CLOSE and end != RESET:
            _wait_out(self._wire, call, self._pump, settle_s)
        if end == RESET:
            peer.close(reset=True)
            self._peer = None
        elif end == CLOSE:
            peer.finish()
        if call.ending is None:
            self._pump_until(lambda: call.ending is not None)
        while self._pump(0.0):  # what came after the end mustn't disturb it
            pass
        _check_ended(call, self._ended)
        if end == CLOSE:
            peer.close(reset=False)
            self._peer = None
            self._pump(0.0)
        return call

    def _take_request(self, call: Call) -> Peer:
        if call.new_connection:
            if self._peer is not None:
                self._peer.close(reset=False)
                self._peer = None
            self._pump_until(self._accept)
        peer = self._peer
        assert peer is not None
        received = b""

        def complete() -> bool:
            nonlocal received
            received += peer.receive()
            return len(received) >= len(REQUEST)

        self._pump_until(complete)
        assert received == REQUEST
        return peer

    def _accept(self) -> bool:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return False
        self._peer = Peer(sock, self._context)
        return True

    def _deliver(self, peer: Peer, part: bytes, call: Call) -> None:
        peer.queue(part)
        while (sent := peer.push()) is not None:
            # Loopback delivers at once, so the first turn reads it; a full buffer needs more turns.
            if call.ending is None:
                self._pump(PATIENCE_S if sent else 0.001)
            else:
                self._pump(0.0)


class InMemory:
    """The mock transport, played like a Loopback."""

    def __init__(self) -> None:
        self._poller = open_poller()
        self._ended: list[Call] = []
        self._steps: list[mock.Step] = []
        self._mock = mock.Mock(
            self._poller, lambda index, request: self._steps, sent=lambda call: None, done=self._ended.append
        )
        self._played = 0

    def close(self) -> None:
        """Close what is open."""
        self._mock.close()
        self._poller.close()

    def _pump(self, timeout_s: float) -> bool:
        ready = self._poller.poll(timeout_s)
        self._mock.serve(ready, 0, lambda: None)
        return bool(ready)

    def play(self, parts: Sequence[bytes], end: str, dialect: str = "openai_chat", *, settle_s: float = 0.02) -> Facts:
        """As Loopback.play."""
        return decode(self.receive(parts, end, settle_s=settle_s), dialect)

    def receive(self, parts: Sequence[bytes], end: str, *, settle_s: float = 0.02) -> Call:
        """As Loopback.receive."""
        self._ended.clear()
        closing = {CLOSE: [mock.CLOSE], RESET: [mock.RESET]}.get(end, [])
        self._steps = [*(part for part in parts if part), *closing]
        call = new_call(self._played, REQUEST)
        self._played += 1
        call.dispatched_ns = time.monotonic_ns()
        self._mock.begin(call)
        _wait_out(self._mock, call, self._pump, settle_s)
        while self._pump(0.0):
            pass
        _check_ended(call, self._ended)
        return call


def _wait_out(transport: Transport, call: Call, pump: Callable[[float], bool], settle_s: float) -> None:
    """Pump until the call ends or nothing comes for `settle_s`; the loop's deadlines come then."""
    while call.ending is None and pump(settle_s):
        pass
    if call.ending is not None:
        return
    if call.done_seen_ns:
        transport.abort(call, Ending.LINGERED, "")
        call.end_ns = call.done_seen_ns
    else:
        transport.abort(call, Ending.TIMEOUT, "idle_s = 0 passed")


def _check_ended(call: Call, ended: list[Call]) -> None:
    assert ended == [call], "a call ends once"
    assert call.ending is not None
    assert call.connection is None
    assert call.end_ns >= call.sent_ns >= call.dispatched_ns


@contextlib.contextmanager
def listening(family: int, folder: str = "", *, tls: bool = False) -> Iterator[tuple[socket.socket, Target]]:
    """A listener on loopback (or on a socket in `folder`) and the target that leads to it."""
    with socket.socket(family) as listener:
        if family == socket.AF_UNIX:
            listener.bind(f"{folder}/s")
            target = Target(UNIX_SCHEME, "localhost", 0, "/v1", family, f"{folder}/s", False)
        else:
            listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            host, port = listener.getsockname()[:2]
            scheme = "https" if tls else "http"
            target = Target(scheme, host, port, "/v1", family, listener.getsockname(), tls)
        listener.listen(64)
        listener.setblocking(False)
        yield listener, target
