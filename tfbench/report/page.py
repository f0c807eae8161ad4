"""One self-contained HTML file from a template: no network, all text from outside kept text."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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

HINTS = (
    "script-src {hashes}",
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
)
"""Plotly styles its SVG inline and exports images through blob: and data:; nothing else is allowed."""


def render_page(template: str, specs: Mapping[str, Spec], **words: Any) -> str:
    """`template` of reports/ with `words`, and the drawings `specs` by key (about 5 MB, nearly all of it plotly.js)."""
    from plotly.offline import get_plotlyjs

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
    plotly = get_plotlyjs()
    page_script = (folder / "report.js").read_text(encoding="utf-8")
    hashes = " ".join(csp_hash(script) for script in (plotly, page_script))
    return env.get_template(template).render(
        csp="; ".join(HINTS).format(hashes=hashes),
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        plotly=Markup(plotly),  # noqa: S704
        page_script=Markup(page_script),  # noqa: S704
        drawings_json=Markup(script_json({"drawings": specs, "themes": THEMES})),  # noqa: S704
        nothing=NOTHING,
        version=VERSION,
        **words,
    )


def write_page(text: str, path: Path) -> Path:
    """Writes a page to `path`, over an older page if there is one.

    Raises StorageError when it can't be written, or something else is there: a warehouse, a manifest.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and not _is_page(path):
            raise StorageError(f"{path}: isn't a page, so it stays as it is; name another file with --html")
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: can't write the report: {error.strerror}; name another with --html") from error
    return path


def _is_page(path: Path) -> bool:
    """Whether a file is an HTML document, or empty."""
    with path.open("rb") as file:
        start = file.read(len(_DOCTYPE))
    return not start or start.lower() == _DOCTYPE


_DOCTYPE = b"<!doctype html>"


def when(ns: int | None) -> str:
    """A client time as UTC text, to the second."""
    return NOTHING if ns is None else datetime.fromtimestamp(ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
