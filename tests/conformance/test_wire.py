"""The corpus over real sockets, on every transport: whole, in single bytes, split at every byte, cut at random."""

from collections.abc import Iterable, Iterator
from random import Random

import pytest

from tests.conformance.cases import RESET, Case
from tests.conformance.corpus import corpus
from tests.conformance.mutate import cuts
from tests.conformance.pure import check, check_storable
from tests.conformance.transports import TRANSPORTS, Opener, opener
from tfbench.load.decode import decode, outcome_of

QUICK_S = 0.002
"""Silence that stands for a deadline where many cases are played."""
THOROUGH = "IPv4"
"""Where every byte is tried; the others share its code, and try one place in thirteen."""
GOOD = "good · chunk per event"


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fresh(transport: str) -> Iterator[Opener]:
    with opener(transport) as made:
        yield made


def playable(transport: str) -> Iterator[Case]:
    """The corpus, less what the transport hasn't got: a Unix socket is closed, never reset."""
    return (case for case in corpus() if transport != "Unix" or case.end != RESET)


def failures(fresh: Opener, plays: Iterable[tuple[str, Case, list[bytes]]], *, whole: bool) -> dict[str, str]:
    """What went wrong, by name. Only a whole response is kept whole in `raw`: else the last read is."""
    wire = fresh()
    wrong = {}
    for name, case, parts in plays:
        try:
            facts = wire.play(parts, case.end, case.dialect, settle_s=QUICK_S)
            check_storable(facts)
            check(facts, case.expected, whole=whole)
        except Exception as error:  # noqa: BLE001 - nothing may come out of the wire, so anything that does is told
            wrong[name] = f"{type(error).__name__}: {error}"[:300]
            wire = fresh()
    return wrong


def test_whole(transport: str, fresh: Opener) -> None:
    assert failures(fresh, ((case.name, case, [case.response]) for case in playable(transport)), whole=True) == {}


def test_byte_by_byte(transport: str, fresh: Opener) -> None:
    plays = (
        (case.name, case, [case.response[i : i + 1] for i in range(len(case.response))])
        for case in playable(transport)
        if len(case.response) <= (600 if transport == THOROUGH else 250)
    )
    assert failures(fresh, plays, whole=False) == {}


def test_every_split_point(transport: str, fresh: Opener) -> None:
    step = 1 if transport == THOROUGH else 13
    plays = (
        (f"{case.name}, split at {at}", case, [case.response[:at], case.response[at:]])
        for case in playable(transport)
        if case.body is None and len(case.response) <= 1_000
        for at in range(1, len(case.response), step)
    )
    assert failures(fresh, plays, whole=False) == {}


def test_cut_at_random(transport: str, fresh: Opener) -> None:
    random = Random(3)
    plays = ((case.name, case, cuts(random, case.response, 12)) for case in playable(transport))
    assert failures(fresh, plays, whole=False) == {}


def test_connections_are_kept_where_both_sides_can(fresh: Opener) -> None:
    wire = fresh()
    by_name: dict[str, Case] = {case.name: case for case in corpus()}

    def opened(name: str) -> bool:
        case = by_name[name]
        return wire.receive([case.response], case.end).new_connection

    kept = (GOOD, "good · content-length", "trailers", "100 first", "Keep-Alive: timeout=5")
    assert [opened(name) for name in kept] == [True, False, False, False, False]
    for name in ("bytes after the length", "not HTTP", "end mark, left open", "good · HTTP/1.0", "Connection: close"):
        opened(name)
        assert opened(GOOD), name
        assert not opened(GOOD), name


def test_the_outcome_told_at_once_is_the_one_decoded_later(fresh: Opener) -> None:
    wire = fresh()
    differing = {}
    for case in corpus():
        try:
            call = wire.receive([case.response], case.end, settle_s=QUICK_S)
        except Exception as error:  # noqa: BLE001 - told by test_whole
            differing[case.name] = (type(error).__name__, "")
            wire = fresh()
            continue
        early = outcome_of(call, case.dialect, look_inside=True)
        later = decode(call, case.dialect).outcome
        if early != later:
            differing[case.name] = (str(early), later)
    assert differing == {}
