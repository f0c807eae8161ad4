"""Standard output and error as every verb writes them: nothing is lost in silence, and nobody is blamed for leaving.

Python notices a failed write wherever a buffer happens to be flushed, the interpreter's exit included, and libraries
take it in their own ways. Here it is met where it happens, under all buffers.
"""

import io
import os
import select
import sys
from typing import Any, TextIO

from tfbench.core.errors import StorageError


class _Descriptor(io.FileIO):
    """A standard stream's descriptor. Once a write has failed, what follows is dropped."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.told_as = name
        self.dropping = False

    def write(self, data: Any, /) -> int:
        if not self.dropping:
            try:
                while (count := super().write(data)) is None:  # a pipe somebody made non-blocking is full
                    select.select([], [self], [])
                return count
            except BrokenPipeError:
                self.dropping = True  # the reader left, as `head` does; the exit code is still the work's
            except OSError as error:
                self.dropping = True
                if self.told_as == "stdout":
                    raise StorageError(
                        f"{self.told_as}: can't write: {error.strerror}; free space or send it elsewhere"
                    ) from error
        return memoryview(data).nbytes


def guard_output() -> None:
    """Put the guard under sys.stdout and sys.stderr; a stream that is closed or was replaced is left alone.

    From then on a full disk under stdout raises StorageError once; a reader who left, and any trouble under stderr,
    where nobody could be told, raise nothing.
    """
    sys.stdout = _guarded(sys.stdout, sys.__stdout__, "stdout")
    sys.stderr = _guarded(sys.stderr, sys.__stderr__, "stderr")


def _guarded(stream: TextIO | None, original: TextIO | None, name: str) -> TextIO:
    if stream is None:  # closed by the caller; what is opened next must not be taken for it
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(stream.fileno(), name)),
        encoding=stream.encoding,
        errors="backslashreplace",  # a character that the terminal's encoding lacks is no reason to fail
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
