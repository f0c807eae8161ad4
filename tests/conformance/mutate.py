"""Accidents: a response cut, doubled, shuffled, spliced or scribbled on."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from tests.conformance.cases import CLOSE, OPEN, RESET

# fmt: off
TOKENS = (
    b'\r\n', b'\n', b'\r', b'\r\n\r\n', b'\n\n', b'\x00', b'\xff', b'\xef\xbb\xbf', b' ', b'\t', b':',
    b';', b',', b'"', b'data: ', b'data:', b'event: error\n', b'event: ', b'id: 1\n', b'retry: 1\n',
    b': ping\n\n', b'data: [DONE]\n\n', b'HTTP/1.1 200 OK\r\n', b'HTTP/1.1 100 Continue\r\n\r\n',
    b'HTTP/1.0 500 X\r\n\r\n', b'HTTP/1.1 101 X\r\n', b'0\r\n\r\n', b'Content-Length: 5\r\n',
    b'Content-Length: 99999999999999999999\r\n', b'Transfer-Encoding: chunked\r\n',
    b'Transfer-Encoding: gzip\r\n', b'Content-Encoding: gzip\r\n', b'Content-Encoding: \xff\xfe\r\n',
    b'Keep-Alive: timeout=nan\r\n', b'Keep-Alive: timeout=1e99\r\n', b'Connection: close\r\n',
    b'Connection: upgrade\r\n', b'Upgrade: h2c\r\n', b'Content-Type: \xe9\r\n', b'Retry-After: nan\r\n',
    b'Retry-After: 9999999999999999999999\r\n', b'{', b'}', b'[', b']', b'null', b'true', b'1e999',
    b'-1', b'18446744073709551616', b'NaN', b'"\\ud800"', b'\\u0000', b'"choices":[]',
    b'"usage":{"completion_tokens":-5}', b'"error":{"message":"x"}', b'"finish_reason":"error"',
    b'"delta":7', b'"index":-1', b'"content":[{"type":"thinking"}]', b'[' * 3000,
    b'ffffffffffffffff\r\n', b'-1\r\n',
)
"""What means something to HTTP, to event streams or to JSON."""
# fmt: on

ENDS = (OPEN, CLOSE, CLOSE, RESET)


def mutated(random: Random, data: bytes, others: Sequence[bytes], times: int) -> bytes:
    """`data` after that many accidents; splices take from `others`."""
    for _ in range(times):
        data = random.choice(_ACCIDENTS)(random, data, others)
    return data


def cuts(random: Random, data: bytes, most: int = 8) -> list[bytes]:
    """`data` in up to `most` + 1 pieces, cut anywhere."""
    if not data:
        return []
    edges = sorted(random.randrange(len(data) + 1) for _ in range(random.randint(0, most)))
    return [part for a, b in pairwise([0, *edges, len(data)]) if (part := data[a:b])]


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + 2 ** random.randint(0, 10))


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _set(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _cut(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _span(random, data)
    return data[:start] + data[stop:]


def _truncate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _insert(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(TOKENS) + data[at:]


def _insert_line(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A token at the start of some line: where headers, fields and chunk sizes are."""
    starts = [0, *(i + 1 for i, byte in enumerate(data[:20_000]) if byte == 10)]
    at = random.choice(starts)
    return data[:at] + random.choice(TOKENS) + data[at:]


def _double(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _span(random, data)
    return data[:stop] + data[start:stop] + data[stop:]


def _move(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _span(random, data)
    rest = data[:start] + data[stop:]
    at = random.randrange(len(rest) + 1)
    return rest[:at] + data[start:stop] + rest[at:]


def _shuffle_lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others) if others else b""
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _number(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    digits = [i for i, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if not digits:
        return data
    at = random.choice(digits)
    return data[:at] + random.choice((b"0", b"-1", b"9" * 25, b"1.5", b"")) + data[at + 1 :]


_ACCIDENTS = (
    _flip,
    _set,
    _cut,
    _truncate,
    _insert,
    _insert_line,
    _double,
    _move,
    _shuffle_lines,
    _splice,
    _number,
)
