"""How a study could be made again from a shell, as a command that can be pasted."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.report.model import ReportData


@dataclass(frozen=True)
class Again:
    """The command that made a study, or one that would make it again.

    sets: what --set said; options: what else was given that a further run needs; simulated: its profile, where the
    study was made in virtual time; report: how `tfbench report` finds the study.
    """

    manifest: str = "MANIFEST"
    url: str | None = None
    sets: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    simulated: str | None = None
    warehouse: Path | None = None
    report: str = "last"
    tool: str = "tfbench"

    def run(self, *sets: str) -> str:
        """The study again, with `sets` in place of what was set before."""
        verb = "run" if self.simulated is None else "simulate"
        profile = () if self.simulated is None else ("--profile", self.simulated)
        return self._line(verb, self.manifest, *profile, *self._where(), sets=self._sets(sets))

    def capacity(self, target: str = "good_fraction=0.99") -> str:
        """The search for the highest load that meets a target."""
        profile = () if self.simulated is None else ("--simulate", "--profile", self.simulated)
        words = ("capacity", self.manifest, "--target", target, *profile, *self._where())
        return self._line(*words, sets=self._sets(("load.rates=", "load.concurrency=", "load.repeats="), drop=True))

    def report_line(self) -> str:
        """The study's report, in full and as a page."""
        return f"{self._line('report', self.report, *self._kept())} --verbose, or --html report.html"

    def _where(self) -> tuple[str, ...]:
        return (*(("--url", self.url) if self.url else ()), *self.options, *self._kept())

    def _kept(self) -> tuple[str, ...]:
        return () if self.warehouse is None else ("--warehouse", str(self.warehouse))

    def _sets(self, new: Sequence[str], *, drop: bool = False) -> tuple[str, ...]:
        """What was set before, less what `new` sets again and what may hold a secret: a header."""
        keys = {one.partition("=")[0].strip() for one in new}
        old = [one for one in self.sets if one.partition("=")[0].strip() not in keys and not _secret(one)]
        return (*old, *(() if drop else new))

    def _line(self, *words: str, sets: Sequence[str] = ()) -> str:
        return shlex.join([*self.tool.split(), *words, *(part for one in sets for part in ("--set", one))])


def _secret(one: str) -> bool:
    key, _, value = one.partition("=")
    return "headers" in key and "env:" not in value


def told_by(data: ReportData) -> Again:
    """What is known of it from the study alone: the profile, where it was simulated."""
    return Again(simulated=next(iter(data.profiles), None) if data.simulated else None, report=data.study.study_id)
