import dataclasses
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.bounds import (
    FORMATS,
    Device,
    ModelShape,
    Rates,
    Roofline,
    Work,
    chunk_pairs,
    device,
    kv_bytes_per_token,
    kv_capacity_tokens,
    model_shape,
    number_format,
    steady_durations_ns,
    step_bound,
    step_ns,
    step_time_s,
    weight_bytes,
)
from tfbench.core.errors import UsageError

BYTES = {name: fmt.bits / 8 for name, fmt in FORMATS.items()}
ROOFLINES = [
    Roofline(device("h100-sxm"), model_shape("llama-3.1-8b")),
    Roofline(device("h100-sxm"), model_shape("llama-3.1-70b"), tp=8, weights="fp8", activations="fp8", kv="fp8"),
    Roofline(device("h100-sxm"), model_shape("qwen2.5-7b"), tp=2, link="pcie", overlap=True, overhead_s=1e-3),
    Roofline(device("b200-sxm"), model_shape("llama-3.1-70b"), tp=2, weights="nvfp4", activations="nvfp4"),
    Roofline(device("cpu-core"), model_shape("smollm2-135m"), weights="q4_1", activations="fp32", tables="q8_0"),
]


@settings(deadline=None)
@given(
    st.sampled_from(ROOFLINES),
    st.integers(1, 512),
    st.integers(0, 10**7),
    st.integers(0, 300),
)
def test_steady_steps_equal_single_ones_exactly(roofline: Roofline, seqs: int, context: int, n: int) -> None:
    durations = steady_durations_ns(roofline, Work(0, seqs, context), n)
    assert durations.dtype == "int64"
    assert durations.tolist() == [step_ns(roofline, Work(0, seqs, context + i * seqs)) for i in range(n)]


@pytest.mark.parametrize("work", [Work(1, 1, 5), Work(0, 0, 0), Work(0, 1, 5, prefill_seqs=1)])
def test_steady_steps_decode_only(work: Work) -> None:
    with pytest.raises(ValueError, match="steady"):
        steady_durations_ns(ROOFLINES[0], work, 3)


def by_hand(r: Roofline, w: Work) -> tuple[float, float, float]:
    """FLOPs, bytes, and bytes sent of one device, from the definitions, matrix by matrix."""
    s, tp = r.shape, r.tp
    tables = r.tables or ("bf16" if BYTES[r.weights] < 2 else r.weights)
    heads, kv_heads = s.heads / tp, max(1, s.kv_heads / tp)
    matrices = [s.hidden * heads * s.head_dim] * 2  # Q, O
    matrices += [s.hidden * kv_heads * s.head_dim] * 2  # K, V
    matrices += [s.hidden * s.intermediate / tp] * 3  # gate, up, down
    norms_and_bias = 2 * s.hidden
    if s.qkv_bias:
        norms_and_bias += s.head_dim * (s.heads + 2 * s.kv_heads) / tp
    tokens, emits = w.prefill_tokens + w.decode_seqs, w.decode_seqs + w.prefill_seqs
    flops = 2 * tokens * s.layers * sum(matrices)
    flops += (w.context_tokens + w.prefill_pairs) * s.layers * heads * s.head_dim * 2 * 2  # scores, values
    flops += 2 * emits * s.hidden * s.vocab / tp
    moved = (s.layers * (sum(matrices) + norms_and_bias) + s.hidden) * BYTES[r.weights]
    moved += (s.hidden * s.vocab / tp * BYTES[tables] if emits else 0) + tokens * s.hidden / tp * BYTES[tables]
    kv_token = 2 * s.layers * kv_heads * s.head_dim * BYTES[r.kv]
    moved += kv_token * (w.context_tokens - w.decode_seqs + w.prefill_context_tokens)  # read
    moved += kv_token * tokens  # written
    sent = 2 * s.layers * 2 * (tp - 1) / tp * tokens * s.hidden * BYTES[r.activations]
    return flops, moved, sent


@settings(deadline=None)
@given(
    st.sampled_from(ROOFLINES),
    st.integers(0, 256),
    st.integers(1, 8192),
    st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 30_000), st.booleans()), max_size=4),
)
def test_a_step_is_what_its_definition_says(
    r: Roofline, seqs: int, context: int, chunks: list[tuple[int, int, bool]]
) -> None:
    work = Work(
        prefill_tokens=sum(t for t, _, _ in chunks),
        decode_seqs=seqs,
        context_tokens=seqs * context,
        prefill_context_tokens=sum(done for _, done, _ in chunks),
        prefill_pairs=sum(chunk_pairs(t, done) for t, done, _ in chunks),
        prefill_seqs=sum(last for _, _, last in chunks),
    )
    bound = step_bound(r, work)
    flops, moved, sent = by_hand(r, work)
    assert bound.flops == pytest.approx(flops)
    assert bound.bytes == pytest.approx(moved)
    assert bound.comm_bytes == pytest.approx(sent)
    assert bound.memory_ns == pytest.approx(moved / r.device.bandwidth_bytes_per_s * 1e9)
    total = step_time_s(
        flops=bound.compute_ns,
        moved_bytes=bound.memory_ns,
        comm_bytes=bound.comm_ns,
        overlap=r.overlap,
        rest_s=bound.overhead_ns,
    )
    assert bound.total_ns == pytest.approx(total)
    assert step_ns(r, work) == round(bound.total_ns)


@settings(deadline=None)
@given(
    st.sampled_from(ROOFLINES),
    st.integers(1, 64),
    st.integers(0, 64),
    st.integers(0, 10**6),
    st.sampled_from([f.name for f in dataclasses.fields(Work)]),
)
def test_more_work_never_takes_less(r: Roofline, prefill: int, seqs: int, context: int, name: str) -> None:
    work = Work(prefill, seqs, context)
    more = dataclasses.replace(work, **{name: getattr(work, name) + 7})
    assert step_bound(r, more).total_ns >= step_bound(r, work).total_ns


def test_chunk_pairs_count_each_key_once() -> None:
    assert chunk_pairs(3, 5) == 6 + 7 + 8
    whole = chunk_pairs(1000, 0)
    assert whole == chunk_pairs(512, 0) + chunk_pairs(488, 512)


def test_chunks_cost_the_whole_prompt_and_the_context_read_again(plain: Device, llama: ModelShape) -> None:
    r = Roofline(plain, llama)
    whole = step_bound(r, Work(1024, 0, 0, 0, chunk_pairs(1024, 0), 1))
    first = step_bound(r, Work(512, 0, 0, 0, chunk_pairs(512, 0), 0))
    second = step_bound(r, Work(512, 0, 0, 512, chunk_pairs(512, 512), 1))
    assert first.flops + second.flops == pytest.approx(whole.flops)
    again = 512 * r.kv_bytes_per_token
    layers_twice = weight_bytes(llama, 16) - 2 * llama.table_params * 2
    assert first.bytes + second.bytes - whole.bytes == pytest.approx(again + layers_twice)


def test_a_chunk_that_is_not_the_last_reads_no_lm_head(plain: Device, llama: ModelShape) -> None:
    r = Roofline(plain, llama)
    silent, emitting = (step_bound(r, Work(8, 0, 0, 0, 36, n)) for n in (0, 1))
    assert emitting.bytes - silent.bytes == llama.table_params * 2
    assert emitting.flops - silent.flops == 2 * llama.table_params


def test_decode_reads_every_weight_but_the_embedding_table(plain: Device) -> None:
    untied, tied = model_shape("llama-3.1-8b"), model_shape("llama-3.2-1b")
    for shape, unread in ((untied, untied.table_params), (tied, 0)):
        bound = step_bound(Roofline(plain, shape), Work(0, 1, 0))
        assert bound.bytes == 2 * (shape.params - unread) + 2 * shape.hidden


def test_quantised_weights_save_bytes_and_not_flops(plain: Device, llama: ModelShape) -> None:
    work = Work(0, 8, 8000)
    wide, weights_only, both, kv = (
        step_bound(Roofline(plain, llama, **precisions), work)
        for precisions in (
            {},
            {"weights": "fp8"},
            {"weights": "fp8", "activations": "fp8"},
            {"kv": "fp8"},
        )
    )
    assert weights_only.memory_ns < wide.memory_ns
    assert weights_only.compute_ns == wide.compute_ns
    assert both.memory_ns == weights_only.memory_ns
    assert both.compute_ns < wide.compute_ns
    assert wide.bytes - kv.bytes == pytest.approx(8000 * kv_bytes_per_token(llama, 8))
    assert kv.compute_ns == wide.compute_ns


def test_attention_computes_at_the_wider_of_activations_and_kv(plain: Device, llama: ModelShape) -> None:
    pairs = Work(1, 0, 0, 0, 10**9, 0)
    wide, narrow = (
        step_bound(Roofline(plain, llama, weights="fp8", activations="fp8", kv=kv), pairs) for kv in ("bf16", "fp8")
    )
    assert wide.compute_ns == pytest.approx(2 * narrow.compute_ns, rel=1e-3)


def test_tables_stay_wide_unless_said(plain: Device, llama: ModelShape) -> None:
    assert Roofline(plain, llama, weights="int4").weight_bytes == weight_bytes(llama, 4, table_bits=16)
    assert Roofline(plain, llama, weights="int4", tables="int4").weight_bytes == weight_bytes(llama, 4)
    assert Roofline(plain, llama, weights="fp32", activations="fp32").weight_bytes == weight_bytes(llama, 32)


def test_tensor_parallel_splits_work_and_adds_traffic(plain: Device, llama: ModelShape) -> None:
    work = Work(100, 4, 4000, 0, chunk_pairs(100, 0), 1)
    one, two = (step_bound(Roofline(plain, llama, tp=tp), work) for tp in (1, 2))
    assert one.comm_ns == one.comm_bytes == 0
    assert two.flops == pytest.approx(one.flops / 2)
    norms = (2 * llama.layers + 1) * llama.hidden * 2  # every device has them
    assert two.bytes - norms == pytest.approx((one.bytes - norms) / 2)
    message = 104 * llama.hidden * 2
    assert two.comm_bytes == 2 * llama.layers * message  # 2(n - 1)/n = 1 for two devices
    assert two.comm_ns == pytest.approx(2 * llama.layers * (message / 1e11 + 1e-6) * 1e9)


def test_a_slow_link_makes_two_devices_slower_than_one(plain: Device, llama: ModelShape) -> None:
    work = Work(0, 8, 8000)
    one, fast, slow = (
        step_bound(Roofline(plain, llama, **how), work).total_ns for how in ({}, {"tp": 2}, {"tp": 2, "link": "slow"})
    )
    assert fast < one < slow


def test_kv_heads_are_copied_where_there_are_fewer_than_devices(plain: Device) -> None:
    qwen = model_shape("qwen2.5-7b")
    assert (qwen.heads, qwen.kv_heads) == (28, 4)
    whole = kv_bytes_per_token(qwen, 16)
    assert Roofline(plain, qwen, tp=4).kv_bytes_per_token == whole / 4
    wide = dataclasses.replace(qwen, heads=32)
    assert Roofline(plain, wide, tp=16).kv_bytes_per_token == whole / 4


def test_overlap_hides_traffic_behind_work(plain: Device, llama: ModelShape) -> None:
    work = Work(0, 8, 8000)
    after, behind, slow = (
        step_bound(Roofline(plain, llama, tp=2, overlap=overlap, link=link), work)
        for overlap, link in ((False, None), (True, None), (True, "slow"))
    )
    assert behind.total_ns == max(after.compute_ns, after.memory_ns)
    assert slow.total_ns == slow.comm_ns


def test_launches_and_the_host_add_to_every_step(h100: Device, llama: ModelShape) -> None:
    bound = step_bound(Roofline(h100, llama, overhead_s=1e-3), Work(0, 1, 10))
    assert bound.overhead_ns == pytest.approx((32 * 9 + 4) * h100.launch_s * 1e9 + 1e6)


def test_kv_capacity_is_what_weights_and_reserve_leave(plain: Device, llama: ModelShape) -> None:
    per_token = kv_bytes_per_token(llama, 16)
    assert kv_capacity_tokens(Roofline(plain, llama), 0.1) == (90e9 - weight_bytes(llama, 16)) // per_token
    half = kv_capacity_tokens(Roofline(plain, llama, kv="fp8"), 0.1)
    assert half == pytest.approx(2 * kv_capacity_tokens(Roofline(plain, llama), 0.1), rel=1e-4)
    for reserve in (1.0, -0.1, float("nan"), True):
        with pytest.raises(UsageError, match="reserve"):
            kv_capacity_tokens(Roofline(plain, llama), reserve)
    with pytest.raises(UsageError, match=r"16\.06 GB .* 10\.00 GB .* no KV fits"):
        kv_capacity_tokens(Roofline(plain, llama), 0.9)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"tp": 64}, r"tp = 64 .*32 heads.* 1, 2, 4, 8, 16, 32"),
        ({"tp": 3}, r"tp = 3 .* 1, 2, 4, 8, 16, 32"),
        ({"tp": 0}, "tp is 0"),
        ({"tp": True}, "tp is True"),
        ({"tp": 2.0}, "tp is 2.0"),
        ({"tp": 2, "link": "fats"}, 'no link "fats"; there are: fast, slow'),
        ({"weights": "bf61"}, 'no number format "bf61"; did you mean "bf16"'),
        ({"kv": "fp9"}, 'no number format "fp9"'),
        ({"weights": "int8", "activations": "int8"}, r"plain has no rate for int8 .* fp32, bf16, fp8"),
        ({"overhead_s": -1}, "overhead_s is -1"),
        ({"overhead_s": float("inf")}, "overhead_s is inf"),
        ({"overhead_s": 1e9}, "over an hour"),
    ],
)
def test_what_cannot_work_is_one_line(plain: Device, llama: ModelShape, how: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Roofline(plain, llama, **how)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_model_that_does_not_fit_names_both_sizes(h100: Device) -> None:
    with pytest.raises(UsageError, match=r"llama-3\.1-70b .* needs 141\.11 GB .* h100-sxm has 85\.52 GB; raise tp"):
        Roofline(h100, model_shape("llama-3.1-70b"))
    assert Roofline(h100, model_shape("llama-3.1-70b"), tp=2).weight_bytes < 85e9


def test_without_links_there_is_one_device(llama: ModelShape) -> None:
    lone = Device("lone", "no links", Rates(bf16=1e14), bandwidth_bytes_per_s=1e12, memory_bytes=1e11)
    assert Roofline(lone, llama).tp == 1
    with pytest.raises(UsageError, match="lone has no links"):
        Roofline(lone, llama, tp=2)


def test_a_roofline_can_be_compared_hashed_and_sent_to_a_process() -> None:
    for roofline in ROOFLINES:
        step_ns(roofline, Work(0, 1, 1))
        copy = pickle.loads(pickle.dumps(roofline))
        assert copy == roofline == dataclasses.replace(roofline)
        assert hash(copy) == hash(roofline)
        assert step_ns(copy, Work(5, 1, 1)) == step_ns(roofline, Work(5, 1, 1))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(FORMATS)))
def test_any_mix_of_formats_works_or_says_why(weights: str, activations: str, kv: str) -> None:
    try:
        roofline = Roofline(device("b200-sxm"), model_shape("llama-3.1-8b"), weights, activations, kv)
    except UsageError as error:
        assert "has no rate for" in str(error)
        return
    assert step_ns(roofline, Work(0, 1, 1)) > 0


def test_bits_of_block_formats() -> None:
    bits = {name: number_format(name).bits for name in ("int4-g128", "mxfp4", "mxfp8", "q8_0", "q4_0", "q4_1")}
    assert bits == {"int4-g128": 4.125, "mxfp4": 4.25, "mxfp8": 8.25, "q8_0": 8.5, "q4_0": 4.5, "q4_1": 5.0}
