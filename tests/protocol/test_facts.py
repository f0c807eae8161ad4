"""Settling tokens per chunk once the total is known, and joining usage reports."""

import pytest

from tfbench.core.kinds import ChunkKind
from tfbench.protocol import Usage, resolve_tokens

ROLE, TEXT, REASONING, TOOL, EMPTY, FINISH = (
    ChunkKind(name) for name in ("role", "text", "reasoning", "tool", "empty", "finish")
)


@pytest.mark.parametrize(
    ("kinds", "tokens", "total", "resolved"),
    [
        ([ROLE, TEXT, REASONING, TOOL, FINISH], [None] * 5, 3, [None, 1, 1, 1, None]),
        ([TEXT, TEXT], [None, None], 3, [None, None]),  # one of them carries two
        ([TEXT, TEXT], [None, None], 1, [None, None]),
        ([TEXT, TEXT], [None, None], None, [None, None]),
        ([TEXT, EMPTY], [None, None], 2, [None, None]),  # an empty delta may carry none
        ([EMPTY, TEXT, TEXT], [None, None, None], 2, [None, 1, 1]),
        ([EMPTY, TEXT, TEXT], [1, None, None], 3, [1, 1, 1]),
        ([EMPTY, TEXT, TEXT], [1, None, None], 2, [1, None, None]),  # the server contradicts itself
        ([EMPTY, TEXT], [2, None], 2, [2, None]),
        ([EMPTY, EMPTY], [None, None], 2, [None, None]),
        ([TEXT, TEXT], [1, None], 2, [1, 1]),
        ([TEXT, TEXT], [2, None], 2, [2, None]),  # the server contradicts itself
        ([TEXT, TEXT], [0, 2], 2, [0, 2]),
        ([ROLE, FINISH], [0, None], 0, [0, None]),
        ([], [], 0, []),
    ],
)
def test_resolve_tokens(
    kinds: list[ChunkKind], tokens: list[int | None], total: int | None, resolved: list[int | None]
) -> None:
    given = list(tokens)
    assert resolve_tokens(kinds, tokens, total) == resolved
    assert tokens == given
    assert resolve_tokens([str(kind) for kind in kinds], tokens, total) == resolved  # type: ignore[misc]


@pytest.mark.parametrize(
    ("usage", "kinds", "true"),
    [
        (Usage(0, None, 0, None), {TEXT}, Usage()),
        (Usage(0, 0, 0, 0), {TOOL}, Usage()),
        (Usage(7, 0, 0, 0), {TEXT}, Usage(7, 0, None, None)),
        (Usage(0, 0, 3, 0), {TEXT}, Usage(None, None, 3, 0)),
        (Usage(7, 0, 3, 0), {TEXT}, Usage(7, 0, 3, 0)),
        (Usage(7, 0, 3, 0), {TEXT, REASONING}, Usage(7, 0, 3, None)),
        (Usage(7, 0, 3, 2), {REASONING}, Usage(7, 0, 3, 2)),
        (Usage(7, None, 0, None), {ROLE, FINISH}, Usage(7, None, 0, None)),
        (Usage(0, 0, 0, 0), {EMPTY}, Usage(0, 0, 0, 0)),
        (Usage(0, 0, 0, 0), set(), Usage(0, 0, 0, 0)),
    ],
)
def test_counts_that_cannot_be_true_are_unknown(usage: Usage, kinds: set[ChunkKind], true: Usage) -> None:
    assert usage.beside(kinds) == true


def test_unknown_counts_are_kept_from_before() -> None:
    assert Usage(1, 2, 3, 4).updated(Usage(5, None, 6, None)) == Usage(5, 2, 6, 4)
    assert Usage(1, 2, None, 4).updated(Usage(0, 0, 0, 0)) == Usage(1, 2, 0, 4)  # zeros after counts are placeholders
