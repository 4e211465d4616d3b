"""The plan as typed values: what a reviewer reads, apply carries out, and undo rolls back.

All values are plain data (msgspec structs) with a canonical JSON form, see ``krepair.plan.planfile``. A field that is
only for readers says so. All other fields bind ``apply``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from krepair.errors import ExitCode
from krepair.logdir.config import Setting
from krepair.next_command import Next
from krepair.plan.changes import (
    Change,
    ChangeLines,
    CompleteSwap,
    FreeWhenVerified,
    KeepOriginal,
    MendLog,
    NewCompanion,
    NewFile,
    NotReversible,
    RemovedRange,
    ReplaceFile,
    RewriteSegments,
    RollSegment,
    SetAside,
    Undo,
)
from krepair.rules.evidence import Evidence
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
    "WHOLE_BLOCKS",
    "Change",
    "ChangeLines",
    "Commit",
    "CompactedSource",
    "CompleteSwap",
    "Evidence",
    "FileFingerprint",
    "FreeWhenVerified",
    "HorizonChoice",
    "KeepOriginal",
    "KeyCompaction",
    "MendLog",
    "NewCompanion",
    "NewFile",
    "NotReversible",
    "Others",
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
    "Room",
    "RootPlan",
    "SetAside",
    "Setting",
    "SourceSegment",
    "Span",
    "TombstoneHorizon",
    "Undo",
]

FORMAT_VERSION = "2.1"
"""Version of the format. Since 2.1 some structs below omit fields with default values, and partitions without changes
are grouped by the text that they share (``krepair.plan.document``)."""


class SearchedDir(Struct, frozen=True, kw_only=True):
    """A log directory that was searched for ``-future`` folders, which a broker may turn into replicas; none was found.

    Attributes:
        broker_id: id of the broker that owns it.
        path: absolute path of the log directory.
    """

    broker_id: int
    path: str


class Others(Struct, frozen=True, kw_only=True):
    """Options and inputs about the other replicas, see ``docs/replicas.md``.

    Attributes:
        cluster: absolute path from ``--cluster``, or empty.
        cluster_digest: 32 hex digits over what was read from ``cluster``, or empty.
        cluster_source: kind of file that ``cluster`` is: ``describe``, ``describe-zookeeper``, ``metadata-log``, or
            empty.
        own_metadata: absolute paths of this broker's metadata logs that were read.
        replicas: values of ``--replicas``, with absolute paths.
        only_replica: values of ``--only-replica``, sorted.
        as_broker: True if ``--as-broker`` was given.
        searched: all other log directories in which ``-future`` folders were looked for, of this broker and of others,
            by path. ``apply`` looks again.
    """

    cluster: str = ""
    cluster_digest: str = ""
    cluster_source: str = ""
    own_metadata: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    only_replica: tuple[str, ...] = ()
    as_broker: bool = False
    searched: tuple[SearchedDir, ...] = ()


class Room(Struct, frozen=True, kw_only=True):
    """Space that is free on the disk of the log directory, in a plan that depends on it.

    Attributes:
        free_bytes: bytes free for the broker's user; negative if that many must become free before the user gets any.
        reserve_bytes: bytes free for root only, if root made the plan. They count for changes that give back at once
            what they take.
        start_bytes: bytes that the next start of the broker may write.
        free_files: number of files that the file system has room for; absent if it has no such limit.
        start_files: number of files that the next start may create; absent if there is no limit.
    """

    free_bytes: int
    reserve_bytes: int
    start_bytes: int
    free_files: int | UnsetType = UNSET
    start_files: int | UnsetType = UNSET


class Policy(Struct, frozen=True, kw_only=True):
    """Inputs of the decisions that do not come from the partition's own files.

    Attributes:
        rules: the rule set, e.g. ``2.2.1+KAFKA-8351+KAFKA-13727+KAFKA-14055+KAFKA-17076``.
        fixes: names given to ``--fix`` (or the default set), sorted.
        now_ms: time of the decisions, epoch milliseconds.
        horizon: ``next-pass``, ``newest``, or epoch milliseconds as text.
        merge: True if neighbouring segments are merged up to ``segment.bytes``.
        keep: place of the originals: ``inplace`` (in the work folder until purge), ``until-verified`` (there
            until the new files are read again) or ``auto`` (the first while there is room, else the second).
        broker_version: value of ``--broker-version``, or empty.
        assume_high_watermark: value of ``--assume-high-watermark`` (``log-end``), or empty.
        settings: topic name -> settings used; ``""`` holds broker-wide ones.
        accepted_losses: values of ``--accept-data-loss``, sorted.
        room: free space, with ``keep`` ``auto`` or if not all changes had room; else absent.
        links_are_files: set where a second name of a file counts as a file of the file system, as on tmpfs.
        block_bytes: bytes of a block of the log directory's file system; a file takes whole blocks.
        others: options and inputs about the other replicas.
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
    others: Others
    accepted_losses: tuple[str, ...] = ()
    room: Room | UnsetType = UNSET
    links_are_files: bool | UnsetType = UNSET
    block_bytes: Annotated[int, Meta(ge=1)] = 4096


WHOLE_BLOCKS = -1
"""Value of ``FileFingerprint.disk``: the file takes its size, rounded up to whole blocks."""


class FileFingerprint(Struct, frozen=True, kw_only=True, array_like=True):
    """State of a file when the plan was made. ``apply`` refuses the partition if any part of this state differs.

    One file may have grown: the log of the active segment, if no change touches it. Then ``apply`` recomputes under the
    lock what depends on it: open transactions, producer state, high watermark, order of commit.

    In a plan file it is an array of its fields, in this order; in a report, and in format 2.0, an object.

    Attributes:
        name: file name inside the partition folder.
        size: length of the file in bytes.
        mtime_ns: modification time in nanoseconds.
        digest: 32 hex digits. For a ``.log`` it covers position and header (which holds the CRC) of each batch; for
            every other file its bytes. Empty if the file was not read: the preallocated indexes of the active segment,
            and files that no change touches.
        disk: bytes of the disk that become free when the file is deleted (reader only): its blocks; 0 if it has other
            hard links; ``WHOLE_BLOCKS`` if it takes its size, rounded up to blocks.
    """

    name: str
    size: int
    mtime_ns: int
    digest: str = ""
    disk: int = WHOLE_BLOCKS


class Span(Struct, frozen=True, kw_only=True):
    """Cleanable range: the offsets that may be compacted.

    Attributes:
        start_offset: base offset of the first segment in the range.
        end_offset: first uncleanable offset, which is the base offset of a segment.
        limit: cause of the limit: ``active segment``, ``open transaction``, ``high watermark``,
            ``min.compaction.lag.ms``.
        limit_text: one line for the reviewer, with the producer id or offset.
    """

    start_offset: int
    end_offset: int
    limit: str
    limit_text: str


class PartitionPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition: its changes, or the reason why there are none.

    A partition without changes, and with the same recovery point, has only the fields that explain why.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        folder: folder name under the log directory.
        status: ``change``, ``nothing`` (nothing to do) or ``left alone`` (see ``why``).
        code: code for programs if ``left alone``, such as ``damage`` or ``leftovers``; else empty.
        why: reason in one line if ``left alone``: file, position, what was expected; else the damage that remains, or
            empty.
        next_command: command that repairs the cause; may be empty.
        log_start_offset: first offset of the log.
        log_end_offset: offset after the last valid batch; 0 if its logs were not scanned.
        high_watermark: offset from ``replication-offset-checkpoint``, -1 if it has no entry.
        span: the offsets that may be compacted, or None.
        horizon_ms: delete horizon that was used, epoch milliseconds; 0 keeps all markers without a horizon of their
            own.
        horizons: the result of each choice of the horizon (reader only).
        files: fingerprints of all regular files in the folder, by name.
        kept_last: ascending pairs (base offset, position) of empty data batches that are kept, because a new segment
            would have no other batch. Their markers are kept too.
        changes: the changes, ascending by base offset.
        log_bytes_before: ``.log`` bytes of the partition.
        log_bytes_after: ``.log`` bytes after apply.
        freed_at_apply: net bytes that are free right after apply, counting files of brokers only; negative while
            originals are kept.
        freed_at_purge: bytes that are free after purge.
        peak_extra_bytes: most extra bytes that apply needs at any moment.
        reasons: tallies over all its sources.
        uncleanable_bytes: bytes that cannot be cleaned (KIP-346), 0 unless left alone for damage.
        notes: lines for the reviewer.
        compaction: result of key compaction; absent if ``compact`` did not decide on the partition.
        evidence: facts about the other replicas; absent if nothing was decided on markers or keys, and in plans of
            versions that did not ask.
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
    evidence: Evidence | UnsetType = UNSET

    @property
    def what_next(self) -> Next:
        """The next command, as a value."""
        return Next.read(self.next_command)

    @property
    def by_name(self) -> dict[str, FileFingerprint]:
        """File name -> fingerprint."""
        return {file.name: file for file in self.files}

    @property
    def keeps_all(self) -> bool:
        """True if markers and tombstones are kept whatever their time, for the sake of other replicas."""
        return not isinstance(self.evidence, UnsetType) and self.evidence.keeps_all


class RootPlan(Struct, frozen=True, kw_only=True):
    """Changes of the checkpoint files in the root of the log directory, which belong to no partition.

    Attributes:
        keeper: partition folder whose work folder stages and keeps them. They cannot be in the root, because a
            broker treats every folder there as a partition.
        files: fingerprints of the files that are replaced, by name.
        changes: the changes, by name; their ``change_id`` is ``./<file name>``. A damaged file is replaced as a whole
            before everything else, because a recovery guard has to read it. Entries of an intact file change after all
            guards are removed. The entries of a replica that is moved out as a whole are removed before its log.
        notes: lines for the reviewer.
    """

    keeper: str
    files: tuple[FileFingerprint, ...]
    changes: tuple[ReplaceFile | ChangeLines, ...]
    notes: tuple[str, ...] = ()


class Risk(Struct, frozen=True, kw_only=True):
    """One thing that reviewers must know before they agree.

    Attributes:
        code: stable word, such as ``every-replica``, ``lagging-replica``, ``comes-back``, ``horizon-forced``.
        text: one short sentence, with the first partitions concerned.
        more: consequences and advice; empty if the sentence says all.
    """

    code: str
    text: str
    more: str = ""


class Commit(Struct, frozen=True, kw_only=True):
    """Order in which the changes are swapped in, see ``docs/crash-safety.md``.

    Attributes:
        order: ``P1`` or ``P2``, an order of the renames.
        fence: True if the recovery point is lowered and the clean-shutdown file moved away while files are swapped.
        why: reason for the choice, in one line.
        looked_at: 32 hex digits over folder, name, size and time of all active segments that the order depends on. If
            one of them has changed, ``apply`` reads them again. Absent if the order does not depend on them, and in
            plans of older versions.
    """

    order: Literal["P1", "P2"]
    fence: bool
    why: str
    looked_at: str | UnsetType = UNSET


class Preview(Struct, frozen=True, kw_only=True):
    """Mark of a plan that was made while a broker was running. ``apply`` refuses it.

    Attributes:
        unknown: facts that cannot be known while a broker is running, one sentence each (reader only).
    """

    unknown: tuple[str, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """A whole plan, for one host and one log directory.

    Attributes:
        format_version: major.minor of this layout; a reader refuses another major version.
        tool_version: version of the krepair that wrote the plan.
        plan_id: first eight hex digits of ``digest``; part of the names of the work folders.
        host: name of the host on which the plan was made.
        log_dir: absolute path of the log directory.
        cluster_id: value in ``meta.properties``; may be empty (up to 2.2 it is not written).
        broker_id: value in ``meta.properties``; may be empty.
        directory_id: value in ``meta.properties``; may be empty (up to 3.6 it is not written).
        policy: inputs of the decisions.
        commit: order in which the changes are swapped in.
        partitions: all partitions, by topic, then number.
        root: changes of checkpoint files in the root, or None.
        freed_at_apply: sum over partitions, in bytes; see ``krepair.plan.space.free_after_apply``.
        freed_at_purge: sum over partitions, in bytes.
        peak_extra_bytes: most extra bytes that are needed at any moment.
        expected_seconds: estimated duration of apply (reader only), at a fixed rate, so that plans repeat byte for
            byte.
        uncleanable_partitions: number of partitions left alone for damage (KIP-346).
        uncleanable_bytes: bytes of the partitions left alone for damage.
        risks: risks for the reviewer.
        asked: options that the plan was made with, as words of a command line; its clock is in the policy.
        preview: set if the plan was made while a broker was running; otherwise absent.
        unchanged_digest: 64 hex digits over the partitions without changes, as they are written; absent if there are
            none, and in plans of older versions.
        digest: 64 hex digits over the canonical bytes of the plan without its ``unchanged`` part, with ``digest`` and
            ``plan_id`` empty. So the copy that is kept for undo, which has no such part, proves the same id.
    """

    format_version: str = FORMAT_VERSION
    tool_version: str = ""
    plan_id: str = ""
    host: str = ""
    log_dir: str = ""
    cluster_id: str = ""
    broker_id: str = ""
    directory_id: str = ""
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
    asked: tuple[str, ...] = ()
    preview: Preview | UnsetType = UNSET
    unchanged_digest: str | UnsetType = UNSET
    digest: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """FOUND if there is something to do, or something that cannot be cleaned."""
        some = self.root is not None or any(partition.changes for partition in self.partitions)
        return ExitCode.FOUND if self.uncleanable_partitions or some else ExitCode.DONE

    @property
    def changing(self) -> list[PartitionPlan]:
        """The partitions in which something changes."""
        return [partition for partition in self.partitions if partition.changes]
