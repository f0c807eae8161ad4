"""What a gate says: the document in verdict.json, and its rows in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tfbench.stats.equivalence import Direction
from tfbench.verdict.policy import Policy
from tfbench.verdict.words import bounds_text, effect_text, n_text

SCHEMA = "tfbench.verdict/1"
RowVerdict = Literal["PASS", "FAIL", "INCONCLUSIVE", "WATCHED"]
GateVerdict = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]


@dataclass(frozen=True)
class Value:
    """One arm's figure over its runs; None is unknown, infinite or open. n observations are worth n_eff independent."""

    value: float | None
    lo: float | None
    hi: float | None
    n: int
    n_eff: float | None


@dataclass(frozen=True)
class GateRow:
    """One judgement: a figure at a load, over all attempts or one bucket.

    scale: "ratio" (candidate / base) or "difference" (candidate - base, in `unit`), for effect, lo, hi and limit.
    lo, hi: each holds at the policy's level. limit: where the margin ends. p_fine, p_worse: of the two one-sided tests
    at the limit; p_worse_adjusted after Holm. guard: watched whatever the policy lists; it can fail a candidate and
    isn't needed to pass, so that it is WATCHED where undecided. further_repeats: how many more would decide the row, if
    things go on like this.
    """

    load: str
    figure: str
    bucket_by: str | None
    bucket: str | None
    unit: str
    direction: Direction
    critical: bool
    guard: bool
    verdict: RowVerdict
    base: Value
    candidate: Value
    scale: Literal["ratio", "difference"]
    limit: float
    effect: float | None
    lo: float | None
    hi: float | None
    p_fine: float | None
    p_worse: float | None
    p_worse_adjusted: float | None
    k: int
    method: str
    further_repeats: int | None
    reason: str | None

    @property
    def name(self) -> str:
        """The row in words: figure, bucket, load."""
        bucket = "" if self.bucket is None else f" [{self.bucket_by} {self.bucket}]"
        return f"{self.figure}{bucket} at load {self.load}"

    @property
    def blank(self) -> bool:
        """Nothing could be judged: no data, or none that a verdict may rest on."""
        return self.p_fine is None


@dataclass(frozen=True)
class GateLoad:
    """One load: how many runs (of either arm) were compared, which were left out and why, how many were unstable."""

    load: str
    repeats: int
    paired: bool
    enough: bool
    left_out: tuple[str, ...]
    base_runs: int
    base_unstable: int
    candidate_runs: int
    candidate_unstable: int
    candidate_worse: bool


@dataclass(frozen=True)
class GateArm:
    """One side, with its whole manifest, so that it can be run again or rolled back to. arm: which of the study's."""

    study_id: str
    name: str
    arm: str | None
    manifest_id: str
    workload_id: str
    system_id: str
    simulated: bool
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """Rows and loads with the verdict on them, worst first."""

    verdict: GateVerdict
    level: float
    reasons: tuple[str, ...]
    loads: tuple[GateLoad, ...]
    rows: tuple[GateRow, ...]
    further_repeats: int | None


@dataclass(frozen=True)
class GateResult:
    """The document in verdict.json."""

    schema: str
    tfbench_version: str
    verdict: GateVerdict
    exit_code: int
    reasons: tuple[str, ...]
    further_repeats: int | None
    policy: Policy
    attribution: str
    notes: tuple[str, ...]
    base: GateArm
    candidate: GateArm
    loads: tuple[GateLoad, ...]
    rows: tuple[GateRow, ...]
    confirmation: Judged | None


def samples_text(base: Value, candidate: Value) -> str:
    """What both arms' figures rest on, as `750 (253) → 750 (181)`; once where it is the same."""
    return " → ".join(dict.fromkeys(n_text(one.n, one.n_eff) for one in (base, candidate)))


def more_repeats(n: int) -> str:
    """`1 more repeat`, `7 more repeats`."""
    return f"{n} more repeat{'' if n == 1 else 's'}"


def row_words(row: GateRow) -> str:
    """What a row says, without its name: effect, bound, limit, or why there is none."""
    if row.blank:
        return row.reason or "no data"
    effect = effect_text(row.effect, row.scale, row.unit)
    parts = [f"{effect} {bounds_text(row.lo, row.hi, row.scale, row.unit)}".strip()]
    parts.append(f"limit {effect_text(row.limit, row.scale, row.unit)}")
    if row.reason:
        parts.append(row.reason)
    if row.verdict == "INCONCLUSIVE" and row.further_repeats is not None:
        parts.append(f"about {more_repeats(row.further_repeats)} would decide")
    return ", ".join(parts)
