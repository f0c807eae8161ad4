"""What the worker's loop asks of a way to send requests: sockets (`wire`), or scripts in memory (`mock`)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tfbench.load.call import Call, Ending


class Transport(Protocol):
    """Carries calls. Made with two callbacks: `sent(call)` once its first byte is on its way, `done(call)` once at its
    end, after `ending`, `error` and `end_ns` were set.

    A transport adds its descriptors to the loop's poller itself. It never blocks and never raises for
    what a peer does: that is an `Ending`.
    """

    @property
    def opened(self) -> int:
        """Connections opened so far."""

    @property
    def exhausted(self) -> int:
        """Connections that failed for want of local ports, descriptors or buffers."""

    @property
    def closes_idle_ns(self) -> int | None:
        """How soon the server was seen to close a connection that had nothing to do; None: never."""

    crossed: int
    """Requests lost on a kept-alive connection that the server closed as they came."""
    stamped: bool
    """Whether reads carry kernel stamps; without them every delay in reading shows."""

    def preconnect(self, number: int, timeout_s: float) -> int:
        """Open `number` connections before the run and wait for them; how many are ready. No call is in flight yet."""

    def begin(self, call: Call) -> None:
        """Send `call`, on an idle connection or a new one. `done` may be called before this returns."""

    def serve(
        self, events: Sequence[tuple[int, int]], previous_entry_ns: int, between: Callable[[], object]
    ) -> list[int]:
        """Serve one poll's reports, (descriptor, mask); the descriptors that aren't the transport's.

        `previous_entry_ns` (CLOCK_MONOTONIC) is the entry of the poll before: what that one didn't
        report came later. `between` is called now and then, so that a long batch makes nothing late; calls may
        begin in it.
        """

    def abort(self, call: Call, ending: Ending, error: str) -> None:
        """Let go of `call` now and close its connection; nothing where it ended already."""

    def close(self) -> None:
        """Close every connection; calls still in flight are cut."""
