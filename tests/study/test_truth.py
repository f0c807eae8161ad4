"""The truth server says when chunks left, and what is compared with it is what the client wrote down."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tfbench.core.kinds import Outcome
from tfbench.load.target import resolve_target
from tfbench.protocol import DIALECTS, SseParser
from tfbench.study.fidelity import (
    client_lag_ns,
    fidelity,
    match_chunks,
    offer,
    prepare,
    spread_ms,
    start_truth,
)
from tfbench.study.truth import stream_bytes


def post(url: str, name: str | None) -> bytes:
    headers = {} if name is None else {"X-Request-Id": name}
    return httpx.post(url + "/chat/completions", json={"model": "truth"}, headers=headers, trust_env=False).content


def test_each_chunk_has_a_time_and_is_told_once() -> None:
    with start_truth(ttft_ms=5, gap_ms=2, chunks=4) as truth:
        content = post(truth.url, "a")
        post(truth.url, None)
        times, arrivals = truth.chunks(), truth.arrivals()
        assert truth.chunks() == {} and truth.arrivals() == {}
    assert set(times) == set(arrivals) == {"a", "#1"}
    assert len(times["a"]) == 4 and times["a"] == sorted(times["a"])
    # It may be late, but never early: not even a busy machine makes these wrong.
    assert times["a"][0] - arrivals["a"] >= 5_000_000
    assert times["a"][3] - times["a"][0] > 3_000_000
    decoder = DIALECTS["openai_chat"].stream_decoder()
    kinds = [chunk.kind.value for event in SseParser().feed(content) if (chunk := decoder.feed(event))]
    assert kinds == ["text"] * 4 + ["finish", "usage"]
    assert decoder.done and decoder.usage is not None and decoder.usage.output_tokens == 4


def test_a_request_in_pieces_and_two_in_one_piece() -> None:
    request = b"POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: %s\r\nContent-Length: 2\r\n\r\n{}"
    with start_truth(ttft_ms=1, gap_ms=1, chunks=2) as truth:
        address = resolve_target(truth.url, 5.0).address
        with socket.create_connection(address, timeout=30) as sock:
            first = request % b"one"
            for cut in (first[:30], first[30:]):
                sock.sendall(cut)
            data = b""
            while b"0\r\n\r\n" not in data:
                data += sock.recv(65536)
            sock.sendall(request % b"two" + b"GET /v1/models HTTP/1.1\r\n\r\n")
            while b'"truth","object":"model"' not in data or data.count(b"0\r\n\r\n") < 2:
                data += sock.recv(65536)
        assert {name: len(times) for name, times in truth.chunks().items()} == {"one": 2, "two": 2}


def test_a_client_that_leaves_costs_only_its_own_stream() -> None:
    with start_truth(ttft_ms=1, gap_ms=5, chunks=20) as truth:
        with socket.create_connection(resolve_target(truth.url, 5.0).address, timeout=30) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nX-Request-Id: gone\r\nContent-Length: 0\r\n\r\n")
            assert sock.recv(100)
        post(truth.url, "stays")
        times = truth.chunks()
    assert len(times["stays"]) == 20 and 1 <= len(times["gone"]) < 20


def test_stream_bytes_are_http_chunks() -> None:
    data, ending = stream_bytes(3)
    assert data[0].startswith(b"HTTP/1.1 200 OK\r\n") and ending.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    size, _, rest = data[1].partition(b"\r\n")
    assert len(rest) - 2 == int(size, 16)
    assert json.loads(rest.strip().removeprefix(b"data: "))["choices"][0]["delta"] == {"content": " word1"}


def test_spread() -> None:
    assert spread_ms(np.arange(1, 101) * 1_000_000) == {"p50": 50.0, "p99": 99.0, "max": 100.0}
    assert spread_ms([]) == {"p50": None, "p99": None, "max": None}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, list[int]]]:
    with start_truth(ttft_ms=5, gap_ms=2, chunks=8) as truth:
        load = {"rates": [40], "duration_s": 1, "warmup_s": 0.2, "seed": 2}
        offered = offer(*prepare(truth.url, load, tmp_path_factory.mktemp("truth"), output_tokens=8))
        return offered, truth.chunks()


def test_fidelity_counts_what_was_measured(measured: Any) -> None:
    offered, truth = measured
    figures = fidelity(offered, truth)
    attempts = offered.assembled.tables["attempts"].to_pylist()
    rows = [row for row in attempts if row["phase"] == "measure"]
    assert figures["scheduled"] == figures["ok"] == len(rows) > 10
    assert figures["scheduled_per_s"] == len(rows) and figures["mismatched"] == 0
    assert all(row["outcome"] == Outcome.OK for row in rows)
    chunks = match_chunks(offered, truth)
    assert len(chunks.t) == 8 * len(rows) and chunks.first.sum() == len(rows)
    # Python can't have had bytes before the kernel did.
    assert (chunks.user >= chunks.t).all() and (chunks.blur >= 0).all()
    assert figures["validity"] in ("VALID", "INVALID") and figures["cpu_us_per_chunk"] > 0
    assert len(client_lag_ns(offered.assembled.tables["attempts"])) == len(rows)


def test_errors_are_differences_to_the_truth(measured: Any) -> None:
    offered, truth = measured
    # A truth that is the client's own record, moved by 3 ms, differs by 3 ms everywhere, and gaps by nothing.
    chunks = match_chunks(offered, truth)
    names = [name for name in truth if len(truth[name]) == 8]
    own = iter(np.split(chunks.t - offered.base.offset_ns - 3_000_000, len(chunks.t) // 8))
    measured_names = [
        row["request_id"]
        for row in offered.assembled.tables["attempts"].to_pylist()
        if row["phase"] == "measure" and row["request_id"] in names
    ]
    moved = {name: next(own).tolist() for name in measured_names}
    figures = fidelity(offered, moved)
    assert figures["ttft_error_ms"] == {"p50": 3.0, "p99": 3.0, "max": 3.0}
    assert figures["icl_error_ms"] == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    short = {name: times[:-1] for name, times in moved.items()}
    assert fidelity(offered, short)["mismatched"] == len(moved)
    assert fidelity(offered, short)["ttft_error_ms"]["p50"] is None


def test_files_stay_in_their_folder(measured: Any) -> None:
    offered, _ = measured
    assert [Path(job.spool_path).parent for job in offered.jobs] == [offered.context.bundles]
