"""What the load side measured of itself: the inputs of validity, without any judgement."""

from collections.abc import Sequence
from typing import Any

from tfbench.core.kinds import Mode
from tfbench.load.supervise import LoadEnd
from tfbench.load.tally import Tally


def measure_signals(
    mode: str, tally: Tally, summaries: Sequence[dict[str, Any]], end: LoadEnd
) -> dict[str, float | None]:
    """Signal name → value (None = nothing to measure it on)."""
    cpu = [share for one in summaries for share in one["cpu_windows"]]
    return tally_signals(mode, tally) | {
        "worker_cpu_max_share": max(cpu) if cpu else None,
        "clock_steps": float(tally.clock_steps),
        "exhausted_connections": float(sum(one["exhausted"] for one in summaries)),
        "dead_workers": float(sum(bool(worker.dead) for worker in end.workers)),
    }


def tally_signals(mode: str, tally: Tally) -> dict[str, float | None]:
    """The signals that a run's attempts and streams tell, without what their workers went through."""
    client_lag, read_lag = tally.client_lag_ns(0.99), tally.read_lag_ns(0.99)
    return {
        "client_lag_p99_ms": None if client_lag is None else client_lag / 1e6,
        "sent_share": tally.tried_measured / tally.measured if tally.measured and mode != Mode.CLOSED else None,
        "blurred_chunk_share": tally.blurred_chunks / tally.output_chunks if tally.output_chunks else None,
        "kernel_to_user_lag_p99_ms": None if read_lag is None else read_lag / 1e6,
        "scheduled_requests": float(tally.measured),
    }
