"""The scheduler alone, in virtual time."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.engine.scheduler import Scheduler, Sequence, Step
from tfbench.engine.step_time import StepTime, duration_ns

MODEL = StepTime(base_ms=1.0, prefill_token_ms=0.1, decode_seq_ms=0.01, context_token_ms=0.001)


@dataclass(frozen=True)
class Arrival:
    at_ns: int
    prompt: int
    output: int
    cancel_after_steps: int | None = None


def drive(scheduler: Scheduler, arrivals: list[Arrival], model: StepTime) -> tuple[list[Sequence], list[Step]]:
    """Serve all arrivals in virtual time; every one must be admitted."""
    admitted: list[Sequence] = []
    steps: list[Step] = []
    cancels: list[tuple[int, Sequence]] = []
    now = 0
    while True:
        while len(admitted) < len(arrivals) and arrivals[len(admitted)].at_ns <= now:
            arrival = arrivals[len(admitted)]
            seq = scheduler.admit(len(admitted), arrival.prompt, arrival.output, arrival.at_ns)
            assert seq is not None
            admitted.append(seq)
            if arrival.cancel_after_steps is not None:
                cancels.append((len(steps) + arrival.cancel_after_steps, seq))
        step = scheduler.plan_step(now)
        if step is None:
            if len(admitted) == len(arrivals):
                return admitted, steps
            now = arrivals[len(admitted)].at_ns
            continue
        steps.append(step)
        check_step(scheduler, step)
        end = now + duration_ns(model, step.work)
        for due, seq in cancels:
            if due == len(steps):
                scheduler.cancel(seq, (now + end) // 2)
        scheduler.finish_step(step, end)
        now = end


def check_step(scheduler: Scheduler, step: Step) -> None:
    served = [*step.decodes, *(seq for seq, _ in step.prefills)]
    assert len({id(seq) for seq in served}) == len(served)
    assert all(seq.arrival_ns <= step.start_ns and not seq.cancelled for seq in served)
    assert all(tokens >= 1 for _, tokens in step.prefills)
    assert step.work.decode_seqs == len(step.decodes)
    assert step.work.prefill_tokens == sum(tokens for _, tokens in step.prefills)
    assert step.work.context_tokens == sum(seq.prompt_tokens + seq.generated for seq in step.decodes)


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 20_000_000), st.integers(1, 60), st.integers(1, 12), st.none() | st.integers(1, 8)),
    min_size=1,
    max_size=30,
).map(lambda rows: [Arrival(*row) for row in sorted(rows, key=lambda row: row[0])])


@given(ARRIVALS, st.integers(1, 6), st.integers(0, 20))
def test_limits_hold_and_every_request_finishes(arrivals: list[Arrival], slots: int, extra: int) -> None:
    scheduler = Scheduler(max_num_seqs=slots, max_num_batched_tokens=slots + extra, max_waiting=1000)
    sequences, steps = drive(scheduler, arrivals, MODEL)
    assert scheduler.running == scheduler.waiting == 0
    for step in steps:
        assert len(step.decodes) + len(step.prefills) <= slots
        assert step.work.decode_seqs + step.work.prefill_tokens <= slots + extra
    emitted = sum(seq.generated for seq in sequences)
    decoded = sum(step.work.decode_seqs for step in steps)
    for arrival, seq in zip(arrivals, sequences, strict=True):
        assert seq.end_ns is not None and seq.end_ns >= arrival.at_ns
        if arrival.cancel_after_steps is None:
            assert (seq.generated, seq.prefilled, seq.cancelled) == (arrival.output, arrival.prompt, False)
            assert seq.first_step_ns is not None and seq.first_token_ns is not None
            assert arrival.at_ns <= seq.first_step_ns < seq.first_token_ns <= seq.end_ns
        assert seq.finished or seq.cancelled
    if not any(seq.cancelled for seq in sequences):
        assert emitted == decoded + len(sequences)
        assert sum(step.work.prefill_tokens for step in steps) == sum(arrival.prompt for arrival in arrivals)


@given(ARRIVALS, st.integers(1, 6), st.integers(0, 20))
def test_first_come_first_served_and_no_slot_idle(arrivals: list[Arrival], slots: int, extra: int) -> None:
    scheduler = Scheduler(max_num_seqs=slots, max_num_batched_tokens=slots + extra, max_waiting=1000)
    sequences, steps = drive(scheduler, arrivals, MODEL)
    starts = [seq.first_step_ns for seq in sequences if seq.first_step_ns is not None]
    assert starts == sorted(starts)
    for step in steps:
        full = len(step.decodes) + len(step.prefills) == slots
        spent = step.work.decode_seqs + step.work.prefill_tokens == slots + extra
        left_out = [
            seq
            for seq in sequences
            if seq.arrival_ns <= step.start_ns
            and (seq.first_step_ns is None or seq.first_step_ns > step.start_ns)
            and (seq.end_ns is None or seq.end_ns > step.start_ns)
        ]
        assert full or spent or not left_out


def test_a_lone_request_takes_the_steps_and_times_worked_out_by_hand() -> None:
    # 10 prompt tokens under a budget of 4: chunks of 4, 4, 2. The third step yields token 1, two more follow.
    scheduler = Scheduler(max_num_seqs=1, max_num_batched_tokens=4, max_waiting=0)
    (seq,), steps = drive(scheduler, [Arrival(5, 10, 3)], StepTime(1.0, 0.5, 0.25, 0.01))
    works = [(step.work.prefill_tokens, step.work.decode_seqs, step.work.context_tokens) for step in steps]
    assert works == [(4, 0, 0), (4, 0, 0), (2, 0, 0), (0, 1, 11), (0, 1, 12)]
    # 1 + 4*0.5 = 3 ms, 3 ms, 2 ms; 1 + 0.25 + 0.11 = 1.36 ms, 1.37 ms
    assert seq.first_token_ns == 5 + 8_000_000
    assert seq.end_ns == 5 + 8_000_000 + 2_730_000
    assert seq.prefill_steps == 3


def test_decoding_goes_first_and_prompts_get_the_rest_of_the_budget() -> None:
    # 64 decoding sequences under a budget of 1024 leave 960 tokens of a long prompt to this round.
    scheduler = Scheduler(max_num_seqs=65, max_num_batched_tokens=1024, max_waiting=100)
    for seq_id in range(64):
        scheduler.admit(seq_id, 10, 100, 0)
    first = scheduler.plan_step(0)
    assert first is not None and first.work.prefill_tokens == 640
    scheduler.finish_step(first, 1)
    long = scheduler.admit(64, 8000, 1, 1)
    second = scheduler.plan_step(1)
    assert second is not None
    assert (second.work.decode_seqs, second.prefills) == (64, ((long, 960),))


def test_iteration_level_batching_refills_slots_between_steps() -> None:
    # Rounds needed: 2, 5, 8 and then 4, on three slots. The fourth starts when the first ends (round 3), so all is
    # done in 8 rounds; a static batch would need 8 + 4.
    scheduler = Scheduler(max_num_seqs=3, max_num_batched_tokens=100, max_waiting=100)
    rounds = [Arrival(0, 1, output) for output in (2, 5, 8, 4)]
    _, steps = drive(scheduler, rounds, StepTime(1.0, 0.0, 0.0))
    assert [len(step.decodes) + len(step.prefills) for step in steps] == [3, 3, 3, 3, 3, 2, 1, 1]


def test_requests_over_the_free_slots_and_the_queue_limit_are_refused() -> None:
    scheduler = Scheduler(max_num_seqs=2, max_num_batched_tokens=8, max_waiting=1)
    assert [scheduler.admit(i, 1, 5, 0) is not None for i in range(4)] == [True, True, True, False]
    step = scheduler.plan_step(0)
    assert step is not None and (scheduler.running, scheduler.waiting) == (2, 1)
    assert scheduler.admit(4, 1, 5, 0) is None


def test_cancelling_frees_the_slot_at_once_and_the_step_under_way_gives_nothing() -> None:
    scheduler = Scheduler(max_num_seqs=1, max_num_batched_tokens=8, max_waiting=5)
    first = scheduler.admit(0, 3, 5, 0)
    second = scheduler.admit(1, 3, 5, 0)
    third = scheduler.admit(2, 3, 5, 0)
    assert first and second and third
    step = scheduler.plan_step(0)
    assert step is not None
    scheduler.cancel(first, 7)
    scheduler.cancel(second, 8)
    assert (scheduler.running, scheduler.waiting, first.end_ns) == (0, 1, 7)
    assert scheduler.finish_step(step, 10).emitted == ()
    following = scheduler.plan_step(10)
    assert following is not None and following.prefills == ((third, 3),)
    scheduler.cancel(first, 99)
    assert first.end_ns == 7


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
