"""The reference engine in virtual time as a subject of the coverage study: long tapes, cut into runs.

A tape is Poisson traffic of lognormal work at a load of the engine's capacity, served without a pause. Runs are
stretches of it with a gap between; a replication takes its runs at random from all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.queues import FloatArray
from tfbench.engine.config import EngineConfig
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import serve

IntArray = npt.NDArray[np.int64]

SLOWER = 1.05  # the candidate's steps take this many times as long
GAP = 600  # attempts before each run
LONGEST_S = 60.0  # no attempt takes longer
TAPE = 400_000  # attempts
TAPES = {0.5: 2, 0.8: 6}  # of each load
PAIRED = {0.5: 1, 0.8: 3}  # of these are served by the candidate too
PILOTS = {0.5: 1, 0.8: 1}  # tapes of the same length that plans are made from


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """In order of arrival, float64 [n], seconds: when, TTFT, end; output tokens; the candidate's TTFT, or empty."""

    arrive: FloatArray
    ttft: FloatArray
    end: FloatArray
    tokens: FloatArray
    slower_ttft: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """TTFT of what was scheduled in the window (float64 [n], and the candidate's), and facts of what ended in it."""

    window: tuple[float, float]
    ttft: FloatArray
    slower_ttft: FloatArray
    end: FloatArray
    end_ttft: FloatArray
    tokens: FloatArray


@cache
def rate(load: float) -> float:
    """Attempts per second: `load` times what the engine serves when work is always waiting."""
    n = 20_000
    served = serve(_config(1.0), np.zeros(n, dtype=np.int64), *_work(np.random.default_rng(21), n))
    return load * n / (float(served.end_ns.max()) / 1e9)


def record(load: float, n: int, seed: Sequence[int], *, paired: bool) -> Tape:
    """Serves n attempts."""
    rng = np.random.default_rng([*seed, int(100 * load)])
    arrive = np.cumsum(rng.exponential(1.0 / rate(load), n))
    arrival_ns = (arrive * 1e9).astype(np.int64)
    prompts, outputs = _work(rng, n)
    base = serve(_config(1.0), arrival_ns, prompts, outputs)
    slower = np.zeros(0)
    if paired:
        slower = (serve(_config(SLOWER), arrival_ns, prompts, outputs).first_token_ns - arrival_ns) / 1e9
    ttft = (base.first_token_ns - arrival_ns) / 1e9
    return Tape(arrive, ttft, base.end_ns / 1e9, outputs.astype(np.float64), slower)


def runs(tapes: Sequence[Tape], load: float, n: int, *, paired: bool = False) -> list[Run]:
    """Every run of n expected attempts that the tapes have room for."""
    return [run for tape in tapes if len(tape.slower_ttft) or not paired for run in _cut(tape, load, n)]


def _cut(tape: Tape, load: float, n: int) -> Iterator[Run]:
    length, gap = n / rate(load), GAP / rate(load)
    last = float(tape.arrive[-1]) - LONGEST_S
    start = gap
    while start + length <= last:
        stop = start + length
        a, b = np.searchsorted(tape.arrive, [start, stop])
        early = int(np.searchsorted(tape.arrive, start - LONGEST_S))
        end = tape.end[early:b]
        inside = (end >= start) & (end < stop)
        facts = (column[early:b][inside] for column in (tape.end, tape.ttft, tape.tokens))
        yield Run((start, stop), tape.ttft[a:b], tape.slower_ttft[a:b], *facts)
        start = stop + gap


def write(folder: Path, seed: int, load: float, index: int) -> None:
    """One tape of the study, for every process to read; one that is there already stays."""
    path = _path(folder, seed, load, index)
    if not path.exists():
        tape = record(load, TAPE, (22, seed, index), paired=index < PAIRED[load])
        _save(path, {name: getattr(tape, name) for name in Tape.__dataclass_fields__})


@cache
def read(folder: Path, seed: int, load: float) -> list[Tape]:
    """What `write` left."""
    tapes = []
    for index in range(TAPES[load]):
        with np.load(_path(folder, seed, load, index)) as stored:
            tapes.append(Tape(**stored))
    return tapes


def write_pilot(folder: Path, load: float, slower: float, index: int) -> None:
    """One tape of a pilot, at `slower` times the load; the same for every seed of the study."""
    path = _path(folder, "pilot", slower * load, index)
    if not path.exists():
        _save(path, {"ttft": record(slower * load, TAPE, (20, index), paired=False).ttft[GAP:]})


def read_pilot(folder: Path, load: float, slower: float) -> list[FloatArray]:
    """TTFTs that plans are made from, one array per tape."""
    found = []
    for index in range(PILOTS[load]):
        with np.load(_path(folder, "pilot", slower * load, index)) as stored:
            found.append(stored["ttft"])
    return found


def _save(path: Path, columns: dict[str, FloatArray]) -> None:
    part = path.with_suffix(".part.npz")
    np.savez(part, **columns)
    part.rename(path)


def _path(folder: Path, kind: int | str, load: float, index: int) -> Path:
    return folder / f"{kind}-{load:g}-{index}.npz"


def _config(slower: float) -> EngineConfig:
    step = StepTime()
    slow = StepTime(slower * step.base_ms, slower * step.prefill_token_ms, slower * step.decode_seq_ms)
    return EngineConfig(max_waiting=1_000_000, step_time=slow)


def _work(rng: np.random.Generator, n: int) -> tuple[IntArray, IntArray]:
    """Prompt and output tokens: medians 245 and 33."""
    prompts = np.clip(rng.lognormal(5.5, 0.8, n), 1, 4000).astype(np.int64)
    return prompts, np.clip(rng.lognormal(3.5, 0.8, n), 1, 1000).astype(np.int64)
