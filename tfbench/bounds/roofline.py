"""The roofline of one engine step: no step can be faster than its FLOPs, its bytes or its traffic allow.

    t ≥ max(FLOPs / C, bytes / B) + comm + overhead        with comm inside the max where it overlaps

All quantities are those of one device of the tensor-parallel group; the devices of a group work in step.
Formulas and what they leave out: docs/bounds.md.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfbench.bounds.device import Device, Link, Rates
from tfbench.bounds.formats import Format, number_format, wider
from tfbench.bounds.reading import is_number
from tfbench.bounds.shape import ModelShape, kv_bytes_per_token
from tfbench.bounds.work import Work
from tfbench.core.errors import UsageError

KERNELS_PER_LAYER = 9
"""Kernels of one layer: norm, QKV, rotary + KV write, attention, O, norm, gate + up, activation, down."""
KERNELS_PER_STEP = 4
"""Kernels outside the layers: embedding, last norm, LM head, sampling."""

_LONGEST_STEP_NS = 3600e9
_MEND = "raise tp, quantise the weights or take a larger device"


class _Coefficients(NamedTuple):
    """What a step costs one device, a unit of work each: worked out once, for `step_bound` runs at every step."""

    token_flops: float
    token_compute_ns: float
    pair_flops: float
    pair_compute_ns: float
    head_flops: float
    head_compute_ns: float
    layer_bytes: float
    head_bytes: float
    token_bytes: float
    kv_bytes: float
    byte_ns: float
    token_comm_bytes: float
    comm_byte_ns: float
    collective_ns: float
    overhead_ns: float
    overlap: bool


@dataclass(frozen=True)
class Roofline:
    """A model on `tp` devices at stated precisions. Formats are names in `formats.FORMATS`.

    weights, activations, kv  precision of each. A product is computed at the wider of its two operands' formats, so
                weights alone quantised save bytes, not FLOPs; attention computes at the wider of activations and KV
    tables      precision of embedding table and LM head; None: that of the weights, but 16 bits at least, as
                quantised checkpoints keep them
    tp          tensor-parallel devices; each layer ends two all-reduces. KV heads are split, and replicated where
                there are fewer of them than devices
    link        name of the device's link that carries them; None: its first
    overlap     True: communication runs behind compute and memory; False: after them
    overhead_s  what the engine itself adds to each step (scheduling, sampling on the host), beside kernel launches

    Raises UsageError for a combination that can't work.
    """

    device: Device
    shape: ModelShape
    weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"
    tables: str | None = None
    tp: int = 1
    link: str | None = None
    overlap: bool = False
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        self._check_tp()
        activations = number_format(self.activations)
        for operand in (number_format(self.weights), number_format(self.kv), self._table_format):
            self._rate(operand, activations)
        if not is_number(self.overhead_s) or self.overhead_s < 0:
            raise UsageError(f"hardware: overhead_s is {self.overhead_s!r}; give seconds, zero or more")
        if self.weight_bytes >= self.device.memory_bytes:
            raise UsageError(
                f"hardware: {self.shape.name} in {self.weights} at tp = {self.tp} needs "
                f"{self.weight_bytes / 1e9:.2f} GB of weights a device, and {self.device.name} has "
                f"{self.device.memory_bytes / 1e9:.2f} GB; {_MEND}"
            )
        token_ns = step_bound(self, Work(1, 0, 0, 0, 1, 1)).total_ns
        if token_ns > _LONGEST_STEP_NS:
            raise UsageError(
                f"hardware: one token of {self.shape.name} takes {token_ns / 1e9:.3g} s on {self.device.name}, over an "
                "hour; mend the device's rates, its link or overhead_s"
            )

    def _check_tp(self) -> None:
        shape, tp = self.shape, self.tp
        if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
            raise UsageError(f"hardware: tp is {tp!r}; give a whole number of devices, 1 or more")
        if not _splits(shape, tp):
            fits = [n for n in range(1, min(shape.heads, 1024) + 1) if _splits(shape, n)]
            raise UsageError(
                f"hardware: tp = {tp} does not split {shape.name} ({shape.heads} heads, {shape.kv_heads} KV heads, "
                f"intermediate size {shape.intermediate}); it can be {', '.join(map(str, fits))}"
            )
        if tp > 1 or self.link is not None:
            _ = self.tp_link

    @property
    def tp_link(self) -> Link:
        """The link that carries the group's all-reduces."""
        links = self.device.links
        if not links:
            raise UsageError(f"hardware: {self.device.name} has no links, so tp can only be 1; add [links.NAME]")
        if self.link is None:
            return links[0]
        for link in links:
            if link.name == self.link:
                return link
        names = ", ".join(link.name for link in links)
        raise UsageError(f'hardware: {self.device.name} has no link "{self.link}"; there are: {names}')

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights that one device holds: its part of every matrix, and all norms."""
        return self._layer_bytes + self._tables * self._table_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV that one device holds for each token of context."""
        return kv_bytes_per_token(self.shape, number_format(self.kv).bits) * self._kv_share

    @property
    def _kv_share(self) -> float:
        """The part of the KV heads that one device has."""
        return max(1, self.shape.kv_heads // self.tp) / self.shape.kv_heads

    @property
    def _tables(self) -> int:
        return 1 if self.shape.tied_embeddings else 2

    @property
    def _table_format(self) -> Format:
        """Of embedding table and LM head."""
        if self.tables is not None:
            return number_format(self.tables)
        weights = number_format(self.weights)
        return weights if weights.code_bits >= 16 else wider(number_format("bf16"), number_format(self.activations))

    @property
    def _table_bytes(self) -> float:
        return self.shape.table_params * self._table_format.bits / 8 / self.tp

    @property
    def _layer_matrix_params(self) -> float:
        """Weights of one layer that one device multiplies with."""
        shape = self.shape
        kv = 2 * shape.hidden * shape.head_dim * shape.kv_heads
        return (shape.layer_matrix_params - kv) / self.tp + kv * self._kv_share

    @property
    def _layer_bytes(self) -> float:
        """Bytes of all layers and the last norm on one device; biases count as if split like the matrices."""
        shape = self.shape
        bias = shape.layer_params - shape.layer_matrix_params - 2 * shape.hidden
        params = shape.layers * (self._layer_matrix_params + bias / self.tp + 2 * shape.hidden) + shape.hidden
        return params * number_format(self.weights).bits / 8

    def _rate(self, left: Format, right: Format) -> float:
        """FLOP/s of products of `left` and `right`, where equally wide ones are computed as `right`."""
        unit = wider(right, left).unit
        rate: float | None = getattr(self.device.rates, unit)
        if rate is None:
            have = ", ".join(f.name for f in fields(Rates) if getattr(self.device.rates, f.name) is not None)
            raise UsageError(
                f"hardware: {self.device.name} has no rate for {unit} ({left.name} times {right.name}); choose "
                f"precisions that compute in one of: {have}"
            )
        return rate

    @cached_property
    def _coefficients(self) -> _Coefficients:
        shape, tp = self.shape, self.tp
        weights, activations, kv = map(number_format, (self.weights, self.activations, self.kv))
        tables = self._table_format
        token_flops = 2 * shape.layers * self._layer_matrix_params
        pair_flops = 4 * shape.layers * shape.heads * shape.head_dim / tp
        head_flops = 2 * shape.table_params / tp
        row_bytes = shape.hidden * tables.bits / 8 / tp
        byte_ns = 1e9 / self.device.bandwidth_bytes_per_s
        token_comm = collective_ns = send_ns = 0.0
        if tp > 1:
            # A ring all-reduce sends 2(n - 1)/n of the message from each device; two of them a layer.
            token_comm = 2 * shape.layers * 2 * (tp - 1) / tp * shape.hidden * activations.bits / 8
            collective_ns = 2 * shape.layers * self.tp_link.latency_s * 1e9
            send_ns = 1e9 / self.tp_link.bytes_per_s
        kernels = shape.layers * KERNELS_PER_LAYER + KERNELS_PER_STEP
        return _Coefficients(
            token_flops=token_flops,
            token_compute_ns=token_flops / self._rate(weights, activations) * 1e9,
            pair_flops=pair_flops,
            pair_compute_ns=pair_flops / self._rate(kv, activations) * 1e9,
            head_flops=head_flops,
            head_compute_ns=head_flops / self._rate(tables, activations) * 1e9,
            layer_bytes=self._layer_bytes,
            head_bytes=self._table_bytes,
            token_bytes=row_bytes,
            kv_bytes=self.kv_bytes_per_token,
            byte_ns=byte_ns,
            token_comm_bytes=token_comm,
            comm_byte_ns=send_ns,
            collective_ns=collective_ns,
            overhead_ns=(kernels * self.device.launch_s + self.overhead_s) * 1e9,
            overlap=self.overlap,
        )


def _splits(shape: ModelShape, tp: int) -> bool:
    """Whether `tp` devices can share the heads and the MLP evenly."""
    kv = shape.kv_heads
    return shape.heads % tp == 0 and shape.intermediate % tp == 0 and (kv % tp == 0 or tp % kv == 0)


class StepBound(NamedTuple):
    """The bound of one step, and what it is made of: ns, and FLOPs and bytes of one device of the group.

    bytes       moved between the device and its memory
    comm_bytes  sent by the device to the others
    """

    compute_ns: float
    memory_ns: float
    comm_ns: float
    overhead_ns: float
    total_ns: float
    flops: float
    bytes: float
    comm_bytes: float


def step_bound(roofline: Roofline, work: Work) -> StepBound:
    """The least time that a step with `work`, of one token or more, takes."""
    c = roofline._coefficients
    tokens = work.prefill_tokens + work.decode_seqs
    emits = work.decode_seqs + work.prefill_seqs
    pairs = work.context_tokens + work.prefill_pairs
    # A decoding token reads its past's KV and writes its own: context_tokens in all. A chunk writes its own.
    kv_tokens = work.context_tokens + work.prefill_context_tokens + work.prefill_tokens
    flops = tokens * c.token_flops + pairs * c.pair_flops + emits * c.head_flops
    compute_ns = tokens * c.token_compute_ns + pairs * c.pair_compute_ns + emits * c.head_compute_ns
    fixed_bytes = c.layer_bytes + (c.head_bytes if emits else 0.0) + tokens * c.token_bytes
    moved = fixed_bytes + kv_tokens * c.kv_bytes
    memory_ns = moved * c.byte_ns
    comm_bytes = tokens * c.token_comm_bytes
    comm_ns = c.collective_ns + comm_bytes * c.comm_byte_ns
    busy_ns = compute_ns if compute_ns > memory_ns else memory_ns
    if not c.overlap:
        total_ns = busy_ns + comm_ns + c.overhead_ns
    else:
        total_ns = (busy_ns if busy_ns > comm_ns else comm_ns) + c.overhead_ns
    return StepBound(compute_ns, memory_ns, comm_ns, c.overhead_ns, total_ns, flops, moved, comm_bytes)


def step_ns(roofline: Roofline, work: Work) -> int:
    """`step_bound(…).total_ns`, rounded."""
    return round(step_bound(roofline, work).total_ns)


def steady_durations_ns(roofline: Roofline, work: Work, n: int) -> npt.NDArray[np.int64]:
    """Durations, int64 ns, of `n` successive decode-only steps from `work` on; context grows by a token a sequence.

    Element i equals `step_ns` of the i-th step exactly: the same operations in the same order.
    """
    if work.decode_seqs < 1 or work.prefill_tokens or work.prefill_seqs:
        raise ValueError("steady steps decode and have no prefill")
    c = roofline._coefficients
    seqs = work.decode_seqs
    context = np.arange(work.context_tokens, work.context_tokens + n * seqs, seqs, dtype=np.float64)
    compute_ns = seqs * c.token_compute_ns + context * c.pair_compute_ns + seqs * c.head_compute_ns
    fixed_bytes = c.layer_bytes + c.head_bytes + seqs * c.token_bytes
    memory_ns = (fixed_bytes + context * c.kv_bytes) * c.byte_ns
    comm_ns = c.collective_ns + seqs * c.token_comm_bytes * c.comm_byte_ns
    busy_ns = np.maximum(compute_ns, memory_ns)
    if not c.overlap:
        total_ns = busy_ns + comm_ns + c.overhead_ns
    else:
        total_ns = np.maximum(busy_ns, comm_ns) + c.overhead_ns
    return np.rint(total_ns).astype(np.int64)


def kv_capacity_tokens(roofline: Roofline, reserve: float = 0.1) -> int:
    """Tokens of context whose KV fits beside the weights, `reserve` (a share of memory) left free.

    Raises UsageError where not even one does.
    """
    if not is_number(reserve) or not 0 <= reserve < 1:
        raise UsageError(f"hardware: reserve is {reserve!r}; give a share of memory from 0 to below 1")
    device, weights = roofline.device, roofline.weight_bytes
    available = device.memory_bytes * (1 - reserve)
    tokens = math.floor((available - weights) / roofline.kv_bytes_per_token)
    if tokens < 1:
        raise UsageError(
            f"hardware: {roofline.shape.name} needs {weights / 1e9:.2f} GB of weights a device, and {device.name} has "
            f"{available / 1e9:.2f} GB after a reserve of {reserve:.0%}, so no KV fits; {_MEND}"
        )
    return tokens
