"""What a study does to the system it measures: restarts it, flushes its caches, finds out what answers."""

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfbench.core.errors import EndpointError, ManifestError, NotReady
from tfbench.core.redact import Redactor
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import start_engine
from tfbench.engine.profile import engine_profile
from tfbench.load.target import Target, resolve_target
from tfbench.manifest import Manifest, engine_profile_arg
from tfbench.manifest.secrets import ENV
from tfbench.study.command import run_command
from tfbench.study.diagnose import misdirected
from tfbench.study.probe import Probe, ask
from tfbench.study.watch import Watcher

_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LEAST_WAIT_S = 1.0
_ENGINE_START_S = 60.0
_WAIT_S = 30.0
_SAY_EVERY_S = 10.0


@dataclass
class Lifecycle:
    """One study's system, as far as the study has a hand in it. Made by `open_system`; `release` ends it.

    `restarts`: how often it was restarted so far; None without a hook, where nobody knows. `target` and `observed`:
    who answered last, and what was found then; `probe_attempts`: that probe's rows, until a run takes them.
    `closes_idle_ns`: how soon this server was ever seen to close a connection that had nothing to do.
    """

    manifest: Manifest
    headers: Mapping[str, str] = field(repr=False)
    redactor: Redactor = field(repr=False)
    logs: Path
    url: str
    engine: EngineConfig | None
    restarts: int | None
    target: Target | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    probe_attempts: tuple[dict[str, Any], ...] = ()
    closes_idle_ns: int | None = None
    _up: bool = False
    _repeat: int | None = None
    _serving: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def restarting(self) -> bool:
        """Whether the study restarts this system."""
        return self.restarts is not None

    def begin(self, repeat: int, watcher: Watcher) -> None:
        """Have a system for a run of `repeat`: a restarted one, unless the one there is has served only this repeat."""
        if self.restarting and (not self._up or self._repeat not in (None, repeat)):
            self._restart(watcher)
        self._repeat = repeat

    def flush(self, watcher: Watcher) -> None:
        """Empty the system's caches, where there is a hook."""
        if self.manifest.hooks.flush is not None:
            watcher.preparing("flushing caches")
            self._run("flush", self.manifest.hooks.flush)

    def take_probe(self) -> tuple[dict[str, Any], ...]:
        """The last probe's rows, for the first run after it."""
        rows, self.probe_attempts = self.probe_attempts, ()
        return rows

    def closes_idle(self, idle_ns: int | None) -> None:
        """Note that the server closed a connection that had nothing to do for so long."""
        if idle_ns is not None:
            self.closes_idle_ns = idle_ns if self.closes_idle_ns is None else min(idle_ns, self.closes_idle_ns)

    def release(self) -> None:
        """Give the system up: an engine served here ends, and a further run begins with a restart."""
        self._serving.close()
        self._up = False

    def find(self, watcher: Watcher, wait_s: float | None = None) -> None:
        """Ask who answers, after a restart where there is a hook.

        A server that says that it isn't ready is given `wait_s`, by default some seconds; where `wait_s` is given, so
        is one that can't be reached yet. A restarted one has `hooks.ready_s`.
        """
        if self.restarting:
            self._restart(watcher)
            return
        watcher.probing(self.url)
        limit_s = _WAIT_S if wait_s is None else wait_s
        end_s, pause_s, said_s = time.monotonic() + limit_s, 10 * _PAUSE_S, -math.inf
        while True:
            try:
                self._ask()
            except NotReady as error:
                left_s = end_s - time.monotonic()
                if wait_s is None and not error.answered:
                    raise
                if left_s < pause_s:
                    if limit_s < pause_s:
                        raise
                    raise NotReady(f"{error} (waited {limit_s:g} s)", answered=error.answered) from None
                if time.monotonic() - said_s >= _SAY_EVERY_S:
                    said_s = time.monotonic()
                    watcher.preparing(f"waiting up to {left_s:.0f} s more: {error}")
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
            else:
                return

    def _ask(self, limit_s: float = math.inf) -> None:
        """Find out who answers, and how. Raises EndpointError."""
        connect_s = min(self.manifest.endpoint.timeouts.connect_s, limit_s)
        try:
            target = resolve_target(self.url, connect_s)
        except EndpointError as error:
            wrong = misdirected(self.url, connect_s) if self.url.startswith("https:") else None
            raise wrong or error from None
        self._found(target, ask(self.manifest, self.url, self.headers, self.redactor, limit_s=limit_s))

    def _restart(self, watcher: Watcher) -> None:
        hooks = self.manifest.hooks
        self.release()
        self.restarts = (self.restarts or 0) + 1
        watcher.preparing(f"restart {self.restarts} of the system")
        began_s = time.monotonic()
        with ExitStack() as undo:
            # After Ctrl-C too: nobody else knows of an engine's process.
            undo.callback(self.release)
            if self.engine is not None:
                self._serve(self.engine)
            elif isinstance(hooks.restart, tuple):
                self._run("restart", hooks.restart)
            self._await_answer(hooks.ready_s)
            undo.pop_all()
        self.observed |= {"restart_s": round(time.monotonic() - began_s, 3)}
        if self.engine is not None:
            self.observed |= {"engine": dataclasses.asdict(self.engine)}
        self._up, self._repeat = True, None

    def _serve(self, config: EngineConfig) -> None:
        parts = urlsplit(self.url)
        engine = start_engine(
            config, host=parts.hostname or "127.0.0.1", port=parts.port or 0, timeout_s=_ENGINE_START_S
        )
        # A free port, once taken, stays the system's.
        self.url = self._serving.enter_context(engine).url

    def _run(self, hook: str, command: tuple[str, ...]) -> None:
        hidden = {match[1] for value in self.manifest.endpoint.headers.values() if (match := ENV.fullmatch(value))}
        run_command(
            f"hooks.{hook}",
            command,
            self.manifest.hooks.timeout_s,
            environment={name: value for name, value in os.environ.items() if name not in hidden},
            redactor=self.redactor,
            log=self.logs / f"{hook}.log",
        )

    def _await_answer(self, ready_s: float) -> None:
        """Ask until a request is answered well; each question has at least a second."""
        end_s = time.monotonic() + ready_s
        pause_s = _PAUSE_S
        while True:
            left_s = max(end_s - time.monotonic(), _LEAST_WAIT_S)
            try:
                self._ask(left_s)
            except EndpointError as error:
                if time.monotonic() + pause_s >= end_s:
                    raise EndpointError(f"hooks.restart: not ready {ready_s:g} s after the restart: {error}") from None
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
            else:
                return

    def _found(self, target: Target, probe: Probe) -> None:
        self.target, self.observed, self.probe_attempts = target, dict(probe.observed), probe.attempts
        closed_ms = probe.observed["closed_after_ms"]
        self.closes_idle(None if closed_ms is None else round(closed_ms * 1e6))


def open_system(
    manifest: Manifest,
    headers: Mapping[str, str],
    redactor: Redactor,
    watcher: Watcher,
    logs: Path,
    wait_s: float | None = None,
) -> Lifecycle:
    """The system that `manifest` names, restarted where it says so, once it has answered a request.

    A failed hook's output goes to `logs`; `wait_s` as for `Lifecycle.find`. Raises EndpointError where nobody
    answers well, UsageError for an engine that can't be served.
    """
    engine = served_engine(manifest)
    url = manifest.endpoint.url
    if url is None and engine is None:
        raise ManifestError("endpoint.url is missing; set it in the manifest or give --url URL")
    restarts = None if manifest.hooks.restart is None else 0
    life = Lifecycle(manifest, headers, redactor, logs, url or "http://127.0.0.1:0/v1", engine, restarts)
    life.find(watcher, wait_s)
    return life


def served_engine(manifest: Manifest) -> EngineConfig | None:
    """The engine that the study itself is to serve: its profile, under the manifest's names. UsageError, or None."""
    if not manifest.hooks.serves_engine:
        return None
    profile = engine_profile_arg(manifest.engine.args)
    config = EngineConfig() if profile is None else engine_profile(profile)
    return dataclasses.replace(config, model=manifest.model.name, loras=manifest.model.lora or config.loras)
