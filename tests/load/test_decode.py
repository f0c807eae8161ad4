"""What the decoder takes for granted of an event like the one before must be what a parser would have said."""

import itertools
import json
from array import array
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.rig import make_call
from tfbench.load import decode as decoding
from tfbench.load.call import EXACT, FRAMED, INEXACT, Call, Ending
from tfbench.load.decode import KIND_NAMES, Decoded, decode
from tfbench.load.stamps import ns_of, to_stamp

texts = st.one_of(
    st.text(max_size=6), st.sampled_from([" a", " b", "", '"', "\\", "\n", '","x":"', "ü", "~some other text~"])
)
extras: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"content": " a"},
        {"text": " a"},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        {"usage": None},
        {"error": None},
        {"error": {"message": "gone"}},
        {"model": " a"},
    ]
)
choices = st.sampled_from(
    [{}, {}, {"finish_reason": "stop"}, {"token_ids": [1, 2]}, {"text": " a"}, {"logprobs": None}]
)
line_ends = st.sampled_from([b"\n\n", b"\n\n", b"\r\n\r\n", b"\n\n: ping\n\n", b"\n"])
deltas = st.sampled_from([{}, {}, {"role": "assistant"}, {"reasoning_content": " a"}, {"tool_calls": []}])


@st.composite
def events(draw: st.DrawFn) -> list[bytes]:
    """A stream whose events are often alike, in one of the ways JSON is written."""
    spaced = draw(st.booleans())
    key = draw(st.sampled_from(["content", "text"]))
    plain: tuple[dict[str, Any], ...] = ({}, {}, {})
    shapes = [plain, *draw(st.lists(st.tuples(extras, choices, deltas), max_size=2))]
    found = []
    for _ in range(draw(st.integers(1, 12))):
        extra, choice, delta = shapes[draw(st.integers(0, len(shapes) - 1))]
        text = draw(texts)
        shown = {"delta": {**delta, "content": text}} if key == "content" else {"text": text}
        body = {"id": "c", "choices": [{"index": 0, **choice, **shown}], **extra}
        ascii_only = draw(st.booleans())
        separators = (", ", ": ") if spaced else (",", ":")
        data = json.dumps(body, separators=separators, ensure_ascii=ascii_only).encode(errors="replace")
        found.append(
            b"data: " + data + draw(st.sampled_from([b"\n\n", b"\n\n", b"\r\n\r\n", b"\n\n: ping\n\n", b"\n"]))
        )
    return found


def call_of(pieces: list[bytes], forms: Iterable[int] = itertools.repeat(EXACT)) -> Call:
    """A whole stream; pieces whose form is FRAMED are given an HTTP chunk's framing."""
    call = make_call()
    call.status, call.content_type, call.ending = 200, b"text/event-stream", Ending.COMPLETE
    call.reads = [
        (i, to_stamp(i + 5), i - 1, form, b"%x\r\n%s\r\n" % (len(piece), piece) if form == FRAMED else piece, 0)
        for i, (piece, form) in enumerate(zip(pieces, forms, strict=False), 1)
    ]
    call.sent_ns, call.end_ns = 1, len(pieces) + 1
    return call


@settings(max_examples=400)
@given(events(), st.sampled_from(["openai_chat", "openai_completions"]), st.data())
def test_events_alike_are_read_as_a_parser_would(pieces: list[bytes], dialect: str, data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=3)))
    if data.draw(st.booleans()):
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    fast = decode(call_of(pieces), dialect)
    assert fast == without_shortcuts(pieces, dialect)
    forms = data.draw(st.lists(st.sampled_from([EXACT, FRAMED]), min_size=len(pieces), max_size=len(pieces)))
    assert decode(call_of(pieces, forms), dialect) == fast


def test_the_end_of_an_inexact_read_is_not_that_of_its_last_chunk() -> None:
    pieces = [b'data: {"choices":[{"index":0,"delta":{"content":" word%d"}}]}\n\n' % i for i in range(6)]
    decoded = decode(call_of(pieces, [EXACT, FRAMED, INEXACT, EXACT, INEXACT, FRAMED]), "openai_chat")
    assert decoded.exact == bytes([1, 1, 0, 1, 0, 1])


def test_a_text_that_needs_a_parser_ends_no_run_of_those_that_need_none() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    texts = [b"a", b"b", b"\\n", b"c", b"\\u00e9", b"\xc3\xa9", b'\\"', b"", b"d"]
    decoded = decode(call_of([event % text for text in texts]), "openai_chat")
    assert decoded.output == 'ab\nc\u00e9\u00e9"d'
    assert [KIND_NAMES[code] for code in decoded.kinds] == ["text"] * 7 + ["empty", "text"]


def without_shortcuts(pieces: list[bytes], dialect: str) -> Decoded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_PATTERNS", 0)
        return decode(call_of(pieces), dialect)


def test_the_shortcut_is_taken() -> None:
    pieces = [b'data: {"choices":[{"index":0,"delta":{"content":" word%d"}}]}\n\n' % i for i in range(5)]
    decoder = decoding.CallDecoder(call_of(pieces), "openai_chat")
    decoder.feed([1] * 5, [to_stamp(1)] * 5, [0] * 5, [EXACT] * 5, pieces)
    assert decoder._head.endswith(b'"content":"') and decoder._patterns == decoding._PATTERNS - 1
    assert decoder.finish().output == " word0 word1 word2 word3 word4"


def test_usage_between_events_alike_counts_only_what_came_since() -> None:
    plain = b'data: {"choices":[{"index":0,"delta":{"content":" a"}}]}\n\n'
    counted = plain.replace(b"]}", b'],"usage":{"prompt_tokens":1,"completion_tokens":%d}}')
    pieces = [plain, counted % 2, plain, counted % 5, counted % 6]
    fast = decode(call_of(pieces), "openai_chat")
    assert fast == without_shortcuts(pieces, "openai_chat")
    tokens = array("i")
    tokens.frombytes(fast.tokens)
    assert tokens.tolist() == [-1, -1, -1, -1, 1]


def columns(decoded: Decoded) -> list[tuple[str, int, int, int, bool]]:
    """Kind, user, kernel and lower ns of each chunk, and whether its stamp is its own."""
    user, lower = array("q"), array("q")
    user.frombytes(decoded.user)
    lower.frombytes(decoded.lower)
    stamps = [ns_of(decoded.stamps[i : i + 16]) for i in range(0, len(decoded.stamps), 16)]
    kinds = [KIND_NAMES[code] for code in decoded.kinds]
    return [*zip(kinds, user, stamps, lower, map(bool, decoded.exact), strict=True)]


BODY = json.dumps({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize(
    ("end_kernel_ns", "last", "chunk"),
    [
        # The close ends it: its last bytes say when it came, however long the close took.
        (0, EXACT, ("text", 3, 8, 2, True)),
        (0, INEXACT, ("text", 3, 8, 2, False)),
        # The framing ends it.
        (950, EXACT, ("text", 900, 950, 2, True)),
    ],
)
def test_when_an_unstreamed_answer_came(end_kernel_ns: int, last: int, chunk: tuple[str, int, int, int, bool]) -> None:
    call = call_of([BODY[:9], BODY[9:20], BODY[20:]], [EXACT, EXACT, last])
    call.content_type, call.end_ns, call.end_kernel_ns = b"application/json", 900, end_kernel_ns
    assert columns(decode(call, "openai_chat")) == [chunk]


@pytest.mark.parametrize("last", [b"\n", b""])
def test_when_the_last_event_came_that_only_the_close_ended(last: bytes) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}'
    call = call_of([event + b"\n\n", event + last])
    call.end_ns = 900
    assert columns(decode(call, "openai_chat")) == [("text", 1, 6, 0, True), ("text", 2, 7, 1, True)]


def event(text: str | None, n: int | None = None, **fields: Any) -> bytes:
    counted = {} if n is None else {"usage": {"prompt_tokens": 5, "completion_tokens": n}}
    delta = {} if text is None else {"content": text}
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta | fields}], **counted}).encode() + b"\n\n"


ROLE, BARE = event("", role="assistant"), event("")


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([ROLE, event("a"), event("b")], [0, 1, 2]),
        # What shows nothing isn't output beside what does.
        ([BARE, event("a"), BARE, event("b")], [0, 1, 1, 2]),
        ([ROLE, event(None), event(None), event("a")], [0, 0, 1, 1]),
        # But for what is known to have carried a token.
        ([event("", 1), event("a", 2), event("", 3), event("", 3)], [1, 2, 3, 3]),
        ([event("", 0), event("", 1), event("a", 2)], [0, 1, 2]),
        ([event("", 1, role="assistant"), event("a", 1), event("b", 2)], [0, 1, 2]),
        ([event("", 1, role="assistant"), event("a", 2), event("b", 3)], [0, 2, 3]),
        # Where nothing shows, all but a first, which opens many streams, may be output.
        ([ROLE, BARE, BARE, BARE], [0, 0, 1, 2]),
        ([b": ping\n\n", BARE, b"data: {}\n\n", BARE], [0, 0, 0, 1]),
    ],
)
def test_output_chunks_are_counted_as_they_come(events: list[bytes], counts: list[int]) -> None:
    call = call_of([])
    counter = decoding.OutputCounter(call, "openai_chat")
    found = []
    for i, data in enumerate(events):
        call.reads.append((i, to_stamp(i), i, EXACT, data, 0))
        found.append(counter.count())
    assert found == counts
    call.reads.clear()
    together = decoding.OutputCounter(call_of([b"".join(events)]), "openai_chat")
    assert together.count() == counts[-1]


def test_a_role_that_carried_tokens_is_output() -> None:
    decoded = decode(call_of([event("", 1, role="assistant"), event("a", 2), event("b", 3)]), "openai_chat")
    tokens = array("i")
    tokens.frombytes(decoded.tokens)
    assert ([KIND_NAMES[code] for code in decoded.kinds], tokens.tolist()) == (["empty", "text", "text"], [1, 1, 1])
