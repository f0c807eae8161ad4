"""The event stream parser against examples, a slow reference parser, and every way to cut a stream."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.protocol.captures import captured, cassette, timed_reads
from tfbench.protocol import SseEvent, SseParser

BOM = b"\xef\xbb\xbf"


def parse(*feeds: bytes) -> list[tuple[bytes, bytes | None]]:
    """Data and type of every event that isn't a comment."""
    parser = SseParser()
    return [(e.data, e.event) for feed in feeds for e in parser.feed(feed) if not e.comment]


def reference(stream: bytes) -> tuple[list[SseEvent], int]:
    """WHATWG HTML 9.2.6 taken line by line over the whole stream.

    Gives the events, with `end` counted from the stream's start, and where the undispatched rest begins.
    """
    events = []
    data: list[bytes] = []
    name = b""
    pending = False  # a field line came since the last blank line
    rest = start = len(BOM) if stream.startswith(BOM) else 0
    for line_end in re.compile(rb"\r\n|\n|\r").finditer(stream, start):
        line, start = stream[start : line_end.start()], line_end.end()
        if line == b"":
            if data:
                events.append(SseEvent(b"\n".join(data), name or None, False, start))
            data, name, pending, rest = [], b"", False, start
        elif line.startswith(b":"):
            text = line[1:]
            events.append(SseEvent(text[1:] if text.startswith(b" ") else text, None, True, start))
            rest = rest if pending else start
        else:
            pending = True
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"data":
                data.append(value)
            if field == b"event":
                name = value
    return events, rest


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def check_against_reference(stream: bytes, feeds: list[bytes]) -> None:
    assert b"".join(feeds) == stream
    expected, rest = reference(stream)
    parser = SseParser()
    got = []
    offset = 0
    for feed in feeds:
        for event in parser.feed(feed):
            assert 0 < event.end <= len(feed)
            got.append(event._replace(end=event.end + offset))
        offset += len(feed)
    assert [e[:3] for e in got] == [e[:3] for e in expected]
    edges = {sum(map(len, feeds[:i])) for i in range(len(feeds))}
    for event, whole in zip(got, expected, strict=True):
        # An event that ends in CR LF is complete at the CR; the LF counts only when it came along.
        cr_lf_torn = stream[whole.end - 2 : whole.end] == b"\r\n" and whole.end - 1 in edges
        assert event.end == whole.end - cr_lf_torn
    assert parser.tail == stream[rest:]
    assert parser.pending == len(stream) - rest


PIECES = st.one_of(
    st.sampled_from([b"data", b"data:", b"data: ", b"event: error", b"event:", b"id: 7", b"retry: 9", b"nonsense"]),
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r", b" ", b":", b": ping", b":\n\n"]),
    st.sampled_from([BOM, BOM[:1], BOM[:2], "é€🙂".encode(), b"\x00", b"\xff"]),
    st.sampled_from([b'data: {"a":1}\n\n', b"data:x\r\n\r\n", b"data: [DONE]\n\n"]),
)
LINES = st.sampled_from(
    [b"data: a", b"data: ", b"data:b", b"data", b"event: e", b"event", b"id: 1", b":c", b"", b"data: \xff"]
)
BLOCKS = st.lists(
    st.tuples(st.lists(LINES, min_size=1, max_size=3), st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])), max_size=8
).map(lambda blocks: b"".join(end.join([*lines, b"", b""]) for lines, end in blocks))
STREAMS = st.one_of(BLOCKS, st.lists(PIECES, max_size=24).map(b"".join), st.binary(max_size=40))
CUTS = st.lists(st.integers(0, 400), max_size=12)


@settings(deadline=None)
@given(STREAMS, CUTS)
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [10])
@example(BOM + b"data: a\n\n", [1, 2])
@example(b"\r\n", [1])
@example(b":\r\ndata: x\n\n", [2])
@example(b"data: 0\n\ndata: a\rdata: b\n\n", [9])
@example(b"data: a\n\n:c\nevent: e\ndata: b\n\ndata: c\n\n", [])
def test_any_stream_cut_anywhere_agrees_with_the_reference(stream: bytes, cuts: list[int]) -> None:
    check_against_reference(stream, cut(stream, cuts))


@settings(deadline=None)
@given(STREAMS)
def test_one_byte_at_a_time_agrees_with_the_reference(stream: bytes) -> None:
    check_against_reference(stream, [stream[i : i + 1] for i in range(len(stream))])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "stream",
    [
        captured("llama-server-chat-stream-sse-ping")[1],
        captured("vllm-cpu-chat-stream-continuous-usage-interval4")[1],
        cassette("anthropic__test_anthropic_thinking_streaming_legacy"),
    ],
    ids=["pings", "vllm", "named events"],
)
def test_recorded_streams_agree_with_the_reference_at_every_cut(stream: bytes, line_end: bytes) -> None:
    stream = stream.replace(b"\n", line_end)
    for place in range(0, len(stream), 7):
        check_against_reference(stream, [stream[:place], stream[place:]])


def test_line_ends_may_be_mixed() -> None:
    assert parse(b"data: 1\n\ndata: 2\r\rdata: 3\r\n\r\ndata: 4\n\r\ndata: 5\r\n\n") == [
        (b"%d" % n, None) for n in range(1, 6)
    ]


def test_a_cr_ends_an_event_without_waiting_and_its_lf_is_not_a_blank_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: 1\r\r") == [SseEvent(b"1", None, False, 9)]
    assert parser.feed(b"\ndata: 2\r\n\r") == [SseEvent(b"2", None, False, 11)]
    assert parser.feed(b"\n") == []
    assert parser.tail == b""


def test_end_is_where_the_event_was_completed() -> None:
    parser = SseParser()
    assert [e.end for e in parser.feed(b"data: a\n\ndata: bc\n\ndata: d")] == [9, 19]
    assert [e.end for e in parser.feed(b"\n\n:ping\ndata: e\r\n\r\n")] == [2, 8, 19]


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b"data: x", b"x"),
        (b"data:x", b"x"),  # no space after the colon
        (b"data:  x ", b" x "),  # one space goes, the rest stays
        (b"data:\tx", b"\tx"),
        (b"data", b""),
        (b"data:", b""),
        (b"data: a:b: c", b"a:b: c"),
        ("data: é€🙂".encode(), "é€🙂".encode()),
        (b"data: \x00\xff", b"\x00\xff"),
    ],
)
def test_a_data_line(line: bytes, data: bytes) -> None:
    assert parse(line + b"\n\n") == [(data, None)]


@pytest.mark.parametrize(
    "line", [b"Data: x", b" data: x", b"data : x", b"datax: x", b"id: 1", b"retry: 10", b"event: x"]
)
def test_lines_that_give_no_data_dispatch_nothing(line: bytes) -> None:
    assert parse(line + b"\n\n") == []


def test_data_lines_are_joined() -> None:
    assert parse(b"data: a\ndata:b\nid: 3\ndata\ndata: \n\n") == [(b"a\nb\n\n", None)]


def test_the_type_belongs_to_one_event_and_the_last_one_counts() -> None:
    stream = b"event: a\nevent: b\ndata: 1\n\ndata: 2\n\nevent: c\n\ndata: 3\n\nevent: x\nevent:\ndata: 4\n\n"
    assert parse(stream) == [(b"1", b"b"), (b"2", None), (b"3", None), (b"4", None)]


def test_comments_are_events_and_do_not_end_one() -> None:
    events = SseParser().feed(b":\n\ndata: a\n: keep-alive\ndata: b\n\n")
    assert events == [
        SseEvent(b"", None, True, 2),
        SseEvent(b"keep-alive", None, True, 24),
        SseEvent(b"a\nb", None, False, 33),
    ]


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    assert parse(BOM + b"data: 1\n\n") == [(b"1", None)]
    assert parse(b"\xef", b"\xbb", b"\xbf", b"data: 1\n\n") == [(b"1", None)]
    assert parse(BOM + BOM + b"data: 1\n\n") == []
    assert parse(b"data: 1\n\n" + BOM + b"data: 2\n\n") == [(b"1", None)]


def test_the_tail_is_what_an_end_of_stream_cuts_off() -> None:
    parser = SseParser()
    parser.feed(b"data: 1\n\nevent: e\ndata: 2\n:ping\nda")
    assert parser.tail == b"event: e\ndata: 2\n:ping\nda"
    assert parser.pending == 25
    parser.feed(b"ta: 3\n\n:ping\n")
    assert parser.tail == b""


def test_an_event_in_many_small_reads_costs_no_rescan() -> None:
    parser = SseParser()
    assert parser.feed(b"data: ") == []
    for _ in range(5000):
        assert parser.feed(b"x" * 100) == []
    (event,) = parser.feed(b"\n\n")
    assert event == SseEvent(b"x" * 500_000, None, False, 2)


@pytest.mark.parametrize(
    ("name", "events_per_read"),
    [("llama-server-timed", [2] + [1] * 11 + [3]), ("vllm-cpu-timed", [2] + [1] * 13 + [0])],
)
def test_real_reads_end_where_their_last_event_ends(name: str, events_per_read: list[int]) -> None:
    parser = SseParser()
    reads = timed_reads(name)
    events = [parser.feed(read) for read in reads]
    assert [len(found) for found in events] == events_per_read
    assert [found[-1].end for found in events if found] == [len(read) for read in reads if read]
