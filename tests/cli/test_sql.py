"""`tfbench sql`: every kind of value as text and as JSON, and queries that give nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.cli.sql import sql, unlike
from tfbench.core.errors import UsageError
from tfbench.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[2]
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "w.duckdb"
    Warehouse.open(path).close()
    return path


@pytest.fixture
def ask(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """What the verb prints."""

    def printed(query: str, json: bool = False) -> str:
        sql(query, store, json)
        return capsys.readouterr().out

    return printed


VALUES = {
    "uuid '6d3d2eac-0b2b-4a52-9f0b-93e6de0ac5ba'": "6d3d2eac-0b2b-4a52-9f0b-93e6de0ac5ba",
    r"'a\x00\xFF'::BLOB": "6100ff",
    "(2::hugeint ** 100)::hugeint": 2**100,
    "sum(9223372036854775807::bigint)": 2**63 - 1,
    "9223372036854775807::bigint + 1::hugeint": 2**63,
    """'{"a": [1, null, "ü"]}'::JSON""": {"a": [1, None, "ü"]},
    "'null'::JSON": None,
    "'1e999'::JSON": None,
    "NULL": None,
    "NULL::JSON": None,
    "'inf'::double": None,
    "'-inf'::float": None,
    "'nan'::double": None,
    "['nan'::double, 1]": [None, 1.0],
    "0.1::double + 0.2": 0.1 + 0.2,
    "1.10": 1.1,
    "12345678901234567890.12::decimal(38,2)": "12345678901234567890.12",
    "12345678901234567890::decimal(38,0)": 12345678901234567890,
    "true": True,
    "timestamp '2026-01-02 03:04:05.678901'": "2026-01-02T03:04:05.678901",
    "date '2026-01-02'": "2026-01-02",
    "time '03:04:05'": "03:04:05",
    "interval 3 hours": "3:00:00",
    "[1, null, 3]": [1, None, 3],
    "[[1], []]": [[1], []],
    "array_value(1, 2)": [1, 2],
    """[{'a': 1, 'b': '{"x": 1}'::JSON}]""": [{"a": 1, "b": {"x": 1}}],
    "NULL::STRUCT(a JSON)": None,
    "map {'k': '[1]'::JSON}": {"k": [1]},
    "map {1: 'one', 2: 'two'}": {"1": "one", "2": "two"},
    "map {date '2026-01-02': 1}": {"2026-01-02": 1},
    "map {[1, 2]: 'x'}": {"[1,2]": "x"},
    "map {{'a': 1}: 'x'}": {'{"a":1}': "x"},
    "union_value(num := 2)": 2,
    "'\x1b[31mtwo\nlines \"quoted\" 雪'": '\x1b[31mtwo\nlines "quoted" 雪',
}


def test_every_kind_of_value_as_json(ask: Ask) -> None:
    columns = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(VALUES))
    text = ask(f"SELECT {columns}", json=True)
    [row] = json.loads(text)
    assert dict(zip(VALUES, row.values(), strict=True)) == VALUES
    assert str(2**100) in text and str(2**63) in text


def test_every_kind_of_value_as_text(ask: Ask) -> None:
    columns = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(VALUES))
    lines = ask(f"SELECT {columns}").splitlines()
    assert len(lines) == 2
    assert str(2**100) in lines[1] and '{"a":[1,null,"ü"]}' in lines[1] and "\x1b" not in lines[1]


def test_text_is_a_table(ask: Ask) -> None:
    query = "SELECT * FROM (VALUES ('a', 1, 0.5::double), ('bcd', NULL, 'nan'), (NULL, 20, 'inf')) t(name, n, x)"
    assert ask(query) == "name     n    x\na        1  0.5\nbcd   NULL  nan\nNULL    20  inf\n"
    assert ask("SELECT 1 WHERE false") == "no rows\n"
    assert json.loads(ask("SELECT 1 WHERE false", json=True)) == []


def test_names_given_twice(ask: Ask) -> None:
    query = "SELECT 1 a, 2 a, 3 a_1, 4 a"
    assert json.loads(ask(query, json=True)) == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]
    assert ask(query).splitlines()[0].split() == ["a", "a", "a_1", "a"]


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "b"]), max_size=8))
def test_names_become_unlike_and_the_first_stays(names: list[str]) -> None:
    told = unlike(names)
    assert len(set(told)) == len(told) == len(names)
    for name in names:
        assert told[names.index(name)] == name


def test_many_rows(ask: Ask) -> None:
    query = "SELECT i, repeat('x', (i // 1000)::int) AS s FROM range(2501) t(i) ORDER BY i"
    assert [row["i"] for row in json.loads(ask(query, json=True))] == list(range(2501))
    assert [line.split()[0] for line in ask(query).splitlines()] == ["i", *map(str, range(2501))]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "it is empty"),
        (" ; -- nothing", "it is empty"),
        ("SET threads = 1", "SET gives no rows"),
        ("SELECT 1; SET threads = 1", "SET gives no rows"),
        ("CREATE TABLE t (a INTEGER)", "read-only"),
        ("DELETE FROM runs", "read-only"),
        ("SELECT nothing", "nothing"),
        ("SELEC 1", "SELEC"),
        ("SELECT CAST('x' AS INTEGER)", "Could not convert"),
        # Fails after many batches: what came before isn't shown.
        ("SELECT CASE i WHEN 50000 THEN ('x' || i)::INT ELSE i END FROM range(60000) t(i)", "Could not convert"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_query_without_rows_is_one_line_and_prints_nothing(
    ask: Ask, capsys: pytest.CaptureFixture[str], query: str, says: str, as_json: bool
) -> None:
    with pytest.raises(UsageError, match=f"^query: .*{says}") as told:
        ask(query, json=as_json)
    assert "\n" not in str(told.value)
    assert capsys.readouterr().out == ""


def test_no_room_for_the_rows_is_one_line(store: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from tfbench.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.argv[1:] = ['sql', 'SELECT repeat(chr(120), 1000) FROM range(40000)', '--warehouse', sys.argv[1]]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tfbench: ") and "no room for the rows" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select ttft_ms from attempts", "; view attempt_metrics has ttft_ms"),
        ("select a.tpot_ms from attempts a", "; view attempt_metrics has tpot_ms"),
        ("select * from attempt", 'Did you mean "attempts"?'),
        ("select outcom from attempts", 'Candidate bindings: "outcome"'),
        ("select ttft from attempt_metrics", '"ttft_ms"'),
        ("select lenth('a')", 'Did you mean "length"?'),
    ],
)
def test_a_refused_query_is_told_what_may_be_meant(query: str, says: str, store: Path) -> None:
    with pytest.raises(UsageError) as caught:
        sql(query, store)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_latencies_have_obvious_names(ask: Ask) -> None:
    assert ask("select ttft_ms, tpot_ms, e2e_ms from attempt_metrics where counted") == "no rows\n"
