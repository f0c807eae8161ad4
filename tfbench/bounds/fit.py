"""Step-time coefficients from measured steps, by non-negative least squares."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from tfbench.bounds.reading import is_number, shown
from tfbench.bounds.work import Work
from tfbench.core.errors import UsageError

_COLUMNS = ("base", "prefill_tokens", "decode_seqs", "context_tokens")


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step's work and how long it took, in milliseconds."""

    work: Work
    duration_ms: float


@dataclass(frozen=True, slots=True)
class FittedStepTime:
    """Coefficients of step = base + prefill_tokens·b + decode_seqs·c + context_tokens·d, ms, none negative.

    `n` steps were fitted; `residual_pNN_ms` are quantiles of |measured − fitted|, `residual_max_ms` the largest, and
    `bias_ms` is the mean of measured − fitted.
    """

    base_ms: float
    prefill_token_ms: float
    decode_seq_ms: float
    context_token_ms: float
    n: int
    bias_ms: float
    residual_p50_ms: float
    residual_p95_ms: float
    residual_p99_ms: float
    residual_max_ms: float

    def predict_ms(self, work: Work) -> float:
        """Milliseconds that a step with `work` takes by this fit."""
        return (
            self.base_ms
            + work.prefill_tokens * self.prefill_token_ms
            + work.decode_seqs * self.decode_seq_ms
            + work.context_tokens * self.context_token_ms
        )


def measured_steps(rows: Iterable[Mapping[str, object]]) -> list[MeasuredStep]:
    """Steps from rows (dicts of a CSV or JSON file): `duration_ms` and the fields of `Work`, absent ones zero.

    UsageError names the row, counted from 1, and the field.
    """
    steps = []
    for number, row in enumerate(rows, start=1):
        counts = {f.name: _count(number, f.name, row.get(f.name, 0)) for f in fields(Work)}
        duration = _number(number, "duration_ms", row.get("duration_ms"))
        if duration <= 0:
            raise UsageError(
                f"step {number}: duration_ms: {duration:g} is not above zero; leave the row out or mend it"
            )
        steps.append(MeasuredStep(Work(**counts), duration))
    return steps


def _number(row: int, name: str, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            pass
    if not is_number(value):
        raise UsageError(f"step {row}: {name}: {shown(value)} is no finite number; give one")
    return float(value)


def _count(row: int, name: str, value: object) -> int:
    number = _number(row, name, value)
    if number < 0 or number != int(number):
        raise UsageError(f"step {row}: {name}: {shown(value)} is no whole number, zero or more; give one")
    return int(number)


def fit_step_time(samples: Iterable[MeasuredStep]) -> FittedStepTime:
    """The non-negative coefficients with the least squared error over `samples` (Lawson and Hanson's NNLS).

    UsageError where the steps can't tell the coefficients apart: too few, or one that never varies by itself.
    """
    from scipy.optimize import nnls

    steps = list(samples)
    if len(steps) <= len(_COLUMNS):
        raise UsageError(f"fit: {len(steps)} steps are too few for {len(_COLUMNS)} coefficients; measure more")
    works = [step.work for step in steps]
    design = np.array([(1, w.prefill_tokens, w.decode_seqs, w.context_tokens) for w in works], dtype=np.float64)
    measured = np.array([step.duration_ms for step in steps], dtype=np.float64)
    scale = np.abs(design).max(axis=0)
    for name, largest in zip(_COLUMNS, scale, strict=True):
        if largest == 0:
            raise UsageError(f"fit: no step has {name}, so its coefficient is unknown; measure steps that do")
    scaled = design / scale
    for i, name in enumerate(_COLUMNS):
        if np.linalg.matrix_rank(np.delete(scaled, i, axis=1)) == np.linalg.matrix_rank(scaled):
            raise UsageError(
                f"fit: {name} varies only together with the others; measure steps in which it varies alone"
            )
    coefficients = nnls(scaled, measured)[0] / scale
    error = measured - design @ coefficients
    p50, p95, p99 = np.quantile(np.abs(error), (0.5, 0.95, 0.99))
    return FittedStepTime(
        base_ms=float(coefficients[0]),
        prefill_token_ms=float(coefficients[1]),
        decode_seq_ms=float(coefficients[2]),
        context_token_ms=float(coefficients[3]),
        n=len(steps),
        bias_ms=float(error.mean()),
        residual_p50_ms=float(p50),
        residual_p95_ms=float(p95),
        residual_p99_ms=float(p99),
        residual_max_ms=float(np.abs(error).max()),
    )


def step_time_toml(fit: FittedStepTime) -> str:
    """The fit as the [step_time] table of an engine profile."""
    return (
        f"# fitted to {fit.n} measured steps; |residual| p50 {fit.residual_p50_ms:.3g}, p99 {fit.residual_p99_ms:.3g}, "
        f"max {fit.residual_max_ms:.3g} ms\n"
        "[step_time]\n"
        f"base_ms = {fit.base_ms!r}\n"
        f"prefill_token_ms = {fit.prefill_token_ms!r}\n"
        f"decode_seq_ms = {fit.decode_seq_ms!r}\n"
        f"context_token_ms = {fit.context_token_ms!r}\n"
    )
