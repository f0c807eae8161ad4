"""One self-contained HTML file from a template: no network, all text from outside kept text."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tfbench.core.errors import StorageError
from tfbench.core.resources import data_dir
from tfbench.core.version import VERSION
from tfbench.report.drawing import Spec
from tfbench.report.escape import csp_hash, harmless, plain, script_json
from tfbench.report.fmt import NOTHING, number, shown, unit_words
from tfbench.report.share_drawings import share
from tfbench.report.theme import THEMES

Plotly = Literal["inline", "cdn", "file"]
"""Where a page has plotly.js from: itself, the network, or a file beside it."""

PLOTLY_FILE = "plotly.min.js"
HINTS = (
    "script-src {scripts}",
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
)
"""Plotly styles its SVG inline and exports images through blob: and data:; nothing else is allowed."""


def render_page(template: str, specs: Mapping[str, Spec], *, plotly: Plotly = "inline", **words: Any) -> str:
    """`template` of reports/ with `words`, and the drawings `specs` by key (with plotly.js inline about 5 MB)."""
    folder = data_dir("reports")
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"number": number, "shown": shown, "unit": unit_words, "when": when, "plain": plain, "share": share}
    page_script = (folder / "report.js").read_text(encoding="utf-8")
    plotly_script, source = _plotly(plotly)
    return env.get_template(template).render(
        csp="; ".join(HINTS).format(scripts=f"{source} {csp_hash(page_script)}"),
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        plotly_script=plotly_script,
        fetches=plotly == "cdn",
        page_script=Markup(page_script),  # noqa: S704
        drawings_json=Markup(script_json({"drawings": specs, "themes": THEMES})),  # noqa: S704
        nothing=NOTHING,
        version=VERSION,
        **words,
    )


def _plotly(where: Plotly) -> tuple[Markup, str]:
    """The script element that brings plotly.js, and what the page's policy must allow for it."""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    if where == "inline":
        script = get_plotlyjs()
        return Markup(f"<script>{script}</script>"), csp_hash(script)  # noqa: S704
    if where == "file":
        # A page opened from disk has no origin of its own that 'self' could mean.
        return Markup(f'<script charset="utf-8" src="{PLOTLY_FILE}"></script>'), "'self' file:"  # noqa: S704
    url = f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
    digest = csp_hash(get_plotlyjs()).strip("'")
    tag = f'<script charset="utf-8" src="{url}" integrity="{digest}" crossorigin="anonymous"></script>'
    return Markup(tag), url  # noqa: S704


def write_page(text: str, path: Path, plotly: Plotly = "inline") -> Path:
    """Writes a page to `path`, over an older page if there is one; with "file", plotly.js beside it, once.

    Raises StorageError when it can't be written, its folder isn't there, or something else is: a warehouse, a manifest.
    """
    try:
        if not path.parent.is_dir():
            raise StorageError(f"{path.parent}: there is no such folder for the report; make it, or name another")
        if path.is_file() and not _is_page(path):
            raise StorageError(f"{path}: isn't a page, so it stays as it is; name another file with --html")
        path.write_text(text, encoding="utf-8")
        if plotly == "file":
            _put_plotly(path.with_name(PLOTLY_FILE))
    except OSError as error:
        raise StorageError(f"{path}: can't write the report: {error.strerror}; name another with --html") from error
    return path


def _put_plotly(path: Path) -> None:
    """Leaves plotly.js at `path`, unless it's there."""
    from plotly.offline import get_plotlyjs

    script = get_plotlyjs().encode()
    if not path.is_file() or path.stat().st_size != len(script):
        path.write_bytes(script)


def _is_page(path: Path) -> bool:
    """Whether a file is an HTML document, or empty."""
    with path.open("rb") as file:
        start = file.read(len(_DOCTYPE))
    return not start or start.lower() == _DOCTYPE


_DOCTYPE = b"<!doctype html>"


def when(ns: int | None) -> str:
    """A client time as UTC text, to the second."""
    return NOTHING if ns is None else datetime.fromtimestamp(ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
