"""No bytes, accidents or ways of reading bring the wire or the decoder down; each call ends once, storably."""

import math
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conformance.cases import CLOSE, OPEN, RESET, Body, Case, chunked, head
from tests.conformance.corpus import corpus, unframed
from tests.conformance.loopback import InMemory, Loopback
from tests.conformance.mutate import TOKENS, cuts, mutated
from tests.conformance.pure import Facts, check_storable, read_body
from tests.conformance.transports import TRANSPORTS, Opener, opener
from tfbench.load.retry_after import retry_after_s

DIGITS = rb"[0-9\xb2\xb3\xb9 .-]{1,25}"
HTTP_DATE = rb"[A-Z][a-z]{2}, [0-9]{1,2} (Jan|Feb|Dec) [0-9]{1,5} [0-9]{2}:[0-9]{2}(:[0-9]{2})? (GMT|[+-][0-9]{4})?"
SETTLE_S = 0.0005
SEEDS = [case for case in corpus() if len(case.response) <= 3_000]
RESPONSES = [case.response for case in SEEDS]
BODIES = [case for case in unframed() if case.body is not None and len(case.body.data) <= 3_000]
ENDS = st.sampled_from((OPEN, CLOSE, RESET))
RANDOM = st.randoms(use_true_random=False)
ACCIDENTS = st.integers(1, 6)
SCRAPS = st.lists(st.binary(max_size=20) | st.sampled_from(TOKENS), max_size=12).map(b"".join)
WIRE = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
PURE = settings(deadline=None, max_examples=400)


class Player:
    """A transport that is opened anew after it failed, so that shrinking goes on from a clean one."""

    def __init__(self, fresh: Opener) -> None:
        self._fresh = fresh
        self._wire: Loopback | InMemory | None = None

    def play(self, parts: list[bytes], case: Case | None, end: str) -> Facts:
        wire = self._wire or self._fresh()
        self._wire = None
        facts = wire.play(parts, end, case.dialect if case else "openai_chat", settle_s=SETTLE_S)
        self._wire = wire
        check_storable(facts)
        return facts


@pytest.fixture(scope="module", params=TRANSPORTS)
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    with opener(request.param) as fresh:
        yield Player(fresh)


def split(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


@WIRE
@given(parts=st.lists(SCRAPS, max_size=4), end=ENDS)
def test_any_bytes_as_a_response(player: Player, parts: list[bytes], end: str) -> None:
    player.play([part for part in parts if part], None, end)


@WIRE
@given(data=SCRAPS, places=st.lists(st.integers(0, 999), max_size=5), end=ENDS, framing=st.integers(0, 2))
def test_any_bytes_as_a_stream(player: Player, data: bytes, places: list[int], end: str, framing: int) -> None:
    parts = split(data, places)
    if framing == 0:
        sent = [head("Transfer-Encoding: chunked"), chunked(parts)]
    elif framing == 1:
        sent = [head(f"Content-Length: {len(data)}"), *parts]
    else:
        sent, end = [head(), *parts], CLOSE
    facts = player.play(sent, None, end)
    assert facts == read_body([data], Body(data))


@WIRE
@given(case=st.sampled_from(SEEDS), random=RANDOM, times=ACCIDENTS, end=ENDS)
def test_responses_after_accidents(player: Player, case: Case, random: Random, times: int, end: str) -> None:
    data = mutated(random, case.response, RESPONSES, times)
    first = player.play(cuts(random, data), case, end)
    if end == CLOSE:
        # What the bytes say doesn't hang on how they were read; of `raw` only the last read may be left.
        second = player.play(cuts(random, data), case, end)
        assert (first.outcome, first.kinds, first.text) == (second.outcome, second.kinds, second.text)
        assert (first.finish, first.usage, first.tokens) == (second.finish, second.usage, second.tokens)


@PURE
@given(case=st.sampled_from(BODIES), random=RANDOM, times=ACCIDENTS)
def test_bodies_after_accidents_are_read_alike_however_they_are_cut(case: Case, random: Random, times: int) -> None:
    assert case.body is not None
    data = mutated(random, case.body.data, RESPONSES, times)
    body = Body(data, case.body.status, case.body.content_type, case.body.content_encoding)
    whole = read_body([data], body, case.dialect)
    check_storable(whole)
    assert read_body(cuts(random, data), body, case.dialect) == whole


@PURE
@given(feeds=st.lists(SCRAPS, max_size=6), kind=st.sampled_from((b"", b"text/event-stream", b"application/json")))
def test_any_bytes_as_a_body(feeds: list[bytes], kind: bytes) -> None:
    check_storable(read_body(feeds, Body(b"", content_type=kind)))


@PURE
@example(b"\xb2")  # a digit to str.isdigit, none to float
@example(b"Mon, 99999999999999999999 Jan 2020 00:00:00 GMT")
@example(b"1 Jan 2020 00:00:00 +99999999999999999999")
@given(st.binary(max_size=12) | st.from_regex(DIGITS, fullmatch=True) | st.from_regex(HTTP_DATE, fullmatch=True))
def test_any_retry_after(value: bytes) -> None:
    seconds = retry_after_s(value, 1.8e9)
    assert seconds is None or 0 <= seconds < math.inf
