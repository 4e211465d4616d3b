"""Partitions that krepair never changes, and those that have to wait."""

from __future__ import annotations

from krepair.formats.filenames import METADATA_TOPIC, FileKind, parse_file_name
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import Partition
from krepair.rules.model import LeftAlone


def waits_for_leftovers(partition: Partition) -> bool:
    """Whether a swap or a half-cleaned file has to be finished before any other fix touches the partition."""
    return any(leftover.kind in {"swap", "cleaned"} for leftover in partition.leftovers)


def why_untouched(partition: Partition, settings: TopicSettings) -> str:
    """Why the files of a partition are left as they are, or empty."""
    if partition.unreadable:
        return partition.unreadable
    if partition.topic == METADATA_TOPIC:
        return f"{METADATA_TOPIC} is the KRaft metadata log"
    if settings.remote_storage_enable:
        return "the topic is tiered (remote.storage.enable)"
    for leftover in partition.leftovers:
        if leftover.kind in {"swap", "cleaned"}:
            return f"{leftover.file.name} waits to be finished by a broker; first --fix leftovers, then plan again"
    for special in partition.special_logs:
        return f"{special.name}: a regular file was expected, found a {special.kind}"
    return ""


def cannot_compact(partition: Partition, settings: TopicSettings) -> LeftAlone | None:
    """Why a partition is not compacted whatever its log holds, or None."""
    reasons = (
        (
            partition.topic == METADATA_TOPIC,
            "refused-topic",
            f"{METADATA_TOPIC} is the KRaft metadata log; krepair never changes it",
        ),
        (
            settings.remote_storage_enable,
            "tiered",
            "the topic is tiered (remote.storage.enable); krepair never changes it",
        ),
        (bool(partition.unreadable), "unreadable", partition.unreadable),
        (
            not settings.compacts,
            "not-compacted",
            "cleanup.policy has no compact; only compacted topics are cleaned",
        ),
    )
    for applies, code, text in reasons:
        if applies:
            return LeftAlone(code, text, damaged=code == "unreadable")
    odd = _odd_file(partition)
    if odd is None and not partition.segments:
        return LeftAlone("empty", "the folder has no .log file")
    return odd


def _odd_file(partition: Partition) -> LeftAlone | None:
    """Leftovers of a broker, and names of its files that are no regular files."""
    for leftover in partition.leftovers:
        if leftover.kind != "foreign":
            advice = "finish or remove it first (--fix leftovers), then plan again"
            why = f"{leftover.file.name}: a broker left it; {advice}"
            return LeftAlone("leftovers", why, "krepair plan LOGDIR --fix leftovers --out PLAN", damaged=True)
    for special in partition.specials:
        if parse_file_name(special.name).kind is not FileKind.FOREIGN:
            text = f"{special.name}: a regular file was expected, found a {special.kind}"
            return LeftAlone("special-file", text, damaged=True)
    return None
