"""The `[hooks]` table: what is done to the system between runs."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from tfbench.manifest.base import Count, Positive, Table, refusal
from tfbench.manifest.limits import MAX_PRIMES, MAX_RUN_S
from tfbench.manifest.secrets import ENV, secret_in_args

REFERENCE_ENGINE = "engine"
"""The `restart` that isn't a command: the study serves the reference engine itself."""
_EXAMPLE = 'for example ["docker", "restart", "vllm"]'
_Wait = Annotated[Positive, Field(le=MAX_RUN_S)]


def _words(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise refusal(f"must be the words of a command, which no shell reads; {_EXAMPLE}")
    if not value[0] or any("\0" in word for word in value):
        raise refusal(f"names no program; {_EXAMPLE}")
    if secret_in_args(tuple(value)) is not None or any(ENV.fullmatch(word) for word in value):
        # Everybody on the machine can read a command line, and the manifest is stored.
        raise refusal("holds a secret; let the command take it from its environment or a file")
    return tuple(value)


def _restart(value: Any) -> Any:
    if isinstance(value, str) and value != REFERENCE_ENGINE:
        raise refusal(f'must be "{REFERENCE_ENGINE}" or the words of a command, which no shell reads; {_EXAMPLE}')
    return value if isinstance(value, str) else _words(value)


class Hooks(Table):
    """What is done to the system between runs. A command is a list of words, which no shell reads.

    `restart` comes before each repeat, so that a load point's repeats never share a process: a command, which returns
    once the old process is gone, or "engine", the reference engine served by the study itself, with the profile named
    in `engine.args = { profile = "…" }`, at endpoint.url or, where that is unset, at a free port. After it the endpoint
    has `ready_s` to answer a request. `flush` comes before each run and empties the system's caches; it needs
    `load.cache`.

    A command has `timeout_s` to end, and doesn't see the variables that endpoint.headers name. One that fails ends the
    study (exit 5); what it printed is kept beside the warehouse. Simulated systems have no hooks.
    """

    restart: Annotated[tuple[str, ...] | Literal["engine"] | None, BeforeValidator(_restart)] = Field(
        None, examples=['["docker", "restart", "vllm"]']
    )
    flush: Annotated[tuple[str, ...] | None, BeforeValidator(_words)] = Field(
        None, examples=['["curl", "-fsS", "-X", "POST", "http://127.0.0.1:8000/reset_prefix_cache"]']
    )
    timeout_s: _Wait = Field(120.0, examples=["120"])
    ready_s: _Wait = Field(600.0, examples=["600"])

    @property
    def serves_engine(self) -> bool:
        """Whether the study serves the reference engine itself."""
        return self.restart == REFERENCE_ENGINE


class Prime(Table):
    """The requests sent before each run with `cache = "warm"`, one after the other, for a single token each.

    `set` is where their prompts come from: "prefix", the run's shared prefix with words that no request of the run has,
    `count` of them for each LoRA and tenant; or "prompts", the run's own first `count` prompts, warm-up ones among
    them. They are in the ledger as role `prime`, and in no figure.
    """

    set: Literal["prefix", "prompts"] = Field("prefix", examples=['"prompts"'])
    count: Annotated[Count, Field(le=MAX_PRIMES)] = Field(1, examples=["64"])


def engine_profile_arg(args: tuple[str, ...] | Mapping[str, Any]) -> str | None:
    """The profile in `engine.args` of a reference engine that the study serves; ValueError for any other argument."""
    if isinstance(args, Mapping):
        flags = {str(key).lstrip("-"): value for key, value in args.items()}
    else:
        words = [part for word in args for part in (word.split("=", 1) if word.startswith("-") else [word])]
        flags = {key.lstrip("-"): value for key, value in zip(words[::2], [*words[1::2], ""], strict=False)}
    profile = flags.pop("profile", None)
    if flags or (profile is not None and not (isinstance(profile, str) and profile)):
        raise ValueError
    return profile


def check_served_engine(args: tuple[str, ...] | Mapping[str, Any], url: str | None) -> None:
    """Refuses what the study can't serve the reference engine with: other arguments, another kind of URL."""
    try:
        engine_profile_arg(args)
    except ValueError:
        text = 'with hooks.restart = "engine" must be a profile alone; for example { profile = "reference" }'
        raise refusal(text, "engine", "args") from None
    parts = urlsplit(url or "http://127.0.0.1:8000/v1")
    if parts.scheme != "http" or parts.path != "/v1" or parts.port is None:
        text = 'with hooks.restart = "engine" must be like http://127.0.0.1:8000/v1, or unset for a free port'
        raise refusal(text, "endpoint", "url")
