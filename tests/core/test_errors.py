"""The tree of errors and its exit codes."""

import pytest

from tfbench.core import errors
from tfbench.core.exitcodes import ExitCode


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("UsageError", ExitCode.USAGE),
        ("ManifestError", ExitCode.USAGE),
        ("WarehouseError", ExitCode.USAGE),
        ("BundleError", ExitCode.USAGE),
        ("StorageError", ExitCode.USAGE),
        ("EndpointError", ExitCode.ENDPOINT),
        ("Interrupted", ExitCode.INTERRUPTED),
    ],
)
def test_exit_codes(name: str, code: ExitCode) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.TfbenchError)
    assert kind("x").exit_code == code


def test_the_numbers_are_the_contract() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "PASS": 0,
        "FAIL": 1,
        "USAGE": 2,
        "INCONCLUSIVE": 3,
        "INVALID": 4,
        "ENDPOINT": 5,
        "INTERRUPTED": 130,
    }
