import json
import math
from typing import Any

import pytest

from tests.report.sample import Sample
from tests.report.studies import PROFILES, SAMPLES, profiles
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


@pytest.mark.parametrize(("done", "planned"), [(12, 12), (5, 12), (1, 12), (0, 12)])
def test_how_many_of_the_planned_runs_there_are(done: int, planned: int) -> None:
    document = json_document(profiles(done))
    study = document["study"]
    assert (study["runs"], study["planned_runs"]) == (done, planned)
    assert ("planned runs" in document["summary"]) == (done < planned)


def test_what_was_not_planned_by_the_manifest_has_no_plan() -> None:
    for name in ("searched", "troubled", "bare"):
        assert json_document(SAMPLES[name]())["study"]["planned_runs"] is None
    assert json_document(profiles(origin="imported:vllm"))["study"]["planned_runs"] is None


def test_the_profile_is_named() -> None:
    assert json_document(profiles())["study"]["profiles"] == list(PROFILES)
    assert json_document(profiles(origin="measured"))["study"]["profiles"] == []
    served = Sample()
    served.manifest |= {"hooks": {"restart": "engine"}}
    served.manifest["engine"] |= {"args": {"profile": "reference"}}
    served.add_runs(2.0, 1)
    assert json_document(served.data())["study"]["profiles"] == ["reference"]


def test_all_at_once_is_named() -> None:
    document = json_document(SAMPLES["lone"]())
    assert {(run["load_value"], run["load"]) for run in document["runs"]} == {(None, "inf")}
    assert document["study"]["simulated"] is True


def test_the_plain_lines_are_there() -> None:
    lines = json_document(SAMPLES["healthy"]())["lines"]
    assert lines[0]["lead"] == "Result" and lines[0]["text"].startswith("8 req/s meets the SLO")
