"""--set: dotted paths, TOML literals, bare words."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.core.errors import ManifestError
from tfbench.manifest.sets import parse_set, put


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("load.rates=[2,4]", ("load", "rates"), [2, 4]),
        ("load.duration_s = 2.5", ("load", "duration_s"), 2.5),
        ("slo.icl_ms={p99=100, max=[1.5]}", ("slo", "icl_ms"), {"p99": 100, "max": [1.5]}),
        ("endpoint.stream=false", ("endpoint", "stream"), False),
        ("model.name=llama-3.1-8b", ("model", "name"), "llama-3.1-8b"),
        ('engine.version="0.9"', ("engine", "version"), "0.9"),
        ("endpoint.url=http://h:1/v1", ("endpoint", "url"), "http://h:1/v1"),
        ("model.revision=2026-11-29", ("model", "revision"), "2026-11-29"),
        ('endpoint.headers."X-A.B"=c=d', ("endpoint", "headers", "X-A.B"), "c=d"),
        ('engine.args=["--a=b"]', ("engine", "args"), ["--a=b"]),
        ('name=""', ("name",), ""),
        ("load.count=null", ("load", "count"), None),
        ("name=2\nb=3", ("name",), "2\nb=3"),
    ],
)
def test_parse(text: str, path: tuple[str, ...], value: Any) -> None:
    assert parse_set(text) == (path, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load.rates", '--set load.rates: there is no "="; write --set table.key=value'),
        ("=3", "--set: the key is not a dotted path; write --set table.key=value"),
        ("load.rates=", '--set load.rates: there is no value; write "" for an empty text, null to remove the key'),
        ("load..x=3", "--set load..x: the key is not a dotted path; write"),
        ("a\nb=3", "--set a\\nb: the key is not a dotted path; write"),
        ("load # x=3", "--set load # x: the key is not a dotted path; write"),
        ("load.rates=[2", "--set load.rates: the value is not a TOML literal; check brackets and quotes"),
        ("name='a", "--set name: the value is not a TOML literal; check brackets and quotes"),
        ("name=\udcff", "--set name: the value is not UTF-8; write"),
    ],
)
def test_bad_syntax_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_set(text)
    assert str(caught.value).startswith(expected)
    assert str(caught.value).isprintable()


def test_put_makes_tables_steps_into_lists_and_removes() -> None:
    document: dict[str, Any] = {"cost": {"resources": [{"hourly": 1}, {"hourly": 2}]}, "load": {"count": 3}}
    put(document, ("cost", "resources", "1", "hourly"), 5)
    put(document, ("slo", "icl_ms", "p99"), 100)
    put(document, ("load", "count"), None)
    put(document, ("load", "count"), None)
    assert document == {
        "cost": {"resources": [{"hourly": 1}, {"hourly": 5}]},
        "slo": {"icl_ms": {"p99": 100}},
        "load": {},
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("name.x", "--set name.x: name is not a table, so it has no keys; set name itself"),
        ("rates.9", "--set rates.9: rates is a list of 2; give an index or the list"),
        ("rates.x", "--set rates.x: rates is a list of 2; give an index or the list"),
        ("rates." + "9" * 5000, "--set rates.99"),
    ],
)
def test_put_names_what_bars_the_way(path: str, expected: str) -> None:
    with pytest.raises(ManifestError) as caught:
        put({"name": "a", "rates": [1, 2]}, tuple(path.split(".")), 3)
    assert str(caught.value).startswith(expected)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=30) | st.tuples(st.text(max_size=9), st.text(max_size=20)).map("=".join))
def test_any_text_parses_or_is_a_one_line_error(text: str) -> None:
    try:
        path, _ = parse_set(text)
    except ManifestError as error:
        assert str(error).isprintable()
    else:
        assert path
        assert all(isinstance(part, str) for part in path)


@settings(max_examples=200, deadline=None)
@given(
    path=st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=4),
    value=st.integers(-(2**62), 2**62) | st.booleans() | st.lists(st.integers(0, 9), max_size=3),
)
def test_what_is_written_is_what_is_put(path: list[str], value: Any) -> None:
    literal = str(value).lower() if isinstance(value, bool) else str(value)
    keys, parsed = parse_set(f"{'.'.join(path)}={literal}")
    document: dict[str, Any] = {}
    put(document, keys, parsed)
    node: Any = document
    for part in path:
        node = node[part]
    assert node == value
    assert type(node) is type(value)
