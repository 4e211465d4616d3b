"""``krepair dump``: show any file of a log directory in constant memory. Writes nothing."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from krepair import __version__
from krepair.errors import ExitCode, UnreadableError, UsageError
from krepair.formats import group_metadata, share_group_state, transaction_state
from krepair.formats.coordinator_record import RecordTable
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    FileKind,
    FolderKind,
    parse_file_name,
    parse_folder_name,
)
from krepair.logdir.reading import opened_folder, opened_for_reading, read_into_from, why
from krepair.logdir.view import CHECKPOINTS, shown_path
from krepair.look.dump.entries import INDEXES, EntryDump, read_text, text_file
from krepair.look.dump.record import FORMAT_VERSION, DumpWord, RecordLines, Style
from krepair.options import Options

DECODERS: Final[dict[str, RecordTable]] = {
    "offsets": group_metadata.RECORDS,
    "transactions": transaction_state.RECORDS,
    "share": share_group_state.RECORDS,
}
DECODER_OF: Final = {table.topic: table for table in DECODERS.values()}
_KRAFT_SNAPSHOT: Final = re.compile(r"(bootstrap|[0-9]{20}-[0-9]{10})\.checkpoint")
_ORDER: Final = ("log", "index", "timeindex", "txnindex", "snapshot", "epochs", "partition.metadata", "offsets",
                 "meta.properties", "text")  # fmt: skip


class DumpTarget(NamedTuple):
    """File to be shown.

    Attributes:
        path: absolute path of the file.
        shown: path as typed, or below the typed folder.
        kind: kind of file, judged by its name.
        base_offset: base offset of the segment, 0 without one.
        topic: topic of the folder that holds the file, may be empty.
    """

    path: str
    shown: str
    kind: str
    base_offset: int
    topic: str


@dataclass
class Dump:
    """One run of ``dump``.

    Args:
        paths: files and folders to show.
        options: options that select what is shown.

    Attributes:
        exit_code: exit code, valid once ``lines`` is exhausted.

    Raises:
        UsageError: an option's value is impossible, or a file name is unknown to krepair.
        UnreadableError: a path does not exist, or a folder cannot be listed.
    """

    paths: Sequence[str]
    options: Options
    exit_code: ExitCode = field(default=ExitCode.DONE, init=False)

    def __post_init__(self) -> None:
        from krepair.look.dump.log import (
            WantedLines,  # loads pyarrow, which other importers of this module do not need
        )

        self._style = Style(as_json=self.options.json_lines)
        self._grep = _pattern(self.options)
        both = not self.options.batches and not self.options.records
        self._wanted = WantedLines(
            self._style,
            cut=self.options.cut,
            searched=self._grep is not None,
            batches=self.options.batches or both,
            records=self.options.records or both,
            lowest=self.options.offsets[0],
            highest=self.options.offsets[1],
            left=2**62 if self.options.limit is None else self.options.limit,
        )
        self._logs_only = not both or self._grep is not None
        self._targets = [target for path in self.paths for target in self._targets_of(path)]

    def lines(self) -> Iterator[bytes | memoryview]:
        """Yield pieces of output, each of whole lines; a piece is valid until the next one is requested."""
        if self.options.json_lines:
            yield self._style.line("dump", {"format_version": FORMAT_VERSION, "tool_version": __version__})
        unreadable = 0
        files = 0
        for target in self._targets:
            if self._wanted.left <= 0:
                break
            files += 1
            try:
                yield from self._file(target)
            except OSError as error:
                unreadable += 1
                yield self._style.line("unreadable", {"file": target.shown, "why": why(error)})
        self.exit_code = (
            ExitCode.UNREADABLE if unreadable else ExitCode.FOUND if self._wanted.damages else ExitCode.DONE
        )
        yield self._style.line(
            "end",
            {
                "files": files,
                "batches": self._wanted.batches_read,
                "damages": self._wanted.damages,
                "unreadable": unreadable,
                "limit_reached": self._wanted.left <= 0,
                "exit_code": int(self.exit_code),
            },
        )

    # -- which files ------------------------------------------------------------------------------
    def _targets_of(self, path: str) -> list[DumpTarget]:
        # follow links in the folders, as a shell does; the file itself must not be a link
        front, name = os.path.split(os.path.abspath(path))
        whole = os.path.join(os.path.realpath(front), name)
        try:
            os.lstat(whole)
        except OSError as error:
            raise UnreadableError(f"{shown_path(path)}: could not be read: {why(error)}") from error
        if os.path.isdir(whole):
            return self._targets_in(os.path.realpath(whole), path)
        target = _target(whole, path)
        if target is None:
            raise UsageError(
                f"{shown_path(path)}: not a name of a file that brokers keep in a log directory; expected names as "
                "00000000000000000000.log, .index, .timeindex, .txnindex, .snapshot (perhaps with .swap, .cleaned or "
                ".deleted), a checkpoint, meta.properties or partition.metadata"
            )
        return [target]

    def _targets_in(self, folder: str, named: str) -> list[DumpTarget]:
        try:
            with opened_folder(folder) as descriptor, os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError as error:
            raise UnreadableError(f"{shown_path(named)}: could not be listed: {why(error)}") from error
        targets = [
            target
            for name in names
            if (target := _target(f"{folder}/{name}", os.path.join(named, name))) is not None
        ]
        if not targets:
            raise UsageError(
                f"{shown_path(named)}: no file in this folder is one that brokers keep in a log directory; give a "
                "partition folder, or files"
            )
        if self._logs_only:
            targets = [target for target in targets if target.kind == "log"]
        targets.sort(key=lambda target: (_ORDER.index(target.kind) > 4, target.base_offset,
                                       _ORDER.index(target.kind), target.path))  # fmt: skip
        return targets

    # -- one file ---------------------------------------------------------------------------------
    def _file(self, target: DumpTarget) -> Iterator[bytes | memoryview]:
        with opened_for_reading(target.path) as descriptor:
            size = os.fstat(descriptor).st_size
            fields = {"file": target.shown, "kind": DumpWord(target.kind), "size": size}
            if target.kind in _ORDER[:5]:
                fields["base_offset"] = target.base_offset
            head = self._style.line("file", fields)
            if self._grep is None:
                yield head
                head = b""
            for line in self._lines(target, descriptor, size):
                if head:
                    yield head  # a file without a match is not named at all
                    head = b""
                yield line

    def _lines(self, target: DumpTarget, descriptor: int, size: int) -> Iterator[bytes | memoryview]:
        if target.kind == "log":
            yield from self._log(target, descriptor, size)
            return
        for line in self._other(target, descriptor, size):
            if isinstance(line, Damage):
                yield self._wanted.damage(line)
            elif self._wanted.left > 0 and (self._grep is None or self._grep.search(line)):
                self._wanted.left -= 1
                yield line
            if self._wanted.left <= 0:
                return

    def _log(self, target: DumpTarget, descriptor: int, size: int) -> Iterator[bytes | memoryview]:
        from krepair.look.dump.log import LogDump

        table = (
            DECODER_OF.get(target.topic)
            if self.options.decode == "auto"
            else DECODERS.get(self.options.decode)
        )
        self._wanted.lines = RecordLines(
            self._style, self.options.keys, self.options.values, table, self._grep, self.options.cut
        )
        return LogDump(read_into_from(descriptor), size, target.base_offset, self._wanted).lines()

    def _other(self, target: DumpTarget, descriptor: int, size: int) -> Iterator[bytes | Damage]:
        entries = EntryDump(self._style, target.base_offset, *self.options.offsets)
        if target.kind in INDEXES:
            return entries.index(target.kind, descriptor, size)
        if target.kind == "snapshot":
            return entries.snapshot(descriptor, size)
        return text_file(self._style, target.kind, read_text(target.path), size)


def _target(path: str, named: str) -> DumpTarget | None:
    """Return the target that a file name stands for, None if no broker writes such files."""
    folder, name = os.path.split(path)
    parsed = parse_file_name(name)
    stem = name.removesuffix(parsed.state.value).removesuffix(".tmp")
    kinds = {
        FileKind.LOG: "log",
        FileKind.OFFSET_INDEX: "index",
        FileKind.TIME_INDEX: "timeindex",
        FileKind.TXN_INDEX: "txnindex",
        FileKind.SNAPSHOT: "snapshot",
        FileKind.LEADER_EPOCHS: "epochs",
        FileKind.PARTITION_METADATA: "partition.metadata",
    }
    kind = kinds.get(parsed.kind, "")
    if not kind:
        kind = (
            "offsets" if stem in CHECKPOINTS
            else "epochs" if stem == LEADER_EPOCH_CHECKPOINT
            else "meta.properties" if stem == META_PROPERTIES
            else "text" if stem == CLEAN_SHUTDOWN
            else "log" if _KRAFT_SNAPSHOT.fullmatch(stem)
            else ""
        )  # fmt: skip
    if not kind:
        return None
    topic = parse_folder_name(os.path.basename(folder))
    return DumpTarget(
        path,
        named,
        kind,
        max(parsed.base_offset or 0, 0),
        "" if topic.kind is FolderKind.FOREIGN else topic.topic,
    )


def _pattern(options: Options) -> re.Pattern[bytes] | None:
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit {options.limit}: expected a number of lines from 1 on")
    if options.cut < 1:
        raise UsageError(f"--cut {options.cut}: expected a number of bytes from 1 on")
    if options.grep and options.batches and not options.records:
        raise UsageError("--grep looks into records; leave --batches away, or give --records too")
    if not options.grep:
        return None
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(os.fsencode(options.grep))
    except (re.error, RecursionError, OverflowError) as error:  # nested too deeply, or repeated too often
        raise UsageError(
            f"--grep {shown(options.grep)!r}: not a regular expression: {shown(str(error))}"
        ) from error
