"""What is compared: one figure at one load over all attempts or a bucket of them, in both arms, and its effect."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfbench.metrics import FIGURES, Bucket, FigureDef, Sample, bucket_samples, combined, short_reason
from tfbench.metrics.client_error import client_moves
from tfbench.metrics.soundness import Moved, Moves, is_sound, spoiled_words
from tfbench.stats.effect import Effect, WidenedEffect
from tfbench.stats.paired import fraction_effect, paired_effect, unpaired_effect
from tfbench.verdict.arms import Arm, ArmRun, Match
from tfbench.verdict.buckets import Edges, length_edges, memberships, read_attempts

Sound = Callable[[FigureDef, Moved, ArmRun], bool]
"""Whether a figure stands that the client moved in a run."""
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
    sound: Sound = lambda figure, moved, _: is_sound(figure, moved),
) -> list[Cell]:
    """The cells of the figures `names` at every matched load: over all attempts, then over each bucket there is.

    base, candidate: a warehouse's connection and the study in it. A bucket that holds every attempt is left out. The
    edges of length buckets, where not given, are the base's. A figure that isn't `sound` in a run, since its client was
    slow, has no sample there.
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
    moves = {
        key: moved
        for (con, _), own in zip(sides, runs, strict=True)
        for key, moved in client_moves(con, [run.run_id for run in own], names).items()
    }
    currencies = [str((arm.manifest.get("cost") or {}).get("currency", "USD")) for _, arm in sides]
    keys = list(dict.fromkeys([*samples[0], *samples[1]]))
    cells = []
    for match in matches:
        for bucket, name in keys:
            figure = FIGURES[name]
            arms = [
                tuple(
                    _sound(figure, one.get((bucket, name), {}).get(run.run_id, _NOT_THERE), moves, run, sound)
                    for run in own
                )
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
        effect = fraction_effect(ours, theirs, of_base, of_candidate, paired=cell.paired)
    else:
        effect = (paired_effect if cell.paired else unpaired_effect)(ours, theirs, logs=relative)
    if isinstance(effect, str) or not any(one.moved for one in (*base, *candidate)):
        return effect
    (base_down, base_up), (down, up) = (_room(arm, logs=relative) for arm in (base, candidate))
    return WidenedEffect(effect, down + base_up, up + base_down)


def spoiled(cell: Cell) -> int:
    """In how many pairs (runs of either arm, where they are no pairs) a slow client spoiled the figure."""
    if cell.paired:
        return sum(_is_spoiled(b) or _is_spoiled(c) for b, c in zip(cell.base, cell.candidate, strict=True))
    return sum(_is_spoiled(one) for one in (*cell.base, *cell.candidate))


def _sound(figure: FigureDef, sample: Sample, moves: Moves, run: ArmRun, sound: Sound) -> Sample:
    moved = moves.get((run.run_id, figure.name))
    if moved is None or sample.data is None:
        return sample
    if not sound(figure, moved, run):
        return Sample(None, sample.n, None, reason=spoiled_words([moved], 1), moved=moved)
    return replace(sample, moved=moved)


def _is_spoiled(sample: Sample) -> bool:
    return sample.value is None and sample.moved is not None


def _room(samples: Sequence[Sample], *, logs: bool) -> tuple[float, float]:
    """How far below and above their mean figure the truth may lie for the client's doing: on logs, or in its unit."""
    found = np.zeros(2)
    for one in samples:
        if one.moved is None or not one.value:
            continue
        down, up = one.moved.down, one.moved.up
        found += (-math.log1p(-min(down / one.value, 0.99)), math.log1p(up / one.value)) if logs else (down, up)
    down, up = found / len(samples)
    return float(down), float(up)


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
