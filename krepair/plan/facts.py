"""Facts that follow from a partition's part of a plan: names, sizes, segments, settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from krepair.errors import StalePlanError
from krepair.logdir.config import DEFAULT
from krepair.plan.model import WHOLE_BLOCKS, FileFingerprint, PartitionPlan, Policy, Setting
from krepair.rules.own_policy import COMPACTED_INTERNAL_TOPICS

LOG_NAME: Final = re.compile(r"([0-9]{20})\.log")
SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})\.snapshot")
HEX_32: Final = re.compile(r"[0-9a-f]{32}")

_TAKES_IN: Final = {"recovery": ("tail",)}
"""Fix -> other fixes whose changes it also plans: recovery cuts torn tails."""

_DEFAULTS: Final = {
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "delete.retention.ms": "86400000",
    "index.interval.bytes": "4096",
    "min.compaction.lag.ms": "0",
    "producer.id.expiration.ms": "86400000",
    "transactional.id.expiration.ms": "604800000",
}


def is_plain_path(path: str) -> bool:
    """Return whether a path is absolute and has no detours (``..``, ``//``), so that equal files have equal paths."""
    return path.startswith("/") and os.path.normpath(path) == path and "\0" not in path


def sizes_by_name(files: Iterable[FileFingerprint]) -> dict[str, int]:
    """Return file name -> size in bytes."""
    return {file.name: file.size for file in files}


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Disk usage of the files of a partition, or of the root.

    Attributes:
        sizes: file name -> length in bytes.
        comes_back: file name -> bytes of the disk that become free when the file is deleted.
        block: block size of the file system, bytes.
    """

    sizes: Mapping[str, int]
    comes_back: Mapping[str, int]
    block: int

    @classmethod
    def of(cls, files: Sequence[FileFingerprint], policy: Policy) -> OnDisk:
        """Build the sizes of one folder's files."""
        block = policy.block_bytes
        sizes, comes_back = dict[str, int](), dict[str, int]()
        for file in files:
            whole = -(-file.size // block) * block
            sizes[file.name] = file.size
            comes_back[file.name] = whole if file.disk == WHOLE_BLOCKS else file.disk
        return cls(sizes, comes_back, block)

    def takes(self, *sizes: int) -> int:
        """Return the bytes of the blocks that new files of these sizes take."""
        return sum(-(-size // self.block) * self.block for size in sizes)

    def freed_without(self, names: Iterable[str]) -> int:
        """Return the bytes that become free when these files are deleted."""
        return sum(self.comes_back.get(name, 0) for name in names)


def segment_bases(files: Iterable[FileFingerprint]) -> list[int]:
    """Return the base offsets of the ``.log`` files, ascending."""
    return sorted(int(match[1]) for file in files if (match := LOG_NAME.fullmatch(file.name)))


def setting(policy: Policy, topic: str, key: str) -> str:
    """Return a topic's value of a setting: its own, else the broker's, else Kafka's default, else empty."""
    for scope in (topic, ""):
        for row in policy.settings.get(scope, ()):
            if row.key == key:
                return row.value
    if key == "cleanup.policy":
        return "compact" if topic in COMPACTED_INTERNAL_TOPICS else "delete"
    return _DEFAULTS.get(key, "")


def number(policy: Policy, topic: str, key: str) -> int:
    """Return a topic's value of a setting that is a whole number.

    Raises:
        StalePlanError: the value is not a whole number, because the plan was edited.
    """
    text = setting(policy, topic, key)
    try:
        return int(text)
    except ValueError:
        raise StalePlanError(f"{key} of the plan is {text[:40]!r}, a whole number was expected") from None


def own_setting(policy: Policy, topic: str, key: str) -> Setting:
    """Return the topic's own row in the plan, or a row with an empty value and source ``default``."""
    rows = policy.settings.get(topic, ())
    return next((row for row in rows if row.key == key), Setting(key, "", DEFAULT))


def fix_names(policy: Policy) -> frozenset[str]:
    """Return the names of a plan's fixes (``tail`` for ``tail=excise``), and of the fixes that they include."""
    names = frozenset(fix.partition("=")[0] for fix in policy.fixes)
    return names | {taken for name in names for taken in _TAKES_IN.get(name, ())}


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFacts:
    """Facts about a partition that the review of its changes needs, computed once for all changes.

    Attributes:
        policy: policy of the whole plan.
        partition: the partition's part of the plan.
        fixes: names of the plan's fixes, see ``fix_names``.
        files: file name -> fingerprint, when the plan was made.
        sizes: file name -> size in bytes.
        bases: base offsets of all segments, ascending; the last one is active.
        newest_snapshot: name of the newest producer snapshot, or empty.
    """

    policy: Policy
    partition: PartitionPlan
    fixes: frozenset[str]
    files: dict[str, FileFingerprint]
    sizes: dict[str, int]
    bases: list[int]
    newest_snapshot: str

    @classmethod
    def of(cls, policy: Policy, partition: PartitionPlan) -> PartitionFacts:
        """Collect the facts about a partition."""
        snapshots = [file.name for file in partition.files if SNAPSHOT_NAME.fullmatch(file.name)]
        return cls(
            policy=policy,
            partition=partition,
            fixes=fix_names(policy),
            files=partition.by_name,
            sizes=sizes_by_name(partition.files),
            bases=segment_bases(partition.files),
            newest_snapshot=max(snapshots, default=""),
        )
