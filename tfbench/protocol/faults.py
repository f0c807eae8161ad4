"""Error texts: found in whatever a server or a proxy sends, made one short line."""

import re
from typing import Any

from tfbench.protocol.encodings import decoded
from tfbench.protocol.jsonread import loads

LIMIT = 300
"""Longest error text kept, in characters."""

_LOOK_AT = 8192  # a page of HTML says what it has to say in its first kilobytes
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style)\b.*?(</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_MESSAGE_KEYS = ("message", "msg", "detail", "error", "error_message", "title", "reason")
_NAME_KEYS = ("type", "code", "status")


def one_line(text: str) -> str:
    """`text` on one line: runs of whitespace and control characters made one space, cut at LIMIT."""
    text = text[: 8 * LIMIT]
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"


def describe(error: Any) -> str:
    """The message in an error value of any shape, as one line; never empty."""
    return one_line(_message(error, 4)) or "error without a message"


def _message(error: Any, depth: int) -> str:
    if isinstance(error, str):
        return error
    if depth == 0 or error is None or isinstance(error, bool):
        return ""
    if isinstance(error, list):
        return "; ".join(filter(None, (_message(item, depth - 1) for item in error[:5])))
    if isinstance(error, dict):
        text = next(filter(None, (_message(error.get(key), depth - 1) for key in _MESSAGE_KEYS)), "")
        if not text:
            names = (error.get(key) for key in _NAME_KEYS)
            return " ".join(str(name) for name in names if type(name) in (str, int))
        where = error.get("loc")  # FastAPI's 422: {"loc": ["body", "temperature"], "msg": "…"}
        if isinstance(where, list) and where:
            return ".".join(str(part) for part in where[:8] if isinstance(part, str | int)) + ": " + text
        return text
    return str(error)


def find_error(body: dict[str, Any]) -> str | None:
    """The error that a JSON object reports, None where it reports none.

    Known shapes: {"error": {…}} and {"error": "…"} (null, "" and {} are no error), {"object": "error",
    "message": …}, {"type": "error", …}; and where there are no choices {"detail": …}, {"errors": […]},
    {"message": "…"}.
    """
    error = body.get("error")
    if error:
        return describe(body if error is True else error)
    if body.get("object") == "error" or body.get("type") == "error":
        return describe(body)
    if "choices" not in body:
        for key in ("detail", "errors", "message"):
            value = body.get(key)
            if value and (key != "message" or isinstance(value, str)):
                return describe(value)
    return None


def describe_bytes(body: bytes) -> str:
    """The message in an error body: JSON of any shape, HTML or plain text; "" for a blank one."""
    if not body.strip():
        return ""
    try:
        value = loads(body)
    except ValueError:
        return one_line(_plain(body))
    if isinstance(value, dict):
        return find_error(value) or describe(value)
    return describe(value)


def _plain(body: bytes) -> str:
    text = body[:_LOOK_AT].decode("utf-8", "replace")
    if "<" not in text:
        return text
    title = _TITLE.search(text)
    if title and title[1].strip():
        return title[1]
    return _TAG.sub(" ", _HIDDEN.sub(" ", text))


def error_message(status: int, body: bytes, encoding: str = "") -> str:
    """What a non-2xx response says: "HTTP 404: The model `x` does not exist.", at most LIMIT characters.

    `encoding` is its Content-Encoding; a body that can't be decoded is told by its name.
    """
    plain = decoded(body, encoding)
    text = f"body encoded as {encoding}" if plain is None else describe_bytes(plain)
    return one_line(f"HTTP {status}: {text}" if text else f"HTTP {status} without a message")
