"""Logs whose next start loads a producer snapshot with an open transaction, on brokers before 2.4.

A clean start loads the newest snapshot and reads the log after it. If that snapshot is older than the log end and has a
transaction open, ``Log.updateFirstUnstableOffset`` (2.0 to 2.3.1) looks for the transaction's first offset only in the
segment that covers it. If no batch from that offset on is left there, the broker fails with a NullPointerException and
does not start. Since 2.4 it continues in the next segment (KAFKA-8443). A start after an unclean stop creates a
snapshot at the log end first, and a clean stop leaves one there; so the case needs a lost or damaged snapshot. Kafka's
own cleaner leaves such logs too. No order of commit avoids the failure, so the partition waits.
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
    """Return why segments must not change before a broker writes a snapshot at the log end, or None.

    Args:
        folder: name of the partition folder.
        policy: policy with the snapshot that a broker would load.
        log_end: offset after the last valid batch.
        changed: the groups of segments that would change.
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
