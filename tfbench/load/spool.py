"""A worker's append-only file of facts; what was written survives the worker.

Records are length-prefixed marshal tuples: the project's own, read back by the same Python that
wrote them, moments later. The first item names the record: "job" (dialect, whether texts are kept),
"sent", "reads" (of several calls, as they came), "raw" (all reads of its call come before it), "planned" (the tick of
a retry), "anchor" or "summary". What a response means is decoded from here, after the load: the worker only writes
down bytes and times.
"""

import marshal
import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfbench.core.errors import StorageError
from tfbench.load.call import Read
from tfbench.load.stamps import NO_STAMP

_LENGTH = struct.Struct("<I")
_FLUSH_BYTES = 1 << 16
_MARSHAL_VERSION = 2
"""Later ones look every object up among those written before, which takes longer than writing it again."""


class SentRecord(NamedTuple):
    """Written when a request's first byte went to the kernel; `CLOCK_MONOTONIC` ns."""

    attempt: int
    task: int
    tries: int
    request_id: str
    phase: str
    user: int
    class_name: str | None
    tenant: str | None
    lora: str | None
    scheduled_ns: int
    dispatched_ns: int
    slot_ns: int
    connected_ns: int
    sent_ns: int
    connection_id: int
    new_connection: bool
    prompt_sha256: str


PackedReads = tuple[bytes, bytes, bytes, bytes, tuple[bytes, ...], bytes]


def pack_reads(reads: Iterable[Read]) -> PackedReads:
    """Reads as columns: marshal takes machine integers ten times slower one by one."""
    user, stamps, lower, forms, data, attempts = zip(*reads, strict=True) if reads else ((),) * 6
    return (
        array("q", user).tobytes(),
        b"".join(stamps),
        array("q", lower).tobytes(),
        bytes(forms),
        data,
        array("q", attempts).tobytes(),
    )


def unpack_reads(packed: PackedReads) -> Iterator[Read]:
    """What `pack_reads` was given."""
    user, stamps, lower, forms, data, attempts = packed
    each = struct.unpack(f"{len(NO_STAMP)}s" * len(data), stamps)
    return zip(_int64s(user), each, _int64s(lower), forms, data, _int64s(attempts), strict=True)


def _int64s(data: bytes) -> "array[int]":
    values = array("q")
    values.frombytes(data)
    return values


class RawRecord(NamedTuple):
    """Written when the wire let go of a call.

    The attempt's `SentRecord` was written before, with a `sent_ns` of 0 where nothing was sent.
    """

    attempt: int
    first_ns: int
    first_kernel_ns: int
    last_ns: int
    end_ns: int
    end_kernel_ns: int
    ending: str
    status: int
    error: str
    content_type: bytes
    content_encoding: bytes
    garbage: bytes
    prompt: str | None


class SpoolWriter:
    """Appends records; `flush` hands them to the kernel, so that even SIGKILL can't take them back.

    `reads` gathers those of all calls until `write_reads`: written down soon, and together, they are still in the
    cache, and their memory serves for the next ones.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise StorageError(f"{path}: can't write the run's facts ({error.strerror})") from error
        self._pending: list[bytes] = []
        self._size = 0
        self.reads: list[Read] = []

    def write_reads(self) -> None:
        """Queue the reads that have gathered, one record of them all."""
        if self.reads:
            self.append("reads", pack_reads(self.reads))
            self.reads.clear()

    def append(self, kind: str, record: tuple[Any, ...]) -> None:
        """Queue one record."""
        data = marshal.dumps((kind, *record), _MARSHAL_VERSION)
        self._pending.append(_LENGTH.pack(len(data)))
        self._pending.append(data)
        self._size += len(data)
        if self._size >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is queued; StorageError when the disk is full."""
        if not self._pending:
            return
        left = memoryview(b"".join(self._pending))
        self._pending = []
        self._size = 0
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            raise StorageError(
                f"{self._path}: can't write the run's facts ({error.strerror}); free some space and run again"
            ) from error

    def close(self) -> None:
        """Write what has gathered, and close."""
        self.write_reads()
        self.flush()
        os.close(self._fd)


def read_spool(path: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(kind, record) in writing order; a record cut short by a dying worker ends the file."""
    with path.open("rb") as file:
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            (size,) = _LENGTH.unpack(head)
            data = file.read(size)
            if len(data) < size:
                return
            kind, *record = marshal.loads(data)
            yield kind, tuple(record)
