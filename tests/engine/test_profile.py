from dataclasses import astuple
from pathlib import Path

import pytest

from tfbench.bounds import MeasuredStep, Work, fit_step_time, step_time_toml
from tfbench.core.errors import UsageError
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.profile import engine_profile, engine_profile_names


def written(folder: Path, text: str) -> Path:
    path = folder / "p.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_shipped_profile_is_one() -> None:
    assert "reference" in engine_profile_names()
    for name in engine_profile_names():
        config = engine_profile(name)
        assert config.context_tokens > 0
        assert (config.hardware is None) == (config.kv_total_blocks is None)
    assert engine_profile("reference") == EngineConfig()


def test_a_profile_has_settings_and_a_step_time(tmp_path: Path) -> None:
    text = '[engine]\nmax_num_seqs = 3\nbatching = "static"\n[step_time]\nbase_ms = 2\n[misbehave]\nseed = 4\n'
    config = engine_profile(written(tmp_path, text))
    assert (config.max_num_seqs, config.batching, config.step_time) == (3, "static", StepTime(base_ms=2))
    assert config.misbehave.seed == 4
    assert engine_profile(written(tmp_path, "")) == EngineConfig()


def test_a_fitted_step_time_can_be_put_into_one(tmp_path: Path) -> None:
    works = [Work(tokens, seqs, context) for tokens in (0, 7) for seqs in (0, 5) for context in (0, 1000)]
    fit = fit_step_time([MeasuredStep(work, 1.0 + work.prefill_tokens + work.decode_seqs / 8) for work in works])
    model = engine_profile(written(tmp_path, step_time_toml(fit))).step_time
    assert astuple(model) == pytest.approx((1.0, 1.0, 0.125, 0.0), abs=1e-6)


def test_paths_in_a_profile_are_seen_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = Path(__file__).resolve().parents[2] / "profiles"
    (tmp_path / "mine.toml").write_text((shipped / "devices" / "l4.toml").read_text(encoding="utf-8"), encoding="utf-8")
    path = written(tmp_path, '[hardware]\ndevice = "mine.toml"\nmodel = "llama-3.2-1b"\n')
    monkeypatch.chdir("/")
    assert engine_profile(path).kv_total_blocks == engine_profile("l4-llama-3.2-1b").kv_total_blocks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[engine", r"p\.toml: not TOML"),
        ("[engin]\n", 'p.toml: engin: unknown; did you mean "engine"'),
        ("engine = 3\n", r"p\.toml: engine: 3 is no table"),
        ("hardware = []\n", r"p\.toml: hardware: \[\] is no table"),
        ("title = 3\n", r"p\.toml: title: 3 is no text"),
        ("[engine]\nmax_num_seqs = 0\n", r"p\.toml: engine max_num_seqs: expected a whole number of at least 1, got 0"),
        ("[engine]\nmax_num_seqs = 1979-05-27\n", r"p\.toml: engine max_num_seqs: .* got datetime"),
        ("[engine.step_time]\nbase_ms = 1\n", r"p\.toml: engine\.step_time: .* write \[step_time\]"),
        ("[step_time]\nbase_ms = nan\n", r"p\.toml: engine step_time\.base_ms: expected a number"),
        ("[step_time]\nbase_ms = inf\n", r"p\.toml: engine step_time\.base_ms: expected a number"),
        ('[hardware]\ndevice = "l4"\nmodel = "llama-3.1-70b"\n', r"p\.toml: hardware: .* needs 141"),
        ('[step_time]\n[hardware]\ndevice = "l4"\nmodel = "llama-3.2-1b"\n', r"p\.toml: step_time: hardware says"),
        ('[hardware]\ndevice = "none.toml"\nmodel = "llama-3.2-1b"\n', r"none\.toml: No such file"),
    ],
)
def test_a_bad_profile_is_named_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        engine_profile(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='did you mean "reference"'):
        engine_profile("referenc")
    with pytest.raises(UsageError, match=r"none\.toml: No such file"):
        engine_profile(tmp_path / "none.toml")
