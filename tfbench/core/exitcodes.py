"""The exit codes of every command, in one enum."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status says. No data is never a PASS."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4
    ENDPOINT = 5
    INTERRUPTED = 130
