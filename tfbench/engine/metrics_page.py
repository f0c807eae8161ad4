"""The engine's counters, and its /metrics page: Prometheus text under vLLM's names."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfbench.engine.misbehave import Kind
from tfbench.engine.scheduler import Sequence, Step

_TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TPOT_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_BUCKETS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_LATENESS_BUCKETS = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0)


class Histogram:
    """Counts by upper bound, as Prometheus has them."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value that came `count` times."""
        self.counts[bisect_left(self.buckets, value)] += count
        self.total += value * count


@dataclass(slots=True)
class Metrics:
    """Everything the page counts. Times are in seconds.

    `preemptions` are those of requests that have ended; prefix cache figures count tokens, at a request's first token.
    """

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    rejections: int = 0
    success: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0, "error": 0})
    misbehaved: dict[str, int] = field(default_factory=lambda: {str(kind): 0 for kind in Kind})
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(_TTFT_BUCKETS))
    inter_token_latency: Histogram = field(default_factory=lambda: Histogram(_TPOT_BUCKETS))
    time_per_output_token: Histogram = field(default_factory=lambda: Histogram(_TPOT_BUCKETS))
    e2e_latency: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    inference_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    prefill_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    decode_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_STEP_BUCKETS))
    step_lateness: Histogram = field(default_factory=lambda: Histogram(_LATENESS_BUCKETS))
    step_overruns: int = 0

    def observe_step(self, step: Step, emitted: int) -> None:
        """Count a finished step that gave `emitted` tokens."""
        self.generation_tokens += emitted
        self.iteration_tokens.observe(step.work.prefill_tokens + step.work.decode_seqs)

    def observe_first_token(self, seq: Sequence, *, reuse: bool) -> None:
        """Count a request that has its first token; `reuse`: whether its prompt was looked for in the prefix cache."""
        if seq.first_token_ns is None:
            raise ValueError("no token yet")
        self.prompt_tokens += seq.prompt_tokens
        self.time_to_first_token.observe((seq.first_token_ns - seq.arrival_ns) / 1e9)
        if reuse:
            self.prefix_queries += seq.prompt_tokens
            self.prefix_hits += seq.cached_tokens

    def observe_finished(self, seq: Sequence, end_ns: int) -> None:
        """Count a request whose last byte was handed over at `end_ns`."""
        if seq.first_step_ns is None or seq.first_token_ns is None or seq.end_ns is None:
            raise ValueError("not finished")
        self.e2e_latency.observe((end_ns - seq.arrival_ns) / 1e9)
        self.queue_time.observe((seq.first_step_ns - seq.arrival_ns) / 1e9)
        self.inference_time.observe((seq.end_ns - seq.first_step_ns) / 1e9)
        self.prefill_time.observe((seq.first_token_ns - seq.first_step_ns) / 1e9)
        decode_s = (seq.end_ns - seq.first_token_ns) / 1e9
        self.decode_time.observe(decode_s)
        if seq.output_tokens > 1:
            self.time_per_output_token.observe(decode_s / (seq.output_tokens - 1))


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the page shows beside its counters.

    kv_usage     share of the KV blocks that requests use; 0 where KV has no limit
    preemptions  those of requests that are still served
    energy_j     energy since the start; None = unknown
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    energy_j: float | None = None


def render(metrics: Metrics, gauges: Gauges, *, model: str) -> bytes:
    """The page, format text/plain; version=0.0.4."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'engine="0",model_name="{escaped}"'
    lines: list[str] = []
    for name, kind, text, values in _simple_series(metrics, gauges):
        lines += (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
        lines += (f"{name}{{{own}{labels}}} {float(value)!r}" for own, value in values)
    for name, text, data in _histograms(metrics):
        lines += (f"# HELP {name} {text}", f"# TYPE {name} histogram")
        seen = 0
        for bound, count in zip((*map(repr, data.buckets), "+Inf"), data.counts, strict=True):
            seen += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(seen)!r}')
        lines += (f"{name}_count{{{labels}}} {float(seen)!r}", f"{name}_sum{{{labels}}} {data.total!r}")
    return ("\n".join(lines) + "\n").encode()


def _simple_series(metrics: Metrics, gauges: Gauges) -> Iterator[tuple[str, str, str, list[tuple[str, float]]]]:
    """Name, kind, help and values, each value with the labels it has of its own."""

    def one(name: str, kind: str, text: str, value: float) -> tuple[str, str, str, list[tuple[str, float]]]:
        return name, kind, text, [("", value)]

    yield one("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", gauges.running)
    yield one("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", gauges.waiting)
    yield one("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", gauges.kv_usage)
    queries = "Prefix cache queries, in terms of number of queried tokens."
    yield one("vllm:prefix_cache_queries_total", "counter", queries, metrics.prefix_queries)
    hits = "Prefix cache hits, in terms of number of cached tokens."
    yield one("vllm:prefix_cache_hits_total", "counter", hits, metrics.prefix_hits)
    preempted = metrics.preemptions + gauges.preemptions
    yield one("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", preempted)
    yield one("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", metrics.prompt_tokens)
    generated = "Number of generation tokens processed."
    yield one("vllm:generation_tokens_total", "counter", generated, metrics.generation_tokens)
    finished = [(f'finished_reason="{reason}",', float(count)) for reason, count in metrics.success.items()]
    yield "vllm:request_success_total", "counter", "Count of successfully processed requests.", finished
    rejected = [('reason="max_num_queued_reqs",', float(metrics.rejections))]
    text = "Number of requests rejected by the queue limit."
    yield "vllm:admission_rejections_total", "counter", text, rejected
    misbehaved = [(f'kind="{kind}",', float(count)) for kind, count in metrics.misbehaved.items()]
    text = "Requests whose replies went wrong because that was asked for."
    yield "tfbench:misbehaviours_total", "counter", text, misbehaved
    if gauges.energy_j is not None:
        text = "Energy that the devices would have taken since the start, by the power model."
        yield one("tfbench:energy_joules_total", "counter", text, gauges.energy_j)
    overruns = "Steps so late that the model's time was set anew."
    yield one("tfbench:step_overruns_total", "counter", overruns, metrics.step_overruns)


def _histograms(metrics: Metrics) -> Iterator[tuple[str, str, Histogram]]:
    """Name, help and data."""
    phase = "Histogram of time spent in {} phase for request."
    tpot = "Histogram of time_per_output_token_seconds per request."
    late = "How late the writes of a step began after the step's end by the step-time model."
    tokens = "Histogram of number of tokens per engine_step."
    first = "Histogram of time to first token in seconds."
    yield "vllm:time_to_first_token_seconds", first, metrics.time_to_first_token
    gap = "Histogram of inter-token latency in seconds."
    yield "vllm:inter_token_latency_seconds", gap, metrics.inter_token_latency
    yield "vllm:request_time_per_output_token_seconds", tpot, metrics.time_per_output_token
    yield "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", metrics.e2e_latency
    yield "vllm:request_queue_time_seconds", phase.format("WAITING"), metrics.queue_time
    yield "vllm:request_inference_time_seconds", phase.format("RUNNING"), metrics.inference_time
    yield "vllm:request_prefill_time_seconds", phase.format("PREFILL"), metrics.prefill_time
    yield "vllm:request_decode_time_seconds", phase.format("DECODE"), metrics.decode_time
    yield "vllm:iteration_tokens_total", tokens, metrics.iteration_tokens
    yield "tfbench:step_lateness_seconds", late, metrics.step_lateness
