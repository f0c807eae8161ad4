"""The scheduler alone, stepped one by one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stepwise import Arrival, drive
from tests.engine.strategies import engines, traffic
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.kv import KvCache, segment_blocks
from tfbench.engine.scheduler import Scheduler, Sequence, Step

UNIT = StepTime(base_ms=1.0, prefill_token_ms=0.0, decode_seq_ms=0.0)


def checker(config: EngineConfig) -> Callable[[Scheduler, Step], None]:
    """What holds of every step that an engine with these settings plans."""

    def check(scheduler: Scheduler, step: Step) -> None:
        prefills = [seq for seq, _ in step.prefills]
        decoding = scheduler.decoding if step.work.decode_seqs else ()
        served = [*decoding, *prefills]
        assert len({id(seq) for seq in served}) == len(served) <= config.max_num_seqs
        assert all(seq.arrival_ns <= step.start_ns and not seq.cancelled for seq in served)
        assert len(served) <= scheduler.running <= step.slots <= config.max_num_seqs
        assert step.steady >= 1 and (step.steady == 1 or not prefills)
        work = step.work
        assert work.decode_seqs == len(decoding)
        assert work.context_tokens == sum(seq.prompt_tokens + seq.generated for seq in decoding)
        assert work.prefill_tokens == sum(tokens for _, tokens in step.prefills)
        assert work.prefill_context_tokens == sum(seq.prefilled for seq in prefills)
        spans = [range(seq.prefilled + 1, seq.prefilled + tokens + 1) for seq, tokens in step.prefills]
        assert all(spans) and work.prefill_pairs == sum(map(sum, spans))
        assert work.prefill_seqs == sum(seq.prefilled + tokens == seq.target for seq, tokens in step.prefills)
        if config.chunked_prefill:
            assert work.decode_seqs + work.prefill_tokens <= config.max_num_batched_tokens
        else:
            assert not (decoding and prefills) and work.prefill_seqs == len(prefills)
            assert work.prefill_tokens <= config.max_num_batched_tokens or len(prefills) == 1
        check_blocks(scheduler, served)

    return check


def check_blocks(scheduler: Scheduler, served: list[Sequence]) -> None:
    """Each sequence has the blocks that its tokens take, the one about to be computed included, and no more."""
    kv = scheduler.kv
    if kv is None or kv.total is None:
        return
    assert kv.free + kv.used + kv.cached == kv.total
    holding = [seq.table for seq in {*served, *scheduler.decoding} if seq.table is not None]
    assert len({block for table in holding for block in table.blocks}) <= kv.used
    for seq in served:
        assert seq.table is not None
        assert len(seq.table) == kv.blocks_for(max(seq.target, seq.prompt_tokens + seq.generated))


@given(st.data())
def test_limits_hold_and_every_request_is_served_whole(data: st.DataObject) -> None:
    config = data.draw(engines())
    arrivals = data.draw(traffic(config.block_tokens))
    history = drive(config, arrivals, checker(config))
    for arrival, seq, token_ns in zip(arrivals, history.sequences, history.token_ns, strict=True):
        if seq is None:
            continue
        assert seq.end_ns is not None and seq.end_ns >= arrival.at_ns and seq.table is None
        assert len(token_ns) == seq.generated and seq.finished is not seq.cancelled
        if seq.cancelled:
            assert arrival.cancel_ns is not None
            continue
        assert (seq.generated, seq.prefilled) == (arrival.output, seq.target)
        assert (token_ns[0], token_ns[-1]) == (seq.first_token_ns, seq.end_ns)
        assert 0 <= seq.cached_tokens < arrival.prompt
        if seq.preemptions == 0:
            assert sum(tokens for _, _, tokens in seq.chunks) == arrival.prompt - seq.cached_tokens


@given(st.data())
def test_first_come_first_served_and_nobody_is_overtaken(data: st.DataObject) -> None:
    config = data.draw(engines())
    arrivals = data.draw(traffic(config.block_tokens))

    def check(scheduler: Scheduler, step: Step) -> None:
        if scheduler._running and scheduler._waiting:
            assert max(scheduler._running) < min(scheduler._waiting)

    history = drive(config, arrivals, check)
    starts = [seq.first_step_ns for seq in history.sequences if seq is not None and seq.first_step_ns is not None]
    assert starts == sorted(starts)


@given(st.data())
def test_no_slot_stays_idle_while_somebody_waits(data: st.DataObject) -> None:
    config = replace(data.draw(engines()), kv_blocks=None, batching="iteration", chunked_prefill=True)
    arrivals = data.draw(traffic(config.block_tokens))

    def check(scheduler: Scheduler, step: Step) -> None:
        full = scheduler.running == config.max_num_seqs
        spent = step.work.decode_seqs + step.work.prefill_tokens == config.max_num_batched_tokens
        assert full or spent or scheduler.waiting == 0

    drive(config, arrivals, check)


def one_by_one(arrivals: list[Arrival], **settings: Any) -> tuple[list[Sequence], list[Step]]:
    """Serve all; every one must be admitted."""
    history = drive(EngineConfig(**settings), arrivals)
    return [seq for seq in history.sequences if seq is not None], history.steps


def test_a_lone_request_takes_the_steps_and_times_worked_out_by_hand() -> None:
    # 10 prompt tokens under a budget of 4: chunks of 4, 4, 2. The third step yields token 1, two more follow.
    model = StepTime(1.0, 0.5, 0.25, 0.01)
    (seq,), steps = one_by_one([Arrival(5, 10, 3)], max_num_seqs=1, max_num_batched_tokens=4, step_time=model)
    works = [(step.work.prefill_tokens, step.work.decode_seqs, step.work.context_tokens) for step in steps]
    assert works == [(4, 0, 0), (4, 0, 0), (2, 0, 0), (0, 1, 11), (0, 1, 12)]
    # 1 + 4*0.5 = 3 ms, 3 ms, 2 ms; 1 + 0.25 + 0.11 = 1.36 ms, 1.37 ms
    assert seq.first_token_ns == 5 + 8_000_000
    assert seq.end_ns == 5 + 8_000_000 + 2_730_000
    assert seq.chunks == ((5, 3_000_005, 4), (3_000_005, 6_000_005, 4), (6_000_005, 8_000_005, 2))


def test_decoding_goes_first_and_prompts_get_the_rest_of_the_budget() -> None:
    # 64 decoding sequences under a budget of 1024 leave 960 tokens of a long prompt to this round (M3).
    scheduler = Scheduler(max_num_seqs=65, max_num_batched_tokens=1024, max_waiting=100)
    for seq_id in range(64):
        scheduler.admit(seq_id, 10, 100, 0)
    first = scheduler.plan_step(0)
    assert first is not None and first.work.prefill_tokens == 640
    scheduler.finish_step(first, 1)
    long = scheduler.admit(64, 8000, 1, 1)
    chunks = []
    for now in range(1, 10):
        step = scheduler.plan_step(now)
        assert step is not None and step.work.decode_seqs == 64
        assert step.prefills[0][0] is long
        chunks.append(step.work.prefill_tokens)
        scheduler.finish_step(step, now + 1)
    assert chunks == [960] * 8 + [320]


def test_without_chunks_a_prompt_is_computed_whole_and_decoding_waits() -> None:
    arrivals = [Arrival(0, 10, 6), Arrival(2_500_000, 100, 2), Arrival(2_600_000, 5, 1)]
    settings = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "step_time": UNIT}
    _, steps = one_by_one(arrivals, chunked_prefill=False, **settings)
    works = [(step.work.prefill_tokens, step.work.decode_seqs) for step in steps]
    # The long prompt takes a step of its own, though it is longer than the budget; the short one behind it the next.
    assert works == [(10, 0), (0, 1), (0, 1), (100, 0), (5, 0), (0, 2), (0, 1), (0, 1)]
    (first, *_), steps = one_by_one(arrivals, **settings)
    assert (first.end_ns, max(step.work.prefill_tokens for step in steps)) == (6_000_000, 31)


def test_slots_of_a_static_batch_stay_taken_where_iteration_level_batching_fills_them() -> None:
    # Rounds needed: 2, 5 and 8 (M1). 24 slot-rounds, 15 of them useful, 9 that others could fill.
    rounds = [Arrival(0, 1, output) for output in (2, 5, 8, 4)]
    settings = {"max_num_seqs": 3, "max_num_batched_tokens": 100, "step_time": UNIT}
    _, steps = one_by_one(rounds[:3], batching="static", **settings)
    useful = [step.work.decode_seqs + len(step.prefills) for step in steps]
    assert (sum(step.slots for step in steps), sum(useful)) == (24, 15)
    # A fourth request of 4 rounds waits for the batch to end; iteration by iteration it takes the first free slot.
    _, steps = one_by_one(rounds, batching="static", **settings)
    assert [step.work.decode_seqs + len(step.prefills) for step in steps] == [3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert [step.slots for step in steps] == [3] * 8 + [1] * 4
    _, steps = one_by_one(rounds, **settings)
    assert [step.work.decode_seqs + len(step.prefills) for step in steps] == [3, 3, 3, 3, 3, 2, 1, 1]


def test_a_static_batch_is_those_who_waited_when_it_began() -> None:
    # Prompts of 6 tokens under a budget of 8: the second member of the batch starts a step later, the third stays out.
    arrivals = [Arrival(0, 6, 3), Arrival(0, 6, 3), Arrival(500_000, 6, 3)]
    sequences, _ = one_by_one(
        arrivals, max_num_seqs=3, max_num_batched_tokens=8, batching="static", chunked_prefill=False, step_time=UNIT
    )
    assert [seq.first_step_ns for seq in sequences] == [0, 1_000_000, 4_000_000]


def test_a_static_batch_is_closed_when_its_next_member_finds_no_blocks() -> None:
    # 6 blocks of 4: prompts of 8, 4 and 13 tokens; the third waits for the batch's end, not for the first one's.
    arrivals = [Arrival(0, 8, 2), Arrival(0, 4, 9), Arrival(0, 13, 1)]
    sequences, _ = one_by_one(arrivals, kv_blocks=6, block_tokens=4, batching="static", step_time=UNIT)
    assert [seq.end_ns for seq in sequences] == [2_000_000, 9_000_000, 10_000_000]
    sequences, _ = one_by_one(arrivals, kv_blocks=6, block_tokens=4, step_time=UNIT)
    assert sequences[2].first_step_ns == 2_000_000


def test_a_step_is_not_repeated_past_an_arrival_that_is_known() -> None:
    scheduler = Scheduler(max_num_seqs=2, max_num_batched_tokens=8, max_waiting=1)
    scheduler.admit(0, 1, 50, 0)
    first = scheduler.plan_step(0)
    assert first is not None
    scheduler.finish_step(first, 1)
    second = scheduler.plan_step(1)
    assert second is not None and (second.steady, second.open) == (49, True)
    scheduler.finish_steps(second, 3, 4)
    scheduler.admit(1, 1, 1, 10)
    third = scheduler.plan_step(4)
    assert third is not None and third.steady == 1


def test_the_last_to_come_is_preempted_and_computes_its_tokens_anew() -> None:
    # 4 blocks of 4. Two prompts of 4 take one each and a second for their second token; at 9 tokens each needs a third,
    # and only the first one gets it, from the other.
    sequences, steps = one_by_one(
        [Arrival(0, 4, 10), Arrival(0, 4, 8)], kv_blocks=4, block_tokens=4, step_time=UNIT, max_num_seqs=2
    )
    first, second = sequences
    # Step 1 prefills; steps 2 to 5 compute tokens 5 to 8; step 6 computes the ninth.
    assert (first.preempted_ns, second.preempted_ns) == ((), (5_000_000,))
    assert first.end_ns == 10_000_000
    # Its 4 + 5 tokens fit again only when the first is done; they are prefilled in one step, which gives token 6.
    assert second.chunks == ((0, 1_000_000, 4), (10_000_000, 11_000_000, 9))
    assert (second.generated, second.end_ns) == (8, 13_000_000)
    assert [step.work.decode_seqs for step in steps] == [0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, 1, 1]


def test_a_prompt_waits_until_all_its_blocks_are_free() -> None:
    sequences, _ = one_by_one(
        [Arrival(0, 9, 4), Arrival(0, 5, 1), Arrival(0, 1, 1)], kv_blocks=4, block_tokens=4, step_time=UNIT
    )
    assert [seq.first_step_ns for seq in sequences] == [0, 4_000_000, 4_000_000]


def test_a_prompt_that_was_there_before_is_not_computed_again() -> None:
    blocks = segment_blocks([("system", 32), ("rest", 8)], 8)
    sequences, steps = one_by_one(
        [Arrival(0, 40, 2, blocks=blocks), Arrival(9_000_000, 40, 2, blocks=blocks)],
        kv_blocks=100,
        block_tokens=8,
        prefix_reuse=True,
        step_time=UNIT,
    )
    # All 40 are found, and the last one is computed all the same.
    assert [seq.cached_tokens for seq in sequences] == [0, 39]
    assert [step.work.prefill_tokens for step in steps] == [40, 0, 1, 0]
    assert steps[2].work.prefill_context_tokens == 39


def test_requests_over_the_free_slots_and_the_queue_limit_are_refused() -> None:
    scheduler = Scheduler(max_num_seqs=2, max_num_batched_tokens=8, max_waiting=1)
    assert [scheduler.admit(i, 1, 5, 0) is not None for i in range(4)] == [True, True, True, False]
    step = scheduler.plan_step(0)
    assert step is not None and (scheduler.running, scheduler.waiting) == (2, 1)
    assert scheduler.admit(4, 1, 5, 0) is None


def test_the_free_slots_of_a_static_batch_under_way_are_nobodys() -> None:
    scheduler = Scheduler(max_num_seqs=3, max_num_batched_tokens=8, max_waiting=1, static=True)
    assert scheduler.admit(0, 1, 5, 0) is not None
    step = scheduler.plan_step(0)
    assert step is not None and step.slots == 1
    assert [scheduler.admit(i, 1, 5, 0) is not None for i in (1, 2)] == [True, False]


def test_slots_that_no_blocks_are_left_for_are_nobodys() -> None:
    kv = KvCache(8, 4, reuse=False)
    scheduler = Scheduler(max_num_seqs=9, max_num_batched_tokens=99, max_waiting=1, kv=kv)
    # Two of 12 tokens have 6 of the 8 blocks: a third waits, a fourth is too many, though seven slots are free.
    assert [scheduler.admit(i, 12, 3, 0) is not None for i in range(4)] == [True, True, True, False]
    step = scheduler.plan_step(0)
    assert step is not None and (scheduler.running, scheduler.waiting, kv.available) == (2, 1, 2)
    assert scheduler.admit(4, 1, 3, 0) is None
    scheduler.cancel(step.prefills[0][0], 0)
    assert kv.available == 5
    # Now the third finds 3 blocks, and one more may wait behind it, or find the last 2.
    assert [scheduler.admit(i, 8, 3, 0) is not None for i in (5, 6, 7)] == [True, True, False]


def test_cached_blocks_count_for_who_shares_them() -> None:
    kv = KvCache(5, 4, reuse=True)
    scheduler = Scheduler(max_num_seqs=9, max_num_batched_tokens=99, max_waiting=0, kv=kv)
    assert scheduler.admit(0, 17, 3, 0, blocks=(1, 2, 3, 4)) is not None
    step = scheduler.plan_step(0)
    assert step is not None and kv.available == 0
    assert scheduler.admit(1, 17, 3, 0, blocks=(7, 8, 9, 10)) is None
    scheduler.finish_step(step, 1)
    assert scheduler.admit(2, 17, 3, 1, blocks=(1, 2, 3, 4)) is None  # its last token needs a block of its own
    scheduler.cancel(step.prefills[0][0], 1)
    assert scheduler.admit(3, 17, 3, 1, blocks=(1, 2, 3, 4)) is not None


def test_cached_blocks_are_had_by_one_only() -> None:
    kv = KvCache(10, 16, reuse=True)
    scheduler = Scheduler(max_num_seqs=4, max_num_batched_tokens=1000, max_waiting=0, kv=kv)
    keys = tuple(range(8))
    assert scheduler.admit(0, 129, 1, 0, blocks=keys) is not None
    step = scheduler.plan_step(0)
    assert step is not None
    scheduler.finish_step(step, 1)
    assert (kv.free, kv.cached) == (2, 8)
    # The same prompt takes the cached eight and one more; what is left is one block, not nine.
    assert scheduler.admit(1, 129, 1, 1, blocks=keys) is not None
    assert scheduler.admit(2, 80, 1, 1) is None
    # A third with that prompt shares the eight again and takes the last block; a fourth finds none.
    assert scheduler.admit(3, 129, 1, 1, blocks=keys) is not None
    assert scheduler.admit(4, 129, 1, 1, blocks=keys) is None
    step = scheduler.plan_step(1)
    assert step is not None and (scheduler.running, scheduler.waiting) == (2, 0)


def test_a_member_of_a_static_batch_that_leaves_makes_room_for_nobody() -> None:
    scheduler = Scheduler(max_num_seqs=4, max_num_batched_tokens=10, max_waiting=9, static=True)
    members = [scheduler.admit(i, 8, 2, 0) for i in range(4)]
    first = scheduler.plan_step(0)
    assert first is not None and None not in members
    scheduler.finish_step(first, 1)
    late = scheduler.admit(4, 8, 2, 1)
    assert members[3] is not None and late is not None
    scheduler.cancel(members[3], 1)
    now, with_late = 1, []
    while (step := scheduler.plan_step(now)) is not None:
        if any(seq is late for seq, _ in step.prefills):
            with_late.append(now)
            assert all(one is not None and one.end_ns is not None for one in members)
        now += 1
        scheduler.finish_step(step, now)
    assert with_late and late.finished


def test_what_the_whole_cache_cannot_hold_is_refused_up_front() -> None:
    kv = KvCache(4, 4, reuse=False)
    scheduler = Scheduler(max_num_seqs=2, max_num_batched_tokens=8, max_waiting=1, kv=kv)
    assert scheduler.admit(0, 10, 6, 0) is not None
    with pytest.raises(ValueError, match="10 \\+ 7 tokens never fit into 4 blocks of 4"):
        scheduler.admit(1, 10, 7, 0)
    with pytest.raises(ValueError, match="7 prompt tokens don't fill 2 blocks of 4"):
        scheduler.admit(1, 7, 1, 0, blocks=(1, 2))


def test_cancelling_frees_the_slot_and_the_blocks_at_once_and_the_step_under_way_gives_nothing() -> None:
    kv = KvCache(8, 4, reuse=False)
    scheduler = Scheduler(max_num_seqs=1, max_num_batched_tokens=8, max_waiting=5, kv=kv)
    first = scheduler.admit(0, 3, 5, 0)
    second = scheduler.admit(1, 3, 5, 0)
    third = scheduler.admit(2, 3, 5, 0)
    assert first and second and third
    step = scheduler.plan_step(0)
    assert step is not None and kv.used == 1
    scheduler.cancel(first, 7)
    scheduler.cancel(second, 8)
    assert (scheduler.running, scheduler.waiting, first.end_ns, kv.used) == (0, 1, 7, 0)
    assert scheduler.finish_step(step, 10).emitted == ()
    following = scheduler.plan_step(10)
    assert following is not None and following.prefills == ((third, 3),)
    scheduler.cancel(first, 99)
    assert first.end_ns == 7


def test_a_cancelled_one_keeps_the_tokens_it_got() -> None:
    scheduler = Scheduler(max_num_seqs=2, max_num_batched_tokens=8, max_waiting=5)
    seq = scheduler.admit(0, 3, 9, 0)
    assert seq is not None
    for now in range(3):
        step = scheduler.plan_step(now)
        assert step is not None
        scheduler.finish_step(step, now + 1)
    step = scheduler.plan_step(3)
    assert step is not None
    scheduler.cancel(seq, 3)
    assert scheduler.finish_step(step, 4).emitted == ()
    assert (seq.generated, seq.spans, seq.finished) == (3, ((1, 0, 2),), False)
    assert scheduler.plan_step(4) is None


def test_one_step_at_a_time() -> None:
    scheduler = Scheduler(max_num_seqs=1, max_num_batched_tokens=8, max_waiting=5)
    assert scheduler.plan_step(0) is None
    scheduler.admit(0, 1, 1, 3)
    assert scheduler.next_arrival_ns == 3
    assert scheduler.plan_step(2) is None
    step = scheduler.plan_step(3)
    assert step is not None
    with pytest.raises(RuntimeError):
        scheduler.plan_step(4)
    with pytest.raises(ValueError):
        scheduler.finish_steps(step, 2, 5)
    scheduler.finish_step(step, 4)
    with pytest.raises(RuntimeError):
        scheduler.finish_step(step, 5)


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0)])
def test_a_sequence_has_tokens(prompt: int, output: int) -> None:
    with pytest.raises(ValueError):
        Scheduler(max_num_seqs=1, max_num_batched_tokens=1, max_waiting=1).admit(0, prompt, output, 0)


@pytest.mark.parametrize(("seqs", "budget"), [(0, 4), (5, 4)])
def test_limits_that_cannot_work_are_refused(seqs: int, budget: int) -> None:
    with pytest.raises(ValueError):
        Scheduler(max_num_seqs=seqs, max_num_batched_tokens=budget, max_waiting=1)
