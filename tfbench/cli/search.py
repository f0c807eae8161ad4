"""Live progress of a capacity search on stderr: what runs now, and a line per decision."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

from tfbench.cli.waiting import Waiting
from tfbench.manifest import RunPlan
from tfbench.stats.search import Answer, SearchPlan
from tfbench.study import RunEnd, StudyPlan
from tfbench.study.capacity import Row
from tfbench.study.target import Target
from tfbench.verdict.words import decision_words, n_text

_LINE_EVERY_S = 15.0


class LiveSearch:
    """A `SearchWatcher` that shows progress; use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._done = 0
        self._most = 0
        self._said = time.monotonic()
        self._wait = Waiting(console=self._console)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
            self._wait.show = self._status.update
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait.__exit__(kind, error, trace)
        if self._status is not None:
            self._status.stop()

    def probing(self, url: str) -> None:
        """Say whom we are waiting for."""
        self._say(f"asking {url} what it serves", "dim")
        self._wait.begin(f"an answer from {url}")

    def waiting(self, what: str) -> None:
        """Say so if it takes long."""
        self._wait.begin(what)

    def preparing(self, what: str) -> None:
        """Say what is done to the system before the next run."""
        if self._status is None:
            self._say(f"  {what}", "dim")
        else:
            self._status.update(what)
        self._wait.begin(f"the end of: {what}")

    def study_started(self, plan: StudyPlan) -> None:
        """A search plans as it goes."""
        del plan

    def runs_added(self, count: int, why: str) -> None:
        """A search plans as it goes."""
        del count, why

    def search_started(
        self, study_id: str, name: str, target: Target, plan: SearchPlan, notes: tuple[str, ...]
    ) -> None:
        """Say what is looked for, and what may be spent on it."""
        del study_id
        self._wait.end()
        self._most = plan.max_runs
        self._say(f"{name}: the highest load at which {target.words}, in at most {_runs(plan.max_runs)}", "bold")
        for note in notes:
            self._say(f"note: {note}", "dim")

    def run_started(self, plan: RunPlan) -> None:
        """A run begins."""
        self._wait.end()
        self._said = time.monotonic()
        self._show(plan, "")

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        """Counts of the run so far; where there's no terminal, a line every so often."""
        self._wait.end()
        text = (
            f"{counts.get('elapsed_s', 0):.0f} s, {counts.get('sent', 0):.0f} sent, "
            f"{counts.get('in_flight', 0):.0f} in flight"
        )
        if self._status is not None:
            self._show(plan, text)
        elif time.monotonic() - self._said >= _LINE_EVERY_S:
            self._said = time.monotonic()
            self._say(f"  load {plan.load_value:g}: {text}", "dim")

    def run_ended(self, end: RunEnd) -> None:
        """Only what is wrong is told; the decision follows."""
        self._wait.end()
        self._done += 1
        for verdict in end.verdicts:
            for reason in verdict.reasons if verdict.verdict in ("INVALID", "unstable") else ():
                self._say(f"  load {end.plan.load_value:g}: {verdict.verdict}: {reason}", "yellow")

    def probe_ended(self, row: Row, so_far: Answer) -> None:
        """The decision at one load, and what is known by then."""
        runs = f"{_runs(row.runs)}, n (n_eff) {n_text(row.counted, row.n_eff)}"
        share = f"{_end(row.value, '–')} [{_end(row.lo, '–')}, {_end(row.hi, '–')}]"
        decision = f"{decision_words(row.met, row.scouted)}; {_between(so_far.lo, so_far.hi)}"
        style = "" if (row.met, row.scouted) != (None, None) else "dim"
        self._say(f"run {self._done}/{self._most} load {row.load:g}: {share}, {runs}: {decision}", style)

    def _show(self, plan: RunPlan, text: str) -> None:
        if self._status is not None:
            self._status.update(f"run {self._done + 1}, load {plan.load_value:g} {text}")

    def _say(self, text: str, style: str) -> None:
        self._console.print(text, style=style or None, markup=False, soft_wrap=True)


def _runs(n: int) -> str:
    return f"{n:,} run{'' if n == 1 else 's'}"


def _between(lo: float | None, hi: float | None) -> str:
    """Where the limit lies, in words."""
    if lo is None or hi is None:
        known = f"above {lo:.4g}" if lo is not None else f"below {hi:.4g}" if hi is not None else "anywhere"
        return f"the limit may lie {known}" if known == "anywhere" else f"the limit lies {known}"
    return f"the limit lies between {lo:.4g} and {hi:.4g}"


def _end(value: float | None, nothing: str) -> str:
    return nothing if value is None else f"{value:.4g}"
