"""Lines of the report of ``apply`` and ``undo``: how a change, or a whole partition, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.durable.writing_error import WritingError
from krepair.errors import ExitCode, KrepairError
from krepair.journal.outcome import Committed, Failed, Outcome, Undone
from krepair.ops.reports import ApplyReport, ChangeOutcome, ChangeResult
from krepair.plan.figures import freed_at_apply
from krepair.plan.model import Change, PartitionPlan

_MOST_NAMED: Final = 3
_MAY_HAVE_CHANGED: Final = frozenset({ExitCode.DONE, ExitCode.PARTLY, ExitCode.INTERRUPTED})


def failed_whole(folder: str, why: str, code: ExitCode) -> ChangeResult:
    """The line of a partition that failed as a whole."""
    return ChangeResult(change_id=folder, partition=folder, outcome="failed", exit_code=int(code), why=why)


def failed_partition(plan: PartitionPlan, error: KrepairError | OSError) -> ChangeResult:
    """The same, by what stopped it."""
    if isinstance(error, KrepairError):
        return failed_whole(plan.folder, error.message, error.exit_code)
    code = ExitCode.UNWRITABLE if isinstance(error, WritingError) else ExitCode.REFUSED
    return failed_whole(plan.folder, f"{error.filename}: {error.strerror}", code)


def result_of(folder: str, outcome: Outcome, *, already: bool = False, freed: int = 0) -> ChangeResult:
    """One line of the report."""
    if isinstance(outcome, Failed):
        return ChangeResult(
            change_id=outcome.change_id,
            partition=folder,
            outcome="failed",
            exit_code=int(outcome.code),
            why=outcome.why,
        )
    if isinstance(outcome, Committed):
        word: ChangeOutcome = "already" if already else "committed"
        return ChangeResult(
            change_id=outcome.change_id, partition=folder, outcome=word, bytes_freed=0 if already else freed
        )
    if isinstance(outcome, Undone):
        return ChangeResult(
            change_id=outcome.change_id, partition=folder, outcome="undone", bytes_freed=freed
        )
    return ChangeResult(change_id=outcome.change_id, partition=folder, outcome="skipped", why=outcome.why)


def freed_by(changes: Mapping[str, Change], change_id: str, sizes: dict[str, int]) -> int:
    """Bytes free right after a change; of an outcome that belongs to no change (the fence): nothing."""
    change = changes.get(change_id)
    return 0 if change is None else freed_at_apply(change, sizes)


def notes_of_fences(not_given_back: Sequence[str]) -> tuple[str, ...]:
    """What to say where a fence went down as after a broker's start."""
    if not not_given_back:
        return ()
    text = (
        f"The clean-shutdown marker was not given back (fence of {', '.join(not_given_back[:3])}): files of active "
        "segments are not as they were when it was set aside, because a broker was started since, or because a copy "
        "of the directory has lost their times. The next start recovers the active segments."
    )
    return (text,)


def with_taken_back(report: ApplyReport, taken_back: Sequence[str]) -> ApplyReport:
    """The report, with what an earlier run had left and this one took back, if its exit code would deny that.

    Several exit codes say that nothing was changed: with what was taken back it is another one.
    """
    if not taken_back or report.exit_code in _MAY_HAVE_CHANGED:
        return report
    named = ", ".join(taken_back[:_MOST_NAMED]) + (", ..." if len(taken_back) > _MOST_NAMED else "")
    note = f"An earlier run was interrupted. What it had left was taken back: {named}."
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
