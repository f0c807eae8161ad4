"""The engine's counters, and its /metrics page: Prometheus text under vLLM's names."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from tfbench.engine.scheduler import Sequence, Step, StepResult

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

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value


@dataclass(slots=True)
class Metrics:
    """Everything the page shows but the gauges, which the scheduler knows. Times are in seconds."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    rejections: int = 0
    success: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(_TTFT_BUCKETS))
    time_per_output_token: Histogram = field(default_factory=lambda: Histogram(_TPOT_BUCKETS))
    e2e_latency: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    prefill_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    decode_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY_BUCKETS))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_STEP_BUCKETS))
    step_lateness: Histogram = field(default_factory=lambda: Histogram(_LATENESS_BUCKETS))
    step_overruns: int = 0

    def observe_step(self, step: Step, result: StepResult) -> None:
        """Count a finished step."""
        self.prompt_tokens += result.prompt_tokens
        self.generation_tokens += len(result.emitted)
        self.iteration_tokens.observe(step.work.prefill_tokens + step.work.decode_seqs)
        for seq in result.emitted[-len(step.prefills) :] if step.prefills else ():
            if seq.generated == 1 and seq.first_token_ns is not None:
                self.time_to_first_token.observe((seq.first_token_ns - seq.arrival_ns) / 1e9)

    def observe_finished(self, seq: Sequence, end_ns: int) -> None:
        """Count a request whose last byte was handed over at `end_ns`."""
        if seq.first_step_ns is None or seq.first_token_ns is None or seq.end_ns is None:
            raise ValueError("not finished")
        self.e2e_latency.observe((end_ns - seq.arrival_ns) / 1e9)
        self.queue_time.observe((seq.first_step_ns - seq.arrival_ns) / 1e9)
        self.prefill_time.observe((seq.first_token_ns - seq.first_step_ns) / 1e9)
        decode_s = (seq.end_ns - seq.first_token_ns) / 1e9
        self.decode_time.observe(decode_s)
        if seq.output_tokens > 1:
            self.time_per_output_token.observe(decode_s / (seq.output_tokens - 1))


def render(metrics: Metrics, *, model: str, running: int, waiting: int) -> bytes:
    """The page, format text/plain; version=0.0.4."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'engine="0",model_name="{escaped}"'
    lines: list[str] = []

    def simple(name: str, kind: str, text: str, values: Iterable[tuple[str, float]]) -> None:
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))
        lines.extend(f"{name}{{{own}{labels}}} {float(value)!r}" for own, value in values)

    def histogram(name: str, text: str, data: Histogram) -> None:
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} histogram"))
        seen = 0
        for bound, count in zip((*map(repr, data.buckets), "+Inf"), data.counts, strict=True):
            seen += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(seen)!r}')
        lines.append(f"{name}_count{{{labels}}} {float(seen)!r}")
        lines.append(f"{name}_sum{{{labels}}} {data.total!r}")

    for name, kind, text, values in _simple_series(metrics, running, waiting):
        simple(name, kind, text, values)
    for name, text, data in _histograms(metrics):
        histogram(name, text, data)
    return ("\n".join(lines) + "\n").encode()


def _simple_series(
    metrics: Metrics, running: int, waiting: int
) -> tuple[tuple[str, str, str, list[tuple[str, int]]], ...]:
    """Name, kind, help and values, each value with the labels it has of its own."""
    finished = [(f'finished_reason="{reason}",', count) for reason, count in metrics.success.items()]
    rejected = [('reason="max_num_queued_reqs",', metrics.rejections)]
    return (
        ("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", [("", running)]),
        ("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", [("", waiting)]),
        ("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", [("", metrics.prompt_tokens)]),
        (
            "vllm:generation_tokens_total",
            "counter",
            "Number of generation tokens processed.",
            [("", metrics.generation_tokens)],
        ),
        ("vllm:request_success_total", "counter", "Count of successfully processed requests.", finished),
        ("vllm:admission_rejections_total", "counter", "Number of requests rejected by the queue limit.", rejected),
        (
            "tfbench:step_overruns_total",
            "counter",
            "Steps so late that the model's time was set anew.",
            [("", metrics.step_overruns)],
        ),
    )


def _histograms(metrics: Metrics) -> tuple[tuple[str, str, Histogram], ...]:
    """Name, help and data."""
    phase = "Histogram of time spent in {} phase for request."
    return (
        (
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            metrics.time_to_first_token,
        ),
        (
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            metrics.time_per_output_token,
        ),
        ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", metrics.e2e_latency),
        ("vllm:request_queue_time_seconds", phase.format("WAITING"), metrics.queue_time),
        ("vllm:request_prefill_time_seconds", phase.format("PREFILL"), metrics.prefill_time),
        ("vllm:request_decode_time_seconds", phase.format("DECODE"), metrics.decode_time),
        ("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", metrics.iteration_tokens),
        (
            "tfbench:step_lateness_seconds",
            "How late the writes of a step began after the step's end by the step-time model.",
            metrics.step_lateness,
        ),
    )
