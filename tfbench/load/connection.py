"""One socket of the wire: its framing, its TLS, what is still to be sent."""

import errno
import socket
from dataclasses import dataclass
from typing import Any

from tfbench.load import stamps
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
        "drained",
        "fd",
        "framing",
        "id",
        "idle_until_ns",
        "last_poll",
        "last_recv_ns",
        "lower_ns",
        "mask",
        "opened",
        "out",
        "recvmsg_into",
        "sock",
        "tls",
        "untouched",
    )

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.id = number
        self.sock = sock
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
        self.idle_until_ns = 0
        self.last_poll = -1
        self.last_recv_ns = 0
        self.lower_ns = 0
        self.drained = True

    @property
    def sending(self) -> bool:
        """Whether part of a request (or of a handshake) still has to go out."""
        return self.out is not None or (self.tls is not None and self.tls.sending)

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
        self.sock.close()
        self.recvmsg_into = None
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
