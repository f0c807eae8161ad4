"""Blocks of KV and who has them: each is free, private to one sequence, or a node of the prefix tree."""

from collections.abc import Collection
from collections.abc import Sequence as Items

from tfbench.engine.kv.tree import Node, PrefixTree

_UNLIMITED = 1 << 62


class BlockTable:
    """The blocks of one sequence in the order of its tokens: first the shared ones, then its own.

    `cached_tokens` of them were computed before by others when the table was opened.
    """

    __slots__ = ("cached_tokens", "private", "shared")

    def __init__(self, shared: list[Node], private: list[int], cached_tokens: int) -> None:
        self.shared = shared
        self.private = private
        self.cached_tokens = cached_tokens

    def __len__(self) -> int:
        return len(self.shared) + len(self.private)

    @property
    def blocks(self) -> list[int]:
        """Block numbers."""
        return [node.block for node in self.shared] + self.private


class KvCache:
    """`total` blocks of `block_tokens` tokens each; None = as many as are asked for.

    Only full blocks of prompts are ever shared, and a shared block is never written to: a sequence that would has a
    copy of its own instead (copy on write). With `reuse` False no block is shared.
    """

    def __init__(self, total: int | None, block_tokens: int, *, reuse: bool) -> None:
        self.total = total
        self.block_tokens = block_tokens
        self.reuse = reuse
        self.tree = PrefixTree()
        self._free: list[int] = [] if total is None else list(range(total - 1, -1, -1))
        self._minted = 0 if total is None else total

    @property
    def free(self) -> int:
        """Blocks that hold nothing (of those minted so far, where there is no limit)."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks that no sequence uses but whose contents are kept for reuse."""
        return self.tree.cached

    @property
    def used(self) -> int:
        """Blocks that sequences use; one that several share counts once."""
        return self._minted - len(self._free) - self.tree.cached

    @property
    def available(self) -> int:
        """Blocks that can be had: free ones, and cached ones by eviction."""
        return _UNLIMITED if self.total is None else len(self._free) + self.tree.cached

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens take."""
        return -(-tokens // self.block_tokens)

    def cached_tokens(self, tokens: int, keys: Items[int]) -> int:
        """What `open` would find computed of `tokens` tokens whose first full blocks have `keys`."""
        return min(len(self._match(keys)) * self.block_tokens, tokens - 1)

    def takes(self, tokens: int, keys: Items[int], claimed: set[int]) -> int:
        """How many of the available blocks `open` would take after others that take those in `claimed`.

        The cached blocks that it would share, and nobody uses yet, are added to `claimed`.
        """
        shared = self._match(keys)
        if len(shared) * self.block_tokens >= tokens:
            shared.pop()
        idle = {node.block for node in shared if node.refs == 0} - claimed
        claimed |= idle
        return self.blocks_for(tokens) - len(shared) + len(idle)

    def open(self, tokens: int, keys: Items[int]) -> BlockTable | None:
        """A table for `tokens` tokens whose first full blocks have `keys`; None while there aren't enough blocks.

        What the tree has of them is shared. At least one token is left to compute: where all are there, the last block
        is copied, not shared, since its last token will be written anew.
        """
        if self.blocks_for(tokens) - len(keys) > self.available:
            return None
        shared = self._match(keys)
        cached_tokens = len(shared) * self.block_tokens
        if cached_tokens >= tokens:
            cached_tokens = tokens - 1
            shared.pop()
        need = self.blocks_for(tokens) - len(shared)
        if need > self.available - sum(node.refs == 0 for node in shared):
            return None
        for node in shared:
            self.tree.hold(node)
        return BlockTable(shared, self._take(need), cached_tokens)

    def _match(self, keys: Items[int]) -> list[Node]:
        return self.tree.match(keys) if self.reuse else []

    def grow(self, tables: Collection[BlockTable], blocks: int) -> None:
        """Add `blocks` blocks to each of `tables`; so many must be available."""
        free = self._free
        self._make_free(len(tables) * blocks)
        if blocks == 1:
            for table in tables:
                table.private.append(free.pop())
        else:
            for table in tables:
                table.private += self._take(blocks)

    def publish(self, table: BlockTable, keys: Items[int], computed: int) -> None:
        """Let others share the full blocks among the first `computed` tokens, whose keys are `keys`.

        A block that the tree has already is given back, and the one in the tree shared.
        """
        if not self.reuse:
            return
        have = len(table.shared)
        full = min(computed // self.block_tokens, len(keys))
        if full <= have:
            return
        node = table.shared[-1] if have else self.tree.root
        for key, block in zip(keys[have:full], table.private, strict=False):
            child = node.children.get(key)
            if child is None:
                child = self.tree.insert(node, key, block)
            else:
                self.tree.hold(child)
                self._free.append(block)
            table.shared.append(child)
            node = child
        del table.private[: full - have]

    def close(self, table: BlockTable) -> None:
        """Let go of every block of `table`, the last ones first."""
        self._free += table.private
        for node in reversed(table.shared):
            self.tree.release(node)
        table.private, table.shared = [], []

    def _take(self, blocks: int) -> list[int]:
        self._make_free(blocks)
        start = len(self._free) - blocks
        taken = self._free[start:]
        del self._free[start:]
        return taken

    def _make_free(self, blocks: int) -> None:
        """See to it that so many blocks are free."""
        while len(self._free) < blocks:
            if self.total is None:
                self._free.append(self._minted)
                self._minted += 1
            else:
                self._free.append(self.tree.evict())
