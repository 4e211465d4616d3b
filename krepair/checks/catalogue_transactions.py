"""The rows of the catalogue about transactions and the cleaner (KR1xx)."""

from __future__ import annotations

from typing import Final

from krepair.checks.rule import KEPT, NOTHING_CHANGED, Rule, Severity

TRANSACTIONS: Final = (
    Rule(
        code="KR101",
        severity=Severity.SLOW,
        title="Transaction markers and emptied batches that no cleaner removes",
        evidence="batches and bytes of markers, of emptied batches and of data, per partition",
        danger="the partition grows without limit (hundreds of GB have been seen) and fills the disk; after the loss "
        "of a broker, loading its groups takes hours",
        fix="markers",
        lost_if_wrong=KEPT,
        source="KAFKA-8335, commit 0bf7fa85de1 (2.2.1)",
    ),
    Rule(
        code="KR103",
        severity=Severity.SLOW,
        title="Transaction that never ends",
        evidence="producer id, epoch and first offset of a transaction without a marker, and how long it was open when "
        "the broker last wrote, by the clocks of brokers: longer than transaction.max.timeout.ms plus five minutes; or "
        "a transaction that the coordinator's log does not have",
        danger="read_committed consumers wait at its first offset forever, and nothing behind it is compacted",
        lost_if_wrong=NOTHING_CHANGED
        + ". Do not abort a transaction only because of this finding: the abort of a live "
        "transaction loses its records. kafka-transactions.sh find-hanging and describe show on the running cluster "
        "whether it is alive; krepair transactions prints the commands",
        source="KIP-664, KAFKA-8351",
    ),
    Rule(
        code="KR104",
        severity=Severity.SLOW,
        title="Cleaner stands still",
        evidence="offset in cleaner-offset-checkpoint, or none; the log end, and the bytes between the two",
        danger="a compacted partition grows without limit; committed offsets take longer and longer to load",
        source="KIP-346; LogCleanerManager (2.2.1)",
    ),
    Rule(
        code="KR105",
        severity=Severity.SLOW,
        title="What killed the cleaner",
        evidence="the segment and position at which the cleaner finds no next batch; before 2.0 also the batch above "
        "max.message.bytes and the segment whose offsets overflow; from 4.4 on a record of a compressed batch above "
        "max.decompressed.message.bytes",
        danger="the cleaner fails on this partition in each pass and never gets past it",
        source="KIP-346, KAFKA-6264, KAFKA-6834; LogCleaner.growBuffersOrFail (2.2.1, 3.9); seen on 2.2.1, 3.9.2 and "
        "4.3.1: large batches, records without a key and wrong CRCs do not stop the cleaner",
    ),
    Rule(
        code="KR106",
        severity=Severity.CONFUSING,
        title="Modification times look copied",
        evidence="the times of all segments are within minutes, or far from the times at which brokers wrote to them "
        "(times of markers, and of batches in the brokers' own topics)",
        danger="the modification time of a file is the broker's clock for markers and tombstones. If a copy has other "
        "times, they are removed too late or too early",
        source="Cleaner.cleanSegments (2.2.1), LogSegment.lastModified",
    ),
    Rule(
        code="KR107",
        severity=Severity.INFORMATION,
        title="Open transaction; it is not known for how long",
        evidence="partition, producer id and first offset of transactions without a marker, if neither markers, nor "
        "file times, nor __transaction_state here show how long they have been open",
        danger="none if it is alive: the coordinator ends it after its timeout; if it is never ended, see KR103",
        source="KIP-664; the times of data batches are the producers' (message.timestamp.type)",
    ),
    Rule(
        code="KR108",
        severity=Severity.SLOW,
        title="Keys that wait to be compacted",
        evidence="segments and bytes between cleaner-offset-checkpoint and the active segment, for topics whose own "
        "configuration says cleanup.policy=compact and for the brokers' own topics. From 11 closed segments on behind "
        "the checkpoint; from 4 on where it has no line for the partition: such a log is dirty as a whole, so the next "
        "pass of a living cleaner takes it. Segments younger than min.compaction.lag.ms do not count. The bytes are "
        "the most that can go: no key is read for this",
        danger="if keys repeat, the partition is far larger than its content, and loading it takes far longer",
        fix="compact",
        lost_if_wrong="values that have a later value of their key, and tombstones past their horizon, but not the "
        "last value of a key. The originals stay until krepair purge, and the plan says before how many records go",
        source="KIP-346; KAFKA-6854, KAFKA-8764, KAFKA-9826; Cleaner.shouldRetainRecord (2.2.1, 3.9, 4.3)",
    ),
)
