"""A verb stopped at each of its file-changing calls in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from krepair.durable.real_disk import RealDisk
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.durable.disks import SimulatedCrash, StoppingDisk


def every_stop(
    verb: str,
    plan: Plan,
    options: Callable[[], Options],
    ends: tuple[type[BaseException], ...] = (SimulatedCrash,),
) -> Iterator[bool]:
    """Stop the verb at its first call, its second, and so on; give whether it was stopped, until it comes to its end.

    Args:
        verb: ``apply``, or ``undo`` of a plan that is applied before each.
        plan: the plan.
        options: makes the options of each run.
        ends: what a stop may come out as.
    """
    stop, stopped = 0, True
    while stopped:
        stop += 1
        if verb == "undo":
            apply(plan, options())
        try:
            (apply if verb == "apply" else undo)(plan, options(), disk=StoppingDisk(RealDisk(), stop))
            stopped = False
        except ends:
            pass
        yield stopped
