"""Validity: was the load offered as planned, and is what the client saw what arrived?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RULESET = "tfbench-1"
VALID = "VALID"
INVALID = "INVALID"
_SIGNS = {"<=": "≤", ">=": "≥"}


@dataclass(frozen=True)
class Rule:
    """One signal's limit: `relation` is "<=" or ">="; `says` tells a reader what being over it means."""

    signal: str
    limit: float
    relation: str
    unit: str
    says: str


@dataclass(frozen=True)
class Verdict:
    """A judgement of one run with its reasons (empty when there is nothing to say)."""

    kind: str
    verdict: str
    reasons: tuple[str, ...]

    def row(self, run_id: str) -> dict[str, Any]:
        """The row of the `verdicts` table."""
        return {
            "run_id": run_id,
            "ruleset": RULESET,
            "kind": self.kind,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
        }


def rules(ttft_limit_ms: float | None) -> tuple[Rule, ...]:
    """The limits of every signal; a client may lag by 1 % of the TTFT limit, or 1 ms."""
    lag = max(1.0, 0.01 * ttft_limit_ms) if ttft_limit_ms is not None else 1.0
    return (
        Rule("client_lag_p99_ms", lag, "<=", "ms", "the client sent late"),
        Rule("sent_share", 0.99, ">=", "", "requests scheduled in the window were not sent"),
        Rule("blurred_chunk_share", 0.01, "<=", "", "chunks were read too late to tell their times apart"),
        # A stamp holds however late it is read; what a late read merges is counted as blur. This tells a client that
        # falls behind.
        Rule("kernel_to_user_lag_p99_ms", 5.0, "<=", "ms", "the client read late"),
        Rule("worker_cpu_max_share", 0.9, "<=", "", "the client ran out of CPU"),
        Rule("clock_steps", 0.0, "<=", "", "the realtime clock was stepped"),
        Rule("exhausted_connections", 0.0, "<=", "", "the client ran out of ports or file descriptors"),
        Rule("dead_workers", 0.0, "<=", "", "a worker process died"),
        Rule("scheduled_requests", 1.0, ">=", "", "no request was scheduled in the window"),
    )


def _kept(rule: Rule, value: float) -> bool:
    return value <= rule.limit if rule.relation == "<=" else value >= rule.limit


def signals_with_limits(measured: Mapping[str, float | None], ttft_limit_ms: float | None) -> dict[str, Any]:
    """Each signal as stored in `runs.signals`: value, limit, relation, unit, ok (None where not measured)."""
    stored: dict[str, Any] = {}
    for rule in rules(ttft_limit_ms):
        value = measured.get(rule.signal)
        stored[rule.signal] = {
            "value": value,
            "limit": rule.limit,
            "relation": rule.relation,
            "unit": rule.unit,
            "ok": None if value is None else _kept(rule, value),
        }
    return stored


def judge_validity(signals: Mapping[str, Any], *, status: str = "complete", notes: tuple[str, ...] = ()) -> Verdict:
    """VALID when the run is complete and every measured signal keeps its limit; else INVALID with reasons.

    `notes` name what happened (a worker's last words) and stand after the signals' reasons.
    """
    says = {rule.signal: rule.says for rule in rules(None)}
    reasons = [
        f"{says.get(name, name)}: {name} = {signal['value']:.4g} {signal['unit']}".rstrip()
        + f" (limit {_SIGNS[signal['relation']]} {signal['limit']:g})"
        for name, signal in signals.items()
        if signal["ok"] is False
    ]
    if status != "complete":
        reasons.append(f"the run is {status}")
    return Verdict("validity", INVALID if reasons else VALID, tuple(reasons) + (notes if reasons else ()))
