"""A definition's facts as arrays, one entry per run, in schedule order: what `tfbench.stats` takes."""

import itertools
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tfbench.metrics.facts import Facts
from tfbench.stats.quantile import Clusters

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Events:
    """What ended in a run's window: end_ns int64 [n], value float64 [n] where known; `unknown` more have no value."""

    end_ns: IntArray
    value: FloatArray
    unknown: int


@dataclass(frozen=True, eq=False)
class Flags:
    """Which of a run's attempts are so: value bool [n]; score float64 [n], latency ÷ limit: above 1 where not."""

    value: BoolArray
    score: FloatArray


def attempt_values(facts: Facts, sql: str) -> list[FloatArray]:
    """One float64 array per run of `facts.runs`: the `value` of each of its rows."""
    columns = _columns(facts, sql)
    return _split(columns["run_index"], columns["value"].astype(np.float64), len(facts.runs))


def attempt_flags(facts: Facts, sql: str) -> list[Flags]:
    """One `Flags` per run of `facts.runs`: the `value` and `score` of each of its rows."""
    columns = _columns(facts, sql)
    n, run_index = len(facts.runs), columns["run_index"]
    value, score = columns["value"].astype(np.bool_), columns["score"].astype(np.float64)
    return [Flags(*pair) for pair in zip(_split(run_index, value, n), _split(run_index, score, n), strict=True)]


def attempt_gaps(facts: Facts, sql: str) -> list[Clusters]:
    """One `Clusters` per run of `facts.runs`, from rows whose `value` is a list, which its attempt owns."""
    table = facts.con.sql(_ordered(sql)).to_arrow_table()
    lists = table["value"].combine_chunks()
    lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
    values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False), dtype=np.float64)
    run_index = np.repeat(np.asarray(table["run_index"].to_numpy(), dtype=np.int64), lengths)
    owner = np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)
    n = len(facts.runs)
    pairs = zip(_split(run_index, values, n), _split(run_index, owner, n), strict=True)
    return [Clusters(gaps, owners) for gaps, owners in pairs]


def ended(facts: Facts, sql: str) -> list[Events]:
    """One `Events` per run of `facts.runs`, from rows with `end_ns` and a `value` that may be null."""
    columns = _columns(facts, sql)
    known = ~np.ma.getmaskarray(columns["value"])
    end_ns = np.ma.getdata(columns["end_ns"]).astype(np.int64)
    value = np.ma.getdata(columns["value"]).astype(np.float64)
    n, run_index = len(facts.runs), columns["run_index"]
    parts = zip(_split(run_index, known, n), _split(run_index, end_ns, n), _split(run_index, value, n), strict=True)
    return [Events(end[mask], amount[mask], int(np.count_nonzero(~mask))) for mask, end, amount in parts]


def _ordered(sql: str) -> str:
    return f"{sql} ORDER BY seq"


def _columns(facts: Facts, sql: str) -> dict[str, npt.NDArray[Any]]:
    return facts.con.sql(_ordered(sql)).fetchnumpy()


def _split(run_index: npt.NDArray[Any], values: npt.NDArray[_Scalar], n_runs: int) -> list[npt.NDArray[_Scalar]]:
    cuts = np.searchsorted(run_index, np.arange(n_runs + 1))
    return [values[start:stop] for start, stop in itertools.pairwise(cuts)]
