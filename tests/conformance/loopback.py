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
from tfbench.load.call import Call, Ending
from tfbench.load.poller import open_poller
from tfbench.load.target import Target
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
        self._polls = 0
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
        self._polls += 1
        for fd, mask in ready:
            self._wire.ready(fd, mask, self._entry_ns, self._polls)
        self._entry_ns = entry
        return bool(ready)

    def _pump_until(self, over: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not over():
            self._pump(0.001)
            assert time.monotonic() < limit, "the wire waits for something that has come"

    def play(
        self, parts: Sequence[bytes], end: str, dialect: str = "openai_chat", *, settle_s: float = 0.02
    ) -> Facts:
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
        peer = self._take_request(call)
        for part in parts:
            self._deliver(peer, part, call)
        if call.ending is None and end != CLOSE and end != RESET:
            self._wait_out(call, settle_s)
        if end == RESET:
            peer.close(reset=True)
            self._peer = None
        elif end == CLOSE:
            peer.finish()
        if call.ending is None:
            self._pump_until(lambda: call.ending is not None)
        while self._pump(0.0):  # what came after the end mustn't disturb it
            pass
        assert self._ended == [call], "a call ends once"
        assert call.ending is not None
        assert call.connection is None
        assert call.end_ns >= call.sent_ns >= call.dispatched_ns
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

    def _wait_out(self, call: Call, settle_s: float) -> None:
        while call.ending is None and self._pump(settle_s):
            pass
        if call.ending is not None:
            return
        if call.done_seen_ns:
            self._wire.abort(call, Ending.LINGERED, "")
            call.end_ns = call.done_seen_ns
        else:
            self._wire.abort(call, Ending.TIMEOUT, "idle_s = 0 passed")


@contextlib.contextmanager
def listening(family: int, folder: str = "") -> Iterator[tuple[socket.socket, Target]]:
    """A listener on loopback (or on a socket in `folder`) and the target that leads to it."""
    with socket.socket(family) as listener:
        if family == socket.AF_UNIX:
            address: object = f"{folder}/s"
            host, port = "localhost", 0
        else:
            address = ("::1" if family == socket.AF_INET6 else "127.0.0.1", 0)
            host, port = "localhost", 0
        listener.bind(address)  # type: ignore[arg-type]
        listener.listen(64)
        listener.setblocking(False)
        if family != socket.AF_UNIX:
            address = listener.getsockname()
            port = address[1]
        yield listener, Target("http", host, port, "/v1", family, address, False)
