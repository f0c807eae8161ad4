"""Bad input: one line that names the source, the field and the mend. Good input: the values that were written."""

import math
from pathlib import Path
from typing import Any

import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import load_manifest

MODEL = '[model]\nname = "m"\n'


def load(tmp_path: Path, text: str, *sets: str, url: str | None = None) -> Any:
    path = tmp_path / "chat.toml"
    path.write_text(text, encoding="utf-8")
    return load_manifest(path, sets, url)


def complaint(tmp_path: Path, text: str, *sets: str, url: str | None = None) -> str:
    with pytest.raises(ManifestError) as caught:
        load(tmp_path, text, *sets, url=url)
    message = str(caught.value)
    assert message.isprintable()
    return message.removeprefix(f"{tmp_path / 'chat.toml'}: ")


TEXT_AND_COMPLAINT = {
    # Unknown keys: nearest in the table, where it really belongs, nearest anywhere, or what the table has.
    "[load]\nratess = [1]": "load.ratess: unknown key; did you mean load.rates?",
    "[load]\nstream = true": "load.stream: unknown key here; it is endpoint.stream, so move it there",
    "[slo]\nitl_ms = 3": "slo.itl_ms: unknown key; did you mean slo.icl_ms?",
    "[load]\nadaptor = 'vllm'": "load.adaptor: unknown key; did you mean endpoint.adapter?",
    "[cost]\nqqq = 1": "cost.qqq: unknown key; cost has: currency, resources",
    "[endpoint]\ntimeouts = { conect_s = 1 }": (
        "endpoint.timeouts.conect_s: unknown key; did you mean endpoint.timeouts.connect_s?"
    ),
    "[workload]\ninput_tokens = { dist = 'lognormal', mean = 3, cv = 1, sd = 2 }": (
        "workload.input_tokens.sd: unknown key; workload.input_tokens has: dist, mean, cv, min, max"
    ),
    # Wrong types and values.
    "[load]\nrates = []": "load.rates: must not be empty; for example rates = [2, 4, 8]",
    "[load]\nrates = 5": "load.rates: expected a list, got 5; for example rates = [2, 4, 8]",
    "[load]\nrates = [1, -2]": "load.rates[1]: must be above 0, got -2; for example rates = [2, 4, 8]",
    "[load]\nrates = [0]": "load.rates[0]: must be above 0, got 0; for example rates = [2, 4, 8]",
    "[load]\nrates = [nan]": "load.rates[0]: must be above 0, got nan; for example rates = [2, 4, 8]",
    "[load]\nrates = [true]": "load.rates[0]: expected a number, got true; for example rates = [2, 4, 8]",
    "[load]\nrates = [2, 2]": "load.rates: has 2 twice; repetition is what load.repeats is for",
    "[load]\nduration_s = '5'": 'load.duration_s: expected a number, got "5"; for example duration_s = 60',
    "[load]\ncount = 1.5": "load.count: expected a whole number, got 1.5; for example count = 4000",
    "[load]\nmode = 'closde'": (
        'load.mode: expected "open", "closed" or "open_capped", got "closde"; did you mean "closed"?'
    ),
    "[engine]\nversion = 0.9": (
        'engine.version: expected a text, got 0.9; write it in quotes; for example version = "0.32.0"'
    ),
    "[topology]\npower_cap_w = 2024-01-01": (
        "topology.power_cap_w: expected a number, got a date; for example power_cap_w = 700"
    ),
    "[storage]\ntext = 'yes'": 'storage.text: expected true or false, got "yes"; for example text = false',
    "[cost]\nresources = [{ name = 'a' }]": "cost.resources[0].hourly: is required; add it; for example hourly = 2.5",
    # Keys that exclude or need each other.
    "[load]\nrates = [1]\nconcurrency = [1]": (
        'load.concurrency: belongs to a closed loop; give rates, or mode = "closed"'
    ),
    "[load]\nmode = 'closed'\nrates = [1]": ('load.rates: belongs to an open loop; give concurrency, or mode = "open"'),
    "[load]\nconcurrency = [1]": 'load.concurrency: belongs to a closed loop; give rates, or mode = "closed"',
    "[load]\nmode = 'closed'\nprocess = 'poisson'": (
        "load.process: belongs to an open loop; a closed loop has think_s instead; remove it"
    ),
    "[load]\nthink_s = 1": 'load.think_s: belongs to a closed loop; remove it, or set mode = "closed"',
    "[load]\nburstiness = 2": 'load.burstiness: has no meaning with process = "poisson"; set process = "gamma"',
    "[load]\nmode = 'open_capped'": (
        'load.max_in_flight: is required with mode = "open_capped"; for example max_in_flight = 64'
    ),
    "[load]\nmax_in_flight = 4": ('load.max_in_flight: needs mode = "open_capped"; set it, or remove max_in_flight'),
    "[load]\nduration_s = 5\ncount = 5": (
        "load.count: stands beside duration_s; keep one of them (a run ends by time or by count)"
    ),
    "[load]\nrates = [inf]": "load.rates: inf sends everything at once and needs count instead of duration_s",
    "[load]\nrates = [inf]\ncount = 3\nwarmup_s = 1": (
        "load.warmup_s: must be 0 with a rate of inf, which has no warm-up"
    ),
    # Typos that would ask for too much, or for nothing.
    "[load]\nrates = [1000000]": (
        "load.rates: 1,000,000 req/s makes 100,000,000 scheduled arrivals, over the limit of 10,000,000; "
        "lower rates, duration_s or count"
    ),
    "[load]\ncount = 99999999": "load.count: must be at most 10,000,000, got 99999999; for example count = 4000",
    "[load]\ncount = 100000\nrates = [0.001]": (
        "load.rates: 0.001 req/s makes a run of 100,000,040 s, over the limit of 2,592,000; "
        "raise rates, or lower duration_s or count"
    ),
    "[load]\nrepeats = 100000": (
        "load.repeats: 1 load points × 100000 repeats is over the limit of 10,000 runs; lower it"
    ),
    "[load]\nrates = [0.001]": (
        "load.rates: 0.001 req/s × 60 s expects less than one request; raise rates or duration_s"
    ),
    "[load]\nseed = 9007199254740992": (
        "load.seed: must be at most 9,007,199,254,740,991, got 9007199254740992; for example seed = 7"
    ),
    "[workload]\ninput_tokens = 1000001": (
        "workload.input_tokens: must be at most 1,000,000, got 1000001; for example input_tokens = 512"
    ),
    "[workload]\noutput_tokens = { dist = 'lognormal', mean = 1e9, cv = 1 }": (
        "workload.output_tokens.mean: must be from 1 to 1,000,000 tokens, got 1e+09"
    ),
    # Distributions.
    "[workload]\ninput_tokens = { dist = 'lognorml', mean = 3 }": (
        'workload.input_tokens: has no dist "lognorml", expected uniform, lognormal, normal, empirical; '
        'did you mean "lognormal"?; for example input_tokens = 512'
    ),
    "[workload]\ninput_tokens = { mean = 3 }": (
        "workload.input_tokens: needs dist, one of uniform, lognormal, normal, empirical; "
        "for example input_tokens = 512"
    ),
    "[workload]\ninput_tokens = { dist = 'uniform', min = 5, max = 2 }": (
        "workload.input_tokens.min: min 5 is above max 2; swap them"
    ),
    "[workload]\ninput_tokens = { dist = 'uniform', min = 1.5, max = 2 }": (
        "workload.input_tokens.min: must be whole tokens, got 1.5"
    ),
    "[workload]\ninput_tokens = { dist = 'normal', mean = 5 }": (
        "workload.input_tokens.sd: needs exactly one of sd and cv; for example cv = 0.2"
    ),
    "[workload]\ninput_tokens = { dist = 'empirical' }": (
        "workload.input_tokens.values: needs exactly one of values and pairs; for example values = [64, 128, 256]"
    ),
    "[workload]\ninput_tokens = { dist = 'empirical', values = [1], weights = [1, 2] }": (
        "workload.input_tokens.weights: has 2 entries for 1 outcomes; give one weight each"
    ),
    "[workload]\ninput_tokens = { dist = 'empirical', values = [1, 2], weights = [0, 0] }": (
        "workload.input_tokens.weights: must not be negative and must add up to more than 0"
    ),
    "[workload]\ninput_tokens = { dist = 'empirical', pairs = [[1, 2]] }\noutput_tokens = 3": (
        "workload.output_tokens: is already given by input_tokens.pairs; remove it"
    ),
    "[workload]\noutput_tokens = { dist = 'empirical', pairs = [[1, 2]] }": (
        "workload.output_tokens: pairs belong to input_tokens, which then carries both; move them there"
    ),
    # SLO.
    "[slo]\nttft_ms = { p99 = 1 }": ("slo.ttft_ms: must be milliseconds or { max = milliseconds }; for example 500"),
    "[slo]\nicl_ms = { p100 = 1 }": (
        "slo.icl_ms: must be one of milliseconds, { max = … } or a percentile; for example { p99 = 100 }"
    ),
    "[slo]\nicl_ms = { p99 = 0 }": "slo.icl_ms.p99: must be milliseconds above 0; for example { p99 = 100 }",
    "[slo]\nicl_ms = 0": "slo.icl_ms: must be above 0, got 0; for example icl_ms = { p99 = 100 }",
    # Accounting.
    "[accounting]\nexcluded = ['cancelled', 'timeout']": (
        'accounting: "timeout" is listed 2 times in bad and excluded; keep it in exactly one of them'
    ),
    "[accounting]\nexcluded = []": ('accounting: "cancelled" is in neither bad nor excluded; add it to one of them'),
    "[accounting]\nexcluded = ['cancelled', 'unfinished']": (
        'accounting.excluded: "unfinished" can\'t be excluded, or a stall would look well; move it to bad'
    ),
    "[accounting]\nexcluded = ['unsent']": (
        'accounting.excluded: "unsent" can\'t be excluded, or a stall would look well; move it to bad'
    ),
    "[accounting]\nexcluded = ['ok']": 'accounting.excluded: "ok" is neither bad nor excluded; remove it',
    # Endpoint.
    "[endpoint]\nadapter = 'vlm'": (
        'endpoint.adapter: no adapter "vlm"; did you mean "vllm"? '
        "there are: llama-server, openai, sglang, tfbench, vllm"
    ),
    "[endpoint]\nurl = 'ftp://host'": (
        'endpoint.url: has the scheme "ftp", expected http or https; write it like http://127.0.0.1:8000/v1'
    ),
    "[endpoint]\nurl = 'host:8000'": (
        "endpoint.url: has no scheme, expected http or https; write it like http://127.0.0.1:8000/v1"
    ),
    "[endpoint]\nurl = 'http://host:70000'": (
        "endpoint.url: is not a URL (the port is not a number from 1 to 65535); write it like http://127.0.0.1:8000/v1"
    ),
    "[endpoint]\nurl = 'http://[::1'": (
        "endpoint.url: is not a URL (the host is malformed); write it like http://127.0.0.1:8000/v1"
    ),
    "[endpoint]\nurl = 'http:///v1'": ("endpoint.url: has no valid host; write it like http://127.0.0.1:8000/v1"),
    "[endpoint]\nurl = 'http://h/v1?api_key=1'": (
        "endpoint.url: has a query or a fragment; give the base alone and put keys into headers as env:NAME"
    ),
    "[endpoint]\nheaders = { Authorization = 'Bearer abc' }": (
        'endpoint.headers.Authorization: holds a literal secret; put it into the environment and write "env:API_KEY"'
    ),
    "[endpoint]\nheaders = { X-Api-Key = 'abc' }": (
        'endpoint.headers.X-Api-Key: holds a literal secret; put it into the environment and write "env:X_API_KEY"'
    ),
    "[endpoint]\nheaders = { Authorization = 'env:' }": (
        "endpoint.headers.Authorization: names no environment variable; "
        'write "env:NAME" with letters, digits and underscores'
    ),
    "[endpoint]\nheaders = { Content-Length = '3' }": (
        "endpoint.headers.Content-Length: is set by tfbench itself; remove it"
    ),
    "[endpoint]\nheaders = { X-A = '1', x-a = '2' }": (
        "endpoint.headers.x-a: is given twice; header names ignore case"
    ),
    "[engine]\nargs = ['--api-key', 'abc']": (
        'engine.args: "--api-key" holds a literal secret; leave it out or write "env:NAME"'
    ),
    "[engine]\nargs = '--a'": (
        'engine.args: must be a list of texts or a table; for example ["--max-num-seqs=8"] or { max-num-seqs = 8 }'
    ),
}


@pytest.mark.parametrize("text", TEXT_AND_COMPLAINT)
def test_bad_field_is_named_with_its_mend(tmp_path: Path, text: str) -> None:
    assert complaint(tmp_path, MODEL + text) == TEXT_AND_COMPLAINT[text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'model.name: is required; add [model] with name = "…"'),
        ("model = 'm'", 'model: expected a table, got "m"; write it as [model]'),
        ("stream = true\n" + MODEL, "stream: unknown key here; it is endpoint.stream, so move it there"),
        ("[model]\nname = ''", 'model.name: must not be empty; for example name = "llama-3.1-8b"'),
        ("name = 'a\\u0009b'\n" + MODEL, 'name: must be a line of text, got "a\\tb"; for example name = "chat-8b"'),
        ("schema_version = 2\n" + MODEL, "schema_version: 2 is newer, this tfbench reads up to 1; upgrade tfbench"),
        ("schema_version = 'a'\n" + MODEL, "schema_version: expected 1; remove it"),
        ("[model]\nname = \n", "not valid TOML: Invalid value (at line 2, column 8); mend it there"),
        ("a = [1,\n2", "not valid TOML: Unclosed array (at line 2, the end); mend it there"),
        ("a = " + "[" * 5000, "nested too deeply; flatten it"),
        ("a = " + "1" * 5000, "holds a number that is too long; shorten it"),
    ],
)
def test_bad_document_is_named_with_its_mend(tmp_path: Path, text: str, expected: str) -> None:
    # "name = 'a\\u0009b'" is a literal TOML string, so give it the escape's meaning here.
    message = complaint(tmp_path, text.replace("'a\\u0009b'", '"a\\u0009b"'))
    assert message == expected


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'[model]\nname = "\xff"')
    broken = tmp_path / "broken.json"
    broken.write_bytes(b'{"name":\n}')
    listed = tmp_path / "list.json"
    listed.write_bytes(b"[]")
    deep = tmp_path / "deep.json"
    deep.write_bytes(b"[" * 100_000)
    surrogate = tmp_path / "surrogate.json"
    surrogate.write_bytes(b'{"model": {"name": "\\ud800"}}')
    for path, expected in {
        tmp_path: "is a directory; give the manifest file in it",
        tmp_path / "none.toml": "no such file; check the path",
        binary: "not UTF-8 (line 2); save it as UTF-8",
        broken: "not valid JSON: unexpected character, expected a JSON value (at line 2, column 1); mend it there",
        listed: "not a manifest: a JSON object is expected; give a frozen manifest",
        deep: "not valid JSON: depth limit exceeded (at line 1, column 1026); mend it there",
        surrogate: "not valid JSON: no low surrogate in string (at line 1, column 21); mend it there",
    }.items():
        with pytest.raises(ManifestError) as caught:
            load_manifest(path)
        assert str(caught.value) == f"{path}: {expected}"


def test_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(ManifestError, match="over 64 MiB"):
        load_manifest(Path("/dev/zero"))


def test_forbidden_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, whom no permission stops.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ManifestError, match=r"can't be read: Permission denied; check the path and its permissions"):
        load_manifest(tmp_path / "a.toml")


def test_flags_are_named_in_place_of_the_file(tmp_path: Path) -> None:
    assert complaint(tmp_path, MODEL, "load.ratess=[1]") == "--set load.ratess: unknown key; did you mean load.rates?"
    assert complaint(tmp_path, MODEL, "load.rates=[1,-1]") == (
        "--set load.rates: load.rates[1]: must be above 0, got -1; for example rates = [2, 4, 8]"
    )
    assert complaint(tmp_path, MODEL, url="nonsense").startswith("--url: endpoint.url: has no scheme")
    assert complaint(tmp_path, MODEL, "endpoint.adapter=vlm").startswith("--set endpoint.adapter: endpoint.adapter: no")


def test_secrets_are_never_quoted(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    for text in (
        f"[endpoint]\nheaders = {{ Authorization = 'Bearer {secret}' }}",
        f"[endpoint]\nheaders = {{ Authorization = ['{secret}'] }}",
        f"[endpoint]\nheaders = '{secret}'",
        f"[endpoint]\nurl = 'http://user:{secret}@host/v1'",
        f"[endpoint]\nurl = 'http://user:{secret}@[host/v1'",
        f"[endpoint]\nurl = 'http://host:{secret}/v1'",
        f"[endpoint]\nurl = ['{secret}']",
        f"[engine]\nargs = ['--api-key={secret}']",
        f"[engine]\nargs = {{ api-key = '{secret}' }}",
    ):
        assert secret not in complaint(tmp_path, MODEL + text)
    assert secret not in complaint(tmp_path, MODEL, f"endpoint.headers.Authorization={secret}")
    assert secret not in complaint(tmp_path, MODEL, f"endpoint.headers={{ Authorization = '{secret}'")
    assert secret not in complaint(tmp_path, MODEL, url=f"http://u:{secret}@host")


def test_only_the_model_name_is_needed(tmp_path: Path) -> None:
    manifest = load(tmp_path, MODEL)
    assert manifest.name == "chat"
    assert manifest.endpoint.url is None
    assert manifest.load.points == (1.0,)
    assert (manifest.load.process, manifest.load.duration_s, manifest.load.count) == ("poisson", 60.0, None)
    assert manifest.workload.output_tokens == 128


def test_defaults_follow_the_mode(tmp_path: Path) -> None:
    closed = load(tmp_path, MODEL + "[load]\nmode = 'closed'\ncount = 5").load
    assert (closed.points, closed.process, closed.duration_s) == ((1.0,), None, None)
    burst = load(tmp_path, MODEL + "[load]\nrates = [inf]\ncount = 5").load
    assert (burst.points, burst.warmup_s) == ((math.inf,), 0.0)
    gamma = load(tmp_path, MODEL + "[load]\nprocess = 'gamma'").load
    assert gamma.burstiness == 1.0
    # So that --set load.process=poisson can undo a gamma manifest with burstiness 1.
    poisson = load(tmp_path, MODEL + "[load]\nprocess = 'gamma'\nburstiness = 1", "load.process=poisson").load
    assert poisson.burstiness is None


def test_byte_order_mark_and_crlf_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes("\ufeff[model]\r\nname = 'm'\r\n".encode())
    assert load_manifest(path).model.name == "m"


@pytest.mark.parametrize(
    ("given_url", "kept"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("https://Host.Example/openai/V1", "https://host.example/openai/V1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http+unix://%2frun%2FServer.sock", "http+unix://%2Frun%2FServer.sock/v1"),
    ],
)
def test_urls_of_the_same_place_are_the_same(tmp_path: Path, given_url: str, kept: str) -> None:
    assert load(tmp_path, MODEL, url=given_url).endpoint.url == kept
