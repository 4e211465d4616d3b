"""Check that compaction leaves no log on which a broker before 2.4 fails to start, for ``--fix markers``.

A clean start loads the newest producer snapshot and reads the log after it. If that snapshot is older than the log end
and has an open transaction, ``Log.updateFirstUnstableOffset`` (2.0 to 2.3.1) looks for the transaction's first offset
only in the segment that covers the offset. If that segment has no batch from the offset on, the broker fails with a
NullPointerException and does not start. Since 2.4 it continues in the next segment (KAFKA-8443).

Both a clean stop and the recovery after an unclean one leave a snapshot at the log end, so the case needs a lost or
damaged snapshot. Kafka's own cleaner leaves such logs too. No order of the changes avoids the failure, so the partition
is skipped until a broker has written a snapshot at the log end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from krepair.formats.broker_version import Version
from krepair.rules.model import GroupDecision, MarkerPolicy, Skipped

_READS_ON: Final = (2, 4, 0)


def why_a_start_would_fail(
    folder: str,
    policy: MarkerPolicy,
    log_end: int,
    changed: Iterable[GroupDecision],
    *,
    version: Version,
    clean_shutdown: bool,
) -> Skipped | None:
    """Return the reason for skipping a partition until a broker has written a snapshot at the log end; else None.

    Args:
        folder: name of the partition folder.
        policy: inputs of compaction, among them the snapshot that a broker would load.
        log_end: offset after the last valid batch.
        changed: groups of segments that would change.
        version: version of the broker that will start next, None if unknown.
        clean_shutdown: True after a clean stop of the broker.
    """
    older = 0 <= policy.snapshot_offset < log_end
    reads_on = version is not None and version >= _READS_ON
    if not older or reads_on or not clean_shutdown:
        return None
    spans = [(group.sources[0].base_offset, group.last_offset) for group in changed]
    for producer in policy.snapshot:
        first = producer.open_first_offset
        if first >= 0 and any(base <= first <= last for base, last in spans):
            return Skipped(
                "open-snapshot",
                f"{folder}: the newest usable producer snapshot is of offset "
                f"{policy.snapshot_offset}, before the log end {log_end}, and has a transaction of producer "
                f"{producer.producer_id} open from offset {first}, in a segment that would change. A broker before 2.4 "
                "may then not start. Start the broker and stop it cleanly, which writes a snapshot at the log end; or "
                "say --broker-version, if it is 2.4 or later",
            )
    return None
