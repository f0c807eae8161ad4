"""The KV cache: paged blocks, a free list, and prefixes shared through a tree of block hashes."""

from tfbench.engine.kv.cache import BlockTable, KvCache
from tfbench.engine.kv.hashes import chain, segment_blocks
from tfbench.engine.kv.tree import Node, PrefixTree

__all__ = ["BlockTable", "KvCache", "Node", "PrefixTree", "chain", "segment_blocks"]
