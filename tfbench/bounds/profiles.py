"""Profiles of devices and models: shipped ones (profiles/devices, profiles/models) by name, others by path."""

from dataclasses import fields
from pathlib import Path

from tfbench.bounds.device import Device, Link, Rates
from tfbench.bounds.reading import Table, profile_names, profile_path, read_quantity, read_table
from tfbench.bounds.shape import ModelShape


def device_names() -> tuple[str, ...]:
    """Devices that ship with this installation."""
    return profile_names("devices")


def model_names() -> tuple[str, ...]:
    """Model shapes that ship with this installation."""
    return profile_names("models")


def device(name_or_path: str | Path) -> Device:
    """The device of that name, or in that file; UsageError names the file, the field and the mend."""
    path = profile_path("devices", name_or_path)
    table = read_table(path)
    sources: list[tuple[str, str]] = []

    def quantity(parent: Table, key: str, unit: str, *, sheet: bool = False, zero: bool = False) -> float:
        value, source = read_quantity(parent, key, unit, sheet=sheet, zero=zero)
        sources.append((parent.at + key, source))
        return value

    def optional(key: str, unit: str) -> float | None:
        present = table.take(key, "", optional=True) is not None
        return quantity(table, key, unit, zero=True) if present else None

    title = table.text("title", "name the device")
    flops = table.table("flops_per_s", "add [flops_per_s.bf16] with value and source")
    rates = {f.name: quantity(flops, f.name, "FLOP/s") for f in fields(Rates) if f.name in flops.values}
    flops.known.extend(f.name for f in fields(Rates))
    flops.done()
    if not rates:
        raise table.error("flops_per_s", "empty; add [flops_per_s.bf16] with value and source")
    links = []
    if table.take("links", "", optional=True) is not None:
        ways = table.table("links", "write [links.NAME.bytes_per_s] and [links.NAME.latency_s]")
        for name in ways.values:
            way = ways.table(name, f"write [links.{name}.bytes_per_s] and [links.{name}.latency_s]")
            rate = quantity(way, "bytes_per_s", "bytes/s one way", sheet=True)
            links.append(Link(name, rate, quantity(way, "latency_s", "seconds", zero=True)))
            way.done()
    found = Device(
        name=path.stem,
        title=title,
        rates=Rates(**rates),
        bandwidth_bytes_per_s=quantity(table, "bandwidth_bytes_per_s", "bytes/s", sheet=True),
        memory_bytes=quantity(table, "memory_bytes", "bytes"),
        launch_s=quantity(table, "launch_s", "seconds", zero=True),
        price_per_hour=optional("price_per_hour", "US dollars an hour"),
        idle_w=optional("idle_w", "watts"),
        peak_w=optional("peak_w", "watts"),
        links=tuple(links),
        sources=tuple(sources),
    )
    table.done()
    if (found.idle_w is None) != (found.peak_w is None):
        raise table.error("idle_w" if found.idle_w is None else "peak_w", "missing; power takes both idle_w and peak_w")
    if found.idle_w is not None and found.peak_w is not None and found.idle_w > found.peak_w:
        raise table.error("idle_w", f"{found.idle_w:g} W is above peak_w ({found.peak_w:g} W); exchange or mend them")
    return found


def model_shape(name_or_path: str | Path) -> ModelShape:
    """The model shape of that name, or in that file; UsageError names the file, the field and the mend."""
    path = profile_path("models", name_or_path)
    table = read_table(path)
    found = ModelShape(
        name=path.stem,
        title=table.text("title", "name the model"),
        layers=table.count("layers"),
        hidden=table.count("hidden"),
        heads=table.count("heads"),
        kv_heads=table.count("kv_heads"),
        head_dim=table.count("head_dim"),
        intermediate=table.count("intermediate"),
        vocab=table.count("vocab"),
        tied_embeddings=table.flag("tied_embeddings"),
        qkv_bias=table.flag("qkv_bias"),
        max_context=table.count("max_context"),
        source=table.text("source", "say where the numbers come from"),
    )
    table.done()
    if found.heads % found.kv_heads:
        raise table.error("kv_heads", f"{found.kv_heads} does not divide heads ({found.heads}); give a divisor of it")
    return found
