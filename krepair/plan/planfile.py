"""The plan file: canonical JSON, its digest, and the messages for a file that was changed.

Canonical JSON here has UTF-8, sorted keys, a line for each field of the plan and for each partition, and one newline at
the end. The same plan always gives the same bytes, so two people can compare files, and the digest can be computed from
the values.

The copy that krepair keeps for undo is the same file without the partitions that do not change. The digest, and so the
plan id, covers this copy. The copy holds a digest of the partitions that do not change.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from krepair.durable.disk import Disk, put_whole_or_nothing
from krepair.durable.output_file import OutputKind, not_written, place_of
from krepair.durable.tree import Tree
from krepair.errors import RefusedError, StalePlanError, UnreadableError, UsageError
from krepair.formats.filenames import private_folder, root_private_folder
from krepair.logdir.reading import is_there, kind_of, why
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.plan.changes import lines_of
from krepair.plan.document import PlanDocument, Unchanged, join_unchanged, split_unchanged
from krepair.plan.model import FORMAT_VERSION, FileFingerprint, Plan

MAX_PLAN_BYTES: Final = 1 << 30
"""Size limit in bytes: krepair refuses larger files unread. A plan has less than 1 kB per segment that changes."""

PLAN_ID_DIGITS: Final = 8
_DIGEST_FORM: Final = re.compile(r"[0-9a-f]{64}")
_PLAN_ID_FORM: Final = re.compile(r"[0-9a-f]{1,64}")
_MAKE_NEW_PLAN: Final = Next.of("plan", LOG_DIR, out=PLAN)
_ANOTHER_FILE: Final = Next.of("plan", LOG_DIR, out="OTHER-PLAN")
_PLANS: Final = OutputKind(
    option="--out", what="plans", first=b"", again=Next.of("plan", LOG_DIR), another="OTHER-PLAN"
)

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(PlanDocument)
_IN_FULL: Final = "2.0"
"""The format of krepair 1.0.0: every field is written, and the digest is over the whole plan."""


_LINE: Final = 60
"""Lower bound of the bytes that a changed checkpoint entry takes in a plan, besides its topic."""


class _Head(msgspec.Struct):
    """Fields that identify the kind of file; they are read before the rest."""

    format_version: str = ""
    tool_version: str = ""


_head_decoder: Final = msgspec.json.Decoder(_Head)


class _Applied(_Head):
    """Fields by which krepair finds a plan's backups, in all format versions."""

    plan_id: str = ""
    log_dir: str = ""
    digest: str = ""


_applied_decoder: Final = msgspec.json.Decoder(_Applied)


def dumps(plan: Plan) -> bytes:
    """Return the canonical bytes of a plan."""
    if plan.format_version == _IN_FULL:
        return in_full(plan)
    return _written(*split_unchanged(plan))


def kept_copy(plan: Plan) -> bytes:
    """Return the canonical bytes of the copy for undo: head, root, and the partitions that change."""
    if plan.format_version == _IN_FULL:
        return in_full(plan)
    return _written(split_unchanged(plan)[0])


def kept_sizes(plan: Plan) -> tuple[int, dict[str, int]]:
    """Return the sizes in bytes of the copy for undo: size of its head, and size of each changed partition by folder.

    An entry of a root checkpoint counts for its partition.
    """
    changing = {partition.folder: partition for partition in plan.changing}
    if plan.format_version == _IN_FULL:
        return len(in_full(plan)), dict.fromkeys(changing, 0)
    lines = Counter(
        (line.topic, line.partition)
        for change in (plan.root.changes if plan.root is not None else ())
        for line in lines_of(change)
    )
    sizes = {
        folder: len(_encoder.encode(partition))
        + len(",\n")
        + lines[partition.topic, partition.partition] * (_LINE + len(partition.topic))
        for folder, partition in changing.items()
    }
    return max(len(kept_copy(plan)) - sum(sizes.values()), 0), sizes


def in_full(plan: Plan) -> bytes:
    """Return a plan with every field of every partition, as krepair 1.0.0 wrote it."""
    return msgspec.json.format(_encoder.encode(spelled_out(plan)), indent=2) + b"\n"


def spelled_out(value: Any) -> Any:
    """Return a plan, or a part of a plan, as plain values with every field."""
    if isinstance(value, msgspec.Struct):
        config = type(value).__struct_config__
        fields = {} if config.tag is None else {str(config.tag_field): config.tag}
        for name in value.__struct_fields__:
            if (field := getattr(value, name)) is not UNSET:
                fields[name] = spelled_out(field)
        return fields
    if isinstance(value, dict):
        return {name: spelled_out(field) for name, field in value.items()}
    return [spelled_out(item) for item in value] if isinstance(value, tuple | list) else value


def of_full(document: Any) -> Plan:
    """Build the plan from the values that ``in_full`` writes; the values are modified.

    Raises:
        msgspec.ValidationError: the values are not those of a plan.
        KeyError, TypeError, AttributeError: likewise.
    """
    for part in (*document["partitions"], *filter(None, (document.get("root"),))):
        part["files"] = [[file[name] for name in FileFingerprint.__struct_fields__] for file in part["files"]]
    return msgspec.convert(document, Plan)


def _written(plan: Plan, unchanged: Sequence[Unchanged] = ()) -> bytes:
    fields: dict[str, bytes] = {}
    for name in plan.__struct_fields__:
        if (value := getattr(plan, name)) is not UNSET:
            fields[name] = _lines(value) if name == "partitions" else _encoder.encode(value)
    if unchanged:
        fields["unchanged"] = _lines(unchanged)
    return (
        b"{\n"
        + b",\n".join(b'"%b": %b' % (name.encode(), fields[name]) for name in sorted(fields))
        + b"\n}\n"
    )


def _lines(values: Sequence[msgspec.Struct]) -> bytes:
    return b"[\n" + b",\n".join(map(_encoder.encode, values)) + b"\n]" if values else b"[]"


def digest_of(plan: Plan) -> str:
    """Return 64 hex digits: SHA-256 of the copy for undo, with ``digest`` and ``plan_id`` empty."""
    bare = msgspec.structs.replace(plan, digest="", plan_id="")
    return hashlib.sha256(kept_copy(bare)).hexdigest()


def _digest_of_unchanged(unchanged: Sequence[Unchanged]) -> str | UnsetType:
    return hashlib.sha256(_lines(unchanged)).hexdigest() if unchanged else UNSET


def seal(plan: Plan) -> Plan:
    """Return the plan with computed ``digest`` and ``plan_id``."""
    if plan.format_version != _IN_FULL:
        unchanged = _digest_of_unchanged(split_unchanged(plan)[1])
        plan = msgspec.structs.replace(plan, unchanged_digest=unchanged)
    digest = digest_of(plan)
    return msgspec.structs.replace(plan, digest=digest, plan_id=digest[:PLAN_ID_DIGITS])


def loads(data: bytes, name: str) -> Plan:
    """Read a plan, or the copy of one that is kept for undo, and check that it was not changed.

    Args:
        data: bytes of the whole file.
        name: file name for messages.

    Raises:
        UsageError: the file is too large, not JSON, not a plan, or of another major format version.
        UnreadableError: the file begins as a plan does, but is cut off or damaged.
        StalePlanError: the plan was edited: a field is unknown, or the digest differs.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise _too_large(name, len(data))
    head = _read_head(data, name)
    _check_version(head, name)
    is_whole = False
    try:
        if head.format_version == _IN_FULL:
            plan = of_full(msgspec.json.decode(data))
        else:
            document = _decoder.decode(data)
            plan, is_whole = join_unchanged(document), document.unchanged is not UNSET
    except UnicodeDecodeError:
        raise StalePlanError(
            f"{name}: a plan that was edited or damaged: byte {_not_utf8(data)} is no UTF-8 text",
            next_command=_MAKE_NEW_PLAN,
        ) from None
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise StalePlanError(
            f"{name}: a plan that was edited or damaged: {_one_line(error)}", next_command=_MAKE_NEW_PLAN
        ) from None
    _check_digest(plan, data, name)
    if is_whole and plan.unchanged_digest != _digest_of_unchanged(split_unchanged(plan)[1]):
        raise StalePlanError(
            f"{name}: the plan was edited: its partitions without changes are not those that it was made with",
            next_command=_MAKE_NEW_PLAN,
        )
    return plan


def read_plan(path: str) -> Plan:
    """Read a plan file.

    Raises:
        UsageError: the file does not exist, is not a regular file, or is not a plan; see ``loads``.
        UnreadableError: the operating system could not read the file.
        StalePlanError: see ``loads``.
    """
    return loads(read_bytes(path), path)


def read_bytes(path: str) -> bytes:
    """Read a file that should be a plan.

    Raises:
        UsageError: the file does not exist, is not a regular file, or is too large.
        UnreadableError: the operating system could not read the file.
    """
    try:
        # Without O_NONBLOCK the open of a FIFO would wait forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no such plan file", next_command=_MAKE_NEW_PLAN) from None
    except OSError as error:
        raise UnreadableError(f"{path}: could not be read: {why(error)}") from None
    except ValueError as error:
        raise UnreadableError(f"{path}: could not be read: {error}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _no_file(path, status.st_mode)
        if status.st_size > MAX_PLAN_BYTES:
            raise _too_large(path, status.st_size)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # read() allocates as much memory as is asked for, so do not ask for more than the file's size.
            data = file.read(min(status.st_size, MAX_PLAN_BYTES) + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: could not be read: {why(error)}") from None
    finally:
        os.close(descriptor)
    return data


def _no_file(path: str, mode: int) -> UsageError:
    if not stat.S_ISDIR(mode):
        return UsageError(
            f"{path}: expected a plan file, which is a regular file; found a {kind_of(mode)}",
            next_command=_MAKE_NEW_PLAN,
        )
    return UsageError(
        f"{path}: expected a plan file, found a folder; for a log directory, make a plan first",
        next_command=Next.of("plan", path, out=PLAN),
    )


def check_place(path: str, log_dir: str) -> str:
    """Check, before the plan is computed, that it may be written to a path.

    Args:
        path: path of the new plan file.
        log_dir: the log directory of the plan.

    Returns:
        The absolute path, with links in its folders resolved.

    Raises:
        RefusedError: the path is in the log directory, where a broker would find the file; or there is already a file
            that is not a plan, or a plan whose backups still exist.
        UnreadableError: the path cannot be looked up.
        UsageError: the folder does not exist, or the path is a folder.
    """
    target = place_of(_PLANS, path, (log_dir,))
    if os.path.isdir(target):
        raise UsageError(f"{path}: is a folder; --out needs a file name")
    try:
        is_another = is_there(target)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be looked up: {_system_words(error)}") from error
    if is_another:
        _check_replaceable(path, target, log_dir)
    return target


def write_plan(path: str, plan: Plan, disk: Disk) -> None:
    """Write a sealed plan: either the complete file exists afterwards, or none.

    Args:
        path: path of the file; an older plan is replaced.
        disk: the disk that writes the file.

    Raises:
        RefusedError: see ``check_place``; or the operating system does not allow the write.
        UnwritableError: there is too little space, or an I/O error.
        UsageError: see ``check_place``.
    """
    target, data = check_place(path, plan.log_dir), dumps(plan)
    try:
        put_whole_or_nothing(disk, target, lambda new: disk.create(new, data))
    except OSError as error:
        raise not_written(_PLANS, target, error, len(data)) from None


def _check_replaceable(path: str, target: str, log_dir: str) -> None:
    """Raise ``RefusedError`` if the file must not be replaced: a typo must not destroy a server.properties."""
    try:
        status = os.lstat(target)
        small = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_PLAN_BYTES
        older = _read_applied(target) if small and status.st_size else None
    except OSError as error:
        raise RefusedError(
            f"{path}: exists and could not be read ({_system_words(error)}); it is not overwritten",
            next_command=_ANOTHER_FILE,
        ) from None
    if older is not None:
        _check_not_applied(path, older)
        _check_same_dir(path, older, log_dir)
    elif not small or status.st_size:
        raise RefusedError(
            f"{path}: exists and is not a plan; it is not overwritten", next_command=_ANOTHER_FILE
        )


def _check_same_dir(path: str, older: _Applied, log_dir: str) -> None:
    """Raise ``RefusedError`` if the plan is for another log directory: somebody may have reviewed it."""
    if os.path.realpath(older.log_dir) != os.path.realpath(log_dir):
        raise RefusedError(
            f"{path}: is plan {older.plan_id} of another log directory, {older.log_dir}; it is not overwritten",
            next_command=_ANOTHER_FILE,
        )


def _read_applied(target: str) -> _Applied | None:
    """Return a few fields of a plan; None if the file is not a plan."""
    with open(target, "rb") as file:
        # read() allocates as much memory as is asked for, so do not ask for more than the file's size.
        data = file.read(min(os.fstat(file.fileno()).st_size, MAX_PLAN_BYTES) + 1)
    try:
        head = _applied_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A report of krepair (--json) has a format_version too, but no digest.
    is_plan = head.format_version and _DIGEST_FORM.fullmatch(head.digest)
    has_valid_names = (
        _PLAN_ID_FORM.fullmatch(head.plan_id) and os.path.isabs(head.log_dir) and "\0" not in head.log_dir
    )
    return head if is_plan and has_valid_names else None


def _check_not_applied(path: str, older: _Applied) -> None:
    """Raise ``RefusedError`` if the plan's backups still exist, because undo may need this plan."""
    try:
        work_folder = _first_work_folder(older)
    except OSError as error:
        raise RefusedError(
            f"{path}: is plan {older.plan_id}; krepair cannot see whether its backups still exist: "
            f"{error.filename}: {_system_words(error)}; it is not overwritten",
            next_command=_ANOTHER_FILE,
        ) from None
    if work_folder:
        raise RefusedError(
            f"{path}: is plan {older.plan_id}, and its backups still exist ({work_folder}); it is not overwritten. "
            f"{Next.of('undo', path)} puts the originals back, {Next.of('purge', path)} removes them for good",
            next_command=_ANOTHER_FILE,
        )


def _first_work_folder(older: _Applied) -> str:
    """Return the path of a work folder of the plan in its log directory, or an empty string."""
    names = (private_folder(older.plan_id), root_private_folder(older.plan_id))
    with Tree(older.log_dir) as tree:
        try:
            entries = tree.entries(older.log_dir)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        paths = (
            f"{tree.path}/{folder}/{name}"
            for folder, status in entries
            if stat.S_ISDIR(status.st_mode)
            for name in names
        )
        return next((path for path in paths if tree.is_there(path)), "")


_BEGINS: Final = re.compile(rb'\s*\{\s*"asked"')
"""Beginning of a plan, whose keys are sorted; a file that was cut off or damaged still has it."""


def _read_head(data: bytes, name: str) -> _Head:
    if not data.strip():
        raise UsageError(f"{name}: empty, not a plan", next_command=_MAKE_NEW_PLAN)
    try:
        return _head_decoder.decode(data)
    except (msgspec.ValidationError, RecursionError):
        raise UsageError(f"{name}: JSON, but not a plan", next_command=_MAKE_NEW_PLAN) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _BEGINS.match(data):
            raise UnreadableError(
                f"{name}: a plan that was cut off or damaged: {_one_line(error)}; {len(data)} bytes",
                next_command=_MAKE_NEW_PLAN,
            ) from None
        raise UsageError(
            f"{name}: not a plan (JSON expected): {_one_line(error)}; {len(data)} bytes",
            next_command=_MAKE_NEW_PLAN,
        ) from None


def _check_version(head: _Head, name: str) -> None:
    known = FORMAT_VERSION.partition(".")[0]
    if not head.format_version:
        raise UsageError(
            f"{name}: JSON, but not a plan: it has no format_version", next_command=_MAKE_NEW_PLAN
        )
    if head.format_version.partition(".")[0] != known:
        raise UsageError(
            f"{name}: plan format {head.format_version[:40]!r} (krepair {head.tool_version[:40]!r}); "
            f"this krepair reads {known}.x: make the plan again, or use the krepair that made it",
            next_command=_MAKE_NEW_PLAN,
        )


def _check_digest(plan: Plan, data: bytes, name: str) -> None:
    if not _DIGEST_FORM.fullmatch(plan.digest):
        raise StalePlanError(
            f"{name}: the plan's digest is missing or malformed; 64 hex digits were expected",
            next_command=_MAKE_NEW_PLAN,
        )
    actual = digest_of(plan)
    if actual != plan.digest:
        raise StalePlanError(
            f"{name}: the plan was edited: its values have digest {actual[:16]}..., it says {plan.digest[:16]}...",
            next_command=_MAKE_NEW_PLAN,
        )
    if plan.plan_id != plan.digest[:PLAN_ID_DIGITS]:
        raise StalePlanError(
            f"{name}: the plan was edited: plan_id is {plan.plan_id[:40]!r}, its digest begins "
            f"{plan.digest[:PLAN_ID_DIGITS]!r}",
            next_command=_MAKE_NEW_PLAN,
        )
    if dumps(plan) != data:
        raise StalePlanError(
            f"{name}: the plan was edited: the values are as they were written, but fields were added "
            "or moved, or the text was formatted again",
            next_command=_MAKE_NEW_PLAN,
        )


def _too_large(name: str, size: int) -> UsageError:
    return UsageError(
        f"{name}: {size} bytes; a plan has at most {MAX_PLAN_BYTES}", next_command=_MAKE_NEW_PLAN
    )


def _not_utf8(data: bytes) -> int:
    """Return the position of the first byte that is not UTF-8; the JSON decoder counts from the start of the value."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _system_words(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
