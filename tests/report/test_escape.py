import base64
import hashlib
import json
import re

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tests.report.sample import HOSTILE
from tfbench.report.escape import csp_hash, harmless, label, plain, script_json
from tfbench.report.theme import DARK, fill

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)
TEXT = st.text() | st.sampled_from(HOSTILE)


@given(JSON)
def test_script_json_reads_back_and_cannot_leave_its_element(value: object) -> None:
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == json.loads(json.dumps(_without_infinities(value)))


def _without_infinities(value: object) -> object:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    return [_without_infinities(item) for item in value] if isinstance(value, list) else value


def _as_plotly_shows(text: str) -> str:
    """What Plotly paints: entities decoded once, and no tag to interpret."""
    assert not re.search(r"<[^<>]*>", text)
    for entity, char in (("&#123;", "{"), ("&#36;", "$"), ("&#64;", "@"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, char)
    return text


@given(TEXT)
def test_a_label_is_shown_as_it_is_written(text: str) -> None:
    made = label(text, 10_000)
    assert not set("<>$") & set(made)
    assert "%{" not in made
    assert fill(made, DARK) == made
    assert _as_plotly_shows(made) == plain(text)


@given(st.text(), st.integers(2, 40))
def test_plain_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = plain(text, limit)
    assert len(line) <= limit
    assert not re.search("[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", line)


def test_harmless_keeps_lines_and_markup_but_no_turned_text() -> None:
    assert harmless("a\n\tb\u202ec\x07") == "a\n\tb\ufffdc\ufffd"
    assert harmless(Markup("\x07")) == "\x07"
    assert harmless(3) == 3


def test_csp_hash_is_the_scripts_sha256() -> None:
    digest = hashlib.sha256("f('é')".encode()).digest()
    assert csp_hash("f('é')") == f"'sha256-{base64.b64encode(digest).decode()}'"
