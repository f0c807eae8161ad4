"""TLS over memory buffers: ciphertext keeps the kernel stamp that came with it.

The socket is read with recvmsg like any other; what was read goes through an ssl.MemoryBIO.
"""

import ssl

MAX_OVERHANG_BYTES = 1 << 15
"""How much more plaintext than ciphertext one read can give: a record begun in an earlier read."""
_WRITE_BYTES = 1 << 16
_SELF_SIGNED = {18, 19, 20, 21}
_NOT_YET, _EXPIRED = 9, 10
_WRONG_NAME = {62, 64}


def tls_trouble(error: ssl.SSLError, host: str) -> str:
    """What went wrong in a handshake with `host`, and what mends it, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        said = error.verify_message or str(error)
        if code in _WRONG_NAME:
            return f"TLS: the server's certificate isn't for {host!r}; use the name it was made for in endpoint.url"
        if code in _SELF_SIGNED:
            return f"TLS: the server's certificate isn't trusted ({said}); set SSL_CERT_FILE to its CA's PEM file"
        if code in (_NOT_YET, _EXPIRED):
            return f"TLS: the server's certificate isn't valid now ({said}); renew it, or check this machine's clock"
        return f"TLS: the server's certificate was refused ({said})"
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return f"TLS: the server doesn't speak TLS there ({reason}); is it http:// rather than https://?"
    if "NO_APPLICATION_PROTOCOL" in reason:
        return f"TLS: the server refuses HTTP/1.1 ({reason})"
    return f"TLS: {reason}"


class TlsLayer:
    """The TLS of one connection; it touches no socket.

    `outgoing` is ciphertext to send. `ended` says that the peer closed properly (close_notify), which
    a bare end of the connection does not tell from an attack.
    """

    __slots__ = ("_incoming", "_plain", "_plain_view", "_secure", "_unsent", "ended", "failed", "midway", "outgoing")

    def __init__(self, context: ssl.SSLContext, host: str, plain: bytearray) -> None:
        """`plain` takes decrypted bytes; connections may share it, since each read is used up at once."""
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self._secure = context.wrap_bio(self._incoming, self.outgoing, server_hostname=host)
        self._plain = plain
        self._plain_view = memoryview(plain)
        self._unsent: memoryview | None = None
        self.ended = False
        self.failed: ssl.SSLError | None = None
        self.midway = False

    def handshake(self, data: memoryview | bytes) -> bool:
        """Go on with the handshake; True when it is done. Raises ssl.SSLError."""
        if data:
            self._incoming.write(data)
        try:
            self._secure.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take(self, data: memoryview | bytes) -> tuple[memoryview, bool]:
        """Decrypt one read: (plaintext, whether its last byte came with the read's last byte).

        The plaintext lies in the shared buffer. `midway` is set while a record is only partly there,
        `failed` when what followed the plaintext couldn't be decrypted or was an alert.
        """
        incoming, secure, view = self._incoming, self._secure, self._plain_view
        incoming.write(data)
        size = 0
        exact = True
        try:
            while incoming.pending or secure.pending():
                got = secure.read(len(view) - size, view[size:])
                if not got:
                    self.ended = True
                    exact = False
                    break
                size += int(got)
            self.midway = False
        except ssl.SSLWantReadError:
            # Part of a record, or one that carries no data (a session ticket), came last.
            self.midway = True
            exact = False
        except ssl.SSLError as error:
            self.failed = error
            exact = False
        return view[:size], exact

    def send(self, data: bytes) -> None:
        """Queue `data`; `ciphertext` gives it piece by piece."""
        self._unsent = memoryview(data)

    @property
    def over(self) -> bool:
        """Whether nothing more can come."""
        return self.ended or self.failed is not None

    @property
    def sending(self) -> bool:
        """Whether `ciphertext` has more to give."""
        return self._unsent is not None or self.outgoing.pending > 0

    def ciphertext(self) -> bytes:
        """The next bytes for the socket, b"" when there are none. Large bodies are encrypted as they go out."""
        unsent = self._unsent
        if unsent and not self.outgoing.pending:
            self._secure.write(unsent[:_WRITE_BYTES])
            self._unsent = unsent[_WRITE_BYTES:] or None
        return self.outgoing.read()
