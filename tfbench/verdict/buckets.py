"""Which bucket every attempt is in: by planned input and output length, tenant, LoRA and class.

Lengths are the planned ones wherever the manifest can give them: what came back would leave failed attempts out, and
would sort attempts by what the system did to them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfbench.core.errors import ManifestError
from tfbench.manifest import Manifest, RunPlan, parse_manifest
from tfbench.manifest.plan import run_seed
from tfbench.verdict.arms import Arm, ArmRun
from tfbench.workload import build_workload

LENGTHS = ("input_tokens", "output_tokens")
COLUMNS = ("tenant", "lora", "class")
BUCKETS = (*LENGTHS, *COLUMNS)
Edges = Mapping[str, Sequence[float]]
"""Per length, ascending: a bucket reaches up to and with its edge; a last one has the rest."""

_TASK = (1 << 40) - 1
_FEW_LENGTHS = 4
_UNKNOWN = "unknown"
_ATTEMPTS = """
SELECT run_id, attempt_id, prompt_tokens AS input_tokens, output_tokens, tenant, lora, "class"
FROM attempts WHERE list_contains(?, run_id) AND role = 'load' ORDER BY run_id, attempt_id
"""


def read_attempts(con: Any, arm: Arm, runs: Sequence[ArmRun]) -> pd.DataFrame:
    """One row per attempt of these runs: run_id, attempt_id and what `BUCKETS` go by, NaN or None where unknown."""
    frame: pd.DataFrame = con.execute(_ATTEMPTS, [[run.run_id for run in runs]]).df()
    manifest = _manifest(arm)
    if manifest is None:
        return frame
    planned = {run.run_id: _planned(manifest, run) for run in runs}
    parts = []
    for run_id, part in frame.groupby("run_id", sort=False):
        lengths = planned[str(run_id)]
        if lengths is not None:
            pairs = [lengths(int(attempt) & _TASK) for attempt in part["attempt_id"]]
            part = part.assign(input_tokens=[i for i, _ in pairs], output_tokens=[o for _, o in pairs])
        parts.append(part)
    return pd.concat(parts) if parts else frame


def length_edges(frame: pd.DataFrame, given: Edges) -> dict[str, list[float]]:
    """The edges of each length's buckets: the given ones, each value where there are at most four, else quartiles."""
    edges = {}
    for name in LENGTHS:
        known = frame[name].dropna().to_numpy(dtype=np.float64)
        if name in given:
            edges[name] = [float(edge) for edge in given[name]]
        elif len(known):
            values = np.unique(known)
            cuts = (
                values if len(values) <= _FEW_LENGTHS else np.quantile(known, (0.25, 0.5, 0.75), method="inverted_cdf")
            )
            edges[name] = [float(edge) for edge in np.unique(cuts)]
    return edges


def memberships(frame: pd.DataFrame, edges: Edges, wanted: Sequence[str]) -> pd.DataFrame:
    """One row per attempt and bucket it is in: run_id, attempt_id, by, label."""
    parts = []
    for by in wanted:
        if by in LENGTHS:
            labels = _length_labels(frame[by].to_numpy(dtype=np.float64), edges.get(by, ()))
        else:
            labels = frame[by].astype(object).where(frame[by].notna(), "none").astype(str).to_numpy()
        parts.append(frame[["run_id", "attempt_id"]].assign(by=by, label=labels))
    return (
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["run_id", "attempt_id", "by", "label"])
    )


def _manifest(arm: Arm) -> Manifest | None:
    try:
        return parse_manifest(arm.manifest, arm.study_id)
    except ManifestError:
        return None  # an import's, or an older one's: what came back has to serve


def _planned(manifest: Manifest, run: ArmRun) -> Any:
    """item index -> (input, output) tokens, or None where the run wasn't made from this manifest."""
    if run.load is None:
        return None
    seed, salt = run_seed(manifest.load.seed, run.load, run.repeat)
    if seed != run.seed:
        return None
    workload = build_workload(manifest, RunPlan(0, run.load, run.repeat, 0, seed, salt))

    def lengths(index: int) -> tuple[int, int]:
        item = workload.item(index, text=False)
        return item.input_tokens, item.max_tokens

    return lengths


def _length_labels(values: "np.typing.NDArray[np.float64]", edges: Sequence[float]) -> "np.typing.NDArray[Any]":
    names = []
    for i, edge in enumerate(edges):
        names.append(f"≤ {edge:g}" if i == 0 else f"{edges[i - 1] + 1:g}–{edge:g}")
    names.append(f"> {edges[-1]:g}" if edges else "all")
    place = np.searchsorted(np.asarray(edges, dtype=np.float64), values, side="left")
    known = ~np.isnan(values)
    return np.where(known, np.array(names, dtype=object)[np.where(known, place, 0)], _UNKNOWN)
