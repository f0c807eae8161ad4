from tfbench.engine.step_time import StepTime, Work, duration_ns


def test_a_step_takes_the_sum_of_its_parts() -> None:
    model = StepTime(base_ms=8.0, prefill_token_ms=0.02, decode_seq_ms=0.05, context_token_ms=0.0001)
    # 8 + 100*0.02 + 20*0.05 + 10,000*0.0001 = 8 + 2 + 1 + 1 = 12 ms
    assert duration_ns(model, Work(prefill_tokens=100, decode_seqs=20, context_tokens=10_000)) == 12_000_000
    assert duration_ns(model, Work(0, 0, 0)) == 8_000_000
    assert duration_ns(StepTime(0.0, 0.0, 0.0), Work(5, 5, 5)) == 0
