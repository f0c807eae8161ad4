"""What the load side measured of itself: the inputs of validity, without any judgement."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfbench.core.kinds import OUTPUT_KINDS, Mode, Outcome, Phase
from tfbench.load.assemble import Assembled
from tfbench.load.readback import WorkerFacts
from tfbench.load.supervise import LoadEnd

BLUR_NS = 1_000_000
"""A chunk whose blur is over this counts as blurred."""


def _quantile(values: Any, p: float) -> float | None:
    if not len(values):
        return None
    rank = max(int(np.ceil(p * len(values))), 1) - 1
    return float(np.partition(values, rank)[rank])


def _client_lag_ns(attempts: Any) -> Any:
    """(dispatched − due) + (sent − ready) of the measured attempts that were sent, int64 ns."""
    scheduled = attempts["scheduled_ns"].to_numpy(zero_copy_only=False)
    slot = attempts["slot_ns"].fill_null(0).to_numpy(zero_copy_only=False)
    dispatched = attempts["dispatched_ns"].to_numpy(zero_copy_only=False)
    connected = attempts["connected_ns"].fill_null(0).to_numpy(zero_copy_only=False)
    fresh = attempts["new_connection"].fill_null(False).to_numpy(zero_copy_only=False)
    sent = attempts["sent_ns"].to_numpy(zero_copy_only=False)
    due = np.where(slot > 0, slot, scheduled)
    ready = np.where(fresh & (connected > 0), connected, dispatched)
    return (dispatched - due) + (sent - ready)


def measure_signals(
    mode: str, assembled: Assembled, facts: Sequence[WorkerFacts], end: LoadEnd
) -> dict[str, float | None]:
    """Signal name → value (None = nothing to measure it on)."""
    import pyarrow.compute as pc

    attempts = assembled.tables["attempts"]
    measured = attempts.filter(pc.equal(attempts["phase"], Phase.MEASURE.value))
    sent = measured.filter(pc.is_valid(measured["sent_ns"]))
    tried = pc.sum(pc.not_equal(measured["outcome"], Outcome.UNSENT.value)).as_py() or 0
    lag_ns = _quantile(_client_lag_ns(sent), 0.99)
    lag = _quantile(assembled.user_lag_ns, 0.99)
    cpu = [share for one in facts for share in (one.summary or {}).get("cpu_windows", ())]
    return {
        "client_lag_p99_ms": None if lag_ns is None else lag_ns / 1e6,
        "sent_share": tried / len(measured) if len(measured) and mode != Mode.CLOSED else None,
        "blurred_chunk_share": _blurred_share(assembled.tables["streams"], measured),
        "kernel_to_user_lag_p99_ms": None if lag is None else lag / 1e6,
        "worker_cpu_max_share": max(cpu) if cpu else None,
        "clock_steps": float(assembled.clock_steps),
        "exhausted_connections": float(sum((one.summary or {}).get("exhausted", 0) for one in facts)),
        "dead_workers": float(sum(bool(worker.dead) for worker in end.workers)),
        "scheduled_requests": float(len(measured)),
    }


def _blurred_share(streams: Any, measured: Any) -> float | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = streams.filter(pc.is_in(streams["attempt_id"], value_set=measured["attempt_id"].combine_chunks()))
    kinds = pc.list_flatten(kept["kind"])
    if not len(kinds):
        return None
    output = pc.is_in(kinds, value_set=pa.array(sorted(kind.value for kind in OUTPUT_KINDS)))
    blur = pc.list_flatten(kept["blur_ns"]).filter(output)
    if not len(blur):
        return None
    return float(pc.mean(pc.greater(blur, BLUR_NS)).as_py())
