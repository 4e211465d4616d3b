"""Review of a file that only goes: see ``krepair.plan.review``. A log never goes this way, whatever a plan says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from krepair.plan.model import FileFingerprint, PartitionPlan, ReplaceFile
from krepair.plan.objection import Objection

_SNAPSHOT: Final = re.compile(r"[0-9]{20}\.snapshot")
_INDEX: Final = re.compile(r"([0-9]{20})\.(?:index|timeindex|txnindex)")
_LEFT_BEHIND: Final = (".cleaned", ".deleted")
_SWAP: Final = ".swap"
_BASE: Final = re.compile(r"([0-9]{20})\.")
SNAPSHOTS_FIX: Final = "snapshots"
LEFTOVERS_FIX: Final = "leftovers"


def review_removal(partition: PartitionPlan, change: ReplaceFile, fix: str) -> Iterator[Objection]:
    """What speaks against removing one file of a partition folder.

    Args:
        partition: the partition.
        change: with the method ``remove``.
        fix: the fix that the change's rule belongs to.
    """
    files = {file.name: file for file in partition.files}
    if not _may_go(files, change.name, fix):
        yield Objection("RV25", change.change_id, f"{change.name!r} is no file that {fix or 'a fix'} removes")
    size = files[change.name].size if change.name in files else -1
    if size < 0 or change.size_before != size:
        yield Objection("RV25", change.change_id, f"size_before is {change.size_before}, the file has {size}")
    if change.size_after != -1 or change.digest_after:
        yield Objection("RV25", change.change_id, "a file that goes has no size and no digest afterwards")


def _may_go(files: dict[str, FileFingerprint], name: str, fix: str) -> bool:
    if fix == SNAPSHOTS_FIX:
        return _SNAPSHOT.fullmatch(name) is not None
    if fix != LEFTOVERS_FIX:
        return False
    if name.endswith(_LEFT_BEHIND):
        return True
    if name.endswith(_SWAP):
        return _is_void(files, name) or _is_index_alone(files, name)
    index = _INDEX.fullmatch(name)
    return index is not None and not any(f"{index[1]}.log{suffix}" in files for suffix in ("", ".swap"))


def _is_void(files: dict[str, FileFingerprint], name: str) -> bool:
    """Whether every broker throws a ``.swap`` away: a ``.cleaned`` at or below its base offset tells a swap undone."""
    base = _BASE.match(name)
    cleaned = [
        int(match[1]) for other in files if other.endswith(".cleaned") and (match := _BASE.match(other))
    ]
    return base is not None and any(one <= int(base[1]) for one in cleaned)


def _is_index_alone(files: dict[str, FileFingerprint], name: str) -> bool:
    """Whether a ``.swap`` is an index without its log: it can be made anew, and holds no records."""
    index = _INDEX.fullmatch(name.removesuffix(_SWAP))
    return index is not None and f"{index[1]}.log{_SWAP}" not in files
