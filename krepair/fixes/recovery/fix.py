"""Class of ``--fix recovery`` for the table of fixes; ``decide`` and ``make`` do the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.commit.fence import standing_fences
from krepair.durable.tree import Tree
from krepair.engine.choice import WorkKind
from krepair.errors import RefusedError
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context
from krepair.fixes.files import RECOVERED
from krepair.fixes.fix import Fix, Proposal, Purpose, RootProposal
from krepair.fixes.recovery.decide import (
    RECOVERY_RESULT,
    Range,
    Recovered,
    analyze_ranges,
    look_at_gain,
    other_log_dirs,
    sums,
)
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.next_command import Next
from krepair.plan.model import ChangeLines, KeepOriginal

CLEAN = (
    "the broker was stopped cleanly: its next start recovers nothing, so there is nothing to do beforehand"
)


def refuse_standing_fences(view: LogDir) -> None:
    """Refuse if any recovery guard is up.

    Raises:
        RefusedError: the recovery guard of an unfinished plan is set.
    """
    with Tree(view.path, view.inode) as tree:
        places = standing_fences(tree, view.path)
    if places:
        raise RefusedError(
            f"{places[0]}: the recovery guard of an unfinished plan is set, and has lowered a recovery point; "
            "end that plan",
            next_command=Next.of("undo", view.path),
        )


class Recovery(Fix):
    """Fix ``recovery``, which does the work of a start after an unclean stop, and advances the recovery points."""

    name = "recovery"
    reads_logs = True
    work = WorkKind.RECOVER
    after = ("leftovers", "markers", "tail", "epochs", "snapshots", "index")

    def best_mode(self, analyses: Sequence[PartitionAnalysis]) -> str:
        """Return the fix's name, or an empty string if no partition would gain anything."""
        results = (analysis.result(RECOVERY_RESULT) for analysis in analyses)
        return (
            self.name
            if any(result is not None and result.before > result.after for result in results)
            else ""
        )

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Read the segments that a start would recover, in one job, and compute the files that a recovery would leave.

        Raises:
            RefusedError: the recovery guard of an unfinished plan is set, and has lowered a recovery point.
        """
        if context.view.clean_shutdown:
            if purpose == "plan":
                for analysis in analyses:
                    analysis.put(RECOVERY_RESULT, Recovered(Proposal(notes=(f"recovery: {CLEAN}",))))
            return
        if purpose == "check":
            for analysis in analyses:
                look_at_gain(context, analysis)
            return
        refuse_standing_fences(context.view)
        ranges = [Range(context, analysis) for analysis in analyses if analysis.partition.segments]
        analyze_ranges(context, ranges)
        for range_ in ranges:
            range_.analysis.put(RECOVERY_RESULT, range_.outcome())

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return the files that a recovery would leave in the range, and the new segment."""
        return (analysis.result(RECOVERY_RESULT) or Recovered()).proposal

    def propose_root(self, context: Context) -> RootProposal:
        """Return the entries of the recovery points, in the order of the partitions."""
        results = {
            analysis.partition.folder: result
            for analysis in context.analyses.values()
            if (result := analysis.result(RECOVERY_RESULT)) is not None
        }
        raised = [result for result in results.values() if result.line is not None]
        if not raised:
            return RootProposal()
        file = context.view.recovery_point.file
        text = sums(results)
        change = ChangeLines(
            change_id=f"./{RECOVERY_POINT_CHECKPOINT}",
            name=RECOVERY_POINT_CHECKPOINT,
            rule=RECOVERED,
            lines=tuple(result.line for result in raised if result.line is not None),
            size_before=-1 if file is None else file.size,
            reason=text,
            undo=KeepOriginal(),
        )
        others = (f"recovery: {other}" for other in other_log_dirs(context))
        return RootProposal(changes=(change,), notes=(f"recovery: {text}", *others))

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Stage the changes of all partitions."""
        from krepair.fixes.recovery.make import stage

        stage(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield readings of segments that a start no longer reads, and checks that small files are as planned."""
        from krepair.fixes.recovery.make import second_readings

        return second_readings(work, staging)


RECOVERY = Recovery()
