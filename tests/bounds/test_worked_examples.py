"""The worked figures of the documents this project began with: B1 to B10 and C1 to C9."""

import pytest

from tfbench.bounds import (
    Device,
    ModelShape,
    Rates,
    Roofline,
    Work,
    break_even_tokens_per_s,
    cascade_cost,
    component_change,
    cost_per_million,
    cost_per_task,
    kv_bytes_per_token,
    launch_gap_s,
    model_shape,
    number_format,
    per_million,
    speedup,
    step_bound,
    step_time_s,
    transfer_s,
    weight_bytes,
)

GIB = 2**30


def sized(name: str, params: float) -> float:
    """Bytes of `params` values in a format."""
    return params * number_format(name).bits / 8


def test_b1_bytes_of_weights() -> None:
    assert sized("bf16", 8e9) == 16e9
    assert sized("bf16", 8e9) / GIB == pytest.approx(14.90, abs=0.005)
    assert sized("int4", 8e9) == 4e9
    assert (sized("bf16", 70e9), sized("int4", 70e9)) == (140e9, 35e9)
    assert weight_bytes(model_shape("llama-3.1-8b"), 16) == 2 * 8_030_261_248


def test_b2_kv_of_a_sequence(llama: ModelShape) -> None:
    assert (llama.layers, llama.kv_heads, llama.head_dim) == (32, 8, 128)
    per_token = kv_bytes_per_token(llama, 16)
    assert per_token == 128 * 1024
    assert per_token * 8192 == GIB
    assert 16 * per_token * 8192 == 16 * GIB


def test_b3_a_step_reads_the_weights_once() -> None:
    least = step_time_s(moved_bytes=16e9, bytes_per_s=1.6e12)
    assert least == pytest.approx(10e-3)
    assert 1 / least == pytest.approx(100)


@pytest.mark.parametrize(("batch", "ms", "total", "per_user"), [(1, 20.5, 48.8, 48.8), (16, 28, 571.4, 35.7)])
def test_b4_batch_shares_the_weights(batch: int, ms: float, total: float, per_user: float) -> None:
    step = step_time_s(moved_bytes=20e9 + batch * 0.5e9, bytes_per_s=1e12)
    assert step * 1e3 == pytest.approx(ms)
    assert batch / step == pytest.approx(total, abs=0.05)
    assert 1 / step == pytest.approx(per_user, abs=0.05)


@pytest.mark.parametrize("batch", [1, 16])
def test_b4_through_the_roofline_of_a_model(batch: int) -> None:
    """10 G parameters in 16 bits; 4096 bytes of KV a token, so that 122,070 tokens of context are 0.5 GB."""
    shape = ModelShape("ten", "10 G", 1, 1024, 8, 8, 128, 3_255_208, 1, True, False, 200_000, "made up")
    device = Device("d", "d", Rates(bf16=1e18), bandwidth_bytes_per_s=1e12, memory_bytes=100e9)
    bound = step_bound(Roofline(device, shape), Work(0, batch, batch * 122_070))
    assert bound.total_ns / 1e6 == pytest.approx(20 + 0.5 * batch, rel=1e-3)


def test_b5_block_scales_count() -> None:
    assert number_format("nvfp4").bits == 4.5
    assert number_format("fp16").bits / number_format("nvfp4").bits == pytest.approx(16 / 4.5)


def test_b6_halving_weights_then_kv() -> None:
    weights, kv = 40e9, 40e9
    assert weights / 2 + kv == 60e9
    assert weights / 2 + kv / 2 == 40e9
    llama = model_shape("llama-3.1-8b")
    assert weight_bytes(llama, 8) == weight_bytes(llama, 16) / 2
    assert kv_bytes_per_token(llama, 8) == kv_bytes_per_token(llama, 16) / 2


def test_b7_speed_up_of_a_part() -> None:
    before, after = (step_time_s(moved_bytes=w, bytes_per_s=1e12, rest_s=2e-3) for w in (8e9, 4e9))
    assert (before, after) == (pytest.approx(10e-3), pytest.approx(6e-3))
    assert speedup(0.8, 2) == pytest.approx(before / after) == pytest.approx(1.67, abs=0.005)
    both = 1 / (0.8 / 2 + 0.2 / 2)  # halving the rest too
    assert both == pytest.approx(2)
    assert both != pytest.approx(speedup(0.8, 2) * speedup(0.2, 2))


def test_b8_gaps_between_kernels() -> None:
    gaps = launch_gap_s(30, 3e-6)
    assert gaps == pytest.approx(90e-6)
    assert 30 * 2e-6 + gaps == pytest.approx(150e-6)
    assert gaps / (3e-3 + 150e-6) == pytest.approx(0.03, abs=0.002)


def test_b9_a_slow_link() -> None:
    assert transfer_s(1e9, 25e9) == pytest.approx(40e-3)
    assert transfer_s(1e9, 25e9, overlapped_s=50e-3) == 0
    step = {"moved_bytes": 8e9, "bytes_per_s": 1e12, "comm_bytes": 1e9, "link_bytes_per_s": 25e9}
    assert step_time_s(**step) == pytest.approx(48e-3)
    assert step_time_s(**step, overlap=True) == pytest.approx(40e-3)


def test_b10_two_devices_can_lose() -> None:
    one = step_time_s(moved_bytes=10e9, bytes_per_s=1e12)
    two = {"moved_bytes": 5e9, "bytes_per_s": 1e12, "link_bytes_per_s": 1e9}
    assert one / step_time_s(**two, comm_bytes=4e6) == pytest.approx(1.11, abs=0.005)
    assert step_time_s(**two, comm_bytes=6e6) > one


def test_c1_and_c2_throughput_against_price() -> None:
    first, second = cost_per_million(100, 10_000), cost_per_million(120, 15_000)
    assert first == pytest.approx(2.78, abs=0.005)
    assert second == pytest.approx(2.22, abs=0.005)
    assert first is not None and second is not None
    assert 1 - second / first == pytest.approx(0.2)


def test_c3_only_qualified_tokens_count() -> None:
    a, b = per_million(100, 1e6 * 0.7), per_million(110, 0.9e6)
    assert (a, b) == (pytest.approx(142.9, abs=0.05), pytest.approx(122.2, abs=0.05))
    assert a is not None and b is not None
    assert 1 - b / a == pytest.approx(0.144, abs=0.0005)


def test_c4_every_try_is_paid() -> None:
    assert cost_per_task(0.08, 1) == pytest.approx(0.08)
    assert cost_per_task(0.05, 2) == pytest.approx(0.10)


def test_c5_a_small_model_first() -> None:
    assert cascade_cost(0.8, 1 / 5) == pytest.approx(0.36)
    assert cascade_cost(0.8, 1 / 5, escalated=0.25) == pytest.approx(0.56)


def test_c6_a_part_of_the_bill() -> None:
    assert component_change(0.15, -0.30) == pytest.approx(-0.045)
    assert component_change(0.15, -0.30, fixed_price=True) == 0


@pytest.mark.parametrize(("per_hour", "rate", "cost"), [(10, 100, 27.8), (6, 40, 41.7), (6, 80, 20.8)])
def test_c7_a_device_where_it_is_good(per_hour: float, rate: float, cost: float) -> None:
    assert cost_per_million(per_hour, rate) == pytest.approx(cost, abs=0.05)


def test_c7_break_even() -> None:
    assert break_even_tokens_per_s(6, 10e6 / (3600 * 100)) == pytest.approx(60)


def test_c8_and_c9_split_pools_need_traffic() -> None:
    merged, split = per_million(120, 120_000), per_million(35 + 65 + 10, 140_000)
    assert (merged, split) == (pytest.approx(1000), pytest.approx(786, abs=0.5))
    assert merged is not None and split is not None
    assert split / merged - 1 == pytest.approx(-0.214, abs=0.0005)
    assert (per_million(110, 40_000), per_million(60, 40_000)) == (pytest.approx(2750), pytest.approx(1500))


def test_no_tokens_no_cost() -> None:
    assert per_million(100, 0) is None
    assert cost_per_million(100, 0) is None
