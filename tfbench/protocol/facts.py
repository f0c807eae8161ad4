"""What a response says, as facts: chunks, token counts, a whole body.

Chunk and Usage are named tuples rather than frozen dataclasses because one of each is made per
streamed event, and a tuple is made three times faster.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.core.kinds import VISIBLE_KINDS, ChunkKind


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
        """`newer`, with what it leaves unknown kept from here. Counts only grow: a 0 after more is a placeholder."""
        if all(newer):
            return newer
        return Usage(*[new or (new if old is None else old) for old, new in zip(self, newer, strict=True)])

    def beside(self, kinds: Container[ChunkKind]) -> "Usage":
        """These counts as far as they can be true of an answer with chunks of these kinds.

        What was shown took a token, and what was answered had a prompt: a 0 there is no count.
        """
        prompt, cached, output, reasoning = self
        shown = any(kind in kinds for kind in VISIBLE_KINDS)
        if not shown or (prompt and output and reasoning):
            return self
        if ChunkKind.REASONING in kinds or not output:
            reasoning = reasoning or None
        return Usage(prompt or None, cached if prompt else cached or None, output or None, reasoning)


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

    A visible chunk carries at least one token, and so does an empty one that is known to have carried any. So where
    there are exactly `output_tokens` of them, each carries one. In any other case `tokens` is returned as it is:
    chunks aren't tokens.
    """
    resolved = list(tokens)
    if output_tokens is None or output_tokens > len(resolved):
        return resolved
    output = [i for i, kind in enumerate(kinds) if kind in VISIBLE_KINDS]
    if any(tokens):
        output += [i for i, kind in enumerate(kinds) if tokens[i] and kind == ChunkKind.EMPTY]
    if len(output) == output_tokens and {tokens[i] for i in output} <= {None, 1}:
        for i in output:
            resolved[i] = 1
    return resolved
