"""Studies that between them have every edge a report must show."""

import json
import math
from collections.abc import Callable, Sequence

from tests.report.sample import HOSTILE, STEMS, Sample
from tfbench.core.kinds import Outcome
from tfbench.report.model import Definition, ReportData

PROFILES = ("h100-llama-3.1-8b-chunked", "h100-llama-3.1-8b-static")
MEDIANS = {"ttft": 80.0, "tpot": 11.0, "icl": 10.5, "e2e": 1500.0}


def healthy() -> ReportData:
    """Three valid, stable load points, K = 5, everything settled."""
    sample = Sample()
    for load, slow, good in ((2.0, 1.0, 0.995), (4.0, 1.15, 0.991), (8.0, 1.9, 0.942)):
        sample.add_runs(load, 5)
        for stem in STEMS:
            median = {"ttft": 80, "ttft_service": 79, "tpot": 11, "icl": 10.5, "e2e": 1500, "client_lag": 0.05}[stem]
            sample.add_latency(load, stem, median * (slow if stem != "client_lag" else 1))
        sample.add_work(load, load * 0.995, good)
        bad = round(load * 60 * (1 - good))
        sample.add_outcomes(load, 5, {"ok": int(load * 60) - bad, "timeout": bad})
        sample.add_cdfs(load, {k: v * slow for k, v in MEDIANS.items()}, 5, failed=bad)
    sample.counts = [
        {
            "load_value": 2.0,
            "arm": None,
            "counted": 120,
            "excluded": 1,
            "vacuous": r,
            "term_unknown": 0,
            "tokens_unknown": 0,
        }
        for r in (2, 1)
    ]
    return sample.data()


def troubled(words: Sequence[str] = HOSTILE) -> ReportData:
    """Every kind of trouble at once, with hostile names and error texts."""
    sample = Sample()
    sample.manifest["name"] = words[0]
    sample.manifest["model"]["name"] = words[1]
    sample.manifest["engine"]["name"] = words[2]
    sample.manifest["topology"]["gpu"] = words[3]
    sample.manifest["cost"]["currency"] = words[4]
    sample.host = {"name": words[0], words[1]: words[5]}
    few = "P99 not settled: n_eff·(1−p) = 2.3 < 10 in 5 of 5 runs"
    sample.add_runs(2.0, 5, reasons=())
    sample.add_runs(
        4.0, 5, validity=lambda r: "INVALID" if r in (1, 3) else "VALID", lag_ms=4.7,
        reasons=("client lag p99 5.17 ms > 5 ms", words[0]),
    )  # fmt: skip
    sample.add_runs(
        8.0, 5, stability=lambda _: "unstable", reasons=("backlog grows by 1.9 [1.4, 2.3] attempts/s", words[1])
    )
    sample.add_runs(16.0, 5, status="interrupted", validity=lambda _: None, stability=lambda _: None)
    sample.add_runs(32.0, 3, validity=lambda _: "INVALID", reasons=(words[5],))
    for stem in ("ttft", "tpot", "icl", "e2e", "client_lag"):
        sample.add_latency(2.0, stem, 80.0 if stem != "client_lag" else 0.05)
        sample.add_latency(4.0, stem, 110.0 if stem != "client_lag" else 1.0, settled=False, hi=None, reason=few)
        sample.withhold(8.0, stem, f"withheld: unstable {words[0]}")
        for p in (50, 95, 99):
            sample.add_figure(
                16.0,
                f"{stem}_p{p}_ms",
                "ms",
                None,
                lo=700.0 + p,
                reason=f"over 1 − p of the attempts failed {words[1]}",
                settled=False,
                method="approximate: ranks with n_eff, measured coverage ≈ 91 %",
                n_eff=88.0,
            )
    sample.add_work(2.0, 1.99, 0.99)
    sample.add_work(4.0, 3.9, 0.9)
    for load in (8.0, 16.0):
        sample.add_figure(load, "throughput_requests_per_s", "requests/s", load / 2)
        sample.add_figure(
            load,
            "goodput_requests_per_s",
            "requests/s",
            0.0,
            lo=None,
            hi=0.2,
            reason="no good attempt: upper bound only",
        )
        sample.add_figure(
            load, "good_fraction", "1", 0.0, lo=None, hi=0.012, reason="no good attempt: upper bound only"
        )
        sample.add_figure(
            load, "cost_per_million_qualified_tokens", "USD/Mtok", None, lo=91.2, settled=False,
            reason="zero qualified tokens: lower bound only",
        )  # fmt: skip
    every = {str(outcome): 7 + 3 * i for i, outcome in enumerate(Outcome)}
    sample.add_outcomes(2.0, 5, {"ok": 119, "unsent": 1})
    sample.add_outcomes(4.0, 5, every)
    sample.add_outcomes(8.0, 5, {"ok": 300, "timeout": 180, words[4]: 3})
    sample.add_outcomes(16.0, 5, {"rejected": 960})
    for word in words:
        sample.errors.append(
            {"load_value": 4.0, "arm": None, "outcome": "http_error", "http_status": 500, "error": word, "n": 12}
        )
    sample.errors.append(
        {"load_value": 16.0, "arm": None, "outcome": "rejected", "http_status": math.nan, "error": None, "n": 4800}
    )
    sample.add_cdfs(2.0, MEDIANS, 5)
    sample.add_cdfs(4.0, {k: v * 1.4 for k, v in MEDIANS.items()}, 5, failed=60)
    sample.add_cdfs(8.0, {k: v * 9 for k, v in MEDIANS.items()}, 5, failed=200)
    sample.definitions = [Definition(words[0], words[1], None, words[2], words[3], ((words[4], words[5]),))]
    return sample.data()


def lone() -> ReportData:
    """One load point (all at once), one run, nothing streamed, no cost, a simulated system, few attempts."""
    sample = Sample()
    sample.manifest["cost"] = {"currency": "USD", "resources": []}
    sample.manifest["slo"] = {}
    sample.add_runs(math.inf, 1, origin="simulated")
    one = "approximate: ranks with n_eff, measured coverage ≈ 91 % (K=1)"
    for stem in ("ttft", "tpot", "icl"):
        sample.withhold(math.inf, stem, "no streamed chunks")
    sample.add_latency(
        math.inf,
        "e2e",
        900.0,
        method=one,
        k=1,
        n=40,
        n_eff=31.0,
        hi=None,
        settled=False,
        reason="n = 40 can't carry it",
    )
    sample.add_latency(math.inf, "client_lag", 0.04, method=one, k=1, n=40, n_eff=31.0)
    sample.add_figure(
        math.inf, "throughput_requests_per_s", "requests/s", 11.0, method="time blocks (K=1), approximate", k=1
    )
    sample.add_figure(
        math.inf, "goodput_requests_per_s", "requests/s", 11.0, method="time blocks (K=1), approximate", k=1
    )
    sample.add_figure(
        math.inf, "good_fraction", "1", 1.0, lo=0.9119, hi=None, reason="all good: lower bound only", k=1, n=40,
        method="Clopper-Pearson on pooled n_eff, approximate (K=1)",
    )  # fmt: skip
    sample.add_figure(
        math.inf, "cost_per_million_qualified_tokens", "USD/Mtok", None, reason="the manifest names no cost"
    )
    sample.add_outcomes(math.inf, 1, {"ok": 40})
    sample.add_cdfs(math.inf, {"e2e": 900.0}, 1)
    return sample.data()


def all_failed() -> ReportData:
    """Every attempt of every run failed: no value anywhere but counts."""
    sample = Sample()
    for load in (2.0, 4.0):
        sample.add_runs(load, 2)
        for stem in STEMS:
            sample.withhold(load, stem, "every attempt failed")
        sample.add_outcomes(load, 2, {"connect_error": int(load * 60)})
        sample.add_figure(load, "good_fraction", "1", 0.0, lo=None, hi=0.03, reason="no good attempt", k=2)
        sample.errors.append(
            {
                "load_value": load,
                "arm": None,
                "outcome": "connect_error",
                "http_status": None,
                "error": "connection refused",
                "n": 240,
            }
        )
    return sample.data()


def arms() -> ReportData:
    """Two arms of a closed loop, a judged quality, values over four decades."""
    sample = Sample(mode="closed")
    sample.manifest["quality"] = {"judge": "exact"}
    for load in (1.0, 4.0, 16.0, 64.0):
        for arm, factor in (("base", 1.0), ("candidate", 0.8)):
            sample.add_runs(load, 5, arm=arm)
            sample.add_latency(load, "ttft", 20 * factor * load**1.5, arm=arm)
            sample.add_outcomes(load, 5, {"ok": 100}, arm=arm)
            sample.add_cdfs(load, {"ttft": 20 * factor * load**1.5}, 5, arm=arm)
    return sample.data()


def profiles(done: int = 12, origin: str = "simulated") -> ReportData:
    """Two simulated profiles whose names begin alike as arms; of the 12 planned runs the first `done` were made."""
    sample = Sample()
    sample.manifest["load"] |= {"rates": [4, 16], "repeats": 3}
    sample.host |= {"simulated": True, "profiles": list(PROFILES)}
    for load in (4.0, 16.0):
        for name, good in zip(PROFILES, (0.945, 0.6), strict=True):
            sample.add_runs(load, 3, arm=name, origin=origin)
            sample.add_figure(load, "goodput_requests_per_s", "requests/s", load * good, arm=name)
            sample.add_figure(load, "client_lag_p99_ms", "ms", 0.0, arm=name)
            sample.add_outcomes(load, 3, {"ok": 100}, arm=name)
    for run in sample.runs:
        run["observed"] = json.dumps({"profile": run["arm"]})
    sample.runs.sort(key=lambda run: (run["repeat"], run["load_value"], run["arm"]))
    del sample.runs[done:]
    return sample.data()


def closed() -> ReportData:
    """A closed loop: nobody judged its stability, and no share sent can be told of a plan that has no number."""
    sample = Sample(mode="closed")
    for load in (1.0, 4.0):
        sample.add_runs(load, 5, stability=lambda _: None)
        sample.add_latency(load, "ttft", 20 * load)
        sample.add_work(load, load, 0.97)
        sample.add_outcomes(load, 5, {"ok": 100})
        sample.add_cdfs(load, {"ttft": 20 * load}, 5)
    for run in sample.runs:
        signals = json.loads(run["signals"])
        signals["sent_share"] |= {"value": None, "ok": None}
        signals["scheduled_requests"] = {"value": None, "limit": None, "unit": "", "relation": ">=", "ok": None}
        run["signals"] = json.dumps(signals)
    sample.counts = [
        {"load_value": 4.0, "arm": None, "counted": 100, "excluded": 0, "vacuous": 0, "term_unknown": 7,
         "tokens_unknown": 7}
    ] * 5  # fmt: skip
    return sample.data()


def at_zero() -> ReportData:
    """Every duration is 0, as of a server that sends whole answers at once; every rate and price too."""
    sample = Sample()
    for load in (2.0, 4.0):
        sample.add_runs(load, 2)
        for stem in STEMS:
            for p in (50, 95, 99):
                sample.add_figure(load, f"{stem}_p{p}_ms", "ms", 0.0, lo=None, hi=None, reason="no spread")
        for name in ("throughput_requests_per_s", "goodput_requests_per_s", "cost_per_million_qualified_tokens"):
            sample.add_figure(load, name, "requests/s", 0.0, lo=None, hi=None, reason="nothing counted")
        sample.add_outcomes(load, 2, {"ok": 100})
        sample.add_cdfs(load, dict.fromkeys(MEDIANS, 0.0), 2)
    return sample.data()


def searched() -> ReportData:
    """A capacity search: loads with unlike numbers of runs, and its answer at the last run."""
    sample = Sample()
    for load, runs, good in ((2.0, 1, 0.999), (4.0, 4, 0.994), (5.6, 8, 0.99), (8.0, 4, 0.7)):
        sample.add_runs(load, runs)
        for stem in STEMS:
            sample.add_latency(load, stem, MEDIANS.get(stem, 1.0) * (1 + load / 8), k=runs)
        sample.add_work(load, load, good)
        sample.add_outcomes(load, runs, {"ok": 100})
        sample.add_cdfs(load, MEDIANS, runs)
    row = {"runs": 4, "unfit": 0, "unstable": 0, "counted": 900, "level": 0.98, "leans": True, "reason": None}
    evidence = [
        row
        | {"load": 2.0, "value": 1.0, "lo": 0.991, "hi": None, "met": True, "reason": "all of 900: a lower bound only"},
        row | {"load": 4.0, "value": 0.994, "lo": 0.9902, "hi": 0.997, "met": True, "unfit": 2, "n_eff": 340.2},
        row | {"load": 5.6, "value": 0.99, "lo": 0.98, "hi": 0.995, "met": None},
        row | {"load": 8.0, "value": None, "lo": None, "hi": None, "met": False, "reason": HOSTILE[0]},
    ]
    answer = {
        "lo": 4.0,
        "hi": 8.0,
        "confidence": 0.9,
        "status": "wide",
        "limit": "server",
        "reason": HOSTILE[1],
        "runs": 17,
    }
    target = {"figure": "good_fraction", "value": 0.99, "words": "good_fraction ≥ 0.99"}
    sample.verdicts.append(
        {
            "run_id": sample.runs[-1]["run_id"],
            "ruleset": "tfbench/1",
            "kind": "capacity",
            "verdict": "wide",
            "reasons": json.dumps({"target": target, "unit": "requests/s", **answer, "evidence": evidence}),
        }
    )
    return sample.data()


def empty() -> ReportData:
    """A study whose first run never came to an end."""
    return Sample().data()


def bare() -> ReportData:
    """Facts from elsewhere: nearly nothing is known of what was run."""
    sample = Sample(manifest={}, host={}, definitions=[])
    sample.add_runs(2.0, 1, origin="imported:vllm", validity=lambda _: None, stability=lambda _: None)
    sample.runs[0] |= {"signals": None, "observed": None, "seed": None, "schedule_sha256": None, "cache_state": None}
    sample.add_figure(2.0, "ttft_p50_ms", "ms", 12.0, lo=None, hi=None, level=None, method=None, n=None, k=None)
    return sample.data()


SAMPLES: dict[str, Callable[[], ReportData]] = {
    "healthy": healthy,
    "troubled": troubled,
    "lone": lone,
    "all_failed": all_failed,
    "arms": arms,
    "profiles": profiles,
    "closed": closed,
    "at_zero": at_zero,
    "searched": searched,
    "empty": empty,
    "bare": bare,
}
