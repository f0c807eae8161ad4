"""What a response says, as facts: chunks, token counts, a whole body.

Chunk and Usage are named tuples rather than frozen dataclasses because one of each is made per
streamed event, and a tuple is made three times faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.core.kinds import OUTPUT_KINDS, VISIBLE_KINDS, ChunkKind


class Chunk(NamedTuple):
    """One event of a streamed response.

    `text` is what the event shows, of its own kind only ("" where it shows nothing); `tokens` is
    the number of output tokens it brought, None where the stream doesn't say.
    """

    kind: ChunkKind
    text: str
    tokens: int | None


class Usage(NamedTuple):
    """Token counts as the server reported them; None is unknown, never 0."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None

    def updated(self, newer: "Usage") -> "Usage":
        """`newer`, with what it leaves unknown kept from here."""
        if None not in newer:
            return newer
        return Usage(*[old if new is None else new for old, new in zip(self, newer, strict=True)])


@dataclass(frozen=True, slots=True)
class BodyResult:
    """A non-streamed response. `kind` is the kind of the one chunk that stands for the whole body."""

    kind: ChunkKind
    text: str = ""
    reasoning: str = ""
    tool: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    n_choices: int = 0
    response_model: str | None = None
    response_id: str | None = None


def resolve_tokens(
    kinds: Sequence[ChunkKind], tokens: Sequence[int | None], output_tokens: int | None
) -> list[int | None]:
    """Tokens per chunk, settled once the stream's total is known. `kinds` and `tokens` are parallel.

    A visible chunk carries at least one token. So where every output chunk is visible and there
    are exactly `output_tokens` of them, each carries one. In any other case `tokens` is returned
    as it is: chunks aren't tokens.
    """
    output = [i for i, kind in enumerate(kinds) if kind in OUTPUT_KINDS]
    resolved = list(tokens)
    if len(output) != output_tokens:
        return resolved
    if not VISIBLE_KINDS.issuperset([kinds[i] for i in output]) or not {tokens[i] for i in output} <= {None, 1}:
        return resolved
    for i in output:
        resolved[i] = 1
    return resolved
