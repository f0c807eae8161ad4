"""Kernel receive stamps."""

import socket
import struct
import time

from tfbench.load import stamps


def test_a_stamp_is_read_from_ancillary_data() -> None:
    data = struct.pack("@qq", 1_795_982_663, 123_456_789)
    known = (socket.SOL_SOCKET, stamps.SCM_TIMESTAMPNS, data)
    assert stamps.stamp_of([known]) == 1_795_982_663_123_456_789
    assert stamps.stamp_of([(socket.SOL_SOCKET, 1, b"abcd"), known]) == 1_795_982_663_123_456_789
    assert stamps.stamp_of([(socket.SOL_SOCKET, stamps.SCM_TIMESTAMPNS, data[:8])]) == 0
    assert stamps.stamp_of([]) == 0


def test_a_probe_says_what_a_socket_then_does() -> None:
    holder = stamps.hold_enabled()
    found = stamps.probe()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        assert stamps.enable(client) or not found
        server, _ = listener.accept()
        with server:
            before = time.time_ns()
            server.sendall(b"x")
            time.sleep(0.02)
            _, ancillary, _, _ = client.recvmsg(16, stamps.ANCILLARY_BYTES)
            stamp = stamps.stamp_of(ancillary)
    assert (stamp > 0) is found
    if found:
        # The byte's arrival, not its reading.
        assert before - 1_000_000 <= stamp < time.time_ns() - 10_000_000
    if holder is not None:
        holder.close()


def test_other_platforms_do_without(monkeypatch: object) -> None:
    import pytest

    assert isinstance(monkeypatch, pytest.MonkeyPatch)
    monkeypatch.setattr(stamps.sys, "platform", "darwin")
    with socket.socket() as sock:
        assert not stamps.enable(sock)
    assert stamps.hold_enabled() is None
    assert not stamps.probe()
