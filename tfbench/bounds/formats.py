"""Number formats of weights, activations and KV: how many bits a value takes, and what multiplies it."""

import difflib
from dataclasses import dataclass

from tfbench.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Format:
    """A number format. `unit` is the kind of arithmetic unit that multiplies it (a field of `Rates`).

    Where `block` values share a scale (or more), its bits count: NVFP4 takes 4 + 8/16 = 4.5 bits a value.
    """

    name: str
    code_bits: int
    unit: str
    block: int = 1
    scale_bits: int = 0

    @property
    def bits(self) -> float:
        """Bits a value takes, its share of the scale included."""
        return self.code_bits + self.scale_bits / self.block


FORMATS = {
    fmt.name: fmt
    for fmt in (
        Format("fp32", 32, "fp32"),
        Format("bf16", 16, "bf16"),
        Format("fp16", 16, "fp16"),
        Format("fp8", 8, "fp8"),  # a scale for a whole tensor or channel takes no bits a value
        Format("int8", 8, "int8"),
        Format("int4", 4, "int4"),  # bare codes
        Format("int4-g128", 4, "int4", block=128, scale_bits=16),  # GPTQ, symmetric, groups of 128
        Format("q8_0", 8, "int8", block=32, scale_bits=16),  # GGUF: a 16-bit scale for 32 values
        Format("q4_0", 4, "int4", block=32, scale_bits=16),
        Format("q4_1", 4, "int4", block=32, scale_bits=32),  # GGUF: scale and minimum, 16 bits each
        Format("mxfp8", 8, "fp8", block=32, scale_bits=8),  # OCP Microscaling v1.0: an E8M0 scale for 32 values
        Format("mxfp4", 4, "fp4", block=32, scale_bits=8),
        Format("nvfp4", 4, "fp4", block=16, scale_bits=8),  # an E4M3 scale for 16 values
    )
}
"""Formats by name."""


def number_format(name: str) -> Format:
    """The format `name`; UsageError with the nearest name where there is none."""
    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, FORMATS, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    raise UsageError(f'precision: no number format "{name}"; {hint}there are: {", ".join(FORMATS)}')


def wider(a: Format, b: Format) -> Format:
    """The format that a product of `a` and `b` is computed in: the one with more bits in a code, `a` where equal."""
    return b if b.code_bits > a.code_bits else a
