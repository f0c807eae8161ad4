"""The Python API: every name it lists is there, and importing the package is cheap."""

import subprocess
import sys

import tfbench


def test_every_listed_name_is_there() -> None:
    assert {name for name in tfbench.__all__ if not hasattr(tfbench, name)} == set()
    assert len(set(tfbench.__all__)) == len(tfbench.__all__)


def test_importing_the_package_and_the_command_line_loads_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "duckdb", "pyarrow", "scipy", "plotly", "pydantic", "aiohttp", "httpx", "jinja2"}
    code = f"import sys, tfbench, tfbench.cli.main, tfbench.cli.app; print(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
