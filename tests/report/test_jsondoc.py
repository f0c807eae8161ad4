import json
import math
from typing import Any

import pytest

from tests.report.studies import SAMPLES
from tfbench.core.jsonio import dump_text
from tfbench.report import json_document


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize("name", SAMPLES)
def test_is_json_without_nan_or_infinity(name: str) -> None:
    document = json_document(SAMPLES[name]())
    assert all(math.isfinite(n) for n in numbers(document))
    assert json.loads(json.dumps(document, allow_nan=False)) == json.loads(dump_text(document))


def test_holds_everything_a_program_needs() -> None:
    document = json_document(SAMPLES["troubled"]())
    assert document["schema"] == "tfbench.report/1"
    assert {"study_id", "manifest_id", "workload_id", "system_id"} <= set(document["study"])
    assert len(document["runs"]) == 23
    invalid = [run for run in document["runs"] if run["validity"]["verdict"] == "INVALID"]
    assert len(invalid) == 5
    assert all(run["validity"]["reasons"] for run in invalid)
    assert sum(row["n"] for row in document["outcomes"] if row["load"] == "16" and row["phase"] == "measure") == 4800
    silent = [f for f in document["figures"] if f["value"] is None and not f["reason"]]
    assert not silent
    assert {"value", "lo", "hi", "level", "method", "n", "n_eff", "k", "settled", "reason"} <= set(
        document["figures"][0]
    )


def test_all_at_once_is_named() -> None:
    document = json_document(SAMPLES["lone"]())
    assert {(run["load_value"], run["load"]) for run in document["runs"]} == {(None, "inf")}
    assert document["study"]["simulated"] is True
