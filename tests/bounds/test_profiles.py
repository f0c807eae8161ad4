import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.bounds import Device, Roofline, Work, device, device_names, model_names, model_shape, step_bound
from tfbench.core.errors import UsageError
from tfbench.core.resources import data_dir

DEVICE = """
title = "made up"
[flops_per_s.bf16]
value = 1e14
source = "s"
[bandwidth_bytes_per_s]
value = 1e12
source = "s"
attainable = 0.5
attainable_source = "a"
[memory_bytes]
value = 80e9
source = "s"
[launch_s]
value = 1e-6
source = "s"
[idle_w]
value = 50
source = "s"
[peak_w]
value = 400
source = "s"
[links.wire]
bytes_per_s = { value = 1e11, source = "s", attainable = 1, attainable_source = "a" }
latency_s = { value = 0, source = "s" }
"""
MODEL = """
title = "made up"
layers = 2
hidden = 64
heads = 8
kv_heads = 2
head_dim = 8
intermediate = 128
vocab = 1000
tied_embeddings = true
qkv_bias = false
max_context = 4096
source = "s"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "made-up.toml"
    path.write_text(text)
    return path


def test_what_must_ship_ships() -> None:
    assert {"h100-sxm", "h200-sxm", "a100-sxm-80g", "b200-sxm", "l4", "rtx-4090", "cpu-core"} <= set(device_names())
    assert {"llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "smollm2-135m"} <= set(model_names())


@pytest.mark.parametrize("name", device_names())
def test_a_shipped_device_is_sound(name: str) -> None:
    found = device(name)
    assert found.name == name
    assert found.launch_s < 1e-4 and found.memory_bytes > 1e9
    assert all(source for _, source in found.sources)
    named = {field.split(".")[0] for field, _ in found.sources}
    assert {"flops_per_s", "bandwidth_bytes_per_s", "memory_bytes", "launch_s"} <= named
    # Some FLOPs a byte: below that the profile's units are mixed up.
    assert 1 < (found.rates.bf16 or found.rates.fp32 or math.nan) / found.bandwidth_bytes_per_s < 1000


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("qwen2.5-7b", 7_615_616_512),
        ("smollm2-135m", 134_515_008),
    ],
)
def test_a_shipped_model_has_its_published_parameters(name: str, params: int) -> None:
    shape = model_shape(name)
    assert shape.params == params
    assert f"{params:,}" in shape.source


def test_every_shipped_model_runs_somewhere() -> None:
    h200 = device("h200-sxm")
    for name in model_names():
        assert step_bound(Roofline(h200, model_shape(name)), Work(0, 1, 100)).total_ns > 0


def test_a_profile_may_be_any_file(tmp_path: Path) -> None:
    path = written(tmp_path, DEVICE)
    found = device(path)
    assert found == device(str(path))
    assert (found.name, found.title) == ("made-up", "made up")
    assert (found.bandwidth_bytes_per_s, found.rates.bf16, found.rates.fp8) == (0.5e12, 1e14, None)
    assert (found.price_per_hour, found.idle_w, found.peak_w) == (None, 50, 400)
    assert dict(found.sources)["bandwidth_bytes_per_s"] == "s; attainable: a"
    assert [(link.name, link.bytes_per_s, link.latency_s) for link in found.links] == [("wire", 1e11, 0)]
    shape = model_shape(written(tmp_path, MODEL))
    assert (shape.params, shape.source) == (2 * (64 * 8 * 20 + 3 * 64 * 128 + 2 * 64) + 64 + 64_000, "s")


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("value = 1e12", "value = 0", "bandwidth_bytes_per_s.value", "0 is not above zero"),
        ("value = 1e12", "value = -1e12", "bandwidth_bytes_per_s.value", "not above zero"),
        ("value = 1e12", "value = nan", "bandwidth_bytes_per_s.value", "no finite number"),
        ("value = 1e12", "value = inf", "bandwidth_bytes_per_s.value", "no finite number"),
        ("value = 1e12", "value = '1e12'", "bandwidth_bytes_per_s.value", "no finite number"),
        ("value = 1e12", "value = true", "bandwidth_bytes_per_s.value", "no finite number"),
        ("value = 1e12", f"value = 1{'0' * 400}", "bandwidth_bytes_per_s.value", "no finite number"),
        ("value = 1e12\n", "", "bandwidth_bytes_per_s.value", "missing"),
        ("attainable = 0.5\n", "", "bandwidth_bytes_per_s.attainable", "missing; give the share"),
        ("attainable = 0.5", "attainable = 1.2", "bandwidth_bytes_per_s.attainable", "1.2 is no share"),
        ("attainable = 0.5", "attainable = 0", "bandwidth_bytes_per_s.attainable", "no share"),
        ('attainable_source = "a"\n', "", "bandwidth_bytes_per_s.attainable_source", "missing; say where"),
        ('value = 80e9\nsource = "s"', "value = 80e9", "memory_bytes.source", "missing; say where"),
        ('value = 80e9\nsource = "s"', 'value = 80e9\nsource = " "', "memory_bytes.source", "no text"),
        ("value = 80e9", "value = -80e9", "memory_bytes.value", "not above zero"),
        ("value = 80e9", "valeu = 80e9", "memory_bytes.value", "missing"),
        ("[memory_bytes]", "[memory]", "memory_bytes", r"missing; add \[memory_bytes\] with value and source"),
        ("value = 1e-6", "value = -1e-6", "launch_s.value", "not zero or more"),
        ("[flops_per_s.bf16]", "[flops_per_s.bf61]", "flops_per_s.bf61", 'did you mean "bf16"'),
        ("[flops_per_s.bf16]", "[flops.bf16]", "flops_per_s", "missing"),
        ("[idle_w]\nvalue = 50", "[idle_w]\nvalue = 500", "idle_w", "above peak_w"),
        ('[idle_w]\nvalue = 50\nsource = "s"\n', "", "idle_w", "missing; power takes both"),
        ('title = "made up"', "title = 3", "title", "no text"),
        ('title = "made up"', 'title = "a"\nprices_per_hour = 3', "prices_per_hour", "unknown; did you mean"),
        ('title = "made up"', 'title = "a"\nprice_per_hour = 3', "price_per_hour", "3 is no table; add"),
        ("[links.wire]", "[links]\nwire = 3\n[other]", "links.wire", "no table"),
        ("bytes_per_s = { value = 1e11", "bytes_per_s = { value = 0", "links.wire.bytes_per_s.value", "above zero"),
        ("latency_s = {", "latency = {", "links.wire.latency_s", "missing"),
    ],
)
def test_a_nonsense_device_is_one_line(tmp_path: Path, old: str, new: str, field: str, says: str) -> None:
    assert old in DEVICE
    path = written(tmp_path, DEVICE.replace(old, new, 1))
    with pytest.raises(UsageError, match=rf"{re.escape(f'{path}: {field}: ')}.*{says}") as caught:
        device(path)
    assert "\n" not in str(caught.value) and ";" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("layers = 2", "layers = 0", "layers", "0 is no whole number from 1"),
        ("layers = 2", "layers = 2.0", "layers", "no whole number"),
        ("layers = 2", "layers = true", "layers", "no whole number"),
        ("heads = 8", f"heads = 8{'0' * 30}", "heads", "no whole number"),
        ("kv_heads = 2", "kv_heads = 3", "kv_heads", r"3 does not divide heads \(8\)"),
        ("kv_heads = 2", "kv_heads = 16", "kv_heads", "does not divide heads"),
        ("vocab = 1000\n", "", "vocab", "missing"),
        ("tied_embeddings = true", "tied_embeddings = 1", "tied_embeddings", "neither true nor false"),
        ('source = "s"', 'source = ""', "source", "say where the numbers come from"),
        ("hidden = 64", "hiden = 64", "hidden", "missing"),
        ("hidden = 64", "hidden = 64\nhiddden = 1", "hiddden", 'unknown; did you mean "hidden"'),
        ("hidden = 64", 'hidden = 64\n"a\\nb" = 1', "'a\\\\nb'", "unknown"),
    ],
)
def test_a_nonsense_model_is_one_line(tmp_path: Path, old: str, new: str, field: str, says: str) -> None:
    assert old in MODEL
    path = written(tmp_path, MODEL.replace(old, new, 1))
    with pytest.raises(UsageError, match=rf"{re.escape(str(path))}: {field}: .*{says}") as caught:
        model_shape(path)
    assert "\n" not in str(caught.value)


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='devices: no profile "h100-sxn"; did you mean "h100-sxm"'):
        device("h100-sxn")
    with pytest.raises(UsageError, match='models: no profile "gpt"; there are: .*llama'):
        model_shape("gpt")
    with pytest.raises(UsageError, match=r"none\.toml: No such file"):
        device(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="directory"):
        device(tmp_path)
    with pytest.raises(UsageError, match="not TOML"):
        device(written(tmp_path, "title = "))
    (tmp_path / "latin.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(UsageError, match="not TOML"):
        device(tmp_path / "latin.toml")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
).filter(lambda value: value is not None)


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08X}" for c in value if not 0xD800 <= ord(c) < 0xE000) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value if item is not None) + "]"
    return str(value)


@settings(deadline=None)
@given(st.sampled_from(re.findall(r"^[\w.]+ = [^{\n]+$", DEVICE, flags=re.M)), JUNK)
def test_any_value_gives_a_device_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, line: str, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(DEVICE.replace(line, f"{line.split(' = ', maxsplit=1)[0]} = {toml(value)}", 1), encoding="utf-8")
    try:
        found = device(path)
    except UsageError as error:
        assert str(error).splitlines() == [str(error)]
    else:
        assert isinstance(found, Device) and math.isfinite(found.bandwidth_bytes_per_s)


def test_no_shipped_profile_is_unread() -> None:
    folder = data_dir("profiles")
    shipped = {path.stem for kind in ("devices", "models") for path in (folder / kind).iterdir()}
    assert shipped == {*device_names(), *model_names()}
