"""Generated cases: streams as servers, proxies and accidents make them."""

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

from tests.conformance.cases import Case, Expected, with_body
from tests.load.scripted import DONE, delta, sse, usage
from tfbench.protocol.openai_fields import REASONING_KEYS

ROLE = delta("", role="assistant")
STOP = delta(finish="stop")
GOOD = ROLE + delta("a") + delta("b") + STOP + usage(2) + DONE
GOOD_USAGE = (5, None, 2, None)
OK = Expected("ok", "rttfu", "ab", "stop", GOOD_USAGE, (None, 1, 1, None, None))
PLAIN = Expected("ok", "t", "a", None)
"""delta("a") and an end mark."""
WIDE = "é€😀ß漢\u200d"
"""Characters of two, three and four bytes, and one that shows nothing."""
NO_END = "without finish_reason"


def raw_delta(text: str) -> bytes:
    """A chat chunk with its text as UTF-8 rather than escaped."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return sse(json.dumps({"choices": [choice]}, ensure_ascii=False))


def chunk(choices: Any, **fields: Any) -> bytes:
    """A chunk with any choices."""
    return sse({"id": "c", "model": "m", "choices": choices, **fields})


def counted(text: str | None, n: int, finish: str | None = None, **fields: Any) -> bytes:
    """A chunk that carries usage too."""
    content = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": {**content, **fields}, "finish_reason": finish}
    return chunk([choice], usage={"prompt_tokens": 5, "completion_tokens": n})


def lines(data: bytes, end: bytes) -> bytes:
    """`data` with other line ends."""
    return data.replace(b"\n", end)


def body_cases() -> Iterator[Case]:
    """Cases that every framing and every split must read alike, yet to be framed."""
    yield with_body("good", GOOD, OK)
    yield with_body("multi-byte characters", raw_delta(WIDE) + DONE, Expected("ok", "t", WIDE))
    yield with_body("CRLF", lines(GOOD, b"\r\n"), OK)
    yield with_body("CR", lines(GOOD, b"\r"), OK)
    mixed = lines(ROLE, b"\r\n") + lines(delta("a"), b"\r") + delta("b") + lines(STOP + usage(2), b"\r\n") + DONE
    yield with_body("line ends mixed", mixed, OK)
    yield from _deltas()
    yield from _choices()
    yield from _shapes()
    yield from _errors()
    yield from _ends()


def _deltas() -> Iterator[Case]:
    many = delta("a b c d") + delta(" e f g") + STOP + usage(7) + DONE
    yield with_body("several tokens a chunk", many, Expected("ok", "ttfu", "a b c d e f g", "stop", (5, None, 7, None)))
    empty = ROLE + delta("a") + delta("") + delta("b") + delta("") + STOP + usage(4) + DONE
    yield with_body("empty deltas", empty, Expected("ok", "rtetefu", "ab", "stop", (5, None, 4, None)))
    yield with_body("nothing but empty deltas", delta("") * 3 + STOP + DONE, Expected("ok", "eeef", finish="stop"))
    yield with_body("role alone", delta(role="assistant") + delta("a") + DONE, Expected("ok", "rt", "a"))
    yield with_body("role with text", delta("a", role="assistant") + DONE, PLAIN)
    yield with_body("role in every chunk", ROLE + delta("a", role="assistant") * 2 + DONE, Expected("ok", "rtt", "aa"))
    yield with_body(
        "content null",
        chunk([{"delta": {"content": None, "role": "assistant"}}]) + delta("a") + DONE,
        Expected("ok", "rt", "a"),
    )
    yield with_body("text and finish in one", delta("a", finish="length") + DONE, Expected("ok", "t", "a", "length"))
    yield with_body("finish reason empty", delta("a", finish="") + DONE, PLAIN)
    every = counted("", 0, role="assistant") + counted("a", 1) + counted("bc", 3) + counted(None, 3, "stop") + DONE
    yield with_body(
        "usage in every chunk", every, Expected("ok", "rttu", "abc", "stop", (5, None, 3, None), (0, 1, 2, 0))
    )
    null = b"".join(chunk([{"index": 0, "delta": {"content": c}}], usage=None) for c in "ab") + usage(2) + DONE
    yield with_body("usage null until the last", null, Expected("ok", "ttu", "ab", None, GOOD_USAGE, (1, 1, None)))
    back = counted("a", 5) + counted("b", 2) + STOP + DONE
    yield with_body("usage that shrinks", back, Expected("ok", "ttf", "ab", "stop", GOOD_USAGE, (5, None, None)))
    wrong = chunk([], usage={"prompt_tokens": -1, "completion_tokens": "7", "total_tokens": 1e9})
    yield with_body("usage of the wrong types", delta("a") + STOP + wrong + DONE, Expected("ok", "tfc", "a", "stop"))
    huge = chunk([], usage={"prompt_tokens": 2**31, "completion_tokens": 2**70})
    yield with_body("usage past 32 bits", delta("a") + STOP + huge + DONE, Expected("ok", "tfc", "a", "stop"))
    first = usage(1) + delta("a") + DONE
    yield with_body("usage first", first, Expected("ok", "ut", "a", None, (5, None, 1, None), (None, 1)))
    ids = chunk([{"index": 0, "delta": {"content": "abc"}, "token_ids": [7, 8, 9]}])
    yield with_body("token ids", ids + STOP + DONE, Expected("ok", "tf", "abc", "stop", None, (3, None)))
    yield with_body("NUL in text, escaped", delta("a\0b") + DONE, Expected("ok", "t", "a\0b"))
    yield with_body("NUL in text, bare", raw_delta("a~b").replace(b"~", b"\0") + DONE, Expected("ok", "t", "a\0b"))
    yield with_body("not UTF-8", raw_delta("a~b").replace(b"~", b"\xff") + DONE, Expected("ok", "t", "a\ufffdb"))
    cut = raw_delta("a€b").replace("€".encode(), "€".encode()[:2])
    yield with_body("half a character", cut + DONE, Expected("ok", "t", "a\ufffdb"))
    lone = sse('{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}')
    yield with_body("half a surrogate pair", lone + DONE, Expected("ok", "t", "a\ufffd"))
    pair = sse('{"choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00"}}]}')
    yield with_body("a surrogate pair", pair + DONE, Expected("ok", "t", "😀"))
    control = "".join(chr(c) for c in range(1, 32)) + "\x7f\x85\u2028\u2029\ufeff\ufffe"
    yield with_body("control characters", delta(control) + DONE, Expected("ok", "t", control))
    yield with_body("300 kB in one delta", delta("x" * 300_000) + DONE, Expected("ok", "t", "x" * 300_000))
    yield with_body("2,000 deltas", delta("y") * 2000 + DONE, Expected("ok", "t" * 2000, "y" * 2000))


def _choices() -> Iterator[Case]:
    yield with_body("choices empty", chunk([]) + delta("a") + DONE, Expected("ok", "ct", "a"))
    two = [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}]
    yield with_body("two choices in one event", chunk(two) + DONE, Expected("ok", "t", "AB", "stop"))
    apart = [chunk([{"index": i, "delta": {"content": c}}]) for i, c in ((0, "a"), (1, "A"), (0, "b"))]
    ends = [chunk([{"index": i, "delta": {}, "finish_reason": r}]) for i, r in ((1, "length"), (0, "stop"))]
    yield with_body("two choices in turns", b"".join(apart + ends) + DONE, Expected("ok", "tttff", "aAb", "stop"))
    for key in REASONING_KEYS:
        value: Any = "hm"
        if key == "reasoning_details":
            value = [{"type": "reasoning.text", "text": "hm"}]
        elif key == "thinking_blocks":
            value = [{"type": "thinking", "thinking": "hm"}]
        data = ROLE + delta(**{key: value}) + delta(**{key: value}) + delta("a") + STOP + usage(3) + DONE
        expected = Expected("ok", "rRRtfu", "hmhma", "stop", (5, None, 3, None), (None, 1, 1, 1, None, None))
        yield with_body(f"reasoning as {key}", data, expected)
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    data = chunk([{"delta": {"content": parts}}]) + chunk([{"delta": {"content": [{"type": "text", "text": "a"}]}}])
    yield with_body("content as parts", data + DONE, Expected("ok", "Rt", "hma"))
    calls = [
        {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ]
    data = ROLE + b"".join(delta(tool_calls=[call]) for call in calls) + delta(finish="tool_calls") + DONE
    yield with_body("tool calls", data, Expected("ok", "rTTTf", 'f{"a":1}', "tool_calls"))
    both = delta(tool_calls=[calls[0], {"index": 1, "function": {"name": "g", "arguments": "{}"}}])
    yield with_body("two tool calls at once", both + DONE, Expected("ok", "T", "fg{}"))
    old = delta(function_call={"name": "f"}) + delta(function_call={"arguments": "{}"}) + DONE
    yield with_body("function_call", old, Expected("ok", "TT", "f{}"))
    text = [sse({"choices": [{"index": 0, "text": c, "finish_reason": f}]}) for c, f in (("a", None), ("b", "length"))]
    yield with_body("completions", b"".join(text) + DONE, Expected("ok", "tt", "ab", "length"), "openai_completions")
    bad = chunk([{"index": 0, "delta": "hi"}])
    yield with_body("delta is text", delta("a") + bad + DONE, Expected("stream_error", "tx", "a", raw=b'"delta": "hi"'))
    yield with_body("a choice is a number", chunk([7]) + DONE, Expected("stream_error", "x", raw=b"[7]"))
    yield with_body("choices is an object", chunk({"0": {}}) + DONE, Expected("stream_error", "x", raw=b'{"0"'))


def _shapes() -> Iterator[Case]:
    pings = b": ping\n\n" + ROLE + b":\n\n" + delta("a") + b": a\n: b\n" + delta("b") + STOP + usage(2) + b":\n" + DONE
    yield with_body(
        "comments as pings",
        pings,
        Expected("ok", "crctcctfuc", "ab", "stop", GOOD_USAGE, tuple(1 if k == "t" else None for k in "crctcctfuc")),
    )
    spaced = GOOD.replace(b"data: ", b"data:")
    yield with_body("no space after the colon", spaced, OK)
    fields = b"id: 1\nretry: 9\nevent: message\nfoo\nfoo: bar\n" + delta("a") + b"data\n\n" + DONE
    yield with_body("other fields", fields, Expected("ok", "tc", "a"))
    split = b'data: {"choices":\ndata: [{"delta":\ndata:{"content":"a"}}]}\n\n' + DONE
    yield with_body("data on several lines", split, PLAIN)
    yield with_body("blank lines", b"\n\n\n" + lines(delta("a") + b"\n\n" + DONE, b"\r\n"), PLAIN)
    yield with_body("event without data", b"event: x\n\n" + delta("a") + DONE, PLAIN)
    yield with_body("BOM", b"\xef\xbb\xbf" + GOOD, OK)
    yield with_body("two BOMs", b"\xef\xbb\xbf" * 2 + delta("z") + delta("a") + DONE, PLAIN)
    yield with_body("BOM further on", delta("a") + b"\xef\xbb\xbf" + delta("z") + DONE, PLAIN)
    yield with_body("NUL in a field name", b"da\0ta: x\n\n" + delta("a") + DONE, PLAIN)
    yield with_body(
        "a comment of 500 kB", b":" + b"x" * 500_000 + b"\n\n" + delta("a") + DONE, Expected("ok", "ct", "a")
    )
    yield with_body("a field of 500 kB", b"x" * 500_000 + b"\n\n" + delta("a") + DONE, PLAIN)
    yield with_body("end mark with spaces", delta("a") + b"data:   [DONE]  \n\n", PLAIN)
    yield with_body("end mark as JSON", delta("a") + b'data: "[DONE]"\n\n', PLAIN)
    yield with_body("end mark twice", GOOD + DONE, OK)
    late = delta("a") + STOP + DONE + delta("z") + DONE
    yield with_body("output after the end mark", late, Expected("ok", "tft", "az", "stop"))
    yield with_body(
        "usage after the end mark",
        delta("a") + STOP + DONE + usage(1),
        Expected("ok", "tfu", "a", "stop", (5, None, 1, None), (1, None, None)),
    )
    yield with_body("type in capitals", GOOD, OK, content_type=b"Text/Event-Stream; Charset=UTF-8")
    yield with_body("identity encoding", GOOD, OK, content_encoding=b"identity")
    for kind in (b"text/plain", b"application/octet-stream", b"application/json"):
        yield with_body(f"a stream called {kind.decode()}", GOOD, OK, content_type=kind)


def _errors() -> Iterator[Case]:
    error = {"error": {"message": "out of memory", "type": "server_error", "code": 500}}
    kept = b"out of memory"
    oom = Expected("stream_error", "x", raw=kept, says="out of memory")
    yield with_body("error first", sse(error) + DONE, oom)
    yield with_body("error first, nothing after", sse(error), oom)
    after = Expected("stream_error", "tx", "a", raw=kept, says="out of memory")
    yield with_body("error later", delta("a") + sse(error) + DONE, after)
    yield with_body(
        "output after an error",
        delta("a") + sse(error) + delta("b") + DONE,
        Expected("stream_error", "txt", "ab", raw=kept, says="out of memory"),
    )
    yield with_body("error as text", sse({"error": "out of memory"}), oom)
    yield with_body("error object of vLLM", sse({"object": "error", "message": "out of memory"}), oom)
    yield with_body("detail", sse({"detail": "out of memory"}), oom)
    named = b"event: error\ndata: out of memory\n\n"
    yield with_body("event called error", delta("a") + named, after)
    yield with_body(
        "finish reason error",
        delta("a") + delta(finish="error") + DONE,
        Expected("stream_error", "tx", "a", "error", raw=b'"error"'),
    )
    yield with_body(
        "not JSON",
        delta("a") + sse("{broken") + delta("b") + DONE,
        Expected("stream_error", "txt", "ab", raw=b"{broken", says="isn't JSON"),
    )
    yield with_body("JSON, but a list", sse("[1]") + DONE, Expected("stream_error", "x", raw=b"[1]"))
    deep = "[" * 100_000
    yield with_body("JSON nested 100,000 deep", sse(deep), Expected("stream_error", "x", raw=b"[[[["))
    json_type = {"content_type": b"application/json"}
    whole = Expected("stream_error", raw=kept, says="out of memory")
    yield with_body("200 with a JSON error", json.dumps(error).encode(), whole, **json_type)
    yield with_body(
        "200 with a JSON error called a stream", json.dumps(error).encode(), Expected("stream_error", raw=kept)
    )
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
    yield with_body(
        "200 with a whole answer",
        json.dumps(answer).encode(),
        Expected("ok", "t", "hi", "stop", (None, None, 3, None)),
        **json_type,
    )
    page = b"<html><title>busy</title>data: x</html>"
    yield with_body("200 with HTML", page, Expected("stream_error", raw=page), content_type=b"text/html")
    yield with_body("200 with HTML called a stream", page, Expected("stream_error", raw=page))
    yield with_body("binary", bytes(range(256)) * 4, Expected("stream_error", raw=bytes(range(14, 256))))
    for status, outcome in ((400, "http_error"), (429, "rejected"), (503, "rejected"), (500, "http_error")):
        yield with_body(
            f"a stream with status {status}", sse(error), Expected(outcome, says="out of memory"), status=status
        )
    for name, data in (("gzip", gzip.compress(GOOD, mtime=0)), ("deflate", zlib.compress(GOOD)), ("br", GOOD)):
        expected = Expected("stream_error", raw=data, says=name)
        yield with_body(f"{name} although refused", data, expected, content_encoding=name.encode())
    zipped = gzip.compress(GOOD, mtime=0)
    yield with_body("gzip that doesn't say so", zipped, Expected("stream_error", raw=zipped[:8]))


def _ends() -> Iterator[Case]:
    yield with_body("no end mark but a finish", delta("a") + STOP, Expected("ok", "tf", "a", "stop"))
    yield with_body("no end at all", delta("a"), Expected("stream_error", "t", "a", says=NO_END))
    yield with_body("no blank line after the end mark", GOOD[:-1], OK)
    yield with_body("no line end after the end mark", GOOD[:-2], OK)
    yield with_body("no line end after the finish", delta("a") + STOP[:-2], Expected("ok", "tf", "a", "stop"))
    yield with_body(
        "cut inside an event", delta("a") + delta("b")[:40], Expected("stream_error", "tx", "a", raw=b'{"id": "c"')
    )
    cut = Expected("stream_error", "t", "a", raw=b"dat", says=NO_END)
    yield with_body("cut inside a field name", delta("a") + b"dat", cut)
    yield with_body("usage and nothing else", usage(2), Expected("stream_error", "u", usage=GOOD_USAGE, says=NO_END))
    yield with_body("pings and nothing else", b": ping\n\n" * 3, Expected("stream_error", "ccc", says=NO_END))
    yield with_body("nothing", b"", Expected("stream_error", says="empty"))
    yield with_body("white space", b" \n \r\n", Expected("stream_error"))
    yield with_body("end mark alone", DONE, Expected("stream_error", says="no choices"))
