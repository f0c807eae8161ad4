"""When requests are due: open-loop schedules as int64 ns arrays, closed-loop plans as functions of user and turn."""

from tfbench.core.kinds import Mode
from tfbench.manifest import Manifest, RunPlan
from tfbench.schedule.closed_loop import ClosedPlan, closed_plan
from tfbench.schedule.open_loop import Schedule, open_schedule
from tfbench.schedule.ramp import ramp_schedule
from tfbench.schedule.replay import replay_schedule

__all__ = [
    "ClosedPlan",
    "Schedule",
    "build_schedule",
    "closed_plan",
    "open_schedule",
    "ramp_schedule",
    "replay_schedule",
]


def build_schedule(manifest: Manifest, plan: RunPlan) -> Schedule | ClosedPlan:
    """The schedule of one run: a Schedule for open and open_capped load, a ClosedPlan for closed."""
    load = manifest.load
    if load.mode is Mode.CLOSED:
        return closed_plan(
            int(plan.load_value),
            plan.seed,
            think_s=load.think_s,
            warmup_s=load.warmup_s,
            duration_s=load.duration_s,
            drain_s=load.drain_s,
            count=load.count,
        )
    if load.timestamps is not None:
        return replay_schedule(
            load.timestamps,
            plan.load_value,
            warmup_s=load.warmup_s,
            duration_s=load.duration_s,
            drain_s=load.drain_s,
            count=load.count,
        )
    if load.ramp is not None and load.duration_s is not None:
        return ramp_schedule(
            load.process or "poisson",
            plan.load_value,
            load.ramp,
            load.burstiness,
            plan.seed,
            warmup_s=load.warmup_s,
            duration_s=load.duration_s,
            drain_s=load.drain_s,
        )
    return open_schedule(
        load.process or "poisson",
        plan.load_value,
        load.burstiness,
        plan.seed,
        warmup_s=load.warmup_s,
        duration_s=load.duration_s,
        drain_s=load.drain_s,
        count=load.count,
    )
