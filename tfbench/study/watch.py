"""What a study tells whoever watches it: a terminal, a log, or nobody."""

from dataclasses import dataclass
from typing import Protocol

from tfbench.manifest import RunPlan
from tfbench.verdict.spoiled import Use
from tfbench.verdict.validity import Verdict


@dataclass(frozen=True)
class StudyPlan:
    """What is about to be done; times in seconds (of virtual time where it is `simulated`), drains left out."""

    study_id: str
    name: str
    runs: tuple[RunPlan, ...]
    run_s: float | None
    notes: tuple[str, ...]
    simulated: bool = False
    warmup_s: float = 0.0


@dataclass(frozen=True)
class RunEnd:
    """One finished run: how it ended, how it was judged and what it is good for."""

    run_id: str
    plan: RunPlan
    status: str
    outcomes: dict[str, int]
    verdicts: tuple[Verdict, ...]
    use: Use


class Watcher(Protocol):
    """Told of a study's progress; must return quickly."""

    def probing(self, url: str) -> None:
        """The endpoint at `url` is being asked what it is."""

    def preparing(self, what: str) -> None:
        """The system is being restarted, flushed or primed; `what` says so."""

    def waiting(self, what: str) -> None:
        """The study waits for `what`, until it tells of anything else."""

    def study_started(self, plan: StudyPlan) -> None:
        """Before the first run."""

    def runs_added(self, count: int, why: str) -> None:
        """So many more runs than planned are to be made."""

    def run_started(self, plan: RunPlan) -> None:
        """A run begins to load its workers."""

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        """Counts of the run so far: sent, done, in_flight, waiting, elapsed_s."""

    def run_ended(self, end: RunEnd) -> None:
        """A run is in the warehouse."""


class Silent:
    """Watches nothing."""

    def probing(self, url: str) -> None:
        del url

    def preparing(self, what: str) -> None:
        del what

    def waiting(self, what: str) -> None:
        del what

    def study_started(self, plan: StudyPlan) -> None:
        del plan

    def runs_added(self, count: int, why: str) -> None:
        del count, why

    def run_started(self, plan: RunPlan) -> None:
        del plan

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        del plan, counts

    def run_ended(self, end: RunEnd) -> None:
        del end
