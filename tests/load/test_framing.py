"""Framing alone: any cut gives the same answer, and no bytes raise."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.rig import body_of, make_call
from tests.load.scripted import LAST, STREAM_HEAD, framed
from tfbench.load.call import Call
from tfbench.load.framing import MAX_BODYLESS_BYTES, Framing
from tfbench.load.stamps import to_stamp

EVENTS = [b"data: %d\n\n" % i for i in range(3)] + [b"data: [DONE]\n\n"]
ANSWERS = {
    "chunked": STREAM_HEAD + b"".join(framed(event) for event in EVENTS) + LAST,
    "one chunk": STREAM_HEAD + framed(b"".join(EVENTS)) + LAST,
    "extension and trailer": STREAM_HEAD
    + b"%x;a=b\r\n" % len(b"".join(EVENTS))
    + b"".join(EVENTS)
    + b"\r\n0\r\nT: v\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(b"".join(EVENTS)) + b"".join(EVENTS),
    "continued": b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM_HEAD + framed(b"".join(EVENTS)) + LAST,
}


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def feed(pieces: list[bytes]) -> tuple[Framing, Call, int]:
    """Feed pieces until the response is over; (framing, call, pieces taken)."""
    framing, call = Framing(), make_call()
    framing.begin(call)
    taken = 0
    for i, piece in enumerate(pieces):
        taken += 1
        if framing.take(call, memoryview(piece), len(piece), 1000 + i, to_stamp(5000 + i), i, True):
            break
    return framing, call, taken


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(min_value=0), max_size=12))
def test_the_cut_does_not_matter(name: str, cuts: list[int]) -> None:
    pieces = pieces_of(ANSWERS[name], cuts)
    framing, call, taken = feed(pieces)
    assert framing.complete and framing.keep_alive and not framing.trouble and taken == len(pieces)
    assert (call.status, body_of(call)) == (200, b"".join(EVENTS))
    assert call.done_seen_ns > 0 and call.garbage == b""
    # Times are those of the pieces that carried body, in order.
    stamps = [read[1] for read in call.reads]
    assert stamps == sorted(set(stamps))


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(ANSWERS)),
    st.lists(st.tuples(st.integers(min_value=0), st.binary(max_size=3)), min_size=1, max_size=4),
    st.lists(st.integers(min_value=0), max_size=6),
)
def test_no_bytes_raise(name: str, spoils: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = bytearray(ANSWERS[name])
    for at, new in spoils:
        at %= len(data)
        data[at : at + max(len(new), 1)] = new
    framing, call, _ = feed(pieces_of(bytes(data), cuts))
    assert 0 <= call.status <= 999
    if framing.trouble and not framing.complete:
        assert call.garbage


@given(st.binary(min_size=1, max_size=200))
def test_what_is_not_http_is_kept(data: bytes) -> None:
    framing, call, _ = feed([b"\x00" + data])
    assert framing.trouble and not framing.complete
    assert call.garbage == b"\x00" + data and not call.reads


def test_silence_is_counted_in_bytes_and_ends_with_body() -> None:
    piece = b"x" * 65536
    head = [b"HTTP/1.1 200 OK\r\nX: ", *[piece] * (MAX_BODYLESS_BYTES // 65536 - 1)]
    framing, call, _ = feed([*head, b"\r\n\r\n", b"body"])
    assert not framing.trouble and body_of(call) == b"body" and framing.bodyless == 0
    framing, call, taken = feed([*head, piece, piece])
    assert "headers" in framing.trouble and taken == len(head) + 1


def test_released_framing_keeps_no_parser() -> None:
    framing, _, _ = feed([ANSWERS["chunked"]])
    framing.release()
    assert framing.parser is None and framing.feed is None


def test_keep_alive_promises_are_read() -> None:
    for line, seconds in {
        b"timeout=5, max=10": 5.0,
        b"max=3": 0.0,
        b"timeout=soon": 0.0,
        b"Timeout=2.5": 2.5,
        b"timeout=-1": 0.0,
    }.items():
        framing, _, _ = feed([b"HTTP/1.1 200 OK\r\nKeep-Alive: " + line + b"\r\nContent-Length: 0\r\n\r\n"])
        assert framing.complete and framing.keep_alive_s == seconds
