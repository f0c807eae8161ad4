"""Every recorded stream, read to exact chunks, counts and text."""

from dataclasses import dataclass

import pytest

from tests.protocol.captures import Read, captured, cassette, read_stream, timed_reads
from tfbench.core.kinds import ChunkKind
from tfbench.protocol import DIALECTS, Usage, resolve_tokens

LETTERS = {
    "r": ChunkKind.ROLE,
    "t": ChunkKind.TEXT,
    "T": ChunkKind.TOOL,
    "e": ChunkKind.EMPTY,
    "u": ChunkKind.USAGE,
    "f": ChunkKind.FINISH,
    "c": ChunkKind.COMMENT,
}


@dataclass(frozen=True)
class Expected:
    """A stream's facts; `kinds` has a letter per chunk, `resolved` says whether each output chunk is one token."""

    kinds: str
    text: str
    finish: str
    usage: Usage | None
    model: str
    resolved: bool = False
    dialect: str = "openai_chat"


COMPLETIONS = "openai_completions"
HELLO = "Hello, welcome to my world!"
CITY = ", the city of New Haven was a thriving metropolis, with"
SORRY = "I'm sorry for the misunderstanding. I'm here to assist"
JOKE = '.\n\n"Human" here means "someone who has access to the Open Telemetry network."'

CAPTURED = {
    # A role chunk and a finish chunk carry no token; the end token is counted but has no chunk (7 chunks, 8 tokens).
    "llama-server-chat-stream": Expected("rtttttttf", HELLO, "stop", None, "smollm2"),
    "llama-server-chat-stream-usage": Expected("rtttttttfu", HELLO, "stop", Usage(36, 35, 8, None), "smollm2"),
    # Pings in a long prefill, then no text at all.
    "llama-server-chat-stream-sse-ping": Expected("crfu", "", "stop", Usage(930, 0, 1, None), "smollm2"),
    # Usage comes unasked, in the finish chunk.
    "llama-server-completions-stream": Expected(
        "t" * 12 + "u", CITY, "length", Usage(4, 0, 12, None), "smollm2", True, COMPLETIONS
    ),
    "llama-server-completions-stream-usage": Expected(
        "t" * 12 + "u", CITY, "length", Usage(4, 3, 12, None), "smollm2", True, COMPLETIONS
    ),
    # A model nobody has is served all the same.
    "llama-server-error-badmodel": Expected("rttttf", "Hi there! Welcome", "length", None, "smollm2"),
    # 12 tokens in 10 chunks; the last text chunk is also the finish.
    "vllm-cpu-chat-stream": Expected("r" + "t" * 10, " while" * 12, "length", None, "tiny"),
    "vllm-cpu-chat-stream-usage": Expected(
        "r" + "t" * 12 + "u", " while" * 12, "length", Usage(20, None, 12, None), "tiny", True
    ),
    # 16 tokens, none of which shows anything; the last comes with the finish.
    "vllm-cpu-chat-stream-zero-text": Expected("r" + "e" * 15 + "fu", "", "length", Usage(225, None, 16, None), "tiny"),
    "vllm-cpu-chat-stream-continuous-usage-interval4": Expected(
        "rtttu", HELLO, "stop", Usage(36, None, 8, None), "smollm2"
    ),
    # 12 tokens in 9 chunks ("memememe").
    "vllm-cpu-completions-stream": Expected("t" * 9, "me" * 12, "length", None, "tiny", False, COMPLETIONS),
    "vllm-cpu-completions-stream-usage": Expected(
        "t" * 12 + "u", "me" * 12, "length", Usage(6, None, 12, None), "tiny", True, COMPLETIONS
    ),
}

TIMED = {
    "llama-server-timed": Expected("r" + "t" * 12 + "fu", SORRY, "length", Usage(134, 24, 12, None), "smollm2", True),
    "vllm-cpu-timed": Expected("r" + "t" * 12 + "u", "\n" * 12, "length", Usage(332, None, 12, None), "tiny", True),
}

CASSETTES = {
    "langchain__test_trace_propagation_stream_VLLMOpenAI": Expected(
        "t" * 20, JOKE, "length", None, "facebook/opt-125m", False, COMPLETIONS
    ),
    "openai__test_chat_tools_streaming": Expected(
        "T" * 7 + "f", 'get_current_weather{"location":"San Francisco"}', "tool_calls", None, "gpt-3.5-turbo-0125"
    ),
}


def check(read: Read, expected: Expected) -> None:
    assert read.kinds == [LETTERS[letter] for letter in expected.kinds]
    assert read.text() + read.text(ChunkKind.TOOL) == expected.text
    decoder = read.decoder
    assert (decoder.finish_reason, decoder.usage, decoder.done) == (expected.finish, expected.usage, True)
    assert (decoder.response_model, decoder.error, read.tail) == (expected.model, None, b"")
    output_tokens = expected.usage.output_tokens if expected.usage else None
    resolved = resolve_tokens(read.kinds, read.tokens, output_tokens)
    if expected.resolved:
        assert resolved == [1 if letter in "tT" else None for letter in expected.kinds]
    else:
        assert resolved == read.tokens


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_streams(name: str) -> None:
    status, body = captured(name)
    assert status == 200
    check(read_stream([body], CAPTURED[name].dialect), CAPTURED[name])
    check(read_stream([body[i : i + 1] for i in range(len(body))], CAPTURED[name].dialect), CAPTURED[name])
    crlf = body.replace(b"\n", b"\r\n")
    check(read_stream([crlf[i : i + 64] for i in range(0, len(crlf), 64)], CAPTURED[name].dialect), CAPTURED[name])


@pytest.mark.parametrize("name", TIMED)
def test_timed_streams_as_they_were_read(name: str) -> None:
    check(read_stream(timed_reads(name), TIMED[name].dialect), TIMED[name])


@pytest.mark.parametrize("name", CASSETTES)
def test_cassettes(name: str) -> None:
    check(read_stream([cassette(name)], CASSETTES[name].dialect), CASSETTES[name])


def test_tokens_per_chunk_come_from_continuous_usage() -> None:
    read = read_stream([captured("vllm-cpu-chat-stream-continuous-usage-interval4")[1]])
    assert [chunk.text for chunk in read.chunks] == ["", "Hello", ", welcome to my", " world!", ""]
    assert read.tokens == [0, 1, 4, 3, None]


def test_groq_reports_usage_in_its_own_field() -> None:
    read = read_stream([cassette("groq__test_chat_streaming_legacy")])
    assert read.kinds == [ChunkKind.ROLE, *[ChunkKind.TEXT] * 72, ChunkKind.USAGE]
    assert read.text().startswith("A joke about OpenTelemetry!\n\nWhy did the OpenTelemetry Span go to therapy?")
    assert read.decoder.usage == Usage(18, None, 73, None)
    assert read.decoder.finish_reason == "stop"


def test_a_role_in_every_chunk_is_still_text() -> None:
    read = read_stream([cassette("openai__test_chat_streaming")])
    assert read.kinds == [ChunkKind.TEXT] * 194 + [ChunkKind.USAGE]
    assert read.text().startswith("In the observability department, Prometheus, Grafana, Jaeger, and Loki were")
    assert "backfills—8 a.m., 8 p.m.—just" in read.text()
    # This server's count of tokens is lower than its count of chunks.
    assert read.decoder.usage == Usage(10, 0, 50, None)
    assert resolve_tokens(read.kinds, read.tokens, 50) == read.tokens


def test_another_protocol_is_no_output() -> None:
    read = read_stream([cassette("anthropic__test_anthropic_thinking_streaming_legacy")])
    assert set(read.kinds) == {ChunkKind.COMMENT, ChunkKind.USAGE}
    assert [event.event for event in read.events][:3] == [b"message_start", b"content_block_start", b"ping"]
    assert (read.decoder.finish_reason, read.decoder.done) == (None, False)


def test_recorded_bodies() -> None:
    decode = DIALECTS["openai_chat"].decode_body
    llama = decode(captured("llama-server-chat-nostream")[1])
    assert (llama.kind, llama.text, llama.finish_reason, llama.error) == (ChunkKind.TEXT, HELLO, "stop", None)
    assert (llama.usage, llama.n_choices, llama.response_model) == (Usage(36, 35, 8, None), 1, "smollm2")
    vllm = decode(captured("vllm-cpu-chat-nostream")[1])
    assert (vllm.text, vllm.reasoning, vllm.tool, vllm.finish_reason) == (" while" * 12, "", "", "length")
    assert (vllm.usage, vllm.response_id) == (Usage(20, None, 12, None), "chatcmpl-probe-req-125")
