"""Studies made by hand to compare and to judge, and the verbs that do so."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.ledger.builder import MANIFEST, row
from tests.verdict.ledgers import add_study, answers, failures, latencies
from tests.verdict.schema import check
from tfbench.cli.app import app
from tfbench.core.errors import TfbenchError

ROOT = Path(__file__).resolve().parents[2]

POLICY = """
[[metric]]
name = "ttft_p50_ms"
margin = { relative = 0.05 }
[[metric]]
name = "good_fraction"
margin = { absolute = 0.05 }
"""


def add_sides(folder: Path) -> None:
    """Studies to put beside each other, in w.duckdb, and a policy for them."""
    warehouse = folder / "w.duckdb"

    def add(name: str, rows: Any, **facts: Any) -> None:
        add_study(warehouse, name, rows, **facts)

    add("base", lambda r: answers(latencies(r)))
    add("same", lambda r: answers(latencies(r, arm=1)))
    add("slow", lambda r: answers(latencies(r, arm=2, scale=1.3)))
    add("noisy", lambda r: answers(latencies(r, arm=3, scale=1.0 + 0.1 * (r - 2))))
    add("failing", lambda r: [*answers(latencies(r)[:75]), *failures_from(75)])
    for name in ("dead", "dead2"):
        add(name, lambda r: failures(100))
    add("invalid", lambda r: answers(latencies(r, arm=1)), invalid=[2])
    for name in ("growing", "growing2"):
        add(name, lambda r: answers(latencies(r, arm=1)), unstable=range(5))
    add("wobbly", lambda r: answers(latencies(r, arm=1)), unstable=[0])
    add("few", lambda r: answers(latencies(r, arm=1)), repeats=3)
    for name in ("empty", "empty2"):
        add(name, lambda r: [])
    for name in ("bare", "bare2"):
        add(name, lambda r: [row(i, i * 6, end=5.0, stream=False) for i in range(150)])
    add("twin", lambda r: answers(latencies(r)))
    add("fails2", lambda r: [*answers(latencies(r)[:148]), *failures_from(148)])
    for name, profile, engine in (("fast", "fast", {"slots": 9}), ("thin", "thin", {"slots": 2})):
        seen = {"profile": profile, "engine": engine}
        add(f"sim-{name}", lambda r: answers(latencies(r, arm=1)), origin="simulated", observed=seen)
    add(
        "sim-edited",
        lambda r: answers(latencies(r)),
        origin="simulated",
        observed={"profile": "fast", "engine": {"slots": 8}},
    )
    add(
        "sim-again",
        lambda r: answers(latencies(r)),
        origin="simulated",
        observed={"profile": "fast", "engine": {"slots": 9}},
    )
    add("warm", lambda r: answers(latencies(r, arm=1), cached_tokens=8))
    add("cold", lambda r: answers(latencies(r), cached_tokens=0))
    other = MANIFEST | {"load": {"rates": [5]}, "slo": {"ttft_ms": 200}}
    add("other", lambda r: answers(latencies(r, arm=1)), manifest=other, workload_id="w2")
    add("tail", lambda r: answers(tail(latencies(r, arm=1))))
    classes = ["chat" if i % 5 else "code" for i in range(150)]
    add("mix", lambda r: answers(latencies(r), **{"class": classes}))
    add("code", lambda r: answers(worse_in_code(latencies(r, arm=1)), **{"class": classes}))
    (folder / "policy.toml").write_text(POLICY)


def failures_from(first: int) -> list[Any]:
    return [one for one in failures(150) if one.attempt["attempt_id"] >= first]


def tail(values: Any) -> list[float]:
    """A better median, a worse tail."""
    order = sorted(values)[int(0.9 * len(values))]
    return [float(v * 2.0 if v >= order else v * 0.9) for v in values]


def worse_in_code(values: Any) -> list[float]:
    return [float(v * (0.9 if i % 5 else 1.5)) for i, v in enumerate(values)]


def tfbench(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output; an error's line for what main() would tell."""
    done = CliRunner().invoke(app, [*arguments, "--warehouse", str(folder / "w.duckdb")], env=env)
    if isinstance(done.exception, TfbenchError):
        return int(done.exception.exit_code), str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def gate(folder: Path, base: str, candidate: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, out = tfbench(folder, "gate", base, candidate, "--policy", str(folder / "policy.toml"), "--json", *more)
    document: dict[str, Any] = json.loads(out)
    check(document, json.loads((ROOT / "docs" / "verdict.schema.json").read_text()))
    assert code == document["exit_code"]
    return code, document


def compare(folder: Path, base: str, candidate: str, *more: str) -> dict[str, Any]:
    code, out = tfbench(folder, "compare", base, candidate, "--json", *more)
    assert code == 0, out
    document: dict[str, Any] = json.loads(out)
    return document
