"""Limits and verdicts of the load's own signals."""

import pytest

from tfbench.verdict.validity import judge_validity, rules, signals_with_limits

GOOD: dict[str, float | None] = {
    "client_lag_p99_ms": 0.2,
    "sent_share": 1.0,
    "blurred_chunk_share": 0.0,
    "kernel_to_user_lag_p99_ms": 0.1,
    "worker_cpu_max_share": 0.3,
    "clock_steps": 0.0,
    "exhausted_connections": 0.0,
    "dead_workers": 0.0,
    "scheduled_requests": 10.0,
}


def test_good_signals_are_valid_and_stored_with_their_limits() -> None:
    signals = signals_with_limits(GOOD, 500.0)
    assert judge_validity(signals).verdict == "VALID"
    assert signals["client_lag_p99_ms"] == {"value": 0.2, "limit": 5.0, "relation": "<=", "unit": "ms", "ok": True}
    assert set(signals) == set(GOOD) == {rule.signal for rule in rules(None)}


@pytest.mark.parametrize(("ttft_ms", "limit"), [(None, 1.0), (50.0, 1.0), (100.0, 1.0), (500.0, 5.0)])
def test_client_lag_may_be_a_millisecond_or_a_hundredth_of_the_ttft_limit(ttft_ms: float | None, limit: float) -> None:
    assert signals_with_limits(GOOD, ttft_ms)["client_lag_p99_ms"]["limit"] == limit


@pytest.mark.parametrize(
    ("signal", "bad"),
    [
        ("client_lag_p99_ms", 1.01),
        ("sent_share", 0.9899),
        ("blurred_chunk_share", 0.011),
        ("kernel_to_user_lag_p99_ms", 5.1),
        ("worker_cpu_max_share", 0.95),
        ("clock_steps", 1.0),
        ("exhausted_connections", 1.0),
        ("dead_workers", 1.0),
        ("scheduled_requests", 0.0),
    ],
)
def test_each_signal_beyond_its_limit_is_invalid_with_its_name(signal: str, bad: float) -> None:
    verdict = judge_validity(signals_with_limits(GOOD | {signal: bad}, None))
    assert verdict.verdict == "INVALID"
    [reason] = verdict.reasons
    assert signal in reason


def test_what_could_not_be_measured_does_not_judge() -> None:
    signals = signals_with_limits(GOOD | {"kernel_to_user_lag_p99_ms": None, "blurred_chunk_share": None}, None)
    assert signals["blurred_chunk_share"]["ok"] is None
    assert judge_validity(signals).verdict == "VALID"


def test_an_interrupted_run_is_invalid_and_notes_follow_reasons() -> None:
    verdict = judge_validity(signals_with_limits(GOOD, None), status="failed", notes=("worker 0 died (signal 9)",))
    assert verdict.verdict == "INVALID"
    assert verdict.reasons == ("the run is failed", "worker 0 died (signal 9)")
    assert verdict.row("r")["kind"] == "validity"
