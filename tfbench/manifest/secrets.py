"""URLs and headers: what may be written in a manifest, and how secrets stay out of it."""

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes, urlsplit

ENV = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_UNIX = "http+unix"
# sun_path of macOS, the shorter one: 104 bytes with the closing zero.
_MAX_SOCKET_PATH = 103
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_NAME = re.compile(
    r"(^|[-_])(auth|authorization|api-?key|key|token|secret|password|passwd|cookie|credentials?|signature)($|[-_])"
)
_SECRET_FLAG = re.compile(r"(api[-_]?key|(api|auth|access|bearer|hf)[-_]token|secret([-_]key)?|passw(or)?d)$")
_SECRET_VALUE = re.compile(r"(?i)(bearer|basic)\s|(sk|pk|rk)-[\w-]{8}|hf_\w{8}|gh[opsur]_\w{8}|xox[a-z]-")
_OURS = frozenset(
    "accept-encoding connection content-length content-type expect host keep-alive te trailer transfer-encoding "
    "upgrade x-request-id".split()
)


def clean_url(text: str) -> str:
    """`text` as an endpoint's base URL, without a trailing slash; ValueError says what is wrong, never quoting secrets.

    A URL without a path means the server's root and gets "/v1", where every OpenAI-compatible server keeps its API.
    """
    if any(not c.isprintable() or c.isspace() for c in text) or not text.isascii():
        raise ValueError("has a space, a control character or a non-ASCII character; write it percent-encoded")
    example = "; write it like http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(text)
        port = None if parts.scheme == _UNIX else parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL ({_reason(error)}){example}") from None
    if parts.scheme not in ("http", "https", _UNIX):
        scheme = f'has the scheme "{parts.scheme}"' if parts.scheme and "://" in text else "has no scheme"
        raise ValueError(f"{scheme}, expected http or https{example}")
    if "@" in parts.netloc:
        raise ValueError('carries a user or password; remove it and give headers = { Authorization = "env:NAME" }')
    if parts.scheme == _UNIX:
        host = quote(_socket_path(parts.netloc), safe="")
    elif not parts.hostname or re.search(r"[^0-9A-Za-z._:%\[\]-]", parts.netloc):
        raise ValueError(f"has no valid host{example}")
    else:
        host = parts.netloc.lower()
    if port == 0:
        raise ValueError(f"has port 0{example}")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError("has a query or a fragment; give the base alone and put keys into headers as env:NAME")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/') or '/v1'}"


def socket_path(url: str) -> str | None:
    """The Unix socket that an endpoint's URL names, None where it names a host."""
    parts = urlsplit(url)
    return _socket_path(parts.netloc) if parts.scheme == _UNIX else None


def _socket_path(netloc: str) -> str:
    example = "write it percent-encoded, like http+unix://%2Frun%2Fserver.sock/v1"
    path = unquote_to_bytes(netloc)
    if not path.startswith(b"/") or path.endswith(b"/"):
        raise ValueError(f"names no absolute path of a socket; {example}")
    if len(path) > _MAX_SOCKET_PATH:
        raise ValueError(f"names a socket by {len(path)} bytes, more than {_MAX_SOCKET_PATH}; use a shorter path")
    try:
        text = path.decode()
    except UnicodeDecodeError:
        raise ValueError(f"names a socket whose path is not UTF-8; {example}") from None
    if not text.isprintable():
        raise ValueError(f"names a socket whose path has a control character; {example}")
    return text


def _reason(error: ValueError) -> str:
    # urllib quotes the offending text, which may hold a password.
    return "the port is not a number from 1 to 65535" if "ort" in str(error) else "the host is malformed"


def header_problem(name: str, value: str) -> str | None:
    """What is wrong with a header of a manifest, or None. Never quotes the value."""
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name):
        return "is not a header name; use letters, digits and hyphens"
    if lower in _OURS:
        return "is set by tfbench itself; remove it"
    if ENV.fullmatch(value):
        return None
    if value.startswith("env:"):
        return 'names no environment variable; write "env:NAME" with letters, digits and underscores'
    if _SECRET_NAME.search(lower) or _SECRET_VALUE.match(value):
        variable = "API_KEY" if lower == "authorization" else re.sub(r"\W+", "_", name).upper()
        return f'holds a literal secret; put it into the environment and write "env:{variable}"'
    return value_problem(value)


def value_problem(value: str) -> str | None:
    """Why `value` can't be a header's value, or None. Never quotes it."""
    if not value or value != value.strip():
        return "is empty or has spaces around it; remove them"
    if not (value.isascii() and value.isprintable()):
        return "has a character that a header can't carry; use printable ASCII"
    return None


def secret_in_args(args: tuple[str, ...] | Mapping[str, object]) -> str | None:
    """The first engine argument that looks like a literal secret, or None; a value "env:NAME" is allowed."""
    if isinstance(args, Mapping):
        pairs = [(str(key), value) for key, value in args.items()]
    else:
        split = [arg.partition("=") for arg in args]
        following = (*args[1:], "")
        pairs = [(key, value if sign else nxt) for (key, sign, value), nxt in zip(split, following, strict=False)]
    for key, value in pairs:
        named = _SECRET_FLAG.search(key.lower()) and value not in ("", None, True, False)
        literal = isinstance(value, str) and not ENV.fullmatch(value)
        if literal and (named or _SECRET_VALUE.match(str(value))):
            return key
    return None
