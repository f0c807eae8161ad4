"""Kernel receive stamps: SO_TIMESTAMPNS through recvmsg, probed before it is relied on.

The stamp is CLOCK_REALTIME of the last byte a read returned (Linux ≥ 4.14 for TCP). Python's
socket module has no constant for option 35.
"""

import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35
SCM_TIMESTAMPNS = 35
ANCILLARY_BYTES = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 64
NO_STAMP = bytes(16)
_TIMESPEC = struct.Struct("@qq")


def ns_of(stamp: bytes) -> int:
    """ns of a stamp as the kernel gives it, a struct timespec; 0 for NO_STAMP."""
    seconds, nanoseconds = _TIMESPEC.unpack(stamp)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def to_stamp(ns: int) -> bytes:
    """What `ns_of` takes apart."""
    return _TIMESPEC.pack(*divmod(ns, 1_000_000_000))


def enable(sock: socket.socket) -> bool:
    """Ask the kernel for receive stamps on `sock`; False where it doesn't know them."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def stamp_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """CLOCK_REALTIME ns in the ancillary data of one recvmsg, or 0 when there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SCM_TIMESTAMPNS and len(data) == len(NO_STAMP):
            return ns_of(data)
    return 0


def hold_enabled() -> socket.socket | None:
    """An unused socket with stamps on; while it is open the kernel stamps from the first packet on.

    The kernel turns stamping on for all sockets a little after the first one asks for it.
    """
    sock = socket.socket()
    if enable(sock):
        return sock
    sock.close()
    return None


def probe(tries: int = 10) -> bool:
    """Whether TCP receive stamps work here: a byte over loopback must carry a plausible one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname(), timeout=1) as client:
            if not enable(client):
                return False
            server, _ = listener.accept()
            with server:
                return any(_stamped(server, client) for _ in range(tries))


def _stamped(server: socket.socket, client: socket.socket) -> bool:
    before = time.time_ns()
    server.sendall(b"x")
    try:
        _, ancillary, _, _ = client.recvmsg(16, ANCILLARY_BYTES)
    except OSError:
        return False
    stamp = stamp_of(ancillary)
    if before - 1_000_000 <= stamp <= time.time_ns() + 1_000_000:
        return True
    time.sleep(0.005)
    return False
