"""Where verbs are stopped: at each of their file-changing calls in turn, or at those that tell something new.

``make torture`` kills real processes at any call of any scene (part ``kills``), and runs what samples here with
all calls: ``KREPAIR_EVERY_CALL=1``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from krepair.durable.real_disk import RealDisk
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.durable.disks import FILE_CHANGING, Call, SimulatedCrash, StoppingDisk

EVERY_CALL = os.environ.get("KREPAIR_EVERY_CALL") == "1"
_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+")
_COMPANION = re.compile(r"#\.(?:index|timeindex|txnindex|snapshot)")


def telling_stops(calls: Iterable[Call]) -> list[int]:
    """Numbers of the file-changing calls to stop before: of calls that are alike the first and the last one.

    Alike are calls of one kind on files of one kind: each segment, companion and partition of a plan is treated as the
    others are. With ``KREPAIR_EVERY_CALL=1`` all.

    Args:
        calls: what a ``RecordingDisk`` saw of the whole verb.
    """
    changing = [call for call in calls if call.kind in FILE_CHANGING]
    if EVERY_CALL:
        return list(range(1, len(changing) + 1))
    first: dict[tuple[str, ...], int] = {}
    last: dict[tuple[str, ...], int] = {}
    for number, call in enumerate(changing, 1):
        shape = (call.kind, _shape(call.path), _shape(call.target))
        first.setdefault(shape, number)
        last[shape] = number
    return sorted({1, len(changing), *first.values(), *last.values()})


def _shape(path: str) -> str:
    """Name of a file and of its folder, without what tells one segment, companion or partition from another."""
    folder, _, name = _NUMBERS.sub("#", "/".join(path.split("/")[-2:])).rpartition("/")
    return f"{'partition' if folder.endswith('-#') else folder}/{_COMPANION.sub('companion', name)}"


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
