"""Servers that close kept-alive connections: seen before sending, learned, not used again, and counted."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.load.rig import rig
from tests.load.scripted import (
    CLOSE,
    DONE,
    Script,
    Step,
    delta,
    make_job,
    put_through,
    schedule,
    serving,
    stream,
    usage,
)
from tfbench.load.poller import open_poller
from tfbench.load.sockets import Sockets
from tfbench.load.target import resolve_target
from tfbench.load.wire import Wire

MS = 1_000_000
S = 1_000 * MS
GOOD = stream(delta("a"), delta(finish="stop"), usage(1), DONE)


def closes_after(*delays_s: float) -> Script:
    """Answers well, promises nothing, and closes so long after each answer in turn (the last serves all others)."""

    def script(index: int, request: bytes) -> Iterable[Step]:
        del request
        return [*GOOD, delays_s[min(index, len(delays_s) - 1)], CLOSE]

    return script


@pytest.mark.parametrize("kind", ["ipv4", "unix", "tls"])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.02])
def test_a_close_that_came_before_is_seen_and_learned(kind: str, after_s: float, tmp_path: Path) -> None:
    with rig(kind, closes_after(after_s), tmp_path) as bench:
        assert bench.one().status == 200
        # TLS may say that it ends together with the answer, and the connection is then never idle.
        wire = bench.transport
        assert isinstance(wire, Wire)
        bench.until(lambda: wire.closes_idle_ns is not None or not wire._sockets.by_fd)
        calls = [bench.one() for _ in range(5)]
        assert all(call.status == 200 and call.new_connection for call in calls)
        assert bench.transport.crossed == 0 and bench.transport.opened == 6


def test_a_close_that_no_poll_reported_is_seen_as_a_request_comes(tmp_path: Path) -> None:
    with rig("ipv4", closes_after(0.0), tmp_path) as bench:
        bench.one()
        time.sleep(0.1)
        assert bench.one().new_connection
        assert bench.transport.closes_idle_ns is not None and bench.transport.crossed == 0


def test_what_crosses_is_counted_told_and_happens_no_more(tmp_path: Path) -> None:
    def script(index: int, request: bytes) -> Iterable[Step]:
        # The second request on the first connection meets its end.
        del request
        return [CLOSE] if index == 1 else GOOD

    with rig("ipv4", script, tmp_path) as bench:
        bench.one()
        lost = bench.one()
        assert lost.status == 0 and "kept alive" in lost.error and bench.transport.crossed == 1
        assert all(bench.one().new_connection for _ in range(3))


def test_a_server_that_keeps_connections_has_them_used_again(tmp_path: Path) -> None:
    with rig("ipv4", lambda *_: GOOD, tmp_path) as bench:
        assert [bench.one().new_connection for _ in range(4)] == [True, False, False, False]
        assert bench.transport.closes_idle_ns is None


@pytest.mark.parametrize(
    ("seen_ns", "idle_ns", "fresh"),
    [
        (None, 3600 * S, True),
        (0, 0, False),
        (1 * MS, 0, False),
        (400 * MS, 1, False),
        (5 * S, 4 * S, True),
        (5 * S, 4 * S + 600 * MS, False),
        (60 * S, 50 * S, True),
        (60 * S, 55 * S, False),
    ],
)
def test_how_long_an_idle_connection_is_trusted(seen_ns: int | None, idle_ns: int, fresh: bool) -> None:
    poller = open_poller()
    with serving(lambda *_: GOOD) as server:
        target = resolve_target(f"http://127.0.0.1:{server.port}/v1", 5.0)
        sockets = Sockets(poller, target, "pooled", lambda _: True, use_stamps=False, closes_idle_ns=seen_ns)
        opened = sockets.open(ahead=False)
        assert isinstance(opened, tuple)
        connection, _ = opened
        assert sockets.is_fresh(connection, 7 * S), "one that never served is nobody's to distrust"
        connection.idle_since_ns = 7 * S
        assert sockets.is_fresh(connection, 7 * S + idle_ns) is fresh
        # One that served nothing, or was in use as it ended, teaches nothing.
        before = sockets.closes_idle_ns
        connection.idle_since_ns = 0
        sockets.found_closed(connection, 8 * S)
        connection.idle_since_ns = 9 * S
        sockets.found_closed(connection, 8 * S)
        assert sockets.closes_idle_ns == before
        sockets.shut(connection)
    poller.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_load_on_a_server_that_closes_after_each_answer(known: bool, tmp_path: Path) -> None:
    with serving(closes_after(0.001)) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(*range(0, 400, 10)),
            closes_idle_ns=MS if known else None,
        )
        result = put_through(job)
    assert result.outcomes == ["ok"] * 40
    [summary] = result.assembled.summaries
    assert summary["crossed"] == 0
    assert summary["connections"] == 40 and summary["closes_idle_ns"] is not None
