"""Coming first on a busy machine: whoever waits for the processor measures, or paces, his own wait."""

import os

_NICE = -10


def take_precedence() -> str:
    """Ask for the CPU before others do, where that is allowed; returns what is in force.

    A client that waits behind other processes measures their scheduling. It uses little CPU, so going
    first costs them little; and a realtime process can't take more than the kernel's share for those. Its
    children don't inherit it.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return "round-robin 1"
    except (AttributeError, OSError):
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    except OSError:
        return f"nice {os.getpriority(os.PRIO_PROCESS, 0)}"
    return f"nice {_NICE}"
