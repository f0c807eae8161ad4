"""What may be asked of a capacity search, and what a run says of it."""

import pytest

from tfbench.core.errors import UsageError
from tfbench.study.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "target", "share", "words"),
    [
        ("good_fraction=0.99", Target("good_fraction", 0.99), 0.99, "good_fraction ≥ 0.99"),
        ("good_fraction>=0.9", Target("good_fraction", 0.9), 0.9, "good_fraction ≥ 0.9"),
        ("ttft_p95_ms=300", Target("ttft_p95_ms", 300.0), 0.95, "ttft_p95_ms ≤ 300"),
        (" e2e_p50_ms <= 1.5e3", Target("e2e_p50_ms", 1500.0), 0.5, "e2e_p50_ms ≤ 1500"),
    ],
)
def test_targets_are_read(text: str, target: Target, share: float, words: str) -> None:
    assert parse_target(text) == target
    assert (target.share, target.words) == (share, words)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write --target"),
        ("good_fraction", "write --target"),
        ("=0.9", "write --target"),
        ("good_fracton=0.9", "no such figure; for example good_fraction"),
        ("goodput_requests_per_s=3", "no fraction, and no quantile"),
        ("client_lag_p99_ms=1", "no fraction, and no quantile"),
        ("ttft_ok_p95_ms=100", "that failures count in"),
        ("cost_per_million_qualified_tokens=1", "no fraction, and no quantile"),
        ("icl_p99_ms<=50", "set slo.icl_ms and give good_fraction"),
        ("good_fraction<=0.9", "higher is better, so write good_fraction>=VALUE"),
        ("ttft_p95_ms>=300", "lower is better, so write ttft_p95_ms<=VALUE"),
        ("good_fraction=1", "no number of requests shows a share of all"),
        ("good_fraction=99", "a share lies between 0 and 1"),
        ("good_fraction=nan", "can't be"),
        ("good_fraction=most", "'most' is not a number"),
        ("ttft_p95_ms=0", "milliseconds above 0"),
        ("ttft_p95_ms=inf", "milliseconds above 0"),
    ],
)
def test_others_are_refused_in_a_line(text: str, told: str) -> None:
    with pytest.raises(UsageError, match="(?s)^--target") as refused:
        parse_target(text)
    assert told in str(refused.value) and "\n" not in str(refused.value)
