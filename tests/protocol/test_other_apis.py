"""Answers of other APIs than OpenAI's are told by name, streamed and whole."""

import json
from typing import Any

import pytest

from tests.protocol.captures import read_stream, sse
from tfbench.protocol import DIALECTS

ANTHROPIC = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],'
    b'"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
)
ANTHROPIC_END = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
ANTHROPIC_ERROR = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
OLLAMA = [
    {"model": "m", "message": {"role": "assistant", "content": "a"}, "done": False},
    {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "eval_count": 2},
]
GENERATE = [{"model": "m", "response": "a", "done": False}, {"model": "m", "response": "", "done": True}]


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        (ANTHROPIC + ANTHROPIC_END, "Anthropic's Messages API"),
        (ANTHROPIC, "Anthropic's Messages API"),
        (ANTHROPIC + ANTHROPIC_END + sse("[DONE]"), "Anthropic's Messages API"),
        (sse(*map(json.dumps, OLLAMA)), "Ollama's own API"),
        (sse(*map(json.dumps, GENERATE), "[DONE]"), "Ollama's own API"),
        (sse('{"type":"response.created","response":{}}'), "OpenAI's Responses API"),
        (sse('{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}'), "Google's Gemini API"),
        (sse('{"token":{"id":1,"text":"a"},"generated_text":null}'), "Text Generation Inference's own API"),
        (sse('{"content":"a","stop":false}'), "llama.cpp's own API"),
    ],
)
def test_streams(stream: bytes, name: str) -> None:
    verdict = read_stream([stream]).decoder.verdict()
    assert verdict is not None and name in verdict and "OpenAI-style endpoint" in verdict


def test_an_error_in_another_apis_stream_is_told_with_it() -> None:
    assert read_stream([ANTHROPIC_ERROR]).decoder.verdict() == "Overloaded"
    verdict = read_stream([ANTHROPIC + ANTHROPIC_ERROR]).decoder.verdict()
    assert verdict is not None and verdict.startswith("Overloaded (") and "Anthropic" in verdict


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (OLLAMA, "Ollama's own API"),
        (GENERATE, "Ollama's own API"),
        ([OLLAMA[1]], "Ollama's own API"),
        (
            [{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}],
            "Anthropic's Messages API",
        ),
        ([{"object": "response", "output": []}], "OpenAI's Responses API"),
        ([{"content": "a", "stop": True}], "llama.cpp's own API"),
        ([{"generated_text": "a"}], "Text Generation Inference's own API"),
    ],
)
def test_whole_bodies_and_lines_of_json(body: list[dict[str, Any]], name: str) -> None:
    for end in ("\n", "\r\n", ""):
        data = (end or "\n").join(map(json.dumps, body)) + end
        for dialect in DIALECTS.values():
            error = dialect.decode_body(data.encode()).error
            assert error is not None and name in error, data


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error":"model \'x\' not found"}\n', "not found"),
        (b'{"error":"a"}\n{"error":"b"}', "a"),
        (b'{"type":"message"}', "no choices"),
        (b'{"done":"no","message":{}}', "no choices"),
        (b'{"x":1}\n{"x":2}', "isn't JSON"),
    ],
)
def test_what_is_no_known_api_keeps_its_error(body: bytes, says: str) -> None:
    error = DIALECTS["openai_chat"].decode_body(body).error
    assert error is not None and says in error and "API" not in error


def test_fields_of_other_apis_beside_choices_say_nothing() -> None:
    chunk = '{"type":"message","content":[],"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}'
    ping = '{"type":"message_start"}'
    assert read_stream([sse(ping, chunk)]).decoder.verdict() is None
