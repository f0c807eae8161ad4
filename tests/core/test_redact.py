"""Secrets are masked wherever they stand."""

from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.redact import MASK, Redactor

secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=20).filter(
    lambda text: text not in MASK
)


def test_the_value_and_what_follows_its_scheme_are_masked() -> None:
    redactor = Redactor(["Bearer sk-123456"])
    assert redactor.text("Incorrect API key provided: sk-123456.") == f"Incorrect API key provided: {MASK}."
    assert redactor.text("Authorization: Bearer sk-123456") == f"Authorization: {MASK}"
    assert redactor.data(b"\xffsk-123456\x00") == b"\xff" + MASK.encode() + b"\x00"


def test_nothing_secret_changes_nothing() -> None:
    assert Redactor([]).text("as it is") == "as it is"
    assert Redactor(["", "x"]).text("x marks") == "x marks"


@given(secrets, st.text(), st.text())
def test_no_secret_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor([secret]).text(before + secret + after).replace(MASK, "\0")
