"""Does a run whose client was slow still answer what is asked of it, and is it worth running again if not?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.core.kinds import RunStatus
from tfbench.metrics import FIGURES, FigureDef
from tfbench.metrics.client_error import client_moves
from tfbench.metrics.soundness import TIMING, Moved, is_sound, only_timing, over_limits

_TRANSIENT = TIMING | {"clock_steps", "dead_workers"}
"""The signals of trouble that may pass: another run may do better. A load that wasn't offered would not be again."""


Stands = Callable[[Any, str], bool]
"""Whether what is asked of a run in a warehouse (its connection, run_id) stands, although its client was slow."""
_SUMMARY = (
    *("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "good_fraction", "ok_fraction"),
    *("throughput_requests_per_s", "goodput_requests_per_s"),
)


@dataclass(frozen=True)
class Use:
    """fit: the run is evidence for all that is asked. transient: it isn't, but another run may be."""

    fit: bool
    transient: bool = False


def figures_stand(names: Sequence[str] = _SUMMARY, sound: Callable[[FigureDef, Moved], bool] = is_sound) -> Stands:
    """That these figures do, those of the summary by default."""

    def stands(con: Any, run_id: str) -> bool:
        moves = client_moves(con, [run_id], names)
        return all(sound(FIGURES[name], moved) for (_, name), moved in moves.items())

    return stands


def use_of(con: Any, run_id: str, signals: Mapping[str, Any], status: str, stands: Stands) -> Use:
    """What a run is good for that is in a warehouse, by its client's signals alone."""
    over = over_limits(signals)
    if status == RunStatus.COMPLETE and not over:
        return Use(fit=True)
    if status == RunStatus.COMPLETE and only_timing(signals):
        fit = stands(con, run_id)
        return Use(fit, transient=not fit)
    return Use(fit=False, transient=status != RunStatus.INTERRUPTED and bool(over) and over <= _TRANSIENT)
