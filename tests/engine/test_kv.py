"""Blocks of KV: nothing leaks, nothing is given out twice, and only equal beginnings are shared."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tfbench.engine.kv import BlockTable, KvCache, Node, chain, segment_blocks


def nodes_below(node: Node) -> list[Node]:
    return [found for child in node.children.values() for found in (child, *nodes_below(child))]


class Blocks(RuleBasedStateMachine):
    """Sequences that open tables, compute, grow and leave in any order, over a small cache."""

    @initialize(total=st.integers(4, 24), block_tokens=st.integers(1, 4))
    def start(self, total: int, block_tokens: int) -> None:
        self.kv = KvCache(total, block_tokens, reuse=True)
        self.open: list[tuple[BlockTable, tuple[int, ...], int]] = []
        self.published: set[int] = set()

    @rule(family=st.integers(0, 1), head=st.integers(0, 30), own=st.integers(0, 3), tail=st.integers(0, 9))
    def arrive(self, family: int, head: int, own: int, tail: int) -> None:
        tokens = max(head + tail, 1)
        keys = segment_blocks([(f"family {family}", head), (f"own {own}", tail)], self.kv.block_tokens)
        cached, available, need = self.kv.cached_tokens(tokens, keys), self.kv.available, self.kv.blocks_for(tokens)
        table = self.kv.open(tokens, keys)
        if table is None:
            assert need > available - sum(node.refs == 0 for node in self.kv.tree.match(keys)[:need])
            return
        assert len(table) == need
        assert table.cached_tokens == cached < tokens
        assert cached // self.kv.block_tokens == len(table.shared)
        assert [node.key for node in table.shared] == list(keys[: len(table.shared)])
        assert set(keys[: cached // self.kv.block_tokens]) <= self.published
        assert self.kv.available >= available - need
        self.open.append((table, keys, tokens))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        table, keys, tokens = data.draw(st.sampled_from(self.open))
        computed = data.draw(st.integers(0, tokens))
        length = len(table)
        self.kv.publish(table, keys, computed)
        self.published.update(keys[: computed // self.kv.block_tokens])
        assert len(table) == length
        assert [node.key for node in table.shared] == list(keys[: len(table.shared)])
        assert len(table.shared) >= computed // self.kv.block_tokens or not keys

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        table, _, _ = data.draw(st.sampled_from(self.open))
        blocks = data.draw(st.integers(0, min(self.kv.available, 3)))
        length = len(table)
        self.kv.grow([table], blocks)
        assert len(table) == length + blocks

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        table, _, _ = self.open.pop(index)
        used, alone = self.kv.used, sum(node.refs == 1 for node in table.shared)
        freed = len(table.private) + alone
        self.kv.close(table)
        assert self.kv.used == used - freed and len(table) == 0

    @invariant()
    def every_block_is_in_one_place(self) -> None:
        kv = self.kv
        nodes = nodes_below(kv.tree.root)
        private = [block for table, _, _ in self.open for block in table.private]
        places = Counter([*kv._free, *private, *(node.block for node in nodes)])
        assert places == Counter(range(kv.total or 0))
        assert kv.free + kv.used + kv.cached == kv.total
        held = Counter(node for table, _, _ in self.open for node in table.shared)
        assert {node: node.refs for node in nodes if node.refs} == held
        assert set(kv.tree._cached) == {node for node in nodes if node.refs == 0}

    @invariant()
    def what_is_held_hangs_on_what_is_held(self) -> None:
        for node in nodes_below(self.kv.tree.root):
            parent = node.parent
            assert parent is not None and parent.children[node.key] is node
            assert node.refs == 0 or parent.refs > 0


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_pages_waste_less_than_one_each() -> None:
    # Room for 100 tokens of which 11 come: reserved whole it takes 100 slots; in pages of 4 it takes 12.
    kv = KvCache(25, 4, reuse=False)
    table = kv.open(11, ())
    assert table is not None
    assert (len(table) * kv.block_tokens, kv.free * kv.block_tokens) == (12, 88)


def test_prefixes_from_the_root_are_held_once() -> None:
    # 1,000 tokens of system prompt; document A of 4,000 with two questions of 20, document B of 3,000 with one.
    prompts = [
        [("system", 1000), ("A", 4000), ("question 1", 20)],
        [("system", 1000), ("A", 4000), ("question 2", 20)],
        [("system", 1000), ("B", 3000), ("question 3", 20)],
    ]

    def held(*, reuse: bool) -> tuple[int, int]:
        kv, computed = KvCache(2000, 20, reuse=reuse), 0
        for prompt in prompts:
            tokens, keys = sum(length for _, length in prompt), segment_blocks(prompt, 20)
            computed += tokens - kv.cached_tokens(tokens, keys)
            table = kv.open(tokens, keys)
            assert table is not None
            kv.publish(table, keys, tokens)
        return kv.used * kv.block_tokens, computed

    assert held(reuse=False) == (14_060, 14_060)
    assert held(reuse=True) == (8_060, 8_060)


def test_a_whole_hit_still_computes_one_token_into_a_block_of_its_own() -> None:
    kv = KvCache(10, 4, reuse=True)
    keys = segment_blocks([("p", 8)], 4)
    first = kv.open(8, keys)
    assert first is not None
    kv.publish(first, keys, 8)
    assert kv.cached_tokens(8, keys) == 7
    second = kv.open(8, keys)
    assert second is not None
    assert second.blocks[0] == first.blocks[0] and second.blocks[1] != first.blocks[1]
    assert kv.used == 3
    kv.publish(second, keys, 8)
    assert second.blocks == first.blocks and kv.used == 2
    kv.close(first)
    assert (kv.used, kv.cached) == (2, 0)
    kv.close(second)
    assert (kv.used, kv.cached, kv.free) == (0, 2, 8)


def test_the_least_recently_used_goes_first_and_the_used_never() -> None:
    kv = KvCache(4, 1, reuse=True)
    keys = {name: segment_blocks([(name, 1)], 1) for name in "abcd"}
    for name in "abc":
        table = kv.open(1, keys[name])
        assert table is not None
        kv.publish(table, keys[name], 1)
        if name != "b":
            kv.close(table)
    assert (kv.free, kv.used, kv.cached) == (1, 1, 2)
    assert kv.open(3, keys["d"]) is not None  # takes the free one, then a's and c's
    assert [bool(kv.tree.match(keys[name])) for name in "abc"] == [False, True, False]
    assert kv.open(1, keys["d"]) is None


def test_a_cache_without_a_limit_makes_blocks_as_needed() -> None:
    kv = KvCache(None, 16, reuse=True)
    table = kv.open(1000, ())
    assert table is not None and kv.used == 63
    kv.close(table)
    assert (kv.used, kv.free) == (0, 63)
    assert kv.open(160, ()) is not None and kv.free == 53


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=5), st.integers(1, 8))
def test_equal_hashes_mean_equal_tokens_from_the_start(segments: list[tuple[str, int]], block_tokens: int) -> None:
    words = [f"{name} {i}" for name, length in segments for i in range(length)]
    keys = segment_blocks(segments, block_tokens)
    assert len(keys) == len(words) // block_tokens
    assert len(set(keys)) == len(keys)
    cut = segment_blocks([*segments[:-1], *((name, length // 2) for name, length in segments[-1:])], block_tokens)
    assert cut == keys[: len(cut)]
    for salt in (["tenant"], ["tenant", ""], ["ten", "ant"], ["lora"]):
        assert not set(segment_blocks(segments, block_tokens, salt)) & set(keys)
    salts = [tuple(segment_blocks([("a", 1)], 1, salt)) for salt in ([], [""], ["ab"], ["a", "b"], ["b", "a"])]
    assert len(set(salts)) == 5


def test_hashes_are_the_same_in_every_process() -> None:
    assert chain([b"x", b"y"], ["s"]) == (1608637667805173154, 18335195610015601485)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_children_go_before_their_parents(order: tuple[str, str]) -> None:
    kv = KvCache(3, 1, reuse=True)
    keys = {name: segment_blocks([("root", 1), (name, 1)], 1) for name in "ab"}
    tables = {}
    for name in "ab":
        table = kv.open(2, keys[name])
        assert table is not None
        kv.publish(table, keys[name], 2)
        tables[name] = table
    for name in order:
        kv.close(tables[name])
    kv.open(1, ())
    assert not kv.tree.match(keys[order[0]])[1:] and len(kv.tree.match(keys[order[1]])) == 2
