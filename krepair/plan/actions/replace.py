"""The plan layer's code for ``ReplaceFile``: one file is replaced or removed. The review refuses it for a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.checks.catalogue import RULES
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT, SWAP, segment_name
from krepair.formats.words import count_text
from krepair.plan.actions.action import (
    REMOVAL_BYTES,
    ROUNDING_BYTES,
    PlannedAction,
    Space,
    Touched,
    Trimmed,
)
from krepair.plan.actions.listing import FILES
from krepair.plan.facts import HEX_32, SNAPSHOT_NAME, OnDisk, PartitionFacts
from krepair.plan.model import FileFingerprint, ReplaceFile
from krepair.plan.objection import Objection, is_plain_name
from krepair.rules.forgotten import FORGOTTEN

_INDEX: Final = re.compile(r"([0-9]{20})\.(?:index|timeindex|txnindex)")
_BASE: Final = re.compile(r"([0-9]{20})\.")
_LEFT_BEHIND: Final = (".cleaned", ".deleted")
_RECOVERY: Final = "recovery"
_EMPTY_CHECKPOINT: Final = b"0\n0\n"


class Replace(PlannedAction[ReplaceFile]):
    """Implements ``PlannedAction`` for ``ReplaceFile``."""

    kind = ReplaceFile
    listing = FILES

    def touches(self, change: ReplaceFile) -> Touched:
        removed = change.method == "remove"
        return Touched((), () if removed else (change.name,), (change.name,) if removed else ())

    def space(self, change: ReplaceFile, on_disk: OnDisk) -> Space:
        """The new file, and the old one once it is purged."""
        made = on_disk.takes(max(change.size_after, 0))
        return Space(
            made=made,
            back=on_disk.back([change.name]),
            peak=REMOVAL_BYTES if change.method == "remove" else made + ROUNDING_BYTES,
            log_shrinks=0,
        )

    def review(self, facts: PartitionFacts, change: ReplaceFile) -> Iterator[Objection]:
        """A chosen fix must be allowed to replace or remove the file. Its bytes are worked out again by ``apply``."""
        where, rule = change.change_id, RULES.get(change.rule)
        fix = "" if rule is None else rule.fix
        if rule is None or fix not in facts.fixes:
            yield Objection("RV25", where, f"{change.rule!r} is not a rule that the chosen fixes mend")
        if not is_plain_name(change.name) or where != f"{facts.partition.folder}/{change.name}":
            yield Objection("RV09", where, f"file {change.name!r} is not a plain name of this folder")
        if change.method == "remove" and not _may_go(facts, change.name, fix):
            yield Objection("RV25", where, f"{change.name!r} is not a file that {fix or 'a fix'} removes")
        if change.method != "remove":
            yield from _replaced_name(facts, change, fix)

    def review_in_root(self, change: ReplaceFile, file: FileFingerprint) -> Iterator[Objection]:
        """The file must be regenerated, and the sizes must fit."""
        where = change.change_id
        if change.method != "regenerate" or not HEX_32.fullmatch(change.digest_after):
            yield Objection("RV28", where, "a checkpoint is regenerated, and its digest has 32 hex digits")
        if change.size_before != file.size or change.size_after < len(_EMPTY_CHECKPOINT):
            yield Objection("RV28", where, f"size_before is {change.size_before}, the file has {file.size}")

    def summary(self, changes: Sequence[ReplaceFile]) -> Iterator[str]:
        """How many files are replaced, and how many are removed."""
        removed = sum(change.method == "remove" for change in changes)
        if len(changes) > removed:
            yield f"{count_text(len(changes) - removed, 'derived file')} (indexes, checkpoints, snapshots) replaced."
        if removed:
            verb = "is removed, and" if removed == 1 else "are removed, and"
            yield f"{count_text(removed, 'file')} {verb} kept until purge."

    def mends(self, change: ReplaceFile) -> tuple[str, ...]:
        return (change.rule,)

    def goes(self, changes: Sequence[ReplaceFile]) -> Iterator[str]:
        removed = sum(change.method == "remove" for change in changes)
        if len(changes) > removed:
            yield f"{count_text(len(changes) - removed, 'derived file')} replaced"
        if removed:
            yield f"{count_text(removed, 'file')} removed"

    def file_bytes(self, change: ReplaceFile) -> tuple[int, int]:
        """No bytes where there is no file."""
        return max(change.size_before, 0), max(change.size_after, 0)

    def trimmed(self, change: ReplaceFile) -> Trimmed | None:
        """The padding of an index that is truncated."""
        if change.method != "truncate":
            return None
        return Trimmed(change.name, change.size_after, change.size_before - change.size_after)

    def rows(self, change: ReplaceFile) -> Iterator[tuple[str, ...]]:
        yield (
            change.change_id,
            change.rule,
            change.method,
            "missing" if change.size_before < 0 else f"{change.size_before:,}",
            "gone" if change.size_after < 0 else f"{change.size_after:,}",
            change.reason,
        )


def _replaced_name(facts: PartitionFacts, change: ReplaceFile, fix: str) -> Iterator[Objection]:
    where, name = change.change_id, change.name
    if name == LEADER_EPOCH_CHECKPOINT:
        if fix not in {"epochs", _RECOVERY} or change.method != "regenerate":
            yield Objection(
                "RV25", where, "leader epochs are regenerated, and only by --fix epochs or recovery"
            )
    elif SNAPSHOT_NAME.fullmatch(name):
        if fix not in {"snapshots", _RECOVERY} or change.method != "regenerate":
            yield Objection(
                "RV25", where, "producer snapshots are regenerated, and only by --fix snapshots or recovery"
            )
        at_end = name == segment_name(facts.partition.log_end_offset, ".snapshot")
        if not (name in facts.files if change.rule == FORGOTTEN else at_end):
            yield Objection("RV25", where, f"the log ends at offset {facts.partition.log_end_offset}")
    elif not _INDEX.fullmatch(name) or fix not in {"", "index", _RECOVERY}:
        yield Objection("RV25", where, f"{name!r} is not a file that this version replaces")


def _may_go(facts: PartitionFacts, name: str, fix: str) -> bool:
    files = facts.files
    if fix in {"snapshots", _RECOVERY}:
        return SNAPSHOT_NAME.fullmatch(name) is not None
    if fix != "leftovers":
        return False
    if name.endswith(_LEFT_BEHIND):
        return True
    if name.endswith(SWAP):
        return _is_void(files, name) or _is_index_alone(files, name)
    index = _INDEX.fullmatch(name)
    return index is not None and not any(f"{index[1]}.log{suffix}" in files for suffix in ("", SWAP))


def _is_void(files: Mapping[str, FileFingerprint], name: str) -> bool:
    """Whether every broker deletes a ``.swap``, because there is a ``.cleaned`` at or below its base offset."""
    base = _BASE.match(name)
    cleaned = [
        int(match[1]) for other in files if other.endswith(".cleaned") and (match := _BASE.match(other))
    ]
    return base is not None and any(one <= int(base[1]) for one in cleaned)


def _is_index_alone(files: Mapping[str, FileFingerprint], name: str) -> bool:
    """Whether a ``.swap`` is an index without its log. It holds no records and can be made again."""
    index = _INDEX.fullmatch(name.removesuffix(SWAP))
    return index is not None and f"{index[1]}.log{SWAP}" not in files
