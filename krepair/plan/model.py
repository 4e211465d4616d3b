"""The plan as typed values: what a reviewer reads, what apply does, what undo takes back.

Everything here is plain data (msgspec structs) with a canonical JSON form, see ``krepair.plan.planfile``. A field
that is only for readers says so; every other field binds ``apply``.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from krepair.logdir.config import Setting
from krepair.rules.outcome import (
    CompactedSource,
    HorizonChoice,
    KeyCompaction,
    ReasonTally,
    SourceSegment,
    TombstoneHorizon,
)

__all__ = [
    "FORMAT_VERSION",
    "Change",
    "Commit",
    "CompactedSource",
    "CompleteSwap",
    "FileFingerprint",
    "FreeWhenVerified",
    "HorizonChoice",
    "KeepCopy",
    "KeepOriginal",
    "KeyCompaction",
    "MendLog",
    "NewCompanion",
    "NewFile",
    "NotReversible",
    "PartitionPlan",
    "Plan",
    "Policy",
    "Preview",
    "ReasonTally",
    "RemovedRange",
    "ReplaceFile",
    "RewriteSegments",
    "Risk",
    "RollSegment",
    "RootPlan",
    "SetAside",
    "Setting",
    "SourceSegment",
    "Span",
    "TombstoneHorizon",
    "Undo",
]

FORMAT_VERSION = "1.0"


class Policy(Struct, frozen=True, kw_only=True):
    """All inputs of the decisions that do not come from the partition's own files.

    Attributes:
        rules: the rule set, e.g. ``2.2.1+KAFKA-8351+KAFKA-13727+KAFKA-14055+KAFKA-17076``.
        fixes: names given to ``--fix`` (or the default set), sorted.
        now_ms: the clock, epoch milliseconds.
        horizon: ``next-pass``, ``newest``, or epoch milliseconds as text.
        merge: whether neighbours are merged up to ``segment.bytes``.
        keep: where originals stay: ``inplace`` (in the private sub-folder until purge), ``until-verified`` (there until
            what replaces them was read again), or an absolute path (copies there, until purge).
        broker_version: as given by ``--broker-version``, or empty.
        assume_high_watermark: ``log-end`` or empty.
        settings: topic name -> settings used; ``""`` holds broker-wide ones.
        accepted_losses: as given by ``--accept-data-loss``, sorted.
    """

    rules: str
    fixes: tuple[str, ...]
    now_ms: int
    horizon: str
    merge: bool
    keep: str
    broker_version: str
    assume_high_watermark: str
    settings: dict[str, tuple[Setting, ...]]
    accepted_losses: tuple[str, ...] = ()


class FileFingerprint(Struct, frozen=True, kw_only=True):
    """What a file was when the plan was made. ``apply`` refuses the partition when any part differs.

    One file may have grown: the active segment's log, where no change touches it. Then ``apply`` works out again, under
    the lock, what follows from it: open transactions, producer state, high watermark, order of commit.

    Attributes:
        name: file name inside the partition folder.
        size: bytes.
        mtime_ns: modification time in nanoseconds.
        inode: inode number.
        digest: 32 hex digits. Of a ``.log``: over each batch's position and header (which holds its CRC); of any
            other file: over its bytes. Empty where the file was not read: of the active segment's preallocated
            indexes and of files that no change touches.
    """

    name: str
    size: int
    mtime_ns: int
    inode: int
    digest: str


class KeepOriginal(Struct, frozen=True, tag="keep original", kw_only=True):
    """Undo: the originals stay in the private sub-folder and are put back byte for byte."""


class FreeWhenVerified(Struct, frozen=True, tag="free when verified", kw_only=True):
    """Undo: only until what replaces the originals is read again and verified; then they are freed at once."""


class KeepCopy(Struct, frozen=True, tag="keep copy", kw_only=True):
    """Undo: the originals are copied to the folder that ``Policy.keep`` names, and put back from there."""


class NotReversible(Struct, frozen=True, tag="not reversible", kw_only=True):
    """Undo: there is none.

    Attributes:
        why: what is lost.
    """

    why: str


Undo = KeepOriginal | FreeWhenVerified | KeepCopy | NotReversible


class RewriteSegments(Struct, frozen=True, tag="rewrite segments", kw_only=True):
    """Action: one group of neighbouring segments becomes one segment without the batches that are removed.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: base offset of the new segment: that of the first source.
        sources: the segments it replaces, ascending.
        log_bytes: exact size of the new ``.log``.
        index_bytes_at_most: upper bound of the sizes of its ``.index``, ``.timeindex`` and ``.txnindex`` together.
        batches: batches in the new ``.log``.
        mtime_ns: modification time of the new ``.log``: that of the last source.
        last_offset: last offset of the last batch of its sources; the new log ends at it or, where batches at its end
            go and another segment follows, before it.
        removes_snapshots: names of producer snapshots of merged-away segments that are removed (KAFKA-9393, 2.8+).
        freed_at_purge: bytes free again after apply and purge, all files counted.
        peak_extra_bytes: bytes needed on top while this change is applied.
        undo: how it is taken back.
    """

    change_id: str
    base_offset: int
    sources: tuple[SourceSegment, ...]
    log_bytes: int
    index_bytes_at_most: int
    batches: int
    mtime_ns: int
    last_offset: int
    removes_snapshots: tuple[str, ...]
    freed_at_purge: int
    peak_extra_bytes: int
    undo: Undo


class ReplaceFile(Struct, frozen=True, tag="replace file", kw_only=True):
    """Action: one derived file (an index or a checkpoint) is replaced by rename with bytes that apply makes anew.

    With ``remove`` the file is removed and nothing takes its place: a producer snapshot, or what a broker left behind
    and would itself delete. It is linked into the private sub-folder first, so undo and purge treat it as any original.

    Attributes:
        change_id: ``<partition folder>/<file name>``, unique in the plan.
        name: file name; of a root checkpoint the name in the log directory root.
        method: ``truncate``, ``regenerate`` or ``remove``.
        rule: the finding it answers, ``KRnnn``.
        size_before: bytes, -1 if there was no file.
        size_after: bytes of the new file, -1 if there is none (``remove``).
        digest_after: 32 hex digits over the new bytes, empty if there is none.
        reason: one line for the reviewer.
        undo: how it is taken back.
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


class RemovedRange(Struct, frozen=True, kw_only=True):
    """Damaged bytes that leave a ``.log``, and what that costs.

    Attributes:
        start: position of the first.
        end: position after the last.
        rule: the finding, ``KRnnn``.
        consent: what was typed after ``--accept-data-loss``; empty of a torn tail, which needs none.
        first_lost: the offset after the last valid batch before them.
        last_lost: the last offset that no batch has any more, -1 where it cannot be told (nothing follows); a bound
            where a message of v0 or v1 follows, which may wrap earlier ones.
        records: how many records are lost, -1 where it cannot be told.
    """

    start: int
    end: int
    rule: str
    consent: str
    first_lost: int
    last_lost: int
    records: int


class NewCompanion(Struct, frozen=True, kw_only=True):
    """An index that is replaced together with its log.

    Attributes:
        name: file name.
        size_before: bytes, -1 if there was no file.
        size_after: bytes of the new file.
        digest_after: 32 hex digits over the new bytes.
    """

    name: str
    size_before: int
    size_after: int
    digest_after: str


class MendLog(Struct, frozen=True, tag="mend log", kw_only=True):
    """Action: damaged bytes leave one ``.log``; its indexes are made true of what stays.

    Attributes:
        change_id: ``<partition folder>/<file name>``, unique in the plan.
        name: file name.
        base_offset: of the segment.
        method: ``cut``: the log is truncated in place, the cut bytes are kept; ``excise``: it is replaced by one
            without the ranges, the old one is kept.
        removed: the removed ranges, ascending.
        size_before: bytes.
        size_after: bytes.
        digest_removed: 32 hex digits over the removed bytes, in order.
        digest_after: 32 hex digits over the bytes that stay.
        mtime_ns: modification time, which stays.
        last_offset: of the last batch that stays, one less than the base offset if none does.
        companions: its ``.index``, ``.timeindex`` and ``.txnindex``, as far as they change.
        front_bytes: how much of the new ``.index`` is also true of the old log: it takes its place meanwhile.
        reason: one line for the reviewer.
        undo: how it is taken back.
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


class SetAside(Struct, frozen=True, tag="set aside", kw_only=True):
    """Action: a whole segment behind a cut is taken out of the partition and kept, as a broker would delete it.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: of the segment.
        names: its files, the ``.log`` first.
        bytes: of all of them.
        records: in the valid batches of its ``.log``.
        rule: the finding, ``KRnnn``.
        consent: what was typed after ``--accept-data-loss``.
        reason: one line for the reviewer.
        undo: how it is taken back.
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


class NewFile(Struct, frozen=True, kw_only=True):
    """One file that a change makes, known to the byte when the plan is made.

    Attributes:
        name: file name in the partition folder.
        size: bytes.
        digest: 32 hex digits over its bytes.
    """

    name: str
    size: int
    digest: str


class CompleteSwap(Struct, frozen=True, tag="complete swap", kw_only=True):
    """Action: one swap that a broker did not finish is finished as any broker would: its ``.log.swap`` is the segment.

    Attributes:
        change_id: ``<partition folder>/<name of the .log.swap>``, unique in the plan.
        base_offset: of the segment.
        rule: the finding it answers, ``KRnnn``.
        log_bytes: size of the ``.log.swap``, which only changes its name.
        last_offset: last offset of its last batch.
        batches: batches in it.
        replaces: base offsets of the segments that it replaces and that are still there, ascending.
        goes: every file that goes and is kept, by name: those of the segments replaced, and the swap's own indexes.
        copied: those of ``replaces`` that are damaged, so that a broker may cut them in place: kept as real copies.
        makes: the indexes that are put beside it, made anew from its log; the ``.txnindex`` is that of the swap.
        reason: one line for the reviewer.
        undo: how it is taken back.
    """

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


class ChangedLine(Struct, frozen=True, kw_only=True):
    """One line of a checkpoint of the root.

    Attributes:
        topic: of the line.
        partition: its number.
        old: offset as it was, None if there was no such line.
        new: offset that it becomes, None if the line goes.
    """

    topic: str
    partition: int
    old: int | None
    new: int | None


class ChangeLines(Struct, frozen=True, tag="change lines", kw_only=True):
    """Action: some lines of a checkpoint of the root change; every other line stays as it is on the disk by then.

    Attributes:
        change_id: ``./<file name>``, unique in the plan.
        name: file name in the log directory root.
        rule: the finding it answers, ``KRnnn``.
        lines: the lines that change, in the order of the file.
        size_before: bytes of the file.
        reason: one line for the reviewer.
        undo: how it is taken back.
    """

    change_id: str
    name: str
    rule: str
    lines: tuple[ChangedLine, ...]
    size_before: int
    reason: str
    undo: Undo


class RollSegment(Struct, frozen=True, tag="roll segment", kw_only=True):
    """Action: an empty segment begins at the log end, as a broker's roll begins one: three files of 0 bytes.

    Attributes:
        change_id: ``<partition folder>/<base offset, 20 digits>``, unique in the plan.
        base_offset: of the new segment: the log end offset.
        rule: the finding it answers, ``KRnnn``.
        reason: one line for the reviewer.
        undo: how it is taken back: only while the files are empty.
    """

    change_id: str
    base_offset: int
    rule: str
    reason: str
    undo: Undo

    @property
    def names(self) -> tuple[str, ...]:
        """Its files, the ``.log`` last: with it the segment is there."""
        return tuple(f"{self.base_offset:020d}{suffix}" for suffix in (".index", ".timeindex", ".log"))


Change = RewriteSegments | ReplaceFile | MendLog | SetAside | CompleteSwap | ChangeLines | RollSegment


class Span(Struct, frozen=True, kw_only=True):
    """The offsets that may be compacted.

    Attributes:
        start_offset: base offset of the first segment in it.
        end_offset: first offset out of it (a segment's base offset).
        limit: what ended it: ``active segment``, ``open transaction``, ``high watermark``, ``min.compaction.lag.ms``.
        limit_text: one line for the reviewer, with the producer id or offset.
    """

    start_offset: int
    end_offset: int
    limit: str
    limit_text: str


class PartitionPlan(Struct, frozen=True, kw_only=True):
    """One partition: its changes, or why there are none.

    Attributes:
        topic: topic name.
        partition: partition number.
        folder: folder name under the log directory.
        status: ``change``, ``nothing`` (nothing to do) or ``left alone`` (see ``why``).
        code: of ``left alone``, a stable word for programs, e.g. ``damage``, ``leftovers``; else empty.
        why: of ``left alone``, one line: file, position, what was expected; else empty.
        next_command: of ``left alone``, what to type next; may be empty.
        log_start_offset: first offset of the log.
        log_end_offset: offset after the last valid batch; 0 if its logs were not scanned.
        high_watermark: from ``replication-offset-checkpoint``, -1 if none.
        span: what may be compacted, or None.
        horizon_ms: the delete horizon that was used; 0 keeps every unstamped marker.
        horizons: what each choice would have given (reader only).
        files: fingerprints of every regular file in the folder, by name.
        kept_last: (base offset, position) of emptied data batches that stay as the last of a new segment in which
            nothing else is left, ascending; their markers stay too.
        changes: ascending by base offset.
        log_bytes_before: ``.log`` bytes of the partition.
        log_bytes_after: ``.log`` bytes after apply.
        freed_at_apply: net bytes freed right after apply; negative while originals are kept.
        freed_at_purge: bytes free after purge.
        peak_extra_bytes: the most that is needed on top at any instant of apply.
        reasons: tallies over all its sources.
        uncleanable_bytes: bytes that cannot be cleaned (KIP-346), 0 unless left alone for damage.
        notes: lines for the reviewer.
        compaction: what key compaction makes of it; left out where ``compact`` did not decide on it.
    """

    topic: str
    partition: int
    folder: str
    status: Literal["change", "nothing", "left alone"]
    code: str = ""
    why: str = ""
    next_command: str = ""
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = -1
    span: Span | None = None
    horizon_ms: int = 0
    horizons: tuple[HorizonChoice, ...] = ()
    files: tuple[FileFingerprint, ...] = ()
    kept_last: tuple[tuple[int, int], ...] = ()
    changes: tuple[Change, ...] = ()
    log_bytes_before: int = 0
    log_bytes_after: int = 0
    freed_at_apply: int = 0
    freed_at_purge: int = 0
    peak_extra_bytes: int = 0
    reasons: tuple[ReasonTally, ...] = ()
    uncleanable_bytes: int = 0
    notes: tuple[str, ...] = ()
    compaction: KeyCompaction | UnsetType = UNSET


class RootPlan(Struct, frozen=True, kw_only=True):
    """The checkpoint files in the root of the log directory, which belong to no partition.

    Attributes:
        keeper: partition folder in whose private sub-folder they are staged and kept, since a broker takes every
            folder in the root for a partition.
        files: fingerprints of the files that are replaced, by name.
        changes: by name; their ``change_id`` is ``./<file name>``. A damaged file is replaced whole, before anything
            else, since a fence has to read it. Lines of an intact one change after all fences are down.
        notes: lines for the reviewer.
    """

    keeper: str
    files: tuple[FileFingerprint, ...]
    changes: tuple[ReplaceFile | ChangeLines, ...]
    notes: tuple[str, ...] = ()


class Risk(Struct, frozen=True, kw_only=True):
    """One thing the reviewer must know before saying yes.

    Attributes:
        code: stable word, e.g. ``every-replica``, ``lagging-replica``, ``comes-back``, ``horizon-forced``.
        text: one or two sentences.
    """

    code: str
    text: str


class Commit(Struct, frozen=True, kw_only=True):
    """How the changes are swapped in, see the commit protocol in the docs.

    Attributes:
        order: ``P1`` or ``P2``.
        fence: whether the recovery point is lowered and the clean-shutdown marker set aside meanwhile.
        why: one line.
        looked_at: 32 hex digits over folder, name, size, time and inode of every active segment that this follows
            from. Where they are others by now, ``apply`` reads them again. Not there where nothing follows from them,
            and in plans of older versions.
    """

    order: Literal["P1", "P2"]
    fence: bool
    why: str
    looked_at: str | UnsetType = UNSET


class Asked(Struct, frozen=True, kw_only=True):
    """What was typed to make a plan and is not in its policy. Both together are enough to make the plan again.

    Attributes:
        topics: as given by ``--topic``.
        partitions: (topic, number) as given by ``--partition``.
        config: absolute path as given by ``--config``, or empty.
        topic_config: absolute path as given by ``--topic-config``, or empty.
        settings: (key, value) as given by ``--set``.
        include_active: whether ``--include-active`` was given.
        no_roll: whether ``--no-roll`` was given.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    config: str = ""
    topic_config: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    include_active: bool = False
    no_roll: bool = False


class Preview(Struct, frozen=True, kw_only=True):
    """What a plan has that was made beside a running broker: ``apply`` refuses it, ``plan --from`` makes the real one.

    Attributes:
        unknown: what could not be known beside a running broker, one sentence each (reader only).
    """

    unknown: tuple[str, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """A whole plan: one host, one log directory.

    Attributes:
        format_version: major.minor of this layout; a reader refuses another major.
        tool_version: of the krepair that wrote it.
        plan_id: eight hex digits of the digest of everything else; names the private sub-folders.
        host: host name it was made on.
        log_dir: absolute path of the log directory.
        log_dir_inode: inode of that directory.
        cluster_id: from ``meta.properties``, may be empty (2.2 and before do not write it).
        broker_id: from ``meta.properties``, may be empty.
        policy: inputs of the decisions.
        commit: how changes are swapped in.
        partitions: by topic, then number.
        root: changes of checkpoint files in the root, or None.
        freed_at_apply: sum over partitions.
        freed_at_purge: sum over partitions.
        peak_extra_bytes: the most that is needed on top at any instant.
        expected_seconds: estimate for apply (reader only, from a fixed rate so that plans repeat byte for byte).
        uncleanable_partitions: partitions left alone for damage (KIP-346).
        uncleanable_bytes: their bytes.
        risks: for the reviewer.
        asked: what was typed; a plan of an earlier krepair has no such field.
        preview: of a plan that was made beside a running broker; any other plan has no such field.
        digest: 64 hex digits over the canonical bytes of the plan with ``digest`` and ``plan_id`` empty.
    """

    format_version: str = FORMAT_VERSION
    tool_version: str = ""
    plan_id: str = ""
    host: str = ""
    log_dir: str = ""
    log_dir_inode: int = 0
    cluster_id: str = ""
    broker_id: str = ""
    policy: Policy
    commit: Commit
    partitions: tuple[PartitionPlan, ...] = field(default=())
    root: RootPlan | None = None
    freed_at_apply: int = 0
    freed_at_purge: int = 0
    peak_extra_bytes: int = 0
    expected_seconds: float = 0.0
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    risks: tuple[Risk, ...] = ()
    asked: Asked | UnsetType = UNSET
    preview: Preview | UnsetType = UNSET
    digest: str = ""
