"""Whole logs are read by tasks, where the engine runs them, and never by the driver.

The journal reads what it keeps, for its digest, at the moment of the commit: that is the committing process's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from krepair.engine.engine import InlineEngine
from krepair.engine.items import arguments_of
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.plan.model import MendLog, ReplaceFile
from tests.engine.travelled import travelled
from tests.look.transaction_records import value_of
from tests.ops import pending
from tests.ops.pending import BASE, name, options
from tests.ops.scene import scene
from tests.ops.tail import CONSENT, damaged
from tests.ops.tail import options as tail_options
from tests.ops.transaction_scene import LAST, MINUTE, rules_of_age, with_coordinator

FRONT = 27
"""Bytes of a batch up to its partition leader epoch, magic and CRC."""


class DriverReads:
    """Bytes of logs that were read outside of any task, by name of the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: dict[str, int] = {}
        self.tasks: set[str] = set()
        self._in_task = False
        monkeypatch.setattr(InlineEngine, "map", self._run)
        for call in ("read", "pread", "preadv"):
            monkeypatch.setattr(os, call, self._watching(getattr(os, call)))

    def _watching(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *rest: Any) -> Any:
            got = real(descriptor, *rest)
            if not self._in_task and not _commits():
                file = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
                if ".log" in file:
                    count = got if isinstance(got, int) else len(got)
                    self.bytes[file] = self.bytes.get(file, 0) + count
            return got

        return call

    def _run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for index, item in enumerate(items):
            self._in_task = True
            self.tasks.add(function.__name__)
            try:
                # As on Spark: what does not travel is not there.
                result = travelled(function, *arguments_of(item))
            finally:
                self._in_task = False
            yield index, result


def _commits() -> bool:
    """Whether the call comes from the journal."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("krepair.commit."):
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> DriverReads:
    return DriverReads(monkeypatch)


def test_a_swap_is_looked_at_completed_and_verified_by_tasks(tmp_path: Path, reads: DriverReads) -> None:
    root = pending.write(tmp_path / "logs")
    chosen = options()
    assert "KR601" in {finding.rule for finding in check([str(root)], chosen).log_dirs[0].findings}
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    assert not verify_plan(plan, chosen).problems
    assert {"inspect_swap", "stage_swap", "verify_swap"} <= reads.tasks
    assert reads.bytes == {}


def test_a_void_swap_may_be_the_only_copy_and_is_looked_at_by_a_task(
    tmp_path: Path, reads: DriverReads
) -> None:
    root = pending.write(tmp_path / "logs", gone=(200, 300))
    (root / pending.FOLDER / name(BASE, ".log.cleaned")).write_bytes(b"")
    (partition,) = (one for one in make_plan(str(root), options()).partitions if one.folder == pending.FOLDER)
    assert (partition.status, partition.code) == ("left alone", "leftovers")
    assert "only copy" in partition.why
    assert reads.bytes == {}


def test_two_copies_of_a_partition_are_compared_by_a_task(tmp_path: Path, reads: DriverReads) -> None:
    one = pending.write(tmp_path / "one")
    shutil.copytree(one, tmp_path / "other")
    report = check([str(one), str(tmp_path / "other")], options())
    assert "KR603" in {finding.rule for finding in report.log_dirs[0].findings}
    assert "compare_two_logs" in reads.tasks
    assert reads.bytes == {}


def test_the_coordinators_log_is_searched_by_a_task(tmp_path: Path, reads: DriverReads) -> None:
    one = value_of(7, "Ongoing", ("s", 3), time_ms=LAST - MINUTE)
    root = with_coordinator(tmp_path / "logs", one, marker_age=6)
    assert rules_of_age(root) == ["KR103"]
    assert "read_transactions" in reads.tasks
    assert reads.bytes == {}


def test_new_segments_are_held_against_their_originals_by_tasks(memory_dir: Path, reads: DriverReads) -> None:
    bloat = scene(memory_dir)
    plan = bloat.plan()
    bloat.apply(plan)
    assert verify_plan(plan, bloat.options(originals=True)).problems == ()
    assert "compare_originals" in reads.tasks
    # After a clean stop plan looks, as the start does, at the batch that the last entry of each active index names:
    # once for the log end, and for the starts without and with the changes, which it compares.
    assert set(reads.bytes.values()) <= {FRONT, 3 * FRONT}


def test_indexes_and_logs_are_looked_at_made_and_verified_by_tasks(
    tmp_path: Path, reads: DriverReads
) -> None:
    torn = damaged(tmp_path / "logs")
    torn.log(0).with_suffix(".timeindex").write_bytes(b"")
    chosen = tail_options(fixes=("index=regenerate", "tail"), accepted_losses=(CONSENT,))
    plan = make_plan(str(torn.root), chosen)
    assert {type(change) for change in plan.partitions[0].changes} == {MendLog, ReplaceFile}
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    assert not verify_plan(plan, chosen).problems
    assert {"inspect", "map_damage", "write_repaired_log"} <= reads.tasks
