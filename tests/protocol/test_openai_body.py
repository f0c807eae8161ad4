"""Requests as they are sent, and non-streamed responses."""

import json
from typing import Any

import pytest

from tfbench.core.kinds import ChunkKind
from tfbench.protocol import DIALECTS, BodyResult, Usage
from tfbench.protocol.openai_body import decode_body

CHAT = DIALECTS["openai_chat"]
COMPLETIONS = DIALECTS["openai_completions"]


def request(dialect: Any, prompt: str = "Say é\n", **changes: Any) -> dict[str, Any]:
    arguments = {"model": "m", "max_tokens": 8, "stream": True, "include_usage": True, "sampling": {}} | changes
    body = dialect.encode(prompt, **arguments)
    assert isinstance(body, bytes)
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def test_registered_dialects() -> None:
    assert {name: (d.name, d.path) for name, d in DIALECTS.items()} == {
        "openai_chat": ("openai_chat", "/chat/completions"),
        "openai_completions": ("openai_completions", "/completions"),
    }


def test_a_streamed_chat_request() -> None:
    sampling = {"temperature": 0, "top_p": None, "seed": 7, "stop": ["\n"], "ignore_eos": True}
    assert request(CHAT, sampling=sampling) == {
        "messages": [{"role": "user", "content": "Say é\n"}],
        "model": "m",
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "seed": 7,
        "stop": ["\n"],
        "ignore_eos": True,
    }


def test_a_text_completion_request() -> None:
    expected = {"prompt": "Say é\n", "model": "m", "max_tokens": 8, "stream": False}
    assert request(COMPLETIONS, stream=False) == expected
    assert request(COMPLETIONS, include_usage=False) == {**expected, "stream": True}


def test_no_limit_is_no_field() -> None:
    assert "max_tokens" not in request(CHAT, max_tokens=None)


def test_sampling_cannot_replace_what_the_harness_sets() -> None:
    sampling = {"model": "x", "messages": [], "stream": False, "max_tokens": 1, "stream_options": {}}
    assert request(CHAT, sampling=sampling) == request(CHAT)


def test_what_has_no_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        request(CHAT, prompt="\ud83d")
    with pytest.raises(TypeError):
        request(CHAT, sampling={"seed": 2**70})


def body(message: dict[str, Any], finish: Any = "stop", **fields: Any) -> BodyResult:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return decode_body(json.dumps({"id": "r", "model": "m", "choices": [choice], **fields}).encode())


def test_a_body_keeps_text_reasoning_and_tools_apart() -> None:
    tools = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": tools}
    assert body(message, usage=usage) == BodyResult(
        kind=ChunkKind.TEXT,
        text="hi",
        reasoning="hm",
        tool='f{"a":1}',
        usage=Usage(5, None, 9, 4),
        finish_reason="stop",
        n_choices=1,
        response_model="m",
        response_id="r",
    )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"content": None, "tool_calls": [{"function": {"name": "f"}}], "reasoning": "hm"}, ChunkKind.TOOL),
        ({"content": "", "reasoning": "hm"}, ChunkKind.REASONING),
        ({"role": "assistant", "content": ""}, ChunkKind.EMPTY),
    ],
)
def test_the_kind_of_a_body(message: dict[str, Any], kind: ChunkKind) -> None:
    assert body(message).kind is kind


def test_several_choices_in_index_order() -> None:
    choices = [{"index": 1, "text": "b", "finish_reason": "length"}, {"index": 0, "text": "a", "finish_reason": "stop"}]
    result = decode_body(json.dumps({"choices": choices}).encode())
    assert (result.text, result.finish_reason, result.n_choices) == ("ab", "stop", 2)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "the response isn't JSON: it is empty"),
        (b"<title>Welcome to nginx!</title>", "the response isn't JSON: Welcome to nginx!"),
        (b"[1]", "the response is a JSON list, not an object"),
        (b"{}", "the response has no choices"),
        (b'{"choices":[]}', "the response has no choices"),
        (b'{"choices":"x"}', "the response has no choices"),
        (b'{"error":{"message":"boom"}}', "boom"),
        (b'{"object":"error","message":"boom"}', "boom"),
        (b'{"detail":"boom"}', "boom"),
        (b'{"choices":[7]}', "a choice is int, not an object"),
        (b'{"choices":[{"message":{"content":7}}]}', "content is int, not text"),
        (b'{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}', "finish reason error"),
    ],
)
def test_bodies_that_are_errors(raw: bytes, error: str) -> None:
    result = decode_body(raw)
    assert (result.kind, result.error) == (ChunkKind.ERROR, error)
