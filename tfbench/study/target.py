"""What a capacity search holds a load to, and what one run says of it."""

import difflib
import math
from dataclasses import dataclass

import duckdb

from tfbench.core.errors import UsageError
from tfbench.metrics import FIGURES, FigureDef
from tfbench.metrics.facts import Side, run_facts
from tfbench.metrics.samples import Flags, attempt_flags, attempt_values

DEFAULT_TARGET = "good_fraction=0.99"
_SIDES: tuple[Side, ...] = ("seen", "least", "most")
_HINT = "write --target good_fraction=0.99, or a latency in ms as ttft_p95_ms=300"


@dataclass(frozen=True)
class Target:
    """A figure and the value it must keep: a fraction at least `value`, a latency's quantile at most `value` ms.

    A quantile over attempts is judged as the share of attempts within `value`, which must reach its p: the same
    statement, and one that needs no quantile to be settled.
    """

    figure: str
    value: float

    @property
    def definition(self) -> FigureDef:
        """The figure's definition."""
        return FIGURES[self.figure]

    @property
    def share(self) -> float:
        """The share of attempts that must be good."""
        p = self.definition.p
        return self.value if p is None else p

    def stands(self, con: duckdb.DuckDBPyConnection, run_id: str) -> bool:
        """Whether a slow client moved a run's share of good attempts by less than a tenth of the bad ones allowed."""
        shares = [
            float(flags.value.mean()) for side in _SIDES if len((flags := read_sample(con, run_id, self, side)).value)
        ]
        return not shares or max(shares) - min(shares) <= 0.1 * (1.0 - self.share)

    @property
    def words(self) -> str:
        """`good_fraction ≥ 0.99`."""
        if self.definition.p is None:
            return f"{self.figure} ≥ {self.value:g}"
        return f"{self.figure} ≤ {self.value:g}"


def parse_target(text: str) -> Target:
    """The target of `--target`: NAME=VALUE, or NAME>=VALUE for a fraction, NAME<=VALUE for a quantile. UsageError."""
    name, sign, number = text.partition("=")
    name, given = (name[:-1], name[-1]) if name[-1:] in ("<", ">") else (name, "")
    name = name.strip()
    if not sign or not name:
        raise UsageError(f"--target {text!r}: {_HINT}")
    figure = FIGURES.get(name)
    usable = [one for one, d in FIGURES.items() if _usable(d)]
    if figure is not None and figure.kind == "chunk_quantile":
        raise UsageError(f"--target {name}: gaps belong to requests; set slo.icl_ms and give good_fraction")
    if figure is None or not _usable(figure):
        near = difflib.get_close_matches(name, usable, 3) or ["good_fraction", "ttft_p95_ms"]
        why = "no such figure" if figure is None else "no fraction, and no quantile of latency that failures count in"
        raise UsageError(f"--target {name}: {why}; for example {', '.join(near)}")
    right = ">" if figure.p is None else "<"
    if given and given != right:
        raise UsageError(f"--target {name}: {figure.direction} is better, so write {name}{right}=VALUE")
    try:
        value = float(number)
    except ValueError:
        raise UsageError(f"--target {name}: {number.strip()!r} is not a number; {_HINT}") from None
    if figure.p is None and not 0.0 < value < 1.0:
        hint = "no number of requests shows a share of all" if value == 1.0 else "a share lies between 0 and 1"
        raise UsageError(f"--target {name}: {value:g} can't be; {hint}; for example {name}=0.99")
    if not 0.0 < value < math.inf:
        raise UsageError(f"--target {name}: {value:g} can't be; give milliseconds above 0, as {name}=300")
    return Target(name, value)


def _usable(figure: FigureDef) -> bool:
    """Fractions and quantiles of the system's latency that failures count in."""
    return figure.kind in {"fraction", "quantile"} and not figure.name.startswith(("client_lag", "ttft_ok"))


def read_sample(con: duckdb.DuckDBPyConnection, run_id: str, target: Target, side: Side = "seen") -> Flags:
    """Which attempts of a run keep the target's limit, and how near they are to it."""
    figure = target.definition
    with run_facts(con, [run_id], side) as facts:
        if figure.kind == "fraction":
            return attempt_flags(facts, figure.sql)[0]
        values = attempt_values(facts, figure.sql)[0]
    return Flags(values <= target.value, values / target.value)
