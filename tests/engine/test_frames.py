"""The bytes of streams, held against what vLLM sent."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.engine import EngineConfig
from tfbench.engine.api import Submission, parse_submission
from tfbench.engine.frames import StreamFrames, body_bytes, encode_tokens, stream_frames

CONFIG = EngineConfig(model='ti"ny')


def submission(*, chat: bool, tokens: int = 3, include: bool = False, continuous: bool = False) -> Submission:
    body: dict[str, Any] = {"max_tokens": tokens, "stream": True}
    body |= {"messages": [{"role": "user", "content": "one two"}]} if chat else {"prompt": "one two"}
    if include:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": continuous}
    return parse_submission(orjson.dumps(body), CONFIG, chat=chat)


def encode_all(frames: StreamFrames, cuts: list[int]) -> bytes:
    bounds = [0, *cuts, frames.submission.output_tokens]
    return b"".join(encode_tokens(frames, a, b) for a, b in pairwise(bounds))


def dechunk(data: bytes) -> list[bytes]:
    """The parts of a whole chunked body; fails unless it ends properly."""
    parts = []
    while True:
        size_text, _, rest = data.partition(b"\r\n")
        size = int(size_text, 16)
        assert rest[size : size + 2] == b"\r\n"
        if size == 0:
            assert rest[2:] == b""
            return parts
        parts.append(rest[:size])
        data = rest[size + 2 :]


def shape(value: Any) -> Any:
    """Keys and kinds of values, without the values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


@pytest.mark.parametrize(
    ("name", "chat", "include", "continuous"),
    [
        ("vllm-cpu-chat-stream.txt", True, False, False),
        ("vllm-cpu-chat-stream-usage.txt", True, True, False),
        ("vllm-cpu-chat-stream-continuous-usage-interval4.txt", True, True, True),
        ("vllm-cpu-completions-stream.txt", False, False, False),
        ("vllm-cpu-completions-stream-usage.txt", False, True, False),
    ],
)
def test_streams_have_the_shape_of_vllms(
    name: str,
    chat: bool,
    include: bool,
    continuous: bool,
    capture: Callable[[str], tuple[int, list[Any]]],
    parse_events: Callable[[str], list[Any]],
) -> None:
    _, theirs = capture(name)
    frames = stream_frames(submission(chat=chat, include=include, continuous=continuous), "id-1", 5, chunked=False)
    ours = parse_events(encode_all(frames, [1, 2]).decode())
    first = 1 if chat else 0
    last = len(theirs) - (3 if include else 2)
    if chat:
        assert shape(ours[0]) == shape(theirs[0])
        assert ours[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    middle = [shape(event) for event in ours[first : first + 2]]
    assert middle == [shape(theirs[first])] * 2
    assert shape(ours[first + 2]) == shape(theirs[last])
    assert ours[first + 2]["choices"][0]["finish_reason"] == "length"
    assert shape(ours[first + 3 :]) == shape(theirs[last + 1 :])
    assert ours[-1] == theirs[-1] == "[DONE]"
    assert {(event["id"], event["created"], event["model"]) for event in ours[:-1]} == {("id-1", 5, 'ti"ny')}
    if include:
        assert ours[-2]["choices"] == []
        assert ours[-2]["usage"] == {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3}
    if continuous:
        assert [event["usage"]["completion_tokens"] for event in ours[:-2]] == [0, 1, 2, 3]


@given(st.booleans(), st.booleans(), st.booleans(), st.integers(1, 20), st.data())
def test_however_it_is_cut_a_stream_carries_the_same_text(
    chat: bool, include: bool, continuous: bool, tokens: int, data: st.DataObject
) -> None:
    request = submission(chat=chat, tokens=tokens, include=include, continuous=continuous)
    cuts = sorted(data.draw(st.sets(st.integers(1, tokens - 1)))) if tokens > 1 else []
    parts = dechunk(encode_all(stream_frames(request, "x", 5, chunked=True), cuts))
    assert all(part.startswith(b"data: ") and part.endswith(b"\n\n") for part in parts)
    assert b"".join(parts) == encode_all(stream_frames(request, "x", 5, chunked=False), cuts)
    events = [orjson.loads(part[6:]) for part in parts[:-1]]
    choices = [event["choices"][0] for event in events if event["choices"]]
    whole = orjson.loads(body_bytes(request, "x", 5))
    if chat:
        text = "".join(choice["delta"]["content"] for choice in choices)
        assert whole["choices"][0]["message"]["content"] == text
    else:
        text = "".join(choice["text"] for choice in choices)
        assert whole["choices"][0]["text"] == text
    assert len(text.split()) == tokens == whole["usage"]["completion_tokens"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert len(choices) == len(cuts) + 1 + chat


def test_a_whole_body_has_the_main_keys_of_vllms(capture: Callable[[str], tuple[int, list[Any]]]) -> None:
    _, (theirs,) = capture("vllm-cpu-chat-nostream.txt")
    ours = orjson.loads(body_bytes(submission(chat=True), "id-1", 5))
    assert ours.keys() <= theirs.keys()
    assert ours["choices"][0].keys() <= theirs["choices"][0].keys()
    assert ours["choices"][0]["message"].keys() <= theirs["choices"][0]["message"].keys()
    assert ours["usage"].keys() <= theirs["usage"].keys()
    assert (ours["object"], ours["choices"][0]["finish_reason"]) == (theirs["object"], "length")
