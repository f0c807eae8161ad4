"""Conducting: probe, order, run, close the bundle, ingest, judge."""

from tfbench.study.conduct import run_study
from tfbench.study.record import StudyDone
from tfbench.study.watch import RunEnd, Silent, StudyPlan, Watcher

__all__ = ["RunEnd", "Silent", "StudyDone", "StudyPlan", "Watcher", "run_study"]
