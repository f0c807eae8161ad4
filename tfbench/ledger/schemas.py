"""Arrow schemas of a run bundle's tables. Names and types are the contract of the ledger.

Times are int64 nanoseconds of client time; unknown is null, never 0. JSON columns hold JSON text.
"""

import pyarrow as pa

_I64 = pa.int64()
_I32 = pa.int32()
_STR = pa.string()

ATTEMPTS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("attempt_id", _I64, nullable=False),
        pa.field("request_id", _STR),
        pa.field("task_id", _STR, nullable=False),
        pa.field("try", _I32),
        pa.field("role", _STR, nullable=False),
        pa.field("session_id", _STR),
        pa.field("turn", _I32),
        pa.field("tenant", _STR),
        pa.field("lora", _STR),
        pa.field("class", _STR),
        pa.field("phase", _STR, nullable=False),
        pa.field("host", _STR),
        pa.field("worker", _I32),
        pa.field("connection_id", _I64),
        pa.field("new_connection", pa.bool_()),
        pa.field("stamp_source", _STR),
        pa.field("scheduled_ns", _I64, nullable=False),
        pa.field("dispatched_ns", _I64),
        pa.field("slot_ns", _I64),
        pa.field("connected_ns", _I64),
        pa.field("sent_ns", _I64),
        pa.field("first_byte_ns", _I64),
        pa.field("end_ns", _I64),
        pa.field("outcome", _STR, nullable=False),
        pa.field("http_status", _I32),
        pa.field("error", _STR),
        pa.field("finish_reason", _STR),
        pa.field("prompt_tokens", _I32),
        pa.field("cached_tokens", _I32),
        pa.field("output_tokens", _I32),
        pa.field("reasoning_tokens", _I32),
        pa.field("token_source", _STR),
        pa.field("quality", _STR),
        pa.field("prompt_sha256", _STR),
        pa.field("output_sha256", _STR),
    ]
)

STREAMS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("attempt_id", _I64, nullable=False),
        pa.field("t_ns", pa.list_(_I64)),
        pa.field("user_ns", pa.list_(_I64)),
        pa.field("kind", pa.list_(_STR)),
        pa.field("tokens", pa.list_(_I32)),
        pa.field("blur_ns", pa.list_(_I64)),
    ]
)

TEXTS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("attempt_id", _I64, nullable=False),
        pa.field("prompt", _STR),
        pa.field("output", _STR),
    ]
)

RAW = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("attempt_id", _I64, nullable=False),
        pa.field("bytes", pa.binary()),
    ]
)

SERVER_EVENTS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("request_id", _STR),
        pa.field("stage", _STR, nullable=False),
        pa.field("start_ns", _I64, nullable=False),
        pa.field("end_ns", _I64),
        pa.field("clock", _STR, nullable=False),
        pa.field("source", _STR, nullable=False),
        pa.field("attrs", _STR),
    ]
)

SAMPLES = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("source", _STR, nullable=False),
        pa.field("series", _STR, nullable=False),
        pa.field("labels", _STR),
        pa.field("t_ns", _I64, nullable=False),
        pa.field("clock", _STR, nullable=False),
        pa.field("value", pa.float64()),
    ]
)

CLOCK_ANCHORS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("host", _STR, nullable=False),
        pa.field("mono_ns", _I64, nullable=False),
        pa.field("real_ns", _I64, nullable=False),
        pa.field("width_ns", _I64, nullable=False),
    ]
)

CLOCK_LINKS = pa.schema(
    [
        pa.field("run_id", _STR, nullable=False),
        pa.field("clock_a", _STR, nullable=False),
        pa.field("clock_b", _STR, nullable=False),
        pa.field("t_ns", _I64, nullable=False),
        pa.field("offset_lo_ns", _I64, nullable=False),
        pa.field("offset_hi_ns", _I64, nullable=False),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "attempts": ATTEMPTS,
    "streams": STREAMS,
    "texts": TEXTS,
    "raw": RAW,
    "server_events": SERVER_EVENTS,
    "samples": SAMPLES,
    "clock_anchors": CLOCK_ANCHORS,
    "clock_links": CLOCK_LINKS,
}
"""Every per-run table a bundle may hold, by name; `attempts` and `streams` are always there."""
