"""The part of a plan's page about key compaction: what is removed per partition, and what each horizon would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.formats.words import count_text
from krepair.plan.actions.table import action_of
from krepair.plan.model import KeyCompaction, PartitionPlan, Plan
from krepair.plan.ticket import IN_FULL, MOST_ROWS
from krepair.plan.view import Cell, Section, bytes_text, folded, horizon_text, table_of

_SUMMED: Final = (
    "keys",
    "records",
    "superseded",
    "tombstones_dropped",
    "tombstones_kept",
    "aborted",
    "keyless",
    "kept",
    "bytes_before",
    "bytes_after",
)


def keys_sections(plan: Plan) -> Iterator[Section]:
    """The sections for records by key and for tombstones by horizon; none if there is no key compaction."""
    found = [
        (part, part.compaction) for part in plan.partitions if isinstance(part.compaction, KeyCompaction)
    ]
    yield _records(found)
    yield _tombstones(found)


def _records(found: Sequence[tuple[PartitionPlan, KeyCompaction]]) -> Section:
    shown = sorted(found, key=lambda one: (one[1].bytes_after - one[1].bytes_before, one[0].folder))[
        :MOST_ROWS
    ]
    rows = folded((part.folder, *_figures([keys])) for part, keys in shown)
    if len(found) > len(shown):
        drawn = {part.folder for part, _ in shown}
        others = [keys for part, keys in found if part.folder not in drawn]
        rows.append((f"{len(others):,} others", *_figures(others)))
    if len(found) > 1:
        rows.append((f"all {len(found):,} together", *_figures([keys for _, keys in found])))
    lines = [*_notes([keys for _, keys in found]), *_planned([part for part, _ in found])]
    if len(found) > len(shown):
        lines.append(f"The {len(shown)} that free most are shown. {IN_FULL}")
    table = table_of(
        "partition | # keys | # records | # superseded | # tombstones gone | # tombstones that stay | "
        "# aborted | # without key, stay | # records that stay | # bytes before | # bytes after",
        rows,
    )
    return Section(
        title="Records by key, below the bound", lines=tuple(lines), table=table, part="partitions"
    )


def _figures(found: Sequence[KeyCompaction]) -> tuple[str, ...]:
    return tuple(f"{sum(getattr(keys, name) for keys in found):,}" for name in _SUMMED)


def _notes(found: Sequence[KeyCompaction]) -> Iterator[str]:
    if not found:
        return
    rewritten, emptied = sum(keys.rewritten for keys in found), sum(keys.emptied for keys in found)
    yield (
        f"Batches that lose some of their records, and are written anew: {rewritten:,}. Batches that lose all of them: "
        f"{emptied:,}. Every other batch is copied as it is."
    )
    keyless = sum(keys.keyless for keys in found)
    if keyless:
        yield f"{count_text(keyless, 'record')} without a key: kept. A broker's cleaner would drop what has no key."
    scratch = sum(keys.scratch_bytes for keys in found)
    yield (
        f"What does not fit into memory goes to a scratch folder (--scratch DIR, for plan, apply and verify): "
        f"{bytes_text(scratch)} at most, commonly much less."
    )


def _planned(parts: Sequence[PartitionPlan]) -> Iterator[str]:
    changes = (change for part in parts for change in part.changes)
    keys = [source.by_key for change in changes for source in action_of(change).sources(change)]
    named = [one for one in keys if one is not None and isinstance(one.stays, str)]
    if named:
        yield (
            f"The plan names the last record of each key in {count_text(len(named), 'segment')}, of which "
            f"{count_text(sum(one.kept for one in named), 'record stays', 'records stay')}. apply goes by that, and "
            "proves it against the log before anything is changed."
        )


def _tombstones(found: Sequence[tuple[PartitionPlan, KeyCompaction]]) -> Section:
    with_some = [(part, keys) for part, keys in found if keys.tombstones_dropped or keys.tombstones_kept]
    rows: list[tuple[Cell, ...]] = [
        (
            part.folder,
            choice.name,
            horizon_text(choice.horizon_ms),
            choice.dropped,
            choice.kept,
            "chosen" if choice.chosen else "",
        )
        for part, keys in with_some[:MOST_ROWS]
        for choice in keys.horizons
    ]
    lines = (f"The first {MOST_ROWS} are shown. {IN_FULL}",) if len(with_some) > MOST_ROWS else ()
    return Section(
        title="What each delete horizon would do to tombstones",
        lines=lines,
        table=table_of(
            "partition | horizon | without a stamp up to | # tombstones that go | # tombstones that stay | ",
            folded(rows),
        ),
        part="horizons",
    )
