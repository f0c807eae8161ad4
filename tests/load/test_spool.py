"""The spool gives back what was written, and what a dying worker wrote of it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tfbench.load.call import EXACT, FRAMED, INEXACT, Read
from tfbench.load.spool import SpoolWriter, pack_reads, read_spool, unpack_reads

times = st.integers(-(2**63), 2**63 - 1)
stamps = st.binary(min_size=16, max_size=16)
bodies = st.binary(max_size=20)
forms = st.sampled_from((INEXACT, EXACT, FRAMED))
reads = st.lists(st.tuples(times, stamps, times, forms, bodies, st.integers(0, 4)))


@given(reads)
def test_packed_reads_come_back(given_reads: list[Read]) -> None:
    assert list(unpack_reads(pack_reads(given_reads))) == given_reads


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


def test_reads_gather_until_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    writer = SpoolWriter(str(path))
    one: Read = (1, b"s" * 16, 0, EXACT, b"one", 7)
    two: Read = (2, b"s" * 16, 1, EXACT, b"two", 8)
    gathered = writer.reads
    gathered += [one, two]
    writer.flush()
    assert list(read_spool(path)) == []
    writer.write_reads()
    writer.append("raw", (7,))
    gathered.append(two)
    writer.close()
    assert gathered == []
    assert list(read_spool(path)) == [("reads", pack_reads([one, two])), ("raw", (7,)), ("reads", pack_reads([two]))]
