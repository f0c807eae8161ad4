"""What is known of the machine the client runs on."""

import os
import platform
import socket
from pathlib import Path


def host_facts() -> dict[str, str | int | None]:
    """Name, platform, kernel, Python and CPUs of this host, for `studies.host`."""
    return {
        "name": socket.gethostname(),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
    }


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None
