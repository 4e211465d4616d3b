"""What ``apply`` and ``undo`` report alike: what failed whole, what came free, what an earlier run had left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from krepair.commit.folder import PartitionFolder
from krepair.commit.result import ChangeResult, failed
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.errors import ExitCode, KrepairError
from krepair.formats.words import names_text
from krepair.logdir.space import taken_below
from krepair.next_command import NOTHING, Next
from krepair.ops.reports import ApplyReport
from krepair.plan.model import PartitionPlan

_MAY_HAVE_CHANGED: Final = frozenset({ExitCode.DONE, ExitCode.PARTLY, ExitCode.INTERRUPTED})

NOT_PUT_BACK: Final = "The clean-shutdown marker was not put back"


def failed_whole(folder: str, why: str, code: ExitCode, *, next_command: Next = NOTHING) -> ChangeResult:
    """The line of a partition that failed as a whole."""
    return ChangeResult(
        change_id=folder,
        partition=folder,
        outcome="failed",
        exit_code=int(code),
        why=why,
        next_command=next_command,
    )


def failed_partition(target: PartitionPlan, error: KrepairError | OSError) -> ChangeResult:
    """The same, by what stopped it before anything of it was changed."""
    if isinstance(error, KrepairError):
        return failed(target.folder, error)
    code = ExitCode.UNWRITABLE if isinstance(error, WritingError) else ExitCode.REFUSED
    return failed(target.folder, error, code=code)


class Measured:
    """What targets take on the disk: looked at when a verb begins, and again for its report.

    Args:
        tree: of the log directory.
        folders: of the targets. No broker may be at work in them.
    """

    def __init__(self, tree: Tree, folders: Sequence[PartitionFolder]) -> None:
        self._holders = {folder.folder: folder.holder for folder in folders}
        self._tree = tree
        self._before = taken_below(self._holders.values(), self._tree)

    def told_in(self, report: ApplyReport) -> ApplyReport:
        """The report, with what came free of each partition, or was taken, at the first of its results."""
        now = taken_below(self._before, self._tree)
        freed = {path: before - now[path] for path, before in self._before.items()}
        results = []
        for result in report.results:
            came = freed.pop(self._holders.get(result.partition, ""), 0)
            results.append(replace(result, bytes_freed=came))
        return replace(report, results=tuple(results))


def notes_of_fences(not_given_back: Sequence[str]) -> tuple[str, ...]:
    """What to say where a fence went down as after a broker's start."""
    if not not_given_back:
        return ()
    text = (
        f"{NOT_PUT_BACK} (fence of {names_text(not_given_back)}): active segments have "
        "changed since krepair set it aside. A broker was started since, or a copy of the directory has lost the times "
        "of its files. So the next start recovers the active segments."
    )
    return (text,)


def with_taken_back(report: ApplyReport, taken_back: Sequence[str]) -> ApplyReport:
    """The report, with what an earlier run had left and this one took back, if its exit code would deny that.

    Several exit codes say that nothing was changed: with what was taken back it is another one.
    """
    if not taken_back or report.exit_code in _MAY_HAVE_CHANGED:
        return report
    note = f"An earlier run was interrupted. What it had left was taken back: {names_text(taken_back)}."
    return replace(report, taken_back=tuple(taken_back), notes=(*report.notes, note))


def with_completed(results: Sequence[ChangeResult], completed: Sequence[ChangeResult]) -> list[ChangeResult]:
    """Results, with what was finished before the rest of its partition was refused.

    A refusal changes nothing. It is told as one of the partition: its first change may be among those that were
    finished. After any other failure the originals of a change may be back.
    """
    done = {result.change_id for result in completed}
    refusals = (ExitCode.REFUSED, ExitCode.STALE_PLAN)
    refused = [
        replace(result, change_id=result.partition)
        if result.change_id in done and result.outcome == "failed" and result.exit_code in refusals
        else result
        for result in results
        if result.outcome != "skipped" or result.change_id not in done
    ]
    known = {result.change_id for result in refused}
    return [*refused, *(result for result in completed if result.change_id not in known)]
