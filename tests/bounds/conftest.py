import pytest

from tfbench.bounds import Device, Link, ModelShape, Rates, device, model_shape


@pytest.fixture(scope="session")
def llama() -> ModelShape:
    return model_shape("llama-3.1-8b")


@pytest.fixture(scope="session")
def h100() -> Device:
    return device("h100-sxm")


@pytest.fixture(scope="session")
def plain() -> Device:
    """A device of round numbers, without launch gaps."""
    return Device(
        "plain",
        "round numbers",
        Rates(fp32=1e14, bf16=4e14, fp8=8e14),
        bandwidth_bytes_per_s=1e12,
        memory_bytes=100e9,
        idle_w=100.0,
        peak_w=500.0,
        links=(Link("fast", 1e11, 1e-6), Link("slow", 1e9, 1e-4)),
    )
