"""What is counted while a load's facts go by: the inputs of signals, windows and outcome counts."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.kinds import Outcome, Phase
from tfbench.ledger.output import output_mask

I64 = NDArray[np.int64]
BLUR_NS = 1_000_000
"""A chunk whose blur is over this counts as blurred."""
_LAG_STEPS = 100
"""Steps a factor of e in the histogram of reading lags: its quantiles are good to 1 %."""


@dataclass
class Tally:
    """Counts over batches of `attempts` and `streams`; only client lags are kept one by one (8 bytes an attempt)."""

    measured: int = 0
    tried_measured: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    first_scheduled_ns: int | None = None
    last_end_ns: int | None = None
    output_chunks: int = 0
    blurred_chunks: int = 0
    clock_steps: int = 0
    _client_lags: list[I64] = field(default_factory=list)
    _read_lags: Counter[int] = field(default_factory=Counter)

    def add(self, attempts: Any, streams: Any, read_lag_ns: I64) -> None:
        """Take in a batch: two tables of the ledger, and user − kernel time of reads that end with their chunk."""
        import pyarrow.compute as pc

        measured = attempts.filter(pc.equal(attempts["phase"], Phase.MEASURE.value))
        outcomes = measured["outcome"].to_pylist()
        self.measured += len(outcomes)
        self.outcomes.update(outcomes)
        self.tried_measured += sum(outcome != Outcome.UNSENT for outcome in outcomes)
        by_itself = (o for o in attempts["outcome"].to_pylist() if o not in (Outcome.UNSENT, Outcome.UNFINISHED))
        self.tried.update(by_itself)
        if not self.first_error:
            self.first_error = next((text for text in attempts["error"].to_pylist() if text), "")
        self._client_lags.append(client_lag_ns(measured.filter(pc.is_valid(measured["sent_ns"]))))
        self._note_window(pc.min(measured["scheduled_ns"]).as_py(), pc.max(measured["end_ns"]).as_py())
        self._count_blur(streams, measured)
        lags, counts = np.unique(_steps(read_lag_ns), return_counts=True)
        self._read_lags.update(dict(zip(lags.tolist(), counts.tolist(), strict=True)))

    def client_lag_ns(self, p: float) -> float | None:
        """A quantile of client lag over the measured attempts that were sent; None without any."""
        lags = np.concatenate(self._client_lags) if self._client_lags else np.zeros(0, dtype=np.int64)
        if not len(lags):
            return None
        rank = max(int(np.ceil(p * len(lags))), 1) - 1
        return float(np.partition(lags, rank)[rank])

    def read_lag_ns(self, p: float) -> float | None:
        """A quantile, good to 1 %, of how much later than the kernel reads saw their chunk; None without stamps."""
        total = sum(self._read_lags.values())
        rank = max(int(np.ceil(p * total)), 1)
        for step in sorted(self._read_lags):
            rank -= self._read_lags[step]
            if rank <= 0:
                return float(np.exp(step / _LAG_STEPS))
        return None

    def _note_window(self, first_ns: int | None, last_ns: int | None) -> None:
        if first_ns is not None:
            self.first_scheduled_ns = min(first_ns, self.first_scheduled_ns or first_ns)
        if last_ns is not None:
            self.last_end_ns = max(last_ns, self.last_end_ns or last_ns)

    def _count_blur(self, streams: Any, measured: Any) -> None:
        import pyarrow.compute as pc

        kept = streams.filter(pc.is_in(streams["attempt_id"], value_set=measured["attempt_id"].combine_chunks()))
        blur = pc.list_flatten(kept["blur_ns"]).to_numpy()[output_mask(kept)]
        self.output_chunks += len(blur)
        self.blurred_chunks += int((blur > BLUR_NS).sum())


def _steps(lag_ns: I64) -> I64:
    steps: I64 = np.ceil(np.log(np.maximum(lag_ns, 1)) * _LAG_STEPS).astype(np.int64)
    return steps


def client_lag_ns(attempts: Any) -> I64:
    """(dispatched − due) + (sent − ready) of attempts that were sent, int64 ns; see docs/measurement.md."""

    def column(name: str) -> I64:
        values: I64 = attempts[name].fill_null(0).to_numpy(zero_copy_only=False)
        return values

    slot, connected = column("slot_ns"), column("connected_ns")
    fresh = attempts["new_connection"].fill_null(False).to_numpy(zero_copy_only=False)
    due = np.where(slot > 0, slot, column("scheduled_ns"))
    ready = np.where(fresh & (connected > 0), connected, column("dispatched_ns"))
    lag: I64 = (column("dispatched_ns") - due) + (column("sent_ns") - ready)
    return lag
