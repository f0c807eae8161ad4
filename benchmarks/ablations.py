"""What each mechanism of an engine is worth, simulated: `make ablations`.

Every manifest in manifests/ablations/ is simulated on the profiles in profiles/ablations/ that belong to it, all into
one warehouse: a baseline, then one thing changed. Each mechanism must remove its own cost and nothing else; what that
means is written down here as expectations, and each must hold in every repeat, since repeats of two arms have the same
prompts at the same times. Prints one JSON object a mechanism; `--out` keeps warehouse and a page of all. Exit status 1
where an expectation fails.
"""

import argparse
import html
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfbench.cli.live import LiveWatcher
from tfbench.core.resources import data_dir
from tfbench.engine.profile import engine_profile
from tfbench.manifest import load_manifest
from tfbench.metrics import run_figures
from tfbench.report.fmt import number
from tfbench.study.simulate import System, simulate_study
from tfbench.warehouse import Warehouse

SAME = 0.01
"""Ratios as near to 1 as this count as the same, unless an expectation says otherwise."""
WORDS = {"rises": "rises", "falls": "falls", "same": "stays the same"}


@dataclass(frozen=True)
class Expectation:
    """`figure` of `arm` against that of `base` at a load: in every repeat it rises or falls by `factor`, or stays.

    `load` None: over all loads, for `CAPACITY`.
    """

    figure: str
    base: str
    arm: str
    direction: Literal["rises", "falls", "same"]
    load: float | None
    factor: float = 1.0
    within: float = SAME

    def holds(self, ratio: float) -> bool:
        """Whether the ratio of arm to base is as expected."""
        if self.direction == "rises":
            return ratio > max(self.factor, 1.0)
        if self.direction == "falls":
            return ratio < 1.0 / max(self.factor, 1.0)
        return abs(ratio - 1.0) <= self.within


@dataclass(frozen=True)
class Ablation:
    """A mechanism: its manifest's name, the arms in order, the figures to show, what is expected of them."""

    name: str
    title: str
    arms: tuple[str, ...]
    figures: tuple[str, ...]
    expected: tuple[Expectation, ...]


TTFT, TPOT, ICL_TAIL, E2E_TAIL = "ttft_p50_ms", "tpot_p50_ms", "icl_p99_ms", "e2e_p99_ms"
TOKENS = "throughput_output_tokens_per_s"
LONG_PREFILL = "long_prefill_p50_ms"
"""The prefill stage of the class named long, median."""
CAPACITY = "capacity_requests_per_s"
"""The highest of the manifest's rates up to which P99 of E2E keeps its limit; 0 where none does."""

ABLATIONS = (
    Ablation(
        "batching",
        "Iteration-level against static batching",
        ("static", "iteration"),
        (E2E_TAIL, TTFT, CAPACITY),
        (Expectation(CAPACITY, "static", "iteration", "rises", None, 1.3),),
    ),
    Ablation(
        "chunked-prefill",
        "Chunked prefill",
        ("whole", "chunked"),
        (ICL_TAIL, TPOT, LONG_PREFILL, TOKENS),
        (
            Expectation(ICL_TAIL, "whole", "chunked", "falls", 12, 3.0),
            Expectation(LONG_PREFILL, "whole", "chunked", "rises", 12, 1.02),
        ),
    ),
    Ablation(
        "prefix-reuse",
        "Prefix reuse",
        ("none", "reuse"),
        (TTFT, TPOT, TOKENS),
        (
            Expectation(TTFT, "none", "reuse", "falls", 1, 3.0),
            Expectation(TPOT, "none", "reuse", "same", 1, within=1e-9),
            Expectation(TTFT, "none", "reuse", "falls", 8, 2.0),
        ),
    ),
    Ablation(
        "kv-precision",
        "KV in 8 bits instead of 16",
        ("bf16", "fp8"),
        (TTFT, TPOT, TOKENS),
        (
            Expectation(TPOT, "bf16", "fp8", "same", 1, within=0.02),
            Expectation(TTFT, "bf16", "fp8", "same", 1, within=0.02),
            Expectation(TOKENS, "bf16", "fp8", "rises", 48, 1.3),
        ),
    ),
    Ablation(
        "batch-size",
        "A larger batch",
        ("8-seqs", "64-seqs"),
        (TOKENS, TPOT, TTFT),
        (
            Expectation(TOKENS, "8-seqs", "64-seqs", "rises", 64, 2.0),
            Expectation(TPOT, "8-seqs", "64-seqs", "rises", 64, 1.1),
        ),
    ),
    Ablation(
        "tensor-parallel",
        "Tensor parallelism over faster and slower links",
        ("tp1", "tp4-nvlink", "tp4-pcie", "tp4-ethernet"),
        (TTFT, TPOT, TOKENS),
        (
            Expectation(TTFT, "tp1", "tp4-nvlink", "falls", 16, 1.5),
            Expectation(TPOT, "tp1", "tp4-nvlink", "falls", 16, 1.5),
            Expectation(TTFT, "tp1", "tp4-ethernet", "rises", 16, 2.0),
            Expectation(TPOT, "tp1", "tp4-ethernet", "rises", 16),
            Expectation(TOKENS, "tp1", "tp4-ethernet", "falls", 16),
        ),
    ),
    Ablation(
        "combination",
        "One change at a time, then all of them",
        ("baseline", "iteration", "reuse", "fp8-kv", "all"),
        (TOKENS, TTFT, TPOT, ICL_TAIL),
        (
            Expectation(TOKENS, "baseline", "iteration", "rises", 40),
            Expectation(TOKENS, "baseline", "reuse", "rises", 40),
            Expectation(TOKENS, "baseline", "fp8-kv", "rises", 40),
            *(Expectation(TOKENS, arm, "all", "rises", 40) for arm in ("iteration", "reuse", "fp8-kv")),
        ),
    ),
)

Values = dict[tuple[str, str, float | None], list[float]]
"""Figure, arm and load → one value a repeat."""


def simulate(ablation: Ablation, warehouse: Path, sets: Sequence[str] = ()) -> Values:
    """Simulate a mechanism's manifest on its arms; their figures."""
    manifest = load_manifest(data_dir("manifests") / "ablations" / f"{ablation.name}.toml", sets)
    profiles = data_dir("profiles") / "ablations" / ablation.name
    systems = [System(arm, engine_profile(profiles / f"{arm}.toml")) for arm in ablation.arms]
    with LiveWatcher() as watcher:
        done = simulate_study(manifest, warehouse, systems, watcher)
    with Warehouse.open(warehouse, read_only=True) as store:
        frame = run_figures(store.con, done.study_id)
        prefills = store.con.execute(_LONG_PREFILL, [done.study_id]).fetchall()
    values: Values = {}
    for row in frame.sort_values("repeat").to_dict("records"):
        if row["value"] is not None:
            values.setdefault((row["figure"], row["arm"], row["load_value"]), []).append(row["value"])
    for arm, load, milliseconds in prefills:
        values.setdefault((LONG_PREFILL, arm, load), []).append(milliseconds)
    limit_ms = manifest.slo.e2e_ms
    if limit_ms is not None:
        for arm in ablation.arms:
            values[CAPACITY, arm, None] = _capacities(values, arm, manifest.load.points, limit_ms)
    return values


_LONG_PREFILL = """
SELECT arm, load_value, quantile_disc((e.end_ns - e.start_ns) / 1e6, 0.5)
FROM runs r JOIN attempts a USING (run_id) JOIN server_events e USING (run_id, request_id)
WHERE study_id = ? AND class = 'long' AND phase = 'measure' AND outcome = 'ok' AND stage = 'prefill'
GROUP BY arm, load_value, repeat ORDER BY repeat
"""


def _capacities(values: Values, arm: str, loads: Sequence[float], limit_ms: float) -> list[float]:
    repeats = len(values[E2E_TAIL, arm, loads[0]])
    found = []
    for repeat in range(repeats):
        best = 0.0
        for load in sorted(loads):
            tails = values.get((E2E_TAIL, arm, load), [])
            if len(tails) < repeats or tails[repeat] > limit_ms:
                break
            best = load
        found.append(best)
    return found


def judge(ablation: Ablation, values: Values) -> list[dict[str, Any]]:
    """Each expectation with the ratios of its arm to its base, one a repeat, and whether it holds in all of them."""
    judged = []
    for one in ablation.expected:
        base, arm = (values.get((one.figure, name, one.load), []) for name in (one.base, one.arm))
        ratios = [a / b for a, b in zip(arm, base, strict=True) if b > 0]
        judged.append(
            {
                "figure": one.figure,
                "load": one.load,
                "base": one.base,
                "arm": one.arm,
                "expected": one.direction,
                "ratios": [round(ratio, 4) for ratio in ratios],
                "holds": len(ratios) == len(base) > 0 and all(map(one.holds, ratios)),
            }
        )
    return judged


def page(results: Sequence[tuple[Ablation, Values, list[dict[str, Any]]]]) -> str:
    """All mechanisms on one HTML page."""
    style = (data_dir("reports") / "report.css").read_text(encoding="utf-8")
    parts = []
    for ablation, values, judged in results:
        loads = sorted({load for _, _, load in values if load is not None})
        head = "".join(f"<th scope=col>{html.escape(arm)}</th>" for arm in ablation.arms)
        rows = [
            (f"{figure} at {load:g}" if load is not None else figure, figure, load)
            for figure in ablation.figures
            for load in ([None] if figure == CAPACITY else loads)
        ]
        body = "".join(
            f"<tr><th scope=row>{html.escape(name)}</th>"
            + "".join(f"<td>{_median(values.get((figure, arm, load), []))}</td>" for arm in ablation.arms)
            + "</tr>"
            for name, figure, load in rows
        )
        said = "".join(
            f"<li class={'good' if one['holds'] else 'bad'}>{html.escape(_words(one))}</li>" for one in judged
        )
        parts.append(
            f"<section><h2>{html.escape(ablation.title)} <strong class=stamp>SIMULATED</strong></h2><ul>{said}</ul>"
            f"<div class=scroll><table><caption>median of the repeats, simulated</caption><thead><tr><th></th>{head}"
            f"</tr></thead><tbody>{body}</tbody></table></div></section>"
        )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>SIMULATED · ablations</title>'
        f"<style>{style}</style><main class=wrap><h1>What each mechanism is worth</h1>"
        "<p class=lead>Simulated on the reference engine over roofline step times: no system was measured. Ratios are "
        f"those of paired repeats.</p>{''.join(parts)}</main></html>\n"
    )


def _median(values: Sequence[float]) -> str:
    return number(sorted(values)[len(values) // 2] if values else None)


def _words(one: dict[str, Any]) -> str:
    where = "" if one["load"] is None else f" at {one['load']:g}"
    ratios = ", ".join(f"× {ratio:.3g}" for ratio in one["ratios"])
    verdict = "" if one["holds"] else " – NOT AS EXPECTED"
    return f"{one['figure']}{where} {WORDS[one['expected']]} from {one['base']} to {one['arm']}: {ratios}{verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("out/ablations"), help="an empty or new folder")
    parser.add_argument("--only", nargs="*", help="names of mechanisms")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    for ablation in ABLATIONS:
        if options.only and ablation.name not in options.only:
            continue
        values = simulate(ablation, options.out / "warehouse.duckdb")
        judged = judge(ablation, values)
        results.append((ablation, values, judged))
        print(json.dumps({"ablation": ablation.name, "simulated": True, "expectations": judged}), flush=True)
    report = options.out / "report.html"
    report.write_text(page(results), encoding="utf-8")
    print(f"wrote {report}", file=sys.stderr)
    return 0 if all(one["holds"] for _, _, judged in results for one in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
