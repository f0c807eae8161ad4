import subprocess
import sys

SCRIPT = """
import os, subprocess, sys
from tfbench.core.precedence import take_precedence
said = take_precedence()
policy = getattr(os, "sched_getscheduler", lambda pid: 0)
ask = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]
child = subprocess.run(ask, capture_output=True, text=True)
print(said, policy(0) & 7, child.stdout.strip(), sep=",")
"""


def test_what_is_said_is_in_force_and_children_do_not_inherit_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    said, policy, child = done.stdout.strip().split(",")
    if said == "round-robin 1":
        assert (policy, child) == ("2", "0")
    else:
        assert said.startswith("nice ") and policy == "0"
