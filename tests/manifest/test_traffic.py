"""Retry delays, ramps' mean rates, sockets' paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.kinds import Outcome
from tfbench.manifest import Ramp, Retry, parse_manifest, retry_delay_s, socket_path


def policy(**keys: object) -> Retry:
    retry = parse_manifest({"model": {"name": "m"}, "load": {"retry": keys}}, "test").load.retry
    assert retry is not None
    return retry


def test_without_a_policy_nothing_is_retried() -> None:
    assert parse_manifest({"model": {"name": "m"}}, "test").load.retry is None
    assert policy().outcomes == (Outcome.REJECTED, Outcome.CONNECT_ERROR)


def test_waits_grow_up_to_the_cap_and_end_with_max() -> None:
    five = policy(max=5, backoff_s=0.5, factor=3, cap_s=6)
    assert [retry_delay_s(five, try_, None) for try_ in range(6)] == [0.5, 1.5, 4.5, 6.0, 6.0, None]
    assert retry_delay_s(policy(backoff_s=0), 0, None) == 0


@pytest.mark.parametrize(
    ("retry_after_s", "delay"),
    [(None, 1.0), (0.0, 1.0), (-5.0, 1.0), (0.5, 1.0), (7.0, 7.0), (10.0, 10.0), (10.1, None), (float("nan"), 1.0)],
)
def test_retry_after_lengthens_a_wait_and_ends_it_above_the_cap(
    retry_after_s: float | None, delay: float | None
) -> None:
    assert retry_delay_s(policy(backoff_s=1, cap_s=10), 0, retry_after_s) == delay


def test_retry_after_can_be_passed_over() -> None:
    assert retry_delay_s(policy(backoff_s=1, honour_retry_after=False), 0, 20.0) == 1


@given(
    try_=st.integers(0, 25),
    retry_after_s=st.none() | st.floats(allow_nan=False),
    factor=st.floats(1, 100),
    backoff_s=st.floats(0, 30),
)
def test_a_wait_is_never_negative_nor_above_the_cap(
    try_: int, retry_after_s: float | None, factor: float, backoff_s: float
) -> None:
    delay = retry_delay_s(policy(max=20, factor=factor, backoff_s=backoff_s, cap_s=30), try_, retry_after_s)
    assert delay is None or 0 <= delay <= 30
    if try_ < 20 and retry_after_s is None:
        assert delay is not None


def test_mean_rates_of_ramps() -> None:
    assert Ramp(to=16).mean_rate(4) == 10
    assert Ramp(to=16, shape="exponential").mean_rate(4) == pytest.approx(12 / 1.3862943611)
    assert Ramp(to=4, shape="exponential").mean_rate(4) == 4
    assert Ramp(to=4.0001, shape="exponential").mean_rate(4) == pytest.approx(4.00005, rel=1e-9)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http+unix://%2Frun%2Fa%20b%40c.sock/v1", "/run/a b@c.sock"),
        ("http://127.0.0.1:8000/v1", None),
        ("https://h/v1", None),
    ],
)
def test_the_socket_of_a_url(url: str, path: str | None) -> None:
    endpoint = parse_manifest({"model": {"name": "m"}, "endpoint": {"url": url}}, "test").endpoint
    assert endpoint.url == url
    assert socket_path(url) == path
