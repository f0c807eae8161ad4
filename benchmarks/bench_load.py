"""The load side against a server that knows when each chunk left: one JSON line per rate.

    python benchmarks/bench_load.py --rates 50 200 400 800 --seconds 8 --workers 1
    python benchmarks/bench_load.py --tls --rates 200

Streams of 64 chunks: the first 50 ms after the request, then one each 10 ms; arrivals are Poisson. Give it a quiet
machine with a core for the server and one for the client: what else runs there is measured too.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfbench.study.fidelity import fidelity, offer, prepare, start_truth


@contextmanager
def certificate(folder: Path) -> Iterator[Path]:
    """A self-signed certificate for 127.0.0.1 that this process and its children trust while the block runs."""
    if shutil.which("openssl") is None:
        raise SystemExit("bench_load: --tls makes a certificate with the openssl command, which isn't installed")
    path = folder / "truth.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(path), "-out", str(folder / "cert.pem")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "cert.pem").read_text())
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(folder / "cert.pem")
    try:
        yield path
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def measure(rate: float, seconds: float, workers: int, seed: int, cert: Path | None) -> dict[str, Any]:
    """One load and its figures."""
    with tempfile.TemporaryDirectory() as folder, start_truth(cert=cert) as truth:
        load = {"rates": [rate], "duration_s": seconds, "seed": seed}
        offered = offer(*prepare(truth.url, load, Path(folder)), workers=workers)
        return {"tls": cert is not None} | fidelity(offered, truth.chunks())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 200, 400, 800], help="requests per second")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.tls:
            with certificate(Path(folder)) as cert:
                run(options, cert)
        else:
            run(options, None)


def run(options: argparse.Namespace, cert: Path | None) -> None:
    for rate in options.rates:
        print(json.dumps(measure(rate, options.seconds, options.workers, options.seed, cert)), flush=True)


if __name__ == "__main__":
    main()
