"""Every figure's definition: name, unit, direction, words, source, aliases in other tools, and the SQL of its facts.

The SQL reads `attempt_facts` (sql/attempts.sql) and is run in order of `seq`: by run, then schedule. What it must give
depends on the figure's `kind`:

| kind | columns of the SQL | the run's figure |
|---|---|---|
| quantile | run_index, value | the `p`-quantile of value; +inf is a failure |
| chunk_quantile | run_index, value (a list) | the `p`-quantile over the elements of all lists |
| fraction | run_index, value (boolean), score (latency ÷ limit; false above 1, +inf: failed) | the share of true |
| rate | run_index, end_ns, value | sum of value ÷ window in seconds |
| cost | run_index, end_ns, value | cost of the whole window × 1e6 ÷ sum of value |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["lower", "higher"]
Kind = Literal["quantile", "chunk_quantile", "fraction", "rate", "cost"]

QUANTILES = (50, 95, 99)


@dataclass(frozen=True)
class FigureDef:
    """One named definition.

    direction: which way is better. words: the formula. source: where the formula comes from.
    aliases: tool -> its name for the same formula (the nearest one; what differs is in `words`).
    p: the quantile, for quantile kinds. empty: why there is no value when the SQL gives no rows.
    size_sql: rows whose mean value says what one more event would add, for the bound when there was none; None = 1.
    counts: for rates and costs, the fraction whose attempts they count: its correlation says how long runs have to be.
    arrivals: for rates, whether they are of the span of arrivals, by when attempts were scheduled, not of the window.
    arrived_sql: for rates over the window, the same amounts of the attempts scheduled in it: the rate between arrivals.
    """

    name: str
    unit: str
    direction: Direction | None
    words: str
    source: str
    aliases: Mapping[str, str]
    sql: str
    kind: Kind
    p: float | None = None
    empty: str = "no counted attempts"
    size_sql: str | None = None
    counts: str | None = None
    arrivals: bool = False
    arrived_sql: str | None = None


@dataclass(frozen=True)
class _Family:
    stem: str
    column: str
    words: str
    source: str
    empty: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    where: str = "counted"
    kind: Kind = "quantile"

    def figures(self) -> tuple[FigureDef, ...]:
        where = f"{self.where} AND {self.column} IS NOT NULL"
        sql = f"SELECT run_index, {self.column} AS value FROM attempt_facts WHERE {where}"
        return tuple(
            FigureDef(
                name=f"{self.stem}_p{percent}_ms",
                unit="ms",
                direction="lower",
                words=f"P{percent} of {self.words}",
                source=self.source,
                aliases=self.aliases,
                sql=sql,
                kind=self.kind,
                p=percent / 100,
                empty=self.empty,
            )
            for percent in QUANTILES
        )


_LOADGEN = "MLPerf Inference LoadGen: latency from the scheduled time"
_SERVICE = "vLLM bench serve, AIPerf, GuideLLM: latency from the send"
_PER_TOKEN = "vLLM bench serve, MLPerf LoadGen: (latency − TTFT) ÷ (n − 1)"
_NO_OUTPUT = "no counted attempt whose output is known"
_NO_TPOT = "no counted attempt with two output chunks and a known number of output tokens over one"

_FAMILIES = (
    _Family(
        "ttft",
        "ttft_or_inf_ms",
        "first visible chunk − scheduled, over all counted attempts; an ok answer that shows nothing though tokens came"
        " has its first output chunk, an attempt without any output +inf",
        _LOADGEN,
        _NO_OUTPUT,
        {"mlperf-loadgen": "result_first_token_NN.NN_percentile_latency_ns"},
    ),
    _Family(
        "ttft_service",
        "ttft_service_or_inf_ms",
        "first visible chunk − sent, over all counted attempts; an ok answer that shows nothing though tokens came has"
        " its first output chunk, an attempt without any output +inf (other tools leave failures out)",
        _SERVICE,
        _NO_OUTPUT,
        {
            "vllm": "ttft",
            "sglang": "ttft",
            "aiperf": "time_to_first_token",
            "guidellm": "time_to_first_token_ms",
            "inference-perf": "time_to_first_token",
            "genai-bench": "ttft",
            "llmperf": "ttft_s",
        },
    ),
    _Family(
        "ttft_ok",
        "ttft_ms",
        "first visible chunk − scheduled, over counted attempts with outcome ok only; of one that shows nothing though"
        " tokens came, its first output chunk",
        _LOADGEN,
        "no ok attempt showed output",
        where="counted AND ok",
    ),
    _Family(
        "tpot",
        "tpot_or_inf_ms",
        "(last output chunk − first output chunk) ÷ (output_tokens − 1), over all counted attempts; a bad one without"
        " it has +inf, an ok one without it (one token, one chunk, or an unknown count) is left out, as n says",
        _PER_TOKEN,
        _NO_TPOT,
        {
            "vllm": "tpot",
            "sglang": "tpot",
            "aiperf": "inter_token_latency",
            "guidellm": "inter_token_latency_ms",
            "inference-perf": "time_per_output_token",
            "genai-bench": "tpot",
            "mlperf-loadgen": "result_time_per_output_token_NN.NN_percentile_ns",
        },
    ),
    _Family(
        "tpot_ok",
        "tpot_ms",
        "(last output chunk − first output chunk) ÷ (output_tokens − 1), over counted attempts with outcome ok only",
        _PER_TOKEN,
        _NO_TPOT,
        where="counted AND ok",
    ),
    _Family(
        "tpot_after_first",
        "tpot_after_first_or_inf_ms",
        "(last output chunk − first output chunk) ÷ output tokens after the first chunk, over all counted attempts; a"
        " bad one without it has +inf, an ok one without it (unknown tokens in the first chunk) is left out, as n says",
        "MLPerf Endpoints: (complete − first chunk) ÷ tokens after the first chunk",
        "no counted attempt whose first chunk's tokens are known",
        {"mlperf-endpoints": "tpot", "aiperf": "inter_token_latency (with --per-chunk-usage)"},
    ),
    _Family(
        "e2e",
        "e2e_or_inf_ms",
        "end − scheduled, over all counted attempts; a bad one has +inf",
        _LOADGEN,
        "no counted attempt whose end is known",
        {"mlperf-loadgen": "result_NN.NN_percentile_latency_ns", "guidellm": "request_scheduled_latency"},
    ),
    _Family(
        "e2e_service",
        "e2e_service_or_inf_ms",
        "end − sent, over all counted attempts; a bad one has +inf",
        _SERVICE,
        "no counted attempt whose send and end are known",
        {
            "vllm": "e2el",
            "sglang": "e2e_latency",
            "aiperf": "request_latency",
            "guidellm": "request_latency",
            "inference-perf": "request_latency",
            "genai-bench": "e2e_latency",
            "llmperf": "end_to_end_latency_s",
        },
    ),
    _Family(
        "e2e_ok",
        "e2e_ms",
        "end − scheduled, over counted attempts with outcome ok only",
        _LOADGEN,
        "no ok attempt",
        where="counted AND ok",
    ),
    _Family(
        "icl",
        "gaps_ms",
        "the gaps between adjacent output chunks, all gaps of all counted attempts pooled, whatever their outcome",
        "AIPerf: inter_chunk_latency",
        "no counted attempt with two output chunks",
        {"vllm": "itl", "sglang": "itl (OpenAI backends)", "aiperf": "inter_chunk_latency"},
        where="counted AND n_output_chunks >= 2",
        kind="chunk_quantile",
    ),
    _Family(
        "itl",
        "gaps_ms",
        "the gaps between adjacent output chunks, only of counted attempts whose every output chunk is known to carry"
        " one token",
        "the ICL where a chunk is a token",
        "no counted attempt with two output chunks that are each known to carry one token",
        where="counted AND n_output_chunks >= 2 AND one_token_per_chunk",
        kind="chunk_quantile",
    ),
    _Family(
        "client_lag",
        "client_lag_ms",
        "(dispatched − due) + (sent − ready), over counted attempts that were sent; due = slot grant if there is one,"
        " else scheduled; ready = connected for a new connection, else dispatched",
        "tfbench: the load side's own delay, kept apart from response latency",
        "no counted attempt whose dispatch and send are known",
        {"guidellm": "request_dispatch_delay", "aiperf": "replay_sched_lag", "fortio": "sleep falling behind"},
    ),
)

_ARRIVED = "SELECT run_index, scheduled_ns AS end_ns, {} AS value FROM attempt_facts WHERE counted"
_SPAN = (
    "attempts scheduled in the window ÷ the span of arrivals (n of them span n mean gaps; the window itself in runs by"
    " duration). It holds no drain: this is the system's rate where the system keeps up; where a queue grows, so that"
    " work arrives faster than it is done, the rate over the window is. None where all arrive at once"
)
_ENDED = "FROM attempt_facts WHERE eligible AND in_window"
_OK_SIZES = "SELECT run_index, end_ns, {} AS value FROM attempt_facts WHERE eligible AND ok"
_WINDOW = "attempts that ended in the window ÷ window"

_OTHERS = (
    FigureDef(
        name="throughput_requests_per_s",
        unit="requests/s",
        direction="higher",
        words=f"ok {_WINDOW}",
        source="vLLM bench serve: completed ÷ duration, with the measured window as duration",
        aliases={
            "vllm": "request_throughput",
            "sglang": "request_throughput",
            "aiperf": "request_throughput",
            "guidellm": "requests_per_second",
            "genai-bench": "requests_per_second",
            "mlperf-loadgen": "result_completed_samples_per_sec",
        },
        sql=f"SELECT run_index, end_ns, 1 AS value {_ENDED} AND ok",
        kind="rate",
        arrived_sql=f"{_ARRIVED.format(1)} AND ok",
        counts="ok_fraction",
    ),
    FigureDef(
        name="throughput_output_tokens_per_s",
        unit="tokens/s",
        direction="higher",
        words=f"output_tokens of ok {_WINDOW}; a lower bound where some ok attempts' tokens are unknown",
        source="vLLM bench serve: output tokens of completed requests ÷ duration, with the measured window as duration",
        aliases={
            "vllm": "output_throughput",
            "sglang": "output_throughput",
            "aiperf": "output_token_throughput",
            "guidellm": "output_tokens_per_second",
            "genai-bench": "mean_output_throughput_tokens_per_s",
            "mlperf-loadgen": "result_completed_tokens_per_second",
        },
        sql=f"SELECT run_index, end_ns, output_tokens AS value {_ENDED} AND ok",
        kind="rate",
        arrived_sql=f"{_ARRIVED.format('output_tokens')} AND ok",
        counts="ok_fraction",
        size_sql=_OK_SIZES.format("output_tokens"),
    ),
    FigureDef(
        name="goodput_requests_per_s",
        unit="requests/s",
        direction="higher",
        words=f"good {_WINDOW}; good = ok, every SLO term met, quality passed",
        source="DistServe (OSDI 2024): requests within their SLO per second; nulls and failures as in the words",
        aliases={
            "vllm": "request_goodput",
            "aiperf": "goodput",
            "guidellm": "request_goodput",
            "inference-perf": "request_goodput",
        },
        sql=f"SELECT run_index, end_ns, 1 AS value {_ENDED} AND good",
        kind="rate",
        arrived_sql=f"{_ARRIVED.format(1)} AND good",
        counts="good_fraction",
    ),
    FigureDef(
        name="throughput_between_arrivals_requests_per_s",
        unit="requests/s",
        direction="higher",
        words=f"ok {_SPAN}",
        source="tfbench: stands beside throughput where its window holds drain",
        aliases={},
        sql=f"{_ARRIVED.format(1)} AND ok",
        kind="rate",
        counts="ok_fraction",
        arrivals=True,
    ),
    FigureDef(
        name="goodput_between_arrivals_requests_per_s",
        unit="requests/s",
        direction="higher",
        words=f"good {_SPAN}",
        source="tfbench: stands beside goodput where its window holds drain",
        aliases={},
        sql=f"{_ARRIVED.format(1)} AND good",
        kind="rate",
        counts="good_fraction",
        arrivals=True,
    ),
    FigureDef(
        name="good_fraction",
        unit="1",
        direction="higher",
        words="good ÷ counted attempts scheduled in the window (counted: ok or in accounting.bad)",
        source="DistServe (OSDI 2024): SLO attainment, over every scheduled attempt",
        aliases={
            "aiperf": "good_request_fraction",
            "guidellm": "slo_attainment",
            "inference-perf": "goodput_percentage",
        },
        sql="SELECT run_index, good AS value, strain AS score FROM attempt_facts WHERE counted",
        kind="fraction",
    ),
    FigureDef(
        name="ok_fraction",
        unit="1",
        direction="higher",
        words="ok ÷ counted attempts scheduled in the window",
        source="tfbench: stands beside every cost",
        aliases={"genai-bench": "1 − error_rate"},
        sql="SELECT run_index, ok AS value, fail_strain AS score FROM attempt_facts WHERE counted",
        kind="fraction",
    ),
    FigureDef(
        name="qualified_output_tokens_per_s",
        unit="tokens/s",
        direction="higher",
        words=f"output_tokens of good {_WINDOW}; a lower bound where some good attempts' tokens are unknown",
        source="tfbench: tokens of attempts that met the SLO and passed quality",
        aliases={"guidellm": "output_token_goodput", "inference-perf": "token_goodput"},
        sql=f"SELECT run_index, end_ns, output_tokens AS value {_ENDED} AND good",
        kind="rate",
        arrived_sql=f"{_ARRIVED.format('output_tokens')} AND good",
        counts="good_fraction",
        size_sql=_OK_SIZES.format("output_tokens"),
    ),
    FigureDef(
        name="qualified_input_tokens_per_s",
        unit="tokens/s",
        direction="higher",
        words=f"prompt_tokens (cached ones among them) of good {_WINDOW}; a lower bound where some of them are unknown",
        source="tfbench: tokens of attempts that met the SLO and passed quality",
        aliases={},
        sql=f"SELECT run_index, end_ns, prompt_tokens AS value {_ENDED} AND good",
        kind="rate",
        arrived_sql=f"{_ARRIVED.format('prompt_tokens')} AND good",
        counts="good_fraction",
        size_sql=_OK_SIZES.format("prompt_tokens"),
    ),
    FigureDef(
        name="cost_per_million_qualified_tokens",
        unit="currency/Mtok",
        direction="lower",
        words="cost of the whole window (Σ hourly × count of [cost] resources) × 1e6 ÷ output_tokens of good attempts"
        " that ended in it; with no such token a lower bound, with unknown tokens an upper bound",
        source="c = 1e6 · H ÷ (3600 · G) with G = qualified output tokens per second",
        aliases={"inferencex": "cost per million tokens (counts all tokens, not only good ones)"},
        sql=f"SELECT run_index, end_ns, output_tokens AS value {_ENDED} AND good",
        kind="cost",
        counts="good_fraction",
        size_sql=_OK_SIZES.format("output_tokens"),
    ),
)

FIGURES: Mapping[str, FigureDef] = {
    figure.name: figure for figure in (*(figure for family in _FAMILIES for figure in family.figures()), *_OTHERS)
}
"""Every figure by name, in the order reports print them."""
