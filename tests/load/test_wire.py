"""What only real sockets do: stamps and bounds, stale connections, refusals, want of ports."""

import errno
import os
import resource
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.load.rig import Rig, body_of, make_call, plain_reads, rig
from tests.load.scripted import (
    CLOSE,
    LAST,
    STREAM_HEAD,
    Step,
    framed,
    make_job,
    ok_script,
    put_through,
    schedule,
    serving,
)
from tfbench.load import stamps
from tfbench.load.call import Call, Ending
from tfbench.load.connection import Connection
from tfbench.load.poller import READ, open_poller
from tfbench.load.target import Target
from tfbench.load.wire import Wire

MS = 1_000_000
STAMPED = stamps.probe()


def wire_to(address: object, family: int, bench: Rig) -> Wire:
    scheme = "http+unix" if isinstance(address, str) else "http"
    target = Target(scheme, "localhost", 80, "/v1", family, address, False)
    bench.transport = wire = Wire(
        bench.poller, target, None, use_stamps=False, sent=bench.sent.append, done=bench.done.append
    )
    return wire


def test_late_reading_blurs_but_never_hides(tmp_path: Path) -> None:
    """Events that wait together merge into one read; its bound lies before the first of them."""
    left: list[int] = []

    def script(index: int, request: bytes) -> Iterable[Step]:
        yield STREAM_HEAD
        for piece in (b"one", b"two", b"three"):
            yield 0.03
            left.append(time.monotonic_ns())
            yield framed(piece)
        yield 0.2
        yield LAST

    with rig("ipv4", script, tmp_path) as bench:
        call = make_call()
        bench.begin(call)
        bench.until(lambda: call.status != 0)
        time.sleep(0.15)
        bench.until(lambda: call.ending is not None)
    [(user_ns, stamp, lower_ns, exact, data)] = plain_reads(call.reads)
    assert (data, exact) == (b"onetwothree", True)
    assert lower_ns <= left[0]
    if STAMPED:
        real_offset_ns = time.time_ns() - time.monotonic_ns()
        # The stamp is that of the last byte's arrival, not of our reading it.
        assert stamps.ns_of(stamp) - real_offset_ns - left[2] < 40 * MS < user_ns - left[2]


def test_a_connection_closed_while_idle_is_replaced(tmp_path: Path) -> None:
    with rig("ipv4", lambda index, request: [*ok_script(index, request), CLOSE], tmp_path) as bench:
        for _ in range(3):
            call = bench.one()
            assert call.ending is Ending.COMPLETE and call.new_connection
            time.sleep(0.05)


def test_a_kept_connection_that_closes_on_the_request_is_told_as_such(tmp_path: Path) -> None:
    def script(index: int, request: bytes) -> Iterable[Step]:
        return ok_script(index, request) if index == 0 else [CLOSE]

    with rig("ipv4", script, tmp_path) as bench:
        first, second = bench.one(), bench.one()
    assert (first.ending, second.ending) == (Ending.COMPLETE, Ending.LOST)
    # It may have been taken up: sending it again would count work twice.
    assert "kept alive" in second.error and not second.new_connection


def test_a_server_that_says_it_closes_is_left_to_close(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    with rig("ipv4", lambda index, request: [head, 0.1, CLOSE], tmp_path) as bench:
        wire = bench.transport
        assert isinstance(wire, Wire)
        assert bench.one().ending is Ending.COMPLETE
        assert len(wire._sockets.by_fd) == 1
        assert bench.one().new_connection
        bench.until(lambda: not wire._sockets.by_fd)


def test_an_answer_before_the_request_is_out_counts() -> None:
    answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"
    bench = Rig(open_poller())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            conn, _ = listener.accept()
            with conn:
                conn.recv(1000)
                conn.sendall(answer)
                conn.shutdown(socket.SHUT_WR)
                while conn.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        wire = wire_to(listener.getsockname(), socket.AF_INET, bench)
        call = bench.one(b"x" * (64 << 20))
        assert (call.ending, call.status, body_of(call)) == (Ending.COMPLETE, 413, b"big")
        # Whatever was still to be sent: the server has closed its side, so the connection is of no more use.
        bench.until(lambda: not wire._sockets.by_fd)
        thread.join()
    wire.close()
    bench.poller.close()


def test_a_refused_connection_sends_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    bench = Rig(open_poller())
    wire = wire_to(address, socket.AF_INET, bench)
    call = bench.one()
    assert (call.ending, call.error, call.sent_ns, call.connected_ns) == (Ending.CONNECT, "ECONNREFUSED", 0, 0)
    assert bench.sent == [] and wire.exhausted == 0
    assert wire.preconnect(2, 1.0) == 0
    bench.poller.close()


def test_want_of_ports_and_descriptors_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rig("ipv4", ok_script, tmp_path) as bench:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as highest:
            # Descriptors are given out lowest first, so none is left below the limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), hard))
            try:
                call = bench.one()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert call.ending is Ending.CONNECT and "EMFILE" in call.error and bench.transport.exhausted == 1
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "connect_ex", lambda self, address: errno.EADDRNOTAVAIL)
            call = bench.one()
        assert call.ending is Ending.CONNECT and "EADDRNOTAVAIL" in call.error and bench.transport.exhausted == 2
        assert bench.one().ending is Ending.COMPLETE


def test_a_full_queue_of_a_unix_socket_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    bench = Rig(open_poller())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        wire = wire_to(path, socket.AF_UNIX, bench)
        calls = [make_call() for _ in range(8)]
        bench.begin(*calls)
        refused = [call for call in calls if call.ending is not None]
        assert refused and all(call.ending is Ending.CONNECT and "queue" in call.error for call in refused)
        wire.close()
    bench.poller.close()
    missing = wire_to(str(tmp_path / "none.sock"), socket.AF_UNIX, Rig(open_poller()))
    gone: list[Call] = []
    missing._done = gone.append
    missing.begin(make_call())
    assert "ENOENT" in gone[0].error
    missing._poller.close()


def test_preconnecting_gives_up_in_time(tmp_path: Path) -> None:
    """A server whose TLS never answers."""
    from tests.load.rig import tls_server_context

    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = Target("https", "127.0.0.1", 1, "", socket.AF_INET, listener.getsockname(), True)
        poller = open_poller()
        wire = Wire(poller, target, tls_server_context()[1], use_stamps=False, sent=lambda c: None, done=lambda c: None)
        assert wire.preconnect(2, 0.2) == 0
        assert wire.opened == 2
        wire.close()
        poller.close()


def test_a_worker_speaks_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "Big Name.sock"
    quoted = str(path).replace("/", "%2F").replace(" ", "%20")
    with serving(ok_script, socket.AF_UNIX, path=str(path)) as server:
        result = put_through(make_job(f"http+unix://{quoted}/v1", tmp_path, schedule(0, 100)))
        assert b"POST /v1/chat/completions HTTP/1.1\r\n" in server.requests[0]
        assert b"\r\nHost: localhost\r\n" in server.requests[0]
    assert result.outcomes == ["ok"] * 2
    # The kernel stamps no Unix sockets.
    assert {row["stamp_source"] for row in result.attempts} == {"user"}


def test_frames_cut_anywhere_are_no_frames_lost(tmp_path: Path) -> None:
    whole = STREAM_HEAD + framed(b"data: x\n\n") + framed(b"data: [DONE]\n\n") + LAST
    cuts = range(1, len(whole), 3)

    def script(index: int, request: bytes) -> Iterable[Step]:
        return [whole[: cuts[index]], 0.002, whole[cuts[index] :]]

    with rig("ipv4", script, tmp_path) as bench:
        for _ in cuts:
            call = bench.one()
            assert (call.ending, body_of(call)) == (Ending.COMPLETE, b"data: x\n\ndata: [DONE]\n\n")
            assert call.done_seen_ns
        assert bench.transport.opened == 1


def _connection(call: Call) -> Connection:
    assert isinstance(call.connection, Connection)
    return call.connection


def test_a_report_is_never_taken_for_another_connection_of_the_same_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfbench.load.wire._TURN", 1)
    # The server's thread shares the numbers: it may take the one that is to come again.
    for attempt in range(20):
        (tmp_path / str(attempt)).mkdir()
        if reused_in_a_batch(tmp_path / str(attempt)):
            return
    pytest.fail("another thread took the number each time")


def reused_in_a_batch(folder: Path) -> bool:
    """Whether a connection took the number of one that went in the middle of a batch; it is to be left in peace."""
    with rig("ipv4", ok_script, folder) as bench:
        first = make_call()
        bench.begin(first)
        bench.until(lambda: first.sent_ns > 0)
        fd = _connection(first).fd
        # The server's thread has taken the numbers that it needs.
        while not bench.requests:
            time.sleep(0.001)
        # No lower number is free, so the next connection takes the one that the first leaves.
        fillers = [os.dup(2)]
        while fillers[-1] < fd:
            fillers.append(os.dup(2))
        later: list[Call] = []

        def between() -> None:
            # In the middle of a batch one connection goes and others come, one with the number of the first.
            bench.transport.abort(first, Ending.CANCELLED, "")
            while not later or (_connection(later[-1]).fd != fd and len(later) < 20):
                later.append(make_call(number=1 + len(later)))
                bench.begin(later[-1])

        bench.transport.serve([(fd, READ | 0x10)], 0, between)
        reused = _connection(later[-1]).fd == fd
        if reused:
            assert not _connection(later[-1]).opened and later[-1].sent_ns == 0
        bench.until(lambda: all(call.ending is not None for call in later))
    for filler in fillers:
        os.close(filler)
    assert {call.ending for call in later} == {Ending.COMPLETE}
    return reused
