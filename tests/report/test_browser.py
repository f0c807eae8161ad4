"""A report opened in headless Chromium. Without one, what the written page itself can tell is checked."""

from pathlib import Path

import pytest

from tests.report.pages import Page, chromium, injected, opened
from tests.report.sample import HOSTILE, SAMPLES
from tfbench.report import write_html
from tfbench.report.escape import plain
from tfbench.report.sections import sections

pytestmark = pytest.mark.browser

BROKEN = (
    "<script>undefinedName()</script>",
    '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'"><script>1</script>',
    "<script>console.error('x')</script>",
)


@pytest.mark.parametrize("name", ["healthy", "troubled", "lone"])
def test_opens_without_a_word_on_the_console_and_draws_every_figure(name: str, tmp_path: Path) -> None:
    data = SAMPLES[name]()
    path = write_html(data, tmp_path / "report.html")
    drawn = [d.key for section in sections(data) for d in section.drawings if d.spec is not None]
    written = Page(path.read_text(encoding="utf-8"))
    assert written.attributes("data-drawing") == drawn
    assert injected(written) == []
    browser = chromium()
    if browser is None:
        return
    dom, console = opened(browser, path)
    assert console == []
    _, *places = dom.split("data-drawing=")
    assert len(places) == len(drawn)
    for key, place in zip(drawn, places, strict=True):
        place = place.partition("<figcaption")[0]
        assert place.startswith(f'"{key}"')
        assert 'class="main-svg"' in place
        assert 'class="point"' in place or 'class="js-line"' in place


def test_hostile_text_is_painted_as_text(tmp_path: Path) -> None:
    path = write_html(SAMPLES["troubled"](), tmp_path / "report.html")
    browser = chromium()
    if browser is None:
        assert injected(Page(path.read_text(encoding="utf-8"))) == []
        return
    dom, _ = opened(browser, path)
    page = Page(dom)
    assert [found for found in injected(page) if "#clip" not in found] == []
    assert [attrs.get("id") for attrs, _ in page.scripts] == ["drawings", None, None]
    _, _, chart = dom.partition('data-drawing="outcomes"')
    assert (
        HOSTILE[4].replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") in chart
        or HOSTILE[4] in Page(chart).text
    )
    assert plain(HOSTILE[5]) in page.text


@pytest.mark.parametrize(
    ("flag", "ink"), [("--blink-settings=preferredColorScheme=1", "light"), ("--force-dark-mode", "dark")]
)
def test_drawings_follow_the_colour_scheme(flag: str, ink: str, tmp_path: Path) -> None:
    from tfbench.report.theme import THEMES

    path = write_html(SAMPLES["lone"](), tmp_path / "report.html")
    browser = chromium()
    if browser is None:
        assert THEMES[ink]["s1"] in path.read_text(encoding="utf-8")
        return
    dom, console = opened(browser, path, [flag])
    assert console == []
    red, green, blue = (int(THEMES[ink]["s1"][i : i + 2], 16) for i in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in dom


@pytest.mark.parametrize("body", BROKEN, ids=["throws", "policy", "error"])
def test_the_console_is_really_read(body: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text(f"<!doctype html>{body}<p>here", encoding="utf-8")
    browser = chromium()
    if browser is None:
        assert "script" in body
        return
    dom, console = opened(browser, path)
    assert "here" in dom
    assert console
