"""The corpus without the wire: bodies, however they are cut, come to the facts that are written beside them."""

import pytest

from tests.conformance.cases import Case
from tests.conformance.corpus import corpus, unframed
from tests.conformance.pure import check, check_storable, read_body

UNFRAMED = {case.name: case for case in unframed()}
SPLIT_BYTES = 4_000
"""Bodies up to this long are split at every byte, longer ones at 40 places."""


def read(case: Case, *feeds: bytes):  # type: ignore[no-untyped-def]
    assert case.body is not None
    return read_body(feeds, case.body, case.dialect)


def test_names_are_unique() -> None:
    names = [case.name for case in corpus()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", UNFRAMED)
def test_facts(name: str) -> None:
    case = UNFRAMED[name]
    assert case.body is not None
    data = case.body.data
    for feeds in ([data], [data[i : i + 1] for i in range(len(data))] if len(data) <= 50_000 else [data]):
        facts = read(case, *feeds)
        check_storable(facts)
        check(facts, case.expected)


@pytest.mark.parametrize("name", UNFRAMED)
def test_every_split_point(name: str) -> None:
    case = UNFRAMED[name]
    assert case.body is not None
    data = case.body.data
    whole = read(case, data)
    for at in range(1, len(data), 1 if len(data) <= SPLIT_BYTES else len(data) // 40):
        assert read(case, data[:at], data[at:]) == whole, f"split at {at}"
