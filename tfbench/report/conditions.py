"""Under which conditions a study's runs were made: their order, restarts between them, what a prefix cache held."""

from collections.abc import Sequence

from tfbench.report.judged import chosen_runs
from tfbench.report.model import ReportData, Run

_REPEATS = 6
_POINTS = 12
_CACHED = 0.05
"""From this share of prompt tokens on, what a cache held is told."""
"""At most so many repeats and load points are told; the table of runs tells all."""


def conditions(data: ReportData) -> list[str]:
    """A phrase for each condition that is known."""
    return [*_order(data), *_restarts(data), *_cache(data)]


def _order(data: ReportData) -> list[str]:
    """Which load point came when, repeat by repeat; nothing where there is one, or where a search chose."""
    if len({run.load.value for run in data.runs}) < 2 or data.capacity is not None:
        return []
    by_repeat: dict[int, list[str]] = {}
    for run in sorted(data.runs, key=lambda run: run.order_index):
        seen = by_repeat.setdefault(run.repeat, [])
        if run.load.number not in seen:
            seen.append(run.load.number)
    told = [" ".join(_cut(by_repeat[repeat], _POINTS)) for repeat in sorted(by_repeat)]
    return [f"order of loads by repeat: {' | '.join(_cut(told, _REPEATS))}"]


def server_cautions(data: ReportData) -> list[str]:
    """What the server did that the figures don't show by themselves: answered from a cache, closed connections."""
    notes = []
    shares = [run.cached_share for run in chosen_runs(data.runs) if run.cached_share is not None]
    if shares and max(shares) >= _CACHED and not any(run.cache_state == "warm" for run in data.runs):
        shared = data.study.section("workload").get("shared_prefix_tokens")
        why = (
            "" if shared else '; if that is meant, say so with load.cache = "warm", else restart or flush it ([hooks])'
        )
        notes.append(
            f"up to {max(shares):.0%} of prompt tokens came from the server's cache (a chat template counts){why}"
        )
    lost = sum(int(run.observed.get("lost_to_closing") or 0) for run in data.runs)
    if lost:
        notes.append(
            f"{lost} request{'s were' if lost > 1 else ' was'} lost on kept-alive connections that the server closed as"
            ' they came; set endpoint.connections = "per_request"'
        )
    return notes


def _cut(words: Sequence[str], most: int) -> list[str]:
    return [*words] if len(words) <= most else [*words[:most], "…"]


def _restarts(data: ReportData) -> list[str]:
    """Whether repeats share a process: then what differs from one start to the next is in no interval."""
    measured = [run for run in data.runs if run.origin == "measured"]
    if not measured or max(len(data.runs_at(load)) for load in data.loads) < 2:
        return []
    restarts = [run.restart for run in measured]
    if all(restart is None for restart in restarts):
        return ["not restarted between repeats"]
    times = f"{max(restart or 0 for restart in restarts)} restarts"
    return [f"{times}, {'each repeat in a fresh process' if each_fresh(data) else 'some repeats share a process'}"]


def each_fresh(data: ReportData) -> bool:
    """Whether every repeat of every load point met a process of its own."""
    return all(_alone(data.runs_at(load)) for load in data.loads)


def _alone(runs: Sequence[Run]) -> bool:
    """Whether no two of these runs met the same process."""
    return len({run.restart for run in runs} - {None}) == len(runs)


def _cache(data: ReportData) -> list[str]:
    """What was declared of the prefix cache, and how much of the prompts came from it."""
    states = sorted({run.cache_state for run in data.runs if run.cache_state})
    shares = [run.cached_share for run in chosen_runs(data.runs) if run.cached_share is not None]
    if not states and not any(shares):
        return []
    state = f"prefix cache {'/'.join(states)}" if states else "prefix cache not declared"
    if not shares:
        return [f"{state}, hits unknown"]
    low, high = min(shares), max(shares)
    span = f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
    return [f"{state}, {span} of prompt tokens from it"]
