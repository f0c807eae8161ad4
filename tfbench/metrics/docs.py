"""The page that explains every figure, generated from the definitions.

`python -m tfbench.metrics.docs > docs/figures.md` writes it.
"""

import sys
from collections.abc import Sequence

from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import read_sql

_INTRODUCTION = """\
# Figures

This page is generated from `tfbench/metrics/definitions.py`; don't edit it. Regenerate it with
`python -m tfbench.metrics.docs > docs/figures.md`.

Every figure is derived from the ledger's facts by SQL, and carries n, an interval and the method that made it.

- **Counted** attempts are of role load, scheduled in the measured window, with outcome `ok` or one of the manifest's
  `accounting.bad`. Fractions and quantiles run over them. Excluded outcomes are in no figure.
- **Window.** Rates and costs take attempts whose end lies in the window [measure_start, measure_end), whatever phase
  they were scheduled in. With a count, or all at once, the window runs from the first measured schedule to the last
  measured end, and that last end lies in it. Then it holds drain, in which requests end but none arrives: 100 requests
  at 10 a second that take 5 s each give 6.7 a second over 14.9 s. A rate whose window holds more than 5 % of drain says
  so in its reason, with the rate between arrivals; requests have that as a figure of its own. It is the system's rate
  where the system kept up; where a queue grew, the rate over the window is. Costs are those of the whole window, with
  its drain.
- **Failures in quantiles.** A bad attempt has +inf E2E; its TTFT and TPOT count if they came, else they are +inf. An ok
  answer without any output has +inf TTFT. Gaps between chunks are those that were seen, of good and bad alike.
  A figure over ok attempts only says `_ok` in its name.
- **Output chunks** are those that show something (text, reasoning, a tool call), and those that show nothing but are
  known to have carried a token: by token ids, log probabilities or a count that rose with them. Where a whole answer
  shows nothing (weights that write nothing), all its empty chunks are output, and its TTFT is that of the first;
  reports print how many there were.
- **Unit.** With `accounting.unit = "task"` a task's last try stands for it, on the clock and in the phase of its first.
- **SLO terms.** A limit is inclusive. TTFT unknown or never come: not met. One output token or one output chunk: TPOT
  and ICL terms are met vacuously, and reports print how many were. An unknown token count: the TPOT term isn't met.
- **Good**: outcome `ok`, every SLO term met, quality passed (an attempt without a judgement passes when the manifest
  names no judge).
- **Unknown** is never 0: a figure without a value has a reason, and perhaps a bound.

Other tools time from the send and leave failures out; their names are listed where the formula is the same otherwise.
"""

_BETTER = {"lower": "lower is better", "higher": "higher is better", None: "no direction"}


def figures_markdown() -> str:
    """The whole page as Markdown, ending in one newline."""
    groups: dict[tuple[str, str], list[FigureDef]] = {}
    for figure in FIGURES.values():
        groups.setdefault((_words(figure), figure.sql), []).append(figure)
    sections = [_section(words, sql, figures) for (words, sql), figures in groups.items()]
    return "\n".join([_INTRODUCTION, *sections, _tables()])


def _words(figure: FigureDef) -> str:
    return figure.words.partition(" of ")[2] if figure.p is not None else figure.words


def _section(words: str, sql: str, figures: Sequence[FigureDef]) -> str:
    first = figures[0]
    lines = [
        "## " + ", ".join(f"`{figure.name}`" for figure in figures),
        "",
        f"{'Quantile of ' if first.p is not None else ''}{words}.",
        "",
        f"- Unit: {first.unit}; {_BETTER[first.direction]}",
        f"- Source: {first.source}",
    ]
    if first.aliases:
        lines.append("- Elsewhere: " + ", ".join(f"{tool} `{name}`" for tool, name in first.aliases.items()))
    return "\n".join([*lines, "", "```sql", sql, "```", ""])


def _tables() -> str:
    parts = ["## Where they are drawn from", ""]
    for table, file in (("policy", "policy"), ("windows", "windows"), ("attempt_facts", "attempts")):
        parts += [f"### `{table}`", "", "```sql", read_sql(file).rstrip(), "```", ""]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(figures_markdown())
