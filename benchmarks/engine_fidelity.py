"""Client times against the reference engine's own send times: one JSON line.

50 req/s × 64 tokens in 10 ms steps by default. TTFT error = the client's first chunk − the instant
the engine wrote it; ICL error = the client's gap − the engine's. Both clocks are CLOCK_MONOTONIC of
this host, each mapped by its stated offset.
"""

import argparse
import json
import tempfile
from pathlib import Path

import httpx
import numpy as np

import tfbench
from tfbench.core.kinds import VISIBLE_KINDS
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import start_engine
from tfbench.engine.step_time import StepTime

MANIFEST = """
name = "engine-fidelity"
model = {{ name = "tfbench-engine" }}
endpoint = {{ adapter = "tfbench" }}
workload = {{ input_tokens = 32, output_tokens = {tokens} }}
load = {{ rates = [{rate}], duration_s = {duration}, warmup_s = 1, drain_s = 5, repeats = 1, seed = {seed} }}
"""


def quantiles(values_ns: list[int]) -> dict[str, float]:
    """Of absolute errors, in ms."""
    errors = np.abs(np.array(values_ns, dtype=np.float64)) / 1e6
    return {
        "p50": round(float(np.quantile(errors, 0.5)), 4),
        "p99": round(float(np.quantile(errors, 0.99)), 4),
        "max": round(float(errors.max()), 4),
    }


def measure(rate: float, tokens: int, duration: float, seed: int) -> dict[str, object]:
    """One run and its errors."""
    config = EngineConfig(step_time=StepTime(base_ms=10.0, prefill_token_ms=0.0, decode_seq_ms=0.0))
    with tempfile.TemporaryDirectory() as folder, start_engine(config) as engine:
        path = Path(folder) / "manifest.toml"
        path.write_text(MANIFEST.format(rate=rate, tokens=tokens, duration=duration, seed=seed))
        done = tfbench.run_study(tfbench.load_manifest(path, url=engine.url), Path(folder) / "w.duckdb")
        truth = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=60).json()
        with tfbench.Warehouse.open(done.warehouse) as warehouse:
            rows = warehouse.con.execute(
                "SELECT request_id, t_ns, kind, blur_ns FROM attempts JOIN streams USING (run_id, attempt_id)"
                " WHERE phase = 'measure' AND outcome = 'ok'"
            ).fetchall()
            observed, signals = map(
                json.loads, warehouse.con.execute("SELECT observed, signals FROM runs").fetchone() or ("{}", "{}")
            )
            verdict = warehouse.con.execute("SELECT verdict FROM verdicts WHERE kind = 'validity'").fetchone()
    shift = observed["clock_offset_ns"] - truth["clock"]["offset_ns"]
    sent = {one["request_id"]: one["chunks"] for one in truth["requests"]}
    ttft: list[int] = []
    icl: list[int] = []
    inside = 0
    for request_id, times, kinds, blurs in rows:
        chunks = sent[request_id]
        left = [t + shift for t, kind in zip(chunks["sent_ns"], chunks["kind"], strict=True) if kind in VISIBLE_KINDS]
        came = [(t, b) for t, kind, b in zip(times, kinds, blurs, strict=True) if kind in VISIBLE_KINDS]
        assert len(left) == len(came)
        ttft.append(came[0][0] - left[0])
        icl += [(b[0] - a[0]) - (d - c) for a, b, c, d in zip(came, came[1:], left, left[1:], strict=False)]
        inside += sum(t - b - 50_000 <= true <= t + 50_000 for (t, b), true in zip(came, left, strict=True))
    return {
        "rate": rate,
        "tokens": tokens,
        "requests": len(rows),
        "chunks": len(icl) + len(ttft),
        "ttft_error_ms": quantiles(ttft),
        "ttft_median_error_ms": round(float(np.median(ttft)) / 1e6, 4),
        "icl_error_ms": quantiles(icl),
        "truth_inside_blur_share": round(inside / (len(icl) + len(ttft)), 5),
        "stamps": observed["stamps"],
        "client_lag_p99_ms": signals["client_lag_p99_ms"]["value"],
        "validity": verdict[0] if verdict else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--duration", type=float, default=10)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    print(json.dumps(measure(options.rate, options.tokens, options.duration, options.seed)))


if __name__ == "__main__":
    main()
