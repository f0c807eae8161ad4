"""Plain bounds and what-ifs on times, bytes and rates: the formulas alone, SI units throughout."""


def step_time_s(
    *,
    flops: float = 0.0,
    moved_bytes: float = 0.0,
    comm_bytes: float = 0.0,
    flops_per_s: float = 1.0,
    bytes_per_s: float = 1.0,
    link_bytes_per_s: float = 1.0,
    overlap: bool = False,
    rest_s: float = 0.0,
) -> float:
    """Least time of a step: max(FLOPs/C, bytes/B) + comm/N + rest, with comm/N inside the max where it overlaps.

    `rest_s` is what overlaps with nothing (launches, host). The roofline model of Williams, Waterman and Patterson
    (CACM 2009), with communication as its third roof.
    """
    busy_s = max(flops / flops_per_s, moved_bytes / bytes_per_s)
    comm_s = comm_bytes / link_bytes_per_s
    return (max(busy_s, comm_s) if overlap else busy_s + comm_s) + rest_s


def attainable_flops_per_s(peak_flops_per_s: float, bytes_per_s: float, flops_per_byte: float) -> float:
    """The roofline: min(peak, bandwidth · operational intensity)."""
    return min(peak_flops_per_s, bytes_per_s * flops_per_byte)


def speedup(share: float, factor: float) -> float:
    """What the whole gains where `share` of its time gets `factor` times faster: 1/((1 − p) + p/s) (Amdahl).

    The gains of two changes don't multiply: after the first, the second's share is another one.
    """
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError("needs 0 <= share <= 1 and factor > 0")
    return 1 / ((1 - share) + share / factor)


def launch_gap_s(kernels: int, gap_s: float) -> float:
    """Time lost between `kernels` kernels, a gap each: the most that fusing or capturing them could win."""
    return kernels * gap_s


def transfer_s(moved_bytes: float, bytes_per_s: float, *, overlapped_s: float = 0.0) -> float:
    """What a transfer adds: its time less what work hides of it, never below zero."""
    return max(0.0, moved_bytes / bytes_per_s - overlapped_s)
