"""A report opened in headless Chromium. Without one, what the written page itself can tell is checked."""

import html
import re
from pathlib import Path

import pytest

from tests.report.pages import Page, chromium, injected, opened
from tests.report.sample import HOSTILE
from tests.report.studies import SAMPLES
from tfbench.report import html_report, write_html
from tfbench.report.escape import plain
from tfbench.report.sections import sections
from tfbench.report.theme import THEMES

pytestmark = pytest.mark.browser

LIGHT = "--blink-settings=preferredColorScheme=1"
DARK = "--force-dark-mode"
BROKEN = {
    "throws": "<script>undefinedName()</script>",
    "policy": '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'"><script>1</script>',
    "error": "<script>console.error('x')</script>",
}


@pytest.mark.parametrize(
    ("name", "flag", "scheme"), [("healthy", LIGHT, "light"), ("troubled", DARK, "dark"), ("searched", LIGHT, "light")]
)
def test_opens_without_a_word_on_the_console_and_draws_every_figure(
    name: str, flag: str, scheme: str, tmp_path: Path
) -> None:
    data = SAMPLES[name]()
    path = write_html(data, tmp_path / "report.html")
    drawn = [d.key for section in sections(data) for d in section.drawings if d.spec is not None]
    written = Page(path.read_text(encoding="utf-8"))
    assert written.attributes("data-drawing") == drawn
    assert injected(written) == []
    browser = chromium()
    if browser is None:
        return
    dom, console = opened(browser, path, [flag])
    assert console == []
    _, *places = dom.split("data-drawing=")
    assert len(places) == len(drawn)
    for key, place in zip(drawn, places, strict=True):
        figure = place.partition("<figcaption")[0]
        assert figure.startswith(f'"{key}"')
        assert 'class="main-svg"' in figure
        assert 'class="point"' in figure or 'class="js-line"' in figure
    colour = [int(THEMES[scheme]["s1"][i : i + 2], 16) for i in (1, 3, 5)]
    assert f"rgb({colour[0]}, {colour[1]}, {colour[2]})" in dom


def test_hostile_text_is_painted_as_text(tmp_path: Path) -> None:
    path = write_html(SAMPLES["troubled"](), tmp_path / "report.html")
    browser = chromium()
    dom = path.read_text(encoding="utf-8") if browser is None else opened(browser, path)[0]
    page = Page(dom)
    assert injected(page) == []
    assert [attrs.get("id") for attrs, _ in page.scripts] == ["drawings", None, None]
    for word in HOSTILE:
        assert plain(word) in page.text
    if browser is not None:
        _, _, bars = dom.partition('data-drawing="outcomes"')
        painted = html.escape(HOSTILE[4], quote=False)
        assert f">{painted}</text>" in bars, "an outcome's name in the legend"


PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const [page, nav] = [document.documentElement, document.querySelector("nav")];
  const over = [page, nav].map(one => one.scrollWidth - one.clientWidth);
  parent.postMessage([innerWidth, ...over].join(" "), "*");
}, 2000))</script></body>"""
FRAME = """<!doctype html><body><script>addEventListener("message", e => document.body.id = e.data)</script>
<iframe src="probed.html" style="border: 0" width="{width}" height="1000"></iframe>"""


@pytest.mark.parametrize("width", [1200, 420])
@pytest.mark.parametrize("name", ["healthy", "profiles"])
def test_nothing_is_wider_than_the_page(name: str, width: int, tmp_path: Path) -> None:
    browser = chromium()
    text = html_report(SAMPLES[name]())
    assert "flex-wrap: wrap" in text.partition(".toc {")[2].partition("}")[0]
    if browser is None:
        return
    # The probe isn't among the scripts that a report lets run.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    before, _, after = text.rpartition("</body>")
    (tmp_path / "probed.html").write_text(f"{before}{PROBE}{after}", encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    dom, _ = opened(browser, tmp_path / "frame.html")
    assert f'<body id="{width} 0 0">' in dom, dom[:300]


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_the_console_is_really_read(body: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text(f"<!doctype html>{body}<p>here", encoding="utf-8")
    browser = chromium()
    if browser is None:
        assert len(Page(path.read_text(encoding="utf-8")).scripts) == 1
        return
    dom, console = opened(browser, path)
    assert "here" in dom
    assert console
