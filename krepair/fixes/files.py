"""Functions for fixes that change small files: build the change, stage the file, compare it with the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from krepair.commit.folder import PartitionFolder
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Attributes
from krepair.durable.tree import Tree
from krepair.errors import StalePlanError, VerifyFailedError
from krepair.fixes.staging import Kind, Staging, Work
from krepair.formats import producer_snapshot
from krepair.formats.checkpoint import Checkpoint, decode_epochs, decode_offsets, is_as_written
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX_KINDS, FileKind, parse_file_name
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import FileRef, Partition
from krepair.logdir.view import CHECKPOINTS
from krepair.plan.model import KeepOriginal, ReplaceFile
from krepair.rules.snapshots import SnapshotFile

RECOVERED: Final = "KR801"
"""Rule of changes that prepare a partition for a start that reads no log; ``--fix recovery`` builds the bytes."""


def removal_change(folder: str, file: FileRef | SnapshotFile, rule: str, reason: str) -> ReplaceFile:
    """Return the change that removes a file, whose backup is kept until purge.

    Args:
        folder: folder of the partition; ``.`` for the root.
        rule: code of the finding that the removal repairs.
    """
    return replaced(folder, file.name, "remove", rule, file.size, -1, "", reason)


def rebuild_change(
    folder: str, name: str, before: FileRef | SnapshotFile | None, data: bytes, rule: str, reason: str
) -> ReplaceFile:
    """Return the change that replaces a file's bytes; ``before`` is None for a file that does not exist yet."""
    size = -1 if before is None else before.size
    return replaced(folder, name, "regenerate", rule, size, len(data), digest_bytes(data), reason)


def replaced(
    folder: str,
    name: str,
    method: Literal["truncate", "regenerate", "remove"],
    rule: str,
    size_before: int,
    size_after: int,
    digest_after: str,
    reason: str,
) -> ReplaceFile:
    """Return the change to one small file, see ``ReplaceFile``."""
    return ReplaceFile(
        change_id=f"{folder}/{name}",
        name=name,
        method=method,
        rule=rule,
        size_before=size_before,
        size_after=size_after,
        digest_after=digest_after,
        reason=reason,
        undo=KeepOriginal(),
    )


def put_staged(work: Work, staging: Staging, name: str, data: bytes, like: Attributes) -> None:
    """Write a staged file with the owner, mode and times of another file.

    Missing folders are created. ``stage_all`` makes the file's name durable.

    Raises:
        OSError: the file could not be written.
    """
    staging.folder.make_private_folders()
    staged = f"{staging.stage_folder}/{name}"
    if work.disk.tree.is_there(staged):
        work.disk.unlink(staged)
    work.disk.create(staged, data, like, synced=not work.together)
    staging.unsynced = True


class RebuiltFile(NamedTuple):
    """Rebuilt contents of a small file.

    Attributes:
        left: reason why the bytes are unknown, or empty.
    """

    data: bytes
    left: str = ""


def stage_again(work: Work, staging: Staging, change: ReplaceFile, made: RebuiltFile) -> None:
    """Stage a file whose bytes were rebuilt, right before the file is swapped in.

    Raises:
        StalePlanError: the bytes differ from the plan's digest.
        VerifyFailedError: a broker would decode the bytes to different values.
        OSError: the file could not be written.
    """
    path, data = staging.folder.at(change.name), made.data
    if made.left or (len(data), digest_bytes(data)) != (change.size_after, change.digest_after):
        text = f"{path}: its bytes, built again, are not those of the plan"
        raise StalePlanError(f"{text} {made.left}".rstrip())
    wrong = small_file(change.name).wrong_form(data)
    if wrong:
        raise VerifyFailedError(f"{path}: what was made for it {wrong}; nothing was changed")
    like = (
        path
        if staging.partition is None
        else attribute_source(staging.folder, staging.partition, change.name)
    )
    put_staged(work, staging, change.name, data, read_attributes(like, work.disk.tree))


def attribute_source(folder: PartitionFolder, partition: Partition, name: str) -> str:
    """Return the file whose owner, mode and times a new file takes over.

    The result is the original, else the log of the same segment, else the last log.
    """
    for path in (f"{folder.private}/keep/{name}", f"{folder.path}/{name}"):
        if folder.tree.is_there(path):
            return path
    log = f"{name.partition('.')[0]}.log"
    logs = [segment.log.name for segment in partition.segments]
    return f"{folder.path}/{log if log in logs or not logs else logs[-1]}"


class SmallFile(NamedTuple):
    """A kind of small file that a fix writes.

    Attributes:
        kind: words for the page of ``verify``.
        wrong_form: function that describes how a file's bytes change when they are decoded and encoded again; empty if
            they do not.
    """

    kind: Kind
    wrong_form: Callable[[bytes], str]


def _wrong_snapshot(data: bytes) -> str:
    damage = producer_snapshot.damage(data)
    same = not damage and producer_snapshot.encode_table(producer_snapshot.table(data)) == data
    return _wrong_form(damage, same=same)


def _wrong_checkpoint(decode: Callable[[bytes], Checkpoint[Any]], data: bytes) -> str:
    decoded = decode(data)
    return _wrong_form(decoded.damage, same=is_as_written(data, decoded.entries))


def _wrong_form(damage: Sequence[Damage], *, same: bool) -> str:
    if damage:
        return f"cannot be read: {damage[0].text}"
    return "" if same else "does not have the bytes that a broker writes"


_MADE: Final = "size and digest against the plan, decoded and encoded again"
_OF_ROOT: Final = Kind("checkpoints of the log directory", _MADE)
_SMALL_FILES: Final[Mapping[str, SmallFile]] = {
    FileKind.LEADER_EPOCHS: SmallFile(
        Kind("leader epoch checkpoints", _MADE), partial(_wrong_checkpoint, decode_epochs)
    ),
    FileKind.SNAPSHOT: SmallFile(Kind("producer snapshots", _MADE), _wrong_snapshot),
    **dict.fromkeys(CHECKPOINTS, SmallFile(_OF_ROOT, partial(_wrong_checkpoint, decode_offsets))),
    # an index is compared with its log instead
    **dict.fromkeys(
        INDEX_KINDS, SmallFile(Kind("indexes", "size and digest against the plan"), lambda _: "")
    ),
}
"""By kind of file in a partition, by name in the root. A file of no kind here is a bug."""


def small_file(name: str) -> SmallFile:
    """Return the kind of a small file that a fix writes."""
    return _SMALL_FILES[name if name in CHECKPOINTS else parse_file_name(name).kind]


def not_as_planned(path: str, change: ReplaceFile, tree: Tree | None = None) -> str:
    """Describe how a replaced file differs from the plan's digest or a broker's form; empty if it does not differ."""
    try:
        data = read_whole(path, change.size_after + 1, tree)
    except OSError as error:
        return f"could not be read: {why(error)}"
    if (len(data), digest_bytes(data)) != (change.size_after, change.digest_after):
        return f"is not the file of {change.size_after} bytes that the plan makes"
    return small_file(change.name).wrong_form(data)
