"""The rows of the catalogue about transactions and the cleaner (KR1xx)."""

from __future__ import annotations

from typing import Final

from krepair.checks.rule import FIRST_VERSION, KEPT, NOTHING_CHANGED, Rule, Severity

TRANSACTIONS: Final = (
    Rule(
        code="KR101",
        severity=Severity.SLOW,
        title="Transaction markers and emptied batches that no cleaner removes",
        evidence="batches and bytes of markers, of emptied batches and of data, per partition",
        danger="the partition grows for ever (hundreds of GB are known), fills the disk, and loading its "
        "groups takes "
        "hours after a broker is lost",
        fix="markers",
        lost_if_wrong=KEPT,
        source="KAFKA-8335, commit 0bf7fa85de1 (2.2.1)",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR103",
        severity=Severity.SLOW,
        title="Transaction that never ends",
        evidence="producer id, epoch and first offset of a transaction without a marker, and how long it was open when "
        "the broker last wrote, by brokers' clocks alone: longer than transaction.max.timeout.ms and five minutes, or "
        "unknown to the coordinator's log",
        danger="read_committed consumers wait at its first offset for ever, and nothing behind it is compacted",
        fix="none",
        lost_if_wrong=NOTHING_CHANGED + ". Abort nothing on this word alone: on the running cluster "
        "kafka-transactions.sh find-hanging and describe say whether it is still alive, and an abort takes the records "
        "of a live one; krepair transactions writes the commands out",
        source="KIP-664, KAFKA-8351",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR104",
        severity=Severity.SLOW,
        title="Cleaner stands still",
        evidence="offset in cleaner-offset-checkpoint, or none, against the log end, and the bytes between",
        danger="a compacted partition grows for ever; committed offsets take longer and longer to load",
        fix="none",
        lost_if_wrong=NOTHING_CHANGED,
        source="KIP-346; LogCleanerManager (2.2.1)",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR105",
        severity=Severity.SLOW,
        title="What killed the cleaner",
        evidence="the segment and position at which it finds no next batch; before 2.0 also the batch above "
        "max.message.bytes and the segment whose offsets overflow",
        danger="the cleaner fails on this partition at each pass and never gets past it",
        fix="none",
        lost_if_wrong=NOTHING_CHANGED,
        source="KIP-346, KAFKA-6264, KAFKA-6834; LogCleaner.growBuffersOrFail (2.2.1, 3.9): on 2.2.1, 3.9.2 and 4.3.1 "
        "large batches, records without a key and wrong CRCs were seen to stop nothing",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR106",
        severity=Severity.CONFUSING,
        title="Modification times look copied",
        evidence="the times of all segments lie within minutes, or far from the times at which brokers wrote into them "
        "(of markers, and of the batches of brokers' own topics)",
        danger="the broker's clock for markers and tombstones is the file's modification time: a copy that "
        "did not keep "
        "it starts the waiting anew, or ends it too early",
        fix="none",
        lost_if_wrong=NOTHING_CHANGED,
        source="Cleaner.cleanSegments (2.2.1), LogSegment.lastModified",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR107",
        severity=Severity.INFORMATION,
        title="Open transaction, for how long is not known",
        evidence="partition, producer id and first offset of transactions without a marker, where neither markers, nor "
        "the times of files, nor __transaction_state here tell how long they are open",
        danger="none if it is alive: the coordinator ends it after its timeout; if nobody ends it, see KR103",
        fix="none",
        lost_if_wrong=NOTHING_CHANGED,
        source="KIP-664; the times of data batches are the producers' (message.timestamp.type)",
        implemented_in=FIRST_VERSION,
    ),
    Rule(
        code="KR108",
        severity=Severity.SLOW,
        title="Keys that wait to be compacted",
        evidence="segments and bytes between cleaner-offset-checkpoint and the active segment, of a topic whose own "
        "configuration says cleanup.policy=compact, or of a broker's own; no key is read for it",
        danger="where keys repeat the partition is far larger than what is in it, and loading it takes as much longer",
        fix="compact",
        lost_if_wrong="values that a later one of their key replaces, and tombstones past their horizon: never the "
        "last value of a key; the originals stay until krepair purge, and the plan says beforehand how many records go",
        source="KIP-346; KAFKA-6854, KAFKA-8764, KAFKA-9826; Cleaner.shouldRetainRecord (2.2.1, 3.9, 4.3)",
        implemented_in=FIRST_VERSION,
    ),
)
