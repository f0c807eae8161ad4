"""Metrics: pure functions of the ledger's facts, defined as SQL; the figures' registry and the frames reports read."""

from tfbench.metrics.checks import Spans, in_flight_spans
from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import attempt_figures, counts, outcomes
from tfbench.metrics.figures import figures, run_figures
from tfbench.metrics.slices import Bucket, Length, Sample, bucket_samples, combined, length_of, short_reason

__all__ = [
    "FIGURES",
    "Bucket",
    "FigureDef",
    "Length",
    "Sample",
    "Spans",
    "attempt_figures",
    "bucket_samples",
    "combined",
    "counts",
    "figures",
    "in_flight_spans",
    "length_of",
    "outcomes",
    "run_figures",
    "short_reason",
]
