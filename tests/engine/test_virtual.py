"""Virtual time: skipping steps changes nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stepwise import Arrival, History, drive
from tests.engine.strategies import engines, traffic
from tfbench.bounds import Work
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.kv import segment_blocks
from tfbench.engine.profile import engine_profile
from tfbench.engine.scheduler import Sequence
from tfbench.engine.step_time import StepModel, duration_ns, durations_ns
from tfbench.engine.virtual import VirtualEngine, serve


def facts(seq: Sequence | None) -> Any:
    if seq is None:
        return None
    return (
        (seq.arrival_ns, seq.first_step_ns, seq.first_token_ns, seq.end_ns),
        (seq.generated, seq.prefilled, seq.cancelled, seq.finished),
        (seq.cached_tokens, seq.preempted_ns, seq.chunks, seq.batch_sum),
    )


Seen = list[tuple[int, int, int | None]]
"""Sequence, time, and the last of its tokens by then as the engine told it."""


def replay(
    config: EngineConfig, arrivals: list[Arrival], looks: list[int], back_ns: int = 0
) -> tuple[VirtualEngine, History, Seen]:
    """The same traffic in virtual time, looking at it also at the times `looks`; what finished is noted, too.

    Each look asks for the last tokens, those of `back_ns` before.
    """
    engine, history = VirtualEngine(config), History()
    seen: Seen = []
    events: list[tuple[int, int, int]] = [(a.at_ns, 0, i) for i, a in enumerate(arrivals)]
    events += [(max(a.cancel_ns, a.at_ns), 1, i) for i, a in enumerate(arrivals) if a.cancel_ns is not None]
    events += [(look, 2, 0) for look in looks]
    done: list[Sequence] = []
    for at, kind, i in sorted(events):
        if kind == 0:
            a = arrivals[i]
            history.sequences.append(engine.submit(at, a.prompt, a.output, blocks=a.blocks, tag=i))
        elif kind == 1:
            seq = history.sequences[i]
            if seq is not None:
                engine.cancel(seq, at)
        else:
            done += engine.run_until(at)
            for number, seq in enumerate(history.sequences):
                if seq is not None:
                    seen.append((number, at - back_ns, engine.last_token_ns(seq, at - back_ns)))
            event = engine.next_event_ns() if at not in {a.at_ns for a in arrivals} else None
            assert event is None or event > at
    done += engine.drain()
    assert done == sorted(done, key=lambda seq: seq.end_ns or 0)
    assert {id(seq) for seq in done} == {id(seq) for seq in history.sequences if seq is not None and seq.finished}
    return engine, history, seen


@given(st.data())
def test_skipping_steps_gives_what_stepping_gives(data: st.DataObject) -> None:
    config = data.draw(engines())
    arrivals = data.draw(traffic(config.block_tokens))
    looks = data.draw(st.lists(st.integers(0, 60_000_000), max_size=5))
    plain = drive(config, arrivals)
    back_ns = data.draw(st.sampled_from([0, 700_000, 9_000_000]))
    engine, skipped, seen = replay(config, arrivals, looks, back_ns)
    assert [facts(seq) for seq in skipped.sequences] == [facts(seq) for seq in plain.sequences]
    for seq, times in zip(skipped.sequences, plain.token_ns, strict=True):
        if seq is not None:
            assert engine.token_times(seq).tolist() == times
    # Steps that take no time at all come after what is handed in, and asked, at their instant.
    late = 1 if back_ns == 0 and config.step_time == StepTime(0.0, 0.0, 0.0) else 0
    for number, at, told in seen:
        assert told == max((t for t in plain.token_ns[number] if t <= at - late), default=None)
    kv = engine.scheduler.kv
    if kv is not None:
        assert kv.used == 0 and engine.scheduler.running == engine.scheduler.waiting == 0


def test_an_idle_engine_starts_at_the_arrival_and_a_busy_one_at_the_end_of_its_step() -> None:
    engine = VirtualEngine(EngineConfig(step_time=StepTime(10.0, 0.0, 0.0)))
    assert engine.next_event_ns() is None
    first = engine.submit(1_234_567, 5, 3, tag="first")
    assert first is not None and engine.next_event_ns() == 11_234_567
    second = engine.submit(11_234_567, 5, 1)  # at the very end of a step: in time for the next one
    assert engine.run_until(21_234_566) == []
    assert engine.run_until(21_234_567) == [second]
    assert engine.now_ns == 21_234_567
    assert engine.drain() == [first] and first.tag == "first"
    assert engine.token_times(first).tolist() == [11_234_567, 21_234_567, 31_234_567]
    assert engine.next_event_ns() is None and engine.drain() == []
    with pytest.raises(ValueError, match="time goes back from 31234567 to 31234566"):
        engine.submit(31_234_566, 1, 1)


def test_a_client_that_leaves_stops_its_tokens_and_nobody_elses() -> None:
    engine = VirtualEngine(EngineConfig(step_time=StepTime(10.0, 0.0, 0.0)))
    stays, leaves = engine.submit(0, 5, 6), engine.submit(0, 5, 6)
    assert stays is not None and leaves is not None
    assert engine.next_event_ns() == 10_000_000
    with pytest.raises(ValueError, match="sequence 0 has not ended"):
        engine.token_times(stays)
    engine.cancel(leaves, 34_000_000)
    engine.cancel(leaves, 35_000_000)
    assert (leaves.end_ns, leaves.generated, leaves.cancelled) == (34_000_000, 3, True)
    assert engine.drain() == [stays]
    assert engine.token_times(leaves).tolist() == [10_000_000, 20_000_000, 30_000_000]
    assert stays.end_ns == 60_000_000 and stays.batch_sum == 2 + 2 + 1 + 1 + 1
    queued = engine.submit(70_000_000, 5, 6)
    assert queued is not None
    engine.cancel(queued, 70_000_000)
    assert engine.token_times(queued).size == 0 and engine.drain() == []


def test_requests_that_are_refused_have_no_times() -> None:
    config = EngineConfig(max_num_seqs=1, max_waiting=1, step_time=StepTime(1.0, 0.0, 0.0))
    served = serve(config, np.array([0, 1, 2]), np.array([1, 1, 1]), np.array([600, 2, 2]))
    assert served.accepted.tolist() == [True, True, False]
    assert served.first_step_ns.tolist() == [0, 600_000_000, -1]
    assert served.end_ns.tolist() == [600_000_000, 602_000_000, -1]
    assert served.token_times(2).size == 0
    assert served.token_times(0).tolist() == list(range(1_000_000, 600_000_001, 1_000_000))
    assert served.preemptions.tolist() == [0, 0, -1]


def test_arrays_must_fit_together_and_requests_into_the_cache() -> None:
    one, two = np.array([1]), np.array([1, 1])
    with pytest.raises(ValueError):
        serve(EngineConfig(), two, one, two)
    with pytest.raises(ValueError):
        serve(EngineConfig(), two, two, two, blocks=[()])
    with pytest.raises(ValueError, match="never fit"):
        serve(EngineConfig(kv_blocks=1), one, np.array([16]), one)
    with pytest.raises(ValueError, match="time goes back"):
        serve(EngineConfig(), np.array([2, 1]), two, two)
    nobody = np.empty(0, np.int64)
    assert serve(EngineConfig(), nobody, nobody, nobody).end_ns.size == 0


def test_one_slot_and_one_token_is_a_queue_with_one_server() -> None:
    # Every request takes one step: waits are Lindley's, to the nanosecond, at times since the epoch too.
    rng = np.random.default_rng(1)
    arrival_ns = 1_700_000_000_000_000_000 + np.cumsum(rng.exponential(1e7, 3000)).astype(np.int64)
    prompt = rng.integers(1, 1000, 3000)
    config = EngineConfig(max_num_seqs=1, step_time=StepTime(1.0, 0.015, 0.0))
    served = serve(config, arrival_ns, prompt, np.ones(3000, np.int64))
    free = 0
    for i, (at, tokens) in enumerate(zip(arrival_ns.tolist(), prompt.tolist(), strict=True)):
        start = max(at, free)
        free = start + round((1.0 + 0.015 * tokens) * 1e6)
        assert (served.first_step_ns[i], served.end_ns[i]) == (start, free)


def test_prefixes_are_reused_in_virtual_time() -> None:
    blocks = [segment_blocks([("system", 64), (f"own {i}", 36)], 16) for i in range(3)]
    config = EngineConfig(prefix_reuse=True, step_time=StepTime(1.0, 1.0, 0.0))
    arrival_ns, prompt, output = np.array([0, 10**9, 2 * 10**9]), np.full(3, 100), np.full(3, 2)
    served = serve(config, arrival_ns, prompt, output, blocks=blocks)
    assert served.cached_tokens.tolist() == [0, 64, 64]
    assert (served.first_token_ns - arrival_ns).tolist() == [101_000_000, 37_000_000, 37_000_000]


MODELS = [StepTime(), StepTime(1.3, 0.7, 0.11, 0.00037), engine_profile("h100-llama-3.1-8b").step_model]


@pytest.mark.parametrize("model", MODELS)
@given(seqs=st.integers(1, 300), context=st.integers(1, 500_000), n=st.integers(1, 600))
def test_durations_of_a_run_are_those_of_its_steps(model: StepModel, seqs: int, context: int, n: int) -> None:
    durations = durations_ns(model, Work(0, seqs, context), n)
    assert durations.dtype == np.int64
    steps = {0, 1, n // 2, n - 1} & set(range(n))
    assert {i: int(durations[i]) for i in steps} == {
        i: duration_ns(model, Work(0, seqs, context + i * seqs)) for i in steps
    }


def test_a_client_that_leaves_at_the_end_of_a_step_is_not_in_the_next() -> None:
    engine = VirtualEngine(EngineConfig(step_time=StepTime(9.0, 0.0, 1.0)))
    stays, leaves = engine.submit(0, 5, 4), engine.submit(0, 5, 4)
    assert stays is not None and leaves is not None
    assert engine.run_until(15_000_000) == []  # the steps that end at 20, 31 and 42 ms are under way
    engine.cancel(leaves, 20_000_000)
    engine.drain()
    assert engine.token_times(stays).tolist() == [9_000_000, 20_000_000, 30_000_000, 40_000_000]
