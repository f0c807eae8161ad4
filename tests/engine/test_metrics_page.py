import re
from collections.abc import Callable

import pytest

from tfbench.engine.metrics_page import Gauges, Histogram, Metrics, render
from tfbench.engine.scheduler import Scheduler, Sequence


def test_histogram_buckets_are_cumulative_and_inclusive() -> None:
    metrics = Metrics(time_to_first_token=Histogram((1.0, 2.0)))
    for value in (0.5, 1.0, 1.5, 3.0):
        metrics.time_to_first_token.observe(value)
    page = render(metrics, Gauges(), model="m").decode()
    name = "vllm:time_to_first_token_seconds"
    assert [line for line in page.splitlines() if line.startswith(name)] == [
        name + '_bucket{engine="0",model_name="m",le="1.0"} 2.0',
        name + '_bucket{engine="0",model_name="m",le="2.0"} 3.0',
        name + '_bucket{engine="0",model_name="m",le="+Inf"} 4.0',
        name + '_count{engine="0",model_name="m"} 4.0',
        name + '_sum{engine="0",model_name="m"} 6.0',
    ]


def test_every_line_is_prometheus_text() -> None:
    page = render(Metrics(), Gauges(running=3, waiting=4, energy_j=1.5), model='a"b\\c').decode()
    sample = re.compile(r'[a-z0-9_:]+\{([a-z_]+="([^"\\\n]|\\.)*",?)+\} [-0-9.e+]+')
    for line in page.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line
    assert 'vllm:num_requests_running{engine="0",model_name="a\\"b\\\\c"} 3.0' in page
    assert 'vllm:num_requests_waiting{engine="0",model_name="a\\"b\\\\c"} 4.0' in page


def test_series_have_vllms_names_kinds_and_buckets(vllm_metrics: Callable[[], str]) -> None:
    theirs = set(vllm_metrics().splitlines())
    page = render(Metrics(), Gauges(), model="tiny").decode().splitlines()
    types = {line for line in page if line.startswith("# TYPE vllm:")}
    assert types <= theirs
    assert {line.split()[2].removeprefix("vllm:") for line in types} == {
        *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"),
        *("prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total"),
        *("prompt_tokens_total", "generation_tokens_total", "iteration_tokens_total"),
        *("request_success_total", "admission_rejections_total"),
        *("time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds"),
        *("e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds"),
        *("request_prefill_time_seconds", "request_decode_time_seconds"),
    }
    ours = {series(line) for line in page if line.startswith("vllm:")}
    assert ours <= {series(line) for line in theirs if line.startswith("vllm:")}


def test_unknown_energy_is_left_out_and_preemptions_add_up() -> None:
    metrics = Metrics(preemptions=2)
    page = render(metrics, Gauges(preemptions=3, kv_usage=0.25), model="m").decode()
    assert "energy" not in page
    assert 'vllm:num_preemptions_total{engine="0",model_name="m"} 5.0' in page
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25' in page
    page = render(metrics, Gauges(energy_j=12.5), model="m").decode()
    assert 'tfbench:energy_joules_total{engine="0",model_name="m"} 12.5' in page


def series(line: str) -> tuple[str, frozenset[str]]:
    """Name and labels; the admission counter of vLLM has no engine label."""
    name, _, rest = line.partition("{")
    return name, frozenset(rest.partition("}")[0].split(",")) - {'engine="0"'}


def test_a_step_and_a_request_are_counted() -> None:
    scheduler, metrics = Scheduler(max_num_seqs=2, max_num_batched_tokens=100, max_waiting=5), Metrics()
    seq = scheduler.admit(0, 10, 2, 0)
    assert seq is not None
    for start in (1_000_000_000, 2_000_000_000):
        step = scheduler.plan_step(start)
        assert step is not None
        metrics.observe_step(step, len(scheduler.finish_step(step, start + 1_000_000_000).emitted))
    metrics.observe_first_token(seq, reuse=False)
    with pytest.raises(ValueError, match="not finished"):
        metrics.observe_finished(Sequence(1, 1, 1, 0), 5)
    assert (metrics.prefix_queries, metrics.prefix_hits) == (0, 0)
    seq.cached_tokens = 4
    cached = Metrics()
    cached.observe_first_token(seq, reuse=True)
    assert (cached.prefix_queries, cached.prefix_hits) == (10, 4)
    metrics.observe_finished(seq, 3_500_000_000)
    assert (metrics.prompt_tokens, metrics.generation_tokens) == (10, 2)
    assert metrics.iteration_tokens.total == 11
    assert metrics.time_to_first_token.total == 2.0
    assert metrics.queue_time.total == 1.0
    assert metrics.prefill_time.total == 1.0
    assert metrics.inference_time.total == 2.0
    assert metrics.decode_time.total == metrics.time_per_output_token.total == 1.0
    assert metrics.e2e_latency.total == 3.5
