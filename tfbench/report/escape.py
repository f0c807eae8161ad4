"""Keeps text from the outside (names, errors, prompts) text: in HTML scripts, and in Plotly's labels.

Jinja2's autoescape covers HTML; these two cover what it can't.
"""

import base64
import hashlib
import re
from typing import Any

from markupsafe import Markup

from tfbench.core.jsonio import dump_text

_SCRIPT_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SCRIPT_PATTERN = re.compile("[<>&\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")

LABEL_LIMIT = 60


def script_json(value: Any) -> str:
    """JSON text that can't end or comment out the script element it stands in; NaN and inf become null."""
    return _SCRIPT_PATTERN.sub(lambda match: _SCRIPT_UNSAFE[match.group()], dump_text(value))


def plain(text: object, limit: int | None = None) -> str:
    """`text` on one line without control or direction-changing characters, cut to `limit`."""
    line = _CONTROL.sub(" ", str(text)).strip()
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def harmless(value: Any) -> Any:
    """`value` without control and direction-changing characters but newline and tab; markup made here stays."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _CONTROL.sub(lambda match: "".join(c if c in "\n\t" else "\ufffd" for c in match.group()), value)


def label(text: object, limit: int = LABEL_LIMIT) -> str:
    """`text` as Plotly shows it literally.

    Plotly reads a subset of HTML (b, i, br, a href, span style …) and entities in labels, `%{…}` in templates and
    `$…$` as TeX where MathJax is loaded; and it paints strings that begin with `@` here as roles.
    """
    line = plain(text, limit)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = line.replace("%{", "%&#123;").replace("$", "&#36;")
    return line.replace("@", "&#64;", 1) if line.startswith("@") else line


def csp_hash(script: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
