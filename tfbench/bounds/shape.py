"""Model shapes: the sizes of a dense decoder with grouped-query attention, from profiles/models/*.toml."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a dense decoder: per layer Q, K, V, O projections, a gated MLP (gate, up, down) and two norms.

    `tied_embeddings`: the LM head is the embedding table; `qkv_bias`: Q, K and V have a bias (Qwen2).
    `max_context` is the longest context the model was made for; `source` says whence the numbers are.
    """

    name: str
    title: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    qkv_bias: bool
    max_context: int
    source: str

    @property
    def layer_matrix_params(self) -> int:
        """Weights of one layer that every token is multiplied with."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def layer_params(self) -> int:
        """All parameters of one layer."""
        bias = self.head_dim * (self.heads + 2 * self.kv_heads) if self.qkv_bias else 0
        return self.layer_matrix_params + bias + 2 * self.hidden

    @property
    def table_params(self) -> int:
        """Parameters of the embedding table, which are also those of the LM head."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All parameters of the model; a tied table counts once."""
        tables = 1 if self.tied_embeddings else 2
        return self.layers * self.layer_params + self.hidden + tables * self.table_params


def kv_bytes_per_token(shape: ModelShape, kv_bits: float) -> float:
    """Bytes of K and V that one token of context holds over all layers: 2·L·H_kv·d·bits/8."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * kv_bits / 8


def weight_bytes(shape: ModelShape, bits: float, table_bits: float | None = None) -> float:
    """Bytes of all weights at `bits` each; `table_bits`: those of embedding table and LM head, where they differ."""
    tables = 1 if shape.tied_embeddings else 2
    table_params = tables * shape.table_params
    return ((shape.params - table_params) * bits + table_params * (bits if table_bits is None else table_bits)) / 8
