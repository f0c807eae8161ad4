"""Header secrets: read at send time, never shown."""

import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import parse_manifest, resolve_headers
from tfbench.manifest.models import Endpoint


def endpoint(**headers: str) -> Endpoint:
    document = {"model": {"name": "m"}, "endpoint": {"headers": headers}}
    return parse_manifest(document, "test").endpoint


def test_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = endpoint(**{"X-Api-Key": "env:TFB_KEY", "X-Team": "bench"})
    monkeypatch.setenv("TFB_KEY", "  secret\n")
    assert resolve_headers(made) == {"X-Api-Key": "secret", "X-Team": "bench"}
    monkeypatch.setenv("TFB_KEY", "other")
    assert resolve_headers(made)["X-Api-Key"] == "other"
    assert "other" not in repr(made)


@pytest.mark.parametrize(
    ("value", "sent"), [("abc", "Bearer abc"), ("Bearer abc", "Bearer abc"), ("Basic x", "Basic x")]
)
def test_authorization_gets_a_scheme(monkeypatch: pytest.MonkeyPatch, value: str, sent: str) -> None:
    monkeypatch.setenv("TFB_KEY", value)
    assert resolve_headers(endpoint(Authorization="env:TFB_KEY")) == {"Authorization": sent}


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_missing_secret_names_variable_and_mend(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("TFB_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TFB_KEY", value)
    with pytest.raises(ManifestError) as caught:
        resolve_headers(endpoint(Authorization="env:TFB_KEY"))
    assert str(caught.value) == (
        "endpoint.headers.Authorization: the environment variable TFB_KEY is not set; run: export TFB_KEY=…"
    )


@pytest.mark.parametrize("value", ["hunter2\r\nX-Evil: 1", "hunter2é", "hunter2\x01"])
def test_secret_that_no_header_can_carry_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TFB_KEY", value)
    with pytest.raises(ManifestError, match="has a character that a header can't carry") as caught:
        resolve_headers(endpoint(Authorization="env:TFB_KEY"))
    assert "hunter2" not in str(caught.value)
