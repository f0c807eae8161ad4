"""What a refusal is about, in the many ways that servers word it, and the key that puts it right."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.load.rig import tls_server_context
from tests.load.scripted import Step, ok_script, reply, serving
from tests.study.test_probe import ask, trouble, with_models
from tfbench.core.errors import EndpointError, NotReady
from tfbench.core.redact import Redactor
from tfbench.manifest import freeze, parse_manifest
from tfbench.study import Silent
from tfbench.study.diagnose import field_fix, misdirected, refused_fields, unready
from tfbench.study.hooks import Lifecycle

SENT = {"model": "m", "messages": [], "max_tokens": 2, "temperature": 0, "seed": 1, "stream": True, "ignore_eos": True}
SENT |= {"stream_options": {}, "top_k": 4}


@pytest.mark.parametrize(
    ("status", "body", "fields"),
    [
        (400, {"error": {"message": "Unsupported value", "param": "temperature"}}, ("temperature",)),
        (400, {"error": {"message": "no", "param": "stream_options.include_usage"}}, ("stream_options",)),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "no"}]}, ("seed",)),
        (422, {"detail": [{"loc": ["body", "seed"], "msg": "a"}, {"loc": ["body", "top_k"]}]}, ("seed", "top_k")),
        (400, {"errors": [{"source": {"pointer": "/data/top_k"}, "title": "unknown"}]}, ("top_k",)),
        (400, {"errors": [{"field": "maxTokens", "code": "invalid"}]}, ("max_tokens",)),
        (422, {"detail": "Unexpected keys in the request: {'ignore_eos'}"}, ("ignore_eos",)),
        (422, {"detail": "Unsupported fields in the request: {'stream_options', 'seed'}"}, ("stream_options", "seed")),
        (400, {"error": {"message": "Unrecognized arguments: ignore_eos, top_k"}}, ("ignore_eos", "top_k")),
        (400, {"object": "error", "message": "No `max_tokens`; use `max_completion_tokens`"}, ("max_tokens",)),
        (500, {"error": "json: unknown field \"top_k\""}, ("top_k",)),
        (501, b"temperature is not implemented by this model", ("temperature",)),
        (400, {"temperature": ["this field must be 1"]}, ("temperature",)),
        # Everyday words mean no field, nor do errors that no field is the reason of.
        (400, {"error": {"message": "The model can't stop; the user has no messages"}}, ()),
        (401, {"error": {"message": "no temperature for you", "param": "temperature"}}, ()),
        (400, b"", ()),
        (400, b"\xff\x00{", ()),
        (400, json.loads("[" * 30 + "]" * 30), ()),
        (200, {"error": {"param": "temperature"}}, ()),
    ],
)  # fmt: skip
def test_the_fields_that_an_error_is_about(status: int, body: Any, fields: tuple[str, ...]) -> None:
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert refused_fields(status, given, SENT) == fields


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("stream_options", "endpoint.include_usage = false"),
        ("ignore_eos", "sampling.ignore_eos = false"),
        ("temperature", 'sampling.temperature = "unset"'),
        ("stop", "sampling.stop = []"),
        ("max_tokens", 'endpoint.fields.max_tokens = "max_completion_tokens"'),
        ("top_k", "remove sampling.extra.top_k"),
        ("n_new", 'endpoint.fields.max_tokens = "max_completion_tokens"'),
        ("user", "endpoint.fields.user = false"),
        ("messages", "endpoint.fields.messages = false"),
    ],
)
def test_the_key_that_puts_a_field_right(name: str, fix: str) -> None:
    assert fix in field_fix(name, {"max_tokens": "n_new"}, b"", ["top_k"])


def test_the_name_that_the_server_wants_is_offered() -> None:
    says = field_fix("max_tokens", {}, b"max_tokens is unknown; did you mean max_new_tokens?", [])
    assert '"max_new_tokens"' in says


def test_a_probe_names_the_key_or_asks_without_the_counts() -> None:
    def strict(index: int, request: bytes) -> Iterable[Step]:
        del index
        if b"stream_options" in request:
            return reply("422 Unprocessable", b'{"detail": "Unsupported fields in the request: {\'stream_options\'}"}')
        return ok_script(0, b"")

    assert "endpoint.include_usage = false" in trouble(strict)
    with serving(strict) as server:
        found = ask(f"http://127.0.0.1:{server.port}/v1", usage_optional=True)
    assert found.observed["include_usage"] is False
    refused = reply("400 Bad Request", b'{"error": {"message": "no", "param": "top_k"}}')
    assert "sampling.extra.top_k" in trouble(lambda *_: refused, sampling={"top_k": 1}, extra=["top_k"])


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (503, b'{"error": {"message": "Loading model", "type": "unavailable_error"}}', "isn't ready"),
        (503, b"<html><title>503 Service Temporarily Unavailable</title></html>", "isn't ready"),
        (502, b"<html><title>502 Bad Gateway</title></html>", "isn't ready"),
        (504, b"", "isn't ready"),
        (500, b"model is still loading", "isn't ready"),
        (503, b'{"error": "Server overloaded, please try again later"}', "is busy"),
        (503, b"the queue is full", "is busy"),
        (529, b'{"error": {"type": "overloaded_error"}}', "is busy"),
        (429, b"", "is busy"),
        (429, b'{"error": {"message": "You exceeded your current quota"}}', None),
        (500, b"division by zero", None),
        (404, b"", None),
        (400, b"busy", None),
    ],
)
def test_not_ready_and_busy(status: int, body: bytes, says: str | None) -> None:
    found = unready("http://h/v1", status, body)
    assert (found is None) == (says is None)
    assert says is None or (says in str(found) and "--wait" in str(found))


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def preparing(self, what: str) -> None:
        self.lines.append(what)


def life(url: str) -> Lifecycle:
    made = freeze(parse_manifest({"model": {"name": "m"}, "endpoint": {"url": url}}, "test")).manifest
    return Lifecycle(made, {}, Redactor([]), logs=None, url=url, engine=None, restarts=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["503 Loading", "502 Bad Gateway", "504 Timeout", "429 Too Many"])
def test_a_server_that_is_not_ready_is_waited_for(status: str) -> None:
    refusals = 2

    def script(index: int, request: bytes) -> Iterable[Step]:
        # Each probe asks for models and for an answer.
        return ok_script(0, request) if index >= 2 * refusals else reply(status, b"")

    said = Said()
    with serving(script) as server:
        life(f"http://127.0.0.1:{server.port}/v1").find(said)
        assert len(said.lines) == 1 and status[:3] in said.lines[0]
    with serving(lambda *_: reply(status, b"")) as server:
        for wait_s in (0.0, 0.1, 1.2):
            with pytest.raises(NotReady, match=status[:3]):
                life(f"http://127.0.0.1:{server.port}/v1").find(Said(), wait_s)


def test_a_server_that_is_not_there_is_waited_for_only_where_asked() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        began = time.monotonic()
        said = Said()
        with pytest.raises(EndpointError, match="is the server running"):
            life(url).find(said)
        assert not said.lines
        with pytest.raises(EndpointError, match=r"is the server running.*\(waited 1.5 s\)"):
            life(url).find(said, 1.5)
        assert said.lines and time.monotonic() > began


def test_a_lora_that_the_server_lacks_is_refused_like_a_model() -> None:
    listed = with_models(list(ok_script(0, b"")))
    assert "lacks LoRA 'x'" in trouble(listed, loras=["x"])
    with serving(listed) as server:
        probe = ask(f"http://127.0.0.1:{server.port}/v1", loras=["n"])
    assert len(probe.attempts) == 1

    def unlisted(index: int, request: bytes) -> Iterable[Step]:
        del index
        if request.startswith(b"GET"):
            return reply("404 Not Found", b"{}")
        lacking = b'"model":"x"' in request
        return reply("404 Not Found", b'{"error": "no model x"}') if lacking else ok_script(0, b"")

    assert "lacks LoRA 'x'" in trouble(unlisted, loras=["n", "x"])
    with serving(unlisted) as server:
        probe = ask(f"http://127.0.0.1:{server.port}/v1", loras=["n"])
    assert len({row["attempt_id"] for row in probe.attempts}) == 2


@contextlib.contextmanager
def speaking(answer: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that reads a little, says `answer` and closes; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    sock = listener.accept()[0]
                except OSError:
                    return
                with contextlib.suppress(OSError), sock:
                    one = sock if context is None else context.wrap_socket(sock, server_side=True)
                    with one:
                        one.recv(1 << 16)
                        one.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)


HTTP2 = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\7\0\0\0\0\0" + bytes(8)


@pytest.mark.parametrize(
    ("scheme", "answer", "protocols", "says"),
    [
        ("http", b"HTTP/1.1 200 OK\r\n\r\n", ["http/1.1"], "write https://"),
        ("http", b"HTTP/1.1 200 OK\r\n\r\n", ["h2", "http/1.1"], "write https://"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", None, "write http://"),
        ("http", HTTP2, None, "HTTP/2 only"),
        ("https", HTTP2, ["h2"], "HTTP/2 only"),
        ("http", b"HTTP/1.1 400 Bad Request\r\n\r\n", None, None),
        ("https", b"HTTP/1.1 200 OK\r\n\r\n", ["h2", "http/1.1"], None),
        ("http", b"220 smtp\r\n", None, None),
        ("http", b"", None, None),
    ],
)
def test_what_speaks_there(scheme: str, answer: bytes, protocols: list[str] | None, says: str | None) -> None:
    context = None
    if protocols is not None:
        context, _ = tls_server_context()
        context.set_alpn_protocols(protocols)
    with speaking(answer, context) as at:
        found = misdirected(f"{scheme}://{at}", 2.0)
        assert (found is None) == (says is None)
        if says is not None:
            assert says in str(found)
            # And so it comes out of a study.
            with pytest.raises(EndpointError, match=says):
                life(f"{scheme}://{at}").find(Said())
