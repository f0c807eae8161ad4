"""The client against the truth: a load on a server that knows when each chunk left, and the differences."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.clocks import ClockBase
from tfbench.core.errors import EndpointError
from tfbench.core.kinds import Outcome, Phase
from tfbench.ledger.output import output_mask
from tfbench.load.assemble import Assembled, assemble
from tfbench.load.job import LoadJob
from tfbench.load.signals import measure_signals
from tfbench.load.supervise import LoadEnd, run_load
from tfbench.load.target import resolve_target
from tfbench.manifest import RunPlan, expand, freeze, parse_manifest
from tfbench.study.host import host_facts
from tfbench.study.run_one import StudyContext, make_jobs, stamps_available
from tfbench.verdict.validity import Verdict, judge_validity, signals_with_limits

I64 = NDArray[np.int64]
INSIDE_NS = 50_000
"""How far outside [t − blur, t] the truth may lie and still count as inside."""
_START_S = 30.0
_STOP_S = 5.0


@dataclass(frozen=True)
class Truth:
    """A running truth server; `url` ends in /v1."""

    url: str
    process: "subprocess.Popen[bytes]"

    def chunks(self) -> dict[str, list[int]]:
        """By request id the CLOCK_MONOTONIC ns of each chunk's send, since the last call."""
        return dict(self._get("/truth"))

    def arrivals(self) -> dict[str, int]:
        """By request id the CLOCK_MONOTONIC ns at which it was read, since the last call."""
        return dict(self._get("/arrivals"))

    def _get(self, path: str) -> Any:
        import ssl

        import httpx

        verify = ssl.create_default_context() if self.url.startswith("https:") else False
        root = self.url.removesuffix("/v1")
        return httpx.get(root + path, timeout=60, trust_env=False, verify=verify).raise_for_status().json()


@contextmanager
def start_truth(
    *, ttft_ms: float = 50, gap_ms: float = 10, chunks: int = 64, cert: Path | None = None
) -> Iterator[Truth]:
    """A truth server that runs while the block does. `cert` (a PEM of key and certificate) makes it speak TLS.

    Raises EndpointError when it doesn't start.
    """
    package_parent = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package_parent, os.environ.get("PYTHONPATH"))))
    command = [
        *(sys.executable, "-m", "tfbench.study.truth"),
        *("--ttft-ms", str(ttft_ms), "--gap-ms", str(gap_ms), "--chunks", str(chunks)),
        *(() if cert is None else ("--cert", str(cert))),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        import orjson

        line = process.stdout.readline()
        if not line:
            raise EndpointError("the truth server did not start; what it said is above")
        scheme = "http" if cert is None else "https"
        yield Truth(f"{scheme}://127.0.0.1:{orjson.loads(line)['port']}/v1", process)
    finally:
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(frozen=True)
class Offered:
    """One load that was offered, its facts in the client's clock, and how it was judged."""

    context: StudyContext
    plan: RunPlan
    jobs: Sequence[LoadJob]
    base: ClockBase
    end: LoadEnd
    assembled: Assembled
    signals: dict[str, float | None]
    verdict: Verdict


def prepare(url: str, load: dict[str, Any], folder: Path, *, output_tokens: int = 64) -> tuple[StudyContext, RunPlan]:
    """The context and the first run of a manifest that has this `load` table; its files go into `folder`."""
    document = {
        "name": "truth",
        "model": {"name": "truth"},
        "endpoint": {"url": url},
        "workload": {"input_tokens": 100, "output_tokens": output_tokens},
        "load": {"warmup_s": 1.0, "drain_s": 5.0, "repeats": 1} | load,
    }
    frozen = freeze(parse_manifest(document, "truth"))
    now = time.time_ns()
    context = StudyContext(
        study_id=f"truth-{now}",
        created_ns=now,
        frozen=frozen,
        target=resolve_target(url, 5.0),
        headers=(),
        observed={},
        host=host_facts(),
        bundles=folder,
        use_stamps=stamps_available(),
    )
    return context, expand(frozen.manifest)[0]


def offer(
    context: StudyContext,
    plan: RunPlan,
    *,
    workers: int = 1,
    on_start: Callable[[list[int]], None] = lambda _: None,
    on_progress: Callable[[dict[str, float]], None] = lambda _: None,
) -> Offered:
    """Offer the load of `plan` as a study's run would, up to its bundle. The spools stay where they are."""
    jobs = make_jobs(replace(context, workers=workers), plan, f"{context.study_id}-{plan.load_value:g}")
    base = ClockBase.start()
    end = run_load(jobs, on_start=on_start, on_progress=on_progress)
    assembled = assemble(jobs[0].run_id, jobs, end, base, str(context.host["name"]))
    mode = str(context.frozen.manifest.load.mode)
    signals = measure_signals(mode, assembled.tally, assembled.summaries, end)
    dead = tuple(worker.dead for worker in end.workers if worker.dead)
    status = "interrupted" if end.interrupted else "failed" if dead else "complete"
    verdict = judge_validity(signals_with_limits(signals, None), status=status, notes=dead)
    return Offered(context, plan, jobs, base, end, assembled, signals, verdict)


@dataclass(frozen=True)
class Chunks:
    """Output chunks of the measured `ok` attempts, one entry each, in order: int64 ns of the client's clock.

    `first` marks each attempt's first; `mismatched` counts attempts whose chunks aren't as many as the server sent.
    """

    t: I64
    user: I64
    blur: I64
    true: I64
    first: NDArray[np.bool_]
    attempts: int
    mismatched: int


def match_chunks(offered: Offered, truth: dict[str, list[int]]) -> Chunks:
    """Each chunk beside the time it was really sent at."""
    import pyarrow.compute as pc

    attempts = offered.assembled.tables["attempts"]
    kept = attempts.filter(
        pc.and_(pc.equal(attempts["phase"], Phase.MEASURE.value), pc.equal(attempts["outcome"], Outcome.OK.value))
    )
    names = dict(zip(kept["attempt_id"].to_pylist(), kept["request_id"].to_pylist(), strict=True))
    streams = offered.assembled.tables["streams"].combine_chunks()
    kinds = streams["kind"].combine_chunks()
    bounds = kinds.offsets.to_numpy()
    mask = output_mask(streams)
    columns = [streams[name].combine_chunks().values.to_numpy() for name in ("t_ns", "user_ns", "blur_ns")]
    rows: list[I64] = []
    true: list[I64] = []
    first: list[NDArray[np.bool_]] = []
    mismatched = 0
    for row, attempt in enumerate(streams["attempt_id"].to_pylist()):
        if attempt not in names:
            continue
        places = np.flatnonzero(mask[bounds[row] : bounds[row + 1]]) + bounds[row]
        sent = truth.get(names[attempt], [])
        if not len(places) or len(places) != len(sent):
            mismatched += 1
            continue
        rows.append(places)
        true.append(np.array(sent, dtype=np.int64) + offered.base.offset_ns)
        first.append(np.arange(len(places)) == 0)
    empty = np.zeros(0, dtype=np.int64)
    index = np.concatenate([empty, *rows])
    t, user, blur = (column[index] for column in columns)
    all_first = np.concatenate([empty.astype(bool), *first])
    return Chunks(t, user, blur, np.concatenate([empty, *true]), all_first, len(rows), mismatched)


def spread_ms(values_ns: Any) -> dict[str, float | None]:
    """p50, p99 and max in ms; None without values."""
    values = np.asarray(values_ns, dtype=np.float64) / 1e6
    if not len(values):
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.quantile(values, (0.5, 0.99), method="inverted_cdf")
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4), "max": round(float(values.max()), 4)}


def _gaps(times: I64, first: NDArray[np.bool_]) -> I64:
    """Gaps between chunks of the same attempt."""
    return np.diff(times)[~first[1:]] if len(times) else times


def client_lag_ns(attempts: Any) -> I64:
    """(dispatched − due) + (sent − ready) of the measured attempts that were sent; open loop."""
    import pyarrow.compute as pc

    kept = attempts.filter(
        pc.and_(pc.equal(attempts["phase"], Phase.MEASURE.value), pc.is_valid(attempts["sent_ns"]))
    ).combine_chunks()
    due = pc.coalesce(kept["slot_ns"], kept["scheduled_ns"])
    ready = pc.coalesce(kept["connected_ns"], kept["dispatched_ns"])
    lag = pc.add(pc.subtract(kept["dispatched_ns"], due), pc.subtract(kept["sent_ns"], ready))
    values: I64 = lag.to_numpy()
    return values


def fidelity(offered: Offered, truth: dict[str, list[int]]) -> dict[str, Any]:
    """The differences between what the client says and what the server did, with what it cost.

    Errors are absolute: TTFT error = client's first chunk − the server's send of it, both from the same `sent_ns`;
    ICL error = the client's gap − the server's. `user_…` are the same with the time at which Python had the bytes.
    """
    chunks = match_chunks(offered, truth)
    attempts = offered.assembled.tables["attempts"].to_pydict()
    load = offered.context.frozen.manifest.load
    start = offered.end.start_ns + offered.base.offset_ns + round(load.warmup_s * 1e9)
    window_s = load.duration_s
    scheduled = attempts["phase"].count(Phase.MEASURE.value)
    figures: dict[str, Any] = {
        "asked_per_s": offered.plan.load_value,
        "workers": len(offered.jobs),
        "window_s": window_s,
        "scheduled": scheduled,
        "ok": chunks.attempts + chunks.mismatched,
        "mismatched": chunks.mismatched,
    }
    if window_s is not None:
        end = start + round(window_s * 1e9)
        sent = sum(ns is not None and start <= ns < end for ns in attempts["sent_ns"])
        left = sum(start <= ns + offered.base.offset_ns < end for stamps in truth.values() for ns in stamps)
        figures |= {
            "scheduled_per_s": round(scheduled / window_s, 3),
            "achieved_per_s": round(sent / window_s, 3),
            "server_chunks_per_s": round(left / window_s, 1),
        }
    first = chunks.first
    true_gaps = _gaps(chunks.true, first)
    inside = (chunks.true <= chunks.t + INSIDE_NS) & (chunks.true >= chunks.t - chunks.blur - INSIDE_NS)
    summaries = offered.assembled.summaries
    all_chunks = sum(len(stamps) for stamps in truth.values())
    cpu_ns = sum(one["cpu_ns"] for one in summaries)
    signals = offered.signals
    return figures | {
        "client_lag_ms": spread_ms(client_lag_ns(offered.assembled.tables["attempts"])),
        "ttft_error_ms": spread_ms(np.abs(chunks.t - chunks.true)[first]),
        "icl_error_ms": spread_ms(np.abs(_gaps(chunks.t, first) - true_gaps)),
        "user_ttft_error_ms": spread_ms(np.abs(chunks.user - chunks.true)[first]),
        "user_icl_error_ms": spread_ms(np.abs(_gaps(chunks.user, first) - true_gaps)),
        "blur_ms": spread_ms(chunks.blur),
        "blur_over_1ms_share": signals["blurred_chunk_share"],
        "truth_inside_share": round(float(inside.mean()), 5) if len(inside) else None,
        "kernel_to_user_lag_p99_ms": signals["kernel_to_user_lag_p99_ms"],
        "cpu_us_per_chunk": round(cpu_ns / 1e3 / all_chunks, 3) if all_chunks and summaries else None,
        "worker_cpu_max_share": signals["worker_cpu_max_share"],
        "server_gap_ms": spread_ms(true_gaps),
        "stamps": "kernel" if offered.context.use_stamps else "user",
        "scheduling": summaries[0]["scheduling"] if summaries else None,
        "validity": offered.verdict.verdict,
        "reasons": list(offered.verdict.reasons),
    }
