"""What tfbench costs before it measures anything: its install size and the time `tfbench --help` takes. Prints JSON.

Both are taken in a fresh environment made for this run with the pinned base dependencies and the wheel, so what a
developer has added to .venv doesn't count. Needs a package index.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
HELP_RUNS = 15
HELP_LIMIT_S = 0.3
SIZE_LIMIT_MB = 750
LARGEST = 10


def install(env: Path) -> None:
    pip = [str(env / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    pinned = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(REPO / "constraints.txt")]
    subprocess.run([*pip, *pinned], check=True, stdout=sys.stderr)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(REPO)], check=True, stdout=sys.stderr)


def size_mb(path: Path) -> float:
    """Disk blocks in use, in 1e6 bytes; a hard-linked file counts once."""
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            facts = (Path(folder) / name).lstat()
            seen[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
    return round(sum(seen.values()) / 1e6, 1)


def help_seconds(tfbench: Path) -> list[float]:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([tfbench, "--help"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    once()  # reads the files and writes the bytecode
    return [once() for _ in range(HELP_RUNS)]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        env = Path(folder) / "venv"
        venv.create(env, with_pip=True)
        start = time.perf_counter()
        install(env)
        install_s = time.perf_counter() - start
        total = size_mb(env)
        packages = next((env / "lib").glob("python3*/site-packages"))
        sizes = {p.name: size_mb(p) for p in packages.iterdir() if p.is_dir()}
        times = help_seconds(env / "bin" / "tfbench")
    small, fast = total < SIZE_LIMIT_MB, statistics.median(times) < HELP_LIMIT_S
    install_facts = {
        "seconds": round(install_s, 1),
        "mb": total,
        "limit_mb": SIZE_LIMIT_MB,
        "within_limit": small,
        "largest_mb": dict(sorted(sizes.items(), key=lambda item: -item[1])[:LARGEST]),
    }
    help_facts = {
        "runs": HELP_RUNS,
        "min_s": round(min(times), 4),
        "median_s": round(statistics.median(times), 4),
        "limit_s": HELP_LIMIT_S,
        "within_limit": fast,
    }
    facts = {"benchmark": "footprint", "python": sys.version.split()[0], "install": install_facts, "help": help_facts}
    print(json.dumps(facts, indent=2))
    return 0 if small and fast else 1


if __name__ == "__main__":
    sys.exit(main())
