"""Other load generators beside ours, on the same truth server with the same load: one JSON line per tool and rate.

    python benchmarks/bench_peers.py --rates 50 200 --seconds 8 --tokenizer PATH

Takes what is on PATH of vllm (0.32), aiperf (0.13) and guidellm (0.8), and names what isn't. `says` is the tool's own
figure and `true` the server's: first chunk − request read for TTFT, gaps between sends for gaps. A TTFT may exceed the
truth by the way to the server, some 0.1 ms here. CPU is that of the whole command, its start included.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.study.fidelity import fidelity, offer, prepare, spread_ms, start_truth

CHUNKS = 64
Figures = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """What a tool is asked for; what it writes goes below `folder`."""

    url: str
    rate: float
    requests: int
    seed: int
    tokenizer: str
    folder: Path

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")


@dataclass(frozen=True)
class Peer:
    """A tool: its command for an Ask, and what it says in the end (p50 and p99 in ms)."""

    name: str
    command: Callable[[Ask], Sequence[str]]
    says: Callable[[Path], Figures]


def vllm_command(ask: Ask) -> list[str]:
    return [
        *("vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", ask.root, "--model", "truth", "--tokenizer", ask.tokenizer, "--seed", str(ask.seed)),
        *("--dataset-name", "random", "--random-input-len", "100", "--random-output-len", str(CHUNKS)),
        *("--request-rate", str(ask.rate), "--num-prompts", str(ask.requests), "--disable-tqdm"),
        *("--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(ask.folder), "--result-filename", "vllm.json"),
    ]


def vllm_says(folder: Path) -> Figures:
    found = json.loads((folder / "vllm.json").read_text())
    return {
        "requests_per_s": found["request_throughput"],
        "ok": found["completed"],
        "ttft_ms": {"p50": found["median_ttft_ms"], "p99": found["p99_ttft_ms"]},
        "gap_ms": {"p50": found["median_itl_ms"], "p99": found["p99_itl_ms"]},
    }


def aiperf_command(ask: Ask) -> list[str]:
    return [
        *("aiperf", "profile", "--model", "truth", "--url", ask.root, "--endpoint-type", "chat", "--streaming"),
        *("--tokenizer", ask.tokenizer, "--random-seed", str(ask.seed), "--ui", "none"),
        *("--synthetic-input-tokens-mean", "100", "--output-tokens-mean", str(CHUNKS)),
        *("--request-rate", str(ask.rate), "--request-count", str(ask.requests)),
        *("--artifact-dir", str(ask.folder)),
    ]


def aiperf_says(folder: Path) -> Figures:
    found = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    ttft, gap = found["time_to_first_token"], found["inter_chunk_latency"]
    return {
        "requests_per_s": found["request_throughput"]["avg"],
        "ok": found["request_count"]["avg"],
        "ttft_ms": {"p50": ttft["p50"], "p99": ttft["p99"]},
        "gap_ms": {"p50": gap["p50"], "p99": gap["p99"]},
    }


def guidellm_command(ask: Ask) -> list[str]:
    return [
        *("guidellm", "run", "--backend", f"kind=openai_http,target={ask.root},model=truth"),
        *("--profile", f"kind=poisson,rate={ask.rate}"),
        *("--constraint", f"kind=max_requests,count={ask.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={ask.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={CHUNKS}"),
        *("--output", f"kind=json,path={ask.folder / 'guidellm.json'}", "--disable-progress"),
    ]


def guidellm_says(folder: Path) -> Figures:
    found = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    ttft, gap = (
        found[name]["successful"]["percentiles"] for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    return {
        "requests_per_s": found["requests_per_second"]["successful"]["mean"],
        "ok": found["request_totals"]["successful"],
        "ttft_ms": {"p50": ttft["p50"], "p99": ttft["p99"]},
        # A mean over each request's gaps: it has no notion of a single gap.
        "gap_ms": {"p50": gap["p50"], "p99": gap["p99"]},
    }


PEERS = (
    Peer("vllm", vllm_command, vllm_says),
    Peer("aiperf", aiperf_command, aiperf_says),
    Peer("guidellm", guidellm_command, guidellm_says),
)


def true_figures(chunks: dict[str, list[int]], arrivals: dict[str, int]) -> Figures:
    """What the server did, over all requests that it read."""
    read = np.sort(np.fromiter(arrivals.values(), dtype=np.int64))
    span_s = (read[-1] - read[0]) / 1e9 if len(read) > 1 else 0.0
    gaps = [np.diff(stamps) for stamps in chunks.values()]
    return {
        "requests": len(read),
        "requests_per_s": round((len(read) - 1) / span_s, 2) if span_s else None,
        "ttft_ms": spread_ms([stamps[0] - arrivals[name] for name, stamps in chunks.items() if stamps]),
        "gap_ms": spread_ms(np.concatenate(gaps) if gaps else []),
    }


def run_peer(peer: Peer, ask: Ask, limit_s: float) -> Figures:
    """The command run to its end or for `limit_s`; its figures, or why there are none."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with (ask.folder / "log.txt").open("w+b") as log:
        process = subprocess.Popen(
            peer.command(ask),
            cwd=ask.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: the command and what it started
            process.wait()
            status = f"cut after {limit_s:g} s"
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures: Figures = {
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }
    try:
        return figures | {"says": peer.says(ask.folder)}
    except (OSError, StopIteration, ValueError, LookupError, TypeError) as error:
        why = lines[-1][:300] if lines else repr(error)
        return figures | {"says": None, "status": status, "why": why}


def run_ours(ask: Ask, seconds: float) -> tuple[Figures, Any]:
    """Our client through the functions a study uses, and what to do with the truth once it is known."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    load = {"rates": [ask.rate], "duration_s": seconds, "warmup_s": 0, "seed": ask.seed}
    offered = offer(*prepare(ask.url, load, ask.folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }
    return figures, offered


def measure(name: str, peer: Peer | None, rate: float, options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as folder, start_truth(chunks=CHUNKS) as truth:
        requests = max(round(rate * options.seconds), 1)
        ask = Ask(truth.url, rate, requests, options.seed, options.tokenizer, Path(folder))
        line: Figures = {"tool": name, "asked_per_s": rate}
        if peer is not None:
            line |= run_peer(peer, ask, options.limit_s)
            return line | {"true": true_figures(truth.chunks(), truth.arrivals())}
        figures, offered = run_ours(ask, options.seconds)
        chunks, arrivals = truth.chunks(), truth.arrivals()
        ours = fidelity(offered, chunks)
        kept = ("achieved_per_s", "ok", "ttft_error_ms", "icl_error_ms", "client_lag_ms", "validity", "reasons")
        return line | figures | {key: ours[key] for key in kept} | {"true": true_figures(chunks, arrivals)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 200, 400, 800], help="requests per second")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", default="gpt2", help="name or folder of a tokenizer the peers make prompts with")
    parser.add_argument("--limit-s", type=float, default=180, help="longest a peer may take at one rate")
    options = parser.parse_args()
    installed = [peer for peer in PEERS if shutil.which(peer.name)]
    missing = [peer.name for peer in PEERS if peer not in installed]
    print(json.dumps({"installed": [peer.name for peer in installed], "missing": missing}), flush=True)
    if not installed:
        print("bench_peers: no other load generator is on PATH; nothing to compare with", file=sys.stderr)
        return
    for rate in options.rates:
        print(json.dumps(measure("tfbench", None, rate, options)), flush=True)
        for peer in installed:
            print(json.dumps(measure(peer.name, peer, rate, options)), flush=True)


if __name__ == "__main__":
    main()
