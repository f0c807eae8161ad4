"""Where requests go: a URL taken apart, its name resolved once, its TLS settings."""

import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from tfbench.core.errors import EndpointError, NotReady
from tfbench.load.tls import tls_trouble

UNIX_SCHEME = "http+unix"


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
    def is_unix(self) -> bool:
        """Whether `address` is a path: no TCP, and no kernel stamps."""
        return self.scheme == UNIX_SCHEME

    @property
    def authority(self) -> str:
        """The Host header: the port only where it isn't the scheme's own."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"

    @property
    def shown_address(self) -> str:
        """The address connected to, for the record."""
        return str(self.address[0]) if isinstance(self.address, tuple) else str(self.address)


def unix_path(url: str) -> str | None:
    """The socket's path in a URL like http+unix://%2Frun%2Fllm.sock/v1, None for any other URL."""
    parts = urlsplit(url)
    # Not parts.hostname: that is in lower case.
    return unquote(parts.netloc) if parts.scheme == UNIX_SCHEME else None


def control_url(url: str) -> str:
    """`url` as an HTTP client takes it that is given the Unix socket's path apart."""
    return url if unix_path(url) is None else f"http://localhost{urlsplit(url).path}"


def resolve_target(url: str, connect_s: float) -> Target:
    """Take `url` apart and resolve its name, keeping the first address that accepts a connection (and TLS).

    Raises EndpointError when the name is unknown, nothing accepts within `connect_s`, or the server's
    certificate isn't trusted.
    """
    parts = urlsplit(url)
    path = unix_path(url)
    if path is not None:
        return _resolve_unix(url, path, parts.path.rstrip("/"), connect_s)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if tls else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EndpointError(
            f"{url}: can't resolve host {host!r} ({error}); check endpoint.url and the network"
        ) from error
    context = tls_context() if tls else None
    trouble = "no address"
    for family, kind, proto, _, address in found:
        try:
            with socket.socket(family, kind, proto) as sock:
                sock.settimeout(connect_s)
                sock.connect(address)
                if context is not None:
                    context.wrap_socket(sock, server_hostname=host).close()
        except ssl.SSLError as error:
            # Another address would show the same.
            raise EndpointError(f"{url}: {tls_trouble(error, host)}") from error
        except OSError as error:
            trouble = f"{address[0]}:{port}: {error.strerror or error}"
            continue
        return Target(parts.scheme, host, port, parts.path.rstrip("/"), family, address, tls)
    raise NotReady(_no_connection(url, trouble), answered=False)


def _no_connection(url: str, trouble: str) -> str:
    return f"{url}: can't connect ({trouble}); is the server running, and is endpoint.url right?"


def _resolve_unix(url: str, path: str, base_path: str, connect_s: float) -> Target:
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise EndpointError(f"{url}: this platform has no Unix sockets; give endpoint.url a host and a port")
    if not path.startswith("/"):
        raise EndpointError(f"{url}: {path!r} isn't an absolute path; write http+unix://%2Fpath%2Fto.sock/v1")
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(connect_s)
            sock.connect(path)
    except OSError as error:
        trouble = f"{path}: {error.strerror or error}"
        raise NotReady(_no_connection(url, trouble), answered=False) from error
    return Target(UNIX_SCHEME, "localhost", 80, base_path, family, path, False)


def tls_context() -> ssl.SSLContext:
    """The TLS settings of every connection: system trust (or SSL_CERT_FILE), HTTP/1.1 only, no renegotiation."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
