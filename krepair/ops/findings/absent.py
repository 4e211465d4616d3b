"""Partitions that a checkpoint of the root names, and whose folders are not here (KR312)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from krepair.checks.catalogue import Finding, Severity
from krepair.fixes.checkpoints import absent_partitions, absent_text
from krepair.logdir.log_dirs import configured_log_dirs
from krepair.logdir.metadata_log import MetadataImage
from krepair.logdir.values import LogDir
from krepair.ops.findings.seen import Seen
from krepair.rules.checkpoints import Key
from krepair.rules.gone_ends import RULE

_BACK: Final = (
    "the folders have to be back before any broker starts: it would begin them anew, without their records"
)


def absent_findings(seen: Seen) -> Iterator[Finding]:
    """One finding, by name. No loss where it lies in another directory, was deleted, or was moved by the cluster."""
    elsewhere = {one.key for view in seen.others for one in (*view.partitions, *view.marked)}
    absent = {
        key: offset
        for key, offset in absent_partitions(seen.root.checkpoints).items()
        if key not in elsewhere and not _belongs_elsewhere(seen.view, seen.metadata, key)
    }
    if not absent:
        return
    views = 1 + len(seen.others)
    all_given = 0 < len(configured_log_dirs(seen.context.options.config)) <= views
    lost = seen.view.clean_shutdown and all_given and any(absent.values())
    where = (
        "not in any log directory of the broker"
        if all_given
        else "not here; --config tells whether log.dirs has more"
    )
    left = (
        "after the last clean stop they were here" if seen.view.clean_shutdown else "they may be deleted ones"
    )
    yield Finding(
        rule=RULE,
        file=seen.view.recovery_point.file.name if seen.view.recovery_point.file else "",
        evidence=f"{absent_text(absent)} {where}; {left}: if somebody moved them away, {_BACK}",
        severity=None if lost else Severity.CONFUSING,
    )


def _belongs_elsewhere(view: LogDir, image: MetadataImage | None, key: Key) -> bool:
    """Whether the metadata log says that a partition was deleted, or belongs to another broker or directory."""
    if image is None:
        return False
    broker = int(view.broker_id) if view.broker_id.isdecimal() else -1
    topic_id = next((one for one, name in image.topics.items() if name == key[0]), "")
    state = image.partitions.get((topic_id, key[1]))
    if state is None or (broker >= 0 and broker not in state.replicas):
        return True
    named = dict(zip(state.replicas, state.directories, strict=False)).get(broker, "")
    return bool(view.directory_id) and named in image.brokers.get(broker, ()) and named != view.directory_id
