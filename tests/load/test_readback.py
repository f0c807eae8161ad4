"""Reads of many calls lie among one another in the spool; each call gets its own back."""

from pathlib import Path
from random import Random

from tests.conformance.corpus import corpus
from tests.conformance.test_ledger import records
from tests.conformance.transports import opener
from tests.load.test_decode import call_of
from tfbench.load.call import FRAMED, Call
from tfbench.load.decode import decode
from tfbench.load.readback import WorkerReader
from tfbench.load.spool import SpoolWriter

DIALECT = "openai_chat"


def some_calls() -> list[Call]:
    """Calls that ended, of every kind of answer there is, read in pieces."""
    random = Random(1)
    cases = [case for case in corpus() if case.dialect == DIALECT and 20 < len(case.response) < 3_000]
    with opener("mock") as fresh:
        wire = fresh()
        calls = []
        for case in random.sample(cases, 60):
            size = random.choice((20, 100, 1000))
            parts = [case.response[at : at + size] for at in range(0, len(case.response), size)]
            calls.append(wire.receive(parts, case.end, settle_s=0.0005))
        return calls


def test_calls_read_back_among_one_another_are_those_decoded_alone(tmp_path: Path) -> None:
    calls = some_calls()
    random = Random(2)
    spool = SpoolWriter(str(tmp_path / "spool"))
    spool.append("job", (DIALECT, True))
    for call in calls:
        spool.append("sent", records(call)[0])
    left = {call.tick.attempt: (call, list(call.reads)) for call in calls}
    ended = []
    while left:
        attempt = random.choice(list(left))
        call, reads = left[attempt]
        if reads:
            spool.reads.append(reads.pop(0))
            if len(spool.reads) >= 16:
                spool.write_reads()
            continue
        del left[attempt]
        ended.append(call)
        spool.write_reads()
        spool.append("raw", records(call)[1])
        spool.append("anchor", (len(ended), len(ended), 0))
    spool.close()
    batches = list(WorkerReader(tmp_path / "spool", 0).batches(7))
    assert [len(batch) for batch in batches] == [7] * 8 + [4]
    found = [one for batch in batches for one in batch]
    assert [one.sent.attempt for one in found] == [call.tick.attempt for call in ended]
    for one, call in zip(found, ended, strict=True):
        alone = decode(call, DIALECT)
        assert one.decoded == alone._replace(output="")
        assert one.output == alone.output
        assert one.raw is not None and one.raw.last_ns == max([call.last_ns, *(read[0] for read in call.reads)])


def test_what_came_before_a_worker_died_is_read_back(tmp_path: Path) -> None:
    pieces = [b'data: {"choices":[{"index":0,"delta":{"content":" word%d"}}]}\n\n' % i for i in range(4)]
    call = call_of(pieces, [FRAMED] * 4)
    spool = SpoolWriter(str(tmp_path / "spool"))
    spool.append("job", (DIALECT, True))
    spool.append("sent", records(call)[0])
    spool.reads.extend(call.reads)
    spool.close()
    ((found,),) = WorkerReader(tmp_path / "spool", 0).batches()
    assert found.raw is None
    assert found.output == " word0 word1 word2 word3"
    assert (found.decoded.outcome, found.decoded.error) == (
        "unfinished",
        "the worker died before the request's end was written",
    )
    assert found.decoded.user == decode(call, DIALECT).user
