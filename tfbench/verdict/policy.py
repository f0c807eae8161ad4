"""The gate's policy: what may get how much worse. Read and checked whole before anything else happens."""

import difflib
import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tfbench.core.errors import UsageError
from tfbench.metrics import FIGURES
from tfbench.stats.equivalence import Direction, Margin
from tfbench.verdict.allowing import check_allowed
from tfbench.verdict.arms import load_text
from tfbench.verdict.buckets import BUCKETS, LENGTHS

OnInconclusive = Literal["inconclusive", "fail", "pass"]
ON_INCONCLUSIVE = ("inconclusive", "fail", "pass")
GUARD = "ok_fraction"
_KEYS = (
    *("level", "min_repeats", "inconclusive", "confirm_level", "failed_margin", "loads", "buckets", "edges", "allow"),
    "metric",
)
_METRIC_KEYS = ("name", "margin", "direction", "buckets", "critical")


@dataclass(frozen=True)
class MetricRule:
    """One figure to judge, over all attempts and in each bucket of `buckets`.

    margin: how much worse than the base it may be. critical: an undecided row is never waved through.
    """

    name: str
    margin: Margin
    direction: Direction
    buckets: tuple[str, ...]
    critical: bool


@dataclass(frozen=True)
class Policy:
    """What a gate decides by.

    level: one-sided confidence of every judgement. min_repeats: valid runs per load and arm under which nothing is
    judged. failed_margin: how much larger a share of attempts may fail, whatever else is judged. confirm_level: the
    level at which a FAIL has to come again when the gate runs both arms. loads: those judged; empty for all.
    """

    metrics: tuple[MetricRule, ...]
    level: float = 0.95
    min_repeats: int = 5
    inconclusive: OnInconclusive = "inconclusive"
    confirm_level: float = 0.95
    failed_margin: float = 0.01
    loads: tuple[str, ...] = ()
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    allow: tuple[str, ...] = ()

    def with_flags(self, inconclusive: str | None, allow: Sequence[str]) -> "Policy":
        """The policy with what the command line adds. Raises UsageError."""
        check_allowed(allow, "--allow")
        if inconclusive is None:
            return replace(self, allow=(*self.allow, *allow))
        if inconclusive not in ON_INCONCLUSIVE:
            raise UsageError(f"--inconclusive: expected one of {', '.join(ON_INCONCLUSIVE)}, got {inconclusive!r}")
        word: Any = inconclusive
        return replace(self, inconclusive=word, allow=(*self.allow, *allow))

    @property
    def alpha(self) -> float:
        return 1.0 - self.level

    @property
    def names(self) -> tuple[str, ...]:
        """Every figure that is looked at."""
        return tuple(dict.fromkeys((*(rule.name for rule in self.metrics), GUARD)))

    @property
    def buckets(self) -> tuple[str, ...]:
        """Every kind of bucket that is looked at."""
        return tuple(dict.fromkeys(by for rule in self.metrics for by in rule.buckets))


def read_policy(path: Path) -> Policy:
    """The policy in a TOML file. Raises UsageError: one line with the file, the key and the mend."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        mend = "name it with --policy, or begin with examples/ci/policy.toml (shown in docs/gate.md)"
        raise UsageError(f"{path}: there is no such policy; {mend}") from error
    except OSError as error:
        raise UsageError(f"{path}: can't read the policy: {error.strerror}; name it with --policy") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: not valid TOML: {reason}; mend it there") from error
    return parse_policy(document, str(path))


def parse_policy(document: Mapping[str, Any], label: str = "policy") -> Policy:
    """The policy that a parsed TOML document is. `label` names it in errors (UsageError)."""
    _check_keys(document, _KEYS, label)
    level = _share(document, "level", 0.95, label, least=0.5)
    everywhere = _names(document, "buckets", BUCKETS, label)
    listed = document.get("metric")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise UsageError(f'{label}: metric: list at least one; for example [[metric]] with name = "ttft_p95_ms"')
    rules = tuple(_rule(one, everywhere, f"{label}: metric {i + 1}") for i, one in enumerate(listed))
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            raise UsageError(f"{label}: metric: {rule.name} is listed twice; keep one of them")
        seen.add(rule.name)
    return Policy(
        metrics=rules,
        level=level,
        min_repeats=_whole(document, "min_repeats", 5, label, least=3),
        inconclusive=_choice(document, "inconclusive", ON_INCONCLUSIVE, label),
        confirm_level=_share(document, "confirm_level", level, label, least=0.5),
        failed_margin=_share(document, "failed_margin", 0.01, label),
        loads=_loads(document, label),
        edges=_edges(document, label),
        allow=_allow(document, label),
    )


def near(name: str, known: Sequence[str]) -> str:
    """`; did you mean X?`, or what there is where nothing is near."""
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.4)
    if not close:
        return f"; there are {', '.join(known)}"
    # Of p50 and p95 for "p5O", alike to difflib, the one that agrees letter by letter.
    best = max(close, key=lambda one: sum(a == b for a, b in zip(one, name, strict=False)))
    return f'; did you mean "{best}"?'


def _rule(given: Mapping[str, Any], everywhere: tuple[str, ...], label: str) -> MetricRule:
    _check_keys(given, _METRIC_KEYS, label)
    name = given.get("name")
    if not isinstance(name, str):
        raise UsageError(f'{label}: name: expected a figure\'s name; for example name = "ttft_p95_ms"')
    if name not in FIGURES:
        raise UsageError(f'{label}: no figure "{name}"{near(name, list(FIGURES))} (docs/figures.md lists them)')
    figure = FIGURES[name]
    label = f"{label} ({name})"
    direction = _choice(given, "direction", ("lower", "higher"), label, figure.direction)
    critical = given.get("critical", False)
    if not isinstance(critical, bool):
        raise UsageError(f"{label}: critical: expected true or false, got {critical!r}")
    return MetricRule(
        name=name,
        margin=_margin(given.get("margin"), figure.kind == "fraction", label),
        direction=direction,
        buckets=_names(given, "buckets", BUCKETS, label) if "buckets" in given else everywhere,
        critical=critical,
    )


def _margin(given: Any, fraction: bool, label: str) -> Margin:
    example = "{ absolute = 0.01 }, one percentage point" if fraction else "{ relative = 0.05 }, or { absolute = 20 }"
    wanted = f"{label}: margin: expected how much worse is acceptable; for example margin = {example}"
    if isinstance(given, dict):
        _check_keys(given, ("relative", "absolute"), f"{label}: margin")
    if not isinstance(given, dict) or len(given) != 1:
        raise UsageError(wanted)
    [(kind, size)] = given.items()
    if fraction and kind == "relative":
        raise UsageError(f"{label}: margin: a share of attempts takes an absolute one; for example margin = {example}")
    if not _is_number(size):
        raise UsageError(wanted)
    try:
        margin = Margin(float(size), kind == "relative")
    except ValueError as error:
        raise UsageError(f"{label}: {error}; for example margin = {example}") from error
    if fraction and size > 1:
        raise UsageError(f"{label}: margin: a share can't move by {size:g}; for example margin = {example}")
    return margin


def _check_keys(given: Mapping[str, Any], known: Sequence[str], label: str) -> None:
    for key in given:
        if key not in known:
            raise UsageError(f'{label}: unknown key "{key}"{near(key, known)}')


def _share(given: Mapping[str, Any], key: str, default: float, label: str, least: float = 0.0) -> float:
    value = given.get(key, default)
    if not _is_number(value) or not least < value < 1:
        between = f"expected a number above {least:g} and below 1, got {value!r}"
        raise UsageError(f"{label}: {key}: {between}; for example {key} = {default:g}")
    return float(value)


def _whole(given: Mapping[str, Any], key: str, default: int, label: str, least: int) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{label}: {key}: expected a whole number of at least {least}, got {value!r}")
    return value


def _choice(given: Mapping[str, Any], key: str, known: Sequence[str], label: str, default: str | None = None) -> Any:
    value = given.get(key, known[0] if default is None else default)
    if value not in known:
        raise UsageError(f"{label}: {key}: expected one of {', '.join(known)}, got {value!r}")
    return value


def _names(given: Mapping[str, Any], key: str, known: Sequence[str], label: str) -> tuple[str, ...]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f'{label}: {key}: expected a list of names; for example {key} = ["{known[0]}"]')
    for one in value:
        if one not in known:
            raise UsageError(f'{label}: {key}: no "{one}"{near(one, known)}')
    return tuple(dict.fromkeys(value))


def _loads(given: Mapping[str, Any], label: str) -> tuple[str, ...]:
    value = given.get("loads", [])
    if not isinstance(value, list) or not all(_is_number(one, inf=True) and one > 0 for one in value):
        raise UsageError(f"{label}: loads: expected a list of rates or concurrencies; for example loads = [4, 8]")
    return tuple(dict.fromkeys(load_text(float(one)) for one in value))


def _edges(given: Mapping[str, Any], label: str) -> dict[str, tuple[float, ...]]:
    value = given.get("edges", {})
    if not isinstance(value, dict):
        raise UsageError(f"{label}: edges: expected a table; for example edges = {{ input_tokens = [128, 1024] }}")
    _check_keys(value, LENGTHS, f"{label}: edges")
    for name, edges in value.items():
        ascending = isinstance(edges, list) and edges and all(_is_number(edge) for edge in edges)
        if not ascending or any(b <= a for a, b in itertools.pairwise(edges)):
            raise UsageError(f"{label}: edges.{name}: expected ascending numbers; for example [128, 1024]")
    return {name: tuple(float(edge) for edge in edges) for name, edges in value.items()}


def _allow(given: Mapping[str, Any], label: str) -> tuple[str, ...]:
    value = given.get("allow", [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise UsageError(f'{label}: allow: expected a list of what may differ; for example allow = ["load.repeats"]')
    check_allowed(value, f"{label}: allow")
    return tuple(value)


def _is_number(value: Any, *, inf: bool = False) -> bool:
    return (
        not isinstance(value, bool) and isinstance(value, int | float) and (math.isfinite(value) or (inf and value > 0))
    )
