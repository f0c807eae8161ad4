"""What is sent: token counts and prompts, deterministic and never shared between runs."""

from tfbench.workload.synthetic import Item, Workload, build_workload

__all__ = ["Item", "Workload", "build_workload"]
