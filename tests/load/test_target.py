"""URLs taken apart and resolved."""

import socket
from pathlib import Path

import pytest

from tests.load.scripted import ok_script, serving
from tfbench.core.errors import EndpointError
from tfbench.load.target import Target, control_url, resolve_target, tls_context, unix_path


@pytest.mark.parametrize(
    ("host", "port", "tls", "authority"),
    [
        ("api.test", 80, False, "api.test"),
        ("api.test", 443, False, "api.test:443"),
        ("api.test", 443, True, "api.test"),
        ("api.test", 8000, True, "api.test:8000"),
        ("::1", 8000, False, "[::1]:8000"),
    ],
)
def test_the_host_header(host: str, port: int, tls: bool, authority: str) -> None:
    assert Target("http", host, port, "", socket.AF_INET, (host, port), tls).authority == authority


def test_a_name_is_resolved_once_to_an_address_that_answers() -> None:
    with serving(ok_script) as server:
        target = resolve_target(f"http://localhost:{server.port}/v1/", 2.0)
    assert (target.host, target.port, target.base_path, target.tls) == ("localhost", server.port, "/v1", False)
    assert target.shown_address == "127.0.0.1" and not target.is_unix


def test_a_unix_socket_keeps_its_path(tmp_path: Path) -> None:
    path = tmp_path / "Upper.sock"
    url = "http+unix://" + str(path).replace("/", "%2F") + "/v1/"
    with serving(ok_script, socket.AF_UNIX, path=str(path)):
        target = resolve_target(url, 2.0)
    assert (target.authority, target.base_path, target.address) == ("localhost", "/v1", str(path))
    assert target.is_unix and target.shown_address == str(path)
    assert unix_path(url) == str(path)
    assert control_url(url) == "http://localhost/v1/"
    assert unix_path("http://a/v1") is None and control_url("http://a/v1") == "http://a/v1"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/v1", "can't connect"),
        ("http://no-such-host.invalid/v1", "can't resolve"),
        ("http+unix://%2Fno%2Fsuch.sock/v1", "can't connect"),
        ("http+unix://relative.sock/v1", "isn't an absolute path"),
    ],
)
def test_what_cannot_be_reached_says_so(url: str, words: str) -> None:
    with pytest.raises(EndpointError, match=words) as caught:
        resolve_target(url, 1.0)
    assert str(caught.value).startswith(url) and "\n" not in str(caught.value)


def test_tls_trusts_what_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = tls_context()
    assert context.check_hostname
    assert len(context.get_ca_certs()) >= 1
