"""Which idle connection a request gets."""

from pathlib import Path

import pytest

from tests.load.rig import make_call, rig
from tests.load.scripted import ok_script
from tfbench.load.call import Ending
from tfbench.load.pool import Policy, Pool


def make_pool(policy: str, *stale: str) -> Pool[str]:
    return Pool(Policy(policy), lambda connection: connection not in stale)


def test_pooled_gives_the_newest_live_one() -> None:
    pool = make_pool("pooled", "c")
    for name in "abc":
        assert pool.give(name, make_call())
    assert len(pool) == 3
    assert [pool.take(make_call()) for _ in range(3)] == ["b", "a", None]
    assert len(pool) == 0


def test_per_request_keeps_none_but_uses_those_opened_ahead() -> None:
    pool = make_pool("per_request")
    pool.add("ahead")
    assert pool.take(make_call()) == "ahead"
    assert not pool.give("ahead", make_call())
    assert pool.take(make_call()) is None


def test_per_session_keeps_each_its_own() -> None:
    pool = make_pool("per_session")
    pool.add("ahead")
    assert pool.take(make_call(user=1)) == "ahead"
    assert pool.take(make_call(user=2)) is None
    assert pool.give("ahead", make_call(user=1)) and pool.give("two", make_call(user=2))
    assert pool.take(make_call(user=3)) is None
    # A second connection of one session isn't needed, and nobody's connection is kept for nobody.
    assert not pool.give("more", make_call(user=2))
    assert not pool.give("lone", make_call())
    assert pool.take(make_call()) is None
    assert pool.take(make_call(user=2)) == "two"
    assert pool.take(make_call(user=1)) == "ahead"
    assert len(pool) == 0


def test_a_session_whose_connection_went_stale_gets_a_new_one() -> None:
    pool = make_pool("per_session", "old")
    assert pool.give("old", make_call(user=1))
    assert pool.take(make_call(user=1)) is None
    assert pool.give("new", make_call(user=1))
    assert pool.take(make_call(user=1)) == "new"


@pytest.mark.parametrize("policy", list(Policy))
def test_dropped_connections_are_not_given_out(policy: Policy) -> None:
    pool = make_pool(policy)
    pool.add("ahead")
    pool.give("used", make_call(user=1))
    for name in ("ahead", "used", "never seen"):
        pool.drop(name)
    assert len(pool) == 0 and pool.take(make_call(user=1)) is None


def test_sessions_may_be_told_apart_otherwise() -> None:
    pool: Pool[str] = Pool(Policy.PER_SESSION, lambda _: True, session=lambda call: call.request_id)
    pool.give("a", make_call(number=1))
    assert pool.take(make_call(number=2)) is None
    assert pool.take(make_call(number=1)) == "a"


@pytest.mark.parametrize(("policy", "opened"), [("pooled", 1), ("per_request", 4), ("per_session", 2)])
@pytest.mark.parametrize("kind", ["ipv4", "tls"])
def test_the_wire_keeps_to_the_policy(kind: str, policy: str, opened: int, tmp_path: Path) -> None:
    with rig(kind, ok_script, tmp_path, policy=policy) as bench:
        calls = [bench.talk(make_call(user=i % 2))[0] for i in range(4)]
        assert bench.transport.opened == opened
    assert [call.ending for call in calls] == [Ending.COMPLETE] * 4
    assert len({call.connection_id for call in calls}) == opened
    assert all((call.connected_ns > 0) is call.new_connection for call in calls)
