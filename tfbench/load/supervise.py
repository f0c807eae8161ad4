"""The parent's side: start the workers, watch them, stop them, and say what became of each."""

import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tfbench.core.errors import StorageError, TfbenchError
from tfbench.load.job import LoadJob

_START_DELAY_NS = 30_000_000
_STOP_GRACE_S = 30.0
_DECODE_GRACE_S = 300.0

Progress = dict[str, float]


@dataclass(frozen=True)
class WorkerEnd:
    """What became of one worker: `dead` says how it died before its facts were complete, or is empty."""

    worker: int
    spool_path: Path
    dead: str


@dataclass(frozen=True)
class LoadEnd:
    """A finished load: when it started (CLOCK_MONOTONIC ns), its workers, whether it was interrupted."""

    start_ns: int
    workers: tuple[WorkerEnd, ...]
    interrupted: bool


@dataclass
class _Running:
    job: LoadJob
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    buffer: bytes = b""
    ready: bool = False
    measured: bool = False
    finished: bool = False
    trouble: TfbenchError | None = None
    progress: dict[str, float] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        return self.process.poll() is not None

    def lines(self) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return [{"eof": True}]
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in whole if line]

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            # It died; its end of the pipe is reported as such.
            return

    def last_error(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _spawn(job: LoadJob) -> _Running:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
    process = subprocess.Popen(
        [sys.executable, "-m", "tfbench.load.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    running = _Running(job, process, errors)
    data = pickle.dumps(job)
    running.write(len(data).to_bytes(8, "little") + data)
    return running


def run_load(
    jobs: Sequence[LoadJob],
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_start: Callable[[list[int]], None] = lambda _: None,
    stop: Callable[[], int] = lambda: 0,
) -> LoadEnd:
    """Run one load over its workers; returns when all ended.

    `on_progress` gets summed counts about four times a second, `on_start` the workers' process ids.
    `stop` is asked as often: 1 stops the load, which is reported as `interrupted`; 2 or more kills
    the workers. Raises StorageError when a worker couldn't write its facts.
    """
    running = [_spawn(job) for job in jobs]
    selector = selectors.DefaultSelector()
    try:
        for one in running:
            assert one.process.stdout is not None
            selector.register(one.process.stdout, selectors.EVENT_READ, one)
        start_ns, interrupted = _conduct(running, selector, on_progress, on_start, stop)
    finally:
        selector.close()
        for one in running:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()
            assert one.process.stdin is not None and one.process.stdout is not None
            one.process.stdout.close()
            try:
                one.process.stdin.close()
            except BrokenPipeError:
                pass
    ends = []
    for one in running:
        if one.trouble is not None:
            raise one.trouble
        dead = "" if one.finished else f"worker {one.job.worker} died ({_how(one)})"
        ends.append(WorkerEnd(one.job.worker, Path(one.job.spool_path), dead))
        one.errors.close()
    return LoadEnd(start_ns, tuple(ends), interrupted)


def _how(one: _Running) -> str:
    status = one.process.returncode
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    said = one.last_error()
    return f"{how}: {said}" if said else how


def _conduct(
    running: list[_Running],
    selector: selectors.BaseSelector,
    on_progress: Callable[[Progress], None],
    on_start: Callable[[list[int]], None],
    stop: Callable[[], int],
) -> tuple[int, bool]:
    start_ns = 0
    interrupted = ending = False
    deadline_ns: int | None = None
    open_count = len(running)
    while open_count:
        for key, _ in selector.select(timeout=0.25):
            one: _Running = key.data
            for line in one.lines():
                if "eof" in line:
                    selector.unregister(key.fileobj)
                    open_count -= 1
                _take(one, line)
        presses = stop()
        stopping = presses > 0 and not interrupted
        interrupted = interrupted or stopping
        if presses > 1 or (deadline_ns is not None and time.monotonic_ns() > deadline_ns):
            break
        if stopping:
            deadline_ns = time.monotonic_ns() + int(_STOP_GRACE_S * 1e9)
            _tell(running, b"stop\n")
        if not start_ns and all(one.ready or one.gone for one in running):
            start_ns = time.monotonic_ns() + _START_DELAY_NS
            if not interrupted:
                deadline_ns = start_ns + _longest_ns(running)
                on_start([one.process.pid for one in running])
                _tell(running, b"go %d\n" % start_ns)
        if start_ns:
            on_progress(_sum(running))
            if len(running) > 1 and not ending and all(one.measured or one.gone for one in running):
                ending = True
                _tell(running, b"end\n")
    return start_ns or time.monotonic_ns(), interrupted


def _tell(running: list[_Running], command: bytes) -> None:
    for one in running:
        one.write(command)


def _take(one: _Running, line: dict[str, Any]) -> None:
    if "progress" in line:
        one.progress = line["progress"]
    elif "measured" in line:
        one.measured = True
    elif "ready" in line:
        one.ready = True
    elif "finished" in line:
        one.finished = True
    elif "error" in line:
        one.trouble = StorageError(line["error"])


def _sum(running: list[_Running]) -> Progress:
    total: Progress = {}
    for one in running:
        for name, value in one.progress.items():
            total[name] = max(total.get(name, 0.0), value) if name == "elapsed_s" else total.get(name, 0.0) + value
    return total


def _longest_ns(running: list[_Running]) -> int:
    """How long a load may take at most: its plan, every drain and timeout, and the decoding after it."""
    job = running[0].job
    planned = job.warmup_ns + (job.duration_ns or 0) + job.drain_ns
    if job.duration_ns is None:
        offsets = getattr(job.plan, "offsets_ns", None)
        planned += int(offsets[-1]) if offsets is not None and len(offsets) else 0
        if offsets is None:
            planned += job.limits.total_ns * max(job.count or 1, 1)
    return planned + job.limits.total_ns + int(_DECODE_GRACE_S * 1e9)
