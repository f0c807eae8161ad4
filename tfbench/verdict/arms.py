"""The two sides of a comparison: a study's runs with their judgements, which runs belong together, what differs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfbench.core.errors import UsageError
from tfbench.core.kinds import RunStatus
from tfbench.manifest import Difference, diff_documents
from tfbench.manifest.freezing import SYSTEM_TABLES, WORKLOAD_TABLES
from tfbench.metrics.cache import CACHED_SHARE
from tfbench.metrics.soundness import only_timing
from tfbench.verdict.stability import UNSTABLE
from tfbench.verdict.validity import INVALID

UNEQUAL_CACHE = 0.05
"""Shares of prompt tokens from a prefix cache that lie further apart are unequal: part of the work was not done."""
_BUILD = frozenset({"engine.version", "engine.commit", "engine.image_digest"})
_RUNS = f"""
SELECT run_id, load_value, repeat, seed, schedule_sha256, cache_state, status, origin, observed, signals,
  {CACHED_SHARE} AS cached_share
FROM runs r WHERE study_id = ? AND arm IS NOT DISTINCT FROM ? ORDER BY load_value, repeat, order_index, run_id
"""
_VERDICTS = "SELECT run_id, kind, verdict, reasons FROM verdicts JOIN runs USING (run_id) WHERE study_id = ?"
_ARMS = "SELECT DISTINCT arm FROM runs WHERE study_id = ? ORDER BY arm NULLS FIRST"


@dataclass(frozen=True)
class ArmRun:
    """One run as comparisons see it.

    unfit: why it neither passes nor fails anything; None where it may. slow: its client was slow, so that some of its
    figures may be spoiled. profile, engine: the engine profile's name and
    settings, of a run whose engine tfbench itself was; engine is canonical JSON.
    """

    run_id: str
    load: float | None
    repeat: int
    seed: int | None = None
    schedule_sha256: str | None = None
    unfit: str | None = None
    slow: bool = False
    unstable: bool = False
    cache_state: str | None = None
    cached_share: float | None = None
    simulated: bool = False
    judged: bool = True
    profile: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Arm:
    """One study, or one `arm` of one: what was tested, with which manifest, and its runs by load and repeat."""

    study_id: str
    name: str
    arm: str | None
    manifest_id: str
    workload_id: str
    system_id: str
    manifest: Mapping[str, Any]
    host: Mapping[str, Any]
    runs: tuple[ArmRun, ...]

    @property
    def simulated(self) -> bool:
        return any(run.simulated for run in self.runs)

    @property
    def loads(self) -> tuple[float | None, ...]:
        return tuple(dict.fromkeys(run.load for run in self.runs))

    def since(self, repeat: int) -> "Arm":
        """The same with the runs of this repeat and later ones only."""
        return replace(self, runs=tuple(run for run in self.runs if run.repeat >= repeat))

    def fit(self, load: float | None) -> tuple[ArmRun, ...]:
        """The runs at a load that are evidence."""
        return tuple(run for run in self.runs if run.load == load and run.unfit is None)


def read_arm(con: Any, study_id: str, arm: str | None = None) -> Arm:
    """A study from a warehouse's connection; the arm named, or the one it has. UsageError where it has several."""
    arms = [name for (name,) in con.execute(_ARMS, [study_id]).fetchall()]
    if arm is None and len(arms) > 1:
        raise UsageError(
            f"study {study_id} has the arms {', '.join(map(str, arms))}; name one, as {study_id}:{arms[-1]}"
        )
    if arm is not None and arm not in arms:
        there = ", ".join(str(name) for name in arms if name is not None) or "none"
        raise UsageError(f'study {study_id} has no arm "{arm}"; there are {there}')
    arm = arms[0] if arms and arm is None else arm
    [row] = con.execute(
        "SELECT manifest_id, workload_id, system_id, manifest, host FROM studies WHERE study_id = ?", [study_id]
    ).fetchall()
    manifest = json.loads(row[3])
    judged: dict[str, dict[str, list[str]]] = {}
    for run_id, kind, verdict, reasons in con.execute(_VERDICTS, [study_id]).fetchall():
        judged.setdefault(run_id, {}).setdefault(f"{kind} {verdict}", []).extend(json.loads(reasons or "[]"))
    runs = []
    for run_id, load, repeat, seed, sha, cache, status, origin, observed, signals, cached in con.execute(
        _RUNS, [study_id, arm]
    ).fetchall():
        found = judged.get(run_id, {})
        seen = json.loads(observed or "{}") or {}
        invalid = found.get(f"validity {INVALID}")
        slow = invalid is not None and status == RunStatus.COMPLETE and only_timing(json.loads(signals or "{}"))
        unfit = None if invalid is None or slow else "; ".join(invalid) or "judged INVALID"
        if status != RunStatus.COMPLETE:
            unfit = unfit or f"the run is {status}"
        runs.append(
            ArmRun(
                run_id=run_id,
                load=load,
                repeat=repeat,
                seed=seed,
                schedule_sha256=sha,
                unfit=unfit,
                slow=slow,
                unstable=f"stability {UNSTABLE}" in found,
                cache_state=cache,
                cached_share=None if cached is None else float(cached),
                simulated=origin == "simulated",
                judged=any(kind.startswith("validity ") for kind in found),
                profile=seen.get("profile"),
                engine=None if seen.get("engine") is None else json.dumps(seen["engine"], sort_keys=True),
            )
        )
    name = str(manifest.get("name") or study_id)
    return Arm(study_id, name, arm, row[0], row[1], row[2], manifest, json.loads(row[4] or "{}"), tuple(runs))


@dataclass(frozen=True)
class Match:
    """The runs of one load point that are compared: by position where `paired`, else all of either arm."""

    load: float | None
    paired: bool
    base: tuple[ArmRun, ...]
    candidate: tuple[ArmRun, ...]

    @property
    def k(self) -> int:
        return min(len(self.base), len(self.candidate))


def match_runs(base: Arm, candidate: Arm) -> tuple[Match, ...]:
    """A `Match` for every load point that both arms have, in order of load.

    Runs of one repeat are a pair where they share a seed and a schedule; both must be fit. Where the arms' schedules
    differ, or nobody wrote them down, all fit runs of either arm count, unpaired.
    """
    loads = [load for load in base.loads if load in candidate.loads]
    return tuple(_match(load, base.fit(load), candidate.fit(load)) for load in sorted(loads, key=load_order))


def missing_loads(base: Arm, candidate: Arm) -> list[str]:
    """Loads that only one of two arms has, in words."""
    found = []
    for name, arm, other in (("base", base, candidate), ("candidate", candidate, base)):
        alone = [load_text(load) for load in arm.loads if load not in other.loads]
        if alone:
            found.append(f"only the {name} has load {', '.join(alone)}: left out")
    return found


def _match(load: float | None, base: Sequence[ArmRun], candidate: Sequence[ArmRun]) -> Match:
    ours, theirs = ({run.repeat: run for run in runs} for runs in (base, candidate))
    both = [(ours[repeat], theirs[repeat]) for repeat in sorted(ours) if repeat in theirs]
    unique = len(ours) == len(base) and len(theirs) == len(candidate)
    if unique and all(_same_schedule(a, b) for a, b in both) and (both or not (base and candidate)):
        return Match(load, True, tuple(a for a, _ in both), tuple(b for _, b in both))
    return Match(load, False, tuple(base), tuple(candidate))


def _same_schedule(a: ArmRun, b: ArmRun) -> bool:
    return a.seed is not None and a.seed == b.seed and a.schedule_sha256 == b.schedule_sha256


@dataclass(frozen=True)
class Likeness:
    """What differs between two arms.

    test: differences that make it another test (another workload_id); system: variables of the system.
    cache: how unequal the prefix cache's hits or states were; None where they weren't, or nobody knows. arms: both
    sides' names where they are arms of one study. profile: how the engine profiles differ that no manifest tells of.
    origin: that one side is simulated and the other isn't.
    """

    test: tuple[Difference, ...]
    system: tuple[Difference, ...]
    cache: str | None
    notes: tuple[str, ...]
    arms: tuple[str, str] | None = None
    profile: str | None = None
    origin: str | None = None

    @property
    def attribution(self) -> str:
        """What a difference in figures may be put down to."""
        names = list(dict.fromkeys(_variable(one.path) for one in self.system))
        names += [self.profile] if self.profile is not None else []
        if self.origin is not None:
            return f"attributable only to the whole stack: {self.origin}"
        if self.arms is not None:
            return f"attributable to the study's arms, {self.arms[0]} and {self.arms[1]}"
        if any(one.primary for one in self.test):
            return "attributable to nothing alone: the test differs as well"
        if len(names) == 1:
            return f"attributable to {names[0]}"
        if names:
            return f"attributable only to the whole stack: {', '.join(names)} differ"
        return "attributable to nothing the manifests name: noise, or something they don't tell"


def likeness(base: Arm, candidate: Arm, matches: Sequence[Match]) -> Likeness:
    """What differs in test, system and cache between two arms."""
    found = diff_documents(base.manifest, candidate.manifest)
    same_test = base.workload_id == candidate.workload_id
    test = () if same_test else tuple(one for one in found if one.path.split(".")[0] in WORKLOAD_TABLES)
    system = tuple(one for one in found if one.primary and one.path.split(".")[0] in SYSTEM_TABLES)
    origin = _unequal_origin(base, candidate)
    notes = [] if origin is None else [f"{origin}: no engine alone makes that difference"]
    hosts = [arm.host.get("name") for arm in (base, candidate)]
    if hosts[0] != hosts[1]:
        notes.append(f"measured from different hosts: {hosts[0]} and {hosts[1]}")
    if any(one.path.startswith("cost.") for one in found):
        notes.append("prices differ: figures of cost compare them too")
    unjudged = sum(not run.judged for arm in (base, candidate) for run in arm.runs)
    if not same_test and not test:
        notes.append(
            "the workload_ids differ though no key of the manifests does: they were made by different versions"
        )
    if unjudged:
        notes.append(f"{unjudged} runs were never judged: nobody knows whether they are valid")
    if base.simulated or candidate.simulated:
        notes.append("SIMULATED runs are among these")
    same_study = base.study_id == candidate.study_id and base.arm != candidate.arm
    arms = (str(base.arm), str(candidate.arm)) if same_study else None
    profile = None if origin is not None else _unequal_profile(base, candidate, named=bool(system))
    return Likeness(test, system, _unequal_cache(matches), tuple(notes), arms, profile, origin)


def refusal(alike: Likeness, allow: Sequence[str]) -> str | None:
    """Why two studies aren't compared, in one line, unless `allow` names it; None where nothing stands against it.

    `allow` holds paths that may differ ("load.rates", or "load" for all below it), "test" for any, "cache",
    and "simulated".
    """
    if alike.origin is not None and "simulated" not in allow:
        return f"{alike.origin}; compare runs of one kind, or these all the same with --allow simulated"
    if "test" not in allow:
        strange = [one for one in alike.test if not any(f"{one.path}.".startswith(f"{name}.") for name in allow)]
        if strange:
            names = " ".join(f"--allow {one.path}" for one in strange[:3])
            return (
                f"not the same test (workload_id): {differences_text(strange)}; run both with one manifest, or compare"
                f" them all the same with {names if len(strange) <= 3 else '--allow test'}"
            )
    if alike.cache is not None and "cache" not in allow:
        return f"{alike.cache}; run both cold or both warm, or compare them all the same with --allow cache"
    return None


def _unequal_origin(base: Arm, candidate: Arm) -> str | None:
    sides = [_origins(arm) for arm in (base, candidate)]
    if not all(sides) or sides[0] == sides[1]:
        return None
    return f"the base's runs are {' and '.join(sides[0])}, the candidate's {' and '.join(sides[1])}"


def _origins(arm: Arm) -> list[str]:
    return sorted({"simulated" if run.simulated else "measured" for run in arm.runs})


def _unequal_profile(base: Arm, candidate: Arm, *, named: bool) -> str | None:
    """How the engines differ that tfbench itself was; None where they don't, or nobody knows.

    A measured study's manifest names its profile, so a difference that the manifests name (`named`) is that one.
    """
    if named and not (base.simulated or candidate.simulated):
        return None
    engines = [{run.engine or run.profile for run in arm.runs} - {None} for arm in (base, candidate)]
    if not all(engines) or engines[0] == engines[1]:
        return None
    names = ["/".join(sorted({run.profile for run in arm.runs if run.profile})) for arm in (base, candidate)]
    if names[0] == names[1]:
        settings = [[json.loads(run.engine) for run in arm.runs if run.engine] for arm in (base, candidate)]
        a, b = (found[0] if found else {} for found in settings)
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        of = f" {names[0]}" if names[0] else ""
        return f"the engine profile{of} (its {', '.join(keys[:6])}{' and more' if len(keys) > 6 else ''})"
    return f"the engine profile ({names[0] or 'unnamed'} → {names[1] or 'unnamed'})"


def _unequal_cache(matches: Sequence[Match]) -> str | None:
    for match in matches:
        states = [sorted({run.cache_state for run in arm if run.cache_state}) for arm in (match.base, match.candidate)]
        if states[0] and states[1] and states[0] != states[1]:
            return (
                f"cache states differ at load {load_text(match.load)}: {'/'.join(states[0])} and {'/'.join(states[1])}"
            )
        shares = [
            [run.cached_share for run in arm if run.cached_share is not None] for arm in (match.base, match.candidate)
        ]
        if not (shares[0] and shares[1]):
            continue
        a, b = (sum(one) / len(one) for one in shares)
        if abs(a - b) > UNEQUAL_CACHE:
            return (
                f"cache hits differ at load {load_text(match.load)}: {a:.0%} and {b:.0%} of prompt tokens came from the"
                " prefix cache"
            )
    return None


def _variable(path: str) -> str:
    # A new build changes its version, commit and image together.
    return "engine build (version, commit, image)" if path in _BUILD else path


def differences_text(found: Sequence[Difference], most: int = 6) -> str:
    """`workload.input_tokens: 128 → 256; …` in one line."""
    told = [f"{one.path}: {_value(one.a)} → {_value(one.b)}" for one in found[:most]]
    return "; ".join(told) + (f"; and {len(found) - most} more" if len(found) > most else "")


def _value(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 1] + "…"


def load_order(load: float | None) -> float:
    return -math.inf if load is None else load


def load_text(load: float | None) -> str:
    return "unknown" if load is None else "inf" if math.isinf(load) else f"{load:g}"
