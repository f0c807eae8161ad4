"""TLS over memory buffers: records in pieces, proper and improper ends, certificates."""

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import trustme

from tests.load.rig import body_of, make_call, plain_reads, rig, tls_server_context
from tests.load.scripted import (
    BARE_CLOSE,
    CLOSE,
    LAST,
    STREAM_HEAD,
    Step,
    framed,
    make_job,
    ok_script,
    put_through,
    schedule,
    serving,
)
from tfbench.core.errors import EndpointError
from tfbench.load import stamps
from tfbench.load.call import Call, Ending
from tfbench.load.poller import open_poller
from tfbench.load.target import Target, resolve_target, tls_context
from tfbench.load.tls import TlsLayer
from tfbench.load.wire import Wire

CLOSED_HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


class Peer:
    """A TLS server in memory, and the layer under test after its handshake."""

    def __init__(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        server, client = tls_server_context("host.test")
        server.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.secure = server.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.layer = TlsLayer(client, "host.test", bytearray(1 << 20))
        data, client_done, server_done = b"", False, False
        while not (client_done and server_done):
            client_done = client_done or self.layer.handshake(data)
            self.incoming.write(self.layer.ciphertext())
            try:
                self.secure.do_handshake()
                server_done = True
            except ssl.SSLWantReadError:
                pass
            data = self.outgoing.read()
        # Session tickets, where there are any.
        plain, exact = self.layer.take(data)
        assert (bytes(plain), exact and bool(data)) == (b"", False)

    def record(self, data: bytes) -> bytes:
        self.secure.write(data)
        return self.outgoing.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_whole_records_are_exact(version: ssl.TLSVersion) -> None:
    peer = Peer(version)
    assert peer.secure.selected_alpn_protocol() == "http/1.1"
    plain, exact = peer.layer.take(peer.record(b"one"))
    assert (bytes(plain), exact, peer.layer.midway) == (b"one", True, False)
    plain, exact = peer.layer.take(peer.record(b"two") + peer.record(b"three"))
    assert (bytes(plain), exact, peer.layer.midway) == (b"twothree", True, False)


def test_a_record_in_pieces_comes_out_once_whole() -> None:
    peer = Peer()
    record = peer.record(b"event")
    for byte in record[:-1]:
        plain, exact = peer.layer.take(bytes([byte]))
        assert (len(plain), exact, peer.layer.midway) == (0, False, True)
    plain, exact = peer.layer.take(record[-1:])
    assert (bytes(plain), exact, peer.layer.midway) == (b"event", True, False)


def test_bytes_before_a_cut_record_are_not_exact() -> None:
    peer = Peer()
    first, second = peer.record(b"first"), peer.record(b"second")
    plain, exact = peer.layer.take(first + second[:7])
    assert (bytes(plain), exact, peer.layer.midway) == (b"first", False, True)
    plain, exact = peer.layer.take(second[7:])
    assert (bytes(plain), exact, peer.layer.midway) == (b"second", True, False)


def test_the_end_and_trouble_come_after_the_data() -> None:
    peer = Peer()
    data = peer.record(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        peer.secure.unwrap()
    plain, exact = peer.layer.take(data + peer.outgoing.read())
    assert (bytes(plain), exact, peer.layer.ended) == (b"last", False, True)
    peer = Peer()
    data = peer.record(b"fine")
    broken = bytearray(peer.record(b"spoilt"))
    broken[-1] ^= 1
    plain, exact = peer.layer.take(data + broken)
    assert (bytes(plain), exact) == (b"fine", False)
    assert peer.layer.failed is not None and not peer.layer.ended


def test_large_bodies_are_encrypted_as_they_go_out() -> None:
    peer = Peer()
    body = bytes(range(256)) * 4096
    peer.layer.send(body)
    pieces = []
    while peer.layer.sending:
        pieces.append(peer.layer.ciphertext())
    assert max(map(len, pieces)) < 80_000
    peer.incoming.write(b"".join(pieces))
    got = b""
    while len(got) < len(body):
        got += peer.secure.read(1 << 20)
    assert got == body


@pytest.mark.parametrize(("last", "ending"), [(CLOSE, Ending.COMPLETE), (BARE_CLOSE, Ending.BROKEN)])
def test_a_close_ends_a_response_only_when_it_is_a_proper_one(last: Step, ending: Ending, tmp_path: Path) -> None:
    with rig("tls", lambda index, request: [CLOSED_HEAD, b"body", 0.05, last], tmp_path) as bench:
        call = bench.one()
    assert (call.ending, body_of(call)) == (ending, b"body")
    assert ("close_notify" in call.error) is (ending is Ending.BROKEN)


def test_stamps_come_through(tmp_path: Path) -> None:
    steps: list[Step] = [STREAM_HEAD, *(step for i in range(5) for step in (0.02, framed(b"event %d" % i))), LAST]
    with rig("tls", lambda index, request: steps, tmp_path) as bench:
        call = bench.one()
    reads = plain_reads(call.reads)
    assert [read[4] for read in reads] == [b"event %d" % i for i in range(5)]
    assert all(read[3] for read in reads[:4])
    assert all(read[1] != stamps.NO_STAMP for read in reads) is stamps.probe()


def test_a_close_while_idle_costs_no_request(tmp_path: Path) -> None:
    def script(index: int, request: bytes) -> Iterable[Step]:
        return [*ok_script(index, request), CLOSE]

    with rig("tls", script, tmp_path) as bench:
        for _ in range(3):
            call = bench.one()
            assert call.ending is Ending.COMPLETE and call.new_connection
            # Nobody polls now: the close waits unread.
            time.sleep(0.1)


def _refusal(server: ssl.SSLContext, client: ssl.SSLContext) -> Call:
    with serving(ok_script, context=server) as peer:
        done: list[Call] = []
        poller = open_poller()
        address = ("127.0.0.1", peer.port)
        target = Target("https", "127.0.0.1", peer.port, "/v1", socket.AF_INET, address, True)
        wire = Wire(poller, target, client, use_stamps=False, sent=done.append, done=done.append)
        call = make_call()
        wire.begin(call)
        while not done:
            wire.serve(poller.poll(0.05), 0, lambda: None)
        wire.close()
        poller.close()
    assert done == [call] and call.sent_ns == 0 and call.ending is Ending.CONNECT
    return call


def test_certificates_that_cannot_be_trusted_say_what_mends_them() -> None:
    server, _ = tls_server_context()
    assert "SSL_CERT_FILE" in _refusal(server, tls_context()).error
    misnamed, client = tls_server_context("other.test")
    assert "isn't for '127.0.0.1'" in _refusal(misnamed, client).error
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired, client = tls_server_context("127.0.0.1", not_after=past)
    assert "isn't valid now" in _refusal(expired, client).error


def test_resolving_looks_at_the_certificate_too() -> None:
    server, _ = tls_server_context()
    with serving(ok_script, context=server) as peer, pytest.raises(EndpointError, match="SSL_CERT_FILE"):
        resolve_target(f"https://127.0.0.1:{peer.port}/v1", 2.0)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            conn, _ = listener.accept()
            with conn:
                conn.recv(4096)
                conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(EndpointError, match="is it http://"):
            resolve_target(f"https://127.0.0.1:{listener.getsockname()[1]}/v1", 2.0)
        thread.join()


def test_a_worker_speaks_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with serving(ok_script, context=server) as peer:
        result = put_through(make_job(f"https://localhost:{peer.port}/v1", tmp_path, schedule(0, 100, 200)))
        assert b"Host: localhost:%d\r\n" % peer.port in peer.requests[0]
    assert result.outcomes == ["ok"] * 3
    assert [row["new_connection"] for row in result.attempts] == [True, False, False]
    assert result.attempts[0]["sent_ns"] >= result.attempts[0]["connected_ns"]
    assert {row["stamp_source"] for row in result.attempts} == {"kernel" if stamps.probe() else "user"}
