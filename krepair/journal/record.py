r"""The journal of one partition: an append-only file of checked records, described once, here.

Layout: one record per line, ``<CRC-32 of the rest, 8 hex digits> <JSON>\n``; the first one is ``Header``. A record is
appended and synced before the first step that it announces. A last line that is cut off or fails its CRC was torn by a
crash: it counts as never written. A bad line before another one is damage, and the journal is refused.
"""

from __future__ import annotations

import errno
import os
import shlex
import zlib
from typing import Literal

import msgspec
from msgspec import Struct, field

from krepair.durable.disk import Disk
from krepair.durable.whole_file import put_whole
from krepair.errors import DamagedJournalError, RefusedError
from krepair.formats.filenames import log_name
from krepair.logdir.space import read_space

MAGIC = "krepair journal"
VERSION = 2
JOURNAL_NAME = "journal"
COPY_NAME = "plan"
"""The copy of the plan, see ``krepair.journal.plan_copy``."""
_NEW_JOURNAL = "journal.new"
_SPARE_BLOCKS = 2
MOST_BYTES = 256 << 20
"""A journal beyond this is not ours: 10,000 groups of 4 files each take about 20 MB."""

Order = Literal["P1", "P2"]

_BEFORE_DONE: dict[str, frozenset[str | None]] = {
    "committed": frozenset({"committing"}),
    "rolled back": frozenset({"committing"}),
    "undone": frozenset({"undoing"}),
}
_AT_REST = frozenset({"rolled back", "undone"})


class FileState(Struct, frozen=True, kw_only=True):
    """What a file is known by, also in a copy of the directory: see ``PartitionFolder.holds``.

    Attributes:
        name: file name in the partition folder.
        size: bytes.
        mtime_ns: modification time in nanoseconds.
        digest: of what it holds, see ``digest_content``. Empty of a log of which the plan has a digest of its batches,
            or that this plan makes, as long as size and time tell it from the one that it replaces.
    """

    name: str
    size: int
    mtime_ns: int
    digest: str = ""


class Header(Struct, frozen=True, tag="journal", kw_only=True):
    """First record.

    Attributes:
        magic: ``MAGIC``.
        version: of this layout.
        plan_id: of the plan that is applied.
        folder: name of the partition folder.
    """

    magic: str
    version: int
    plan_id: str
    folder: str


class ApplyIntent(Struct, frozen=True, tag="apply", kw_only=True):
    """A group's staged files are complete and the swap begins.

    Attributes:
        change_id: of the change.
        base_offset: of the new segment.
        sources: base offsets of the segments it replaces, ascending.
        order: of the renames.
        originals: every file that goes, as it was.
        snapshots: names among the originals that are producer snapshots.
        copied: names among the originals that are kept as real copies (known to be damaged).
        merged: the staged files, by their final names.
        parts: (bytes, CRC-32C) of what each source gave to the new ``.log``, in order; empty if it was not staged here.
        made: name -> 32 hex digits over the bytes of each new index.
    """

    change_id: str
    base_offset: int
    sources: tuple[int, ...]
    order: Order
    originals: tuple[FileState, ...]
    snapshots: tuple[str, ...]
    copied: tuple[str, ...]
    merged: tuple[FileState, ...]
    parts: tuple[tuple[int, int], ...] = ()
    made: dict[str, str] = field(default_factory=dict)

    @property
    def has_log(self) -> bool:
        """Whether its new log is among the files; krepair writes no other record."""
        return log_name(self.base_offset) in {state.name for state in self.merged}


class ReplaceIntent(Struct, frozen=True, tag="replace", kw_only=True):
    """One derived file is about to be replaced, or removed.

    Attributes:
        change_id: of the change.
        original: the file as it was, or None if there was none.
        replacement: the staged file, by its final name, or None if the file only goes.
        over: the file that an earlier run of the same change made, which the staged one replaces; None in a first run.
            The original is kept since then.
    """

    change_id: str
    original: FileState | None
    replacement: FileState | None
    over: FileState | None = None

    @property
    def name(self) -> str:
        """Name of the file in the partition folder."""
        known = self.replacement or self.original
        return known.name if known is not None else ""


class CompanionStates(Struct, frozen=True, kw_only=True):
    """An index that is replaced together with its log.

    Attributes:
        original: the file as it was, or None if there was none.
        replacement: the staged file, by its final name.
    """

    original: FileState | None
    replacement: FileState


class LogIntent(Struct, frozen=True, tag="log", kw_only=True):
    """Damaged bytes are about to leave a ``.log``.

    Attributes:
        change_id: of the change.
        original: the ``.log`` as it was.
        replacement: the staged ``.log``, None of one that is truncated in place.
        size_after: bytes of the new one.
        digest_after: over all its bytes.
        digest_removed: over the bytes that go.
        companions: the indexes that are replaced with it.
        front_bytes: how much of the new ``.index`` is also true of the old log.
        last: whether it is the last segment of its partition at that time.
    """

    change_id: str
    original: FileState
    replacement: FileState | None
    size_after: int
    digest_after: str
    digest_removed: str
    companions: tuple[CompanionStates, ...]
    front_bytes: int
    last: bool


class AsideIntent(Struct, frozen=True, tag="aside", kw_only=True):
    """A whole segment is about to be taken out of the partition folder.

    Attributes:
        change_id: of the change.
        files: as they were, the ``.log`` first.
    """

    change_id: str
    files: tuple[FileState, ...]


class SwapIntent(Struct, frozen=True, tag="swap", kw_only=True):
    """A swap that a broker began is about to be finished: its new indexes are staged.

    Attributes:
        change_id: of the change.
        group: as of a swap of our own: ``merged`` is the ``.log.swap`` by its final name and the staged indexes;
            ``originals`` are the files replaced and the swap's own index files.
    """

    change_id: str
    group: ApplyIntent

    @property
    def has_log(self) -> bool:
        """As of its group."""
        return self.group.has_log


class RollIntent(Struct, frozen=True, tag="roll", kw_only=True):
    """An empty segment is about to be put at the log end.

    Attributes:
        change_id: of the change.
        files: the staged files, by their final names, the ``.log`` last.
    """

    change_id: str
    files: tuple[FileState, ...]


class UndoIntent(Struct, frozen=True, tag="undo", kw_only=True):
    """The originals of a change are about to be put back.

    Attributes:
        change_id: of the change.
        order: of the renames.
    """

    change_id: str
    order: Order


class Done(Struct, frozen=True, tag="done", kw_only=True):
    """The last intent of a change came to its end.

    Attributes:
        change_id: of the change.
        state: ``committed``; ``rolled back`` (never committed) or ``undone``: the originals are in their places.
    """

    change_id: str
    state: Literal["committed", "rolled back", "undone"]


class Freed(Struct, frozen=True, tag="freed", kw_only=True):
    """What replaces the originals of a change was read again and is right; now the kept originals go.

    From here on the change is not taken back. The record stays until the whole plan is done.

    Attributes:
        change_id: of the change.
    """

    change_id: str


class PurgeIntent(Struct, frozen=True, tag="purge", kw_only=True):
    """The kept originals are about to be removed: from here on nothing can be undone.

    Attributes:
        changes: ids of the committed changes.
    """

    changes: tuple[str, ...]


Intent = ApplyIntent | ReplaceIntent | LogIntent | AsideIntent | SwapIntent | RollIntent
Step = Intent | UndoIntent | Done | Freed


class Together(Struct, frozen=True, tag="together", kw_only=True):
    """Records that are written at once: all of them are on the disk, or none happened.

    Attributes:
        records: in order.
    """

    records: tuple[Step, ...]


Record = Header | Step | PurgeIntent | Together
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """One line of the journal, newline included."""
    body = msgspec.json.encode(record)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _decode_line(line: bytes) -> Record | None:
    crc, space, body = line[:8], line[8:9], line[9:]
    if space != b" " or crc != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_records(data: bytes, path: str) -> tuple[list[Record], int]:
    """Reads all whole records.

    Args:
        data: bytes of the journal.
        path: its name, for the message.

    Returns:
        The records, and the bytes they take: what follows is a torn last record.

    Raises:
        RefusedError: a record before the last one is damaged.
    """
    records: list[Record] = []
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        record = _decode_line(data[position:end])
        if record is None:
            if data.find(b"\n", end + 1) >= 0:
                message = f"{path}: byte {position}: expected a journal record with a right CRC; nothing was changed"
                raise RefusedError(message)
            break
        records.append(record)
        position = end + 1
    return records, position


def header_of(plan_id: str, folder: str) -> Header:
    """The first record of the journal of a plan for a partition folder."""
    return Header(magic=MAGIC, version=VERSION, plan_id=plan_id, folder=folder)


def _replace_journal(disk: Disk, private: str, data: bytes, owner: tuple[int, int] | None) -> None:
    put_whole(
        disk,
        f"{private}/{JOURNAL_NAME}",
        f"{private}/{_NEW_JOURNAL}",
        lambda new: disk.create(new, data, owner=owner),
    )


class Journal:
    """The journal of one partition, read once and kept in step with the file.

    Args:
        disk: what writes.
        private: absolute path of the private sub-folder.
        plan_id: of the plan.
        folder: name of the partition folder.
        owner: (uid, gid) of the partition folder, whose the journal is too; None: of whoever writes it.

    Raises:
        RefusedError: the journal is damaged or of another plan or version.
        OSError: it could not be read.
    """

    def __init__(
        self, disk: Disk, private: str, plan_id: str, folder: str, owner: tuple[int, int] | None = None
    ) -> None:
        self._disk = disk
        self._private = private
        self._owner = owner
        self._header = header_of(plan_id, folder)
        self.path = f"{private}/{JOURNAL_NAME}"
        self.intents: dict[str, Intent] = {}
        self.undos: dict[str, UndoIntent] = {}
        self.freed: dict[str, Freed] = {}
        self.states: dict[str, str] = {}
        self._half_done: dict[str, None] = {}
        self.purging: PurgeIntent | None = None
        self._whole = bytearray()
        """All whole records; bytes would be copied for each record that comes behind them."""
        self._torn = False
        self._read()
        self.is_torn = self._torn
        """Whether it ended, when it was read, in a record that is not whole."""
        self.bytes_read = len(self._whole)
        """Bytes of the records that were read."""

    def _read(self) -> None:
        try:
            data = self._disk.tree.read(self.path, MOST_BYTES + 1)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise self.damaged(f"{self.path}: the disk cannot read it; nothing was changed") from error
        if data is None:
            return
        if len(data) > MOST_BYTES:
            raise self.damaged(f"{self.path}: larger than {MOST_BYTES} bytes, which no journal of krepair is")
        first = _decode_line(data.partition(b"\n")[0])
        if isinstance(first, Header) and first.version != VERSION:
            raise RefusedError(
                f"{self.path}: has format {first.version} of a journal, this krepair reads {VERSION}: undo or purge it "
                "with the krepair that wrote it; nothing was changed",
                next_command=f"{self.command('undo')}   # with that krepair",
            )
        try:
            records, whole = decode_records(data, self.path)
        except RefusedError as error:
            raise self.damaged(error.message) from error
        if records and records[0] != self._header:
            expected = f"expected the journal of plan {self._header.plan_id} for {self._header.folder}"
            raise self.damaged(f"{self.path}: byte 0: {expected}; nothing was changed")
        self._whole, self._torn = bytearray(data[:whole]), whole < len(data)
        for line, record in enumerate(records[1:], 2):
            for step in record.records if isinstance(record, Together) else (record,):
                if not self._may_follow(step):
                    raise self.damaged(
                        f"{self.path}: line {line}: expected a record that can follow those before it; one is gone, or "
                        "in another place; nothing was changed"
                    )
                self._take(step)

    def _may_follow(self, record: Header | Step | PurgeIntent) -> bool:
        """Whether krepair can have written a record behind those that were taken."""
        if self.purging is not None or isinstance(record, Header):
            return False
        if isinstance(record, PurgeIntent):
            return True
        state = self.states.get(record.change_id)
        match record:
            case UndoIntent():
                return state in {"committing", "committed"}
            case Done():
                return state in _BEFORE_DONE[record.state]
            case Freed():
                return state == "committed"
            case _ if not getattr(record, "has_log", True):
                return False
            case _:
                again = state == "committed" and getattr(record, "over", None) is not None
                return again or state in {None, "rolled back", "undone", "freed"}

    def _take(self, record: Record) -> None:
        match record:
            case UndoIntent():
                self.undos[record.change_id] = record
                self.states[record.change_id] = "undoing"
                self._half_done[record.change_id] = None
            case Done():
                self.states[record.change_id] = record.state
                self._half_done.pop(record.change_id, None)
            case Freed():
                self.freed[record.change_id] = record
                self.states[record.change_id] = "freed"
            case Together():
                for part in record.records:
                    self._take(part)
            case PurgeIntent():
                self.purging = record
            case Header():
                pass
            case _:
                self.intents[record.change_id] = record
                self.states[record.change_id] = "committing"
                self.undos.pop(record.change_id, None)
                self._half_done[record.change_id] = None

    def append(self, *records: Step) -> None:
        """Appends records, durably and with one fsync: after a crash all of them are there, or none.

        A file whose last append failed, or that ends in a torn record, is never written again: what it holds is
        copied into a new one first, since a failed fsync may have lost what the next one would report as safe.

        Raises:
            OSError: they could not be written; none of them happened.
        """
        if records:
            self._append(records[0] if len(records) == 1 else Together(records=records))

    def command(self, verb: str) -> str:
        """A verb of the plan, by its id."""
        log_dir = os.path.dirname(os.path.dirname(self._private))
        return f"krepair {verb} {shlex.quote(log_dir)} --plan-id {self._header.plan_id}"

    def damaged(self, message: str) -> DamagedJournalError:
        """What is said where the records cannot be gone by: undo shows the way back."""
        return DamagedJournalError(message, next_command=self.command("undo"))

    def begin_purge(self, changes: tuple[str, ...]) -> None:
        """Announces, durably, that what is kept for these changes goes.

        Raises:
            OSError: as ``append``.
        """
        self._append(PurgeIntent(changes=changes))

    def _append(self, record: Record) -> None:
        lines = encode_record(record)
        if self._torn or not self._whole:
            new = (bytes(self._whole) or encode_record(self._header)) + lines
            self._make_anew(new)
            self._whole = bytearray(new)
        else:
            self._torn = True
            self._disk.append(self.path, lines)
            self._torn = False
            self._whole += lines
        self._take(record)

    def _make_anew(self, data: bytes) -> None:
        _replace_journal(self._disk, self._private, data, self._owner)
        self._torn = False

    def settle(self) -> None:
        """Makes what was read durable, before anything is done on what it says.

        A process that was killed may have written its last record without having synced it, or its fsync may have
        failed; the page cache shows the record in both cases. Hence a new file, which is synced for the first time.
        On a full disk, where purge is to free space, the same bytes are written over the old ones: that takes no block,
        and the sync after it reports on all of them.

        Raises:
            OSError: that could not be done.
        """
        if not self._whole:
            return
        if self._has_room_for_another():
            self._make_anew(bytes(self._whole))
            return
        self._disk.write_at(self.path, 0, [memoryview(bytes(self._whole))])
        if self._torn:
            self._disk.truncate(self.path, len(self._whole))
        self._disk.sync_file(self.path)
        self._torn = False

    def _has_room_for_another(self) -> bool:
        space = read_space(self._private, self._disk.tree)
        return (
            space.free_inodes != 0
            and space.free_bytes >= len(self._whole) + _SPARE_BLOCKS * space.block_bytes
        )

    def at_work(self) -> list[str]:
        """Ids of the changes that are done, half done or half undone: something is, or was, kept for them."""
        return [change for change, state in self.states.items() if state not in _AT_REST]

    def unfinished(self) -> list[str]:
        """Ids of the changes that are half done or half undone."""
        return list(self._half_done)
