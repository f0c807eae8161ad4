"""How endpoints speak: bytes in, facts out. Pure, no I/O; nothing a server sends makes it raise."""

from tfbench.protocol.facts import BodyResult, Chunk, Usage, resolve_tokens
from tfbench.protocol.faults import error_message, one_line
from tfbench.protocol.registry import DIALECTS, Decoder, Dialect
from tfbench.protocol.sse import SseEvent, SseParser

__all__ = [
    "DIALECTS",
    "BodyResult",
    "Chunk",
    "Decoder",
    "Dialect",
    "SseEvent",
    "SseParser",
    "Usage",
    "error_message",
    "one_line",
    "resolve_tokens",
]
