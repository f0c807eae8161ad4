"""The errors a user may see. Each is one line that names the thing and the mend.

TfbenchError
├── UsageError        exit 2: a flag, an argument or a query
│   ├── ManifestError     a manifest's field or file
│   ├── WarehouseError    a warehouse that can't be opened or is from a newer version
│   ├── BundleError       a run bundle that is damaged or not a bundle
│   └── StorageError      a file that can't be written (full disk, no permission)
├── EndpointError     exit 5: the endpoint or its infrastructure
│   └── NotReady          nobody can serve there yet; asking again may help
└── Interrupted       exit 130: Ctrl-C; what finished is kept
"""

from tfbench.core.exitcodes import ExitCode


class TfbenchError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code: ExitCode = ExitCode.USAGE


class UsageError(TfbenchError):
    """A flag, an argument or a query that can't be taken."""


class ManifestError(UsageError):
    """A manifest that can't be read, or a field of it that can't be taken."""


class WarehouseError(UsageError):
    """A warehouse that can't be opened: locked, from a newer version, or not a warehouse."""


class BundleError(UsageError):
    """A run bundle that is damaged or not a bundle."""


class StorageError(UsageError):
    """A file that can't be written: full disk, no permission."""


class EndpointError(TfbenchError):
    """The endpoint can't be reached, refuses us, or isn't what the manifest says."""

    exit_code = ExitCode.ENDPOINT


class NotReady(EndpointError):
    """Nobody can serve there yet. `answered`: a server, or a proxy before it, said so itself."""

    def __init__(self, text: str, *, answered: bool = True) -> None:
        super().__init__(text)
        self.answered = answered


class Interrupted(TfbenchError):
    """The user stopped the command; what finished is kept."""

    exit_code = ExitCode.INTERRUPTED
