"""Many open streams at once on one worker: peak in flight, its memory, and what became of the requests. One JSON line.

    python benchmarks/many_streams.py --streams 10000

Requests go out in the first `--open-s` seconds; each stream trickles a chunk every 2 s for long enough that all are
open together. Needs a file limit above the number of streams, for the worker and for the server.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tfbench.study.fidelity import fidelity, offer, prepare, start_truth

SPARE_FILES = 100
LIMIT_MIB = 1024
KEPT = (
    *("client_lag_ms", "ttft_error_ms", "icl_error_ms", "blur_ms", "truth_inside_share"),
    *("cpu_us_per_chunk", "worker_cpu_max_share", "validity", "reasons"),
)


def peak_rss_mib(pids: list[int]) -> float | None:
    """The largest VmHWM of the processes so far; None where the platform doesn't tell."""
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        found += [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
    return max(found) if found else None


class Watch:
    """Looks at the workers whenever they report."""

    def __init__(self) -> None:
        self.peak_in_flight = 0.0
        self.rss_mib: float | None = None
        self._pids: list[int] = []

    def start(self, pids: list[int]) -> None:
        self._pids = pids

    def progress(self, counts: dict[str, float]) -> None:
        self.peak_in_flight = max(self.peak_in_flight, counts.get("in_flight", 0.0))
        rss = peak_rss_mib(self._pids)
        if rss is not None:
            self.rss_mib = max(rss, self.rss_mib or 0.0)


def measure(streams: int, open_s: float, gap_s: float, seed: int) -> dict[str, Any]:
    # A stream that began first must outlast the opening, with a margin for Poisson's last arrivals.
    chunks = int((open_s * 1.2 + 4 * gap_s) / gap_s) + 1
    load = {"rates": [streams / open_s], "count": streams, "warmup_s": 0, "drain_s": 60, "seed": seed}
    watch = Watch()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, start_truth(gap_ms=gap_s * 1e3, chunks=chunks) as truth:
        context, plan = prepare(truth.url, load, Path(folder), output_tokens=chunks)
        offered = offer(context, plan, on_start=watch.start, on_progress=watch.progress)
        figures = fidelity(offered, truth.chunks())
    outcomes = Counter(offered.assembled.tables["attempts"]["outcome"].to_pylist())
    held = watch.peak_in_flight >= streams and outcomes["ok"] == streams
    slim = watch.rss_mib is None or watch.rss_mib < LIMIT_MIB
    return {
        "streams": streams,
        "chunks_each": chunks,
        "gap_s": gap_s,
        "wall_s": round(time.monotonic() - began, 1),
        "peak_in_flight": int(watch.peak_in_flight),
        "worker_max_rss_mib": None if watch.rss_mib is None else round(watch.rss_mib, 1),
        "outcomes": dict(outcomes),
        "as_it_should": held and slim,
        **{name: figures[name] for name in KEPT},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--open-s", type=float, default=10, help="seconds in which the streams are opened")
    parser.add_argument("--gap-s", type=float, default=2, help="seconds between chunks of a stream")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < options.streams + SPARE_FILES:
        sys.exit(f"many_streams: {options.streams} streams need as many files; ulimit -Hn says {hard}")
    figures = measure(options.streams, options.open_s, options.gap_s, options.seed)
    print(json.dumps(figures))
    sys.exit(not figures["as_it_should"])


if __name__ == "__main__":
    main()
