"""The conformance corpus: every capture and every generated case, framed."""

from collections.abc import Iterator
from functools import cache

from tests.conformance.captured import captured_cases
from tests.conformance.cases import Case, framings
from tests.conformance.framed_cases import wire_cases
from tests.conformance.hostile import body_cases


def unframed() -> Iterator[Case]:
    """Cases whose facts don't depend on HTTP's framing; their `response` is empty."""
    yield from captured_cases()
    yield from body_cases()


@cache
def corpus() -> tuple[Case, ...]:
    """All cases, with their responses as bytes; names are unique."""
    framed = [variant for case in unframed() for variant in framings(case)]
    return (*framed, *wire_cases())
