"""One request while it is on its way: what the polling path writes down and the decoder reads.

Times here are CLOCK_MONOTONIC ns (kernel stamps: CLOCK_REALTIME ns); they become client time when
the spool is read.
"""

from enum import Enum
from typing import Protocol

from tfbench.load.feeders import Tick

Read = tuple[int, bytes, int, int, bytes, int]
"""Body bytes of one read: (user ns, kernel stamp, lower ns, form, data, attempt); the stamp as the kernel gave it, or
NO_STAMP.

The bytes arrived after `lower` and not after the stamp. `form`: INEXACT, EXACT where the last of them is the
last byte the stamp speaks of, FRAMED where moreover `data` is one HTTP chunk with its framing still on. A plain tuple:
one is made for every chunk.
"""
INEXACT, EXACT, FRAMED = range(3)


class Ending(Enum):
    """How the wire let go of a call."""

    COMPLETE = "complete"
    """The response was framed to its end (or closed, where the close is the end)."""
    LINGERED = "lingered"
    """The dialect's end mark came, but the server kept the response open."""
    CONNECT = "connect"
    """No connection; nothing was sent."""
    LOST = "lost"
    """The connection was lost before a status."""
    BROKEN = "broken"
    """Lost or garbled after a status, or bytes that aren't HTTP."""
    TIMEOUT = "timeout"
    """A limit of the manifest."""
    CANCELLED = "cancelled"
    """Cut by us as the manifest planned."""
    CUT = "cut"
    """Cut by us: end of drain, Ctrl-C."""


class Carrier(Protocol):
    """A connection, as far as the call on it knows it."""

    @property
    def quick_ns(self) -> int:
        """When the last read came that was given to the call's `reads` and told it no more; 0: there was none."""


class Call:
    """The mutable record of one request in flight.

    `reads` is a list of its own until somebody wants its reads gathered with those of others.
    """

    __slots__ = (
        "body_seen",
        "cancel",
        "class_name",
        "connected_ns",
        "connection",
        "connection_id",
        "content_encoding",
        "content_type",
        "dispatched_ns",
        "done_seen_ns",
        "end_kernel_ns",
        "end_ns",
        "ending",
        "error",
        "first_kernel_ns",
        "first_ns",
        "garbage",
        "last_ns",
        "lora",
        "new_connection",
        "noted",
        "prompt",
        "prompt_sha256",
        "reads",
        "request",
        "request_id",
        "retry_after",
        "sent_ns",
        "status",
        "tenant",
        "tick",
    )

    def __init__(self, tick: Tick, request_id: str, request: bytes, prompt_sha256: str, prompt: str | None) -> None:
        self.tick = tick
        self.request_id = request_id
        self.request = request
        self.prompt_sha256 = prompt_sha256
        self.prompt = prompt
        self.class_name: str | None = None
        self.tenant: str | None = None
        self.lora: str | None = None
        self.cancel = False
        self.retry_after = b""
        self.dispatched_ns = 0
        self.connected_ns = 0
        self.sent_ns = 0
        self.first_ns = 0
        self.first_kernel_ns = 0
        self.last_ns = 0
        self.end_ns = 0
        self.end_kernel_ns = 0
        self.done_seen_ns = 0
        self.body_seen = False
        self.status = 0
        self.content_type = b""
        self.content_encoding = b""
        self.connection: Carrier | None = None
        self.connection_id = -1
        self.new_connection = False
        self.noted = False
        """Its `sent` record is in the spool."""
        self.ending: Ending | None = None
        self.error = ""
        self.garbage = b""
        self.reads: list[Read] = []

    @property
    def last_read_ns(self) -> int:
        """User time of the latest bytes, the send's where none came."""
        carrier = self.connection
        return self.last_ns if carrier is None else max(self.last_ns, carrier.quick_ns)
