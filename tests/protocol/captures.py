"""The recorded responses in tests/data/sse, and a stream read from one end to the other."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tfbench.core.kinds import ChunkKind
from tfbench.protocol import DIALECTS, Chunk, Decoder, SseEvent, SseParser

DATA = Path(__file__).parent.parent / "data" / "sse"
_TIMED_LINE = re.compile(r" *([\d.]+) ms +(\d+) B  (b'.*')")


@cache
def captured(name: str) -> tuple[int, bytes]:
    """Status and body of a capture."""
    header, body = (DATA / "captured" / f"{name}.txt").read_bytes().split(b"\r\n\r\n", 1)
    return int(header.split()[1]), body


@cache
def cassette(name: str) -> bytes:
    """The response body of a VCR cassette with one interaction."""
    document = yaml.safe_load((DATA / "openllmetry" / f"{name}.yaml").read_text())
    (interaction,) = document["interactions"]
    text: str = interaction["response"]["body"]["string"]
    return text.encode()


@cache
def timed_reads(name: str) -> tuple[bytes, ...]:
    """The body bytes of each read of a timed capture: header dropped, HTTP chunking removed."""
    reads = []
    for line in (DATA / "captured" / f"{name}.txt").read_text().splitlines():
        match = _TIMED_LINE.fullmatch(line)
        if match:
            data = ast.literal_eval(match[3])
            assert len(data) == int(match[2])
            reads.append(data)
    bodies = []
    for read in reads[1:]:
        body = b""
        while read:  # in these captures every HTTP chunk lies within one read
            size, read = read.split(b"\r\n", 1)
            body += read[: int(size, 16)]
            read = read[int(size, 16) + 2 :]
        bodies.append(body)
    return tuple(bodies)


@dataclass(frozen=True)
class Read:
    """A stream read to its end."""

    events: list[SseEvent]
    chunks: list[Chunk]
    decoder: Decoder
    tail: bytes

    @property
    def kinds(self) -> list[ChunkKind]:
        return [chunk.kind for chunk in self.chunks]

    @property
    def tokens(self) -> list[int | None]:
        return [chunk.tokens for chunk in self.chunks]

    def text(self, kind: ChunkKind = ChunkKind.TEXT) -> str:
        return "".join(chunk.text for chunk in self.chunks if chunk.kind is kind)


def read_stream(feeds: Iterable[bytes], dialect: str = "openai_chat") -> Read:
    """Feeds a parser and a decoder with a stream cut in pieces."""
    parser, decoder = SseParser(), DIALECTS[dialect].stream_decoder()
    events: list[SseEvent] = []
    chunks = []
    for feed in feeds:
        events += (new := parser.feed(feed))
        chunks += [chunk for chunk in map(decoder.feed, new) if chunk is not None]
    return Read(events, chunks, decoder, parser.tail)


def sse(*objects: str) -> bytes:
    """A stream of these data lines."""
    return "".join(f"data: {text}\n\n" for text in objects).encode()
