"""The producer snapshots of a log directory: looked at, turned into findings, and into changes of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from krepair.checks.catalogue import Finding
from krepair.fixes.context import Context
from krepair.fixes.files import Made, made_anew, removed
from krepair.fixes.fix import Fix, Purpose, Seen, looked_at, waits
from krepair.fixes.snapshot_state import (
    SNAPSHOT_AT_MOST_BYTES,
    read_snapshot_file,
    rules_now,
    see_snapshots,
    target_of,
)
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Sight, Survey
from krepair.fixes.untouched import (
    beside,
    waits_for_swap,
    why_not_looked_at,
)
from krepair.formats import producer_snapshot
from krepair.formats.broker_version import Version
from krepair.formats.filenames import FileKind, offset_name, parse_file_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import count_text, time_text
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import Partition
from krepair.plan.changes import names_removed
from krepair.plan.model import ReplaceFile
from krepair.rules.forgotten import FORGOTTEN
from krepair.rules.snapshots import (
    REMOVES_STRAYS,
    Forgotten,
    SeenSnapshots,
    SnapshotFile,
    SnapshotReason,
    lost_with_strays,
)

SNAPSHOTS_SEEN: Sight[SeenSnapshots | None] = Sight("producer snapshots")
_UNKNOWN = (
    "producer snapshots: no valid one is left, and the log was compacted or cut at its start: of producers whose "
    "batches are all gone nothing can be known, so a repeat of their last batch would be taken twice"
)
_FEW = 3
_MANY = 100_000
"""So many producers of one partition take tens of MiB of a broker's heap, and each snapshot some MiB."""
_RULES = {
    SnapshotReason.UNREADABLE: "KR501",
    SnapshotReason.PAST_END: "KR502",
    SnapshotReason.OF_NO_SEGMENT: "KR504",
}


class Snapshots(Fix):
    """Producer snapshots: those that are wrong go, and one at the log end is made from the log."""

    name = "snapshots"
    after = ("markers", "tail")

    def read(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Hold the snapshots against the ends of the logs.

        Where one is wrong the log is read from the newest valid one on, as far as it was not scanned already.
        """
        looked = looked_at(surveys, purpose)
        touched = [one for one in looked if not why_not_looked_at(one.partition, one.settings)]
        targets = [target_of(context.view, one.partition, one.segments_after, one.changes) for one in touched]
        clean = context.view.clean_shutdown
        found = see_snapshots(targets, rules_now(context), context.engine, clean=clean, closes=True)
        for survey, seen in zip(touched, found, strict=True):
            survey.put(SNAPSHOTS_SEEN, seen)

    def look(self, context: Context, survey: Survey) -> Seen:
        """KR501 to KR506; the snapshot to make, and those that go."""
        apart = beside(survey)
        damaged = apart is not None and any(one.rule == "KR501" for one in _beside_swap(apart))
        if apart is not None and (damaged or snapshot_changes(apart)[0]):
            return waits(survey, "producer snapshots")
        seen = survey.seen(SNAPSHOTS_SEEN)
        if seen is None:
            return Seen(_beside_swap(survey))
        findings = chain(snapshot_findings(survey, seen), _many_producers(context, survey, seen))
        return Seen(findings, *snapshot_changes(survey), log_end=seen.log_end)

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> Made:
        return (
            _closed_again(work, staging, change)
            if change.rule == FORGOTTEN
            else made_again(work, staging, change)
        )


SNAPSHOTS = Snapshots()


def made_again(work: Work, staging: Staging, change: ReplaceFile, recovered_from: int | None = None) -> Made:
    """The producers at the log end, worked out anew.

    Args:
        work: what they are worked out with.
        staging: of the partition.
        change: the snapshot.
        recovered_from: base offset of the first segment that the next start would recover; None: it recovers none.
    """
    target = target_of(work.view, staging.listed, staging.facts.values(), staging.plan.changes)
    if recovered_from is not None:
        target = target.recovered(recovered_from)
    rules = rules_now(work.context)
    (seen,) = see_snapshots([target], rules, work.engine, clean=work.view.clean_shutdown, always=True)
    if seen is None:
        return Made(b"")
    at_end = seen.name_at_end == change.name
    return Made(seen.data or b"", seen.left or ("" if at_end else f"(the log ends at offset {seen.log_end})"))


def _closed_again(work: Work, staging: Staging, change: ReplaceFile) -> Made:
    """Ask the log anew about the transactions that a snapshot has open: it, with the forgotten ones ended."""
    target = target_of(work.view, staging.listed, staging.facts.values(), staging.plan.changes)
    target = target.recovered(int(change.name.partition(".")[0]))
    (seen,) = see_snapshots([target], rules_now(work.context), work.engine, clean=False)
    found = () if seen is None else seen.forgotten
    data = next((one.data for one in found if one.file.name == change.name), None)
    if data is None:  # mended already, or not to be mended any more
        data = read_whole(staging.folder.at(change.name), SNAPSHOT_AT_MOST_BYTES)
    return Made(data)


def is_snapshot(name: str) -> bool:
    """Whether a file name is that of a producer snapshot."""
    return parse_file_name(name).kind is FileKind.SNAPSHOT


# -- findings


def snapshot_findings(survey: Survey, seen: SeenSnapshots) -> Iterator[Finding]:
    """What is wrong with the snapshots of one partition."""
    folder = survey.partition.folder
    name, text = seen.unread
    if name:
        yield Finding(rule="KR308", partition=folder, file=name, evidence=text)
    for file, reason in seen.judged.wrong:
        if reason is SnapshotReason.UNREADABLE and file.damage is not None:
            yield Finding(
                rule="KR501",
                partition=folder,
                file=file.name,
                position=file.damage.position,
                evidence=f"expected {file.damage.expected}, found {file.damage.found}; {_state_text(seen)}",
                bytes=file.size,
            )
        elif reason is SnapshotReason.PAST_END:
            yield Finding(
                rule="KR502",
                partition=folder,
                file=file.name,
                evidence=f"offset {file.offset} is past the log end {seen.log_end}: the log has lost what was "
                f"written up to there, or the file is not of this partition; {_state_text(seen)}",
                bytes=file.size,
            )
    strays = _of_no_segment(seen)
    if strays:
        shown = ", ".join(file.name for file in strays[:_FEW]) + (" ..." if len(strays) > _FEW else "")
        yield Finding(
            rule=_RULES[SnapshotReason.OF_NO_SEGMENT],
            partition=folder,
            file=strays[0].name,
            evidence=f"{len(strays)} snapshots below the last two segments are named after no segment: {shown}; a "
            "broker leaves one at each clean stop and each recovery, and removes it later",
            bytes=sum(file.size for file in strays),
        )
    if seen.forgets:
        yield Finding(
            rule="KR503",
            partition=folder,
            evidence=f"no snapshot at all, the log ends at {seen.log_end}; cleanly stopped, so the log will not be "
            f"read either: {_counted(seen)} will be forgotten",
        )
    for one in seen.forgotten:
        if one.at_start and not seen.left:
            yield Finding(
                rule=FORGOTTEN,
                partition=folder,
                file=one.file.name,
                evidence=f"{_forgotten_text(one)}; the next start begins with this snapshot",
                bytes=one.file.size,
            )


def _many_producers(context: Context, survey: Survey, seen: SeenSnapshots) -> Iterator[Finding]:
    """KR506: what the newest snapshot holds, where a broker keeps very many producers."""
    newest = seen.judged.base
    if newest is None or newest.producers < _MANY or newest.size > SNAPSHOT_AT_MOST_BYTES:
        return
    try:
        data = read_whole(f"{survey.partition.path}/{newest.name}", SNAPSHOT_AT_MOST_BYTES)
    except OSError:
        return  # what cannot be read is KR308
    _, _, sequence, offset, delta, timestamp, _, open_from = producer_snapshot.table(data).T
    once = int(np.count_nonzero((offset >= 0) & (sequence == delta)))
    ended = timestamp[open_from < 0]
    rules, settings = rules_now(context), context.settings
    key = "producer" if rules.expiry_ms == settings.producer_id_expiration_ms else "transactional"
    first, last = (
        int(one) + rules.expiry_ms for one in (ended.min(initial=INT64_MAX), ended.max(initial=-1))
    )
    forgets = "" if not len(ended) else f": from {time_text(first)} to {time_text(last)}"
    yield Finding(
        rule="KR506",
        partition=survey.partition.folder,
        file=newest.name,
        evidence=f"{len(timestamp):,} producer ids, {once:,} of them of one batch only, {newest.size} bytes; "
        f"{count_text(len(seen.files), 'snapshot')} here of {sum(one.size for one in seen.files)} bytes. A broker "
        f"forgets an id {key}.id.expiration.ms={rules.expiry_ms} after its last batch{forgets}; "
        f"{len(timestamp) - len(ended):,} have a transaction open, and stay",
        bytes=newest.size,
    )


def _forgotten_text(one: Forgotten) -> str:
    shown = ", ".join(
        f"of producer {producer}, epoch {epoch}, from offset {first} on"
        for producer, epoch, first in one.producers[:_FEW]
    )
    more = " ..." if len(one.producers) > _FEW else ""
    count = count_text(len(one.producers), "transaction is", "transactions are")
    return f"{count} open here, but the log has no batch of it and no end of it: {shown}{more}"


def _beside_swap(survey: Survey) -> Iterator[Finding]:
    """Of a partition whose log end waits for a swap: only what a snapshot says by itself."""
    if not waits_for_swap(survey.partition, survey.settings):
        return
    waits = "left as it is: a .swap in its folder has to become a segment first (--fix leftovers)"
    for name, position, text in snapshot_problems(survey.partition):
        rule = "KR501" if position >= 0 else "KR308"
        evidence = f"{text}; {waits}" if position >= 0 else text
        yield Finding(
            rule=rule, partition=survey.partition.folder, file=name, position=position, evidence=evidence
        )


def _of_no_segment(seen: SeenSnapshots) -> list[SnapshotFile]:
    return [file for file, reason in seen.judged.wrong if reason is SnapshotReason.OF_NO_SEGMENT]


def _counted(seen: SeenSnapshots) -> str:
    return f"{seen.producers} producers, {seen.open_transactions} of them with an open transaction"


def _state_text(seen: SeenSnapshots) -> str:
    if seen.left:
        return f"left as it is: {seen.left}"
    return f"{_counted(seen)} at the log end {seen.log_end}, {_source(seen)}"


def _source(seen: SeenSnapshots) -> str:
    if seen.judged.base is None:
        return f"by the log from offset {seen.log_start} on"
    if seen.judged.at_end:
        return f"by {seen.judged.base.name}"
    return f"by {seen.judged.base.name} and the log from there on"


def snapshot_problems(partition: Partition) -> Iterator[tuple[str, int, str]]:
    """File, position and what is wrong, of each snapshot of a partition that a broker would not load."""
    for snapshot in partition.snapshots:
        try:
            damage = read_snapshot_file(snapshot).damage
        except OSError as error:
            yield snapshot.file.name, -1, why(error)
            continue
        if damage is not None:
            yield snapshot.file.name, damage.position, f"expected {damage.expected}, found {damage.found}"


# -- forecast


def snapshot_forecast(survey: Survey, version: Version, recovered_from: int) -> str:
    """What the next start does with the snapshots that are wrong, in words to add to its line, or empty.

    Args:
        survey: the partition, looked at.
        version: of the broker that is to start, None if not known.
        recovered_from: base offset of the first segment that is recovered, -1 after a clean stop. A recovery begins
            with the state at that offset and makes all later snapshots anew.
    """
    seen = survey.seen(SNAPSHOTS_SEEN)
    if seen is None or seen.left:
        return ""
    if seen.forgets:
        return f"without a producer snapshot {_counted(seen)} are forgotten"
    clean = recovered_from < 0
    end = seen.log_end if clean else recovered_from
    wrong = [file for file, reason in seen.judged.wrong if reason is not SnapshotReason.OF_NO_SEGMENT]
    if not any(file.offset > seen.log_start and (clean or file.offset <= end) for file in wrong):
        return ""
    gone = _removed_unread(seen, version) if clean else set()
    left = [file for file in seen.files if seen.log_start < file.offset <= end and file.offset not in gone]
    newest = max((file.offset for file in left if file.damage is None), default=seen.log_start)
    read = [file.offset for file in left if file.offset > newest]
    texts = []
    if gone:
        texts.append(f"removes the producer snapshots {_names(sorted(gone))} unread")
    if read:
        texts.append(f"removes the producer snapshots {_names(read)} as unreadable")
    if newest < end:
        texts.append(f"reads the log from offset {newest} on for its producers")
    return ", ".join(texts)


def _removed_unread(seen: SeenSnapshots, version: Version) -> set[int]:
    gone = {file.offset for file in seen.files if file.offset > seen.log_end}
    if version is None or (REMOVES_STRAYS is not None and version >= REMOVES_STRAYS):
        gone |= set(lost_with_strays(seen.files, seen.bases))
    return gone


def _names(offsets: Sequence[int]) -> str:
    return ", ".join(offset_name(offset) for offset in offsets[:_FEW]) + (
        " ..." if len(offsets) > _FEW else ""
    )


# -- plan


def snapshot_changes(survey: Survey) -> tuple[tuple[ReplaceFile, ...], tuple[str, ...]]:
    """The snapshot to make and those to set aside, and what the reviewer must know."""
    seen = survey.seen(SNAPSHOTS_SEEN)
    if seen is None:
        return (), ()
    wrong, taken = seen.judged.wrong, names_removed(survey.changes)
    if seen.left:
        return (), (f"its producer snapshots are left alone: {seen.left}",) if wrong or not seen.files else ()
    changes = [_made(survey, seen)] if seen.makes else []
    changes += [_closed(survey, one) for one in seen.rewritten if one.file.name not in taken]
    changes += [
        _set_aside(survey, file, reason)
        for file, reason in wrong
        if file.name not in taken and not (seen.makes and file.name == seen.name_at_end)
    ]
    return tuple(changes), _notes(survey, seen) if seen.makes else ()


def _notes(survey: Survey, seen: SeenSnapshots) -> tuple[str, ...]:
    """What is not known, and whom consumers of committed records will wait for."""
    table = producer_snapshot.table(seen.data or b"")
    opened = table[table[:, -1] >= 0]
    lines = [
        f"producer snapshots: producer {row[0]}, epoch {row[1]}, has a transaction open since offset {row[7]}; its "
        f"last batch is of {time_text(row[5])}; read_committed stops there until it is ended"
        for row in opened[np.argsort(opened[:, -1], kind="stable")][:_FEW].tolist()
    ]
    if len(opened) > _FEW:
        lines.append(f"producer snapshots: {len(opened) - _FEW} more have a transaction open")
    if seen.judged.base is None and (survey.settings.compacts or seen.log_start > 0):
        lines.append(_UNKNOWN)
    return tuple(lines)


def _made(survey: Survey, seen: SeenSnapshots) -> ReplaceFile:
    before = next((file for file in seen.files if file.offset == seen.log_end), None)
    reason = f"{_damage_text(before)}{_counted(seen)}, {_source(seen)}"
    folder, data = survey.partition.folder, seen.data or b""
    return made_anew(folder, seen.name_at_end, before, data, _first_rule(seen), reason)


def _closed(survey: Survey, one: Forgotten) -> ReplaceFile:
    return made_anew(
        survey.partition.folder, one.file.name, one.file, one.data, FORGOTTEN, _forgotten_text(one)
    )


def _set_aside(survey: Survey, file: SnapshotFile, reason: SnapshotReason) -> ReplaceFile:
    return removed(survey.partition.folder, file, _RULES[reason], f"{_damage_text(file)}{reason.value}")


def _damage_text(file: SnapshotFile | None) -> str:
    damage = None if file is None else file.damage
    return "" if damage is None else f"expected {damage.expected}, found {damage.found}; "


def _first_rule(seen: SeenSnapshots) -> str:
    if seen.forgets:
        return "KR503"
    reasons = {reason for _, reason in seen.judged.wrong}
    return next((rule for reason, rule in _RULES.items() if reason in reasons), "KR502")
