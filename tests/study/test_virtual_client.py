"""The client in virtual time: every way of offering load, every way a request can end."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tfbench.core.kinds import Outcome
from tfbench.engine.api import parse_submission
from tfbench.engine.config import EngineConfig
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import serve
from tfbench.manifest import Manifest, expand, freeze, parse_manifest
from tfbench.protocol import DIALECTS
from tfbench.schedule import ClosedPlan, Schedule, build_schedule
from tfbench.study.prefix_blocks import PrefixBlocks
from tfbench.study.virtual_client import START_NS, Answer, VirtualClient
from tfbench.workload import build_workload

MS = 1_000_000
S = 1_000 * MS
STEPS = StepTime(base_ms=10.0, prefill_token_ms=0.0, decode_seq_ms=0.0)
AT_ONCE: dict[str, Any] = {"step_time": STEPS, "ingress_us": 0.0, "ingress_gap_us": 0.0, "egress_us": 0.0}


WAYS = [(0.0, 0.0), (900.0, 200.0), (25_000.0, 3_000.0)]
"""Ingress and egress in µs: none, those of the served engine, and more than two steps take."""


def frozen(load: dict[str, Any], **tables: Any) -> Manifest:
    document = {
        "model": {"name": "m", "lora": ["x"]},
        "endpoint": {"adapter": "tfbench"},
        "workload": {"input_tokens": 8, "output_tokens": 10},
        "load": {"warmup_s": 0, "repeats": 1} | load,
    }
    return freeze(parse_manifest(document | tables, "test")).manifest


def client(manifest: Manifest, **config: Any) -> tuple[VirtualClient, Schedule | ClosedPlan]:
    plan = expand(manifest)[0]
    timing = build_schedule(manifest, plan)
    return VirtualClient(manifest, plan, EngineConfig(**AT_ONCE | config), timing), timing


def play(manifest: Manifest, **config: Any) -> list[Answer]:
    answers = list(client(manifest, **config)[0].answers())
    return sorted(answers, key=lambda answer: answer.tick.attempt)


def between(ingress_us: float, egress_us: float) -> dict[str, Any]:
    """Settings of what lies between client and scheduler."""
    return {"ingress_us": ingress_us, "egress_us": egress_us}


def outcomes(answers: list[Answer]) -> dict[str, int]:
    return dict(Counter(answer.outcome.value for answer in answers))


@pytest.mark.parametrize("way_us", WAYS)
def test_an_open_loop_gets_what_arrays_of_its_requests_get(way_us: tuple[float, float]) -> None:
    tokens = {"dist": "lognormal", "mean": 60, "cv": 1}
    manifest = frozen(
        {"rates": [30], "duration_s": 20, "drain_s": 30}, workload={"input_tokens": tokens, "output_tokens": tokens}
    )
    options: dict[str, Any] = {"max_num_seqs": 12, "max_num_batched_tokens": 100, "kv_blocks": 60}
    options |= {"step_time": StepTime(base_ms=5.0, context_token_ms=0.001)} | between(*way_us)
    ingress_ns, egress_ns = (round(us * 1_000) for us in way_us)
    played, timing = client(manifest, **options)
    answers = {answer.tick.attempt: answer for answer in played.answers()}
    assert isinstance(timing, Schedule)
    sent = sorted(i for i in answers if answers[i].sent)
    assert len(answers) == len(timing.offsets_ns) > 600 and len(sent) > 500
    items = [build_workload(manifest, expand(manifest)[0]).item(i) for i in sent]
    served = serve(
        EngineConfig(**options),
        timing.offsets_ns[sent] + START_NS + ingress_ns,
        np.array([item.input_tokens for item in items]),
        np.array([item.max_tokens for item in items]),
    )
    assert served.preemptions.sum() > 0
    # What was sent last was cut, and what was cut may have been in the way of none before it.
    for place, i in enumerate(sent):
        if answers[i].outcome is Outcome.OK:
            assert np.array_equal(served.token_times(place) + egress_ns, answers[i].times)
            assert answers[i].end_ns == served.end_ns[place] + egress_ns
    assert outcomes([answers[i] for i in sent])["ok"] > 500


@pytest.mark.parametrize("way_us", WAYS)
def test_what_lies_between_is_on_every_way(way_us: tuple[float, float]) -> None:
    """A user alone meets an idle engine each time: both ways and ten steps, to the nanosecond."""
    both_ns = round(sum(way_us) * 1_000)
    answers = play(frozen({"mode": "closed", "concurrency": [1], "count": 20}), **between(*way_us))
    assert outcomes(answers)["ok"] == 20
    for answer in answers:
        if answer.outcome is Outcome.OK:
            scheduled, last = answer.tick.scheduled_ns, answer.end_ns
            assert answer.seq is not None and answer.seq.arrival_ns == scheduled + round(way_us[0] * 1_000)
            assert (answer.times - scheduled).tolist() == [both_ns + step * 10 * MS for step in range(1, 11)]
            assert last == answer.times[-1]


@pytest.mark.parametrize("way_us", WAYS)
def test_what_comes_together_arrives_one_after_another(way_us: tuple[float, float]) -> None:
    """The first meets an idle engine and starts a step alone, the others share the next."""
    answers = play(frozen({"rates": ["inf"], "count": 6, "drain_s": 9}), ingress_gap_us=700.0, **between(*way_us))
    ingress_ns, both_ns = round(way_us[0] * 1_000), round(sum(way_us) * 1_000)
    for place, answer in enumerate(answers):
        assert answer.seq is not None and answer.seq.arrival_ns == START_NS + ingress_ns + place * 700_000
        steps = 10 if place == 0 else 11
        assert answer.end_ns == START_NS + both_ns + steps * 10 * MS
    # A gap between those that come apart is nothing.
    apart = frozen({"rates": [40], "count": 50, "process": "constant", "drain_s": 9})
    assert [a.times.tolist() for a in play(apart)] == [a.times.tolist() for a in play(apart, ingress_gap_us=24_999.0)]


def test_a_client_may_leave_before_its_request_arrives() -> None:
    endpoint = {"adapter": "tfbench", "timeouts": {"total_s": 0.13}}
    manifest = frozen({"rates": ["inf"], "count": 6, "drain_s": 9}, endpoint=endpoint)
    answers = play(manifest, ingress_gap_us=30_000.0, egress_us=5_000.0)
    assert [answer.outcome.value for answer in answers] == ["ok"] + ["timeout"] * 5
    assert [None if answer.seq is None else len(answer.times) for answer in answers] == [10, 9, 6, 3, 0, None]
    assert {(answer.end_ns or 0) - START_NS for answer in answers[1:]} == {130 * MS}


@pytest.mark.parametrize("way_us", WAYS)
def test_refusals_travel_too(way_us: tuple[float, float]) -> None:
    both_ns = round(sum(way_us) * 1_000)
    full = {"max_num_seqs": 1, "max_waiting": 0}
    answers = play(frozen({"rates": ["inf"], "count": 5, "drain_s": 9}), **full, **between(*way_us))
    assert outcomes(answers) == {"ok": 1, "rejected": 4}
    answers += play(frozen({"rates": [9], "count": 5, "drain_s": 9}), max_model_len=12, **between(*way_us))
    refused = [answer for answer in answers if answer.outcome is not Outcome.OK]
    assert len(refused) == 9
    assert {(answer.end_ns or 0) - answer.tick.scheduled_ns for answer in refused} == {both_ns}


def test_a_client_knows_only_what_has_reached_it() -> None:
    """Its limits run from what it saw, what it did not see is not in its answer, and the engine hears of it later."""
    way = between(50_000, 100_000)
    once = {"input_tokens": 8, "output_tokens": 1}
    for limit_ms, outcome in ((159, Outcome.TIMEOUT), (161, Outcome.OK)):
        endpoint = {"adapter": "tfbench", "timeouts": {"first_byte_s": limit_ms / 1_000}}
        [answer] = play(frozen({"rates": ["inf"], "count": 1}, endpoint=endpoint, workload=once), **way)
        assert (answer.outcome, len(answer.times)) == (outcome, outcome is Outcome.OK)
        assert answer.end_ns == answer.tick.scheduled_ns + min(limit_ms, 160) * MS
        assert answer.status == 200
    answers = play(frozen({"rates": [0.5], "count": 9, "cancel": {"share": 1, "after_s": 0.185}}), **way)
    for answer in answers:
        assert answer.outcome is Outcome.CANCELLED and answer.end_ns == answer.tick.scheduled_ns + 185 * MS
        assert answer.seq is not None and len(answer.times) == 3 < answer.seq.generated
    # Ended at the engine, and left by the client, which does not know yet.
    early = play(frozen({"rates": [0.5], "count": 9, "cancel": {"share": 1, "after_s": 0.14}}), **way)
    for answer in early:
        assert (answer.outcome, answer.status, len(answer.times)) == (Outcome.CANCELLED, None, 0)
        assert answer.seq is not None and answer.seq.end_ns is not None and answer.end_ns is not None
        assert answer.seq.end_ns <= answer.end_ns + 50 * MS


def test_the_end_of_the_drain_cuts_what_has_not_come_back() -> None:
    load = {"rates": ["inf"], "count": 1, "drain_s": 0.12}
    for egress_ms, outcome in ((19, Outcome.OK), (21, Outcome.UNFINISHED)):
        [answer] = play(frozen(load), **between(1_000, egress_ms * 1_000))
        assert answer.outcome is outcome
        assert len(answer.times) == (10 if outcome is Outcome.OK else 9)


def test_a_measured_window_that_is_done_ends_the_run() -> None:
    workload = {"input_tokens": 8, "output_tokens": 60}
    answers = play(frozen({"rates": [20], "duration_s": 5, "warmup_s": 1, "drain_s": 30}, workload=workload))
    phases = Counter((answer.tick.phase, answer.outcome.value) for answer in answers)
    assert {outcome for phase, outcome in phases if phase != "drain"} == {"ok"}
    assert phases["drain", "unsent"] > 500
    ends = [answer.end_ns for answer in answers if answer.tick.phase == "measure"]
    late = [answer.tick.scheduled_ns for answer in answers if answer.tick.phase == "drain" and answer.sent]
    assert max(late) <= max(end for end in ends if end is not None)


def test_what_is_under_way_at_the_end_of_the_drain_is_cut() -> None:
    answers = play(frozen({"rates": [50], "duration_s": 2, "drain_s": 0.5}), max_num_seqs=2)
    assert {"ok", "unfinished"} == set(outcomes(answers))
    cut = [answer for answer in answers if answer.outcome is Outcome.UNFINISHED]
    assert {answer.end_ns for answer in cut} == {START_NS + 2_500 * MS}
    assert {answer.error for answer in cut} == {"cut at the end of drain"}
    assert any(len(answer.times) for answer in cut) and any(not len(answer.times) for answer in cut)


def test_a_count_is_sent_whole_and_awaited() -> None:
    answers = play(frozen({"rates": [40], "count": 300, "drain_s": 60}))
    assert outcomes(answers) == {"ok": 300}


def test_all_at_once() -> None:
    answers = play(frozen({"rates": ["inf"], "count": 20, "drain_s": 60}), max_num_seqs=5)
    assert outcomes(answers) == {"ok": 20}
    assert {answer.tick.scheduled_ns for answer in answers} == {START_NS}
    assert sorted(Counter(answer.end_ns for answer in answers).items()) == [
        (START_NS + wave * 100 * MS, 5) for wave in range(1, 5)
    ]


@pytest.mark.parametrize("way_us", WAYS)
def test_users_of_a_closed_loop_think_after_each_answer(way_us: tuple[float, float]) -> None:
    manifest = frozen({"mode": "closed", "concurrency": [3], "think_s": 0.25, "count": 30})
    answers = play(manifest, **between(*way_us))
    assert outcomes(answers)["ok"] >= 30
    for user in range(3):
        mine = [answer for answer in answers if answer.tick.user == user]
        for before, after in itertools.pairwise(mine):
            assert before.end_ns is not None
            assert after.tick.scheduled_ns == before.end_ns + 250 * MS
            assert after.tick.attempt == before.tick.attempt + 3


def test_a_timed_closed_loop_stops_with_its_window() -> None:
    answers = play(frozen({"mode": "closed", "concurrency": [2], "duration_s": 1, "drain_s": 5}))
    # A request takes 10 steps of 10 ms; those of the window are awaited.
    assert Counter((answer.tick.phase, answer.outcome.value) for answer in answers)["measure", "ok"] == 20


@pytest.mark.parametrize("way_us", WAYS)
def test_a_capped_load_waits_for_slots(way_us: tuple[float, float]) -> None:
    manifest = frozen({"mode": "open_capped", "max_in_flight": 2, "rates": [60], "count": 100, "drain_s": 60})
    answers = play(manifest, **between(*way_us))
    assert outcomes(answers) == {"ok": 100}
    edges: list[tuple[int, int]] = []
    for answer in answers:
        assert answer.end_ns is not None and answer.tick.slot_ns >= answer.tick.scheduled_ns
        edges += [(answer.tick.slot_ns, 1), (answer.end_ns, -1)]
    in_flight = list(itertools.accumulate(step for _, step in sorted(edges)))
    assert max(in_flight) == 2
    assert sum(answer.tick.slot_ns > answer.tick.scheduled_ns for answer in answers) > 50


@pytest.mark.parametrize("way_us", WAYS)
def test_a_full_queue_refuses_and_a_refused_task_is_tried_again(way_us: tuple[float, float]) -> None:
    retry = {"outcomes": ["rejected"], "max": 2, "backoff_s": 0.05, "factor": 2, "cap_s": 1}
    load = {"rates": [40], "count": 200, "drain_s": 60, "retry": retry}
    answers = play(frozen(load), max_num_seqs=2, max_waiting=1, overload_status=429, **between(*way_us))
    assert set(outcomes(answers)) == {"ok", "rejected"}
    refused = [answer for answer in answers if answer.outcome is Outcome.REJECTED]
    assert {answer.status for answer in refused} == {429}
    tries = {(answer.tick.task, answer.tick.tries): answer for answer in answers}
    for (task, number), answer in tries.items():
        again = tries.get((task, number + 1))
        assert (again is not None) is (answer.outcome is Outcome.REJECTED and number < 2)
        if again is not None and answer.end_ns is not None:
            assert again.tick.scheduled_ns == answer.end_ns + 50 * MS * 2**number
    assert max(number for _, number in tries) == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("limits", "step_ms", "says", "after_ns", "tokens"),
    [
        ({"first_byte_s": 0.5}, 600.0, "first_byte_s = 0.5 passed", 500 * MS, 0),
        ({"idle_s": 0.5}, 600.0, "idle_s = 0.5 passed", 1100 * MS, 1),
        ({"total_s": 3}, 700.0, "total_s = 3 passed", 3 * S, 4),
        ({"total_s": 3, "first_byte_s": 3}, 700.0, "total_s = 3 passed", 3 * S, 4),
    ],
)
def test_limits(limits: dict[str, float], step_ms: float, says: str, after_ns: int, tokens: int, stream: bool) -> None:
    endpoint = {"adapter": "tfbench", "timeouts": limits, "stream": stream}
    manifest = frozen({"rates": [0.01], "count": 3, "drain_s": 600}, endpoint=endpoint)
    answers = play(manifest, step_time=StepTime(base_ms=step_ms, prefill_token_ms=0.0, decode_seq_ms=0.0))
    if not stream and "idle_s" in limits:
        assert outcomes(answers) == {"ok": 3}
        return
    for answer in answers:
        assert (answer.outcome, answer.error, len(answer.times)) == (Outcome.TIMEOUT, says, tokens)
        assert answer.end_ns == answer.tick.scheduled_ns + after_ns
        assert answer.status == (200 if stream else None)


def test_a_limit_frees_the_slot() -> None:
    endpoint = {"adapter": "tfbench", "timeouts": {"total_s": 0.055}}
    answers = play(frozen({"rates": ["inf"], "count": 3, "drain_s": 9}, endpoint=endpoint), max_num_seqs=1)
    assert outcomes(answers) == {"timeout": 3}
    endpoint["timeouts"] = {"total_s": 0.15}
    answers = play(frozen({"rates": ["inf"], "count": 3, "drain_s": 9}, endpoint=endpoint), max_num_seqs=1)
    assert [answer.outcome.value for answer in answers] == ["ok", "timeout", "timeout"]
    assert [len(answer.times) for answer in answers] == [10, 5, 0]


@pytest.mark.parametrize(
    ("when", "after_ns", "tokens"), [({"after_s": 0.042}, 42 * MS, 4), ({"after_chunks": 3}, 30 * MS, 3)]
)
def test_the_plan_cancels_its_share(when: dict[str, float], after_ns: int, tokens: int) -> None:
    load = {"rates": [5], "count": 200, "drain_s": 60, "cancel": {"share": 0.3} | when}
    manifest = frozen(load)
    answers = play(manifest, max_num_seqs=1_000)
    workload = build_workload(manifest, expand(manifest)[0])
    for answer in answers:
        planned = workload.cancelled(answer.tick.task)
        assert answer.outcome is (Outcome.CANCELLED if planned else Outcome.OK)
        if planned:
            # A request that comes while a step runs waits for its end, up to 10 ms.
            late = (answer.end_ns or 0) - answer.tick.scheduled_ns - after_ns
            assert late == 0 if "after_s" in when else 0 <= late < 10 * MS
            assert len(answer.times) in (tokens, tokens - ("after_s" in when))
            assert answer.finish_reason is None
    assert 30 < outcomes(answers)["cancelled"] < 90


def test_a_reply_that_ends_before_the_plan_cancels_it_is_ok() -> None:
    for when in ({"after_s": 1}, {"after_chunks": 10}):
        answers = play(frozen({"rates": [5], "count": 20, "cancel": {"share": 1} | when}), max_num_seqs=100)
        assert outcomes(answers) == {"ok": 20}


def test_too_long_a_request_is_refused_with_both_lengths() -> None:
    [answer] = play(frozen({"rates": ["inf"], "count": 1}), max_model_len=12)
    assert (answer.outcome, answer.status) == (Outcome.HTTP_ERROR, 400)
    assert answer.error is not None and answer.error.startswith("HTTP 400: ")
    assert "12 tokens" in answer.error and "18 tokens" in answer.error


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_completions"])
@pytest.mark.parametrize("ignore_eos", [True, False])
def test_lengths_are_those_the_server_would_give(dialect: str, ignore_eos: bool) -> None:
    manifest = frozen(
        {"rates": [50], "count": 60},
        endpoint={"adapter": "tfbench", "dialect": dialect},
        sampling={"ignore_eos": ignore_eos},
        workload={
            "input_tokens": {"dist": "uniform", "min": 1, "max": 40},
            "output_tokens": 30,
            "shared_prefix_tokens": 5,
        },
    )
    config = EngineConfig(mean_output_tokens=20.0, model="m")
    workload = build_workload(manifest, expand(manifest)[0])
    answers = play(manifest, mean_output_tokens=20.0)
    for answer in answers:
        item = workload.item(answer.tick.task)
        sampling = {"ignore_eos": ignore_eos}
        raw = DIALECTS[dialect].encode(
            item.prompt, model="m", max_tokens=item.max_tokens, stream=True, include_usage=True, sampling=sampling
        )
        real = parse_submission(raw, config, chat=dialect == "openai_chat")
        assert answer.seq is not None
        assert answer.seq.prompt_tokens == real.prompt_tokens
        assert (len(answer.times), answer.finish_reason) == (real.output_tokens, real.finish_reason)
    assert {answer.finish_reason for answer in answers} == ({"length"} if ignore_eos else {"length", "stop"})


def test_blocks_are_shared_where_hashing_the_words_would_share_them() -> None:
    classes = [{"name": name, "share": 1, "tenant": name} for name in ("a", "b")]
    workload = {
        "input_tokens": {"dist": "uniform", "min": 1, "max": 20},
        "output_tokens": 1,
        "shared_prefix_tokens": 22,
        "classes": classes,
    }
    manifest = frozen({"rates": [50], "count": 30}, workload=workload)
    config = EngineConfig(model="m", prefix_reuse=True, block_tokens=4)
    items = [build_workload(manifest, expand(manifest)[0]).item(i) for i in range(12)]
    hashed = []
    for item in items:
        raw = DIALECTS["openai_chat"].encode(
            item.prompt, model="m", max_tokens=1, stream=True, include_usage=True, sampling={"user": item.tenant}
        )
        hashed.append(parse_submission(raw, config, chat=True).blocks)
    named = [PrefixBlocks(config, 22).of(i, item) for i, item in enumerate(items)]
    assert [len(one) for one in named] == [len(one) for one in hashed]

    def shared(one: tuple[int, ...], two: tuple[int, ...]) -> int:
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))

    counts = set()
    for i, j in itertools.combinations(range(12), 2):
        assert shared(named[i], named[j]) == shared(hashed[i], hashed[j])
        counts.add(shared(named[i], named[j]))
    assert counts == {0, 5}
    assert PrefixBlocks(EngineConfig(), 22).of(0, items[0]) == ()


def test_a_stop_interrupts_and_every_tick_still_has_its_answer() -> None:
    manifest = frozen({"rates": [100], "duration_s": 60, "drain_s": 5})
    played, timing = client(manifest)
    answers = list(played.answers(stop=lambda: True))
    assert played.interrupted and isinstance(timing, Schedule)
    assert sorted(answer.tick.attempt for answer in answers) == list(range(len(timing.offsets_ns)))
    found = outcomes(answers)
    assert found["ok"] > 100 and found["unfinished"] > 0 and found["unsent"] > 5_000
    assert {answer.error for answer in answers if answer.outcome is Outcome.UNFINISHED} == {"interrupted"}
    assert played.counts()["in_flight"] == 0


@pytest.mark.parametrize(
    "load",
    [
        {"rates": [20], "duration_s": 10, "drain_s": 5, "ramp": {"to": 60}},
        {"process": "replay", "timestamps": [0, 0.1, 0.1, 3.5], "rates": [2], "drain_s": 5},
        {"process": "gamma", "burstiness": 0.3, "rates": [20], "count": 100, "warmup_s": 1},
    ],
)
def test_every_tick_of_any_schedule_has_one_answer(load: dict[str, Any]) -> None:
    played, timing = client(frozen(load))
    assert isinstance(timing, Schedule)
    answers = sorted(played.answers(), key=lambda answer: answer.tick.attempt)
    assert [answer.tick.scheduled_ns - START_NS for answer in answers] == timing.offsets_ns.tolist()
    assert [answer.tick.phase for answer in answers] == timing.phases().tolist()
