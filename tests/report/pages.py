"""Reads a report's HTML, as written or as a browser left it."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=10000",
    "--window-size=1280,2000",
)


class Page(HTMLParser):
    """Every element with its attributes, every script's text, and all text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self._script: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._inside.append(tag)
            self._script = []

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"} and self._inside:
            self._inside.pop()
            if tag == "script":
                self.scripts.append((self.elements[self._last("script")][1], "".join(self._script)))

    def handle_data(self, data: str) -> None:
        (self._script if self._inside else self.words).append(data)

    def _last(self, tag: str) -> int:
        return max(i for i, (name, _) in enumerate(self.elements) if name == tag)

    @property
    def text(self) -> str:
        """What a reader sees."""
        return "".join(self.words)

    def attributes(self, name: str) -> list[str]:
        """Every value of an attribute, in order."""
        return [value or "" for _, attrs in self.elements for key, value in attrs.items() if key == name]


def injected(page: Page) -> list[str]:
    """Elements and attributes a report never has: they'd come from text that was taken for markup."""
    found = [tag for tag, _ in page.elements if tag in {"img", "iframe", "object", "embed", "base", "form", "video"}]
    for tag, attrs in page.elements:
        for name, value in attrs.items():
            reaches_out = name in {"src", "href", "xlink:href", "action"} and not (value or "").startswith("#")
            if name.startswith("on") or reaches_out:
                found.append(f"{tag} {name}={value}")
    return found


def chromium() -> str | None:
    """A Chromium to open pages with: $TFBENCH_CHROMIUM, or one on the path."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("TFBENCH_CHROMIUM") or next((found for name in names if (found := shutil.which(name))), None)


def opened(binary: str, path: Path, flags: Sequence[str] = ()) -> tuple[str, list[str]]:
    """The page's DOM after its scripts ran, and its console lines."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [binary, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", path.resolve().as_uri()],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=True,
        )
    return done.stdout, re.findall(r"CONSOLE[:(].*", done.stderr)
