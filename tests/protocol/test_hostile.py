"""No input raises: any bytes, any JSON, every field of the wrong type. What comes out can always be stored."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.captures import read_stream, sse
from tfbench.core.kinds import OUTPUT_KINDS, ChunkKind
from tfbench.protocol import DIALECTS, Chunk, Decoder, SseEvent, Usage
from tfbench.protocol.openai_body import decode_body
from tfbench.protocol.openai_fields import REASONING_KEYS

FIELDS = [
    *("id", "model", "object", "choices", "index", "delta", "message", "content", "text", "role", "type"),
    *("finish_reason", "usage", "x_groq", "prompt_tokens", "completion_tokens", "prompt_tokens_details"),
    *("completion_tokens_details", "cached_tokens", "reasoning_tokens", "token_ids", "tool_calls", "function_call"),
    *("function", "custom", "name", "arguments", "input", "refusal", "error", "detail", "errors", "loc", "msg", "code"),
    *REASONING_KEYS,
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, 2**31, 2**63, 2**64, -(10**40), 10**400]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["", "stop", "error", "[DONE]", "thinking", "text", "\ud83d", "a\x00b"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
GOOD = {
    "id": "c",
    "object": "chat.completion.chunk",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "delta": {
                "role": "assistant",
                "content": "hi",
                "reasoning": "hm",
                "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}],
            },
            "message": {"content": [{"type": "thinking", "thinking": "x"}]},
            "finish_reason": "stop",
            "token_ids": [1, 2],
        },
        {"index": 1, "text": "x", "finish_reason": None},
    ],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    },
    "error": None,
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in [(*path, key), *paths(inner, (*path, key))]]


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A good chunk with one to three values dropped or replaced by anything."""
    value = json.loads(json.dumps(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(value)))
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        if draw(st.booleans()) and isinstance(holder, dict):
            del holder[path[-1]]
        else:
            holder[path[-1]] = draw(VALUES)
        if not paths(value):
            break
    return value  # type: ignore[no-any-return]


JSON_TEXTS = (VALUES | spoiled()).map(lambda value: json.dumps(value).encode())
DATA = JSON_TEXTS | st.binary(max_size=30) | st.sampled_from([b"[DONE]", b"", b"{", b'{"choices":[{}]}'])
EVENTS = st.builds(SseEvent, DATA, st.none() | st.sampled_from([b"error", b"ping"]), st.booleans(), st.just(9))


def storable(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


def check_facts(decoder: Decoder) -> None:
    for text in (decoder.error, decoder.finish_reason, decoder.response_model, decoder.response_id):
        assert text is None or (isinstance(text, str) and 0 < len(text) <= 300 and storable(text))
    assert isinstance(decoder.done, bool)
    if decoder.usage is not None:
        check_usage(decoder.usage)


def check_usage(usage: Usage) -> None:
    assert any(number is not None for number in usage)
    for number in usage:
        assert number is None or (type(number) is int and 0 <= number < 2**31)


def check_chunk(chunk: Chunk | None) -> None:
    if chunk is not None:
        assert isinstance(chunk, Chunk)
        assert isinstance(chunk.kind, ChunkKind)
        assert isinstance(chunk.text, str)
        assert storable(chunk.text)
        assert bool(chunk.text) == (chunk.kind in OUTPUT_KINDS - {ChunkKind.EMPTY})
        assert chunk.tokens is None or (type(chunk.tokens) is int and 0 <= chunk.tokens < 2**31)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None)
@given(events=st.lists(EVENTS, max_size=6))
def test_any_events_give_storable_facts_and_the_decoder_goes_on(dialect: str, events: list[SseEvent]) -> None:
    decoder = DIALECTS[dialect].stream_decoder()
    for event in events:
        failed_before = decoder.error
        chunk = decoder.feed(event)
        check_chunk(chunk)
        check_facts(decoder)
        if chunk is not None and chunk.kind is ChunkKind.ERROR:
            assert decoder.error is not None
        if failed_before is not None:
            assert decoder.error == failed_before
    good = decoder.feed(SseEvent(b'{"choices":[{"index":0,"delta":{"content":"ok"}}]}', None, False, 1))
    assert good is not None
    assert good[:2] == (ChunkKind.TEXT, "ok")


@settings(deadline=None)
@given(DATA)
def test_any_body_gives_a_storable_result(data: bytes) -> None:
    result = decode_body(data)
    assert isinstance(result.kind, ChunkKind)
    assert (result.kind is ChunkKind.ERROR) == (result.error is not None)
    for text in (result.text, result.reasoning, result.tool, result.finish_reason, result.response_model, result.error):
        assert text is None or (isinstance(text, str) and storable(text))
    if result.usage is not None:
        check_usage(result.usage)


@settings(deadline=None)
@given(
    st.lists(DATA.filter(lambda d: b"\n" not in d and b"\r" not in d), max_size=4),
    st.lists(st.integers(0, 999), max_size=6),
)
def test_how_a_stream_is_cut_changes_nothing(data: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(b"data: " + line + b"\n\n" for line in data)
    edges = [0, *sorted(c % (len(stream) + 1) for c in cuts), len(stream)]
    whole = read_stream([stream])
    parts = read_stream([stream[a:b] for a, b in pairwise(edges)])
    assert parts.chunks == whole.chunks
    assert parts.decoder.usage == whole.decoder.usage
    assert (parts.decoder.error, parts.decoder.done) == (whole.decoder.error, whole.decoder.done)


@settings(deadline=None)
@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=8), st.booleans())
def test_text_comes_through_as_it_was_sent(texts: list[str], chat: bool) -> None:
    choices = [{"delta": {"content": text}} if chat else {"text": text} for text in texts]
    result = read_stream([sse(*(json.dumps({"choices": [choice]}) for choice in choices), "[DONE]")])
    assert [chunk.text for chunk in result.chunks] == texts
    assert set(result.kinds) == {ChunkKind.TEXT}


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2, 9]) | st.integers(0, 9), min_size=1, max_size=12))
def test_continuous_usage_adds_up_while_it_keeps_pace(steps: list[int]) -> None:
    total, lines = 0, []
    for step in steps:
        total += step
        usage = {"prompt_tokens": 3, "completion_tokens": total}
        lines.append(json.dumps({"choices": [{"delta": {"content": "x"}}], "usage": usage}))
    result = read_stream([sse(*lines)])
    keeps_pace = steps.index(0) if 0 in steps else len(steps)  # what shows something took a token
    assert result.tokens == steps[:keeps_pace] + [None] * (len(steps) - keeps_pace)
    assert result.decoder.usage == Usage(3, None, total, None)
