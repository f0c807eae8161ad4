"""Devices: what one accelerator can do, from profiles/devices/*.toml."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rates:
    """Dense FLOP/s (or integer op/s) by arithmetic unit, attainable; None = the device has no such unit."""

    fp32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    int4: float | None = None
    fp4: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A way to the other devices: attainable bytes/s one device sends, and the fixed time of one collective."""

    name: str
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. Rates are attainable ones (peak times a stated fraction); `sources` says whence each number is.

    memory_bytes    all of it; what an engine leaves free is its own business
    launch_s        time between two kernels on the device that no work fills
    price_per_hour  US dollars to rent one, or None
    idle_w, peak_w  electrical power of one device, idle and at its limit, or None
    links           ways to other devices, the preferred one first
    """

    name: str
    title: str
    rates: Rates
    bandwidth_bytes_per_s: float
    memory_bytes: float
    launch_s: float = 0.0
    price_per_hour: float | None = None
    idle_w: float | None = None
    peak_w: float | None = None
    links: tuple[Link, ...] = ()
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False)
