"""The whole line once: start a server, measure it, write the report. `make demo` and `make demo-real` run this.

The measuring goes through the tfbench command, as a person would use it. Runs that this machine disturbed (exit 4),
and a search that decided nothing (exit 3), still have a report worth reading, which says so; any other trouble ends
the demo.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import httpx

from tfbench.core.errors import TfbenchError
from tfbench.core.exitcodes import ExitCode
from tfbench.engine.process import start_engine

REPO = Path(__file__).resolve().parent.parent
TFBENCH = Path(sys.executable).with_name("tfbench")
HAS_A_REPORT = (ExitCode.PASS, ExitCode.INCONCLUSIVE, ExitCode.INVALID)
TOKENS_COUNTER = re.compile(r"^llamacpp:tokens_predicted_total (\S+)$", re.MULTILINE)


def tfbench(*arguments: str | Path) -> None:
    status = subprocess.run([TFBENCH, *arguments], check=False).returncode
    if status not in HAS_A_REPORT:
        raise SystemExit(status)


def measure(verb: str, manifest: str, url: str, out: Path, *options: str) -> None:
    """Measures the server as the manifest says; leaves warehouse.duckdb and report.html in `out`."""
    warehouse = out / "warehouse.duckdb"
    tfbench(verb, REPO / "manifests" / manifest, "--url", url, "--warehouse", warehouse, *options)
    tfbench("report", "last", "--warehouse", warehouse, "--html", out / "report.html")


def measure_reference(out: Path) -> None:
    try:
        with start_engine() as engine:
            measure("run", "quickstart.toml", engine.url, out)
    except TfbenchError as error:
        raise SystemExit(f"error: {error}") from None


# The highest rate at which three of four answers keep the SLO: what three minutes can tell of so slow a server. Its
# operating curve is in the report too. A TTFT limit near the one it has when idle makes an overload show in short runs.
SEARCH = ("--target", "good_fraction=0.75", "--budget-s", "180", "--set", "load.rates=[4]", "--set", "slo.ttft_ms=1500")


def measure_real(python_env: Path, out: Path) -> None:
    """Searches a real server's capacity, and holds the ledger's output tokens against the server's own count."""
    sys.path.insert(0, str(REPO))
    from real.llama_server import StartError, start_llama_server

    try:
        with start_llama_server(python_env) as url:
            before = tokens_served(url)
            measure("capacity", "llama-server.toml", url, out, *SEARCH)
            served = tokens_served(url) - before
    except StartError as error:
        raise SystemExit(f"error: {error}") from None
    recorded = tokens_recorded(out / "warehouse.duckdb")
    print(f"\nOutput tokens: {served} by llama-server's own count, {recorded} in the ledger.")
    if served != recorded:
        raise SystemExit("error: these should be equal")


def tokens_served(url: str) -> int:
    """llama.cpp's own count of the tokens it has generated since its start."""
    page = httpx.get(url.removesuffix("/v1") + "/metrics", timeout=10).text
    found = TOKENS_COUNTER.search(page)
    if found is None:
        raise SystemExit("error: the server's /metrics lacks llamacpp:tokens_predicted_total")
    return int(float(found[1]))


def tokens_recorded(warehouse: Path) -> int:
    with duckdb.connect(str(warehouse), read_only=True) as con:
        row = con.execute("SELECT coalesce(sum(output_tokens), 0) FROM attempts").fetchone()
    return int(row[0]) if row else 0


def show_next(out: Path) -> None:
    tool = TFBENCH.relative_to(REPO) if TFBENCH.is_relative_to(REPO) else TFBENCH
    print(f"""
Report:     {out}/report.html (one file, opens offline in any browser)
Warehouse:  {out}/warehouse.duckdb
            {tool} sql --warehouse {out}/warehouse.duckdb "select phase, outcome, count(*) from attempts group by all"

Your own server next, any that speaks the OpenAI API:
  {tool} run manifests/own-server.toml --url http://HOST:PORT/v1 --set model.name=NAME     # about 16 minutes
  {tool} report last --html report.html""")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a server on this machine and write the report.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the warehouse and the report")
    parser.add_argument("--real", type=Path, metavar="ENV", help="measure the llama-server in this environment instead")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.real:
        measure_real(options.real, options.out)
    else:
        measure_reference(options.out)
    show_next(options.out)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
