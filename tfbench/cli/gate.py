"""`tfbench gate`: may the candidate replace the base? For CI."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tfbench.cli.options import (
    JsonOption,
    PlotlyOption,
    RerunsOption,
    SetOption,
    WaitOption,
    check_folder,
    check_page,
    print_json,
    refuse_unused,
    warehouse_path,
)
from tfbench.cli.sides import (
    AllowOption,
    SidesHtmlOption,
    SidesWarehouseOption,
    open_sides,
    refuse_same_study,
    same_study,
)
from tfbench.core.errors import UsageError
from tfbench.core.exitcodes import ExitCode


def gate(
    base: Annotated[str, typer.Argument(help="The base: a study (see compare); with --run a manifest.")],
    candidate: Annotated[
        str | None, typer.Argument(help="The candidate, likewise; --plan can do without.", show_default=False)
    ] = None,
    policy: Annotated[Path, typer.Option(help="The policy: a TOML file, see docs/gate.md.")] = Path("policy.toml"),
    run: Annotated[bool, typer.Option("--run", help="Run both manifests now, in turn, and judge them.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Judge nothing: tell how many repeats it takes.")] = False,
    inconclusive: Annotated[
        str | None, typer.Option(help="Take INCONCLUSIVE as: fail, pass; overrides the policy.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write verdict.json, junit.xml, summary.md, benchmark.json here.", show_default=False),
    ] = None,
    html: SidesHtmlOption = None,
    plotly: PlotlyOption = None,
    base_url: Annotated[str | None, typer.Option(help="With --run: the base's endpoint.", show_default=False)] = None,
    candidate_url: Annotated[
        str | None, typer.Option(help="With --run: the candidate's endpoint.", show_default=False)
    ] = None,
    allow: AllowOption = None,
    sets: SetOption = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="With --run: processes that share a schedule.")] = 1,
    reruns: RerunsOption = None,
    wait: WaitOption = None,
    warehouse: SidesWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Judge whether CANDIDATE is no worse than BASE, by a policy that was checked before anything else happened.

    Exit status: 0 PASS; 1 FAIL; 2 policy, usage, or studies that can't be compared; 3 INCONCLUSIVE; 4 INVALID, too few
    valid runs; 5 endpoint trouble; 130 after Ctrl-C. No data is never a PASS.
    """
    from tfbench.verdict.policy import read_policy

    check_page(html, plotly)
    check_folder(out, "--out")
    running: dict[str, object] = {
        "--base-url": base_url,
        "--candidate-url": candidate_url,
        "--set": sets,
        "--workers": workers != 1,
        "--reruns": reruns is not None,
        "--wait": wait is not None,
    }
    if plan:
        judging: dict[str, object] = {"--run": run, "--out": out, "--html": html, "--inconclusive": inconclusive}
        refuse_unused(judging | running, "--plan reads stored studies and only says how many repeats it takes")
    elif not run:
        refuse_unused(running, "only --run uses it, stored studies stand as they are")
    rules = read_policy(policy).with_flags(inconclusive, allow or ())
    if plan:
        _plan(rules, policy, base, candidate, warehouse, json)
        return
    if candidate is None:
        raise UsageError("gate: missing CANDIDATE; only --plan can do without")

    from tfbench.report.gate_files import append_summary, verdict_document, write_gate
    from tfbench.report.side_by_side import print_gate

    if run:
        result = _run(
            rules, policy, (base, candidate), (base_url, candidate_url), sets or (), warehouse, workers, reruns, wait
        )
    else:
        result = _judge_stored(rules, policy, (base, candidate), warehouse)
    # First of all, so that a file that can't be written doesn't hide it.
    if json:
        print_json(verdict_document(result))
    else:
        print_gate(result)
    if out is not None:
        write_gate(result, out)
    if html is not None:
        from tfbench.report.effects import gate_page
        from tfbench.report.page import write_page

        write_page(gate_page(result, plotly or "inline"), html, plotly or "inline")
        typer.echo(f"wrote {html}", err=True)
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(result, Path(step))
    if result.exit_code != ExitCode.PASS:
        raise typer.Exit(result.exit_code)


def _read(rules: Any, policy: Path, sides: Sequence[tuple[Any, Any]]) -> tuple[Any, Any, Any]:
    """Matched runs, what differs, and the cells, of two comparable studies."""
    from tfbench.verdict.arms import likeness, load_text, match_runs, refusal
    from tfbench.verdict.cells import build_cells
    from tfbench.verdict.gate import sound_for

    base, candidate = sides
    matches = match_runs(base[1], candidate[1])
    alike = likeness(base[1], candidate[1], matches)
    refused = refusal(alike, rules.allow)
    if refused is not None:
        raise UsageError(refused)
    if rules.loads:
        _check_loads(rules, policy, [load_text(match.load) for match in matches], "in both studies")
        matches = tuple(match for match in matches if load_text(match.load) in rules.loads)
    cells = build_cells(
        base, candidate, matches, rules.names, buckets=rules.buckets, edges=rules.edges, sound=sound_for(rules)
    )
    return matches, alike, cells


def _check_loads(rules: Any, policy: Path, there: Sequence[str], where: str) -> None:
    missing = [load for load in rules.loads if load not in there]
    if missing:
        told = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not {where}"
        raise UsageError(f"{policy}: loads: {told}; there are {', '.join(there) or 'none'}")


def _judge_stored(rules: Any, policy: Path, names: Sequence[str], warehouse: Sequence[Path] | None) -> Any:
    from tfbench.verdict.gate import gate_result, judge

    with open_sides(names, warehouse) as (base, candidate):
        refuse_same_study(base[1], candidate[1])
        matches, alike, cells = _read(rules, policy, (base, candidate))
        return gate_result(rules, base[1], candidate[1], alike, judge(rules, base[1], candidate[1], matches, cells))


def _plan(
    rules: Any, policy: Path, base: str, candidate: str | None, warehouse: Sequence[Path] | None, json: bool
) -> None:
    from dataclasses import asdict

    from tfbench.core.jsonio import finite
    from tfbench.report.side_by_side import print_plan
    from tfbench.verdict.gate_plan import plan_gate

    if candidate is None and len(warehouse or ()) > 1:
        raise UsageError("--warehouse: one study stands in one; name CANDIDATE too, or leave the second out")
    with open_sides((base, candidate or base), warehouse) as sides:
        arms = (sides[0][1], sides[1][1])
        matches, _, cells = _read(rules, policy, sides)
        one = same_study(*arms)
        paired = not one and all(match.paired for match in matches)
        notes = []
        if one and candidate is not None:
            notes.append("Base and candidate are the same study: taken as one.")
        if not paired:
            what = "From one study" if one else "From the base alone, since the runs are no pairs"
            mend = "Pairs share schedules, which takes most noise out; run the base twice."
            notes.append(f"{what}: an upper bound. {mend}")
        found = plan_gate(rules, cells, paired=paired, load=arms[0].manifest.get("load"), notes=notes)
    if json:
        print_json(finite(asdict(found)))
    else:
        print_plan(found)


def _run(
    rules: Any,
    policy: Path,
    manifests: Sequence[str],
    urls: Sequence[str | None],
    sets: Sequence[str],
    warehouse: Sequence[Path] | None,
    workers: int,
    reruns: int | None,
    wait: float | None,
) -> Any:
    from tfbench.manifest import expand, freeze, load_manifest
    from tfbench.verdict.arms import differences_text, load_text

    if warehouse is not None and len(warehouse) > 1:
        raise UsageError("--warehouse: --run keeps both arms in one warehouse; give one")
    path = warehouse_path(warehouse[0] if warehouse else None)
    base, candidate = (load_manifest(Path(name), sets, url) for name, url in zip(manifests, urls, strict=True))
    if freeze(base).workload_id != freeze(candidate).workload_id:
        from tfbench.manifest import diff
        from tfbench.manifest.freezing import WORKLOAD_TABLES

        strange = [one for one in diff(base, candidate) if one.path.split(".")[0] in WORKLOAD_TABLES]
        raise UsageError(f"not the same test (workload_id): {differences_text(strange)}; only the system may differ")
    if base.load.repeats < rules.min_repeats:
        raise UsageError(
            f"load.repeats = {base.load.repeats}, but the policy asks for min_repeats = {rules.min_repeats};"
            f" add --set load.repeats={rules.min_repeats}"
        )
    planned = list(dict.fromkeys(load_text(plan.load_value) for plan in expand(base)))
    _check_loads(rules, policy, planned, "in the manifest")

    from tfbench.cli.live import LiveWatcher
    from tfbench.study.arms import open_arms, run_arms
    from tfbench.verdict.gate import confirming, gate_result, judge, stands_for

    with LiveWatcher() as watcher:
        arms = open_arms(base, candidate, path, watcher, workers=workers, wait_s=wait)
        arms = run_arms(arms, watcher, stands_for(rules), reruns=reruns)
    names = (arms.base.study_id, arms.candidate.study_id)
    with open_sides(names, [path]) as sides:
        matches, alike, cells = _read(rules, policy, sides)
        judged = judge(rules, sides[0][1], sides[1][1], matches, cells)
        result = gate_result(rules, sides[0][1], sides[1][1], alike, judged)
    if judged.verdict != "FAIL":
        return result
    first = arms.repeats
    again = confirming(rules, judged)
    for _ in range(_CONFIRMING_ROUNDS):
        with LiveWatcher() as watcher:
            arms = run_arms(arms, watcher, stands_for(rules), reruns=reruns)
        with open_sides(names, [path]) as sides:
            fresh = [(con, arm.since(first)) for con, arm in sides]
            matches, _, cells = _read(again, policy, fresh)
            confirmed = judge(again, fresh[0][1], fresh[1][1], matches, cells)
        if confirmed.verdict != "INVALID":
            break
    return gate_result(rules, fresh[0][1], fresh[1][1], alike, judged, confirmation=confirmed)


_CONFIRMING_ROUNDS = 2
"""Where unfit runs leave a confirmation with too few, as many are added once."""
