"""Files of recorded arrivals: every form gives the same seconds, every fault names its line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfbench.core.errors import ManifestError
from tfbench.manifest import Manifest, freeze, load_manifest


def replay(folder: Path, written: str, timestamps: str = '"arrivals"', *sets: str) -> Manifest:
    (folder / "arrivals").write_bytes(written.encode())
    path = folder / "chat.toml"
    path.write_text(f'[model]\nname = "m"\n[load]\ntimestamps = {timestamps}\n', encoding="utf-8")
    return load_manifest(path, sets)


def complaint(folder: Path, written: str, timestamps: str = '"arrivals"') -> str:
    with pytest.raises(ManifestError) as caught:
        replay(folder, written, timestamps)
    message = str(caught.value)
    assert message.isprintable()
    return message.removeprefix(f"{folder / 'chat.toml'}: load.timestamps")


@pytest.mark.parametrize(
    ("written", "timestamps"),
    [
        ("# a comment\n100\n\n100.25\n101.5", '"arrivals"'),
        ("timestamp,n\r\n100,1\r\n100.25,2\r\n101.5,3\r\n", '"arrivals"'),
        ("n,Arrival_Timestamp\n1,100\n2,1.0025e2\n3,101.5\n", '"arrivals"'),
        ('n,"t, s"\n1,0\n2,0.25\n3,1.5', '{ file = "arrivals", column = "t, s" }'),
        ('{"timestamp": 0}\n{"timestamp": 250, "n": 1}\n{"timestamp": 1500}\n', '{ file = "arrivals", unit = "ms" }'),
        ("1700000000000000000\n1700000000250000000\n1700000001500000000", '{ file = "arrivals", unit = "ns" }'),
        (
            "TIMESTAMP,ContextTokens\r\n2023-11-16 23:59:59.1234567,1\r\n"
            "2023-11-16 23:59:59.3734567,1\r\n2023-11-17 00:00:00.6234567,2",
            '"arrivals"',
        ),
        ("2024-01-01T00:00:00Z\n2024-01-01T01:00:00.25+01:00\n2024-01-01T00:00:01.5Z", '"arrivals"'),
    ],
)
def test_every_form_gives_seconds_from_the_first(tmp_path: Path, written: str, timestamps: str) -> None:
    load = replay(tmp_path, written, timestamps).load
    assert load.timestamps == (0.0, 0.25, 1.5)
    assert (load.process, load.points, load.warmup_s, load.count, load.duration_s) == ("replay", (1.0,), 0.0, 3, None)


def test_a_frozen_replay_needs_no_file_and_has_the_id_of_its_numbers(tmp_path: Path) -> None:
    frozen = freeze(replay(tmp_path, "5\n5.25\n6.5\n"))
    assert frozen.document["load"]["timestamps"] == [0, 0.25, 1.5]
    assert freeze(replay(tmp_path, "", "[0.0, 0.25, 1.5]")).workload_id == frozen.workload_id
    assert freeze(replay(tmp_path, "0\n0.25\n1.6\n")).workload_id != frozen.workload_id


def test_a_list_keeps_its_own_zero(tmp_path: Path) -> None:
    assert replay(tmp_path, "", "[2, 2.5]").load.timestamps == (2.0, 2.5)


def test_replay_may_be_cut_by_time(tmp_path: Path) -> None:
    load = replay(tmp_path, "0\n1\n2\n3\n", '"arrivals"', "load.warmup_s=1", "load.duration_s=2").load
    assert (load.warmup_s, load.duration_s, load.count) == (1.0, 2.0, None)


WRITTEN_AND_COMPLAINT: dict[tuple[str, str], str] = {
    ("", '"none.csv"'): ": none.csv: no such file; check the path",
    ("", '"."'): ": .: is a directory; give the file of timestamps in it",
    ("", '"arrivals"'): ": arrivals: holds no timestamp; give one a line",
    ("timestamp\n", '"arrivals"'): ": arrivals: holds no timestamp; give one a line",
    ("1\n2\n1.5\n", '"arrivals"'): ": arrivals: line 3: earlier than the one before it; sort the file by time",
    ("1\nx\n", '"arrivals"'): ': arrivals: line 2: "x" is neither a number nor a date; mend it there',
    ("1\nnan\n", '"arrivals"'): ": arrivals: line 2: nan is no time; mend it there",
    ("1\n2024-01-01\n", '"arrivals"'): (": arrivals: line 2: a date without a time zone after a number; give one kind"),
    ("0\n3540000\n", '"arrivals"'): (
        ": arrivals: spans 3,540,000 s, over the limit of 2,592,000; are they perhaps in milliseconds? "
        'then { file = "…", unit = "ms" }'
    ),
    ("a,b\n1,2\n", '"arrivals"'): (
        ": arrivals: none of the columns a, b is called timestamp, arrival_timestamp, arrival_time, arrived_at; "
        "name it with column = …"
    ),
    ("a,timestamp\n1\n", '"arrivals"'): ": arrivals: line 2: has 1 columns, too few; mend it there",
    ('timestamp,a\n1,"x\ny"\n', '"arrivals"'): (": arrivals: a quoted text runs over several lines; take it out"),
    ('{"timestamp": 1}\n[2]\n', '"arrivals"'): ": arrivals: line 2: not a JSON object; mend it there",
    ('{"timestamp": 1}\n{"t": 2}\n', '"arrivals"'): ': arrivals: line 2: has no "timestamp"; mend it there',
    ('{"timestamp": true}\n', '"arrivals"'): ": arrivals: line 1: expected a number or a date; mend it there",
    ("begin,b\n1,2\n", '{ file = "arrivals", column = "begn" }'): (
        ': arrivals: has no column "begn"; did you mean "begin"?'
    ),
    ("", '{ file = "arrivals", colum = "c" }'): ".colum: unknown key; did you mean column?",
    ("", '{ column = "c" }'): '.file: is required; add it; for example file = "arrivals.csv"',
    ("", '{ file = "arrivals", unit = "min" }'): '.unit: expected one of s, ms, us, ns, got "min"',
    ("", "{ file = 3 }"): '.file: expected a text; for example { file = "arrivals.csv", unit = "ms" }',
}


@pytest.mark.parametrize(("written", "timestamps"), WRITTEN_AND_COMPLAINT)
def test_every_fault_names_its_line_and_mend(tmp_path: Path, written: str, timestamps: str) -> None:
    assert complaint(tmp_path, written, timestamps) == WRITTEN_AND_COMPLAINT[written, timestamps]


def test_a_flag_is_named_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        replay(tmp_path, "", "[1]", "load.timestamps=none.csv")
    assert str(caught.value) == "--set load.timestamps: none.csv: no such file; check the path"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    written=st.text(max_size=60)
    | st.lists(st.sampled_from(["timestamp,a", "1,2", "3", "-1e400", "2024-01-01", '{"timestamp": 1}', '"', ","])).map(
        "\n".join
    ),
    column=st.sampled_from(["", ', column = "a"']),
)
def test_any_file_is_arrivals_or_a_one_line_error(tmp_path: Path, written: str, column: str) -> None:
    found: Any = None
    try:
        found = replay(tmp_path, written, f'{{ file = "arrivals"{column} }}').load.timestamps
    except ManifestError as error:
        assert str(error).startswith(f"{tmp_path / 'chat.toml'}: load.timestamps")
        assert str(error).isprintable()
    else:
        assert found[0] == 0
        assert list(found) == sorted(found)
