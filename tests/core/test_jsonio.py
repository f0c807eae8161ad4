"""Canonical JSON and JSON text without NaN."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.jsonio import canonical_bytes, canonical_sha256, dump_text, finite

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_rfc_8785_vector() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.5, 2e-3, 1e-27],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True],
    }
    expected = (
        '{"literals":[null,true],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_bytes(value).decode() == expected


def test_the_order_of_keys_and_the_kind_of_whole_numbers_dont_matter() -> None:
    assert canonical_sha256({"a": 1, "b": 2.0}) == canonical_sha256({"b": 2, "a": 1.0})


@given(values)
def test_finite_text_is_always_json_that_says_the_same(value: object) -> None:
    cleaned = finite(value)
    assert json.loads(json.dumps(cleaned, allow_nan=False)) == cleaned
    text = dump_text(value)
    assert "NaN" not in text or isinstance(value, str | list | dict)
    json.loads(text)
