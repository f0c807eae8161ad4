"""Endpoint trouble is one line that names the thing and the mend, with exit code 5."""

import gzip
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.load.scripted import DONE, STREAM_HEAD, Step, delta, framed, ok_script, reply, serving, sse, stream, usage
from tfbench.core.errors import EndpointError
from tfbench.core.exitcodes import ExitCode
from tfbench.load.target import resolve_target
from tfbench.study.probe import Probe, probe_endpoint

MODELS = json.dumps({"object": "list", "data": [{"id": "m"}, {"id": "n"}]}).encode()


def ask(url: str, **changes: Any) -> Probe:
    values: dict[str, Any] = {
        "headers": {},
        "model": "m",
        "dialect": "openai_chat",
        "stream": True,
        "include_usage": True,
        "sampling": {},
        "connect_s": 2.0,
        "timeout_s": 1.0,
        "total_s": 3.0,
    }
    return probe_endpoint(url, **(values | changes))


def with_models(post: list[Step], models: bytes = MODELS) -> Any:
    def script(index: int, request: bytes) -> Iterable[Step]:
        del index
        return reply("200 OK", models) if request.startswith(b"GET /v1/models") else post

    return script


def trouble(script: Any, **changes: Any) -> str:
    with serving(script) as server, pytest.raises(EndpointError) as caught:
        ask(f"http://127.0.0.1:{server.port}/v1", **changes)
    assert caught.value.exit_code == ExitCode.ENDPOINT
    text = str(caught.value)
    assert "\n" not in text and f"127.0.0.1:{server.port}" in text
    return text


def test_a_good_endpoint_tells_what_it_is() -> None:
    with serving(with_models(list(ok_script(0, b"")))) as server:
        probe = ask(f"http://127.0.0.1:{server.port}/v1")
    assert probe.observed == {
        "models": ["m", "n"],
        "answered_as": "m",
        "server": None,
        "usage": True,
        "include_usage": True,
        "id_echo": None,
        "streamed": True,
        "closed_after_ms": None,
    }
    assert (probe.attempts[0]["role"], probe.attempts[0]["try"], probe.attempts[0]["output_tokens"]) == (
        "probe",
        None,
        2,
    )


def test_html_is_not_an_api() -> None:
    page = reply("200 OK", b"<!doctype html><title>Welcome</title>", "text/html")
    assert "HTML" in trouble(lambda index, request: page)
    assert "endpoint.url" in trouble(lambda index, request: reply("404 Not Found", b"<h1>no</h1>", "text/html"))


def test_refused_names_the_header() -> None:
    refused = reply("401 Unauthorized", b'{"error": {"message": "Invalid API Key"}}')
    says = trouble(lambda index, request: refused)
    assert "Invalid API Key" in says and "Authorization" in says


def test_a_lacking_model_names_those_there_are() -> None:
    missing = reply("404 Not Found", b'{"error": {"message": "The model `x` does not exist."}}')
    says = trouble(with_models(missing), model="x")
    assert "'x'" in says and "'m', 'n'" in says
    # Some servers serve whatever they have under any name.
    says = trouble(with_models(list(ok_script(0, b""))), model="x")
    assert "'x'" in says and "answered as 'm'" in says
    # An echo of the asked name is no evidence.
    echo = stream(
        b'data: {"model": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
    )
    assert "lacks model 'x'" in trouble(with_models(echo), model="x")


def test_a_server_that_never_ends_its_answer_cannot_hold_the_probe() -> None:
    endless = [STREAM_HEAD, *([framed(delta("a")), 0.2] * 60)]
    assert "within 1.5 s" in trouble(with_models(endless), total_s=1.5)
    dripping = [step for byte in b"HTTP/1.1 200 OK\r\nX: " for step in (bytes([byte]), 0.3)]
    assert "within 1.5 s" in trouble(with_models(dripping), total_s=1.5)


def test_an_answer_left_open_after_its_end_mark_is_an_answer() -> None:
    with serving(with_models([STREAM_HEAD, framed(delta("a") + delta(finish="stop") + DONE), 3.0])) as server:
        assert ask(f"http://127.0.0.1:{server.port}/v1").observed["answered_as"] == "m"


def test_an_error_that_the_load_would_repeat_stops_before_it() -> None:
    assert "ignore_eos" in trouble(
        with_models(reply("422 Unprocessable", b'{"detail": [{"loc": ["body", "ignore_eos"], "msg": "extra field"}]}'))
    )
    assert "out of memory" in trouble(with_models(stream(b'data: {"error": {"message": "out of memory"}}\n\n')))


def test_silence_and_garbage() -> None:
    assert "no answer" in trouble(with_models([3.0]))
    assert "HTTP" in trouble(lambda index, request: [b"220 smtp\r\n", None])


def test_unreachable() -> None:
    with serving(ok_script) as server:
        port = server.port
    with pytest.raises(EndpointError, match="is the server running"):
        resolve_target(f"http://127.0.0.1:{port}/v1", 2.0)
    with pytest.raises(EndpointError, match="no-such-host"):
        resolve_target("http://no-such-host.invalid/v1", 2.0)


OLLAMA = b'{"message":{"content":"a"},"done":false}\n{"message":{},"done":true}\n'


@pytest.mark.parametrize(
    ("post", "says"),
    [
        (stream(DONE), "no choices"),
        (stream(b": ping\n\n", sse({"choices": []}), usage(0), DONE), "no choices"),
        (stream(delta("a")), "without finish_reason or end mark"),
        (reply("200 OK", OLLAMA, "application/x-ndjson"), "Ollama's own API"),
        (stream(b'data: {"type":"message_start","message":{}}\n\n'), "Anthropic's Messages API"),
        (reply("400 No", gzip.compress(b'{"error":"too hot"}'), "a/b", "Content-Encoding: gzip"), "HTTP 400: too hot"),
        (reply("400 No", b"\x00\x01", "a/b", "Content-Encoding: br"), "HTTP 400: body encoded as br"),
        (reply("200 OK", gzip.compress(DONE), "a/b", "Content-Encoding: gzip"), "came encoded as 'gzip'"),
    ],
)
def test_an_answer_that_is_none_is_told_as_what_it_is(post: list[Step], says: str) -> None:
    told = trouble(lambda index, request: post)
    assert says in told and told.isprintable()


@pytest.mark.parametrize(("counts", "told"), [(usage(2), True), (usage(0, 0), False), (usage(0), False)])
def test_zeros_beside_text_are_no_usage(counts: bytes, told: bool) -> None:
    with serving(with_models(stream(delta("a"), delta(finish="stop"), counts, DONE))) as server:
        assert ask(f"http://127.0.0.1:{server.port}/v1").observed["usage"] is told
