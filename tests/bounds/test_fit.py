import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.bounds import (
    FittedStepTime,
    MeasuredStep,
    Roofline,
    Work,
    chunk_pairs,
    device,
    fit_step_time,
    measured_steps,
    model_shape,
    step_bound,
    step_time_toml,
)
from tfbench.core.errors import UsageError

COEFFICIENT = st.floats(0, 10) | st.just(0.0)


def steps(base: float, prefill: float, seq: float, context: float, *, noise_ms: float = 0.0) -> list[MeasuredStep]:
    rng = np.random.default_rng(4)
    made = []
    for _ in range(200):
        work = Work(int(rng.integers(0, 2048)), int(rng.integers(0, 64)), int(rng.integers(0, 100_000)))
        exact = base + prefill * work.prefill_tokens + seq * work.decode_seqs + context * work.context_tokens
        made.append(MeasuredStep(work, exact + noise_ms * float(rng.standard_normal())))
    return made


def coefficients(fit: FittedStepTime) -> list[float]:
    return [fit.base_ms, fit.prefill_token_ms, fit.decode_seq_ms, fit.context_token_ms]


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 50), COEFFICIENT, COEFFICIENT, st.floats(0, 1e-3))
def test_exact_steps_give_their_coefficients_back(base: float, prefill: float, seq: float, context: float) -> None:
    fit = fit_step_time(steps(base, prefill, seq, context))
    largest = base + 2048 * prefill + 64 * seq + 1e5 * context
    for found, true, span in zip(coefficients(fit), (base, prefill, seq, context), (1, 2e3, 64, 1e5), strict=True):
        assert found * span == pytest.approx(true * span, abs=1e-6 * largest)
    assert fit.residual_max_ms <= 1e-6 * largest


def test_noise_shows_in_the_residuals_and_not_in_the_coefficients() -> None:
    fit = fit_step_time(steps(8.0, 0.02, 0.05, 2e-5, noise_ms=0.1))
    assert coefficients(fit) == pytest.approx([8.0, 0.02, 0.05, 2e-5], rel=0.02)
    assert fit.n == 200
    assert fit.residual_p50_ms == pytest.approx(0.0674, rel=0.25)  # the median of |N(0, 0.1)|
    assert fit.residual_p50_ms < fit.residual_p95_ms < fit.residual_p99_ms < fit.residual_max_ms
    assert abs(fit.bias_ms) < 1e-9


def test_coefficients_are_never_negative() -> None:
    rising = steps(5.0, 0.01, 0.0, 0.0)
    bent = [MeasuredStep(s.work, max(0.1, s.duration_ms - 0.02 * s.work.decode_seqs)) for s in rising]
    fit = fit_step_time(bent)
    assert min(coefficients(fit)) == 0.0 == fit.decode_seq_ms


def test_a_roofline_bound_by_memory_is_a_line() -> None:
    roofline = Roofline(device("h100-sxm"), model_shape("llama-3.1-8b"))
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(100):
        seqs, tokens = int(rng.integers(1, 64)), int(rng.integers(0, 64))
        work = Work(tokens, seqs, seqs * int(rng.integers(100, 4000)), 0, chunk_pairs(tokens, 0))
        samples.append(MeasuredStep(work, step_bound(roofline, work).total_ns / 1e6))
    fit = fit_step_time(samples)
    assert fit.residual_max_ms < 1e-3
    assert fit.context_token_ms == pytest.approx(131072 / roofline.device.bandwidth_bytes_per_s * 1e3, rel=1e-3)
    assert fit.predict_ms(samples[0].work) == pytest.approx(samples[0].duration_ms, rel=1e-3)


def test_rows_become_steps_and_a_profile() -> None:
    rows: list[dict[str, object]] = [
        {
            "prefill_tokens": str(p),
            "decode_seqs": d,
            "context_tokens": float(c),
            "duration_ms": str(3 + 0.5 * p + d + c),
        }
        for p, d, c in [(0, 1, 10), (4, 2, 30), (8, 0, 0), (0, 5, 60), (2, 2, 90), (9, 9, 9)]
    ]
    read = measured_steps(rows)
    assert read[1] == MeasuredStep(Work(4, 2, 30), 37.0)
    fit = fit_step_time(read)
    table = tomllib.loads(step_time_toml(fit))["step_time"]
    assert list(table) == ["base_ms", "prefill_token_ms", "decode_seq_ms", "context_token_ms"]
    assert list(table.values()) == coefficients(fit) == pytest.approx([3, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prefill_tokens": 1}, "step 2: duration_ms: None"),
        ({"duration_ms": 0}, "duration_ms: 0 is not above zero"),
        ({"duration_ms": "nan"}, "duration_ms: nan is no finite number"),
        ({"duration_ms": 1, "decode_seqs": 1.5}, "decode_seqs: 1.5 is no whole number"),
        ({"duration_ms": 1, "decode_seqs": -1}, "decode_seqs: -1"),
        ({"duration_ms": 1, "context_tokens": "many"}, "context_tokens: 'many'"),
    ],
)
def test_a_bad_row_is_named(row: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        measured_steps([{"duration_ms": 1}, row])


def test_what_the_steps_cannot_tell_is_said() -> None:
    with pytest.raises(UsageError, match="4 steps are too few"):
        fit_step_time(steps(1, 1, 1, 1)[:4])
    with pytest.raises(UsageError, match="0 steps are too few"):
        fit_step_time([])
    decode_only = [MeasuredStep(Work(0, n, 100 * n * n), 1.0 + n) for n in range(1, 9)]
    with pytest.raises(UsageError, match="no step has prefill_tokens"):
        fit_step_time(decode_only)
    same_seqs = [MeasuredStep(Work(n, 3, 100 * n * n), 1.0 + n) for n in range(1, 9)]
    with pytest.raises(UsageError, match="varies only together"):
        fit_step_time(same_seqs)
