"""The kinds of change, as typed values: what each of them does to which files. ``model.py`` has the rest of a plan.

All code asks a change for its ``files``, or for the facts of ``OneChange``. Only four places depend on the kind of a
change: its words (``change_words.py``), its review (``change_review.py``), its pictures (``log_contents.py``), and the
record in the journal with which it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Literal, NamedTuple

from msgspec import Struct

from krepair.checks.catalogue import RULES
from krepair.formats.filenames import (
    LOG,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    SWAP,
    offset_name,
    segment_name,
)
from krepair.rules.changed_entries import ChangedLine, raised
from krepair.rules.outcome import SourceSegment

_LONGEST_NUMBER: Final = 20
_OF_NOTHING: Final = "cae66941d9efbd404e4d88758ea67670"
"""Digest of an empty file, as ``logdir.fingerprint.digest_bytes`` computes it."""


class KeepOriginal(Struct, frozen=True, tag="keep original", kw_only=True):
    """Undo: the originals are kept in the work folder, and are restored byte for byte."""


class FreeWhenVerified(Struct, frozen=True, tag="free when verified", kw_only=True):
    """Undo: possible only until the new files are read again and verified; then the originals are freed at once."""


class NotReversible(Struct, frozen=True, tag="not reversible", kw_only=True):
    """Undo: impossible.

    Attributes:
        why: what would be lost.
    """

    why: str


Undo = KeepOriginal | FreeWhenVerified | NotReversible


class FileChange(NamedTuple):
    """The effect of a change on one file of a partition folder, or of the root.

    Attributes:
        name: file name in its folder.
        how: ``made``: a staged file replaces it; ``new``: a staged file gets the name, which no file had before;
            ``cut``: it is truncated in place; ``lines``: a staged file that differs in some lines replaces it;
            ``swapped``: the ``.swap`` of a broker gets the name; ``swap``: that ``.swap`` file; ``goes``: it is moved
            out.
        size: bytes afterwards; -1 if no file has the name then. If the plan does not know the size: an upper bound; for
            the indexes of a rewritten segment one bound for all three, at the first index.
        digest: 32 hex digits over all its bytes afterwards; empty if the plan does not know them.
        mtime_ns: modification time afterwards, in nanoseconds; -1 if the plan does not say.
        tells: True if this file proves, without a journal, whether the change was made. A broker may have written the
            others in the same way.
        copied: True if the original is kept as a real copy instead of a link, because a broker may truncate it in
            place.
    """

    name: str
    how: Literal["made", "new", "cut", "lines", "swapped", "swap", "goes"]
    size: int = -1
    digest: str = ""
    mtime_ns: int = -1
    tells: bool = False
    copied: bool = False

    @property
    def goes(self) -> bool:
        """True if no file has the name afterwards."""
        return self.how in {"goes", "swap"}


class BytesRead(NamedTuple):
    """Bytes that have to be read for a change.

    Attributes:
        stage: bytes of the partition's logs, read to make the new files.
        verify: bytes of the new logs, read to verify them once.
        apply: all bytes that apply reads, including each second reading. The estimate of a plan is based on it.
    """

    stage: int = 0
    verify: int = 0
    apply: int = 0


class LogEffect(NamedTuple):
    """The bytes that a change removes from the logs of a partition and that a reader could see.

    Attributes:
        segments: base offsets of segments that are removed as a whole.
        ranges: base offset -> (size of its log before, ranges of removed bytes, ascending).
    """

    segments: tuple[int, ...] = ()
    ranges: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]] = {}


class OneChange(Struct, frozen=True, kw_only=True):
    """Base class of all kinds of change. A new kind defines its ``files``; the other defaults suit most kinds.

    Attributes:
        in_order: True if its files are swapped in the plan's order of renames, under the plan's recovery guard if it
            has one.
    """

    in_order: ClassVar[bool] = False

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Every file that the change touches. Two changes of a plan must not touch the same file."""
        raise NotImplementedError

    @property
    def rules(self) -> tuple[str, ...]:
        """Codes of the findings that the change repairs; none if it only frees space."""
        return ()

    @property
    def fix(self) -> str:
        """Name of the fix that builds and verifies its bytes: the one that repairs the findings in ``rules``."""
        return RULES[self.rules[0]].fix

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the files that hold its bytes afterwards, whether or not they existed before."""
        return tuple(file.name for file in self.files if not file.goes)

    @property
    def takes_out(self) -> tuple[str, ...]:
        """Names of the files that do not exist afterwards. A name that never existed does no harm."""
        return tuple(file.name for file in self.files if file.goes)

    @property
    def touches(self) -> tuple[str, ...]:
        """Names of all files that the change touches, each once."""
        return tuple(dict.fromkeys(file.name for file in self.files))

    @property
    def segments(self) -> tuple[int, ...]:
        """Base offsets of the segments whose ``.log`` the change modifies, replaces or moves out, ascending."""
        logs = (file.name for file in self.files if file.name.endswith(LOG) and file.how != "new")
        return tuple(sorted(int(name.removesuffix(LOG)) for name in logs))

    @property
    def recovers_from(self) -> int | None:
        """Offset from which a broker must recover if it starts between the renames; None if no segments are swapped."""
        return self.segments[0] if self.in_order else None

    @property
    def by_itself(self) -> bool:
        """True if it can be staged, verified and freed before the next change of its partition begins."""
        return False

    @property
    def has_originals(self) -> bool:
        """True if the change moves bytes out of the folder; else keeping costs nothing, and undo is always possible."""
        return any(file.how != "new" for file in self.files)

    def may_move_log_end(self, bases: Sequence[int]) -> bool:
        """Return whether the log may end at another offset afterwards.

        Args:
            bases: base offsets of all segments of the partition, ascending.
        """
        return False

    @property
    def log_effect(self) -> LogEffect:
        """The bytes that the change removes from the logs and that a reader could see. Compaction removes none."""
        return LogEffect()

    @property
    def damage_removed(self) -> tuple[RemovedRange, ...]:
        """Damaged ranges that the change removes from a log, ascending; empty for most kinds."""
        return ()

    def lost_inside(self) -> Iterator[tuple[int, int]]:
        """Yield (first offset, offset after the last) of damaged records that the change cuts from inside a log."""
        return iter(())

    @property
    def trusts(self) -> Mapping[tuple[str, int], int | None]:
        """Partitions (topic, number) with their new recovery points: the next start reads less of these partitions.

        Such a change is made last, and only for partitions whose other changes are all made; undo rolls it back first.
        Otherwise a crash in between would leave a recovery point above bytes that were never flushed, and the next
        start would not read these bytes.
        """
        return {}

    @property
    def decides_on(self) -> tuple[SourceSegment, ...]:
        """The segments whose batches the change decides about, with their tallies."""
        return ()

    @property
    def consents(self) -> tuple[str, ...]:
        """Values of ``--accept-data-loss`` that allow the change; none if it loses no data that a reader could see."""
        return ()

    @property
    def records_lost(self) -> int:
        """Number of records that are removed as damaged; -1 if it is not known."""
        return 0

    @property
    def work(self) -> BytesRead:
        """The bytes that must be read for the change. Small files, and bytes read with other files, are not counted."""
        return BytesRead()


class RewriteSegments(OneChange, frozen=True, tag="rewrite segments", kw_only=True):
    """Action: one group of neighbouring segments becomes one segment without the batches that are removed.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: base offset of the new segment, which is that of the first source.
        sources: the segments that it replaces, ascending.
        log_bytes: exact size of the new ``.log``.
        index_bytes_at_most: upper bound of the sizes of its ``.index``, ``.timeindex`` and ``.txnindex`` together.
        batches: number of batches in the new ``.log``.
        mtime_ns: modification time of the new ``.log`` in nanoseconds, which is that of the last source.
        last_offset: last offset of the last batch of its sources. The new log ends there, or earlier if batches at its
            end are removed and another segment follows.
        removes_snapshots: names of producer snapshots of merged-away segments that are removed (KAFKA-9393, 2.8+).
        undo: whether and until when it can be undone.
    """

    in_order: ClassVar[bool] = True
    change_id: str
    base_offset: int
    sources: tuple[SourceSegment, ...]
    log_bytes: int
    index_bytes_at_most: int
    batches: int
    mtime_ns: int
    last_offset: int
    removes_snapshots: tuple[str, ...]
    undo: Undo

    @property
    def loses_records(self) -> bool:
        """True if records are removed by key, and not only markers and empty batches."""
        return any(source.by_key is not None for source in self.sources)

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The new segment's files, those of the segments merged away, and their producer snapshots."""
        log, index, *others = (segment_name(self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES)
        merged = [
            segment_name(source.base_offset, suffix)
            for source in self.sources[1:]
            for suffix in SEGMENT_SUFFIXES
        ]
        return (
            FileChange(log, "made", self.log_bytes, mtime_ns=self.mtime_ns, tells=True),
            FileChange(index, "made", self.index_bytes_at_most),
            *(FileChange(name, "made", 0) for name in others),
            *(FileChange(name, "goes", tells=name.endswith(LOG)) for name in merged),
            *(FileChange(name, "goes") for name in self.removes_snapshots),
        )

    @property
    def fix(self) -> str:
        return "compact" if self.loses_records else "markers"

    @property
    def by_itself(self) -> bool:
        """False with key compaction: it depends on all segments, so all groups are staged and verified together."""
        return not self.loses_records

    @property
    def decides_on(self) -> tuple[SourceSegment, ...]:
        return self.sources

    @property
    def work(self) -> BytesRead:
        """The sources are read twice (rewrite, verify), the new log once more."""
        read = sum(source.file_bytes for source in self.sources)
        return BytesRead(stage=read, verify=self.log_bytes, apply=2 * read + self.log_bytes)


class ReplaceFile(OneChange, frozen=True, tag="replace file", kw_only=True):
    """Action: one derived file (an index or a checkpoint) is replaced, by a rename, with bytes that apply rebuilds.

    With ``remove`` the file is removed and not replaced: a producer snapshot, or a leftover that the broker would
    delete. It is linked into the work folder first, so undo and purge treat it like every original.

    Attributes:
        change_id: ``<partition folder>/<file name>``, unique in the plan.
        name: file name; for a root checkpoint the name in the root of the log directory.
        method: ``truncate``, ``regenerate`` or ``remove``.
        rule: the finding that it repairs, ``KRnnn``.
        size_before: bytes, -1 if there was no file.
        size_after: bytes of the new file, -1 if there is none (``remove``).
        digest_after: 32 hex digits over the new bytes, empty if there is none.
        reason: one line for the reviewer.
        undo: whether and until when it can be undone.
    """

    change_id: str
    name: str
    method: Literal["truncate", "regenerate", "remove"]
    rule: str
    size_before: int
    size_after: int
    digest_after: str
    reason: str
    undo: Undo

    @property
    def files(self) -> tuple[FileChange, ...]:
        if self.method == "remove":
            return (FileChange(self.name, "goes", tells=True),)
        return (FileChange(self.name, "made", self.size_after, self.digest_after, tells=True),)

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule,)


class RemovedRange(Struct, frozen=True, kw_only=True):
    """Damaged bytes that are removed from a ``.log``, and the cost.

    Attributes:
        start: position of the first byte.
        end: position after the last byte.
        rule: the finding that it repairs, ``KRnnn``.
        consent: the value of ``--accept-data-loss``; empty for a torn tail, which needs none.
        first_lost: the offset after the last valid batch before these bytes.
        last_lost: the last lost offset, -1 if it is not known because nothing follows. It is only an upper bound if a
            message of v0 or v1 follows, because that may be a wrapper with earlier messages.
        records: number of lost records, -1 if it is not known.
    """

    start: int
    end: int
    rule: str
    consent: str
    first_lost: int
    last_lost: int
    records: int

    @property
    def is_padding(self) -> bool:
        """Return whether the bytes are zeros after the last batch, so that nothing is lost with them."""
        return self.rule == "KR305" and not self.consent


class NewCompanion(Struct, frozen=True, kw_only=True):
    """An index that is replaced together with its log.

    Attributes:
        name: file name of the index.
        size_before: bytes, -1 if there was no file.
        size_after: bytes of the new file.
        digest_after: 32 hex digits over the new bytes.
    """

    name: str
    size_before: int
    size_after: int
    digest_after: str


class MendLog(OneChange, frozen=True, tag="mend log", kw_only=True):
    """Action: damaged bytes are removed from one ``.log``, and its indexes are adapted to the bytes that are kept.

    Attributes:
        change_id: ``<partition folder>/<file name>``, unique in the plan.
        name: file name of the log.
        base_offset: base offset of the segment.
        method: ``cut``: the log is truncated in place, the cut bytes are kept; ``excise``: it is replaced by one
            without the ranges, the old log is kept.
        removed: the removed ranges, ascending.
        size_before: bytes of the old log.
        size_after: bytes of the new log.
        digest_removed: 32 hex digits over the removed bytes, in order.
        digest_after: 32 hex digits over the bytes that are kept.
        mtime_ns: modification time in nanoseconds, which does not change.
        last_offset: last offset of the last kept batch, one less than the base offset if no batch is kept.
        companions: the segment's ``.index``, ``.timeindex`` and ``.txnindex``, if they change.
        front_bytes: length of the front of the new ``.index`` that also fits the old log. This front replaces the index
            while the log changes.
        reason: one line for the reviewer.
        undo: whether and until when it can be undone.
    """

    change_id: str
    name: str
    base_offset: int
    method: Literal["cut", "excise"]
    removed: tuple[RemovedRange, ...]
    size_before: int
    size_after: int
    digest_removed: str
    digest_after: str
    mtime_ns: int
    last_offset: int
    companions: tuple[NewCompanion, ...]
    front_bytes: int
    reason: str
    undo: Undo

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The log, and those of its indexes that change."""
        how: Literal["cut", "made"] = "cut" if self.method == "cut" else "made"
        return (
            FileChange(self.name, how, self.size_after, self.digest_after, self.mtime_ns, tells=True),
            *(
                FileChange(companion.name, "made", companion.size_after, companion.digest_after)
                for companion in self.companions
            ),
        )

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(removed.rule for removed in self.removed))

    def may_move_log_end(self, bases: Sequence[int]) -> bool:
        """Return whether bytes at the end of the last log are removed; ``SetAside`` handles segments after a cut."""
        at_the_end = any(removed.end == self.size_before for removed in self.removed)
        return at_the_end and self.base_offset >= max(bases, default=-1)

    @property
    def log_effect(self) -> LogEffect:
        ranges = tuple((removed.start, removed.end) for removed in self.removed)
        return LogEffect(ranges={self.base_offset: (self.size_before, ranges)})

    @property
    def damage_removed(self) -> tuple[RemovedRange, ...]:
        return self.removed

    def lost_inside(self) -> Iterator[tuple[int, int]]:
        """Yield the damaged ranges that something follows."""
        for removed in self.removed if self.method == "excise" else ():
            if removed.last_lost >= removed.first_lost:
                yield removed.first_lost, removed.last_lost + 1

    @property
    def consents(self) -> tuple[str, ...]:
        return tuple(removed.consent for removed in self.removed if removed.consent)

    @property
    def records_lost(self) -> int:
        """Number of records in the removed ranges; a torn tail holds none."""
        lost = [removed.records for removed in self.removed if removed.consent]
        return -1 if any(count < 0 for count in lost) else sum(lost)

    @property
    def work(self) -> BytesRead:
        """The log is read to repair it, and once more before it is swapped in."""
        return BytesRead(stage=self.size_before, verify=self.size_after, apply=2 * self.size_before)


class SetAside(OneChange, frozen=True, tag="set aside", kw_only=True):
    """Action: a whole segment after a cut is moved to the backups. A broker would delete it.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: base offset of the segment.
        names: names of its files, the ``.log`` first.
        bytes: bytes of all its files.
        records: number of records in the valid batches of its ``.log``.
        rule: the finding that it repairs, ``KRnnn``.
        consent: the value of ``--accept-data-loss``.
        reason: one line for the reviewer.
        undo: whether and until when it can be undone.
    """

    change_id: str
    base_offset: int
    names: tuple[str, ...]
    bytes: int
    records: int
    rule: str
    consent: str
    reason: str
    undo: Undo

    @property
    def files(self) -> tuple[FileChange, ...]:
        return tuple(FileChange(name, "goes", tells=name.endswith(LOG)) for name in self.names)

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule,)

    def may_move_log_end(self, bases: Sequence[int]) -> bool:
        """Return True: the log then ends at the cut before it."""
        return True

    @property
    def log_effect(self) -> LogEffect:
        return LogEffect(segments=(self.base_offset,))

    @property
    def consents(self) -> tuple[str, ...]:
        return (self.consent,)

    @property
    def records_lost(self) -> int:
        """Number of records in its valid batches: all of them are lost."""
        return self.records


class NewFile(Struct, frozen=True, kw_only=True):
    """One file that a change creates; its bytes are known when the plan is made.

    Attributes:
        name: file name in the partition folder.
        size: length of the file in bytes.
        digest: 32 hex digits over its bytes.
    """

    name: str
    size: int
    digest: str


class CompleteSwap(OneChange, frozen=True, tag="complete swap", kw_only=True):
    """Action: krepair finishes an interrupted swap as every broker would: its ``.log.swap`` becomes the segment.

    Attributes:
        change_id: ``<partition folder>/<name of the .log.swap>``, unique in the plan.
        base_offset: base offset of the segment.
        rule: the finding that it repairs, ``KRnnn``.
        log_bytes: size of the ``.log.swap``; only its name changes.
        last_offset: last offset of its last batch.
        batches: number of batches in it.
        replaces: base offsets of the segments that it replaces and that still exist, ascending.
        goes: names of all files that are moved out and kept: files of the replaced segments, and the swap's own
            indexes.
        copied: the segments of ``replaces`` that are damaged. They are kept as real copies, because a broker may
            truncate them in place.
        makes: the new indexes, rebuilt from its log; the ``.txnindex`` is that of the swap.
        reason: one line for the reviewer.
        undo: whether and until when it can be undone.
    """

    in_order: ClassVar[bool] = True
    change_id: str
    base_offset: int
    rule: str
    log_bytes: int
    last_offset: int
    batches: int
    replaces: tuple[int, ...]
    goes: tuple[str, ...]
    copied: tuple[int, ...]
    makes: tuple[NewFile, ...]
    reason: str
    undo: Undo

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Files of the new segment, of the replaced segments, and of the swap."""
        log, damaged = (
            segment_name(self.base_offset, LOG),
            tuple(f"{offset_name(base)}." for base in self.copied),
        )
        copied = {name for name in self.goes if name.startswith(damaged) and not name.endswith(SWAP)}
        made = {file.name: file for file in self.makes}
        return (
            FileChange(log, "swapped", self.log_bytes, tells=True, copied=log in copied),
            *(
                FileChange(file.name, "made", file.size, file.digest, copied=file.name in copied)
                for file in self.makes
            ),
            FileChange(log + SWAP, "swap", tells=True),
            *(
                FileChange(name, "goes", tells=name.endswith(LOG), copied=name in copied)
                for name in self.goes
                if name != log and name not in made
            ),
        )

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule,)

    def may_move_log_end(self, bases: Sequence[int]) -> bool:
        """Return whether no segment follows the swap."""
        return self.last_offset >= max(bases, default=-1)

    @property
    def work(self) -> BytesRead:
        """Its log is read to build the indexes, and again when the segment is verified."""
        return BytesRead(stage=self.log_bytes, verify=self.log_bytes, apply=self.log_bytes)


class ChangeLines(OneChange, frozen=True, tag="change lines", kw_only=True):
    """Action: some entries of a root checkpoint change. All other entries remain as they are on the disk at that time.

    Attributes:
        change_id: ``./<file name>``, unique in the plan.
        name: file name in the root of the log directory.
        rule: the finding that it repairs, ``KRnnn``.
        lines: the entries that change, in the order of the file.
        size_before: bytes of the old file.
        reason: one line for the reviewer.
        undo: whether and until when it can be undone.
    """

    change_id: str
    name: str
    rule: str
    lines: tuple[ChangedLine, ...]
    size_before: int
    reason: str
    undo: Undo

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The checkpoint file; each changed entry may make it longer by one number."""
        added = sum(len(line.topic.encode()) + _LONGEST_NUMBER for line in self.lines if line.old is None)
        size = max(self.size_before, 0) + added + _LONGEST_NUMBER * len(self.lines)
        return (FileChange(self.name, "lines", size, tells=True),)

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule,)

    @property
    def trusts(self) -> Mapping[tuple[str, int], int | None]:
        """Partitions whose recovery point advances, with their new recovery points."""
        of_points = self.name == RECOVERY_POINT_CHECKPOINT
        return {(line.topic, line.partition): line.new for line in raised(self.lines)} if of_points else {}


class RollSegment(OneChange, frozen=True, tag="roll segment", kw_only=True):
    """Action: an empty segment is added at the log end, as a broker does when it rolls: three files of 0 bytes.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: base offset of the new segment, which is the log end offset.
        rule: the finding that it repairs, ``KRnnn``.
        reason: one line for the reviewer.
        undo: whether it can be undone: only while the files are empty.
    """

    change_id: str
    base_offset: int
    rule: str
    reason: str
    undo: Undo

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its files. The ``.log`` is last, because the segment exists as soon as its ``.log`` does."""
        stem = offset_name(self.base_offset)
        return f"{stem}.index", f"{stem}.timeindex", f"{stem}.log"

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The three new files; no existing log is touched."""
        return tuple(FileChange(name, "new", 0, _OF_NOTHING, tells=True) for name in self.names)

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule,)


Change = RewriteSegments | ReplaceFile | MendLog | SetAside | CompleteSwap | ChangeLines | RollSegment


# -- combined effect of several changes on the files that later fixes read: one plan may hold changes of several fixes


def changes_logs(changes: Iterable[Change]) -> bool:
    """Return whether changes remove bytes from the logs that a reader could see."""
    return any(effect.segments or effect.ranges for effect in (change.log_effect for change in changes))


def bases_touched(changes: Iterable[Change]) -> set[int]:
    """Return base offsets of segments whose logs change: such a segment is removed, or gets new indexes too."""
    return {base for change in changes for base in change.segments}


def names_removed(changes: Iterable[Change]) -> set[str]:
    """Return the names of the files that do not exist after the changes."""
    return {name for change in changes for name in change.takes_out}


def trusted_after(changes: Iterable[Change]) -> frozenset[tuple[str, int]]:
    """Return partitions (topic, number) that the next start reads less of, see ``OneChange.trusts``."""
    return frozenset(key for change in changes for key in change.trusts)


def lines_of(change: object) -> tuple[ChangedLine, ...]:
    """Return the checkpoint entries that a change of the root modifies; none for a change of a whole file."""
    lines: tuple[ChangedLine, ...] = getattr(change, "lines", ())
    return lines
