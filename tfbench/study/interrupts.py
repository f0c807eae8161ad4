"""Ctrl-C while facts are at stake: counted, not raised."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_interrupts() -> Iterator[Callable[[], int]]:
    """While the block runs Ctrl-C only counts; the yielded function says how often it was pressed.

    Outside the main thread, where no handler can be set, the count stays 0.
    """
    presses = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        del number, frame
        presses += 1

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: presses
    finally:
        signal.signal(signal.SIGINT, before)
