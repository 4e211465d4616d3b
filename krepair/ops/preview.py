"""``krepair plan --preview``: a plan made beside a running broker, for reading. After the stop the real one is made.

A broker changes the directory while it is read. So what was read of a partition counts only if what it was read from
was the same before and after; else it is read again, and after a few times it is left alone and says so. Damage counts
only if it was met twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from krepair.errors import UnreadableError, UsageError
from krepair.fixes.context import Context
from krepair.fixes.dead_cleaner import cleaner_stands_still
from krepair.fixes.fix import Fix
from krepair.fixes.replicas import with_whole_paths
from krepair.fixes.survey import Survey, log_end_of
from krepair.fixes.table import FIXES, asked
from krepair.formats.words import count_text
from krepair.logdir.steady import deleted_files, why_changed, without_deleted
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.findings.broker_clock import mtimes_look_copied
from krepair.ops.log_dirs_given import check_consents
from krepair.ops.plan import (
    ByFix,
    contexts,
    look_at_partitions,
    partition_plan,
    partitions_named,
    policy_of,
)
from krepair.options import Options
from krepair.pipeline.progress import Progress
from krepair.plan.build import build_plan
from krepair.plan.changes import names_removed
from krepair.plan.model import Commit, PartitionPlan, Plan, Preview

TRIES: Final = 4
"""How often a partition that changes under the reader is read, before it is left alone."""
PAUSE_S: Final = 0.5
CHANGED: Final = "changed"
UNKNOWN: Final = (
    "The order in which files are swapped, and whether under a fence: the active segments tell, after the stop.",
    "High watermarks: a broker writes them down every few seconds. Here they are as they stood in the file.",
    "Where the logs end, and which transactions are open: active segments were read as far as they were written.",
    "What the broker still writes, compacts or deletes until it has stopped.",
)
_NOT_KNOWN: Final = Commit(
    order="P1",
    fence=True,
    why="not known beside a running broker; the plan after the stop decides it",
)


def make_preview(log_dir: str, options: Options, progress: Progress | None = None) -> Plan:
    """Make a preview of a plan for one log directory; a broker may be running on it.

    Raises:
        NotALogDirError: it is none, or no partition of those named is there.
        UsageError: a fix needs a stopped broker; or a configuration file or value is wrong.
    """
    fixes = asked(options.fixes)
    for fix in FIXES:
        fix.check_options(options)
    options = with_whole_paths(options)
    _refuse_what_needs_a_stop(fixes, options)
    view = _listed(log_dir)
    partitions = partitions_named(view, options)
    check_consents([view], options)
    with contexts(view, options, fixes, partitions, progress, beside_broker=True) as context_of:
        reading = PreviewReading(view, fixes, context_of)
        reading.read(view, [partition.folder for partition in partitions])
    return reading.plan()


def _refuse_what_needs_a_stop(fixes: Sequence[Fix], options: Options) -> None:
    able = ", ".join(fix.name for fix in FIXES if fix.previews)
    needs = [fix.name for fix in fixes if not fix.previews]
    if needs:
        raise UsageError(
            f"--preview with --fix {', '.join(needs)}: what it looks at changes while a broker is running; "
            f"a preview is made of {able}"
        )


def _listed(log_dir: str) -> LogDir:
    """The directory as it is now; what vanished while it was listed is listed again."""
    for _ in range(TRIES - 1):
        try:
            return read_log_dir(log_dir)
        except UnreadableError:
            time.sleep(PAUSE_S)
    return read_log_dir(log_dir)


@dataclass(eq=False)
class PreviewReading:
    """Reads partitions until what was read of each belongs together.

    Attributes:
        view: the log directory as it was first listed.
        fixes: asked for.
        context_of: gives a listing its context.
        done: folder -> its part of the plan.
        surveys: folder -> what it was made of.
        copied_mtimes: folders whose modification times look copied (KR106).
        dead_cleaner: folders whose cleaner stands still (KR104).
    """

    view: LogDir
    fixes: Sequence[Fix]
    context_of: Callable[[LogDir], Context]
    done: dict[str, PartitionPlan] = field(default_factory=dict)
    surveys: dict[str, Survey] = field(default_factory=dict)
    copied_mtimes: list[str] = field(default_factory=list)
    dead_cleaner: list[str] = field(default_factory=list)
    _doubted: set[str] = field(default_factory=set)

    def read(self, view: LogDir, folders: Sequence[str]) -> None:
        """All of these partitions, as often as is needed."""
        waiting = set(folders)
        for number in range(TRIES):
            if number:
                time.sleep(PAUSE_S)
            before = {one.folder: one for one in view.partitions if one.folder in waiting}
            context, by_folder = self._look(view, before)
            view = _listed(view.path)
            after = {one.folder: one for one in view.partitions}
            for folder, by_fix in by_folder.items():
                survey = context.surveys[folder]
                found = partition_plan(context, survey, by_fix)
                changed = why_changed(before[folder], after.get(folder), _snapshots_read(survey, found))
                if not changed and not self._is_doubtful(folder, found):
                    self._take(context, survey, found, before[folder])
                elif number == TRIES - 1 or folder not in after:
                    self._leave(survey, changed or "damage was met in it, once")
            waiting = {folder for folder in by_folder if folder not in self.done}
            if not waiting:
                return

    def plan(self) -> Plan:
        """The preview of all partitions that were read."""
        context = self.context_of(self.view)
        return build_plan(
            self.view,
            policy_of(context, [self.surveys[folder] for folder in self.done]),
            list(self.done.values()),
            _NOT_KNOWN,
            copied_mtimes=self.copied_mtimes,
            dead_cleaner=self.dead_cleaner,
            asked=context.options.words("plan", "reading"),
            preview=Preview(unknown=UNKNOWN),
        )

    def _look(self, view: LogDir, before: Mapping[str, Partition]) -> tuple[Context, Mapping[str, ByFix]]:
        steady = view._replace(partitions=tuple(without_deleted(one) for one in view.partitions))
        context = self.context_of(steady)
        partitions = [one for one in steady.partitions if one.folder in before]
        return context, look_at_partitions(context, self.fixes, partitions)

    def _is_doubtful(self, folder: str, found: PartitionPlan) -> bool:
        """Whether damage was met, and for the first time."""
        if not found.uncleanable_bytes or folder in self._doubted:
            return False
        self._doubted.add(folder)
        return True

    def _take(self, context: Context, survey: Survey, found: PartitionPlan, listed: Partition) -> None:
        partition = survey.partition
        if mtimes_look_copied(survey.segments, partition.topic):
            self.copied_mtimes.append(partition.folder)
        if cleaner_stands_still(context.view, survey):
            self.dead_cleaner.append(partition.folder)
        self.surveys[partition.folder] = survey
        self.done[partition.folder] = replace(found, notes=(*found.notes, *_notes(listed)))

    def _leave(self, survey: Survey, changed: str) -> None:
        partition = survey.partition
        self.surveys[partition.folder] = survey
        self.done[partition.folder] = PartitionPlan(
            topic=partition.topic,
            partition=partition.number,
            folder=partition.folder,
            status="left alone",
            code=CHANGED,
            why=f"it changed while it was read: {changed}",
            next_command="krepair plan LOGDIR --preview --out PLAN",
            high_watermark=survey.high_watermark,
        )


def _notes(listed: Partition) -> tuple[str, ...]:
    deleted = len(deleted_files(listed))
    if not deleted:
        return ()
    text = (
        f"{count_text(deleted, 'file')} (.deleted) will be deleted by the broker; after a stop before that, "
        "plan with --fix leftovers, too"
    )
    return (text,)


def _snapshots_read(survey: Survey, found: PartitionPlan) -> set[str]:
    """Producer snapshots that decisions came from, or that would go."""
    log_end = log_end_of(survey.segments)
    below = [one.file.name for one in survey.partition.snapshots if one.offset <= log_end]
    return {*below[-1:], *names_removed(found.changes)}
