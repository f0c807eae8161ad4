"""What hardware allows at best: devices, model shapes, the roofline of a step, cost arithmetic. Pure."""

from tfbench.bounds.cost import (
    break_even_tokens_per_s,
    cascade_cost,
    component_change,
    cost_per_million,
    cost_per_task,
    per_million,
)
from tfbench.bounds.device import Device, Link, Rates
from tfbench.bounds.fit import FittedStepTime, MeasuredStep, fit_step_time, measured_steps, step_time_toml
from tfbench.bounds.formats import FORMATS, Format, number_format
from tfbench.bounds.limits import attainable_flops_per_s, launch_gap_s, speedup, step_time_s, transfer_s
from tfbench.bounds.power import power_w, step_energy_j
from tfbench.bounds.profiles import device, device_names, model_names, model_shape
from tfbench.bounds.roofline import Roofline, StepBound, kv_capacity_tokens, steady_durations_ns, step_bound, step_ns
from tfbench.bounds.shape import ModelShape, kv_bytes_per_token, weight_bytes
from tfbench.bounds.work import Work, chunk_pairs

__all__ = [
    "FORMATS",
    "Device",
    "FittedStepTime",
    "Format",
    "Link",
    "MeasuredStep",
    "ModelShape",
    "Rates",
    "Roofline",
    "StepBound",
    "Work",
    "attainable_flops_per_s",
    "break_even_tokens_per_s",
    "cascade_cost",
    "chunk_pairs",
    "component_change",
    "cost_per_million",
    "cost_per_task",
    "device",
    "device_names",
    "fit_step_time",
    "kv_bytes_per_token",
    "kv_capacity_tokens",
    "launch_gap_s",
    "measured_steps",
    "model_names",
    "model_shape",
    "number_format",
    "per_million",
    "power_w",
    "speedup",
    "steady_durations_ns",
    "step_bound",
    "step_energy_j",
    "step_ns",
    "step_time_s",
    "step_time_toml",
    "transfer_s",
    "weight_bytes",
]
