"""The connections of one worker to one target: opened, found by descriptor, kept for reuse, closed.

What goes over them is the wire's.
"""

from collections import deque
from collections.abc import Callable
from itertools import count

from tfbench.load.call import Call
from tfbench.load.connection import EXHAUSTED, Connection, Refused, start_connecting
from tfbench.load.poller import READ, WRITE, Poller
from tfbench.load.pool import Policy, Pool
from tfbench.load.target import Target

_PARTING_NS = 1_000_000_000
"""How long a connection that the server said it closes is left for it to close."""
_PARTING_MOST = 512
_EARLY_NS = 500_000_000
"""So long before a server is known to close an idle connection, no request is sent over it any more."""


class Sockets:
    """Every open connection, watched by the poller.

    `usable` looks at an idle one before it is given out, and closes it where it is stale. `ahead` counts those on
    their way that no request waits for, `opened` all that ever were, `exhausted` those that failed for want of ports,
    descriptors or buffers. `closes_idle_ns`: how soon the server was seen to close one that had nothing to do, None for
    never; what comes near it is not used again, since the close and a request would cross.
    """

    def __init__(
        self,
        poller: Poller,
        target: Target,
        policy: str,
        usable: Callable[[Connection], bool],
        *,
        use_stamps: bool,
        closes_idle_ns: int | None = None,
    ) -> None:
        self._poller = poller
        self._target = target
        self._use_stamps = use_stamps
        self._pool: Pool[Connection] = Pool(Policy(policy), usable)
        self._parting: deque[tuple[int, Connection]] = deque()
        self._numbers = count()
        self.by_fd: dict[int, Connection] = {}
        self.ahead = 0
        self.opened = 0
        self.exhausted = 0
        self.closes_idle_ns: int | None = None
        self._most_idle_ns: int | None = None
        if closes_idle_ns is not None:
            self._closes_idle(closes_idle_ns)

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._pool)

    def open(self, *, ahead: bool) -> tuple[Connection, bool] | Refused:
        """A new connection on its way, and whether it is connected already; `ahead`: no request waits for it."""
        started = start_connecting(self._target, use_stamps=self._use_stamps)
        if isinstance(started, Refused):
            self.failed(started.number)
            return started
        sock, connected = started
        connection = Connection(next(self._numbers), sock)
        connection.ahead = ahead
        self.ahead += ahead
        self.opened += 1
        self.by_fd[connection.fd] = connection
        connection.mask = READ | WRITE
        self._poller.add(connection.fd, connection.mask)
        return connection, connected

    def failed(self, number: int) -> None:
        """Note the errno of an attempt to connect."""
        self.exhausted += number in EXHAUSTED

    def watch(self, connection: Connection, mask: int) -> None:
        """Have the poller report this from now on."""
        if connection.mask != mask:
            connection.mask = mask
            self._poller.change(connection.fd, mask)

    def take(self, call: Call, now_ns: int) -> Connection | None:
        """A live idle connection for `call`, or None when it needs a new one."""
        if self._parting:
            self._part(now_ns)
        return self._pool.take(call)

    def ready(self, connection: Connection) -> None:
        """One opened ahead can take requests."""
        self.ahead -= 1
        connection.ahead = False
        self._pool.add(connection)

    def give(self, connection: Connection, call: Call, now_ns: int) -> None:
        """Keep the connection that served `call` for another, or close it, as the policy says."""
        connection.idle_since_ns = now_ns
        if self._most_idle_ns == 0:
            self.part(connection, now_ns)
        elif not self._pool.give(connection, call):
            self.shut(connection)

    def is_fresh(self, connection: Connection, now_ns: int) -> bool:
        """Whether an idle connection has long before the server closes it, as far as that is known."""
        if connection.idle_until_ns and now_ns >= connection.idle_until_ns:
            return False
        since_ns, most_ns = connection.idle_since_ns, self._most_idle_ns
        return most_ns is None or not since_ns or now_ns - since_ns < most_ns

    def found_closed(self, connection: Connection, at_ns: int) -> None:
        """Learn from a connection that the server closed by `at_ns` while it had nothing to do."""
        if connection.idle_since_ns and connection.idle_since_ns <= at_ns:
            self._closes_idle(at_ns - connection.idle_since_ns)

    def _closes_idle(self, idle_ns: int) -> None:
        if self.closes_idle_ns is None or idle_ns < self.closes_idle_ns:
            self.closes_idle_ns = idle_ns
            self._most_idle_ns = max(idle_ns - max(_EARLY_NS, idle_ns // 10), 0)

    def part(self, connection: Connection, now_ns: int) -> None:
        """Let the server close it, as it promised: whoever closes first keeps the port busy for a minute."""
        connection.idle_since_ns = 0  # nothing is learned from a close that was promised
        self._parting.append((now_ns + _PARTING_NS, connection))

    def _part(self, now_ns: int) -> None:
        while self._parting and (self._parting[0][0] <= now_ns or len(self._parting) > _PARTING_MOST):
            self.shut(self._parting.popleft()[1])

    def shut(self, connection: Connection) -> None:
        """Close it now; nothing where it is closed."""
        if connection.fd < 0:
            return
        self._poller.drop(connection.fd)
        del self.by_fd[connection.fd]
        self._pool.drop(connection)
        self.ahead -= connection.ahead
        connection.release()
