"""Which chunks of a `streams` table are output; the SQL of tests/metrics/test_attempts.py must say the same."""

import pyarrow as pa
import pytest

from tfbench.ledger.output import output_mask

STREAMS = [
    ("role text text finish usage", [None, None, 1, None, None], "01100"),
    ("empty text empty text", [None, 1, None, 1], "0101"),
    ("empty text empty text", [1, None, 0, 1], "1101"),
    ("role empty empty finish", [None, None, None, None], "0110"),
    ("empty empty empty", [None, 1, None], "010"),
    ("empty empty", [0, None], "01"),
    ("empty empty", [0, 0], "00"),
    ("reasoning tool comment error", [None, None, None, None], "1100"),
    ("", [], ""),
]


def table(rows: list[tuple[str, list[int | None], str]]) -> pa.Table:
    return pa.table(
        {
            "kind": pa.array([kinds.split() for kinds, _, _ in rows], pa.list_(pa.string())),
            "tokens": pa.array([tokens for _, tokens, _ in rows], pa.list_(pa.int32())),
        }
    )


def said(streams: pa.Table) -> str:
    return "".join("01"[int(one)] for one in output_mask(streams))


@pytest.mark.parametrize("stream", STREAMS)
def test_one_stream(stream: tuple[str, list[int | None], str]) -> None:
    assert said(table([stream])) == stream[2]


def test_each_stream_is_judged_by_itself() -> None:
    whole = table(STREAMS)
    wanted = "".join(output for _, _, output in STREAMS)
    assert said(whole) == wanted
    assert said(whole.slice(3)) == "".join(output for _, _, output in STREAMS[3:])
    assert said(pa.concat_tables([whole, whole.slice(2, 4), whole.slice(0, 0)])) == wanted + "".join(
        output for _, _, output in STREAMS[2:6]
    )
    assert said(whole.slice(0, 0)) == ""
