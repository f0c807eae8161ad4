"""How long one step of the engine takes: a stated model, so that every served latency can be worked out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfbench.bounds import Roofline, Work, steady_durations_ns, step_ns


@dataclass(frozen=True)
class StepTime:
    """A linear step-time model; all coefficients in milliseconds, none negative.

    step = base_ms + prefill_tokens·prefill_token_ms + decode_seqs·decode_seq_ms + context_tokens·context_token_ms.
    `base_ms` stands for the weights read once a step, `context_token_ms` for the KV read per token of context.
    """

    base_ms: float = 8.0
    prefill_token_ms: float = 0.02
    decode_seq_ms: float = 0.05
    context_token_ms: float = 0.0


StepModel = StepTime | Roofline
"""Either a stated line, or the bound of a model on a device."""


def duration_ns(model: StepModel, work: Work) -> int:
    """Nanoseconds that a step with `work` takes under `model`."""
    if not isinstance(model, StepTime):
        return step_ns(model, work)
    ms = (
        model.base_ms
        + work.prefill_tokens * model.prefill_token_ms
        + work.decode_seqs * model.decode_seq_ms
        + work.context_tokens * model.context_token_ms
    )
    return round(ms * 1e6)


def durations_ns(model: StepModel, work: Work, n: int) -> npt.NDArray[np.int64]:
    """Durations, int64 ns, of `n` successive decode-only steps from `work` on; context grows by a token a sequence.

    Element i equals `duration_ns` of the i-th step exactly: the same operations in the same order.
    """
    if not isinstance(model, StepTime):
        return steady_durations_ns(model, work, n)
    if model.context_token_ms == 0.0:
        return np.full(n, duration_ns(model, work))
    seqs = work.decode_seqs
    context = np.arange(work.context_tokens, work.context_tokens + n * seqs, seqs)
    ms = model.base_ms + seqs * model.decode_seq_ms + context * model.context_token_ms
    return np.asarray(np.rint(ms * 1e6), dtype=np.int64)
