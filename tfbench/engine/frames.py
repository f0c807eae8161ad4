"""Bytes of the engine's responses: SSE events in vLLM's shape, framed for HTTP/1.1 chunked transfer. Pure.

Chat: a role event, one event a token, the last of them with `finish_reason`, a usage event on request, `[DONE]`.
Text completions: the same without the role event.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from tfbench.core.version import VERSION
from tfbench.engine.api import Submission
from tfbench.engine.tokens import tokens_text

FINGERPRINT = f"tfbench-{VERSION}"
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class StreamFrames:
    """What stays the same over one stream's events.

    An event is `head` + text + `tail` (or `final_tail`) + continuous usage, if asked for, + `close`. `first` precedes
    the first token (the role event), `last` follows the final one (usage, end mark); each is framed already.
    """

    submission: Submission
    first: bytes
    head: bytes
    tail: bytes
    final_tail: bytes
    close: bytes
    last: bytes
    chunked: bool


def usage_of(prompt_tokens: int, output_tokens: int) -> dict[str, int | None]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


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
    fingerprint = b',"system_fingerprint":' + orjson.dumps(FINGERPRINT)
    last = b""
    if submission.include_usage:
        usage = orjson.dumps(usage_of(submission.prompt_tokens, submission.output_tokens))
        last = _framed(opening + b',"choices":[],"usage":' + usage + fingerprint + b"}\n\n", chunked)
    else:
        final_tail += fingerprint
    last += _framed(b"data: [DONE]\n\n", chunked)
    first = b""
    if submission.chat:
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        role = b',"choices":[' + choice + b'],"prompt_token_ids":null,"prompt_text":null'
        first = _framed(opening + role + _continuous_usage(submission, 0) + b"}\n\n", chunked)
    if chunked:
        last += _LAST_CHUNK
    return StreamFrames(submission, first, head, tail, final_tail, b"}\n\n", last, chunked)


def encode_tokens(frames: StreamFrames, start: int, stop: int) -> bytes:
    """The bytes that carry tokens `start` to `stop` - 1 in one event, with what goes before and after all tokens."""
    submission = frames.submission
    final = stop == submission.output_tokens
    event = b"%b%b%b%b%b" % (
        frames.head,
        tokens_text(submission.source, start, stop).encode(),
        frames.final_tail if final else frames.tail,
        _continuous_usage(submission, stop) if submission.continuous_usage else b"",
        frames.close,
    )
    if frames.chunked:
        event = b"%x\r\n%b\r\n" % (len(event), event)
    if start == 0:
        event = frames.first + event
    return event + frames.last if final else event


def body_bytes(submission: Submission, response_id: str, created: int) -> bytes:
    """The whole JSON body of a request that doesn't stream."""
    text = tokens_text(submission.source, 0, submission.output_tokens)
    choice: dict[str, Any] = {"index": 0}
    if submission.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": submission.finish_reason, "stop_reason": None}
    return orjson.dumps(
        {
            "id": response_id,
            "object": "chat.completion" if submission.chat else "text_completion",
            "created": created,
            "model": submission.model,
            "choices": [choice],
            "system_fingerprint": FINGERPRINT,
            "usage": usage_of(submission.prompt_tokens, submission.output_tokens),
        }
    )


def _continuous_usage(submission: Submission, output_tokens: int) -> bytes:
    if not submission.continuous_usage:
        return b""
    usage = usage_of(submission.prompt_tokens, output_tokens) | {"completion_tokens_details": None}
    return b',"usage":' + orjson.dumps(usage)


def _framed(event: bytes, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event) if chunked else event
