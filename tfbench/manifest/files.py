"""Text files of a user: read up to a bound, every fault in one line."""

from pathlib import Path

from tfbench.core.errors import ManifestError
from tfbench.manifest.limits import MAX_FILE_BYTES


def read_text(path: Path, label: str, what: str) -> str:
    """The UTF-8 text of `path`. ManifestError begins with `label`; `what` is the kind of file that is wanted."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise ManifestError(f"{label}: is a directory; give the {what} in it") from None
    except FileNotFoundError:
        raise ManifestError(f"{label}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ManifestError(f"{label}: can't be read: {reason}; check the path and its permissions") from None
    if len(data) > MAX_FILE_BYTES:
        raise ManifestError(f"{label}: over {MAX_FILE_BYTES >> 20} MiB; give a {what}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(f"{label}: not UTF-8 (line {line}); save it as UTF-8") from None
