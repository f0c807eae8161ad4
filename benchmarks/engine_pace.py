"""How exactly the reference engine's server keeps its model's time under load: one JSON line per run.

    python benchmarks/engine_pace.py --rate 190 --tokens 64 --step-ms 10 --seconds 4 --runs 3

190 req/s × 64 tokens are 12,160 chunks a second, in steps of 10 ms some 120 at once. The client is another process: a
bare epoll loop over raw sockets that throws away what it reads. Times are the server's own: `chunk_late_ms` is how far
each chunk's send was from the moment the step-time model had its token ready, `gap_error_ms` how far the gaps between a
stream's chunks are from the model's. `cpu_share` is the server's CPU time over the load's. Give it a quiet machine with
a core for each process; `--one-core` keeps the server to one.

Exit code 1 when in most of the runs lateness or gap errors were over 1 ms at p99, or more than one core was used.
"""

import argparse
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.process import RunningEngine, start_engine

_END = b"0\r\n\r\n"
_DRAIN_S = 30.0
LIMIT_MS = 1.0
LIMIT_CORES = 1.0


def request(number: int, tokens: int, words: int) -> bytes:
    """One streaming chat request."""
    messages = [{"role": "user", "content": f"r{number} " + "word " * (words - 1)}]
    body = {"messages": messages, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


class Client:
    """Open-loop load at a steady rate over as many kept connections as it takes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._tails: dict[int, bytes] = {}
        self._free: list[int] = []

    def offer(self, rate: float, seconds: float, tokens: int, words: int) -> int:
        """Send for `seconds` and read until all is answered; how many requests."""
        count = round(rate * seconds)
        sent = done = 0
        buffer = bytearray(1 << 18)
        start = time.monotonic()
        while done < count:
            now = time.monotonic() - start
            if now > seconds + _DRAIN_S:
                raise SystemExit(f"engine_pace: {count - done} of {count} requests weren't answered")
            while sent < count and sent <= now * rate:
                self._send(request(sent, tokens, words))
                sent += 1
            wait = sent / rate - now if sent < count else 0.05
            for fd, _ in self._poll.poll(max(wait, 0.0)):
                size = self._sockets[fd].recv_into(buffer)
                if not size:
                    raise SystemExit("engine_pace: the engine closed a connection")
                self._tails[fd] = (self._tails[fd] + bytes(buffer[max(size - 5, 0) : size]))[-5:]
                if self._tails[fd] == _END:
                    done += 1
                    self._free.append(fd)
        return count

    def _send(self, data: bytes) -> None:
        if not self._free:
            sock = socket.create_connection(self._address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[sock.fileno()] = sock
            self._poll.register(sock.fileno(), select.EPOLLIN)
            self._free.append(sock.fileno())
        fd = self._free.pop()
        self._tails[fd] = b""
        self._sockets[fd].sendall(data)

    def close(self) -> None:
        """Leave."""
        for sock in self._sockets.values():
            sock.close()
        self._poll.close()


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spread_ms(values_ns: Any) -> dict[str, float]:
    """p50, p99, p99.9 and max, ms."""
    values = np.asarray(values_ns, dtype=np.float64) / 1e6
    names = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: round(float(np.quantile(values, q)), 4) for name, q in names.items()}


def text_times(records: list[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """(sent, due) of each stream's text chunks, int64 ns."""
    for record in records:
        chunks = record["chunks"]
        text = np.array([kind == "text" for kind in chunks["kind"]])
        yield np.array(chunks["sent_ns"])[text], np.array(chunks["due_ns"])[text]


def overruns(engine: RunningEngine) -> float:
    """Steps so late that the model's time was set anew."""
    page = httpx.get(f"{engine.root_url}/metrics", timeout=60).text
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith("tfbench:step_overruns_total"))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One load on a fresh engine."""
    config = EngineConfig(step_time=StepTime(options.step_ms, 0.0, 0.0), max_num_seqs=1024, spin_us=options.spin_us)
    cores = os.sched_getaffinity(0)
    if options.one_core:
        os.sched_setaffinity(0, {min(cores)})  # the server inherits it
    with start_engine(config) as engine:
        os.sched_setaffinity(0, cores)
        client = Client(engine.url)
        client.offer(options.rate, 1.0, options.tokens, options.words)  # connections are made and code is warm
        warm = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=60).json()["requests"]
        since_ns = 1 + max(record["arrival_ns"] for record in warm)
        before_s, start = cpu_s(engine.process.pid), time.monotonic()
        client.offer(options.rate, options.seconds, options.tokens, options.words)
        share = (cpu_s(engine.process.pid) - before_s) / (time.monotonic() - start)
        reset = overruns(engine)
        answer = httpx.get(f"{engine.root_url}/tfbench/requests?since={since_ns}", timeout=60).json()
        client.close()
    streams = list(text_times(answer["requests"]))
    sent, due = (np.concatenate(column) for column in zip(*streams, strict=True))
    gaps = np.concatenate([np.abs(np.diff(s) - np.diff(d)) for s, d in streams])
    return {
        "rate": options.rate,
        "tokens": options.tokens,
        "step_ms": options.step_ms,
        "one_core": options.one_core,
        "chunks": len(sent),
        "chunks_per_s": round(len(sent) / options.seconds),
        "chunks_per_step": round(len(sent) / len(np.unique(due)), 1),
        "chunk_late_ms": spread_ms(np.abs(sent - due)),
        "gap_error_ms": spread_ms(gaps),
        "step_overruns": int(reset),
        "cpu_share": round(share, 3),
    }


def missed(run: dict[str, Any]) -> list[str]:
    """What a run doesn't hold to."""
    words = {"chunk_late_ms": "chunks are late", "gap_error_ms": "gaps are wrong"}
    over = [
        f"{text} by {run[name]['p99']:.2f} ms at p99" for name, text in words.items() if run[name]["p99"] > LIMIT_MS
    ]
    return over + [f"{run['cpu_share']:.2f} cores are used"] * (run["cpu_share"] > LIMIT_CORES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=190, help="requests per second")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=64, help="prompt length")
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--spin-us", type=float, default=EngineConfig().spin_us)
    parser.add_argument("--one-core", action="store_true", help="keep the server to one core")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    misses: list[str] = []
    for _ in range(options.runs):
        run = measure(options)
        print(json.dumps(run), flush=True)
        if found := missed(run):
            misses.append(", ".join(found))
    if 2 * len(misses) > options.runs:
        limits = f"at most {LIMIT_MS:g} ms and {LIMIT_CORES:g} core are allowed"
        sys.exit(f"engine_pace: {len(misses)} of {options.runs} runs missed; in the last one {misses[-1]}; {limits}")


if __name__ == "__main__":
    main()
