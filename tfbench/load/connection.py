"""One socket of the wire: its framing, its TLS, what is still to be sent."""

import errno
import socket
from dataclasses import dataclass
from typing import Any

from tfbench.load import stamps
from tfbench.load.call import Read
from tfbench.load.framing import Framing
from tfbench.load.target import Target
from tfbench.load.tls import TlsLayer

_WRITE_TURN_BYTES = 1 << 20
"""A large upload gives way to other streams after this much."""
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
_SAYS = {
    errno.EMFILE: "no file descriptor is left (EMFILE); raise `ulimit -n` or use more workers",
    errno.ENFILE: "no file descriptor is left on this machine (ENFILE)",
    errno.EADDRNOTAVAIL: "no local port is left (EADDRNOTAVAIL); keep connections alive or widen ip_local_port_range",
    errno.EAGAIN: "the server's queue of connections to accept is full (EAGAIN)",
    errno.ENOENT: "no such socket (ENOENT)",
}


def describe(number: int, text: str = "") -> str:
    """A connect error in words."""
    return _SAYS.get(number) or errno.errorcode.get(number, "") or text or str(number)


class Connection:
    """A socket, and the state of what goes over it. `opened` once requests can be sent."""

    __slots__ = (
        "ahead",
        "attempt",
        "drained",
        "fd",
        "framing",
        "id",
        "idle_since_ns",
        "idle_until_ns",
        "last_recv_ns",
        "lower_ns",
        "mask",
        "opened",
        "out",
        "reads",
        "recvmsg",
        "recvmsg_into",
        "room",
        "sock",
        "tls",
        "untouched",
    )

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.id = number
        self.sock = sock
        self.recvmsg: Any = sock.recvmsg
        self.recvmsg_into: Any = sock.recvmsg_into
        self.fd = sock.fileno()
        self.mask = 0
        self.framing = Framing()
        self.tls: TlsLayer | None = None
        self.out: memoryview | None = None
        self.untouched = False
        """No byte of the current request reached the kernel yet."""
        self.opened = False
        self.ahead = False
        """Being opened before any request needs it."""
        self.idle_since_ns = 0
        """When it had served its last request; 0 before the first."""
        self.idle_until_ns = 0
        self.drained = True
        """The last read left nothing behind, so whatever comes next came after `last_recv_ns`."""
        self.last_recv_ns = 0
        """A time just before the last read (or the request's send) began."""
        self.lower_ns = 0
        """What the last read's bytes came after."""
        self.reads: list[Read] | None = None
        """Where the next read of a steady stream goes (its framing is `steady`); None: through the framing."""
        self.attempt = -1
        """The call's, while there is one."""
        self.room = 0
        """While there are `reads`: the framing's `left`."""

    @property
    def sending(self) -> bool:
        """Whether part of a request (or of a handshake) still has to go out."""
        return self.out is not None or (self.tls is not None and self.tls.sending)

    @property
    def quick_ns(self) -> int:
        """See Carrier."""
        return 0 if self.reads is None else self.last_recv_ns

    def flush(self) -> OSError | None:
        """Send what waits, as far as the kernel takes it and at most a turn's worth; the error where it can't."""
        tls, out = self.tls, self.out
        turn = _WRITE_TURN_BYTES
        while turn > 0:
            if not out:
                out = memoryview(tls.ciphertext()) if tls is not None else None
                if not out:
                    break
            try:
                written = self.sock.send(out)
            except BlockingIOError:
                break
            except OSError as error:
                return error
            self.untouched = False
            turn -= written
            out = out[written:]
        self.out = out if out else None
        return None

    def came_after(self, previous_entry_ns: int) -> int:
        """What the bytes of a read came after, where the poll before, entered then, hadn't reported this socket or the
        read before followed it."""
        return max(self.last_recv_ns, previous_entry_ns) if self.drained else self.lower_ns

    def is_quiet(self) -> bool:
        """Whether an idle connection is open and nothing waits on it: neither a close nor bytes nobody asked for."""
        try:
            waiting = self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        # A TLS server may send session tickets at any time.
        return self.tls is not None and waiting != b""

    def release(self) -> None:
        """Close the socket and break what cycles there are."""
        self.fd = -1
        self.reads = None
        self.sock.close()
        self.recvmsg = self.recvmsg_into = None
        self.framing.release()


@dataclass(frozen=True)
class Refused:
    """A connection that could not even be begun: its errno and the words for it."""

    number: int
    error: str


def start_connecting(target: Target, *, use_stamps: bool) -> tuple[socket.socket, bool] | Refused:
    """A non-blocking socket on its way to `target`, and whether it is connected already."""
    sock = None
    try:
        sock = socket.socket(target.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if not target.is_unix:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if use_stamps:
            stamps.enable(sock)
        trouble = sock.connect_ex(target.address)
    except OSError as error:
        if sock is not None:
            sock.close()
        return Refused(error.errno or 0, describe(error.errno or 0, str(error.strerror or error)))
    if trouble in (0, errno.EINPROGRESS):
        return sock, trouble == 0
    sock.close()
    return Refused(trouble, describe(trouble))
