"""Names in a log directory: partition folders, segment files, leftovers, and krepair's own folders.

Names are parsed exactly as a broker parses them, because a broker opens, renames or deletes every file that it takes
for a segment file.

Source: ``Log.scala`` (2.2.1), ``LocalLog.scala`` and ``LogFileUtils.java`` (3.9.0).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from krepair.errors import UsageError
from krepair.formats.java_numbers import parse_java_integer

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Topic names that Kafka allows (``Topic.validate``)."""

METADATA_TOPIC = "__cluster_metadata"
"""Metadata log of the KRaft controllers. It is not a broker's replica, and krepair never changes it."""
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
INDEX_SUFFIXES = (INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES = (LOG, *INDEX_SUFFIXES)
SWAP = ".swap"

PRIVATE_PREFIX = "krepair~"
ROOT_SUFFIX = "~root"
_PRIVATE_FOLDER: Final = re.compile(
    re.escape(PRIVATE_PREFIX) + "([0-9a-f]{1,64})(?:" + re.escape(ROOT_SUFFIX) + ")?"
)
OFFSET_DIGITS = 20
_NAMES_KEPT: Final = 1 << 14
"""Number of cached names: thousands of partitions have the same file names, and each is parsed several times."""
MAX_OFFSET = 2**63 - 1


class FileKind(StrEnum):
    """Kind of a file in a partition folder, as a broker sees it."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    FOREIGN = "foreign"


class NameState(StrEnum):
    """State of a file, given by its last suffix: live, or left over from a cleaning, swap or deletion."""

    LIVE = ""
    CLEANED = ".cleaned"
    SWAP = ".swap"
    DELETED = ".deleted"


SUFFIXES: dict[FileKind, str] = {
    FileKind.LOG: LOG,
    FileKind.OFFSET_INDEX: INDEX,
    FileKind.TIME_INDEX: TIME_INDEX,
    FileKind.TXN_INDEX: TXN_INDEX,
    FileKind.SNAPSHOT: ".snapshot",
}
_KINDS = {suffix: kind for kind, suffix in SUFFIXES.items()}
_USUAL = re.compile(rf"([0-9]{{20}})({'|'.join(map(re.escape, _KINDS))})")
INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
LEFTOVER_STATES = (NameState.DELETED, NameState.CLEANED, NameState.SWAP)


class FileName(NamedTuple):
    """Parsed name of a file in a partition folder.

    Attributes:
        name: name of the file on disk.
        kind: kind by the suffix that remains without the state's suffix.
        base_offset: number before the first dot, None if there is none. For a producer snapshot it is the offset at
            which the snapshot was taken.
        is_canonical: True if a broker would write exactly this name.
    """

    name: str
    kind: FileKind
    state: NameState
    base_offset: int | None
    is_canonical: bool


def base_offset_of(name: str) -> int | None:
    """Parse the number before the first dot as ``Log.offsetFromFileName`` does; None if that throws."""
    before, dot, _ = name.partition(".")
    return parse_java_integer(before, 64) if dot else None


def offset_name(offset: int) -> str:
    """Format an offset in 20 digits, as in Kafka's file names. An offset out of range gives a name that no file has."""
    return f"{offset:0{OFFSET_DIGITS}d}"


def log_name(base_offset: int) -> str:
    """Return the name of a segment's ``.log`` file."""
    return segment_name(base_offset, LOG)


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a segment's file name with the given suffix. The offset is not checked; segment_file checks it."""
    return f"{offset_name(base_offset)}{suffix}"


def segment_file(base_offset: int, kind: FileKind, state: NameState = NameState.LIVE) -> str:
    """Return the name of a segment file: 20 digits, the kind's suffix, the state's suffix.

    Raises:
        UsageError: the offset is impossible, or a segment has no file of this kind.
    """
    if not 0 <= base_offset <= MAX_OFFSET or kind not in SUFFIXES:
        raise UsageError(f"no segment file for offset {base_offset} and kind {kind}")
    return segment_name(base_offset, f"{SUFFIXES[kind]}{state.value}")


@lru_cache(maxsize=_NAMES_KEPT)
def parse_file_name(name: str) -> FileName:
    """Parse the name of a file in a partition folder; every name has a result."""
    usual = _USUAL.fullmatch(name)  # fast path: a log directory may have a hundred thousand such names
    if usual is not None and int(usual[1]) <= MAX_OFFSET:
        return FileName(name, _KINDS[usual[2]], NameState.LIVE, int(usual[1]), is_canonical=True)
    state = next((state for state in LEFTOVER_STATES if name.endswith(state.value)), NameState.LIVE)
    stem = name[: len(name) - len(state.value)] if state else name
    if stem == LEADER_EPOCH_CHECKPOINT:
        return FileName(name, FileKind.LEADER_EPOCHS, state, None, not state)
    if stem == PARTITION_METADATA:
        return FileName(name, FileKind.PARTITION_METADATA, state, None, not state)
    base_offset = base_offset_of(name)
    for kind, suffix in SUFFIXES.items():
        if stem.endswith(suffix):
            possible = base_offset is not None and base_offset >= 0
            canonical = possible and name == segment_file(base_offset or 0, kind, state)
            return FileName(name, kind, state, base_offset, canonical)
    return FileName(name, FileKind.FOREIGN, state, base_offset, is_canonical=False)


class FolderKind(StrEnum):
    """Kind of a folder in a log directory, as a broker sees it."""

    PARTITION = "partition"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"
    FOREIGN = "foreign"


class FolderName(NamedTuple):
    """Parsed name of a folder in a log directory.

    Attributes:
        name: name of the folder on disk.
        kind: kind of the folder. ``FOREIGN`` stops every broker; ``STRAY`` stops brokers before 3.7, which do not know
            it.
        topic: topic name, empty if foreign. The name of a ``-delete`` folder holds only the start of a very long topic
            name.
        partition: partition number, -1 if foreign.
    """

    name: str
    kind: FolderKind
    topic: str
    partition: int

    @property
    def is_canonical(self) -> bool:
        """True if a broker would write this name. A broker reads ``t-00`` and ``t-+0`` too, but never writes them."""
        return self.kind is FolderKind.PARTITION and self.name == partition_folder(self.topic, self.partition)


FOLDER_SUFFIXES: dict[FolderKind, str] = {
    FolderKind.DELETE: "-delete",
    FolderKind.FUTURE: "-future",
    FolderKind.STRAY: "-stray",
}
# Java's \S treats only ASCII characters as white space.
MARKED_FOLDER = r"[^ \t\n\x0b\f\r]+-[^ \t\n\x0b\f\r]+\.[^ \t\n\x0b\f\r]+"
MARKED_FOLDERS = {kind: re.compile(MARKED_FOLDER + suffix) for kind, suffix in FOLDER_SUFFIXES.items()}


def partition_folder(topic: str, partition: int) -> str:
    """Return the name of a partition's folder."""
    return f"{topic}-{partition}"


def parse_folder_name(name: str) -> FolderName:
    """Parse a folder name as ``Log.parseTopicPartitionName`` does; every name has a result."""
    foreign = FolderName(name, FolderKind.FOREIGN, "", -1)
    kind = next(
        (kind for kind, suffix in FOLDER_SUFFIXES.items() if name.endswith(suffix)), FolderKind.PARTITION
    )
    stem = name
    if kind is not FolderKind.PARTITION:
        if MARKED_FOLDERS[kind].fullmatch(name) is None:
            return foreign
        stem, _, _ = name.rpartition(".")
    topic, _, digits = stem.rpartition("-")
    partition = parse_java_integer(digits, 32)
    if not topic or partition is None:
        return foreign
    return FolderName(name, kind, topic, partition)


def private_folder(plan_id: str) -> str:
    """Return the name of krepair's work folder in a partition folder; brokers ignore it and its files.

    Raises:
        UsageError: the id is not 1 to 64 lower-case hex digits.
    """
    if re.fullmatch(r"[0-9a-f]{1,64}", plan_id) is None:
        raise UsageError(f"plan id {plan_id!r} is not made of hex digits")
    return PRIVATE_PREFIX + plan_id


def root_private_folder(plan_id: str) -> str:
    """Return the name of krepair's work folder for files of the log directory's root.

    This folder lies in a partition folder too, because a broker treats every folder in the root as a partition.

    Raises:
        UsageError: see ``private_folder``.
    """
    return private_folder(plan_id) + ROOT_SUFFIX


def plan_id_of(folder: str) -> str | None:
    """Return the plan id in the name of one of krepair's work folders; None for any other name."""
    match = _PRIVATE_FOLDER.fullmatch(folder)
    return match[1] if match else None
