"""The blocks that may be shared, as a radix tree: a path from the root is a prompt's beginning, a block a node.

A node is *referenced* while a sequence uses it, else *cached*: it keeps its block until that is needed elsewhere, least
recently used first. Whoever refers to a node refers to all above it and lets go of the deepest first, so that the
least recently used node never has children left.
"""

from collections import OrderedDict
from collections.abc import Iterable


class Node:
    """One full block of some prompts' beginnings. `refs` counts the sequences that use it."""

    __slots__ = ("block", "children", "key", "parent", "refs")

    def __init__(self, key: int, block: int, parent: "Node | None") -> None:
        self.key = key
        self.block = block
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.refs = 1


class PrefixTree:
    """Nodes by their keys from the root on, and the cached ones by when they were used last."""

    def __init__(self) -> None:
        self.root = Node(0, -1, None)
        self._cached: OrderedDict[Node, None] = OrderedDict()

    @property
    def cached(self) -> int:
        """Nodes that nobody refers to."""
        return len(self._cached)

    def match(self, keys: Iterable[int]) -> list[Node]:
        """The longest path whose nodes have these keys, in order from the root's child on."""
        path: list[Node] = []
        node = self.root
        for key in keys:
            child = node.children.get(key)
            if child is None:
                break
            path.append(child)
            node = child
        return path

    def hold(self, node: Node) -> None:
        """One sequence more uses `node`; those above it are held already."""
        if node.refs == 0:
            del self._cached[node]
        node.refs += 1

    def release(self, node: Node) -> None:
        """One sequence less uses `node`; those below it were released before."""
        node.refs -= 1
        if node.refs == 0:
            self._cached[node] = None

    def insert(self, parent: Node, key: int, block: int) -> Node:
        """A new node for `block`, held once."""
        node = parent.children[key] = Node(key, block, parent)
        return node

    def evict(self) -> int:
        """Forget the least recently used cached node; its block. KeyError when there is none."""
        node, _ = self._cached.popitem(last=False)
        if node.parent is not None:
            del node.parent.children[node.key]
        return node.block
