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
from scipy import stats

from tfbench.manifest import expand, parse_manifest
from tfbench.workload import Workload, build_workload
from tfbench.workload.words import WORDS


def workloads(
    repeats: int = 1,
    seed: int = 7,
    model: str = "m",
    cap: int | None = None,
    cancel: dict[str, float] | None = None,
    **tables: Any,
) -> list[Workload]:
    document = {
        "model": {"name": model, "lora": ["x", "y"]},
        "sampling": {"max_tokens": cap},
        "workload": tables,
        "load": {"rates": [2, 4], "repeats": repeats, "seed": seed, "cancel": cancel},
    }
    manifest = parse_manifest(document, "test")
    plans = sorted(expand(manifest), key=lambda plan: (plan.repeat, plan.point_index))
    return [build_workload(manifest, plan) for plan in plans]


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


@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_runs_prompts_share_their_prefix_and_nothing_else(n: int) -> None:
    runs = workloads(repeats=2, input_tokens=5, shared_prefix_tokens=n)
    plain = workloads(repeats=2, input_tokens=5)
    prefixes = []
    for run, without in zip(runs, plain, strict=True):
        items = [run.item(i) for i in range(50)]
        words = [item.prompt.split(" ") for item in items]
        assert {len(one) for one in words} == {item.input_tokens for item in items} == {n + 5}
        assert [" ".join(one[n:]) for one in words] == [without.item(i).prompt for i in range(50)]
        [prefix] = {tuple(one[:n]) for one in words}
        prefixes.append(prefix)
    assert len({prefix[0] for prefix in prefixes}) == 4, "no run shares its first word with another"
    assert all(len(re.findall("[A-Z]", prefix[0])) == 4 for prefix in prefixes)


def test_an_item_without_its_text_is_the_same_otherwise() -> None:
    run = workloads(cancel={"share": 0.5, "after_s": 1}, input_tokens=4, classes=CLASSES, shared_prefix_tokens=3)[0]
    for i in range(50):
        assert run.item(i, text=False) == run.item(i)._replace(prompt="")


def test_these_are_the_prompts() -> None:
    # A change that alters published prompts must be seen here.
    run = workloads(input_tokens=6)[0]
    assert run.item(0).prompt == "PlaySharpProperManage glow golden doubt radar shell"
    assert run.item(10**9).prompt == "CastAmountExistEcho fence wide sharp verb eagle"
    prefixed = workloads(input_tokens=2, shared_prefix_tokens=3)[0]
    assert prefixed.item(0).prompt == "SeasonDockAboveTunnel down peach PlaySharpProperManage glow"


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


CLASSES: list[dict[str, Any]] = [
    {"name": "chat", "share": 6, "tenant": "a"},
    {"name": "batch", "share": 3, "tenant": "b", "lora": "x", "input_tokens": 9, "output_tokens": 90},
    {"name": "pairs", "share": 1, "lora": "y", "input_tokens": {"dist": "empirical", "pairs": [[2, 20], [3, 30]]}},
]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_classes_come_in_their_shares(seed: int) -> None:
    n = 5000
    drawn = Counter(workloads(seed=seed, input_tokens=4, classes=CLASSES)[0].item(i).class_name for i in range(n))
    for one in CLASSES:
        assert stats.binomtest(drawn[one["name"]], n, one["share"] / 10).pvalue > 1e-4
    # The test can tell: a tenth more or less fails it.
    assert stats.binomtest(drawn["chat"], n, 0.66).pvalue < 1e-4


def test_a_class_brings_its_lengths_and_labels() -> None:
    run = workloads(input_tokens=4, output_tokens=40, cap=80, classes=CLASSES)[0]
    seen = {(i.class_name, i.tenant, i.lora, i.input_tokens, i.max_tokens) for i in map(run.item, range(500))}
    assert seen == {
        ("chat", "a", None, 4, 40),
        ("batch", "b", "x", 9, 80),
        ("pairs", None, "y", 2, 20),
        ("pairs", None, "y", 3, 30),
    }
    assert all(len(run.item(i).prompt.split(" ")) == run.item(i).input_tokens for i in range(100))


def test_a_class_takes_the_workloads_pairs() -> None:
    pairs = {"dist": "empirical", "pairs": [[5, 50]]}
    run = workloads(input_tokens=pairs, classes=[{"name": "a", "share": 0.1}])[0]
    assert {(run.item(i).class_name, run.item(i).max_tokens) for i in range(20)} == {("a", 50)}


def test_without_classes_and_cancellation_an_item_has_neither() -> None:
    item = workloads(input_tokens=4)[0].item(3)
    assert (item.class_name, item.tenant, item.lora, item.cancel) == (None, None, None, False)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cancelled_items_come_in_their_share_whatever_the_class(seed: int, share: float) -> None:
    n = 5000
    run = workloads(seed=seed, cancel={"share": share, "after_s": 1}, input_tokens=4, classes=CLASSES)[0]
    items = [run.item(i) for i in range(n)]
    assert [run.cancelled(i) for i in range(n)] == [item.cancel for item in items]
    assert stats.binomtest(sum(item.cancel for item in items), n, share).pvalue > 1e-4
    chats = [item.cancel for item in items if item.class_name == "chat"]
    assert stats.binomtest(sum(chats), len(chats), share).pvalue > 1e-4
    # Neighbours are drawn independently.
    both = sum(a.cancel and b.cancel for a, b in itertools.pairwise(items))
    assert both == pytest.approx(n * share**2, abs=5 * (n * share**2) ** 0.5 + 5)


def test_a_share_of_one_cancels_everything() -> None:
    run = workloads(cancel={"share": 1, "after_chunks": 3}, input_tokens=4)[0]
    assert all(run.item(i).cancel for i in range(200))


def test_the_mix_is_deterministic_differs_between_runs_and_leaves_prompts_alone() -> None:
    cancel = {"share": 0.3, "after_s": 1}
    one, other = workloads(cancel=cancel, input_tokens=4, classes=CLASSES)
    again = pickle.loads(pickle.dumps(one))
    labels = [[(i.class_name, i.cancel) for i in map(run.item, range(200))] for run in (one, again, other)]
    assert labels[0] == labels[1] != labels[2]
    assert [one.cancelled(i) for i in range(50)] == [
        run.item(i).cancel for run in workloads(cancel=cancel, input_tokens=700)[:1] for i in range(50)
    ]
    plain, mixed = (
        workloads(input_tokens=6)[0],
        workloads(input_tokens=6, cancel=cancel, classes=[{"name": "a", "share": 1}, {"name": "b", "share": 1}])[0],
    )
    assert plain.sha256(50) == mixed.sha256(50)


def test_these_are_the_draws() -> None:
    run = workloads(cancel={"share": 0.5, "after_s": 1}, input_tokens=4, classes=CLASSES)[0]
    names = "".join(str(run.item(i).class_name)[0] for i in range(12))
    assert (names, "".join("01"[run.cancelled(i)] for i in range(12))) == ("bcccccbbcbbb", "100110111110")
