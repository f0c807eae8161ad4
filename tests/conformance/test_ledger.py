"""The whole corpus through the spool into the ledger's tables: a row each, what was expected in it, readable back."""

import socket
from pathlib import Path

from tests.conformance.corpus import corpus
from tests.conformance.loopback import listening
from tests.conformance.transports import opener
from tests.load.scripted import make_job, schedule
from tfbench.core.clocks import ClockBase
from tfbench.load.assemble import assemble
from tfbench.load.call import Call
from tfbench.load.spool import RawRecord, SentRecord, SpoolWriter
from tfbench.load.supervise import LoadEnd, WorkerEnd


def records(call: Call) -> tuple[SentRecord, RawRecord]:
    """What the worker writes of a call; names that both have are taken over."""
    tick, ending = call.tick, call.ending
    assert ending is not None
    known = {
        **{name: getattr(tick, name) for name in tick._fields},
        **{name: getattr(call, name) for name in Call.__slots__},
        "ending": ending.value,
    }
    sent = SentRecord(**{name: known[name] for name in SentRecord._fields})
    return sent, RawRecord(**{name: known[name] for name in RawRecord._fields})


def test_the_corpus_becomes_tables(tmp_path: Path) -> None:
    from tfbench.ledger.schemas import ATTEMPTS, STREAMS

    cases = [case for case in corpus() if not case.name.startswith("Keep-Alive")]
    base = ClockBase.start()
    expected = {}
    workers = []
    with opener("mock") as fresh:
        wire = fresh()
        for dialect in sorted({case.dialect for case in cases}):
            path = tmp_path / dialect
            spool = SpoolWriter(str(path))
            spool.append("job", (dialect, True))
            for case in cases:
                if case.dialect == dialect:
                    call = wire.receive([case.response], case.end, settle_s=0.0005)
                    sent, raw = records(call)
                    spool.append("sent", sent)
                    spool.reads.extend(call.reads)
                    spool.write_reads()
                    spool.append("raw", raw)
                    expected[sent.attempt] = case.expected
            spool.close()
            workers.append(WorkerEnd(len(workers), path, ""))
    with listening(socket.AF_INET) as (_, target):
        job = make_job(f"http://127.0.0.1:{target.port}/v1", tmp_path, schedule(), mode="closed")
    tables = assemble("run", [job], LoadEnd(0, tuple(workers), False), base, "host").tables
    attempts, streams = tables["attempts"], tables["streams"]
    assert (attempts.schema, streams.schema) == (ATTEMPTS, STREAMS)
    attempts.validate(full=True)
    streams.validate(full=True)
    assert attempts["attempt_id"].to_pylist() == sorted(expected)
    assert attempts["outcome"].to_pylist() == [expected[i].outcome for i in sorted(expected)]
    assert attempts["output_tokens"].to_pylist() == [(expected[i].usage or (None,) * 4)[2] for i in sorted(expected)]
    sizes = dict(zip(streams["attempt_id"].to_pylist(), map(len, streams["kind"].to_pylist()), strict=True))
    assert sizes == {i: len(expected[i].kinds) for i in expected}
    texts = dict(zip(tables["texts"]["attempt_id"].to_pylist(), tables["texts"]["output"].to_pylist(), strict=True))
    assert {i: text or "" for i, text in texts.items()} == {i: expected[i].text for i in expected}
    kept = dict(zip(tables["raw"]["attempt_id"].to_pylist(), tables["raw"]["bytes"].to_pylist(), strict=True))
    missing = [i for i, facts in expected.items() if (facts.raw or b"") not in kept.get(i, b"")]
    assert missing == []
