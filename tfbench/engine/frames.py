"""Bytes of the engine's responses: SSE events in vLLM's shape, framed for HTTP/1.1 chunked transfer. Pure.

Chat: a role event, one event a token, the last of them with `finish_reason`, a usage event on request, `[DONE]`.
Text completions: the same without the role event.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from tfbench.core.version import VERSION
from tfbench.engine.api import Submission
from tfbench.engine.tokens import TOKEN_BYTES, token_bytes, tokens_text

FINGERPRINT = f"tfbench-{VERSION}"
_FINGERPRINT = b',"system_fingerprint":' + orjson.dumps(FINGERPRINT)
_CLOSE = b"}\n\n"
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class StreamFrames:
    """What stays the same over one stream's events.

    An event is `head` + text + `tail` (or `final_tail`) + continuous usage, if asked for, + the end of the event.
    `role` is the framed event before the first token, empty where there is none; `end` ends the body as HTTP has it.
    `plain` is what surrounds the text of an event of one token, neither the first nor the last, framing included; None
    where such events differ by more than their text.
    """

    submission: Submission
    role: bytes
    opening: bytes
    head: bytes
    tail: bytes
    final_tail: bytes
    end: bytes
    plain: tuple[bytes, bytes] | None
    chunked: bool


def usage_of(prompt_tokens: int, output_tokens: int, cached_tokens: int | None = None) -> dict[str, Any]:
    """OpenAI's `usage`; `cached_tokens` is None where the engine reuses no prompts."""
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return usage


def stream_frames(submission: Submission, response_id: str, created: int, *, chunked: bool) -> StreamFrames:
    """The frames of one stream; `chunked` as HTTP/1.1 has it, else bare SSE for HTTP/1.0."""
    start: dict[str, Any] = {
        "id": response_id,
        "object": "chat.completion.chunk" if submission.chat else "text_completion",
        "created": created,
        "model": submission.model,
    }
    opening = b"data: " + orjson.dumps(start)[:-1]
    reason = orjson.dumps(submission.finish_reason)
    if submission.chat:
        head = opening + b',"choices":[{"index":0,"delta":{"content":"'
        tail = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]'
        final_tail = b'"},"logprobs":null,"finish_reason":' + reason + b',"stop_reason":null,"token_ids":null}]'
    else:
        ids = b',"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'
        head = opening + b',"choices":[{"index":0,"text":"'
        tail = b'","logprobs":null,"finish_reason":null' + ids
        final_tail = b'","logprobs":null,"finish_reason":' + reason + ids
    if not submission.include_usage:
        final_tail += _FINGERPRINT
    role = b""
    if submission.chat:
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        fields = b',"choices":[' + choice + b'],"prompt_token_ids":null,"prompt_text":null'
        role = _framed(opening + fields + _continuous_usage(submission, 0) + b"}\n\n", chunked)
    plain = None
    if not submission.continuous_usage:
        before, after = head, tail + _CLOSE
        if chunked:
            before, after = b"%x\r\n" % (len(head) + TOKEN_BYTES + len(after)) + head, after + b"\r\n"
        plain = before, after
    end = b"0\r\n\r\n" if chunked else b""
    return StreamFrames(submission, role, opening, head, tail, final_tail, end, plain, chunked)


def encode_tokens(
    frames: StreamFrames, start: int, stop: int, *, role: bool = True, cached_tokens: int | None = None
) -> bytes:
    """The bytes that carry tokens `start` to `stop` - 1 in one event, with what goes before and after all tokens.

    `role`: whether the role event still has to go before the first token. `cached_tokens` is for the usage at the end.
    """
    submission = frames.submission
    final = stop == submission.output_tokens
    if stop - start == 1 and start and not final and frames.plain is not None:
        before, after = frames.plain
        return before + token_bytes(submission.source, start) + after
    event = b"%b%b%b%b%b" % (
        frames.head,
        tokens_text(submission.source, start, stop).encode(),
        frames.final_tail if final else frames.tail,
        _continuous_usage(submission, stop),
        _CLOSE,
    )
    event = _framed(event, frames.chunked)
    if start == 0 and role:
        event = frames.role + event
    return event + _ending(frames, cached_tokens) if final else event


def error_event(frames: StreamFrames, error: bytes) -> bytes:
    """What ends a stream with an OpenAI error object, `error` as JSON."""
    return _framed(b"data: " + error + b"\n\n", frames.chunked) + _framed(_DONE, frames.chunked) + frames.end


def _ending(frames: StreamFrames, cached_tokens: int | None) -> bytes:
    """What follows the last token: usage if asked for, and the end mark."""
    submission = frames.submission
    last = b""
    if submission.include_usage:
        usage = orjson.dumps(usage_of(submission.prompt_tokens, submission.output_tokens, cached_tokens))
        fields = b',"choices":[],"usage":' + usage + _FINGERPRINT
        last = _framed(frames.opening + fields + b"}\n\n", frames.chunked)
    return last + _framed(_DONE, frames.chunked) + frames.end


def body_bytes(
    submission: Submission, response_id: str, created: int, *, usage: bool = True, cached_tokens: int | None = None
) -> bytes:
    """The whole JSON body of a request that doesn't stream, without its usage if told so."""
    text = tokens_text(submission.source, 0, submission.output_tokens)
    choice: dict[str, Any] = {"index": 0}
    if submission.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": submission.finish_reason, "stop_reason": None}
    body: dict[str, Any] = {
        "id": response_id,
        "object": "chat.completion" if submission.chat else "text_completion",
        "created": created,
        "model": submission.model,
        "choices": [choice],
        "system_fingerprint": FINGERPRINT,
    }
    if usage:
        body["usage"] = usage_of(submission.prompt_tokens, submission.output_tokens, cached_tokens)
    return orjson.dumps(body)


def _continuous_usage(submission: Submission, output_tokens: int) -> bytes:
    if not submission.continuous_usage:
        return b""
    usage = usage_of(submission.prompt_tokens, output_tokens) | {"completion_tokens_details": None}
    return b',"usage":' + orjson.dumps(usage)


def _framed(event: bytes, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event) if chunked else event
