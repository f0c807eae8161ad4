"""One request while it is on its way: what the polling path writes down and the decoder reads.

Times here are CLOCK_MONOTONIC ns (kernel stamps: CLOCK_REALTIME ns); they become client time when
the spool is read.
"""

from collections import deque
from enum import Enum

from tfbench.load.feeders import Tick

Read = tuple[int, int, int, bool, bytes]
"""Body bytes of one read: (user ns, kernel ns, lower ns, exact, data); kernel ns is 0 where there was no stamp.

The bytes arrived after `lower` and not after the stamp; `exact` says that the last of them is the
last byte the stamp speaks of. A plain tuple: one is made for every chunk.
"""


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


class Call:
    """The mutable record of one request in flight."""

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
        self.connection: object = None
        self.connection_id = -1
        self.new_connection = False
        self.ending: Ending | None = None
        self.error = ""
        self.garbage = b""
        self.reads: deque[Read] = deque()
