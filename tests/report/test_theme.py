import pytest

from tfbench.core.kinds import Outcome
from tfbench.report.theme import DARK, LIGHT, PATTERNS, STEPS, THEMES, fill, step

TEXT_ROLES = {"ink", "muted", "bad"}
QUIET = {"page", "panel", "grid", "axis"}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_contrast_with_the_panel(theme: dict[str, str]) -> None:
    """WCAG 2: 4.5 for text, 3 for graphics."""
    weak = {}
    for role in set(theme) - QUIET:
        low, high = sorted((_luminance(theme[role]), _luminance(theme["panel"])))
        ratio = (high + 0.05) / (low + 0.05)
        if ratio < (4.5 if role in TEXT_ROLES else 3.0):
            weak[role] = ratio
    assert not weak


def test_both_themes_fill_the_same_roles() -> None:
    assert set(LIGHT) == set(DARK)
    assert {str(outcome) for outcome in Outcome} <= set(LIGHT)
    assert {str(outcome) for outcome in Outcome} == set(PATTERNS)


def test_fill() -> None:
    spec = {"a": ["@s1", "@s1/0.5", "plain", 3, None], "b": {"c": "@ink"}}
    assert fill(spec, LIGHT) == {"a": ["#0b66a8", "rgba(11,102,168,0.5)", "plain", 3, None], "b": {"c": LIGHT["ink"]}}


def test_ordered_loads_take_different_steps() -> None:
    assert [step(i, STEPS) for i in range(STEPS)] == [f"@q{i}" for i in range(STEPS)]
    assert step(0, 1) == "@q3"
