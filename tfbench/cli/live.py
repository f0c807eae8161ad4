"""Live progress of a study on stderr: a bar where it's a terminal, a line per run where not."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tfbench.cli.waiting import LONG_S, Waiting
from tfbench.manifest import RunPlan
from tfbench.study import RunEnd, StudyPlan

_LINE_EVERY_S = 15.0
_WARM_UP = "warm-up"
_DRAIN = "drain: waiting for the last answers"


def _load_text(plan: RunPlan) -> str:
    arm = "" if plan.arm is None else f" {plan.arm}"
    return f"load {plan.load_value:g}{arm} repeat {plan.repeat}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


class LiveWatcher:
    """A `Watcher` that shows progress; use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: Any = None
        self._plan: StudyPlan | None = None
        self._done = self._more = 0
        self._said = time.monotonic()
        self._phase = ""
        self._phase_since = self._said
        self._wait = Waiting(console=self._console)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait.__exit__(kind, error, trace)
        if self._bar is not None:
            self._bar.stop()

    def probing(self, url: str) -> None:
        """Say whom we are waiting for."""
        self._say(f"asking {url} what it serves", "dim")
        self._wait.begin(f"an answer from {url}")

    def waiting(self, what: str) -> None:
        """Say so if it takes long."""
        self._wait.begin(what)

    def preparing(self, what: str) -> None:
        """Say what is done to the system before the next run."""
        if self._bar is None:
            self._say(f"  {what}", "dim")
        else:
            self._bar.update(self._task, description=what, counts="")
        self._wait.begin(f"the end of: {what}")

    def study_started(self, plan: StudyPlan) -> None:
        """Say what is about to be done and what this sample size can carry."""
        self._wait.end()
        self._plan = plan
        count = f"{len(plan.runs)} run{'' if len(plan.runs) == 1 else 's'}"
        planned = "" if plan.run_s is None else f", about {_duration(len(plan.runs) * plan.run_s)} plus drains"
        if plan.simulated:
            self._say(f"SIMULATED {plan.name}: {count}, no system is measured", "bold magenta")
        else:
            self._say(f"{plan.name}: {count}{planned}", "bold")
        for note in plan.notes:
            self._say(f"note: {note}", "dim")
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[counts]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=len(plan.runs), counts="")
            self._wait.show = lambda text: self._bar.update(self._task, counts=text) if self._bar else None
            self._bar.start()

    def runs_added(self, count: int, why: str) -> None:
        """Say why more runs are made than planned."""
        self._more += count
        self._say(f"note: {why}", "yellow")
        if self._bar is not None:
            self._bar.update(self._task, total=self._total)

    def run_started(self, plan: RunPlan) -> None:
        """A run begins."""
        self._wait.end()
        self._said = time.monotonic()
        if self._bar is not None and self._plan is not None:
            place = f"run {plan.order_index + 1}/{self._total}"
            self._bar.update(self._task, description=f"{self._mark}{place} {_load_text(plan)}", counts="")

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        """Counts of the run so far."""
        if self._plan is None:
            return
        self._wait.end()
        self._enter(self._phase_of(counts))
        if self._bar is None:
            self._say_now_and_then(plan, counts)
            return
        part = 0.0
        if self._plan.run_s:
            part = min(max(counts.get("elapsed_s", 0.0), 0.0) / self._plan.run_s, 1.0)
        waiting = f" {counts['waiting']:.0f} waiting" if counts.get("waiting") else ""
        text = f"{self._phase}, " if self._phase else ""
        text += (
            f"{counts.get('sent', 0):.0f} sent {counts.get('done', 0):.0f} done "
            f"{counts.get('in_flight', 0):.0f} in flight{waiting}"
        )
        self._bar.update(self._task, completed=self._done + part, counts=text)

    def _say_now_and_then(self, plan: RunPlan, counts: dict[str, float]) -> None:
        """Where there's no bar: a line every so often, so that a long run isn't silent."""
        now = time.monotonic()
        drains = self._phase == _DRAIN and self._said < self._phase_since and now - self._phase_since > LONG_S
        if now - self._said < _LINE_EVERY_S and not drains:
            return
        self._said = now
        phase = f"{self._phase}, " if self._phase else ""
        self._say(
            f"  {_load_text(plan)}: {phase}{counts.get('elapsed_s', 0):.0f} s, {counts.get('sent', 0):.0f} sent, "
            f"{counts.get('in_flight', 0):.0f} in flight",
            "dim",
        )

    def _phase_of(self, counts: dict[str, float]) -> str:
        """Which part of the run it is, where the plan tells."""
        if self._plan is None or not self._plan.run_s:
            return ""
        elapsed_s = counts.get("elapsed_s", 0.0)
        if elapsed_s >= self._plan.run_s:
            return _DRAIN
        return _WARM_UP if elapsed_s < self._plan.warmup_s else ""

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            self._phase, self._phase_since = phase, time.monotonic()

    def run_ended(self, end: RunEnd) -> None:
        """One line per run: outcomes and judgements."""
        self._wait.end()
        self._enter("")
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        outcomes = " ".join(f"{n} {name}" for name, n in sorted(end.outcomes.items(), key=lambda item: -item[1]))
        judged = " ".join(verdict.verdict for verdict in end.verdicts)
        bad = any(verdict.verdict in ("INVALID", "unstable") for verdict in end.verdicts)
        place = f"{self._mark}run {self._done}/{self._total} {_load_text(end.plan)}"
        self._say(f"{place}: {outcomes}; {judged}", "yellow" if bad else "")
        for verdict in end.verdicts:
            for reason in verdict.reasons if verdict.verdict in ("INVALID", "unstable") else ():
                self._say(f"  {reason}", "yellow")

    @property
    def _total(self) -> int:
        return 0 if self._plan is None else len(self._plan.runs) + self._more

    @property
    def _mark(self) -> str:
        return "simulated " if self._plan is not None and self._plan.simulated else ""

    def _say(self, text: str, style: str) -> None:
        self._console.print(text, style=style or None, markup=False, soft_wrap=True)
