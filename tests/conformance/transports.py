"""The transports that a response can be played over."""

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator

from tests.conformance.loopback import InMemory, Loopback, listening
from tests.load.rig import tls_server_context

Opener = Callable[[], Loopback | InMemory]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


TRANSPORTS = ("IPv4", *(["IPv6"] if _has_ipv6() else []), "Unix", "TLS", "mock")
"""Names of those this machine has."""


@contextlib.contextmanager
def opener(name: str) -> Iterator[Opener]:
    """A function that opens a fresh loopback of that transport and closes the one before."""
    family = {"IPv6": socket.AF_INET6, "Unix": socket.AF_UNIX}.get(name, socket.AF_INET)
    server, client = tls_server_context() if name == "TLS" else (None, None)
    opened: list[Loopback | InMemory] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfb"))
        listener, target = stack.enter_context(listening(family, folder, tls=server is not None))

        def fresh() -> Loopback | InMemory:
            while opened:
                opened.pop().close()
            with contextlib.suppress(BlockingIOError):  # connections that a failed one left behind
                while True:
                    listener.accept()[0].close()
            if name == "mock":
                opened.append(InMemory())
            else:
                opened.append(Loopback(listener, target, client=client, server=server, use_stamps=True))
            return opened[-1]

        try:
            yield fresh
        finally:
            while opened:
                opened.pop().close()
