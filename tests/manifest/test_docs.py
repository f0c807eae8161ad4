"""The manifest's page is what the models say."""

from pathlib import Path

from tfbench.manifest.docs import manifest_markdown


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "manifest.md"
    assert page.read_text(encoding="utf-8") == manifest_markdown(), "python -m tfbench.manifest.docs > docs/manifest.md"
