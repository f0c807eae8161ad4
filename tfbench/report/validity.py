"""The validity table: every signal with its limit, over the runs of each load point."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.report.fmt import NOTHING
from tfbench.report.model import LoadPoint, ReportData, Signal


@dataclass(frozen=True)
class SignalCell:
    """A signal over the runs of one load point: its range and whether every run kept the limit."""

    text: str
    ok: bool | None


@dataclass(frozen=True)
class SignalRow:
    """One signal: its words, its limit, one cell per load point."""

    name: str
    limit: str
    cells: tuple[SignalCell, ...]


def signal_table(data: ReportData) -> tuple[SignalRow, ...]:
    """One row per signal any run measured; in virtual time the client's lag is no such signal."""
    names = dict.fromkeys(signal.name for run in data.runs for signal in run.signals)
    if data.all_simulated:
        names = dict.fromkeys(name for name in names if "client_lag" not in name)
    return tuple(_row(data, name) for name in names)


def _row(data: ReportData, name: str) -> SignalRow:
    found: dict[LoadPoint, list[Signal]] = {
        load: [s for run in data.runs_at(load) for s in run.signals if s.name == name] for load in data.loads
    }
    every = [signal for held in found.values() for signal in held]
    limits = sorted({f"{relation(s)} {s.limit:.4g} {s.unit}".strip() for s in every if s.limit is not None})
    cells = tuple(_cell(held) for held in found.values())
    return SignalRow(name.replace("_", " "), " or ".join(limits) or NOTHING, cells)


def relation(signal: Signal) -> str:
    """The limit's relation as a sign."""
    return {"<=": "≤", ">=": "≥", "==": "="}.get(signal.relation, signal.relation)


def kept(signal: Signal) -> bool | None:
    """Whether the limit holds; None where there is no limit."""
    if signal.ok is not None:
        return signal.ok
    if signal.value is None or signal.limit is None:
        return None
    checks = {
        "<=": signal.value <= signal.limit,
        "<": signal.value < signal.limit,
        ">=": signal.value >= signal.limit,
        ">": signal.value > signal.limit,
        "==": signal.value == signal.limit,
    }
    return checks.get(signal.relation)


def _cell(signals: Sequence[Signal]) -> SignalCell:
    values = [s.value for s in signals if s.value is not None]
    words = list(dict.fromkeys(s.text for s in signals if s.text))
    marks = [mark for s in signals if (mark := kept(s)) is not None]
    if values:
        low, high = f"{min(values):.3g}", f"{max(values):.3g}"
        text = low if low == high else f"{low} – {high}"
        text = f"{text} {signals[0].unit}".strip()
    else:
        text = "; ".join(words[:3]) or NOTHING
    return SignalCell(text, all(marks) if marks else None)
