"""What one step of an engine has to do: the counts from which its time, bytes and FLOPs follow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """One step's work, in tokens and sequences.

    prefill_tokens  prompt tokens computed in this step, over all its chunks
    decode_seqs     sequences that decode one token each
    context_tokens  prompt + output so far, summed over the decoding sequences (the token being fed in included)
    prefill_context_tokens  tokens before each chunk, computed or cached earlier, summed over the chunks: their KV is
                    read again
    prefill_pairs   (query, key) pairs attended by the chunks: a chunk of t after `done` tokens has
                    t·done + t·(t + 1)/2
    prefill_seqs    prompts whose last chunk is in this step: each emits one token
    """

    prefill_tokens: int
    decode_seqs: int
    context_tokens: int
    prefill_context_tokens: int = 0
    prefill_pairs: int = 0
    prefill_seqs: int = 0


def chunk_pairs(tokens: int, done: int) -> int:
    """(query, key) pairs that a causal chunk of `tokens` attends after `done` earlier tokens."""
    return tokens * done + tokens * (tokens + 1) // 2
