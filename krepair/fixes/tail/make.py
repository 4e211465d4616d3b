"""Staging and verification of ``--fix tail``: logs without their damage, with the indexes that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from krepair.engine.items import Failed
from krepair.fixes.second_readings import SecondReading, check_removed, verify_transaction_indexes
from krepair.fixes.staging import Kind, Staging, Work
from krepair.fixes.tail.decide import mended_item
from krepair.formats.filenames import segment_name
from krepair.plan.model import Change, MendLog, SetAside

if TYPE_CHECKING:
    from krepair.rewrite.damage import RepairedLogItem, RepairedLogResult

MENDED: Final = Kind("repaired logs", "every batch, its indexes, and the plan's size and digest", is_log=True)


def stage_repaired_logs(work: Work, stagings: Sequence[Staging]) -> None:
    """Stage the logs without their damage; a segment that is moved to backup needs no staged file."""
    from krepair.rewrite.damage import write_repaired_log

    jobs: list[tuple[tuple[Staging, MendLog], RepairedLogItem]] = []
    for staging in stagings:
        logs = [change for change in staging.changes if isinstance(change, MendLog)]
        if logs:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                jobs += [((staging, log), _staged_item(work, staging, log)) for log in logs]
    for (staging, change), result in work.engine.each(write_repaired_log, jobs):
        if isinstance(result, Failed):
            staging.record_failure(result)
        elif wrong := _not_as_planned(change, result):
            staging.record_failure(Failed("changed", wrong))


def readings_of_repaired_logs(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield the checks of applied changes.

    A repaired log is read from end to end and compared with its backup; a segment moved to backup must be
    absent from the log and present in the backup.
    """
    from krepair.rewrite.damage import VerifyRepairedLogItem, verify_repaired_log

    made: dict[str, Change] = {}
    for change in staging.changes:
        if isinstance(change, SetAside):
            yield check_removed(staging, change, change.names)
            continue
        assert isinstance(change, MendLog)
        later = [base for base, _ in staging.listed.log_sizes if base > change.base_offset]
        item = VerifyRepairedLogItem(
            place=work.place(staging),
            change=change,
            interval_bytes=work.settings(staging).index_interval_bytes,
            keep=staging.keep,
            next_base=later[0] if later else -1,
        )
        yield SecondReading(change, MENDED, verify_repaired_log, (item,))
        made |= {new.name: change for new in change.companions if new.name.endswith(".txnindex")}
    yield from verify_transaction_indexes(work, staging, made)


def _staged_item(work: Work, staging: Staging, change: MendLog) -> RepairedLogItem:
    """Return the work item that builds and stages the files of a repaired segment."""
    ranges = tuple((removed.start, removed.end) for removed in change.removed)
    lost = tuple((removed.first_lost, removed.last_lost) for removed in change.removed)
    torn = not all(removed.consent for removed in change.removed)
    has_txn_index = any(new.name.endswith(".txnindex") for new in change.companions)
    has_txn_index = (
        has_txn_index and torn and any(word.partition("=")[0] == "tail" for word in work.plan.policy.fixes)
    )
    analysis, sizes = work.analysis(staging), (change.base_offset, change.size_before)
    item = mended_item(work.view, analysis, *sizes, ranges, lost, torn=has_txn_index)
    return replace(item, target=staging.stage_folder, with_log=change.method == "excise", torn=torn)


def _not_as_planned(change: MendLog, made: RepairedLogResult) -> str:
    """Describe how the rebuilt files differ from the plan; return an empty string if they do not."""
    companions = {
        segment_name(change.base_offset, companion.suffix): companion
        for companion in made.companions
        if not companion.same
    }
    planned = {
        companion.name: (companion.size_before, companion.size_after, companion.digest_after)
        for companion in change.companions
    }
    rebuilt = {
        name: (companion.size_before, companion.size_after, companion.digest_after)
        for name, companion in companions.items()
    }
    log = (made.size, made.digest, made.digest_gone, made.last_offset)
    if log != (change.size_after, change.digest_after, change.digest_removed, change.last_offset):
        return f"{change.change_id}: the removed and remaining bytes are not those of the plan"
    if planned != rebuilt:
        return f"{change.change_id}: its rebuilt indexes differ from the plan"
    return ""
