"""Progress of a worker, told to its parent without ever waiting for it."""

import os


class Reporter:
    """Writes progress lines to a pipe, dropping them rather than waiting for a slow reader."""

    def __init__(self, fd: int, every_s: float = 0.25) -> None:
        self._fd = fd
        self.every_ns = int(every_s * 1e9)
        self.last_ns = 0
        os.set_blocking(fd, False)

    def tell(self, word: str) -> None:
        """One JSON line that must arrive: the pipe is emptied four times a second, so this waits little."""
        os.set_blocking(self._fd, True)
        os.write(self._fd, f'{{"{word}":true}}\n'.encode())
        os.set_blocking(self._fd, False)

    def send(self, now_ns: int, counts: dict[str, int | float]) -> None:
        """One JSON line of `counts`."""
        self.last_ns = now_ns
        text = ",".join(f'"{key}":{value}' for key, value in counts.items())
        try:
            os.write(self._fd, f'{{"progress":{{{text}}}}}\n'.encode())
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The parent is gone; the command pipe's end tells the loop to stop.
            return
