"""What stands in the way of a probe, told so that it can be put right: which field, which model, what speaks there."""

import contextlib
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from tfbench.core.errors import EndpointError, NotReady
from tfbench.manifest.body import SET_BY
from tfbench.protocol import error_message
from tfbench.protocol.jsonread import loads

_TOO_MANY = 429
_GATEWAY = {502, 503, 504, 520, 521, 522, 523, 524, 529}
"""What servers and the proxies before them say while nobody can serve."""
_BUSY = re.compile(
    r"busy|overload|too many|queue|capacity|rate.?limit|concurren|throttl|try again later", re.IGNORECASE
)
_LOADING = re.compile(
    r"load(ing|ed)? model|model.{0,30}\bloading|not (yet )?ready|starting up|warming|initiali[sz]", re.IGNORECASE
)
_SPENT = re.compile(r"quota|billing|credit|payment", re.IGNORECASE)
_LACKS = re.compile(
    r"not found|n.t found|not exist|n.t exist|unknown|no such|not (a )?(valid|available|served)", re.IGNORECASE
)
_OTHER_FAULTS = {401, 403, 404, 405, 408, 413}
"""Refusals that no body field is the reason of."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"[\"'`‘“«]([A-Za-z_][A-Za-z0-9_.]*)[\"'`’”»]")
_PLACES = (
    "param",
    "params",
    "loc",
    "field",
    "fields",
    "path",
    "pointer",
    "property",
    "parameter",
    "argument",
    "key",
    "name",
)
"""Where JSON errors say which field they are about."""
_EVERYDAY = {"model", "messages", "prompt", "stream", "stop", "user", "seed"}
"""Words that a message may use without meaning the field."""
_DEEPEST = 6
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS = 4
_ELSEWHERE = re.compile(r"https|\bssl|\btls|http/?2", re.IGNORECASE)
_ONLY_1_1 = "requests are measured over HTTP/1.1: give a port that takes it, or put a proxy before the server"


def trouble(url: str, what: str, fix: str) -> EndpointError:
    """The error of an endpoint in one line: the URL, what is wrong, the fix."""
    return EndpointError(f"{url}: {what}; {fix}")


def unready(url: str, status: int, body: bytes) -> NotReady | None:
    """The error of a server that can't serve now though it may later; None where `status` is something else."""
    text = error_message(status, body)
    if status == _TOO_MANY and _SPENT.search(text):
        return None
    if status == _TOO_MANY or (status in _GATEWAY and _BUSY.search(text) and not _LOADING.search(text)):
        return NotReady(f"{url}: the server is busy ({text}); let its other load end, or wait with --wait SECONDS")
    if status in _GATEWAY or (status >= 500 and _LOADING.search(text)):
        return NotReady(f"{url}: the server isn't ready ({text}); wait for it with --wait SECONDS")
    return None


def speaks_of_another_protocol(status: int, text: str) -> bool:
    """Whether a refusal is what servers and proxies answer in plain HTTP to whoever forgot TLS, or HTTP/2."""
    return status in (400, 426, 497, 505) and bool(_ELSEWHERE.search(text))


def lacks_model(status: int, text: str, body: bytes) -> bool:
    """Whether a refusal is about the model's name."""
    if not 400 <= status < 500 or "model" not in text.lower():
        return False
    return status == 404 or bool(_LACKS.search(text)) or "model" in _named(_json(body))


def refused_fields(status: int, body: bytes, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of the body `sent` that an error is about, however it says so.

    What names a field by a key made for it (OpenAI's `param`, pydantic's `loc`) counts first, then what is quoted in
    the text, then a bare word of it that isn't an everyday one.
    """
    if status < 400 or status in _OTHER_FAULTS or not sent:
        return ()
    by_plain = {_plain(name): name for name in sent}
    value = _json(body)
    text = " ".join(_texts(value, _DEEPEST)) if value is not None else body[:8192].decode("utf-8", "replace")
    bare = [word for word in _WORD.findall(text) if word.lower() not in _EVERYDAY]
    keys = [key for key in value if isinstance(key, str)] if isinstance(value, dict) else []
    for words in (_named(value), [word.split(".")[0] for word in _QUOTED.findall(text)], bare, keys):
        found = tuple(dict.fromkeys(by_plain[_plain(word)] for word in words if _plain(word) in by_plain))
        if found:
            return found
    return ()


def field_fix(name: str, fields: Mapping[str, str | bool], body: bytes, extra: Iterable[str]) -> str:
    """The key that leaves the body field `name` out, or sends it under another name."""
    own = next((ours for ours, theirs in fields.items() if theirs == name), name)
    if own in extra:
        return f"remove sampling.extra.{own}"
    if own == "stream_options":
        return "leave it out with endpoint.include_usage = false"
    if own == "ignore_eos":
        return "leave it out with sampling.ignore_eos = false"
    if own == "max_tokens":
        other = next(
            (word for word in _WORD.findall(body[:8192].decode("utf-8", "replace")) if _is_limit(word, name)), None
        )
        other = other or ("max_completion_tokens" if name != "max_completion_tokens" else "max_tokens")
        return f'rename it with endpoint.fields.max_tokens = "{other}", or leave it out with false'
    if own in SET_BY and SET_BY[own].startswith("sampling."):
        return f'leave it out with {SET_BY[own]} = "unset"' if own != "stop" else "leave it out with sampling.stop = []"
    return f"leave it out with endpoint.fields.{own} = false, or rename it with a text there"


def _is_limit(word: str, name: str) -> bool:
    """Whether a word is another name for the most tokens of an answer."""
    plain = _plain(word)
    return plain != _plain(name) and "max" in plain and "token" in plain


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()


def _json(body: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return loads(body)
    return None


def _texts(value: Any, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    if depth and isinstance(value, list):
        return [text for item in value[:50] for text in _texts(item, depth - 1)]
    if depth and isinstance(value, dict):
        return [text for item in list(value.values())[:50] for text in _texts(item, depth - 1)]
    return []


def _named(value: Any, depth: int = _DEEPEST) -> list[str]:
    """The parts of what stands where errors say which field they are about."""
    found: list[str] = []
    if depth and isinstance(value, list):
        for item in value[:50]:
            found += _named(item, depth - 1)
    elif depth and isinstance(value, dict):
        for key, item in list(value.items())[:50]:
            if key in _PLACES:
                found += [part for text in _texts(item, 2) for part in re.split(r"[./\[\]\s]+", text) if part]
            else:
                found += _named(item, depth - 1)
    return found


def spoken(url: str, limit_s: float) -> str | None:
    """What a server at `url` speaks: "https", "http", "http2" alone; None where it can't be told."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    at = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    if parts.scheme == "http":
        return "https" if _handshake(at, limit_s, ["http/1.1", "h2"]) is not None else _plain_speech(at, limit_s)
    own = _handshake(at, limit_s, ["http/1.1"])
    if own != "http/1.1" and _handshake(at, limit_s, ["h2"]) == "h2":
        return "http2"
    return "https" if own is not None else _plain_speech(at, limit_s)


def misdirected(url: str, limit_s: float) -> EndpointError | None:
    """The error of a URL that says http for https, or the other way round, or leads to HTTP/2 alone; None otherwise.

    To be asked where a request failed over `url`: a server that speaks HTTP/1.1 too never comes here.
    """
    found = spoken(url, min(limit_s, 2.0))
    if found == "http2":
        return trouble(url, "the server speaks HTTP/2 only", _ONLY_1_1)
    if found is None or found == urlsplit(url).scheme:
        return None
    name = "TLS (https)" if found == "https" else "plain HTTP, without TLS"
    return trouble(url, f"the server speaks {name} there", f"write {found}:// in endpoint.url")


def _handshake(at: tuple[str, int], limit_s: float, protocols: list[str]) -> str | None:
    """The protocol of a TLS handshake, "" where the server names none; None where there is no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    try:
        with socket.create_connection(at, limit_s) as sock, context.wrap_socket(sock, server_hostname=at[0]) as tls:
            return tls.selected_alpn_protocol() or ""
    except (OSError, ValueError):
        return None


def _plain_speech(at: tuple[str, int], limit_s: float) -> str | None:
    """ "http" or "http2", by what a server without TLS answers to the beginning of each."""
    question = b"GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % at[0].encode("idna")
    if _asked(at, limit_s, question).startswith(b"HTTP/"):
        return "http"
    answer = _asked(at, limit_s, _PREFACE)
    return "http2" if len(answer) >= 9 and answer[3] == _SETTINGS and answer[5:9] == bytes(4) else None


def _asked(at: tuple[str, int], limit_s: float, question: bytes) -> bytes:
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(at, limit_s) as sock:
        sock.settimeout(limit_s)
        sock.sendall(question)
        while len(answer) < 9 and (part := sock.recv(4096)):
            answer += part
    return answer
