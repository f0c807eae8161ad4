"""Error bodies of real servers and proxies."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.captures import captured
from tfbench.protocol import error_message
from tfbench.protocol.faults import LIMIT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama-server-error-404", "HTTP 404: File Not Found"),
        ("llama-server-error-noauth", "HTTP 401: Invalid API Key"),
        (
            "llama-server-error-badparam",
            "HTTP 400: Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -5",
        ),
        (
            "llama-server-error-toolong",
            "HTTP 400: request (6031 tokens) exceeds the available context size (2048 tokens), try increasing it",
        ),
        (
            "llama-server-error-badjson",
            "HTTP 500: [json.exception.parse_error.101] parse error at line 1, column 31: syntax error while parsing "
            "value - unexpected end of input; expected '[', '{', or a literal",
        ),
        ("vllm-cpu-error-404", "HTTP 404: Not Found"),
        ("vllm-cpu-error-badmodel", "HTTP 404: The model `no-such-model` does not exist. Valid aliases: tiny."),
        (
            "vllm-cpu-error-overload",
            "HTTP 503: The engine is currently busy and cannot accept new requests. Please try again later or on a "
            "different instance.",
        ),
    ],
)
def test_recorded_errors(name: str, message: str) -> None:
    assert error_message(*captured(name)) == message


@pytest.mark.parametrize("name", ["vllm-cpu-error-badjson", "vllm-cpu-error-badparam", "vllm-cpu-error-toolong"])
def test_long_or_many_lined_errors_become_one_short_line(name: str) -> None:
    status, body = captured(name)
    message = error_message(status, body)
    words = " ".join(json.loads(body)["error"]["message"].split())
    assert message == f"HTTP 400: {words}"[:LIMIT] or (
        message.endswith("…") and f"HTTP 400: {words}".startswith(message[:-1]) and len(message) == LIMIT
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "HTTP 503 without a message"),
        (b" \r\n", "HTTP 503 without a message"),
        (b"Internal Server Error", "HTTP 503: Internal Server Error"),
        (
            b"<html><head><title>503 Service\nUnavailable</title></head><body><h1>x</h1>",
            "HTTP 503: 503 Service Unavailable",
        ),
        (b"<p>no <b>healthy</b> upstream</p><script>alert('x')</script>", "HTTP 503: no healthy upstream"),
        (b"<style>p{color:red}", "HTTP 503 without a message"),
        (b'"busy"', "HTTP 503: busy"),
        (b"[]", "HTTP 503: error without a message"),
        (b"{}", "HTTP 503: error without a message"),
        (b"null", "HTTP 503: error without a message"),
        (b'{"error":null,"message":"busy"}', "HTTP 503: busy"),
        (b'{"error":{"message":null,"type":"overloaded","code":503}}', "HTTP 503: overloaded 503"),
        (b'{"error":["a","b"]}', "HTTP 503: a; b"),
        (b'{"error":503}', "HTTP 503: 503"),
        (b'{"error":"Input validation error","error_type":"validation"}', "HTTP 503: Input validation error"),
        (b'{"detail":{"message":"busy"}}', "HTTP 503: busy"),
        (b'{"status":"loading model"}', "HTTP 503: loading model"),
        (b'{"error":{"message":"a\x1b[31m\xe2\x80\xaeb"}}', "HTTP 503: a [31m b"),
        ("é".encode("latin-1"), "HTTP 503: \ufffd"),
        (b'{"error":{"message":"' + b"x" * 999 + b'"}}', "HTTP 503: " + "x" * (LIMIT - 11) + "…"),
    ],
)
def test_bodies_of_every_shape(body: bytes, message: str) -> None:
    assert error_message(503, body) == message


@settings(deadline=None)
@given(
    st.integers(-1, 10**9),
    st.binary(max_size=200) | st.text(alphabet='<>/script title&;{}":[]x\n', max_size=80).map(str.encode),
)
def test_any_body_gives_one_printable_line(status: int, body: bytes) -> None:
    message = error_message(status, body)
    assert message.startswith(f"HTTP {status}")
    assert message.isprintable()
    assert len(message) <= LIMIT


def test_a_huge_page_is_looked_at_only_at_its_start() -> None:
    assert error_message(502, b"<" * 5_000_000).startswith("HTTP 502")
