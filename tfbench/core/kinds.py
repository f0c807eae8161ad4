"""Enums of the ledger: outcomes, chunk kinds, phases, roles, modes, statuses."""

from enum import StrEnum


class Outcome(StrEnum):
    """How one attempt ended; every attempt has exactly one."""

    OK = "ok"
    REJECTED = "rejected"
    HTTP_ERROR = "http_error"
    CONNECT_ERROR = "connect_error"
    DISCONNECTED = "disconnected"
    STREAM_ERROR = "stream_error"
    TIMEOUT = "timeout"
    UNFINISHED = "unfinished"
    UNSENT = "unsent"
    CANCELLED = "cancelled"


class ChunkKind(StrEnum):
    """What one event of a streamed response carries."""

    ROLE = "role"
    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"
    EMPTY = "empty"
    USAGE = "usage"
    FINISH = "finish"
    ERROR = "error"
    COMMENT = "comment"


VISIBLE_KINDS = frozenset({ChunkKind.TEXT, ChunkKind.REASONING, ChunkKind.TOOL})
OUTPUT_KINDS = VISIBLE_KINDS | {ChunkKind.EMPTY}
"""Kinds that can be output. An empty chunk is where it is known to have carried a token (its `tokens` say so), or where
the whole stream shows nothing."""


class Phase(StrEnum):
    """The part of a run an attempt belongs to, by its scheduled time."""

    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"


class Role(StrEnum):
    """Why an attempt was made."""

    LOAD = "load"
    PROBE = "probe"
    PRIME = "prime"


class Mode(StrEnum):
    """How load is offered."""

    OPEN = "open"
    CLOSED = "closed"
    OPEN_CAPPED = "open_capped"


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
