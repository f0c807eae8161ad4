"""HTTP/1.1 on non-blocking sockets: connect, send, read with kernel stamps, keep connections alive.

The polling path does as little as it can: one recvmsg, one feed of the framing parser, one record
per read. What the bytes mean is decided elsewhere.
"""

import errno
import socket
import ssl
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import httptools

from tfbench.load import stamps
from tfbench.load.call import Call, Ending
from tfbench.load.poller import READ, WRITE, Poller
from tfbench.load.target import Target

READ_BYTES = 256 * 1024
_GARBAGE_KEPT_BYTES = 64 * 1024
_DONE = b"[DONE]"
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS}
_mono = time.monotonic_ns


class _Connection:
    """One socket, its framing parser and the call it carries (None while idle)."""

    __slots__ = (
        "body",
        "call",
        "chunked",
        "close_delimited",
        "complete",
        "drained",
        "fd",
        "id",
        "idle_until_ns",
        "incoming",
        "keep_alive",
        "keep_alive_s",
        "last_poll",
        "last_recv_ns",
        "lower_ns",
        "mask",
        "opened",
        "out",
        "outgoing",
        "parser",
        "secure",
        "sock",
        "wire",
    )

    def __init__(self, wire: "Wire", number: int, sock: socket.socket) -> None:
        self.wire = wire
        self.id = number
        self.sock = sock
        self.fd = sock.fileno()
        self.mask = 0
        self.parser: Any = httptools.HttpResponseParser(self)
        self.call: Call | None = None
        self.out: memoryview | None = None
        self.opened = False
        self.complete = False
        self.close_delimited = True
        self.chunked = False
        self.keep_alive = False
        self.keep_alive_s = 0.0
        self.idle_until_ns = 0
        self.body: list[bytes] = []
        self.last_poll = -1
        self.last_recv_ns = 0
        self.lower_ns = 0
        self.drained = True
        self.secure: ssl.SSLObject | None = None
        self.incoming: ssl.MemoryBIO | None = None
        self.outgoing: ssl.MemoryBIO | None = None

    # Called by the framing parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        call = self.call
        if call is None:
            return
        key = name.lower()
        if key == b"content-type":
            call.content_type = value.lower()
        elif key == b"content-encoding":
            call.content_encoding = value.strip().lower()
        elif key == b"content-length":
            self.close_delimited = False
        elif key == b"transfer-encoding":
            self.chunked = b"chunked" in value.lower()
            self.close_delimited = not self.chunked
        elif key == b"keep-alive":
            self.keep_alive_s = _keep_alive_timeout_s(value)

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.call is not None and status >= 200:
            self.call.status = status

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() >= 200:
            self.complete = True
            # The parser forgets once this callback returns.
            self.keep_alive = self.parser.should_keep_alive()
        else:
            self.close_delimited = True


def _keep_alive_timeout_s(value: bytes) -> float:
    for part in value.split(b","):
        name, _, number = part.strip().partition(b"=")
        if name.lower() == b"timeout":
            try:
                return max(float(number), 0.0)
            except ValueError:
                return 0.0
    return 0.0


class Wire:
    """All connections of one worker to one target.

    `done` is called once for each call when the wire lets go of it; `sent` just after its first
    byte went to the kernel.
    """

    def __init__(
        self,
        poller: Poller,
        target: Target,
        context: ssl.SSLContext | None,
        *,
        use_stamps: bool,
        sent: Callable[[Call], None],
        done: Callable[[Call], None],
    ) -> None:
        self._poller = poller
        self._target = target
        self._context = context
        self._stamps = use_stamps
        self._sent = sent
        self._done = done
        self._numbers = count()
        self._by_fd: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self.exhausted = 0
        self.opened = 0

    def begin(self, call: Call) -> None:
        """Send `call` on an idle connection, or open one."""
        connection = self._take_idle()
        if connection is None:
            self._open(call)
            return
        call.new_connection = False
        call.connected_ns = 0
        self._assign(connection, call)
        self._send_request(connection)

    def ready(self, fd: int, mask: int, previous_entry_ns: int, poll_number: int) -> None:
        """Serve one readiness report; `previous_entry_ns` is the entry of the poll before this one."""
        connection = self._by_fd.get(fd)
        if connection is None:
            return
        if mask & WRITE:
            self._writable(connection)
            if connection.fd < 0:
                return
        if mask & ~WRITE:
            if connection.last_poll != poll_number - 1 and previous_entry_ns > connection.lower_ns:
                connection.lower_ns = previous_entry_ns
            connection.last_poll = poll_number
            if connection.opened or connection.secure is not None:
                self._readable(connection)
            elif mask & ~READ:
                self._writable(connection)

    def abort(self, call: Call, ending: Ending, error: str) -> None:
        """Let go of `call` now; its connection is closed."""
        connection = call.connection
        if isinstance(connection, _Connection):
            self._finish(connection, ending, error, keep=False)

    def close(self) -> None:
        """Close every connection; calls still in flight are cut."""
        for connection in list(self._by_fd.values()):
            if connection.call is not None:
                self._finish(connection, Ending.CUT, "", keep=False)
            else:
                self._shut(connection)

    # Connections.

    def _take_idle(self) -> _Connection | None:
        now = _mono()
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_until_ns and now >= connection.idle_until_ns:
                self._shut(connection)
                continue
            try:
                if connection.sock.recv(1, socket.MSG_PEEK) == b"" or connection.secure is None:
                    # Closed by the server, or it sent something nobody asked for.
                    self._shut(connection)
                    continue
            except BlockingIOError:
                pass
            except OSError:
                self._shut(connection)
                continue
            return connection
        return None

    def _open(self, call: Call) -> None:
        call.new_connection = True
        target = self._target
        sock = None
        try:
            sock = socket.socket(target.family, socket.SOCK_STREAM)
            sock.setblocking(False)
            if target.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._stamps:
                stamps.enable(sock)
            trouble = sock.connect_ex(target.address)
        except OSError as error:
            if sock is not None:
                sock.close()
            self._no_connection(call, error.errno or 0, str(error.strerror or error))
            return
        if trouble not in (0, errno.EINPROGRESS):
            sock.close()
            self._no_connection(call, trouble, errno.errorcode.get(trouble, "") + " on connect")
            return
        connection = _Connection(self, next(self._numbers), sock)
        self.opened += 1
        self._by_fd[connection.fd] = connection
        self._assign(connection, call)
        connection.mask = READ | WRITE
        self._poller.add(connection.fd, connection.mask)
        if trouble == 0:
            self._connected(connection)

    def _no_connection(self, call: Call, number: int, error: str) -> None:
        if number in _EXHAUSTED:
            self.exhausted += 1
        call.ending = Ending.CONNECT
        call.error = error
        call.end_ns = _mono()
        self._done(call)

    def _assign(self, connection: _Connection, call: Call) -> None:
        connection.call = call
        connection.complete = False
        connection.close_delimited = True
        connection.chunked = False
        connection.keep_alive_s = 0.0
        call.connection = connection
        call.connection_id = connection.id

    def _connected(self, connection: _Connection) -> None:
        if self._context is not None:
            connection.incoming, connection.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            connection.secure = self._context.wrap_bio(
                connection.incoming, connection.outgoing, server_hostname=self._target.host
            )
            self._handshake(connection)
            return
        connection.opened = True
        assert connection.call is not None
        connection.call.connected_ns = _mono()
        self._send_request(connection)

    def _handshake(self, connection: _Connection) -> None:
        assert connection.secure is not None and connection.call is not None
        try:
            connection.secure.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_tls(connection)
            return
        except ssl.SSLError as error:
            self._flush_tls(connection)
            if connection.fd >= 0:
                self._finish(connection, Ending.CONNECT, f"TLS: {error.reason or error}", keep=False)
            return
        connection.opened = True
        connection.call.connected_ns = _mono()
        self._send_request(connection)

    def _shut(self, connection: _Connection) -> None:
        if connection.fd < 0:
            return
        self._poller.drop(connection.fd)
        del self._by_fd[connection.fd]
        connection.fd = -1
        connection.sock.close()
        # The parser holds the connection's callbacks; the cycle would outlive a run without a collector.
        connection.parser = None
        if connection in self._idle:
            self._idle.remove(connection)

    # Writing.

    def _send_request(self, connection: _Connection) -> None:
        call = connection.call
        assert call is not None
        connection.lower_ns = call.sent_ns = call.last_ns = _mono()
        if connection.secure is not None:
            connection.secure.write(call.request)
            self._flush_tls(connection)
        else:
            connection.out = memoryview(call.request)
            self._flush(connection)
        if connection.fd >= 0 and connection.call is call:
            self._sent(call)

    def _flush_tls(self, connection: _Connection) -> None:
        assert connection.outgoing is not None
        pending = connection.outgoing.read()
        if pending:
            left = connection.out
            connection.out = memoryview(bytes(left) + pending if left else pending)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        out = connection.out
        first = out is not None and connection.call is not None and len(out) == len(connection.call.request)
        while out:
            try:
                written = connection.sock.send(out)
            except BlockingIOError:
                break
            except OSError as error:
                self._send_failed(connection, error, nothing_sent=first)
                return
            first = False
            out = out[written:]
        connection.out = out if out else None
        self._watch(connection, READ | WRITE if connection.out is not None else READ)

    def _send_failed(self, connection: _Connection, error: OSError, *, nothing_sent: bool) -> None:
        call = connection.call
        assert call is not None
        if nothing_sent and not call.new_connection:
            # The kernel took no byte of it: a stale kept-alive connection costs nothing but a new one.
            connection.call = None
            self._shut(connection)
            call.sent_ns = 0
            self._open(call)
            return
        if connection.opened:
            # A server may refuse early and close: what it said may still be waiting to be read.
            connection.out = None
            self._watch(connection, READ)
            self._readable(connection)
            return
        self._finish(connection, Ending.CONNECT, str(error.strerror or error), keep=False)

    def _watch(self, connection: _Connection, mask: int) -> None:
        if connection.mask != mask:
            connection.mask = mask
            self._poller.change(connection.fd, mask)

    def _writable(self, connection: _Connection) -> None:
        if connection.opened or connection.secure is not None:
            self._flush(connection)
            return
        trouble = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            if trouble in _EXHAUSTED:
                self.exhausted += 1
            self._finish(connection, Ending.CONNECT, errno.errorcode.get(trouble, str(trouble)), keep=False)
            return
        self._watch(connection, READ)
        self._connected(connection)

    # Reading.

    def _readable(self, connection: _Connection) -> None:
        lower_ns = connection.lower_ns
        if connection.drained and connection.last_recv_ns > lower_ns:
            # The read before this one emptied the socket, so these bytes came after it began.
            lower_ns = connection.last_recv_ns
        connection.last_recv_ns = _mono()
        try:
            size, ancillary, _, _ = connection.sock.recvmsg_into([self._buffer], stamps.ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(connection, str(error.strerror or error))
            return
        user_ns = _mono()
        if size == 0:
            self._end_of_file(connection)
            return
        kernel_ns = stamps.stamp_of(ancillary) if ancillary else 0
        connection.drained = size < READ_BYTES
        connection.lower_ns = lower_ns
        data: memoryview | bytes = self._view[:size]
        if connection.secure is not None:
            decrypted = self._decrypt(connection, data)
            if not decrypted:
                return
            data = decrypted
        call = connection.call
        if call is None:
            self._shut(connection)
            return
        self._feed(connection, call, data, user_ns, kernel_ns, lower_ns)

    def _decrypt(self, connection: _Connection, data: memoryview | bytes) -> bytes:
        assert connection.secure is not None and connection.incoming is not None
        connection.incoming.write(data)
        if not connection.opened:
            self._handshake(connection)
            if connection.fd < 0 or not connection.opened:
                return b""
        parts: list[bytes] = []
        try:
            while part := connection.secure.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._lost(connection, f"TLS: {error.reason or error}")
            return b""
        return b"".join(parts)

    def _feed(
        self,
        connection: _Connection,
        call: Call,
        data: memoryview | bytes,
        user_ns: int,
        kernel_ns: int,
        lower_ns: int,
    ) -> None:
        call.last_ns = user_ns
        if not call.first_ns:
            call.first_ns = user_ns
            call.first_kernel_ns = kernel_ns
        trouble = ""
        try:
            connection.parser.feed_data(data)
        except httptools.HttpParserError as error:
            trouble = str(error) or type(error).__name__
        if connection.body:
            body = connection.body[0] if len(connection.body) == 1 else b"".join(connection.body)
            connection.body = []
            # A last-chunk mark in the same read may have come later than the bytes before it.
            exact = connection.drained and not (connection.complete and connection.chunked)
            call.body_seen = True
            call.reads.append((user_ns, kernel_ns, lower_ns, exact, body))
            if _DONE in body[-32:] and body.rstrip().endswith(_DONE):
                call.done_seen_ns = user_ns
                call.end_kernel_ns = kernel_ns
        if trouble:
            call.garbage = bytes(data[:_GARBAGE_KEPT_BYTES])
            self._finish(connection, Ending.BROKEN, f"not HTTP/1.1 as we know it: {trouble}", keep=False)
        elif connection.complete:
            self._complete(connection, user_ns, kernel_ns)

    def _complete(self, connection: _Connection, user_ns: int, kernel_ns: int) -> None:
        call = connection.call
        assert call is not None
        call.end_kernel_ns = kernel_ns
        keep = connection.keep_alive and connection.out is None
        if connection.keep_alive_s:
            # The server's own promise, less a margin for the way there.
            connection.idle_until_ns = user_ns + int(max(connection.keep_alive_s - 0.5, 0.0) * 1e9)
        self._finish(connection, Ending.COMPLETE, "", keep=keep, end_ns=user_ns)

    def _end_of_file(self, connection: _Connection) -> None:
        call = connection.call
        if call is not None and call.status and connection.close_delimited and connection.opened:
            self._finish(connection, Ending.COMPLETE, "", keep=False)
            return
        self._lost(connection, "connection closed by the server")

    def _lost(self, connection: _Connection, error: str) -> None:
        call = connection.call
        if call is None:
            self._shut(connection)
        elif not connection.opened:
            self._finish(connection, Ending.CONNECT, error, keep=False)
        elif call.status:
            self._finish(connection, Ending.BROKEN, error, keep=False)
        else:
            self._finish(connection, Ending.LOST, error, keep=False)

    def _finish(
        self, connection: _Connection, ending: Ending, error: str, *, keep: bool, end_ns: int | None = None
    ) -> None:
        call = connection.call
        assert call is not None
        connection.call = None
        call.connection = None
        call.ending = ending
        call.error = error
        call.end_ns = _mono() if end_ns is None else end_ns
        if keep:
            self._idle.append(connection)
        else:
            self._shut(connection)
        self._done(call)
