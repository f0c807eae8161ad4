"""Where requests go: a URL taken apart, its name resolved once, its TLS settings."""

import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tfbench.core.errors import EndpointError


@dataclass(frozen=True)
class Target:
    """A resolved endpoint. `address` is what connect() takes; `host` goes into the Host header and SNI."""

    scheme: str
    host: str
    port: int
    base_path: str
    family: int
    address: Any
    tls: bool

    @property
    def authority(self) -> str:
        """The Host header: the port only where it isn't the scheme's own."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"

    @property
    def shown_address(self) -> str:
        """The address connected to, for the record."""
        return str(self.address[0]) if isinstance(self.address, tuple) else str(self.address)


def resolve_target(url: str, connect_s: float) -> Target:
    """Take `url` apart and resolve its name, keeping the first address that accepts a connection.

    Raises EndpointError when the name is unknown or nothing accepts within `connect_s`.
    """
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if tls else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EndpointError(
            f"{url}: can't resolve host {host!r} ({error}); check endpoint.url and the network"
        ) from error
    trouble = "no address"
    for family, kind, proto, _, address in found:
        try:
            with socket.socket(family, kind, proto) as sock:
                sock.settimeout(connect_s)
                sock.connect(address)
        except OSError as error:
            trouble = f"{address[0]}:{port}: {error.strerror or error}"
            continue
        return Target(parts.scheme, host, port, parts.path.rstrip("/"), family, address, tls)
    raise EndpointError(f"{url}: can't connect ({trouble}); is the server running, and is endpoint.url right?")


def tls_context() -> ssl.SSLContext:
    """The TLS settings of every connection: system trust, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
