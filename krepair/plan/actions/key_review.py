"""Reviews the figures of key compaction in a plan: nothing at or above the bound goes, and all sums are right."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import UnsetType

from krepair.formats.filenames import segment_name
from krepair.formats.words import count_text
from krepair.plan.facts import PartitionFacts
from krepair.plan.model import KeyCompaction, RewriteSegments, SourceSegment
from krepair.plan.objection import Objection
from krepair.rules.outcome import CompactedSource
from krepair.rules.reasons import Reason

_EMPTIED = {Reason.EMPTIED.value, Reason.EMPTIED_PRODUCER.value, Reason.EMPTIED_LAST.value}


def keys_of_source(facts: PartitionFacts, source: SourceSegment, where: str) -> Iterator[Objection]:
    """All objections to the figures of the records that one source loses."""
    keys = source.by_key
    if keys is None:
        return
    counts = (
        keys.file_bytes,
        keys.records,
        keys.kept,
        keys.superseded,
        keys.tombstones,
        keys.aborted,
        keys.keyless,
        keys.emptied,
    )
    if min(counts) < 0:
        yield Objection("RV32", where, "a count is negative")
    if keys.records != keys.kept + keys.gone:
        yield Objection(
            "RV32",
            where,
            f"{count_text(keys.records, 'record')}, of which {keys.kept} stay and {keys.gone} go: they do not add up",
        )
    if keys.kept != source.kept_records:
        yield Objection(
            "RV32",
            where,
            f"{count_text(keys.kept, 'record stays', 'records stay')}, but its batches hold "
            f"{source.kept_records} of them",
        )
    if keys.keyless > keys.kept:
        yield Objection(
            "RV32", where, f"{count_text(keys.keyless, 'record')} without a key, but {keys.kept} in all"
        )
    emptied = sum(tally.batches for tally in source.reasons if tally.reason in _EMPTIED)
    if keys.emptied > emptied:
        yield Objection(
            "RV32",
            where,
            f"{count_text(keys.emptied, 'batch loses', 'batches lose')} all records, but {emptied} have none then",
        )
    if not keys.headers:
        yield Objection("RV24", where, "the digest of what stays is missing")
    yield from _stays(facts, source, keys, where)
    log = facts.files.get(segment_name(source.base_offset, ".log"))
    if log is not None and source.drop_unstamped != (
        not source.keeps and log.mtime_ns // 1_000_000 <= facts.partition.horizon_ms
    ):
        yield Objection("RV26", where, "whether its delete horizon has passed does not follow from its time")


def _stays(
    facts: PartitionFacts, source: SourceSegment, keys: CompactedSource, where: str
) -> Iterator[Objection]:
    """Objections to the offsets of the last records of keys."""
    if not isinstance(keys.stays, str):
        return
    from krepair.formats.offset_set import (
        OffsetSetError,
        of_text,
        unpacked,
    )  # a plan without them needs no numpy

    try:
        above_base = unpacked(of_text(keys.stays), 0)
    except OffsetSetError as error:
        yield Objection("RV32", where, f"which of its records stay cannot be read: {error}")
        return
    place = bisect_right(facts.bases, source.base_offset)
    last = source.base_offset + int(above_base[-1]) if len(above_base) else -1
    if place < len(facts.bases) and last >= facts.bases[place]:
        yield Objection("RV32", where, f"the record at offset {last} stays, but it is of another segment")
    expected = keys.kept - keys.keyless + keys.tombstones
    if len(above_base) != expected:
        found = count_text(len(above_base), "offset")
        yield Objection("RV32", where, f"{found} of last records of keys, but its figures give {expected}")
    if keys.aborted:
        yield Objection("RV32", where, "a record goes that was aborted, and offsets alone say what stays")


def key_sums(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    """All objections to the figures of a partition with key compaction."""
    where, found = facts.partition.folder, facts.partition.compaction
    if isinstance(found, UnsetType):
        yield Objection("RV32", where, "records go by key, but the plan does not say how many")
        return
    sources = [source for change in changes for source in change.sources]
    if any(source.by_key is None for source in sources):
        yield Objection("RV32", where, "a source of a group says nothing of its keys")
    keys = [source.by_key for source in sources if source.by_key is not None]
    yield from _totals(where, found, keys)
    yield from _bytes(facts, found, sources)


def _totals(where: str, found: KeyCompaction, keys: Sequence[CompactedSource]) -> Iterator[Objection]:
    for name, has, parts in (
        ("superseded", found.superseded, sum(each.superseded for each in keys)),
        ("tombstones_dropped", found.tombstones_dropped, sum(each.tombstones for each in keys)),
        ("aborted", found.aborted, sum(each.aborted for each in keys)),
        ("emptied", found.emptied, sum(each.emptied for each in keys)),
    ):
        if has != parts:
            yield Objection("RV32", where, f"{name} is {has}, its groups give {parts}")
    for name, has, parts in (
        ("records", found.records, sum(each.records for each in keys)),
        ("kept", found.kept, sum(each.kept for each in keys)),
        ("keyless", found.keyless, sum(each.keyless for each in keys)),
    ):
        if has < parts:
            yield Objection("RV32", where, f"{name} is {has}, its groups alone have {parts}")
    if found.records != found.kept + found.gone:
        yield Objection(
            "RV32",
            where,
            f"{count_text(found.records, 'record')}, of which {found.kept} stay and {found.gone} go",
        )
    if found.keys != found.kept - found.keyless + found.tombstones_dropped:
        yield Objection(
            "RV32", where, f"{found.keys} keys do not fit {count_text(found.kept, 'record')} that stay"
        )


def _bytes(
    facts: PartitionFacts, found: KeyCompaction, sources: Sequence[SourceSegment]
) -> Iterator[Objection]:
    where, span = facts.partition.folder, facts.partition.span
    end = -1 if span is None else span.end_offset
    below = [base for base in facts.bases if base < end]
    before = sum(facts.sizes.get(segment_name(base, ".log"), 0) for base in below)
    saved = sum(source.file_bytes - source.kept_bytes for source in sources)
    if (found.bytes_before, found.bytes_after) != (before, before - saved):
        yield Objection(
            "RV32",
            where,
            f"{found.bytes_before} bytes become {found.bytes_after}, its groups give {before} and {before - saved}",
        )
    if found.scratch_bytes < 0:
        yield Objection("RV32", where, "the size of the scratch folder is negative")
