"""Server-sent events: bytes in, events out.

Source: WHATWG HTML Living Standard, 9.2.5 and 9.2.6 (parsing and interpreting an event stream).
Works on bytes: field names and line ends are ASCII, so a character split between two reads
can't be broken here. Two things go beyond the standard: a comment line is an event too (a ping is a fact),
and each event says where in the feed it ended, so that the caller can stamp it.
"""

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
_LF = 10
_CR = 13
_COLON = 58


class SseEvent(NamedTuple):
    """One dispatched event, or one comment line.

    data     the event's data lines joined by LF; for a comment its text
    event    the event's type, None when unnamed
    comment  whether this is a comment line
    end      offset in the feed that completed it, just after the closing line end. A LF that
             follows the closing CR is counted in when it came in the same feed.
    """

    data: bytes
    event: bytes | None
    comment: bool
    end: int


class SseParser:
    """Parses one stream, fed in pieces of any size. No input raises."""

    __slots__ = ("_buf", "_clean", "_event", "_lines", "_open", "_skip_lf", "_started")

    def __init__(self) -> None:
        self._buf = bytearray()  # bytes since the last blank line
        self._open = 0  # where the unfinished line starts in _buf
        self._lines: list[bytes] = []
        self._event: bytes | None = None
        self._skip_lf = False  # the last feed ended in CR: a LF next belongs to it
        self._started = False  # the byte order mark can only be first
        self._clean = False  # nothing is carried over to the next feed

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes, in order."""
        if not self._started and data and not self._buf and data[0] != _BOM[0]:
            self._started = self._clean = True
        if not self._clean or b"\r" in data:
            return self._parse(data, 0)
        # Nearly every event of nearly every server is one `data: …` line with LF ends.
        events = []
        pos = 0
        while data.startswith(b"data: ", pos):
            stop = data.find(b"\n", pos)
            end = stop + 2
            if stop < 0 or data[stop + 1 : end] != b"\n":
                break
            # tuple.__new__ skips SseEvent's Python-level constructor, half the cost of the event
            events.append(tuple.__new__(SseEvent, (data[pos + 6 : stop], None, False, end)))
            pos = end
        if pos < len(data):
            events += self._parse(data[pos:], pos)
        return events

    @property
    def between(self) -> bool:
        """Whether the stream stands between two events, with nothing carried over."""
        return self._clean

    @property
    def tail(self) -> bytes:
        """The bytes received but not dispatched: what an end of stream now would cut off."""
        return bytes(self._buf)

    @property
    def pending(self) -> int:
        """len(tail), without the copy: lets a caller bound an event that never ends."""
        return len(self._buf)

    def _parse(self, data: bytes, shift: int) -> list[SseEvent]:
        """The whole standard. Searches each byte once, however the stream is cut."""
        buf = self._buf
        known = len(buf)
        buf += data
        size = len(buf)
        block = 0
        if not self._started:
            if size < 3 and _BOM.startswith(bytes(buf)):
                return []
            self._started = True
            if buf.startswith(_BOM):
                block = self._open = len(_BOM)
        line = self._open
        seek = max(line, known)
        if self._skip_lf and data:
            self._skip_lf = False
            if buf[known] == _LF:
                line = seek = known + 1
                if known == 0:
                    block = line
        shift -= known
        events: list[SseEvent] = []
        lf = cr = -1
        while True:
            if lf < seek:
                lf = buf.find(_LF, seek)
                lf = size if lf < 0 else lf
            if cr < seek:
                cr = buf.find(_CR, seek)
                cr = size if cr < 0 else cr
            stop = min(lf, cr)
            if stop == size:
                break
            after = stop + 1
            if stop == cr:
                if after == size:
                    self._skip_lf = True
                elif buf[after] == _LF:
                    after += 1
            if stop == line:
                if self._lines:
                    joined = self._lines[0] if len(self._lines) == 1 else b"\n".join(self._lines)
                    events.append(SseEvent(joined, self._event, False, after + shift))
                    self._lines = []
                self._event = None
                block = after
            elif buf[line] == _COLON:
                text = bytes(buf[line + 1 : stop]).removeprefix(b" ")
                events.append(SseEvent(text, None, True, after + shift))
                if block == line:
                    block = after
            else:
                self._field(bytes(buf[line:stop]))
            line = seek = after
        self._open = line - block
        del buf[:block]
        self._clean = not buf and not self._skip_lf
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._lines.append(value.removeprefix(b" "))
        elif name == b"event":
            self._event = value.removeprefix(b" ") or None
