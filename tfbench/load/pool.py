"""Which idle connection a request may use."""

from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Generic, TypeVar

from tfbench.load.call import Call

C = TypeVar("C", bound=Hashable)


class Policy(StrEnum):
    """`endpoint.connections` of the manifest."""

    POOLED = "pooled"
    """Any idle connection, the one used last first; a new one when none is idle."""
    PER_REQUEST = "per_request"
    """A connection for each request, closed after it."""
    PER_SESSION = "per_session"
    """Each session keeps its own; a request without a session is a session of its own."""


def session_of(call: Call) -> Hashable | None:
    """The session a call belongs to, None for none: the user of a closed load."""
    return call.tick.user if call.tick.user >= 0 else None


class Pool(Generic[C]):
    """Idle connections of one worker. It opens and closes nothing itself.

    `usable` looks at an idle connection before it is given out and closes it where it is stale.
    """

    def __init__(
        self, policy: Policy, usable: Callable[[C], bool], session: Callable[[Call], Hashable | None] = session_of
    ) -> None:
        self._policy = policy
        self._usable = usable
        self._session = session
        # Insertion-ordered, so that the last one put in comes out first and any can be taken out at once.
        self._free: dict[C, None] = {}
        self._by_session: dict[Hashable, C] = {}
        self._session_of: dict[C, Hashable] = {}

    def __len__(self) -> int:
        return len(self._free) + len(self._by_session)

    def take(self, call: Call) -> C | None:
        """A live idle connection for `call`, or None when it needs a new one."""
        if self._by_session:
            own = self._by_session.pop(self._session(call), None)
            if own is not None:
                del self._session_of[own]
                if self._usable(own):
                    return own
        while self._free:
            connection, _ = self._free.popitem()
            if self._usable(connection):
                return connection
        return None

    def add(self, connection: C) -> None:
        """Put in a connection that nobody used yet."""
        self._free[connection] = None

    def give(self, connection: C, call: Call) -> bool:
        """Put back the connection that served `call`; False when it must be closed instead."""
        if self._policy is Policy.POOLED:
            self._free[connection] = None
            return True
        if self._policy is Policy.PER_REQUEST:
            return False
        session = self._session(call)
        if session is None or session in self._by_session:
            return False
        self._by_session[session] = connection
        self._session_of[connection] = session
        return True

    def drop(self, connection: C) -> None:
        """Forget a connection that was closed; nothing where it isn't idle."""
        self._free.pop(connection, None)
        session = self._session_of.pop(connection, None)
        if session is not None:
            del self._by_session[session]
