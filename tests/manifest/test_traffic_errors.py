"""Bad values of what shapes load: retries, cancellation, ramps, replay, classes, connections."""

from pathlib import Path

import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import load_manifest, parse_manifest

TEXT_AND_COMPLAINT = {
    # Retries.
    "[load]\nretry = { outcomes = ['ok'] }": ('load.retry.outcomes: "ok" has nothing to retry; remove it'),
    "[load]\nretry = { outcomes = ['unfinished'] }": (
        'load.retry.outcomes: "unfinished" comes when the run is over; remove it'
    ),
    "[load]\nretry = { outcomes = ['rejected', 'rejected'] }": (
        'load.retry.outcomes: has "rejected" twice; keep it once'
    ),
    "[load]\nretry = { outcomes = [] }": (
        'load.retry.outcomes: must not be empty; for example outcomes = ["rejected", "connect_error"]'
    ),
    "[load]\nretry = { max = 0 }": ("load.retry.max: must be at least 1, got 0; for example max = 2"),
    "[load]\nretry = { factor = 0.5 }": ("load.retry.factor: must be at least 1, got 0.5; for example factor = 2"),
    "[load]\nretry = { cap_s = 0.1 }": ("load.retry.cap_s: 0.1 is below backoff_s 0.5; raise it"),
    "[load]\nretry = { tries = 1 }": (
        "load.retry.tries: unknown key; load.retry has: outcomes, max, backoff_s, factor, cap_s, honour_retry_after"
    ),
    "[load]\nretry = 3": ("load.retry: expected a table, got 3; write it as [load.retry]"),
    # Planned cancellation.
    "[load]\ncancel = { after_s = 1 }": ("load.cancel.share: is required; add it; for example share = 0.05"),
    "[load]\ncancel = { share = 0.1 }": (
        "load.cancel.after_s: needs exactly one of after_s and after_chunks; for example after_s = 0.5"
    ),
    "[load]\ncancel = { share = 0.1, after_s = 1, after_chunks = 2 }": (
        "load.cancel.after_s: needs exactly one of after_s and after_chunks; for example after_s = 0.5"
    ),
    "[load]\ncancel = { share = 1.5, after_s = 1 }": (
        "load.cancel.share: must be at most 1, got 1.5; for example share = 0.05"
    ),
    "[load]\nshare = 0.1": ("load.share: unknown key here; it is load.cancel.share, so move it there"),
    "[load]\ncancel = { share = 0.1, after_chunks = 3 }\n[endpoint]\nstream = false": (
        "load.cancel.after_chunks: needs endpoint.stream = true; give after_s instead"
    ),
    # Ramps.
    "[load]\nramp = {}": ("load.ramp.to: is required; add it; for example to = 16"),
    "[load]\nramp = 16": ("load.ramp: expected a table, got 16; write it as [load.ramp]"),
    "[load]\nramp = { to = 0 }": ("load.ramp.to: must be above 0, got 0; for example to = 16"),
    "[load]\nramp = { to = 3, shape = 'lineer' }": (
        'load.ramp.shape: expected "linear" or "exponential", got "lineer"; did you mean "linear"?'
    ),
    "[load]\nramp = { to = 3 }\ncount = 3": ("load.ramp: moves the rate over duration_s; give that instead of count"),
    "[load]\nramp = { to = 3 }\nmode = 'closed'": (
        'load.ramp: belongs to an open loop; remove it, or set mode = "open"'
    ),
    "[load]\nramp = { to = 1e9 }": (
        "load.rates: 1 req/s moving to 1,000,000,000 makes 60,000,000,040 scheduled arrivals, "
        "over the limit of 10,000,000; lower rates, duration_s or count"
    ),
    "[load]\nrates = [0.001]\nramp = { to = 0.002 }": (
        "load.rates: 0.0015 req/s × 60 s expects less than one request; raise rates or duration_s"
    ),
    "[load]\nramp = { to = 3 }\ntimestamps = [0]": (
        'load.ramp: has no meaning with process = "replay"; remove one of them'
    ),
    # Replay.
    "[load]\nprocess = 'replay'": (
        'load.timestamps: is required with process = "replay"; for example timestamps = "arrivals.csv"'
    ),
    "[load]\ntimestamps = [0, 1]\nprocess = 'poisson'": (
        'load.timestamps: belongs to process = "replay"; set it, or remove timestamps'
    ),
    "[load]\ntimestamps = [0, 1]\nmode = 'closed'": (
        'load.timestamps: belongs to an open loop; remove it, or set mode = "open"'
    ),
    "[load]\ntimestamps = []": ('load.timestamps: must not be empty; for example timestamps = "arrivals.csv"'),
    "[load]\ntimestamps = [0, 2, 1]": ("load.timestamps[2]: 1 is earlier than the one before it, 2; sort them"),
    "[load]\ntimestamps = [-1]": (
        'load.timestamps[0]: must be at least 0, got -1; for example timestamps = "arrivals.csv"'
    ),
    "[load]\ntimestamps = 5": ('load.timestamps: expected a list, got 5; for example timestamps = "arrivals.csv"'),
    "[load]\ntimestamps = [1, 2]\nwarmup_s = 1": (
        "load.warmup_s: must be 0, the default, where all timestamps are measured; otherwise give "
        "duration_s or count too"
    ),
    "[load]\ntimestamps = [1, 2]\nwarmup_s = 2\ncount = 2": (
        "load.count: wants 2 measured requests, but at speed 1 only 1 timestamps come after the "
        "warm-up; lower count or warmup_s"
    ),
    "[load]\ntimestamps = [1, 2]\nwarmup_s = 3\nduration_s = 3": (
        "load.timestamps: at speed 1 no timestamp lies in the window, 3 to 6 s; change warmup_s or duration_s"
    ),
    "[load]\ntimestamps = [1, 2]\nduration_s = 10": (
        "load.timestamps: end at 2 s at speed 1, so more than half of the window (to 10 s) is idle; lower duration_s"
    ),
    "[load]\ntimestamps = [1, 2]\nrates = [inf]": (
        'load.rates: has inf, which is no speed for a replay; for all at once set process = "poisson"'
    ),
    "[load]\ntimestamps = [1, 2]\nrates = [1e-9]": (
        "load.rates: speed 1e-09 makes a run of 2,000,000,030 s, over the limit of 2,592,000; raise it, "
        "or give fewer timestamps"
    ),
    "[load]\ntimestamps = [1, 2]\nburstiness = 2": (
        'load.burstiness: has no meaning with process = "replay"; set process = "gamma"'
    ),
    # Classes.
    "[workload]\nclasses = [{ name = 'a', share = 0 }]": (
        "workload.classes[0].share: must be above 0, got 0; for example share = 0.7"
    ),
    "[workload]\nclasses = [{ name = 'a' }]": (
        "workload.classes[0].share: is required; add it; for example share = 0.7"
    ),
    "[workload]\nclasses = [{ name = 'a', share = 1 }, { name = 'a', share = 2 }]": (
        'workload.classes[1].name: "a" is the name of an earlier class; give it another'
    ),
    "[workload]\nclasses = [{ name = 'a', share = 1, lora = 'x' }]": (
        'workload.classes[0].lora: "x" is not in model.lora; add it there'
    ),
    "[workload]\nclasses = [{ name = 'a', share = 1, tenat = 'x' }]": (
        "workload.classes[0].tenat: unknown key; did you mean workload.classes[0].tenant?"
    ),
    "[workload]\nclasses = { name = 'a' }": (
        'workload.classes: expected a list, got a table; for example classes = [{ name = "chat", share '
        '= 0.7 }, { name = "batch", share = 0.3, input_tokens = 2048 }]'
    ),
    "[workload]\ntenant = 'x'": ("workload.tenant: unknown key here; it is workload.classes.tenant, so move it there"),
    "[workload]\nmax = 3": (
        "workload.max: unknown key; workload has: kind, input_tokens, output_tokens, shared_prefix_tokens, classes"
    ),
    (
        "[workload]\ninput_tokens = { dist = 'empirical', pairs = [[1, 2]] }\nclasses = [{ name = 'a', "
        "share = 1, output_tokens = 3 }]"
    ): (
        "workload.classes[0].output_tokens: is already given by workload.input_tokens.pairs; remove it, "
        "or give input_tokens too"
    ),
    (
        "[workload]\ninput_tokens = { dist = 'empirical', pairs = [[1, 2]] }\nclasses = [{ name = 'a', "
        "share = 1, input_tokens = 3 }]"
    ): (
        "workload.classes[0].output_tokens: is required: the workload's pairs are not used by this "
        "class; add output_tokens = 128"
    ),
    ("[workload]\nclasses = [{ name = 'a', share = 1, output_tokens = { dist = 'empirical', pairs = [[1, 2]] } }]"): (
        "workload.classes[0].output_tokens: pairs belong to input_tokens, which then carries both; move them there"
    ),
    (
        "[workload]\nclasses = [{ name = 'a', share = 1, output_tokens = 3, input_tokens = { dist = "
        "'empirical', pairs = [[1, 2]] } }]"
    ): ("workload.classes[0].output_tokens: is already given by the class's input_tokens.pairs; remove it"),
    # Connections.
    "[endpoint]\nconnections = 'pool'": (
        'endpoint.connections: expected "pooled", "per_request" or "per_session", got "pool"; did you mean "pooled"?'
    ),
    "[endpoint]\npreconnect = -1": ("endpoint.preconnect: must be at least 0, got -1; for example preconnect = 16"),
    "[endpoint]\npreconnect = 3\nconnections = 'per_request'": (
        'endpoint.preconnect: has no meaning with connections = "per_request"; remove it'
    ),
    "[endpoint]\nurl = 'http+unix://run/x.sock/v1'": (
        "endpoint.url: names no absolute path of a socket; write it percent-encoded, like "
        "http+unix://%2Frun%2Fserver.sock/v1"
    ),
    "[endpoint]\nurl = 'http+unix:///run/x.sock/v1'": (
        "endpoint.url: names no absolute path of a socket; write it percent-encoded, like "
        "http+unix://%2Frun%2Fserver.sock/v1"
    ),
    "[endpoint]\nurl = 'http+unix://%2Frun%00/v1'": (
        "endpoint.url: names a socket whose path has a control character; write it percent-encoded, "
        "like http+unix://%2Frun%2Fserver.sock/v1"
    ),
    (
        "[endpoint]\nurl = "
        "'http+unix://%2Faaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaa/v1'"
    ): ("endpoint.url: names a socket by 104 bytes, more than 103; use a shorter path"),
}


@pytest.mark.parametrize("text", TEXT_AND_COMPLAINT)
def test_bad_field_is_named_with_its_mend(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chat.toml"
    path.write_text(f'[model]\nname = "m"\n{text}', encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert str(caught.value) == f"{path}: {TEXT_AND_COMPLAINT[text]}"


def test_a_file_of_arrivals_needs_a_manifest_file() -> None:
    with pytest.raises(ManifestError, match=r"load.timestamps: names a file, which is read only on the way from a man"):
        parse_manifest({"model": {"name": "m"}, "load": {"timestamps": "a.csv"}}, "here")
