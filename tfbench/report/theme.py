"""Colours by role, for a light and a dark page. Drawings name roles ("@s1", "@s1/0.15"); the page fills them in.

Series follow Okabe and Ito's colour-blind-safe set, darkened or lightened until each has contrast 3:1 or more against
its page. Ordered loads take steps of viridis, cut at the end that would fade into the page. Symbols and dashes repeat
what colour says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "panel": "#ffffff",
    "ink": "#1b2330",
    "muted": "#5d6878",
    "grid": "#e3e7ed",
    "axis": "#b4bcc8",
    "bad": "#b3261e",
    "s1": "#0b66a8",
    "s2": "#c4540a",
    "s3": "#8a3f8f",
    "s4": "#00795a",
    "q0": "#739b1f",
    "q1": "#3f9e6b",
    "q2": "#1f8a8c",
    "q3": "#2c6f8e",
    "q4": "#39568c",
    "q5": "#453781",
    "q6": "#3b0f56",
    "ok": "#2f8f6b",
    "rejected": "#b88300",
    "http_error": "#c2569b",
    "connect_error": "#6f4aa8",
    "disconnected": "#2f92cc",
    "stream_error": "#8c5a2b",
    "timeout": "#c4540a",
    "unfinished": "#5f6978",
    "unsent": "#1b2330",
    "cancelled": "#8c94a0",
}

DARK: Mapping[str, str] = {
    "page": "#11151c",
    "panel": "#171c25",
    "ink": "#e6eaf0",
    "muted": "#9aa6b6",
    "grid": "#2a323e",
    "axis": "#4b5666",
    "bad": "#ff8a80",
    "s1": "#5bb0ea",
    "s2": "#f0894a",
    "s3": "#cf93d6",
    "s4": "#3fc79a",
    "q0": "#4f7fc0",
    "q1": "#3a9ec4",
    "q2": "#2fb7a6",
    "q3": "#54c77a",
    "q4": "#95d34f",
    "q5": "#cfdc3d",
    "q6": "#fdf0a0",
    "ok": "#45b58c",
    "rejected": "#f0bb3c",
    "http_error": "#e08cc2",
    "connect_error": "#a98be0",
    "disconnected": "#6cc0f0",
    "stream_error": "#c0895a",
    "timeout": "#f0894a",
    "unfinished": "#aab4c3",
    "unsent": "#e6eaf0",
    "cancelled": "#687588",
}

THEMES: Mapping[str, Mapping[str, str]] = {"light": LIGHT, "dark": DARK}

STEPS = 7
PATTERNS: Mapping[str, str] = {
    "ok": "",
    "rejected": "/",
    "http_error": "\\",
    "connect_error": "x",
    "disconnected": ".",
    "stream_error": "+",
    "timeout": "-",
    "unfinished": "|",
    "unsent": "",
    "cancelled": "",
}


def step(index: int, count: int) -> str:
    """The role of the index-th of `count` ordered loads."""
    return f"@q{round(index * (STEPS - 1) / (count - 1)) if count > 1 else 3}"


def fill(node: Any, theme: Mapping[str, str]) -> Any:
    """`node` with every role replaced by its colour; what the page's script does, for tests and export."""
    if isinstance(node, str) and node.startswith("@"):
        role, _, alpha = node[1:].partition("/")
        return theme[role] if not alpha else _rgba(theme[role], float(alpha))
    if isinstance(node, Mapping):
        return {key: fill(item, theme) for key, item in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [fill(item, theme) for item in node]
    return node


def _rgba(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"
