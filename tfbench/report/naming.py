"""What people call things: outcomes, figures and the reasons of a judgement in plain words, without internal names."""

import re
from collections.abc import Mapping

from tfbench.core.kinds import Outcome

ENDED: Mapping[str, str] = {
    Outcome.OK: "were answered well",
    Outcome.REJECTED: "were rejected (429 or 503)",
    Outcome.HTTP_ERROR: "were answered with an HTTP error",
    Outcome.CONNECT_ERROR: "could not connect",
    Outcome.DISCONNECTED: "were lost before any answer",
    Outcome.STREAM_ERROR: "broke off within the answer",
    Outcome.TIMEOUT: "timed out",
    Outcome.UNFINISHED: "had no answer by the end of drain",
    Outcome.UNSENT: "were never sent",
    Outcome.CANCELLED: "were cancelled as planned",
}
"""How requests ended: what follows `12 requests`."""

_FIGURES: Mapping[str, str] = {
    "throughput_requests_per_s": "requests per second",
    "throughput_output_tokens_per_s": "output tokens per second",
    "goodput_requests_per_s": "goodput",
    "throughput_between_arrivals_requests_per_s": "requests per second between arrivals",
    "goodput_between_arrivals_requests_per_s": "goodput between arrivals",
    "ok_fraction": "fraction answered well",
    "tokens_per_s_per_user": "output tokens per second per user",
}
_QUANTILE = re.compile(r"(\w+?)_p(\d+)_ms")
_STEMS: Mapping[str, str] = {
    "ttft": "TTFT",
    "ttft_service": "TTFT from sending",
    "ttft_ok": "TTFT of ok requests",
    "tpot": "TPOT",
    "tpot_ok": "TPOT of ok requests",
    "tpot_after_first": "TPOT after the first chunk",
    "icl": "ICL",
    "itl": "ITL",
    "e2e": "E2E",
    "e2e_service": "E2E from sending",
    "e2e_ok": "E2E of ok requests",
    "client_lag": "client lag",
}
_REASON = re.compile(r"(?P<says>[^:]+): \w+ = (?P<value>[-+\d.e]+)(?P<unit> \w+)? \(limit \S (?P<limit>[-+\d.e]+)\)")


def ended(outcome: str, n: int = 2) -> str:
    """How `n` requests of an outcome ended; one that nobody knows keeps its name."""
    words = ENDED.get(outcome, outcome)
    return words.replace("were ", "was ", 1) if n == 1 else words


def outcome_words(outcome: str) -> str:
    """An outcome as a heading: `answered well`, `timed out`."""
    return ended(outcome).removeprefix("were ")


def endings(counts: Mapping[str, int], total: int) -> str:
    """`47 of 240 requests had no answer by the end of drain, 3 timed out`, the most frequent first."""
    told = sorted(((n, name) for name, n in counts.items() if n), key=lambda one: -one[0])
    of = [f" of {total:,} requests", *[""] * len(told)]
    return ", ".join(f"{n:,}{all_of} {ended(name, n)}" for (n, name), all_of in zip(told, of, strict=False))


def figure_words(name: str) -> str:
    """A figure's name as people say it: `TTFT P95`, `good fraction`."""
    if found := _QUANTILE.fullmatch(name):
        return f"{_STEMS.get(found[1], found[1].replace('_', ' '))} P{found[2]}"
    return _FIGURES.get(name) or name.replace("_per_s", " per second").replace("_", " ")


def reason_words(reason: str) -> str:
    """A reason of a validity judgement without the signal's name: `the client sent late (4.8 ms, limit 3 ms)`."""
    found = _REASON.fullmatch(reason)
    if found is None:
        return reason
    unit = found["unit"] or ""
    return f"{found['says']} ({found['value']}{unit}, limit {found['limit']}{unit})"
