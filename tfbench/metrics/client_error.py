"""How far the client itself may have moved a run's figures: by sending late, or by reading too late to tell times.

A figure is taken three times: as seen, and with each duration as short and as long as the client's own lag and blur
allow (`facts.Side`). What lies between is the client's doing, whatever its signals say of it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import duckdb

from tfbench.core.kinds import Mode
from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import Facts, Side, run_facts
from tfbench.metrics.figures import draw, run_value
from tfbench.metrics.soundness import LEAST_MS, Moved, Moves

_QUIET = {"client_lag_p99_ms": LEAST_MS, "blurred_chunk_share": 0.002, "kernel_to_user_lag_p99_ms": 5.0}
"""Up to these signals nothing but a P99 can have moved, and that by little: such runs aren't looked at."""
_SIDES: tuple[Side, ...] = ("least", "most")
_OURS = "client_lag"


def client_moves(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str], names: Iterable[str] = FIGURES) -> Moves:
    """How far the client may have moved the figures `names` of these runs of one study, where it did."""
    loud = _loud(con, run_ids)
    wanted = [FIGURES[name] for name in names if not name.startswith(_OURS)]
    if not loud or not wanted:
        return {}
    with run_facts(con, loud) as facts:
        seen = _values(facts, wanted)
        late = _late_shares(facts)
    found = {key: Moved(value) for key, value in seen.items()}
    for side in _SIDES:
        with run_facts(con, loud, side) as facts:
            for key, value in _values(facts, wanted).items():
                one, apart = found[key], _apart(seen[key], value)
                found[key] = replace(one, down=max(one.down, -apart), up=max(one.up, apart))
    for (run_id, name), one in found.items():
        if FIGURES[name].kind in ("rate", "cost") and one.value is not None and run_id in late:
            slack = one.value * late[run_id]
            found[run_id, name] = replace(one, down=one.down + slack, up=one.up + slack)
    return {key: one for key, one in found.items() if one.most > 0.0}


def _loud(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> list[str]:
    """The runs whose client was slow enough to look at."""
    rows = con.execute(
        "SELECT run_id, signals FROM runs WHERE list_contains(?, run_id) ORDER BY run_id", [list(run_ids)]
    ).fetchall()
    loud = []
    for run_id, text in rows:
        signals = json.loads(text) if text else {}
        found = {name: one for name in _QUIET if isinstance(one := signals.get(name), Mapping)}
        if any((one.get("value") or 0.0) > _QUIET[name] for name, one in found.items()):
            loud.append(run_id)
    return loud


def _values(facts: Facts, wanted: Sequence[FigureDef]) -> dict[tuple[str, str], float | None]:
    drawn = draw(facts, wanted)
    return {
        (run.run_id, figure.name): run_value(figure, facts, drawn, run)[0] for run in facts.runs for figure in wanted
    }


def _apart(seen: float | None, value: float | None) -> float:
    if seen is None or value is None:
        # Unknown or infinite both ways is the same answer; one way alone, the client may have made it so.
        return 0.0 if seen is value else math.inf
    return value - seen


def _late_shares(facts: Facts) -> dict[str, float]:
    """Of closed loops, which wait for each answer: the share of an attempt's time that was the client's own lag."""
    rows = facts.con.execute(
        "SELECT run_id, sum(greatest(client_lag_ms, 0)) / nullif(sum(e2e_ms), 0)"
        " FROM attempt_facts WHERE counted AND ok GROUP BY run_id"
    ).fetchall()
    closed = {run.run_id for run in facts.runs if run.mode == Mode.CLOSED}
    return {run_id: share for run_id, share in rows if run_id in closed and share}
