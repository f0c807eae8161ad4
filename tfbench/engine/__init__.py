"""The reference engine: a small, real serving system whose truth is known.

`scheduler` and `step_time` say what happens when; they know no clock and no sockets. `runtime` runs them in real
time, `server` puts OpenAI endpoints before them, `records` keeps stage events and true send times for tests.
"""

from tfbench.engine.config import EngineConfig, config_from_json, config_to_json
from tfbench.engine.step_time import StepTime

__all__ = ["EngineConfig", "StepTime", "config_from_json", "config_to_json"]
