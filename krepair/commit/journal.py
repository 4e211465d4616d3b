r"""Write-ahead journal of one partition: an append-only file of lines with checksums, in the format below.

Layout of a line: ``<CRC-32 of the rest, 8 hex digits> <JSON>\n``. The first line is ``JournalHeader``, every other line
a list of records. A line is appended and synced before the first step that its records announce. A last line that is
cut off or fails its CRC was torn by a crash, and is treated as never written. A bad line that is followed by another
line is damage, and krepair refuses the journal.
"""

from __future__ import annotations

import errno
import os
import zlib
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from krepair.durable.disk import Disk, put_whole
from krepair.errors import DamagedJournalError, RefusedError
from krepair.formats.filenames import LOG, SUFFIXES, FileKind, base_offset_of
from krepair.logdir.space import read_space
from krepair.next_command import Next, by_id

MAGIC = "krepair journal"
VERSION = 4
JOURNAL_NAME = "journal"
COPY_NAME = "plan"
"""File name of the plan's copy, see ``krepair.commit.kept``."""
_NEW_JOURNAL = "journal.new"
_SPARE_BLOCKS = 2
_LONGEST_NAME = 255
"""Maximum length of a file name, in bytes."""
MOST_BYTES = 256 << 20
"""Maximum size of a journal, in bytes; 10,000 groups of 4 files each take about 20 MB."""

Order = Literal["P1", "P2"]
ExecutorName = Literal["files", "log", "segments", "swap"]
"""Name of the executor that carries a change out, see ``executor.py``."""

_BEFORE_DONE: dict[str, frozenset[str | None]] = {
    "committed": frozenset({"committing", "undoing"}),
    "rolled back": frozenset({"committing"}),
    "undone": frozenset({"undoing"}),
}
_AT_REST = frozenset({"rolled back", "undone"})


class FileState(Struct, frozen=True, kw_only=True):
    """Identity of a file, valid also in a copy of the directory, see ``PartitionFolder.holds``.

    Attributes:
        name: file name in the partition folder.
        size: size in bytes.
        mtime_ns: modification time in nanoseconds.
        digest: digest of the content, see ``digest_content``. Empty for a log whose batches' digest is in the plan, and
            for a log that this plan makes, if size or time distinguish the new log from the log that it replaces.
    """

    name: str
    size: int
    mtime_ns: int
    digest: str = ""


class JournalHeader(Struct, frozen=True, tag="journal", kw_only=True, omit_defaults=True):
    """First record of a journal.

    Attributes:
        magic: ``MAGIC``.
        version: version of this layout.
        plan_id: id of the plan that is applied.
        folder: name of the partition folder.
        number: number of the plan in the log directory, higher for later plans; 0 in journals of 1.0.0.
    """

    magic: str
    version: int
    plan_id: str
    folder: str
    number: int = 0


class LostBytes(Struct, frozen=True, kw_only=True):
    """Identity of a log that loses bytes, before and after.

    Attributes:
        size_after: size in bytes of the log without the removed bytes.
        digest_after: digest of the log without the removed bytes.
        digest_removed: digest of the removed bytes.
        front_bytes: number of bytes at the start of the new ``.index`` that are also correct for the old log.
        last: True if the log is the last one of its partition when the change begins.
    """

    size_after: int
    digest_after: str
    digest_removed: str
    front_bytes: int
    last: bool


class FolderListing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a partition folder when changes or their undo began, see ``krepair.commit.listing``.

    Attributes:
        files: name, size and digest of each file except krepair's own, all separated by slashes.
        marker: digest of the clean-shutdown marker, in the root or in a recovery guard; empty if there was no marker.
        epochs: (epoch, start offset) of each entry of the leader epoch checkpoint.
    """

    files: str = ""
    marker: str = ""
    epochs: tuple[tuple[int, int], ...] = ()


class Intent(Struct, frozen=True, tag="begin", kw_only=True, omit_defaults=True):
    """Record that a change begins: its new files are staged, complete and synced.

    Attributes:
        change_id: id of the change.
        executor: name of the executor that carries the change out.
        originals: states of all files that the change replaces or removes; the ``.log`` is first, except in a swap.
        made: states of the staged files, with their final names and in the same order; empty if a log is cut in place.
        order: order of the renames of a swap and of its undo; changes of other kinds have only one order.
        copied: names of originals that are kept as real copies, because they are damaged.
        parts: part of the new ``.log`` that comes from each source, see ``krepair.checks.parts``; else empty.
        digests: digest of each new index of a rewritten segment, 32 hex digits, by file name.
        over: file from an earlier run of the same change, which the staged file replaces; None in the first run, which
            kept the original.
        lost: bytes that the log loses; None for other changes.
        before: listing of the folder, in the first record of a run; None in other records and in journals of 1.0.0.
    """

    change_id: str
    executor: ExecutorName
    originals: tuple[FileState, ...] = ()
    made: tuple[FileState, ...] = ()
    order: Order = "P1"
    copied: tuple[str, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    digests: dict[str, str] = field(default_factory=dict)
    over: FileState | None = None
    lost: LostBytes | None = None
    before: FolderListing | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files that the change replaces, removes or adds."""
        return tuple(dict.fromkeys(state.name for state in (*self.originals, *self.made)))

    def old(self, name: str) -> FileState | None:
        """Return the state of the original with this name; None if there was no original."""
        return next((state for state in self.originals if state.name == name), None)

    def new(self, name: str) -> FileState | None:
        """Return the state of the staged file with this final name; None if there is no such file."""
        return next((state for state in self.made if state.name == name), None)

    @property
    def log(self) -> FileState:
        """New ``.log`` of a swap of segments; ``is_whole`` guarantees that a record of a swap has a new log."""
        return next(state for state in self.made if state.name.endswith(LOG))

    @property
    def base_offset(self) -> int:
        """Base offset of the new segment of a swap."""
        return int(self.log.name.removesuffix(LOG))

    @property
    def snapshots(self) -> tuple[str, ...]:
        """Names of the producer snapshots among the originals."""
        return tuple(
            state.name for state in self.originals if state.name.endswith(SUFFIXES[FileKind.SNAPSHOT])
        )

    @property
    def sources(self) -> tuple[int, ...]:
        """Base offsets of the new segment and the segments that a swap replaces, ascending."""
        logs = (state.name for state in self.originals if state.name.endswith(LOG))
        return tuple(sorted({self.base_offset, *(int(name.removesuffix(LOG)) for name in logs)}))

    @property
    def is_whole(self) -> bool:
        """True if the record has all fields that its kind needs, and all its file names are valid."""
        if not all(map(_is_file_name, (*self.names, *self.copied, *self.digests))):
            return False
        match self.executor:
            case "segments" | "swap":
                logs = [state.name for state in (*self.originals, *self.made) if state.name.endswith(LOG)]
                return _has_log(self.made) and all(base_offset_of(name) is not None for name in logs)
            case "log":
                return self.lost is not None and _has_log(self.originals[:1])
            case "files":
                alike = not self.originals or not self.made
                return len(self.names) == 1 or (alike and _has_log((*self.originals, *self.made)[:1]))


def _is_file_name(name: str) -> bool:
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        return False
    return len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME


def _has_log(states: tuple[FileState, ...]) -> bool:
    return any(state.name.endswith(LOG) for state in states)


class Undo(Struct, frozen=True, tag="undo", kw_only=True, omit_defaults=True):
    """Record that an undo begins to restore the originals of a change.

    Attributes:
        change_id: id of the change.
        before: listing of the folder, see ``Intent``.
    """

    change_id: str
    before: FolderListing | None = None


class Done(Struct, frozen=True, tag="done", kw_only=True):
    """Record that a change, or its undo, is complete.

    Attributes:
        change_id: id of the change.
        state: ``committed``; ``rolled back`` (originals restored, never committed); or ``undone`` (originals restored).
    """

    change_id: str
    state: Literal["committed", "rolled back", "undone"]


class Freed(Struct, frozen=True, tag="freed", kw_only=True):
    """Record that the new files were read again and are correct, so that krepair removes the backups now.

    The change can no longer be undone. The record remains until the whole plan is done.

    Attributes:
        change_id: id of the change.
    """

    change_id: str


class Purge(Struct, frozen=True, tag="purge", kw_only=True):
    """Record that krepair removes all backups now, so that nothing can be undone any more."""


Step = Intent | Undo | Done | Freed | Purge
Line = JournalHeader | tuple[Step, ...]
"""Content of one line: the header, or records written together, so that the disk has all of these records or none."""

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """Return one line of the journal, newline included."""
    body = msgspec.json.encode(line)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _decode_line(line: bytes) -> Line | None:
    crc, space, body = line[:8], line[8:9], line[9:]
    if space != b" " or crc != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_lines(data: bytes, path: str) -> tuple[list[Line], int]:
    """Read all whole lines.

    Args:
        data: bytes of the journal.
        path: path of the journal, for the message.

    Returns:
        The lines, and their total size in bytes; a torn last line may follow.

    Raises:
        RefusedError: a line before the last one is damaged.
    """
    lines: list[Line] = []
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        line = _decode_line(data[position:end])
        if line is None:
            if data.find(b"\n", end + 1) >= 0:
                message = f"{path}: byte {position}: expected a journal record with a right CRC; nothing was changed"
                raise RefusedError(message)
            break
        lines.append(line)
        position = end + 1
    return lines, position


def header_of(plan_id: str, folder: str) -> JournalHeader:
    """Return the first record of the journal of a plan for a partition folder."""
    return JournalHeader(magic=MAGIC, version=VERSION, plan_id=plan_id, folder=folder)


def number_in(front: bytes) -> int:
    """Return the plan's number in the first bytes of a journal; 0 if these bytes hold no complete header."""
    first = _decode_line(front.partition(b"\n")[0])
    return first.number if isinstance(first, JournalHeader) else 0


def _replace_journal(disk: Disk, private: str, data: bytes, owner: tuple[int, int] | None) -> None:
    put_whole(
        disk,
        f"{private}/{JOURNAL_NAME}",
        f"{private}/{_NEW_JOURNAL}",
        lambda new: disk.create(new, data, owner=owner),
    )


class Journal:
    """Journal of one partition; reads the file once, and afterwards follows its own appends.

    Args:
        private: absolute path of the work folder.
        plan_id: id of the plan.
        folder: name of the partition folder.
        owner: (uid, gid) for a new journal; None for the user of this process.

    Raises:
        RefusedError: the journal is damaged, or belongs to another plan or version.
        OSError: the journal could not be read.
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
        self.states: dict[str, str] = {}
        self._half_done: dict[str, None] = {}
        self.purging = False
        self.listing: FolderListing | None = None
        """Latest listing of the folder; the changes in ``since`` began after this listing."""
        self.since: dict[str, None] = {}
        """Ids of the changes that began, or whose undo began, after the folder was listed."""
        self.began_with: dict[str, FolderListing | None] = {}
        """Listing of the folder at the beginning of the run that made a change, by change id."""
        self.came_again: set[str] = set()
        """Ids of changes that another program finished again while their undo was interrupted."""
        self._whole = bytearray()
        """Bytes of all complete records; a bytearray, because ``bytes`` would be copied for each appended record."""
        self._torn = False
        self._read()
        self.is_torn = self._torn
        """True if the file ended in an incomplete record at the time of reading."""
        self.bytes_read = len(self._whole)
        """Size in bytes of the records that were read."""

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
        if isinstance(first, JournalHeader) and first.version != VERSION:
            raise RefusedError(
                f"{self.path}: has format {first.version} of a journal, this krepair reads {VERSION}: undo or purge it "
                "with the krepair that wrote it; nothing was changed",
                next_command=self.command("undo").at("with that krepair"),
            )
        try:
            lines, whole = decode_lines(data, self.path)
        except RefusedError as error:
            raise self.damaged(error.message) from error
        if lines and isinstance(lines[0], JournalHeader):
            self._header = replace(self._header, number=lines[0].number)
        if lines and lines[0] != self._header:
            expected = f"expected the journal of plan {self._header.plan_id} for {self._header.folder}"
            raise self.damaged(f"{self.path}: byte 0: {expected}; nothing was changed")
        self._whole, self._torn = bytearray(data[:whole]), whole < len(data)
        for number, line in enumerate(lines[1:], 2):
            if isinstance(line, JournalHeader) or not all(self._followed_by(step) for step in line):
                raise self.damaged(
                    f"{self.path}: line {number}: expected a record that can follow those before it; one is gone, or "
                    "in another place; nothing was changed"
                )

    def _followed_by(self, step: Step) -> bool:
        """Apply a record that krepair can have written at this point; return False for any other record."""
        if not self._may_follow(step):
            return False
        self._take(step)
        return True

    def _may_follow(self, step: Step) -> bool:
        if self.purging:
            return False
        if isinstance(step, Purge):
            return True
        state = self.states.get(step.change_id)
        match step:
            case Undo():
                return state in {"committing", "committed"}
            case Done():
                return state in _BEFORE_DONE[step.state]
            case Freed():
                return state == "committed"
            case Intent():
                again = state == "committed" and step.over is not None
                return step.is_whole and (again or state in {None, "rolled back", "undone", "freed"})

    def _take(self, step: Step) -> None:
        if isinstance(step, Intent | Undo):
            if step.before is not None:
                self.listing = step.before
                self.since.clear()
            self.since[step.change_id] = None
        match step:
            case Intent():
                self.began_with[step.change_id] = self.listing
                self.intents[step.change_id] = step
                self.states[step.change_id] = "committing"
                self._half_done[step.change_id] = None
            case Undo():
                self.states[step.change_id] = "undoing"
                self._half_done[step.change_id] = None
            case Done():
                if step.state == "committed" and self.states[step.change_id] == "undoing":
                    self.came_again.add(step.change_id)
                self.states[step.change_id] = step.state
                self._half_done.pop(step.change_id, None)
            case Freed():
                self.states[step.change_id] = "freed"
            case Purge():
                self.purging = True

    def append(self, *records: Step) -> None:
        """Append records durably with one fsync: after a crash, all of these records exist or none.

        krepair never appends to a file whose last append failed or that ends in a torn record: the records are copied
        into a new file first. A failed fsync may have lost records, and the next fsync would not report the loss.

        Raises:
            OSError: the records could not be written; none of these records is valid.
        """
        if records:
            self._append(records)

    @property
    def number(self) -> int:
        """Number of the journal in its log directory; 0 for a journal of 1.0.0 or a journal without records."""
        return self._header.number

    def begin_as(self, number: int) -> None:
        """Set the number of a journal that has no records yet."""
        if not self._whole:
            self._header = replace(self._header, number=number)

    def command(self, verb: str) -> Next:
        """Return the command that runs a verb for this plan, named by its id."""
        log_dir = os.path.dirname(os.path.dirname(self._private))
        return by_id(verb, log_dir, self._header.plan_id)

    def damaged(self, message: str) -> DamagedJournalError:
        """Return the error for records that cannot be trusted, with undo as next command."""
        return DamagedJournalError(message, next_command=self.command("undo"))

    def _append(self, steps: tuple[Step, ...]) -> None:
        line = encode_line(steps)
        if self._torn or not self._whole:
            new = (bytes(self._whole) or encode_line(self._header)) + line
            self._rewrite(new)
            self._whole = bytearray(new)
        else:
            self._torn = True
            self._disk.append(self.path, line)
            self._torn = False
            self._whole += line
        for step in steps:
            self._take(step)

    def _rewrite(self, data: bytes) -> None:
        _replace_journal(self._disk, self._private, data, self._owner)
        self._torn = False

    def settle(self) -> None:
        """Make the records that were read durable, before krepair acts on these records.

        A killed process may have written its last record without syncing the file, or the fsync may have failed; in
        both cases the page cache shows the record. So the records are copied into a new file, which is synced for the
        first time. On a full disk, where purge has to free space, the same bytes are written over the old bytes: that
        needs no new block, and the fsync that follows reports a write error of any block.

        Raises:
            OSError: the records could not be written or synced.
        """
        if not self._whole:
            return
        if self._has_room_for_another():
            self._rewrite(bytes(self._whole))
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
        """Return ids of changes that are begun and not undone, and therefore have or had backups."""
        return [change for change, state in self.states.items() if state not in _AT_REST]

    def unfinished(self) -> list[str]:
        """Return ids of changes whose apply or undo was begun and is not complete."""
        return list(self._half_done)
