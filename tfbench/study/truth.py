"""A server that writes down when each chunk really left: raw sockets, one poller, one core.

Every POST is answered with an SSE stream: the first chunk `--ttft-ms` after the request was read, then
one each `--gap-ms`. How late it is with that doesn't matter: the truth is the CLOCK_MONOTONIC ns it
notes just before each send. GET /truth gives {X-Request-Id: [ns of each chunk]}, GET /arrivals
{X-Request-Id: ns at which the request was read}; both forget what they gave. It prints its port as
JSON when ready and ends when stdin closes.
"""

import argparse
import gc
import json
import os
import resource
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tfbench.core.precedence import take_precedence
from tfbench.load.poller import READ, open_poller

mono = time.monotonic_ns
_BURST = 64
"""Chunks sent before arrivals are looked at again."""
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_MODELS = b'{"object":"list","data":[{"id":"truth","object":"model"}]}'


def _chunk(payload: bytes) -> bytes:
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def _event(delta: dict[str, str], finish: str | None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    event = {"id": "chatcmpl-truth", "object": "chat.completion.chunk", "created": 1795982663, "model": "truth"}
    return json.dumps({**event, "choices": [choice], **more}, separators=(",", ":")).encode()


def stream_bytes(chunks: int) -> tuple[list[bytes], bytes]:
    """What is sent at each chunk's time, and what follows the last one at once."""
    data = [_chunk(_event({"content": f" word{i % 100}"}, None)) for i in range(chunks)]
    data[0] = _STREAM_HEAD + data[0]
    usage = {"prompt_tokens": 8, "completion_tokens": chunks, "total_tokens": 8 + chunks}
    counted = json.dumps({"id": "chatcmpl-truth", "model": "truth", "choices": [], "usage": usage}).encode()
    return data, _chunk(_event({}, "length")) + _chunk(counted) + _chunk(b"[DONE]") + b"0\r\n\r\n"


class _Stream:
    __slots__ = ("conn", "due", "fd", "index", "send", "stamps")

    def __init__(self, fd: int, conn: socket.socket, due: int) -> None:
        self.fd = fd
        self.conn = conn
        self.send: Callable[[bytes], int] = conn.send
        self.due = due
        self.index = 0
        self.stamps: list[int] = []


class _Connection:
    __slots__ = ("buffer", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""


class TruthServer:
    """Everything the server knows; `serve` runs it.

    All streams have the same gap, so those due for a later chunk stand in a queue that is in order
    by itself: whoever is served goes to its end. Those due for their first chunk stand in another.
    """

    def __init__(self, ttft_ns: int, gap_ns: int, chunks: int, tls: ssl.SSLContext | None) -> None:
        self._ttft_ns = ttft_ns
        self._gap_ns = gap_ns
        self._data, self._ending = stream_bytes(chunks)
        self._tls = tls
        self._first: deque[_Stream] = deque()
        self._later: deque[_Stream] = deque()
        self._connections: dict[int, _Connection] = {}
        self._truth: dict[str, list[int]] = {}
        self._arrivals: dict[str, int] = {}
        self._unnamed = 0
        self._poller = open_poller()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(4096)
        self._listener.setblocking(False)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def serve(self, stop_fd: int) -> None:
        """Serve until `stop_fd` reads as ended."""
        listener_fd = self._listener.fileno()
        self._poller.add(listener_fd, READ)
        self._poller.add(stop_fd, READ)
        while True:
            for fd, _ in self._poller.poll(self._rest_s()):
                if fd == listener_fd:
                    self._accept()
                elif fd == stop_fd:
                    if not os.read(stop_fd, 1):
                        return
                else:
                    self._readable(fd, self._connections[fd])
            self._send_due(self._later)
            self._send_due(self._first)

    def _rest_s(self) -> float:
        """How long the poll may wait; what is shorter than its millisecond is slept here."""
        dues = [queue[0].due for queue in (self._first, self._later) if queue]
        if not dues:
            return 0.05
        rest_s = (min(dues) - mono()) / 1e9
        if rest_s > 0.001:
            return rest_s - 0.001
        if rest_s > 0:
            time.sleep(rest_s)
        return 0.0

    def _send_due(self, queue: deque[_Stream]) -> None:
        later, gap, data = self._later, self._gap_ns, self._data
        count = len(data)
        for _ in range(_BURST):
            if not queue or queue[0].due > mono():
                return
            stream = queue.popleft()
            index = stream.index
            chunk = data[index]
            try:
                stream.stamps.append(mono())
                whole = stream.send(chunk) == len(chunk)
                if whole and index + 1 == count:
                    stream.send(self._ending)
                    continue
            except OSError:
                whole = False
            if not whole:
                # A client that left, or that reads nothing for so long that the kernel's buffers are full.
                known = self._connections.get(stream.fd)
                if known is not None and known.sock is stream.conn:
                    self._drop(stream.fd)
                continue
            stream.index = index + 1
            stream.due += gap
            later.append(stream)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self._connections[sock.fileno()] = _Connection(sock)
            self._poller.add(sock.fileno(), READ)

    def _drop(self, fd: int) -> None:
        self._poller.drop(fd)
        self._connections.pop(fd).sock.close()

    def _readable(self, fd: int, connection: _Connection) -> None:
        try:
            while part := connection.sock.recv(65536):
                connection.buffer += part
                if self._tls is None:
                    break
            else:
                self._drop(fd)
                return
        except (BlockingIOError, ssl.SSLWantReadError):
            pass  # read empty; or a handshake, which recv does too, waits for its next part
        except OSError:
            self._drop(fd)
            return
        while self._take_request(fd, connection):
            pass

    def _take_request(self, fd: int, connection: _Connection) -> bool:
        head, mark, rest = connection.buffer.partition(b"\r\n\r\n")
        if not mark:
            return False
        size, name = 0, ""
        for line in head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            key = key.lower()
            if key == b"content-length":
                size = int(value)
            elif key == b"x-request-id":
                name = value.strip().decode("latin-1")
        if len(rest) < size:
            return False
        connection.buffer = rest[size:]
        if head.startswith(b"POST"):
            self._begin(fd, connection.sock, name)
        else:
            self._answer(connection.sock, head.split(b" ", 2)[1])
        return True

    def _begin(self, fd: int, sock: socket.socket, name: str) -> None:
        if not name:
            self._unnamed += 1
            name = f"#{self._unnamed}"
        now = mono()
        self._arrivals[name] = now
        stream = _Stream(fd, sock, now + self._ttft_ns)
        self._truth[name] = stream.stamps
        self._first.append(stream)

    def _answer(self, sock: socket.socket, path: bytes) -> None:
        body = _MODELS
        if path == b"/truth":
            body = json.dumps(self._truth).encode()
            self._truth.clear()
        elif path == b"/arrivals":
            body = json.dumps(self._arrivals).encode()
            self._arrivals.clear()
        sock.setblocking(True)
        try:
            sock.sendall(_JSON_HEAD % len(body) + body)
        except OSError:
            return  # its end is read next
        sock.setblocking(False)


def main() -> None:
    """Serve on a free port of the loopback interface."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttft-ms", type=float, default=50)
    parser.add_argument("--gap-ms", type=float, default=10)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--cert", help="PEM file with key and certificate: speak TLS")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = None
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert)
        context.set_alpn_protocols(["http/1.1"])
    server = TruthServer(round(options.ttft_ms * 1e6), round(options.gap_ms * 1e6), options.chunks, context)
    sys.stdout.write(json.dumps({"port": server.port}) + "\n")
    sys.stdout.flush()
    # Whoever interrupts between a stamp and its send makes the truth wrong by as long as that takes.
    take_precedence()
    # A collection of half a million stamps would be a stall, and nothing here makes cycles.
    gc.freeze()
    gc.disable()
    server.serve(0)


if __name__ == "__main__":
    main()
