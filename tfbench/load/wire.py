"""HTTP/1.1 on non-blocking sockets: connect, send, read with kernel stamps, keep connections alive.

The polling path does as little as it can: one recvmsg, one feed of the framing parser, one record
per read. What the bytes mean is decided elsewhere.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence

from tfbench.load import stamps
from tfbench.load.call import FRAMED, Call, Ending
from tfbench.load.connection import Connection, Refused, describe
from tfbench.load.framing import CHUNK_HEADS, EVENT_END, QUICK_BYTES
from tfbench.load.poller import READ, WRITE, Poller
from tfbench.load.pool import Policy
from tfbench.load.sockets import Sockets
from tfbench.load.target import Target
from tfbench.load.tls import MAX_OVERHANG_BYTES, TlsLayer, tls_trouble

READ_BYTES = 256 * 1024
_ANCILLARY_BYTES = stamps.ANCILLARY_BYTES
_CONNECTING_AT_ONCE = 64
_NO_STAMP = stamps.NO_STAMP
CROSSED = " (it was kept alive, and may have been closing as the request came)"
"""What is said of a request that went out while the server closed: nobody can tell that before."""
_TURN = 16
"""Events served before others may have a turn."""
_mono = time.monotonic_ns


def _nothing() -> None:
    pass


class Wire:
    """HTTP over the connections of one worker to one target; a Transport."""

    def __init__(
        self,
        poller: Poller,
        target: Target,
        context: ssl.SSLContext | None,
        *,
        use_stamps: bool,
        sent: Callable[[Call], None],
        done: Callable[[Call], None],
        policy: str = Policy.POOLED,
        closes_idle_ns: int | None = None,
    ) -> None:
        self._poller = poller
        self._target = target
        self._context = context
        self._sent = sent
        self._done = done
        buffer = bytearray(READ_BYTES)
        self._buffers = [buffer]
        self._view = memoryview(buffer)
        self._plain = bytearray(READ_BYTES + MAX_OVERHANG_BYTES if context is not None else 0)
        self.stamped = use_stamps and not target.is_unix
        self.crossed = 0
        self._sockets = Sockets(
            poller, target, policy, self._usable, use_stamps=self.stamped, closes_idle_ns=closes_idle_ns
        )

    @property
    def opened(self) -> int:
        """See Transport."""
        return self._sockets.opened

    @property
    def exhausted(self) -> int:
        """See Transport."""
        return self._sockets.exhausted

    @property
    def closes_idle_ns(self) -> int | None:
        """See Transport."""
        return self._sockets.closes_idle_ns

    def preconnect(self, number: int, timeout_s: float) -> int:
        """Open `number` connections and wait for them, at most `timeout_s`; how many are ready."""
        deadline = _mono() + int(timeout_s * 1e9)
        sockets, left = self._sockets, number
        while (left or sockets.ahead) and (now := _mono()) < deadline:
            while left and sockets.ahead < _CONNECTING_AT_ONCE:
                left -= 1
                self._open(None)
            self.serve(self._poller.poll(min((deadline - now) / 1e9, 0.05)), 0, _nothing)
        return sockets.idle

    def begin(self, call: Call) -> None:
        """Send `call` on an idle connection, or open one."""
        connection = self._sockets.take(call, _mono())
        if connection is None:
            self._open(call)
            return
        call.new_connection = False
        call.connected_ns = 0
        self._assign(connection, call)
        self._send_request(connection, call)

    def serve(
        self, events: Sequence[tuple[int, int]], previous_entry_ns: int, between: Callable[[], object]
    ) -> list[int]:
        """Serve one poll's reports; see Transport."""
        # Looked up beforehand: a descriptor freed on the way may be another connection's by the time its turn comes.
        known = [*map(self._sockets.by_fd.get, [fd for fd, _ in events])]
        others: list[int] = []
        before_ns = _mono()
        left = _TURN
        for (fd, mask), connection in zip(events, known, strict=True):
            if connection is None:
                others.append(fd)
                continue
            left -= 1
            if not left:
                left = _TURN
                between()
                before_ns = _mono()
            reads = connection.reads
            if reads is None or mask != READ:
                self._ready(connection, mask, previous_entry_ns)
                before_ns = _mono()
                continue
            # Nearly every event is one whole chunk of a stream, and what it costs decides how much one core can carry.
            try:
                data, ancillary, _, _ = connection.recvmsg(QUICK_BYTES, _ANCILLARY_BYTES)
            except OSError as error:
                self._unread(connection, error)
                continue
            user_ns = _mono()
            size = len(data)
            if data.endswith(EVENT_END) and data.startswith(CHUNK_HEADS[size]) and size <= connection.room:
                lower_ns = connection.last_recv_ns
                if lower_ns < previous_entry_ns:
                    lower_ns = previous_entry_ns
                stamp = ancillary[0][2] if ancillary else _NO_STAMP
                reads.append((user_ns, stamp, lower_ns, FRAMED, data, connection.attempt))
                connection.room -= size
                connection.last_recv_ns = before_ns
            else:
                self._take(connection, data, size, size < QUICK_BYTES, ancillary, before_ns, user_ns, previous_entry_ns)
            before_ns = user_ns
        return others

    def abort(self, call: Call, ending: Ending, error: str) -> None:
        """Let go of `call` now; its connection is closed."""
        if call.connection is not None:
            self._finish(call, ending, error, _mono())

    def close(self) -> None:
        """Close every connection; calls still in flight are cut."""
        for connection in list(self._sockets.by_fd.values()):
            call = connection.framing.call
            if call is not None:
                self._finish(call, Ending.CUT, "", _mono())
            else:
                self._sockets.shut(connection)

    # Connections.

    def _usable(self, connection: Connection) -> bool:
        """Whether an idle connection can still carry a request; a stale one is closed."""
        if self._sockets.is_fresh(connection, _mono()):
            if connection.tls is not None:
                # Session tickets and a close may be waiting.
                self._read(connection)
                if connection.fd < 0:
                    return False
            if connection.is_quiet():
                return True
            self._read(connection)
        self._sockets.shut(connection)
        return False

    def _open(self, call: Call | None) -> None:
        found = self._sockets.open(ahead=call is None)
        if call is not None:
            call.new_connection = True
        if isinstance(found, Refused):
            if call is not None:
                call.ending = Ending.CONNECT
                call.error = found.error
                call.end_ns = _mono()
                self._done(call)
            return
        connection, connected = found
        if call is not None:
            self._assign(connection, call)
        if connected:
            self._connected(connection)

    def _assign(self, connection: Connection, call: Call) -> None:
        connection.framing.begin(call)
        call.connection = connection
        connection.attempt = call.tick.attempt
        call.connection_id = connection.id

    def _connected(self, connection: Connection) -> None:
        if self._context is None:
            self._opened(connection)
            return
        connection.tls = TlsLayer(self._context, self._target.host, self._plain)
        self._handshake(connection, b"")

    def _handshake(self, connection: Connection, data: memoryview | bytes) -> None:
        tls = connection.tls
        assert tls is not None
        try:
            finished = tls.handshake(data)
        except ssl.SSLError as error:
            # The alert that tells the server why.
            connection.flush()
            self._lost(connection, tls_trouble(error, self._target.host))
            return
        if finished:
            self._opened(connection)
        else:
            self._flush(connection)

    def _opened(self, connection: Connection) -> None:
        """Requests can be sent: the waiting one, or later ones where the connection was opened ahead."""
        connection.opened = True
        call = connection.framing.call
        if call is None:
            self._sockets.ready(connection)
            self._flush(connection)
            return
        call.connected_ns = _mono()
        self._send_request(connection, call)

    # Writing.

    def _send_request(self, connection: Connection, call: Call) -> None:
        connection.untouched = True
        connection.lower_ns = connection.last_recv_ns = call.sent_ns = call.last_ns = _mono()
        connection.drained = True
        if connection.tls is not None:
            connection.tls.send(call.request)
        else:
            connection.out = memoryview(call.request)
        self._flush(connection)
        if connection.fd >= 0 and connection.framing.call is call:
            self._sent(call)

    def _flush(self, connection: Connection) -> None:
        error = connection.flush()
        if error is not None:
            self._send_failed(connection, error)
            return
        self._sockets.watch(connection, READ | WRITE if connection.sending else READ)

    def _send_failed(self, connection: Connection, error: OSError) -> None:
        call = connection.framing.call
        said = str(error.strerror or error)
        if call is None or not connection.opened:
            self._lost(connection, said)
        elif connection.untouched and not call.new_connection:
            # The kernel took no byte of it: a stale kept-alive connection costs nothing but a new one.
            connection.framing.call = None
            self._sockets.found_closed(connection, call.sent_ns)
            self._sockets.shut(connection)
            call.sent_ns = 0
            self._open(call)
        else:
            # A server may refuse early and close: what it said may still be waiting to be read.
            connection.out = None
            self._sockets.watch(connection, READ)
            self._read(connection)

    def _writable(self, connection: Connection) -> None:
        if connection.opened or connection.tls is not None:
            self._flush(connection)
            return
        trouble = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            self._sockets.failed(trouble)
            self._lost(connection, describe(trouble))
            return
        self._sockets.watch(connection, READ)
        self._connected(connection)

    # Reading.

    def _ready(self, connection: Connection, mask: int, previous_entry_ns: int) -> None:
        if connection.fd < 0:
            return
        if mask & WRITE:
            self._writable(connection)
            if connection.fd < 0:
                return
        elif mask != READ and connection.tls is None and not connection.opened:
            # An error or a hang-up while connecting.
            self._writable(connection)
            return
        if mask & ~WRITE:
            self._read(connection, previous_entry_ns)

    def _read(self, connection: Connection, previous_entry_ns: int = 0) -> None:
        """Read what is there, whether or not a poll reported it."""
        before_ns = _mono()
        try:
            size, ancillary, _, _ = connection.recvmsg_into(self._buffers, _ANCILLARY_BYTES)
        except OSError as error:
            self._unread(connection, error)
            return
        user_ns = _mono()
        drained = size < READ_BYTES
        self._take(connection, self._view[:size], size, drained, ancillary, before_ns, user_ns, previous_entry_ns)

    def _unread(self, connection: Connection, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            self._lost(connection, str(error.strerror or error))

    def _take(
        self,
        connection: Connection,
        data: memoryview | bytes,
        size: int,
        drained: bool,
        ancillary: list[tuple[int, int, bytes]],
        before_ns: int,
        user_ns: int,
        previous_entry_ns: int,
    ) -> None:
        """Take what one read gave; `drained`: it left nothing behind."""
        framing = connection.framing
        if connection.reads is not None:
            connection.reads = None
            framing.left = connection.room
        if not size:
            self._end_of_file(connection, user_ns)
            return
        # Stamps are all that was asked for.
        stamp = ancillary[0][2] if ancillary else _NO_STAMP
        lower_ns = connection.came_after(previous_entry_ns)
        connection.last_recv_ns = before_ns
        connection.drained = drained
        if connection.tls is not None:
            self._read_tls(connection, data, user_ns, stamp, lower_ns)
            return
        connection.lower_ns = lower_ns
        call = framing.call
        if call is None:
            # Bytes that nobody asked for.
            self._sockets.shut(connection)
        elif framing.take(call, data, size, user_ns, stamp, lower_ns, drained):
            self._over(connection, call, user_ns, stamp)
        elif drained and framing.steady:
            connection.reads = call.reads
            connection.room = framing.left

    def _read_tls(
        self, connection: Connection, data: memoryview | bytes, user_ns: int, stamp: bytes, lower_ns: int
    ) -> None:
        tls, framing = connection.tls, connection.framing
        assert tls is not None
        if not connection.opened:
            self._handshake(connection, data)
            if connection.fd < 0 or not connection.opened:
                return
            # The server's first records may have come with the end of the handshake.
            data = data[:0]
        if tls.midway:
            # The record's first part came with an earlier read.
            lower_ns = connection.lower_ns
        connection.lower_ns = lower_ns
        plain, exact = tls.take(data)
        if tls.outgoing.pending and connection.out is None:
            self._flush(connection)
        call = framing.call
        if len(plain):
            if call is None:
                self._sockets.shut(connection)
                return
            if framing.take(call, plain, len(plain), user_ns, stamp, lower_ns, exact and connection.drained):
                self._over(connection, call, user_ns, stamp)
                return
        if tls.failed is not None:
            self._lost(connection, tls_trouble(tls.failed, self._target.host))
        elif tls.ended:
            self._end_of_file(connection, user_ns)

    def _over(self, connection: Connection, call: Call, user_ns: int, stamp: bytes) -> None:
        framing = connection.framing
        if not framing.complete:
            self._finish(call, Ending.BROKEN, framing.trouble, _mono())
            return
        call.end_kernel_ns = stamps.ns_of(stamp)
        if framing.keep_alive_s:
            # The server's own promise, less a margin for the way there.
            connection.idle_until_ns = user_ns + int(max(framing.keep_alive_s - 0.5, 0.0) * 1e9)
        tls = connection.tls
        whole = not connection.sending and (tls is None or not tls.over)
        keep = framing.keep_alive and whole
        self._finish(call, Ending.COMPLETE, "", user_ns, keep=keep, part=framing.promised_close and whole)

    def _end_of_file(self, connection: Connection, user_ns: int) -> None:
        framing, tls = connection.framing, connection.tls
        call = framing.call
        error = "connection closed by the server"
        if call is not None and call.status and framing.close_delimited and connection.opened:
            if tls is None or tls.ended:
                self._finish(call, Ending.COMPLETE, "", user_ns)
                return
            error += " without TLS close_notify: the answer may be cut short"
        self._lost(connection, error)

    def _lost(self, connection: Connection, error: str) -> None:
        call = connection.framing.call
        if call is None:
            self._sockets.found_closed(connection, _mono())
            self._sockets.shut(connection)
        elif not connection.opened:
            self._finish(call, Ending.CONNECT, error, _mono())
        elif call.status:
            self._finish(call, Ending.BROKEN, error, _mono())
        else:
            if not call.new_connection and not call.first_ns:
                error += CROSSED
                self.crossed += 1
                self._sockets.found_closed(connection, call.sent_ns)
            self._finish(call, Ending.LOST, error, _mono())

    def _finish(
        self, call: Call, ending: Ending, error: str, end_ns: int, *, keep: bool = False, part: bool = False
    ) -> None:
        connection = call.connection
        assert isinstance(connection, Connection)
        connection.framing.call = None
        connection.reads = None
        call.connection = None
        call.ending = ending
        call.error = error
        call.end_ns = end_ns
        if part:
            self._sockets.part(connection, end_ns)
        elif keep:
            self._sockets.give(connection, call, end_ns)
        else:
            self._sockets.shut(connection)
        self._done(call)
