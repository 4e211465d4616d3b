"""Where verbs are stopped: at each of their file-changing calls in turn, or at those that tell something new.

``make torture`` kills real processes at any call of any scene (part ``kills``), and runs what samples here with
all calls: ``KREPAIR_EVERY_CALL=1``.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

import pytest

from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import FILE_CHANGING, Call, RecordingDisk, SimulatedCrash, StoppingDisk

EVERY_CALL = os.environ.get("KREPAIR_EVERY_CALL") == "1"
_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+")
_COMPANION = re.compile(r"#\.(?:index|timeindex|txnindex|snapshot)")


def telling_stops(calls: Iterable[Call], kinds: Collection[str] = FILE_CHANGING) -> list[int]:
    """Numbers of the calls to stop before, or to let fail: of calls that are alike the first and the last one.

    Alike are calls of one kind on files of one kind: each segment, companion and partition of a plan is treated as the
    others are. With ``KREPAIR_EVERY_CALL=1`` all.

    Args:
        calls: what a ``RecordingDisk`` saw of the whole verb.
        kinds: of the calls that count.
    """
    changing = [call for call in calls if call.kind in kinds]
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


class TellingDisk(StoppingDisk):
    """Stops before the first call that tells something new: the first or the second one of those that are alike.

    Args:
        inner: what writes.
        told: what was stopped at before, to which this stop is added.
        kinds: of the calls that count.
    """

    def __init__(self, inner: Disk, told: set[tuple[tuple[str, ...], int]], kinds: Collection[str]) -> None:
        super().__init__(inner, 0, kinds)
        self._told = told
        self._alike: Counter[tuple[str, ...]] = Counter()

    def _before(self, call: Call) -> None:
        if self.stopped_at is None and call.kind in self.stop_kinds:
            shape = (call.kind, _shape(call.path), _shape(call.target))
            self._alike[shape] += 1
            place = (shape, self._alike[shape])
            if place[1] <= 2 and place not in self._told:
                self._told.add(place)
                self.stop_before = self.seen + 1
        super()._before(call)


class Stop:
    """A stop before one of a verb's calls.

    Attributes:
        number: of the stop, from 1: of the call, where a verb is stopped before each.
        happened: whether the verb was stopped; else it came to its end before.

    Args:
        disk: what stops.
        ends: what a stop may come out as.
    """

    def __init__(self, number: int, disk: Disk, ends: tuple[type[BaseException], ...]) -> None:
        self.number = number
        self.happened = False
        self._disk = disk
        self._ends = ends

    def __enter__(self) -> Disk:
        return self._disk

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        self.happened = kind is not None and issubclass(kind, self._ends)
        return self.happened


def each_stop(
    *,
    inner: Callable[[], Disk] = UnsyncedDisk,
    kinds: Collection[str] = FILE_CHANGING,
    first: int = 1,
    step: int = 1,
    every: bool = EVERY_CALL,
    ends: tuple[type[BaseException], ...] = (SimulatedCrash,),
) -> Iterator[Stop]:
    """Stops before one call after the other that tells something new, until the body comes to its end without one.

    The verb runs in ``with stop as disk``. The last stop did not happen.

    Args:
        inner: makes what writes.
        kinds: of the calls that count.
        first: number of the first call to stop before.
        step: from one such number to the next; with one above 1, calls that are alike count, too.
        every: whether calls that are alike count.
        ends: what a stop may come out as.
    """
    told: set[tuple[tuple[str, ...], int]] = set()
    for number in itertools.count(first, step):
        disk = (
            StoppingDisk(inner(), number, kinds) if every or step > 1 else TellingDisk(inner(), told, kinds)
        )
        stop = Stop(number, disk, ends)
        yield stop
        if not stop.happened:
            return


def stops(calls: int, samples: int = 24) -> list[int]:
    """Numbers of calls to stop before: the first, the last, and evenly between."""
    return sorted({1 + round(n * (calls - 1) / (samples - 1)) for n in range(samples)})


def calls_of(run: Callable[[Disk], ApplyReport]) -> list[Call]:
    """The file-changing calls of a verb that comes to its end."""
    disk = RecordingDisk(RealDisk())
    report = run(disk)
    assert report.exit_code == ExitCode.DONE, report.results
    return [call for call in disk.calls if call.kind in FILE_CHANGING]


def stopped(run: Callable[[Disk], object], number: int) -> None:
    """A verb of which the process is gone before its file-changing call of this number."""
    with pytest.raises(SimulatedCrash):
        run(StoppingDisk(RealDisk(), number))
