"""The transports that a loopback can be played over."""

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator

from tests.conformance.loopback import Loopback, listening

Opener = Callable[[], Loopback]


def _tcp_works(family: int, address: str) -> bool:
    try:
        with socket.socket(family) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


TRANSPORTS = tuple(
    name
    for name, there in (
        ("IPv4", True),
        ("IPv6", socket.has_ipv6 and _tcp_works(socket.AF_INET6, "::1")),
        ("Unix", hasattr(socket, "AF_UNIX")),
    )
    if there
)
"""Names of those this machine has."""


@contextlib.contextmanager
def opener(name: str) -> Iterator[Opener]:
    """A function that opens a fresh loopback of that transport; all of them share one listener."""
    family = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}.get(name)
    with contextlib.ExitStack() as stack:
        folder = ""
        if family is None:
            family = socket.AF_UNIX
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfb"))
        listener, target = stack.enter_context(listening(family, folder))
        opened: list[Loopback] = []

        def fresh() -> Loopback:
            while opened:
                opened.pop().close()
            with contextlib.suppress(BlockingIOError):  # connections that a failed one left behind
                while True:
                    listener.accept()[0].close()
            opened.append(Loopback(listener, target, use_stamps=True))
            return opened[-1]

        try:
            yield fresh
        finally:
            while opened:
                opened.pop().close()
