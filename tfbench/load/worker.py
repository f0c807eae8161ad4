"""The worker process: `python -m tfbench.load.worker`, driven by its parent through stdin and stdout.

stdin: an 8-byte little-endian length and a pickled LoadJob, then `go <CLOCK_MONOTONIC ns>`; any byte
after that, or the end of the pipe, means stop. stdout: one JSON object a line (`ready`, `progress`,
`error`, `finished`).
"""

import gc
import os
import pickle
import signal
import sys
from collections import deque

from tfbench.core.errors import TfbenchError
from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import Mode
from tfbench.core.precedence import take_precedence
from tfbench.load import stamps
from tfbench.load.feeders import make_feeders
from tfbench.load.job import LoadJob
from tfbench.load.loop import WorkerLoop
from tfbench.load.poller import open_poller
from tfbench.load.pool import Policy
from tfbench.load.progress import Reporter
from tfbench.load.requests import RequestMaker
from tfbench.load.spool import SpoolWriter
from tfbench.load.target import tls_context
from tfbench.load.wire import Wire


def _read_exactly(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise SystemExit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += _read_exactly(fd, 1)
    return line


def _raise_file_limit() -> None:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    """Serve one job; exit status 0 when the run's facts are complete in the spool."""
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _raise_file_limit()
    scheduling = take_precedence()
    size = int.from_bytes(_read_exactly(0, 8), "little")
    job = pickle.loads(_read_exactly(0, size))
    assert isinstance(job, LoadJob)
    holder = stamps.hold_enabled() if job.use_stamps else None
    try:
        spool = SpoolWriter(job.spool_path)
        if job.mode == Mode.CLOSED:
            upcoming = deque(range(job.worker, job.plan.users, job.workers))
        else:
            upcoming = deque(range(job.worker, len(job.plan.offsets_ns), job.workers))
        maker = RequestMaker(job, upcoming)
        maker.prepare_early()
        poller = open_poller()
        context = tls_context() if job.target.tls else None
        loop = WorkerLoop(
            job,
            poller,
            spool,
            maker,
            lambda sent, done: Wire(
                poller,
                job.target,
                context,
                use_stamps=job.use_stamps,
                sent=sent,
                done=done,
                policy=Policy(job.connections),
                closes_idle_ns=job.closes_idle_ns,
            ),
            command_fd=0,
            reporter=Reporter(1),
            scheduling=scheduling,
        )
        os.write(1, b'{"ready":true}\n')
        command, *words = _read_line(0).split()
        if command != b"go":
            spool.close()
            return 0
        start_ns = int(words[0])
        feeders = make_feeders(job, start_ns)
        gc.collect()
        gc.freeze()
        gc.disable()
        loop.run(start_ns, feeders)
        spool.close()
        if holder is not None:
            holder.close()
    except TfbenchError as error:
        os.set_blocking(1, True)
        os.write(1, (dump_text({"error": str(error), "exit_code": int(error.exit_code)}) + "\n").encode())
        return 1
    os.set_blocking(1, True)
    os.write(1, b'{"finished":true}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
