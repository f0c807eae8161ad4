"""Prompts: deterministic, right in length, and different from the first word on."""

import hashlib
import itertools
import pickle
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.manifest import expand, parse_manifest
from tfbench.workload import Workload, build_workload
from tfbench.workload.words import WORDS


def workloads(
    repeats: int = 1, seed: int = 7, model: str = "m", cap: int | None = None, **tables: Any
) -> list[Workload]:
    document = {
        "model": {"name": model},
        "sampling": {"max_tokens": cap},
        "workload": tables,
        "load": {"rates": [2, 4], "repeats": repeats, "seed": seed},
    }
    manifest = parse_manifest(document, "test")
    return [build_workload(manifest, plan) for plan in expand(manifest)]


def test_words_are_1024_distinct_short_and_plain() -> None:
    assert len(set(WORDS)) == len(WORDS) == 1024
    assert all(re.fullmatch("[a-z]{4,6}", word) for word in WORDS)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 700), i=st.integers(0, 10_000_000))
def test_a_prompt_of_n_tokens_has_n_words(n: int, i: int) -> None:
    item = workloads(input_tokens=n)[0].item(i)
    first, *others = item.prompt.split(" ")
    assert len(others) == n - 1
    assert item.input_tokens == n
    assert [part.lower() in WORDS for part in re.findall("[A-Z][a-z]+", first)] == [True] * 4
    assert set(others) <= set(WORDS)


def test_no_two_prompts_of_a_study_share_a_first_word() -> None:
    runs = workloads(repeats=3, input_tokens=4)
    firsts = [run.item(i).prompt.split(" ")[0] for run in runs for i in range(5_000)]
    assert len(set(firsts)) == len(firsts) == 30_000


def test_words_are_drawn_evenly_and_independently() -> None:
    run = workloads(input_tokens=513)[0]
    counts = Counter(word for i in range(400) for word in run.item(i).prompt.split(" ")[1:])
    assert len(counts) == 1024
    assert 120 < min(counts.values()) <= max(counts.values()) < 290  # 200 ± 6 standard deviations
    prompts = [run.item(i).prompt.split(" ")[1:] for i in range(50)]
    alike = sum(a == b for one, two in itertools.pairwise(prompts) for a, b in zip(one, two, strict=True))
    assert alike < 60  # 24.5 expected


def test_items_are_the_same_in_any_order_on_any_worker() -> None:
    run = workloads(input_tokens={"dist": "lognormal", "mean": 64, "cv": 0.8})[0]
    items = [run.item(i) for i in range(50)]
    worker = pickle.loads(pickle.dumps(run))
    assert [worker.item(i) for i in reversed(range(50))] == items[::-1]


def test_same_manifest_and_seed_give_the_same_prompts_on_every_system() -> None:
    hashes = [run.sha256(20) for run in workloads(repeats=3)]
    assert hashes == [run.sha256(20) for run in workloads(repeats=3, model="other")]
    assert len(set(hashes)) == 6
    assert not set(hashes) & {run.sha256(20) for run in workloads(repeats=3, seed=8)}


def test_these_are_the_prompts() -> None:
    # A change that alters published prompts must be seen here.
    run = workloads(input_tokens=6)[0]
    assert run.item(0).prompt == "PlaySharpProperManage glow golden doubt radar shell"
    assert run.item(10**9).prompt == "CastAmountExistEcho fence wide sharp verb eagle"


def test_hash_is_over_lengths_and_prompts() -> None:
    run = workloads(input_tokens=3)[0]
    digest = hashlib.sha256()
    for i in range(2):
        prompt = run.item(i).prompt.encode()
        digest.update(len(prompt).to_bytes(8, "little") + prompt)
    assert run.sha256(2) == digest.hexdigest()
    assert run.sha256(0) == hashlib.sha256().hexdigest()


def test_lengths_follow_their_distributions() -> None:
    run = workloads(
        input_tokens={"dist": "lognormal", "mean": 40, "cv": 0.5},
        output_tokens={"dist": "uniform", "min": 10, "max": 30},
    )[0]
    items = [run.item(i) for i in range(4000)]
    inputs, outputs = [item.input_tokens for item in items], [item.max_tokens for item in items]
    assert sum(inputs) / 4000 == pytest.approx(40, abs=4 * 20 / 4000**0.5)
    assert (min(outputs), max(outputs)) == (10, 30)
    assert sum(outputs) / 4000 == pytest.approx(20, abs=4 * 6.06 / 4000**0.5)
    # Prompt and answer are drawn independently.
    mean_in, mean_out = sum(inputs) / 4000, sum(outputs) / 4000
    covariance = sum((a - mean_in) * (b - mean_out) for a, b in zip(inputs, outputs, strict=True)) / 4000
    assert abs(covariance) < 4 * 20 * 6.06 / 4000**0.5


def test_pairs_are_drawn_together() -> None:
    run = workloads(input_tokens={"dist": "empirical", "pairs": [[5, 50], [7, 70]], "weights": [3, 1]})[0]
    drawn = Counter((run.item(i).input_tokens, run.item(i).max_tokens) for i in range(2000))
    assert set(drawn) == {(5, 50), (7, 70)}
    assert drawn[5, 50] == pytest.approx(1500, abs=80)


def test_sampling_max_tokens_caps_the_answers() -> None:
    run = workloads(cap=20, output_tokens={"dist": "uniform", "min": 10, "max": 30})[0]
    assert max(run.item(i).max_tokens for i in range(200)) == 20
    paired = workloads(cap=60, input_tokens={"dist": "empirical", "pairs": [[5, 50], [7, 70]]})[0]
    assert {paired.item(i).max_tokens for i in range(50)} == {50, 60}
