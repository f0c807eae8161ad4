"""A server that writes down when each chunk really left: raw sockets, epoll, one core.

Answers every POST with an SSE stream: the first chunk `--ttft-ms` after the request was read, then
one each `--gap-ms`. GET /truth gives, by X-Request-Id, the CLOCK_MONOTONIC ns just before each
chunk's send and clears them. Prints its port as JSON when ready; ends when stdin closes.
"""

import argparse
import heapq
import json
import select
import socket
import sys
import time

mono = time.monotonic_ns


def chunk(payload: bytes) -> bytes:
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = [f" word{i}" for i in range(100)]
DELTAS = [
    chunk(
        json.dumps(
            {
                "id": "chatcmpl-truth",
                "object": "chat.completion.chunk",
                "created": 1795982663,
                "model": "truth",
                "choices": [{"index": 0, "delta": {"content": word}, "logprobs": None, "finish_reason": None}],
            },
            separators=(",", ":"),
        ).encode()
    )
    for word in WORDS
]


def last(chunks: int) -> bytes:
    finish = {"id": "x", "model": "truth", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    usage = {
        "id": "x",
        "model": "truth",
        "choices": [],
        "usage": {"prompt_tokens": 8, "completion_tokens": chunks, "total_tokens": 8 + chunks},
    }
    done = chunk(json.dumps(finish).encode()) + chunk(json.dumps(usage).encode()) + chunk(b"[DONE]")
    return done + b"0\r\n\r\n"


def serve(args: argparse.Namespace) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    listener.setblocking(False)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    poll.register(0, select.EPOLLIN)
    conns: dict[int, socket.socket] = {}
    buffers: dict[int, bytes] = {}
    due: list[tuple[int, int, int, str, int]] = []
    truth: dict[str, list[int]] = {}
    ttft, gap, chunks = int(args.ttft_ms * 1e6), int(args.gap_ms * 1e6), args.chunks
    ending = last(chunks)
    number = 0

    def drop(fd: int) -> None:
        poll.unregister(fd)
        conns.pop(fd).close()
        buffers.pop(fd)

    while True:
        timeout = 0.05 if not due else max((due[0][0] - mono()) / 1e9 - 0.001, 0)
        if due and timeout < 0.001:
            timeout = 0
        for fd, _ in poll.poll(timeout):
            if fd == 0:
                if not sys.stdin.buffer.raw.read(1):
                    return
            elif fd == listener.fileno():
                while True:
                    try:
                        conn, _ = listener.accept()
                    except BlockingIOError:
                        break
                    conn.setblocking(False)
                    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    conns[conn.fileno()] = conn
                    buffers[conn.fileno()] = b""
                    poll.register(conn.fileno(), select.EPOLLIN)
            else:
                try:
                    data = conns[fd].recv(65536)
                except OSError:
                    data = b""
                if not data:
                    drop(fd)
                    continue
                data = buffers[fd] + data
                head, sep, body = data.partition(b"\r\n\r\n")
                size = 0
                request_id = ""
                for line in head.split(b"\r\n")[1:]:
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        size = int(value)
                    elif name.lower() == b"x-request-id":
                        request_id = value.strip().decode()
                if not sep or len(body) < size:
                    buffers[fd] = data
                    continue
                buffers[fd] = body[size:]
                if head.startswith(b"GET /truth"):
                    answer = json.dumps(truth).encode()
                    truth.clear()
                    conns[fd].setblocking(True)
                    conns[fd].sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
                        + answer
                    )
                    conns[fd].setblocking(False)
                    continue
                if head.startswith(b"GET"):
                    answer = b'{"object":"list","data":[{"id":"truth"}]}'
                    conns[fd].send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
                    continue
                truth[request_id] = []
                number += 1
                heapq.heappush(due, (mono() + ttft, number, fd, request_id, 0))
        now = mono()
        while due and due[0][0] <= now:
            when, n, fd, request_id, i = heapq.heappop(due)
            conn = conns.get(fd)
            if conn is None:
                continue
            data = DELTAS[i % 100]
            if i == 0:
                data = HEAD + data
            stamp = mono()
            try:
                if i < chunks:
                    truth[request_id].append(stamp)
                    conn.send(data)
                    if i == chunks - 1:
                        conn.send(ending)
                    else:
                        heapq.heappush(due, (when + gap, n, fd, request_id, i + 1))
            except OSError:
                drop(fd)
            now = mono()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttft-ms", type=float, default=50)
    parser.add_argument("--gap-ms", type=float, default=10)
    parser.add_argument("--chunks", type=int, default=64)
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
