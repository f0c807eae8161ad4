"""Whatever comes in is a manifest that freezes and reads back, or a one-line error; never a traceback."""

import copy
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfbench.core.errors import ManifestError
from tfbench.manifest import freeze, load_manifest, parse_manifest

MODEL = '[model]\nname = "m"\n'

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["open", "closed", "gamma", "inf", "timeout", "lognormal", "empirical", "env:A", "http://h"])
    | st.dates()
)
_KEYS = st.sampled_from(
    "name model engine topology endpoint sampling workload load slo accounting cost args url headers rates count "
    "duration_s concurrency mode process burstiness input_tokens output_tokens dist mean cv min max values pairs "
    "weights icl_ms p99 bad excluded resources hourly roles think_s seed repeats timeouts schema_version "
    "timestamps ramp to shape retry outcomes factor cancel share after_s after_chunks classes lora tenant "
    "connections preconnect".split()
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(document=st.dictionaries(_KEYS | st.text(max_size=5), _VALUES, max_size=5), named=st.booleans())
def test_any_document_is_a_manifest_or_a_one_line_error(document: dict[str, Any], named: bool) -> None:
    if named:
        document = {**document, "model": {"name": "m"}}
    try:
        manifest = parse_manifest(document, "file")
    except ManifestError as error:
        assert str(error).startswith("file: ")
        assert str(error).isprintable()
    else:
        frozen = freeze(manifest)
        assert freeze(parse_manifest(frozen.document, "frozen")).manifest_id == frozen.manifest_id


_VALID: dict[str, Any] = {
    "name": "n",
    "model": {"name": "m", "lora": ["a"]},
    "engine": {"args": {"a": 1}},
    "topology": {"tp": 2, "roles": {"prefill": 1}},
    "endpoint": {
        "adapter": "vllm",
        "url": "http://h/v1",
        "headers": {"X-A": "b"},
        "connections": "per_session",
        "preconnect": 3,
        "timeouts": {"idle_s": 3},
    },
    "sampling": {"top_p": 0.5, "stop": ["a"]},
    "workload": {
        "input_tokens": {"dist": "empirical", "values": [3, 4], "weights": [1, 2]},
        "output_tokens": 5,
        "classes": [{"name": "c", "share": 2, "lora": "a", "tenant": "t", "input_tokens": 7, "output_tokens": 8}],
    },
    "load": {
        "process": "gamma",
        "burstiness": 2,
        "rates": [1, 2],
        "duration_s": 5,
        "seed": 3,
        "ramp": {"to": 4, "shape": "exponential"},
        "retry": {"outcomes": ["rejected"], "max": 3, "backoff_s": 1, "factor": 2, "cap_s": 4},
        "cancel": {"share": 0.1, "after_chunks": 2},
    },
    "slo": {"icl_ms": {"p99": 5}, "ttft_ms": {"max": 3}},
    "accounting": {"excluded": ["cancelled"]},
    "cost": {"resources": [{"name": "a", "hourly": 2}]},
    "storage": {"text": True},
}


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, inner in below for place in _places(inner, (*path, key)))]


_REPLAY: dict[str, Any] = {
    "model": {"name": "m"},
    "load": {"process": "replay", "timestamps": [0, 1.5, 1.5, 4], "rates": [1, 2], "warmup_s": 0, "duration_s": 3},
}
_CHANGES = [(valid, place) for valid in (_VALID, _REPLAY) for place in _places(valid)[1:]]


@settings(max_examples=400, deadline=None)
@given(change=st.sampled_from(_CHANGES), value=_VALUES)
def test_a_valid_manifest_with_one_value_changed(change: tuple[Any, tuple[Any, ...]], value: Any) -> None:
    valid, place = change
    document = copy.deepcopy(valid)
    node: Any = document
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    try:
        manifest = parse_manifest(document, "file")
    except ManifestError as error:
        assert str(error).startswith("file: ")
        assert str(error).isprintable()
    else:
        frozen = freeze(manifest)
        assert freeze(parse_manifest(frozen.document, "frozen")).manifest_id == frozen.manifest_id


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: (MODEL + text).encode(errors="replace")))
def test_any_file_is_a_manifest_or_a_one_line_error(tmp_path: Path, data: bytes) -> None:
    for name in ("a.toml", "a.json", "a"):
        path = tmp_path / name
        path.write_bytes(data)
        try:
            load_manifest(path)
        except ManifestError as error:
            assert str(error).startswith(f"{path}: ")
            assert str(error).isprintable()
