"""How long one step of the engine takes: a stated model, so that every served latency can be worked out."""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Work:
    """What one step has to do; `context_tokens` sums prompt and output so far over the decoding sequences."""

    prefill_tokens: int
    decode_seqs: int
    context_tokens: int


def duration_ns(model: StepTime, work: Work) -> int:
    """Nanoseconds that a step with `work` takes under `model`."""
    ms = (
        model.base_ms
        + work.prefill_tokens * model.prefill_token_ms
        + work.decode_seqs * model.decode_seq_ms
        + work.context_tokens * model.context_token_ms
    )
    return round(ms * 1e6)
