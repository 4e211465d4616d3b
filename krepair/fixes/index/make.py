"""Staging and verification of ``--fix index``, which rebuilds index files from their logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from krepair.durable.attributes import read_attributes
from krepair.errors import StalePlanError
from krepair.fixes.files import attribute_source
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Kind, Staging, Work, Wrong
from krepair.plan.model import Change, ReplaceFile

if TYPE_CHECKING:
    from krepair.rewrite.indexes.segment import RepairItem, RepairResults

_REPLAYED = -1
"""Value in place of a base offset for transaction indexes, all of which one replay of the partition builds."""
INDEXES: Final = Kind(
    "indexes", "size, digest and attributes against the plan, and its entries against the log"
)
FORMS: Final = Kind("transaction indexes", "size, digest and attributes against the plan")


def stage_indexes(
    work: Work, stagings: Sequence[Staging], replayed_from: Callable[[Staging], int] = lambda staging: 0
) -> None:
    """Rebuild index files, one task per segment; a partition's problem is stored in its staging.

    Args:
        stagings: partitions, whose changes are all carried out.
        replayed_from: base offset of the first segment that is replayed for a ``.txnindex``.
    """
    from krepair.rewrite.indexes.segment import repair_indexes

    jobs: list[tuple[Staging, tuple[RepairItem, ...]]] = []
    for staging in stagings:
        with staging.taking_problems():
            staging.folder.make_private_folders()
            staging.unsynced = True
            items = mend_items(work, staging, staging.stage_folder, replayed_from(staging))
            jobs += [(staging, job) for job in served_together(items)]
    for staging, problems in work.engine.each(repair_indexes, jobs):
        for failed in problems:
            staging.record_failure(failed)


def indexes_against_logs(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield one reading per segment that compares its new files with the log.

    Raises:
        KrepairError: a segment is gone.
        OSError: a file cannot be looked at.
    """
    from krepair.rewrite.indexes.segment import verify_repaired

    for together in served_together(mend_items(work, staging, staging.folder.path)):
        changes = [item.change for item in together]

        def says(results: Sequence[RepairResults], changes: list[ReplaceFile] = changes) -> Iterator[Wrong]:
            for change, failed in zip(changes, results[0].results, strict=True):
                if failed is not None:
                    yield Wrong(staging.plan.folder, change.change_id, failed.why)

        kind = FORMS if changes[0].name.endswith(".txnindex") else INDEXES
        yield SecondReading(changes[0], kind, verify_repaired, (together,), says, files=len(changes))


def transaction_indexes_made(staging: Staging) -> dict[str, Change]:
    """Return the change of each rebuilt transaction index, by file name."""
    return {
        change.name: change
        for change in staging.changes
        if isinstance(change, ReplaceFile) and change.method != "remove" and change.name.endswith(".txnindex")
    }


def served_together(items: Sequence[RepairItem]) -> list[tuple[RepairItem, ...]]:
    """Group the files of a partition, so that one reading of a log rebuilds all files of a group."""
    groups: dict[int, list[RepairItem]] = {}
    for item in items:
        replays = item.change.name.endswith(".txnindex")
        groups.setdefault(_REPLAYED if replays else item.base_offset, []).append(item)
    return list(map(tuple, groups.values()))


def mend_items(work: Work, staging: Staging, target: str, replayed_from: int = 0) -> list[RepairItem]:
    """Return the work items that build or verify replaced index files.

    Args:
        staging: staging of the partition, whose changes are carried out.
        target: absolute path of the folder of the new files.
        replayed_from: base offset of the first segment that is replayed for a ``.txnindex``.

    Raises:
        StalePlanError: a segment is gone.
        OSError: the file whose owner and mode a new file takes over cannot be read.
    """
    from krepair.rewrite.indexes.segment import RepairItem

    logs = {segment.base_offset: segment.log.size for segment in staging.listed.segments}
    items = []
    for change in staging.changes:
        assert isinstance(change, ReplaceFile)
        base_offset = int(change.name.partition(".")[0])
        if base_offset not in logs:
            raise StalePlanError(
                f"{staging.folder.at(change.name)}: its .log is gone since the plan was made"
            )
        like = attribute_source(staging.folder, staging.listed, change.name)
        items.append(
            RepairItem(
                place=work.place(staging),
                change=change,
                base_offset=base_offset,
                log_bytes=logs[base_offset],
                interval_bytes=work.settings(staging).index_interval_bytes,
                target=f"{target}/{change.name}",
                attributes=read_attributes(like, staging.folder.tree),
                segments=tuple(log for log in sorted(logs.items()) if log[0] >= replayed_from)
                if change.name.endswith(".txnindex")
                else (),
                synced=not work.together,
            )
        )
    return items
