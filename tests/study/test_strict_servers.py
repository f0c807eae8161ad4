"""Whole studies with the default adapter on servers that refuse what they don't know."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.load.scripted import DONE, LAST, STREAM_HEAD, Step, delta, framed, reply, serving, sse, stream, usage
from tfbench.manifest import load_manifest
from tfbench.study import run_study
from tfbench.warehouse import Warehouse

MANIFEST = """
model = { name = "m" }
workload = { input_tokens = 8, output_tokens = 4 }
load = { rates = [50], count = 4, repeats = 1, warmup_s = 0, drain_s = 5 }
"""
API = {"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "stream"}


def _body(request: bytes) -> dict[str, object]:
    body: dict[str, object] = json.loads(request.partition(b"\r\n\r\n")[2])
    return body


def transformers_serve(index: int, request: bytes) -> Iterable[Step]:
    """As `transformers serve` answers: 422 for fields that it doesn't know or serve (stream_options among them), a role
    chunk without content, usage in the finish chunk, no end mark."""
    del index
    if request.startswith(b"GET"):
        return reply("200 OK", b'{"object": "list", "data": [{"id": "m"}]}')
    body = _body(request)
    unknown = set(body) - API - {"stream_options", "user", "n"}
    if unknown:
        return reply(
            "422 Unprocessable Entity", json.dumps({"detail": f"Unexpected keys in the request: {unknown}"}).encode()
        )
    unused = set(body) & {"max_completion_tokens", "stream_options", "user", "n"}
    if unused:
        return reply(
            "422 Unprocessable Entity", json.dumps({"detail": f"Unsupported fields in the request: {unused}"}).encode()
        )
    last = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    last["usage"] = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    events = (delta(role="assistant"), delta("a"), delta("b"), sse(last))
    return [STREAM_HEAD, *(step for event in events for step in (framed(event), 0.002)), LAST]


def strict_api(index: int, request: bytes) -> Iterable[Step]:
    """As a gateway that checks every field against the API."""
    del index
    if request.startswith(b"GET"):
        return reply("404 Not Found", b"{}")
    extra = sorted(set(_body(request)) - API - {"stream_options"})
    if extra:
        return reply("400 Bad Request", json.dumps({"error": {"message": f"Unrecognized argument: {extra}"}}).encode())
    return stream(delta("a"), delta("b"), delta(finish="length"), usage(2), DONE)


@pytest.mark.parametrize("script", [transformers_serve, strict_api])
@pytest.mark.parametrize("connections", ["pooled", "per_request"])
def test_the_default_adapter_measures_it(script: object, connections: str, tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(MANIFEST)
    with serving(script) as server:  # type: ignore[arg-type]
        made = load_manifest(path, [f"endpoint.connections={connections}"], f"http://127.0.0.1:{server.port}/v1")
        done = run_study(made, tmp_path / "w.duckdb")
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute("SELECT outcome, output_tokens FROM attempts WHERE role = 'load'").fetchall()
    assert rows == [("ok", 2)] * 4
