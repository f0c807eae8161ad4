"""The names of a prompt's KV blocks, from its place in the run instead of from its words."""

from tfbench.engine.config import EngineConfig
from tfbench.engine.kv import segment_blocks
from tfbench.workload import Item

_TASK_SHIFT = 20
"""A prompt has fewer blocks than 2^20, so that no two tasks' own blocks have a name in common."""


class PrefixBlocks:
    """Block names of a run's items: the same for the blocks that lie in the shared prefix, else each task's own.

    That is what hashing the words would find, since a run's prompts share their prefix and nothing more. Tenants and
    LoRAs don't share. Without prefix reuse nobody asks, and there are none.
    """

    def __init__(self, config: EngineConfig, prefix_tokens: int) -> None:
        self._block_tokens = config.block_tokens
        self._reuse = config.prefix_reuse
        self._prefix_tokens = prefix_tokens
        self._shared: dict[tuple[str | None, str | None], tuple[int, ...]] = {}

    def of(self, task: int, item: Item) -> tuple[int, ...]:
        """The names of `item`'s full blocks; the same for every try of its task."""
        if not self._reuse:
            return ()
        key = (item.lora, item.tenant)
        shared = self._shared.get(key)
        if shared is None:
            extra = [
                f"{name} {value}" for name, value in zip(("lora", "tenant"), key, strict=True) if value is not None
            ]
            shared = segment_blocks([("prefix", self._prefix_tokens)], self._block_tokens, extra)
            self._shared[key] = shared
        own = item.input_tokens // self._block_tokens - len(shared)
        first = (task + 1) << _TASK_SHIFT
        return (*shared, *range(first, first + own))
