"""What a slow client costs: figures usable, and the error of those that are printed, against a server that knows.

    python -m benchmarks.slow_client --rates 100 400 --runs 40 [--seconds 3]

Runs of one study each, with the client on one core and the server on the other; alone, beside a busy loop, and stopped
for some ms five times a second, as a machine with stolen time stops it. One JSON
line per rate and case: the share of figures usable when any INVALID run is left out whole, and figure by figure as
tfbench prints them; the largest error of a printed figure, in percent and ms, and how many are off by over 1 % and
0.5 ms. True latencies are the server's own times from the moment the request was sent (its connection, if it took a new
one, was asked for), as if it had been sent on time.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.manifest import parse_manifest
from tfbench.report import build_report
from tfbench.report.model import ReportData
from tfbench.stats.quantile import sample_quantile
from tfbench.study import run_study
from tfbench.study.fidelity import Truth, start_truth
from tfbench.warehouse import Warehouse

CHUNKS = 64
QUANTILES = (0.5, 0.95, 0.99)
LIMIT_MS = 60.0


CASES = ("alone", "busy loop", "stopped")


@contextmanager
def beside(case: str, core: int) -> Iterator[None]:
    """What goes on beside the client on its core: nothing, a process that only computes, or stops as of a busy host."""
    over = threading.Event()
    process = thread = None
    if case == "busy loop":
        code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        process = subprocess.Popen([sys.executable, "-c", code])
    elif case == "stopped":
        spared = set(_children())
        thread = threading.Thread(target=_stop_now_and_then, args=(over, spared))
        thread.start()
    try:
        yield
    finally:
        over.set()
        if process is not None:
            process.kill()
            process.wait()
        if thread is not None:
            thread.join()


def _children() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(") ")[2].split()[1]) == os.getpid():
                yield int(stat.parent.name)


def _stop_now_and_then(over: threading.Event, spared: set[int]) -> None:
    """Stops the workers for some 2 to 12 ms, five times a second."""
    rng = np.random.default_rng(1)
    while not over.wait(float(rng.exponential(0.2))):
        workers = [pid for pid in _children() if pid not in spared]
        for pid, name in [(pid, signal.SIGSTOP) for pid in workers] + [(pid, signal.SIGCONT) for pid in workers]:
            if name is signal.SIGCONT and pid == workers[0]:
                time.sleep(float(rng.uniform(0.002, 0.012)))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, name)


def true_figures(store: Warehouse, truth: dict[str, list[int]]) -> dict[str, float]:
    """The figures of the run as the server's own times give them."""
    offset = time.time_ns() - time.monotonic_ns()
    rows = store.con.execute(
        "SELECT request_id, sent_ns - CASE WHEN new_connection THEN connected_ns - dispatched_ns ELSE 0 END"
        " FROM attempts WHERE role = 'load' AND phase = 'measure' AND outcome = 'ok'"
    ).fetchall()
    stamps = np.array([truth[name] for name, _ in rows], dtype=np.int64) + offset
    sent = np.array([ns for _, ns in rows], dtype=np.int64)
    ttft, e2e = (stamps[:, 0] - sent) / 1e6, (stamps[:, -1] - sent) / 1e6
    of = {
        "ttft": ttft,
        "e2e": e2e,
        "tpot": (stamps[:, -1] - stamps[:, 0]) / 1e6 / (CHUNKS - 1),
        "icl": (np.diff(stamps, axis=1) / 1e6).ravel(),
    }
    found = {f"{name}_p{p * 100:g}_ms": sample_quantile(x, p) for name, x in of.items() for p in QUANTILES}
    found["good_fraction"] = float((ttft <= LIMIT_MS).mean())
    return found


def one_run(truth: Truth, rate: float, seconds: float, seed: int, folder: Path) -> tuple[ReportData, dict[str, float]]:
    document = {
        "name": "slow client",
        "model": {"name": "truth"},
        "endpoint": {"url": truth.url},
        "workload": {"input_tokens": 100, "output_tokens": CHUNKS},
        "load": {"rates": [rate], "duration_s": seconds, "warmup_s": 0.5, "drain_s": 3, "repeats": 1, "seed": seed},
        "slo": {"ttft_ms": LIMIT_MS},
    }
    truth.chunks()
    done = run_study(parse_manifest(document, "slow"), folder / f"{seed}.duckdb", reruns=0)
    with Warehouse.open(done.warehouse, read_only=True) as store:
        return build_report(store, done.study_id), true_figures(store, truth.chunks())


def measure(rate: float, case: str, runs: int, seconds: float) -> dict[str, Any]:
    client, server = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    before = after = asked = valid = off = 0
    errors: list[tuple[float, float, str]] = []
    with tempfile.TemporaryDirectory() as name, start_truth(chunks=CHUNKS) as truth:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(truth.process.pid, {server})
        os.sched_setaffinity(0, {client})
        try:
            with beside(case, client):
                for seed in range(runs):
                    data, true = one_run(truth, rate, seconds, seed, Path(name))
                    fit = not data.runs[0].invalid
                    valid += fit
                    for figure, value in true.items():
                        shown = data.figure(data.loads[0], figure)
                        asked += 1
                        before += fit
                        if shown is None or shown.value is None:
                            continue
                        after += 1
                        apart = abs(shown.value - value)
                        share = apart / value
                        errors.append((share, apart, figure))
                        off += share > 0.01 and (not figure.endswith("_ms") or apart > 0.5)
        finally:
            os.sched_setaffinity(0, cores)
    worst = max((e for e in errors if e[1] > 0.5 or not e[2].endswith("_ms")), default=max(errors, default=None))
    return {
        "rate": rate,
        "beside": case,
        "runs": runs,
        "valid_runs": valid,
        "usable_before": round(before / asked, 3),
        "usable_after": round(after / asked, 3),
        "printed": after,
        "off_by_over_1_percent_and_0.5_ms": off,
        "worst": None if worst is None else [worst[2], f"{worst[0]:.2%}", f"{worst[1]:.3f}"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rates", type=float, nargs="+", default=[100, 400])
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    for rate in options.rates:
        for case in options.cases:
            print(json.dumps(measure(rate, case, options.runs, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
