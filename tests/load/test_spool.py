"""The spool gives back what was written, and what a dying worker wrote of it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tfbench.load.call import EXACT, FRAMED, INEXACT, Read
from tfbench.load.spool import SpoolWriter, pack_reads, read_spool, unpack_reads

times = st.integers(-(2**63), 2**63 - 1)
stamps = st.binary(min_size=16, max_size=16)
bodies = st.binary(max_size=20)
reads = st.lists(st.tuples(times, stamps, times, st.sampled_from((INEXACT, EXACT, FRAMED)), bodies))


@given(reads)
def test_packed_reads_come_back_without_framing(given_reads: list[Read]) -> None:
    framed = [
        (*read[:4], b"%x\r\n%s\r\n" % (len(read[4]), read[4])) if read[3] == FRAMED else read for read in given_reads
    ]
    assert list(unpack_reads(pack_reads(framed))) == [(*read[:3], read[3] != INEXACT, read[4]) for read in given_reads]


def test_records_come_back_in_order_and_a_cut_one_ends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    writer = SpoolWriter(str(path))
    records = [("sent", (n, "x" * n, None, 1.5)) for n in range(50)]
    for kind, record in records:
        writer.append(kind, record)
    writer.close()
    assert list(read_spool(path)) == records
    data = path.read_bytes()
    for cut in (1, 3, 5, len(data) // 2):
        path.write_bytes(data[: len(data) - cut])
        found = list(read_spool(path))
        assert found == records[: len(found)] and len(found) < 50


def test_what_was_flushed_is_there_without_a_close(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    writer = SpoolWriter(str(path))
    writer.append("sent", (1,))
    assert list(read_spool(path)) == []
    writer.flush()
    assert list(read_spool(path)) == [("sent", (1,))]
    writer.close()
