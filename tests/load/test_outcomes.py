"""Every way a request can end leads to the outcome that the design names, end to end over real sockets."""

import contextlib
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.load.scripted import (
    CLOSE,
    DONE,
    LAST,
    RESET,
    STREAM_HEAD,
    Step,
    delta,
    framed,
    make_job,
    ok_script,
    one,
    put_through,
    reply,
    schedule,
    sse,
    stream,
    usage,
)
from tfbench.load.job import Limits

CLOSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
SECOND = 1_000_000_000
SHORT = Limits(SECOND, 300_000_000, 300_000_000, 10 * SECOND)

BODY = {
    "id": "c",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}

CASES: dict[str, tuple[list[Step], str, str | None]] = {
    "good stream": (list(ok_script(0, b"")), "ok", None),
    "no end mark but a finish": (stream(delta("a"), delta(finish="stop")), "ok", None),
    "end mark without a finish": (stream(delta("a"), DONE), "ok", None),
    "closed at the end of a stream without framing": (
        [CLOSE_HEAD, delta("a"), delta(finish="stop"), CLOSE],
        "ok",
        None,
    ),
    "closed without an end": ([CLOSE_HEAD, delta("a"), CLOSE], "stream_error", "without finish_reason"),
    "framed to its end without an end mark": (stream(delta("a")), "stream_error", "without finish_reason"),
    "empty 200 stream": ([STREAM_HEAD, LAST], "stream_error", "empty"),
    "end mark left open": ([STREAM_HEAD, framed(delta("a") + DONE), 3.0], "ok", None),
    "reset after output": ([STREAM_HEAD, framed(delta("a")), 0.05, RESET], "stream_error", "reset"),
    "closed inside a chunk": ([STREAM_HEAD, framed(delta("a")), b"ff\r\ndata: {", CLOSE], "stream_error", "closed"),
    "end mark, broken framing, no finish": (
        [STREAM_HEAD, framed(delta("a") + DONE), CLOSE],
        "stream_error",
        "closed",
    ),
    "finish, then broken framing": ([STREAM_HEAD, framed(delta("a") + delta(finish="stop")), CLOSE], "ok", None),
    "error object in a 200 stream": (
        stream(delta("a"), sse({"error": {"message": "out of memory", "code": 500}})),
        "stream_error",
        "out of memory",
    ),
    "200 with a JSON error": (
        reply("200 OK", b'{"error": {"message": "no such thing"}}'),
        "stream_error",
        "no such thing",
    ),
    "200 with a JSON answer although a stream was asked for": (reply("200 OK", json.dumps(BODY).encode()), "ok", None),
    "200 with HTML": (reply("200 OK", b"<html><body>hi</body></html>", "text/html"), "stream_error", None),
    "garbage in the stream": (stream(delta("a"), sse("{broken"), DONE), "stream_error", None),
    "wrong content type, right stream": (
        [
            STREAM_HEAD.replace(b"text/event-stream", b"application/octet-stream"),
            framed(delta("a") + delta(finish="stop") + DONE),
            LAST,
        ],
        "ok",
        None,
    ),
    "429": (reply("429 Too Many Requests", b'{"error": {"message": "slow down"}}'), "rejected", "slow down"),
    "503": (reply("503 Service Unavailable", b"busy", "text/plain"), "rejected", "busy"),
    "500": (reply("500 Oops", b"", "text/plain"), "http_error", "500"),
    "404 with HTML": (reply("404 Not Found", b"<title>nothing here</title>", "text/html"), "http_error", "nothing"),
    "redirect": (reply("302 Found", b"", "text/plain", "Location: /other"), "http_error", "302"),
    "closed before a status": ([CLOSE], "disconnected", "closed"),
    "reset before a status": ([RESET], "disconnected", None),
    "half a head": ([b"HTTP/1.1 200 OK\r\nContent-", CLOSE], "disconnected", None),
    "not HTTP": ([b"220 smtp.example ready\r\n", 0.2], "stream_error", "HTTP"),
    "gzip although refused": (
        reply("200 OK", gzip.compress(delta("a") + DONE), "text/event-stream", "Content-Encoding: gzip"),
        "stream_error",
        "gzip",
    ),
    "an interim response first": (
        [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", *ok_script(0, b"")],
        "ok",
        None,
    ),
    "chunk extensions and trailers": (
        [STREAM_HEAD, b"%x;a=b\r\n" % len(delta("a") + DONE) + delta("a") + DONE + b"\r\n0\r\nX-Trailer: 1\r\n\r\n"],
        "ok",
        None,
    ),
    "usage first, then nothing": (stream(usage(2)), "stream_error", None),
    "end mark alone": (stream(DONE), "stream_error", "no choices"),
    "end mark alone, left open": ([STREAM_HEAD, framed(DONE), 3.0], "stream_error", "no choices"),
    "usage and end mark": (stream(usage(0), DONE), "stream_error", "no choices"),
    "choices always empty": (stream(sse({"choices": []}), sse({"choices": []}), DONE), "stream_error", "no choices"),
    "comments and end mark": (stream(b": ping\n\n", b": ping\n\n", DONE), "stream_error", "no choices"),
    "role and end mark": (stream(delta("", role="assistant"), DONE), "ok", None),
    "503 in gzip": (
        reply("503 No", gzip.compress(b'{"error":{"message":"model is loading"}}'), "a/b", "Content-Encoding: gzip"),
        "rejected",
        "HTTP 503: model is loading",
    ),
    "400 in an unknown coding": (
        reply("400 No", b"\x1b[31m\x00", "text/plain", "Content-Encoding: lzw"),
        "http_error",
        "HTTP 400: body encoded as lzw",
    ),
    "Ollama's own API": (
        reply(
            "200 OK", b'{"message":{"content":"a"},"done":false}\n{"message":{},"done":true}\n', "application/x-ndjson"
        ),
        "stream_error",
        "Ollama's own API",
    ),
    "Anthropic's own API": (
        stream(b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'),
        "stream_error",
        "Anthropic's Messages API",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outcome(name: str, tmp_path: Path) -> None:
    steps, outcome, says = CASES[name]
    result = one(lambda index, request: steps, tmp_path)
    [attempt] = result.attempts
    assert (attempt["outcome"], attempt["error"] if outcome == "ok" else None) == (outcome, None)
    if says is not None:
        assert says.lower() in attempt["error"].lower()
    assert attempt["end_ns"] >= attempt["sent_ns"] >= attempt["dispatched_ns"] >= attempt["scheduled_ns"]


@pytest.mark.parametrize(
    ("name", "steps", "limits", "says"),
    [
        ("no answer", [3.0], SHORT, "first_byte_s"),
        ("headers alone", [STREAM_HEAD, 3.0], SHORT, "first_byte_s"),
        ("silence inside a stream", [STREAM_HEAD, framed(delta("a")), 3.0], SHORT, "idle_s"),
        (
            "never done",
            [STREAM_HEAD, *([framed(delta("a")), 0.05] * 60)],
            Limits(SECOND, SECOND, SECOND, 500_000_000),
            "total_s",
        ),
    ],
)
def test_timeouts_name_the_limit(name: str, steps: list[Step], limits: Limits, says: str, tmp_path: Path) -> None:
    result = one(lambda index, request: steps, tmp_path, limits=limits, drain_ns=5 * SECOND)
    [attempt] = result.attempts
    assert attempt["outcome"] == "timeout"
    assert says in attempt["error"]
    if "framed" in name or "inside" in name:
        assert result.kinds() == ["text"]


def test_a_refused_connection_is_connect_error_and_sends_nothing(tmp_path: Path) -> None:
    from tests.load.scripted import serving

    with serving(ok_script) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 10))
    # The listener is closed now; its port refuses.
    result = put_through(job)
    assert result.outcomes == ["connect_error"] * 2
    assert all(row["sent_ns"] is None for row in result.attempts)


def test_cut_at_the_end_of_drain_is_unfinished_and_keeps_what_came(tmp_path: Path) -> None:
    steps: Iterable[Any] = [STREAM_HEAD, framed(delta("a")), 5.0]
    result = one(lambda index, request: steps, tmp_path, drain_ns=400_000_000)
    [attempt] = result.attempts
    assert attempt["outcome"] == "unfinished"
    assert result.kinds() == ["text"]
    assert result.texts[0]["output"] == "a"


def test_an_answer_with_its_finish_reason_is_ok_although_the_server_leaves_it_open(tmp_path: Path) -> None:
    steps = [STREAM_HEAD, framed(delta("a") + delta(finish="stop")), 5.0]
    for name, limits, drain_ns in (("idle", SHORT, 5 * SECOND), ("cut", None, 400_000_000)):
        more = {} if limits is None else {"limits": limits}
        result = one(lambda index, request: steps, tmp_path / name, drain_ns=drain_ns, **more)
        [attempt] = result.attempts
        assert (attempt["outcome"], attempt["error"]) == ("ok", None)
        assert attempt["end_ns"] - attempt["sent_ns"] < 250_000_000, "it ended with its last bytes"


def test_a_call_cut_before_it_was_sent_is_unsent(tmp_path: Path) -> None:
    """A listener whose queue is full answers no handshake."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with contextlib.ExitStack() as stack:
            # Linux completes backlog + 1 connections; further ones stay in the handshake.
            address = listener.getsockname()
            job = make_job(f"http://127.0.0.1:{address[1]}/v1", tmp_path, schedule(0, 10, 20), drain_ns=400_000_000)
            for _ in range(2):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(address)
            result = put_through(job)
    never_sent = [row for row in result.attempts if row["sent_ns"] is None]
    assert never_sent and {row["outcome"] for row in never_sent} == {"unsent"}
    assert result.signals["sent_share"] is not None and result.signals["sent_share"] < 1


def test_what_could_not_be_understood_is_kept(tmp_path: Path) -> None:
    result = one(lambda index, request: stream(delta("a"), sse("{broken"), DONE), tmp_path)
    assert b"{broken" in result.raw[0]
    result = one(lambda index, request: [b"220 smtp.example ready\r\n", 0.2], tmp_path / "b")
    assert b"220 smtp" in result.raw[0]


def test_non_streaming(tmp_path: Path) -> None:
    result = one(lambda index, request: reply("200 OK", json.dumps(BODY).encode()), tmp_path, stream=False)
    [attempt] = result.attempts
    assert (attempt["outcome"], attempt["output_tokens"], attempt["prompt_tokens"]) == ("ok", 2, 3)
    assert (attempt["finish_reason"], attempt["token_source"]) == ("stop", "usage")
    assert result.kinds() == ["text"]
    assert result.streams[0]["t_ns"] == [attempt["end_ns"]]
    assert result.texts[0]["output"] == "hello"
