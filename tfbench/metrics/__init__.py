"""Metrics: pure functions of the ledger's facts, defined as SQL; the figures' registry and the frames reports read."""

from tfbench.metrics.checks import Spans, in_flight_spans
from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import attempt_figures, counts, outcomes
from tfbench.metrics.figures import figures, run_figures

__all__ = [
    "FIGURES",
    "FigureDef",
    "Spans",
    "attempt_figures",
    "counts",
    "figures",
    "in_flight_spans",
    "outcomes",
    "run_figures",
]
