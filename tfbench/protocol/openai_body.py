"""Requests and non-streamed responses of the OpenAI dialects."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import orjson

from tfbench.core.kinds import ChunkKind
from tfbench.protocol.facts import BodyResult, Usage
from tfbench.protocol.faults import describe_bytes, find_error
from tfbench.protocol.jsonread import loads
from tfbench.protocol.openai_fields import in_order, read_choice, read_finish, read_name, read_usage
from tfbench.protocol.other_apis import other_api

_AS_THEY_ARE: Mapping[str, str | Literal[False]] = MappingProxyType({})


def encode_request(
    prompt: Mapping[str, Any],
    *,
    model: str,
    max_tokens: int | None,
    stream: bool,
    include_usage: bool,
    sampling: Mapping[str, Any],
    fields: Mapping[str, str | Literal[False]] = _AS_THEY_ARE,
) -> bytes:
    """A request's JSON: `prompt` holds the dialect's own prompt fields.

    `sampling` fields that are None are left out, and none can replace a field set here, but `stream_options` are
    merged. `fields` gives some of them another name, or leaves them out (False). Raises
    TypeError for what has no JSON form (a lone surrogate, an integer past 64 bits).
    """
    body: dict[str, Any] = {key: value for key, value in sampling.items() if value is not None}
    body |= prompt
    body["model"] = model
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    body["stream"] = stream
    if stream and include_usage:
        given = body.get("stream_options")
        body["stream_options"] = {**(given if isinstance(given, dict) else {}), "include_usage": True}
    if fields:
        names = {name: fields.get(name, name) for name in body}
        body = {str(names[name]): value for name, value in body.items() if names[name] is not False}
    return orjson.dumps(body)


def decode_body(body: bytes) -> BodyResult:
    """Reads a whole non-streamed 2xx response. No input raises; what can't be read is `error`.

    Text, reasoning and tool calls are those of all choices in index order; the finish reason is choice 0's.
    """
    try:
        value = loads(body)
    except ValueError:
        return _failed(_line_by_line(body) or "the response isn't JSON: " + (describe_bytes(body) or "it is empty"))
    if not isinstance(value, dict):
        return _failed(f"the response is a JSON {type(value).__name__}, not an object")
    message = find_error(value)
    if message is not None:
        return _failed(message)
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return _failed(other_api(value) or "the response has no choices")
    text = reasoning = tool = ""
    finish = error = None
    for index, choice in in_order(choices):
        if not isinstance(choice, dict):
            error = error or f"a choice is {type(choice).__name__}, not an object"
            continue
        shown = read_choice(choice)
        text += shown.text
        reasoning += shown.reasoning
        tool += shown.tool
        error = error or shown.fault
        if index == 0:
            finish = read_finish(choice)
    if finish == "error":
        error = error or "finish reason error"
    kind = _kind(error, text, tool, reasoning)
    usage = read_usage(value)
    if usage is not None:
        usage = usage.beside({kind, ChunkKind.REASONING} if reasoning else {kind})
        usage = None if usage == Usage() else usage
    return BodyResult(
        kind=kind,
        text=text,
        reasoning=reasoning,
        tool=tool,
        usage=usage,
        finish_reason=finish,
        error=error,
        n_choices=len(choices),
        response_model=read_name(value, "model"),
        response_id=read_name(value, "id"),
    )


def _line_by_line(body: bytes) -> str | None:
    """What to say of JSON objects one a line, as other APIs stream; None where the first isn't one of those."""
    first = body.lstrip().partition(b"\n")[0]
    try:
        value = loads(first)
    except ValueError:
        return None
    return (find_error(value) or other_api(value)) if isinstance(value, dict) else None


def _kind(error: str | None, text: str, tool: str, reasoning: str) -> ChunkKind:
    if error:
        return ChunkKind.ERROR
    shown = ((ChunkKind.TEXT, text), (ChunkKind.TOOL, tool), (ChunkKind.REASONING, reasoning))
    return next((kind for kind, what in shown if what), ChunkKind.EMPTY)


def _failed(error: str) -> BodyResult:
    return BodyResult(kind=ChunkKind.ERROR, error=error)
