"""Parts of a report that ``apply`` and ``undo`` share: failed partitions, freed bytes, leftovers of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from krepair.commit.folder import PartitionFolder
from krepair.commit.reports import ApplyReport
from krepair.commit.result import ChangeResult, failed
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.errors import ExitCode, KrepairError
from krepair.formats.words import names_text
from krepair.logdir.space import taken_below
from krepair.next_command import NOTHING, Next
from krepair.plan.model import PartitionPlan

_MAY_HAVE_CHANGED: Final = frozenset({ExitCode.DONE, ExitCode.PARTLY, ExitCode.INTERRUPTED})

NOT_PUT_BACK: Final = "The clean-shutdown marker was not put back"


def failed_whole(folder: str, why: str, code: ExitCode, *, next_command: Next = NOTHING) -> ChangeResult:
    """Return the result for a partition that failed as a whole."""
    return ChangeResult(
        change_id=folder,
        partition=folder,
        outcome="failed",
        exit_code=int(code),
        why=why,
        next_command=next_command,
    )


def failed_partition(target: PartitionPlan, error: KrepairError | OSError) -> ChangeResult:
    """Return the result for a partition in which an error occurred before anything was changed."""
    if isinstance(error, KrepairError):
        return failed(target.folder, error)
    code = ExitCode.UNWRITABLE if isinstance(error, WritingError) else ExitCode.REFUSED
    return failed(target.folder, error, code=code)


class Measured:
    """Disk usage of targets, measured when a verb begins and again for its report.

    Args:
        tree: files of the log directory.
        folders: folders of the targets, in which no broker may be running.
    """

    def __init__(self, tree: Tree, folders: Sequence[PartitionFolder]) -> None:
        self._holders = {folder.folder: folder.holder for folder in folders}
        self._tree = tree
        self._before = taken_below(self._holders.values(), self._tree)

    def told_in(self, report: ApplyReport) -> ApplyReport:
        """Return the report with the bytes freed in each partition (negative: used) in the partition's first result."""
        now = taken_below(self._before, self._tree)
        freed = {path: before - now[path] for path, before in self._before.items()}
        results = []
        for result in report.results:
            freed_bytes = freed.pop(self._holders.get(result.partition, ""), 0)
            results.append(replace(result, bytes_freed=freed_bytes))
        return replace(report, results=tuple(results))


def notes_of_fences(not_given_back: Sequence[str]) -> tuple[str, ...]:
    """Return the note for recovery guards that were left in place because a broker may have started."""
    if not not_given_back:
        return ()
    text = (
        f"{NOT_PUT_BACK} (recovery guard of {names_text(not_given_back)}): active segments have "
        "changed since krepair set it aside. A broker was started since, or a copy of the directory has lost the times "
        "of its files. So the next start recovers the active segments."
    )
    return (text,)


def with_rolled_back(report: ApplyReport, taken_back: Sequence[str]) -> ApplyReport:
    """Add what this run rolled back to a report whose exit code would otherwise promise that nothing changed.

    Several exit codes promise that nothing was changed. The report gets a different exit code as soon as it names a
    rollback.
    """
    if not taken_back or report.exit_code in _MAY_HAVE_CHANGED:
        return report
    note = f"An earlier run was interrupted. What it left behind was rolled back: {names_text(taken_back)}."
    return replace(report, taken_back=tuple(taken_back), notes=(*report.notes, note))


def with_completed(results: Sequence[ChangeResult], completed: Sequence[ChangeResult]) -> list[ChangeResult]:
    """Add the results of changes that were finished before krepair refused the rest of their partition.

    A refusal changes nothing, so the report states the refusal for the partition as a whole: the change that the
    refusal names may be one that was just finished. After any other failure the originals of a finished change may have
    been restored, so the success of that change is not reported.
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
