"""What every transport does alike: plain, IPv6, Unix and TLS sockets, and the mock."""

import itertools
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.load.rig import KINDS, Rig, body_of, make_call, plain_reads, rig
from tests.load.scripted import CLOSE, LAST, RESET, STREAM_HEAD, Script, Step, delta, framed, ok_script, reply
from tfbench.load import framing
from tfbench.load.call import Ending
from tfbench.load.stamps import NO_STAMP

Open = Callable[[Script], AbstractContextManager[Rig]]

EVENTS = [delta("a"), delta("b"), delta(finish="stop"), b"data: [DONE]\n\n"]
WHOLE = STREAM_HEAD + b"".join(framed(event) for event in EVENTS) + LAST
BODY = b"".join(EVENTS)


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens a rig of each kind."""
    return lambda script: rig(request.param, script, tmp_path)


def playing(*steps: Step) -> Script:
    return lambda index, request: steps


def test_a_call_goes_out_is_answered_and_ends_once(opened: Open) -> None:
    with opened(playing(STREAM_HEAD, *itertools.chain.from_iterable((0.02, framed(e)) for e in EVENTS), LAST)) as bench:
        call = bench.one()
        assert call.ending is Ending.COMPLETE and call.error == ""
        assert bench.sent == [call] and bench.done == [call]
        assert bench.requests[0] == call.request
    assert (call.status, call.content_type) == (200, b"text/event-stream")
    assert body_of(call) == BODY
    assert call.new_connection and call.connection_id >= 0
    assert call.dispatched_ns <= call.connected_ns <= call.sent_ns < call.first_ns <= call.end_ns
    assert call.done_seen_ns > 0
    # Each event came in its own read, was the last byte of it, and lies behind the bound that blur reaches back to.
    reads = plain_reads(call.reads)
    assert len(reads) >= len(EVENTS)
    assert reads[0][3]
    for before, read in itertools.pairwise(reads):
        assert before[0] < read[0]
        assert before[2] <= read[2] < read[0]
        assert read[2] > before[0] - 20_000_000
    assert all(read[1] != NO_STAMP for read in reads) == bench.transport.stamped


def test_a_response_may_come_byte_by_byte(opened: Open) -> None:
    def trickle(index: int, request: bytes) -> Iterable[Step]:
        for byte in WHOLE:
            yield bytes([byte])
            yield 0.0002

    with opened(trickle) as bench:
        call = bench.one()
    assert call.ending is Ending.COMPLETE
    assert body_of(call) == BODY
    # The end mark is seen although no read held it whole.
    assert 0 < call.done_seen_ns <= call.end_ns


@pytest.mark.parametrize(
    ("head", "steps", "close"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", [b"hello"], False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", [b"hello", CLOSE], True),
        (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", [b"hel", 0.01, b"lo", CLOSE], True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", [b"hello", CLOSE], True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", [b"hello"], False),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", [b"HTTP/1.1 200 OK\r\n\r\n", b"hello", CLOSE], True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", [b"5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n"], False),
    ],
)
def test_each_way_to_frame_a_response(opened: Open, head: bytes, steps: list[Step], close: bool) -> None:
    with opened(playing(head, *steps)) as bench:
        first = bench.one()
        second = bench.one()
    for call in (first, second):
        assert (call.ending, call.status, body_of(call)) == (Ending.COMPLETE, 200, b"hello")
    assert second.new_connection is close


def test_trailers_change_nothing(opened: Open) -> None:
    trailed = STREAM_HEAD + framed(b"x") + b"0\r\nContent-Type: text/html\r\nRetry-After: 9\r\n\r\n"
    with opened(playing(trailed)) as bench:
        call = bench.one()
    assert (call.ending, call.content_type, body_of(call)) == (Ending.COMPLETE, b"text/event-stream", b"x")
    assert call.retry_after == b""


def test_connections_are_reused_newest_first(opened: Open) -> None:
    with opened(playing(WHOLE)) as bench:
        first, second = bench.talk(make_call(), make_call())
        third = bench.one()
        assert bench.transport.opened == 2
    assert first.new_connection and second.new_connection and first.connection_id != second.connection_id
    assert not third.new_connection and third.connected_ns == 0
    assert third.connection_id == bench.done[1].connection_id


@pytest.mark.parametrize("extra", [b"garbage\r\n\r\n", WHOLE, b"\x00"])
def test_bytes_after_the_response_cost_the_connection_not_the_answer(opened: Open, extra: bytes) -> None:
    with opened(playing(WHOLE + extra)) as bench:
        call, again = bench.one(), bench.one()
    for one in (call, again):
        assert (one.ending, one.error, one.status, body_of(one)) == (Ending.COMPLETE, "", 200, BODY)
        assert one.new_connection and one.garbage == b""
        assert not plain_reads(one.reads)[-1][3]


@pytest.mark.parametrize(
    ("steps", "ending"),
    [
        ([RESET], Ending.LOST),
        ([CLOSE], Ending.LOST),
        ([b"HTTP/1.1 20", CLOSE], Ending.LOST),
        ([STREAM_HEAD, 0.05, CLOSE], Ending.BROKEN),
        ([STREAM_HEAD, framed(b"data"), 0.05, RESET], Ending.BROKEN),
        ([STREAM_HEAD, b"ff\r\ndata", 0.05, CLOSE], Ending.BROKEN),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 0.05, CLOSE], Ending.BROKEN),
        ([b"220 smtp.example ready\r\n", 0.05], Ending.BROKEN),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", 0.05], Ending.BROKEN),
        ([STREAM_HEAD, b"xyz\r\n", 0.05], Ending.BROKEN),
    ],
)
def test_what_goes_wrong_is_an_ending(opened: Open, steps: list[Step], ending: Ending) -> None:
    with opened(playing(*steps)) as bench:
        call = bench.one()
        assert call.ending is ending
        assert call.error
        assert bench.done == [call]
        # The next one is none the worse for it.
        assert bench.one().new_connection


def test_unparseable_bytes_are_kept(opened: Open) -> None:
    with opened(playing(b"220 smtp.example ready\r\n", 0.05)) as bench:
        assert bench.one().garbage == b"220 smtp.example ready\r\n"


def test_an_abort_ends_the_call_now(opened: Open) -> None:
    with opened(playing(STREAM_HEAD, framed(b"x"), 0.3, framed(b"y"), LAST)) as bench:
        call = make_call()
        bench.begin(call)
        bench.until(lambda: bool(call.reads))
        bench.transport.abort(call, Ending.TIMEOUT, "too slow")
        assert (call.ending, call.error, bench.done) == (Ending.TIMEOUT, "too slow", [call])
        bench.transport.abort(call, Ending.CUT, "again")
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            bench.turn()
        assert bench.done == [call] and call.ending is Ending.TIMEOUT
        assert body_of(call) == b"x"


def test_close_cuts_what_is_in_flight(opened: Open) -> None:
    with opened(playing(STREAM_HEAD, framed(b"x"), 5.0)) as bench:
        calls = [make_call(), make_call()]
        bench.begin(*calls)
        bench.until(lambda: all(call.reads for call in calls))
    assert [call.ending for call in calls] == [Ending.CUT] * 2
    assert sorted(map(id, bench.done)) == sorted(map(id, calls))


def test_a_stalled_stream_holds_nobody_up(opened: Open) -> None:
    def script(index: int, request: bytes) -> Iterable[Step]:
        return [STREAM_HEAD, framed(b"x"), 30.0] if b"X-Number: 7\r\n" in request else [WHOLE]

    with opened(script) as bench:
        stalled = make_call(number=7)
        bench.begin(stalled)
        bench.talk(*(make_call() for _ in range(10)))
        assert stalled.ending is None
        assert [call.ending for call in bench.done] == [Ending.COMPLETE] * 10


def test_large_requests_arrive_whole(opened: Open) -> None:
    body = bytes(range(256)) * (8 << 12)
    with opened(ok_script) as bench:
        call = bench.one(body)
        assert call.ending is Ending.COMPLETE
        assert bench.requests[0].endswith(body) and len(bench.requests[0]) == len(call.request)


def test_a_megabyte_of_headers_passes_and_more_is_refused(opened: Open) -> None:
    def head(size: int) -> list[Step]:
        lines = [b"X-%d: %s\r\n" % (i, b"y" * 9990) for i in range(size // 10_000)]
        return [b"HTTP/1.1 200 OK\r\n", *lines, b"Content-Length: 2\r\n\r\nok"]

    with opened(playing(*head(1_000_000))) as bench:
        assert (bench.one().ending, body_of(bench.done[0])) == (Ending.COMPLETE, b"ok")
    with opened(playing(*head(2_000_000))) as bench:
        call = bench.one()
    assert call.ending is Ending.BROKEN and "headers" in call.error and call.garbage


def test_answers_without_end_are_given_up(opened: Open) -> None:
    flood = [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 100
    with opened(playing(*flood)) as bench:
        call = bench.one()
    assert call.ending is Ending.BROKEN and "headers" in call.error


def test_a_body_over_the_limit_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_BODY_BYTES", 3 << 20)
    piece = framed(b"z" * 100_000)
    with opened(playing(STREAM_HEAD, *[piece] * 25, LAST)) as bench:
        assert bench.one().ending is Ending.COMPLETE
    with opened(playing(STREAM_HEAD, *[piece] * 40, LAST)) as bench:
        call = bench.one()
    assert (call.ending, call.error) == (Ending.BROKEN, "the response is larger than 3 MiB")
    assert len(body_of(call)) < 4 << 20


def test_one_gigantic_chunk_is_read_in_linear_time(opened: Open) -> None:
    size = 24 << 20
    data = [b"x" * (1 << 20)] * 24
    with opened(playing(STREAM_HEAD, b"%x\r\n" % size, *data, b"\r\n", LAST)) as bench:
        before = time.process_time()
        call = bench.one()
        spent = time.process_time() - before
    assert call.ending is Ending.COMPLETE
    assert sum(len(read[4]) for read in plain_reads(call.reads)) == size
    # Copying all that came before with every read would take minutes.
    assert spent < 10


def test_preconnected_lines_are_used(opened: Open) -> None:
    with opened(playing(WHOLE)) as bench:
        assert bench.transport.preconnect(3, 5.0) == 3
        assert bench.transport.opened == 3 and bench.transport.exhausted == 0
        calls = bench.talk(*(make_call() for _ in range(4)))
        assert [call.new_connection for call in calls] == [False, False, False, True]
        assert [call.ending for call in calls] == [Ending.COMPLETE] * 4
        assert [call.connected_ns == 0 for call in calls] == [True, True, True, False]


def test_retry_after_is_noted(opened: Open) -> None:
    with opened(playing(*reply("429 Too Many Requests", b"{}", "application/json", "Retry-After: 7"))) as bench:
        call = bench.one()
    assert (call.status, call.retry_after) == (429, b"7")
