"""Cases from every recorded response in tests/data/sse."""

import json
from collections.abc import Iterator

from tests.conformance.cases import Case, Expected, with_body
from tests.protocol import captures
from tests.protocol.test_captures import CAPTURED, CASSETTES, HELLO, TIMED
from tests.protocol.test_captures import Expected as StreamFacts

JSON = {"content_type": b"application/json"}
INTERVAL4 = "vllm-cpu-chat-stream-continuous-usage-interval4"

ERRORS = {
    "llama-server-error-404": (404, "http_error", "File Not Found"),
    "llama-server-error-badjson": (500, "http_error", "parse error"),
    "llama-server-error-badparam": (400, "http_error", "max_tokens"),
    "llama-server-error-noauth": (401, "http_error", "Invalid API Key"),
    "llama-server-error-toolong": (400, "http_error", "exceeds the available context size"),
    "vllm-cpu-error-404": (404, "http_error", "Not Found"),
    "vllm-cpu-error-badjson": (400, "http_error", "JSON decode error"),
    "vllm-cpu-error-badmodel": (404, "http_error", "does not exist"),
    "vllm-cpu-error-badparam": (400, "http_error", "temperature"),
    "vllm-cpu-error-overload": (503, "rejected", "currently busy"),
    "vllm-cpu-error-toolong": (400, "http_error", "maximum context length"),
}
"""Status, outcome and part of the error."""

NOT_A_COMPLETION = {
    "llama-server-health": b'{"status":"ok"}',
    "llama-server-models": b'"object":"list"',
    "vllm-cpu-health": None,  # an empty 200
    "vllm-cpu-models": b'"object":"list"',
}
"""200s of other resources: what is kept of them."""

SYSTEM = "\n\nSystem: You are a helpful assistant"
ANTHROPIC = {
    "anthropic__test_anthropic_thinking_streaming_legacy": (None, None, 216, None),
    "anthropic__test_anthropic_message_streaming_legacy": (None, None, 171, None),
}
"""Usage as it ends."""


def _stream(name: str, data: bytes, facts: StreamFacts) -> Case:
    tokens = None
    if facts.resolved:
        tokens = tuple(1 if letter in "tT" else None for letter in facts.kinds)
    elif name == INTERVAL4:
        tokens = (0, 1, 4, 3, None)
    usage = tuple(facts.usage) if facts.usage else None
    expected = Expected("ok", facts.kinds, facts.text, facts.finish, usage, tokens)  # type: ignore[arg-type]
    return with_body(name, data, expected, facts.dialect)


def captured_cases() -> Iterator[Case]:
    """Unframed cases; see `framings`."""
    for name, facts in CAPTURED.items():
        yield _stream(name, captures.captured(name)[1], facts)
    for name, facts in TIMED.items():
        yield _stream(name, b"".join(captures.timed_reads(name)), facts)
    for name, facts in CASSETTES.items():
        yield _stream(name, captures.cassette(name), facts)
    name = "langchain__test_trace_propagation_stream_async_VLLMOpenAI"
    yield with_body(
        name, captures.cassette(name), Expected("ok", "t" * 20, "." + SYSTEM * 2 + "\n", "length"), "openai_completions"
    )
    name = "groq__test_chat_streaming_legacy"
    usage = (18, None, 73, None)
    yield with_body(name, captures.cassette(name), _with_text_of(name, "r" + "t" * 72 + "u", usage))
    name = "openai__test_chat_streaming"
    yield with_body(name, captures.cassette(name), _with_text_of(name, "t" * 194 + "u", (10, 0, 50, None)))
    for name, output_tokens in ANTHROPIC.items():
        # Another API: its events say nothing to us but the usage in the last but one, and whose they are.
        data = captures.cassette(name)
        kinds = "c" * (data.count(b"\n\n") - 2) + "uc"
        kept = b'{"type":"message_start"'
        expected = Expected("stream_error", kinds, usage=output_tokens, raw=kept, says="Anthropic's Messages API")
        yield with_body(name, data, expected)
    name = "ollama__test_ollama_streaming_chat_legacy"
    data = captures.cassette(name)
    expected = Expected("stream_error", raw=data[:60], says="Ollama's own API")
    yield with_body(name, data, expected, content_type=b"application/x-ndjson")
    yield from _bodies()


def _with_text_of(name: str, kinds: str, usage: tuple[int | None, ...]) -> Expected:
    """Facts of a stream too long to write out: its text is read by plain means."""
    lines = [line[6:] for line in captures.cassette(name).decode().splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    return Expected("ok", kinds, text, "stop", usage)  # type: ignore[arg-type]


def _bodies() -> Iterator[Case]:
    llama = Expected("ok", "t", HELLO, "stop", (36, 35, 8, None))
    yield with_body("llama-server-chat-nostream", captures.captured("llama-server-chat-nostream")[1], llama, **JSON)
    vllm = Expected("ok", "t", " while" * 12, "length", (20, None, 12, None))
    yield with_body("vllm-cpu-chat-nostream", captures.captured("vllm-cpu-chat-nostream")[1], vllm, **JSON)
    for name, (status, outcome, says) in ERRORS.items():
        found, data = captures.captured(name)
        assert found == status, name
        yield with_body(name, data, Expected(outcome, says=says), status=status, **JSON)
    for name, kept in NOT_A_COMPLETION.items():
        data = captures.captured(name)[1]
        yield with_body(name, data, Expected("stream_error", raw=kept), **JSON)
