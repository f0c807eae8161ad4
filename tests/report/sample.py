"""Builds synthetic studies from rows shaped like the warehouse's and the metrics'."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfbench.metrics.courses import Course
from tfbench.report.cdf import POINTS, empirical_cdf
from tfbench.report.data import assemble
from tfbench.report.model import Cdf, Definition, LoadPoint, ReportData

Row = dict[str, Any]

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "javascript:alert(3)",
    '"><svg onload=alert(4)>',
    '<a href="javascript:alert(5)">x</a>',
    "{{ 7 * 7 }} {% raw %} %{x} $\\alpha$ <b>bold</b> &lt;i&gt; \u2028\u2029\u202e]]><!-- @s1",
)

MANIFEST: Row = {
    "schema_version": 1,
    "name": "chat-8b",
    "model": {"name": "llama-3.1-8b", "revision": None},
    "engine": {"name": "vllm", "version": "0.12.0"},
    "topology": {"gpu": "H100", "gpus": 1},
    "endpoint": {"adapter": "vllm", "url": "http://127.0.0.1:8000/v1"},
    "sampling": {"max_tokens": None, "temperature": 0.0},
    "workload": {"kind": "synthetic", "input_tokens": 512, "output_tokens": 128},
    "load": {"mode": "open", "process": "poisson", "rates": [2, 4, 8], "duration_s": 60, "repeats": 5, "seed": 7},
    "slo": {"ttft_ms": 500, "tpot_ms": {"max": 40}, "icl_ms": {"p99": 100}, "e2e_ms": None},
    "quality": {"judge": "none"},
    "cost": {"currency": "USD", "resources": [{"name": "H100", "hourly": 2.5, "count": 1}]},
}

STEMS = ("ttft", "ttft_service", "tpot", "icl", "e2e", "client_lag")
T_RUNS = "t on log of runs (K=5)"


@dataclass
class Sample:
    """Rows under construction; `data` gives the report's data."""

    manifest: Row = field(default_factory=lambda: json.loads(json.dumps(MANIFEST)))
    mode: str = "open"
    runs: list[Row] = field(default_factory=list)
    verdicts: list[Row] = field(default_factory=list)
    figures: list[Row] = field(default_factory=list)
    run_figures: list[Row] = field(default_factory=list)
    outcomes: list[Row] = field(default_factory=list)
    errors: list[Row] = field(default_factory=list)
    cdfs: list[Cdf] = field(default_factory=list)
    counts: list[Row] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=lambda: list(DEFINITIONS))
    host: Row = field(default_factory=lambda: {"name": "bench-1", "cpus": 16, "kernel": "6.1", "stamps": "kernel"})

    def data(self, courses: Sequence[Course] = ()) -> ReportData:
        """The report's data."""
        study = {
            "study_id": "st_0123456789abcdef",
            "manifest_id": "a" * 64,
            "workload_id": "b" * 64,
            "system_id": "c" * 64,
            "manifest": json.dumps(self.manifest),
            "created_ns": 1_790_000_000_000_000_000,
            "tfbench_version": "0.1.0",
            "host": json.dumps(self.host),
        }
        return assemble(
            study=study,
            runs=self.runs,
            verdicts=self.verdicts,
            figures=self.figures,
            run_figures=self.run_figures,
            outcomes=self.outcomes,
            errors=self.errors,
            cdfs=self.cdfs,
            counts=self.counts,
            definitions=self.definitions,
            courses=courses,
        )

    def add_runs(
        self,
        load: float,
        repeats: int,
        *,
        arm: str | None = None,
        validity: Callable[[int], str | None] = lambda _: "VALID",
        stability: Callable[[int], str | None] = lambda _: "stable",
        lag_ms: float = 0.21,
        reasons: Sequence[str] = (),
        origin: str = "measured",
        status: str = "complete",
        slow: bool = False,
    ) -> None:
        """One run per repeat with its signals and verdicts; `slow`: INVALID ones are so for the client's lag alone."""
        for repeat in range(repeats):
            run_id = f"run-{load:g}-{arm or ''}-{repeat}"
            start = 1_790_000_000_000_000_000 + repeat * 10**11
            lag = lag_ms * (1 + 0.1 * repeat)
            sent = 0.97 if validity(repeat) == "INVALID" and not slow else 1.0
            signals = {
                "client_lag_p99_ms": {"value": lag, "limit": 5.0, "unit": "ms", "relation": "<=", "ok": lag <= 5},
                "sent_share": {"value": sent, "limit": 0.99, "unit": "", "relation": ">=", "ok": sent >= 0.99},
                "blurred_chunk_share": {
                    "value": 0.0004 * (repeat + 1),
                    "limit": 0.01,
                    "unit": "",
                    "relation": "<=",
                    "ok": True,
                },
                "kernel_to_user_lag_p99_ms": {"value": 0.4, "limit": 5.0, "unit": "ms", "relation": "<=", "ok": True},
                "worker_cpu_max_share": {"value": 0.31, "limit": 0.7, "unit": "", "relation": "<=", "ok": True},
                "clock_steps": {"value": 0, "limit": 0, "unit": "", "relation": "<=", "ok": True},
                "dead_workers": 0.0,
                "telemetry": None,
                "stamp_source": "kernel",
            }
            self.runs.append(
                {
                    "run_id": run_id,
                    "study_id": "st_0123456789abcdef",
                    "mode": self.mode,
                    "load_value": load,
                    "repeat": repeat,
                    "order_index": len(self.runs),
                    "arm": arm,
                    "seed": 2**62 + repeat,
                    "schedule_sha256": f"{repeat:x}" * 64,
                    "cache_state": "cold",
                    "status": status,
                    "measure_start_ns": start,
                    "measure_end_ns": start + 60 * 10**9,
                    "observed": json.dumps({"models": ["llama-3.1-8b"]}),
                    "signals": json.dumps(signals),
                    "origin": origin,
                }
            )
            for kind, verdict in (("validity", validity(repeat)), ("stability", stability(repeat))):
                if verdict is not None:
                    bad = verdict in {"INVALID", "unstable"}
                    self.verdicts.append(
                        {
                            "run_id": run_id,
                            "ruleset": "tfbench/1",
                            "kind": kind,
                            "verdict": verdict,
                            "reasons": json.dumps(list(reasons) if bad else []),
                        }
                    )

    def add_figure(self, load: float, name: str, unit: str, value: float | None, **more: Any) -> None:
        """One figures row; lo and hi default to 4 % around the value."""
        row: Row = {
            "load_value": load,
            "arm": None,
            "figure": name,
            "unit": unit,
            "direction": "higher" if "good" in name or "throughput" in name else "lower",
            "value": math.nan if value is None else value,
            "lo": None if value is None else value * 0.96,
            "hi": None if value is None else value * 1.04,
            "level": 0.95,
            "method": T_RUNS,
            "n": int(load * 60) * 5 if math.isfinite(load) else 400,
            "n_eff": None,
            "k": 5,
            "settled": value is not None,
            "reason": None,
        }
        self.figures.append(row | more)

    def add_latency(self, load: float, stem: str, median: float, spread: float = 1.7, **more: Any) -> None:
        """P50, P95, P99 of one latency, and each run's own."""
        for p, factor in ((50, 1.0), (95, spread**1.6), (99, spread**2.3)):
            name = f"{stem}_p{p}_ms"
            width = {50: 0.03, 95: 0.07, 99: 0.16}[p]
            value = median * factor
            self.add_figure(load, name, "ms", value, **({"lo": value * (1 - width), "hi": value * (1 + width)} | more))
            for repeat in range(more.get("k", 5)):
                self.run_figures.append(
                    {
                        "run_id": f"run-{load:g}-{more.get('arm') or ''}-{repeat}",
                        "load_value": load,
                        "arm": more.get("arm"),
                        "repeat": repeat,
                        "figure": name,
                        "unit": "ms",
                        "value": value * (1 + width * 0.8 * math.sin(2.1 * repeat + p)),
                        "n": int(load * 60) if math.isfinite(load) else 400,
                        "reason": None,
                    }
                )

    def withhold(self, load: float, stem: str, reason: str) -> None:
        """The three quantiles of a latency, withheld."""
        for p in (50, 95, 99):
            self.add_figure(load, f"{stem}_p{p}_ms", "ms", None, reason=reason, method=None)

    def add_work(self, load: float, achieved: float, good: float, tokens: float = 120.0) -> None:
        """Throughput, goodput, good fraction, tokens and cost."""
        n = int(load * 60) * 5 if math.isfinite(load) else 400
        self.add_figure(load, "throughput_requests_per_s", "requests/s", achieved)
        self.add_figure(load, "throughput_output_tokens_per_s", "tokens/s", achieved * tokens)
        self.add_figure(load, "goodput_requests_per_s", "requests/s", achieved * good)
        self.add_figure(
            load, "good_fraction", "1", good, lo=max(good - 0.02, 0.0), hi=min(good + 0.01, 0.9999),
            method="Clopper-Pearson on the effective n between runs (K=5)", n_eff=n * 0.7,
        )  # fmt: skip
        self.add_figure(load, "qualified_output_tokens_per_s", "tokens/s", achieved * good * tokens)
        cost = 2.5 / 3600 * 1e6 / (achieved * good * tokens)
        self.add_figure(load, "cost_per_million_qualified_tokens", "USD/Mtok", cost)

    def add_outcomes(self, load: float, repeats: int, counts: dict[str, int], arm: str | None = None) -> None:
        """Outcome counts per repeat in the measured phase, and some warm-up."""
        for repeat in range(repeats):
            for outcome, n in counts.items():
                self.outcomes.append(
                    {"load_value": load, "arm": arm, "repeat": repeat, "phase": "measure", "outcome": outcome, "n": n}
                )
            self.outcomes.append(
                {"load_value": load, "arm": arm, "repeat": repeat, "phase": "warmup", "outcome": "ok", "n": 20}
            )

    def add_cdfs(
        self,
        load: float,
        medians: dict[str, float],
        repeats: int,
        failed: int = 0,
        arm: str | None = None,
        points: int = POINTS,
    ) -> None:
        """A lognormal distribution per metric."""
        rng = np.random.default_rng(int(load * 10) if math.isfinite(load) else 1)
        n = max(int(load * 60) if math.isfinite(load) else 400, 30)
        for metric, median in medians.items():
            runs = []
            for _ in range(repeats):
                x = median * np.exp(rng.normal(0, 0.35, n))
                if metric in {"ttft", "e2e"}:
                    x[: failed // repeats] = np.inf
                runs.append((x, np.ones(n, dtype=np.int64)))
            cdf = empirical_cdf(LoadPoint(load, arm), metric, runs, points)
            if cdf is not None:
                self.cdfs.append(cdf)


DEFINITIONS = (
    Definition(
        "ttft_p50_ms", "ms", "lower", "Median of first visible chunk − scheduled time, over all counted attempts.",
        "MLPerf LoadGen", (("aiperf", "time_to_first_token"), ("vllm", "median_ttft_ms (from sent)")),
    ),
    Definition("good_fraction", "1", "higher", "Good ÷ counted attempts scheduled in the window.", "DistServe", ()),
)  # fmt: skip
