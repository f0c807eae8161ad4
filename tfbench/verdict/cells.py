"""What is compared: one figure at one load over all attempts or a bucket of them, in both arms, and its effect."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from tfbench.metrics import FIGURES, Bucket, FigureDef, Sample, bucket_samples, combined, short_reason
from tfbench.stats.effect import Effect
from tfbench.stats.paired import fraction_effect, paired_effect, unpaired_effect
from tfbench.verdict.arms import Arm, ArmRun, Match
from tfbench.verdict.buckets import Edges, length_edges, memberships, read_attempts

_NOT_THERE = Sample(None, 0, None, reason="no attempt of this bucket")


@dataclass(frozen=True, eq=False)
class Cell:
    """Both arms' samples of one figure at one load; pairs by position where `paired`. `bucket` None: all attempts."""

    load: float | None
    bucket: Bucket | None
    figure: FigureDef
    unit: str
    paired: bool
    base: tuple[Sample, ...]
    candidate: tuple[Sample, ...]


def build_cells(
    base: tuple[Any, Arm],
    candidate: tuple[Any, Arm],
    matches: Sequence[Match],
    names: Sequence[str],
    *,
    buckets: Sequence[str] = (),
    edges: Edges | None = None,
) -> list[Cell]:
    """The cells of the figures `names` at every matched load: over all attempts, then over each bucket there is.

    base, candidate: a warehouse's connection and the study in it. A bucket that holds every attempt is left out. The
    edges of length buckets, where not given, are the base's.
    """
    sides = (base, candidate)
    runs: list[list[ArmRun]] = [[], []]
    for match in matches:
        runs[0] += match.base
        runs[1] += match.candidate
    members: list[pd.DataFrame | None] = [None, None]
    if buckets:
        frames = [read_attempts(con, arm, own) for (con, arm), own in zip(sides, runs, strict=True)]
        cut = length_edges(frames[0], edges or {})
        found = [memberships(frame, cut, buckets) for frame in frames]
        labels = pd.concat(found).groupby("by")["label"].nunique()
        several = labels.index[labels > 1]
        members = [one[one["by"].isin(several)] for one in found]
    samples = [
        bucket_samples(con, arm.study_id, [run.run_id for run in own], names, _table(member))
        for (con, arm), own, member in zip(sides, runs, members, strict=True)
    ]
    currencies = [str((arm.manifest.get("cost") or {}).get("currency", "USD")) for _, arm in sides]
    keys = list(dict.fromkeys([*samples[0], *samples[1]]))
    cells = []
    for match in matches:
        for bucket, name in keys:
            figure = FIGURES[name]
            arms = [
                tuple(one.get((bucket, name), {}).get(run.run_id, _NOT_THERE) for run in own)
                for one, own in zip(samples, (match.base, match.candidate), strict=True)
            ]
            if bucket is not None and not any(sample.n for arm in arms for sample in arm):
                continue  # other loads have this bucket
            if figure.kind == "cost" and currencies[0] != currencies[1]:
                why = f"prices are in {currencies[0]} and in {currencies[1]}"
                arms = [tuple(Sample(None, 0, None, reason=why) for _ in arm) for arm in arms]
            unit = figure.unit.replace("currency", currencies[0])
            cells.append(Cell(match.load, bucket, figure, unit, match.paired, *arms))
    return cells


def effect_of(cell: Cell, *, relative: bool) -> Effect | str:
    """Candidate against base: a log ratio where `relative`, else a difference; or why there is none.

    From two runs an arm on; single ones tell how far apart they are, not how far runs of one system lie apart.
    """
    base, candidate = _known(cell)
    if not base or not candidate:
        return _why_none(cell)
    ours, theirs = ([float(one.value) for one in arm if one.value is not None] for arm in (base, candidate))
    if cell.figure.kind == "fraction" and not relative and min(len(ours), len(theirs)) >= 2:
        of_base, of_candidate = combined(cell.figure, base), combined(cell.figure, candidate)
        return fraction_effect(ours, theirs, of_base, of_candidate, paired=cell.paired)
    return (paired_effect if cell.paired else unpaired_effect)(ours, theirs, logs=relative)


def too_short(cell: Cell) -> str | None:
    """Why an arm's runs are too short for the figure; None where neither's are."""
    return next(filter(None, (short_reason(cell.figure, arm) for arm in (cell.base, cell.candidate))), None)


def _known(cell: Cell) -> tuple[list[Sample], list[Sample]]:
    if cell.paired:
        pairs = [
            (b, c)
            for b, c in zip(cell.base, cell.candidate, strict=True)
            if b.value is not None and c.value is not None
        ]
        return [b for b, _ in pairs], [c for _, c in pairs]
    arms = ([sample for sample in arm if sample.value is not None] for arm in (cell.base, cell.candidate))
    base, candidate = arms
    return base, candidate


def _why_none(cell: Cell) -> str:
    for name, arm in (("base", cell.base), ("candidate", cell.candidate)):
        if not any(sample.value is not None for sample in arm):
            reasons = dict.fromkeys(sample.reason for sample in arm if sample.reason)
            return f"no data in {name}: {'; '.join(reasons) or 'no valid run'}"
    return "no pair of runs has data in both arms"


def _table(members: pd.DataFrame | None) -> pa.Table | None:
    return None if members is None or members.empty else pa.Table.from_pandas(members, preserve_index=False)
