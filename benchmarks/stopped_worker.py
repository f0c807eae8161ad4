"""Stamps can't flatter: the worker is stopped 30 ms in each second, and what it then says is held against the truth.

    python benchmarks/stopped_worker.py --rate 200 --seconds 8

One JSON line. As it should be (`as_it_should`): the truth lies in [t − blur, t] ± 50 µs for 99 % of the chunks or more,
and the run is INVALID, since requests due in a stop were sent late. Exit status 1 otherwise.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tfbench.study.fidelity import fidelity, offer, prepare, start_truth
from tfbench.verdict.validity import INVALID


class Stopper:
    """Stops processes `stop_s` in each second, `times` times; done before the load is, so the ids stay theirs."""

    def __init__(self, times: int, stop_s: float) -> None:
        self._times = times
        self._stop_s = stop_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.stops = 0

    def start(self, pids: list[int]) -> None:
        self._thread = threading.Thread(target=self._run, args=(pids,))
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, pids: list[int]) -> None:
        while self.stops < self._times and not self._over.wait(1.0 - self._stop_s):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            self._over.wait(self._stop_s)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            self.stops += 1


def measure(rate: float, seconds: float, stop_ms: float, seed: int) -> dict[str, Any]:
    stopper = Stopper(int(seconds), stop_ms / 1e3)
    with tempfile.TemporaryDirectory() as folder, start_truth() as truth:
        load = {"rates": [rate], "duration_s": seconds, "warmup_s": 0.5, "seed": seed}
        try:
            offered = offer(*prepare(truth.url, load, Path(folder)), on_start=stopper.start)
        finally:
            stopper.end()
        figures = fidelity(offered, truth.chunks())
    inside = figures["truth_inside_share"]
    fine = inside is not None and inside >= 0.99 and figures["validity"] == INVALID
    return {"stops": stopper.stops, "stop_ms": stop_ms, "as_it_should": fine} | figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=200, help="requests per second")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--stop-ms", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    figures = measure(options.rate, options.seconds, options.stop_ms, options.seed)
    print(json.dumps(figures))
    sys.exit(not figures["as_it_should"])


if __name__ == "__main__":
    main()
