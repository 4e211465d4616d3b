"""The rows of the catalogue about replicas that disagree (KR65x and KR66x)."""

from __future__ import annotations

from typing import Final

from krepair.checks.rule import Rule, Severity

_COMMAND: Final = "krepair compare"
_RAN: Final = "run on clusters of three brokers of 3.9.2 and 4.3.1"


def _rule(code: str, severity: Severity, title: str, evidence: str, danger: str, source: str) -> Rule:
    return Rule(
        code=code,
        severity=severity,
        title=title,
        evidence=evidence,
        danger=danger,
        source=source,
        command=_COMMAND,
    )


REPLICAS: Final = (
    _rule(
        "KR650",
        Severity.DATA_LOSS,
        "Tombstone missed: a replica still has values that were deleted",
        "keys with a last value on this replica, of which another replica has cleaned away value and tombstone, or "
        "still has the tombstone",
        "as leader this replica serves deleted keys again; no broker notices, since followers are compared by leader "
        "epochs only",
        f"Cleaner.shouldRetainRecord, AbstractFetcherThread.truncateOnFetchResponse (3.9.2); {_RAN}",
    ),
    _rule(
        "KR651",
        Severity.DATA_LOSS,
        "Aborted records count as committed",
        "records that end with a COMMIT here and with an ABORT on another replica; or that another replica removed as "
        "aborted",
        "as leader this replica serves records of an aborted transaction to read_committed readers",
        f"ProducerAppendInfo.append, CleanedTransactionMetadata (4.3.1); {_RAN}",
    ),
    _rule(
        "KR652",
        Severity.DATA_LOSS,
        "Committed records count as aborted",
        "records that end with an ABORT here and with a COMMIT on another replica; or an ABORT that covers more in "
        "this replica's transaction index",
        "as leader this replica hides committed records from read_committed readers",
        f"ProducerAppendInfo.append (4.3.1); {_RAN}",
    ),
    _rule(
        "KR653",
        Severity.DATA_LOSS,
        "Tombstone or ABORT missed: which of the two cannot be told",
        "keys with a last value of a transaction on this replica that another replica cleaned away without a later one",
        "as leader this replica serves what the others do not",
        f"Cleaner.shouldRetainRecord (3.9.2); {_RAN}",
    ),
    _rule(
        "KR654",
        Severity.DATA_LOSS,
        "Transaction that is open on this replica only: its marker never came",
        "producer id and first offset of the transaction; the marker on another replica, or that another replica has "
        "cleaned past it",
        "with this replica as leader read_committed readers stand still at this offset for ever, and its cleaner too",
        f"ProducerStateManager.lastStableOffset (3.9.2); {_RAN}",
    ),
    _rule(
        "KR655",
        Severity.DATA_LOSS,
        "Two histories: other records at the same offsets, both committed",
        "the first offset, and the leader epochs that contradict each other below a recorded high watermark",
        "an unclean election, or a tail that was lost: acknowledged records of one history are gone as soon as the "
        "other one leads. Neither is right by itself",
        f"LeaderEpochFileCache, unclean.leader.election.enable; {_RAN}",
    ),
    _rule(
        "KR656",
        Severity.DATA_LOSS,
        "Another record at the same offset and leader epoch",
        "the first offset, and the replicas",
        "readers get other records by who leads; a follower never notices",
        "UnifiedLog.appendAsFollower (3.9.2): a follower appends its leader's bytes as they are",
    ),
    _rule(
        "KR657",
        Severity.DATA_LOSS,
        "Records lost inside of the log",
        "records that another replica has, in offsets that this replica has never cleaned, or whose file is gone",
        "as leader this replica does not serve them, and its followers that are emptied lose them too",
        "UnifiedLog, LogLoader (3.9.2): a missing segment is not noticed at a start",
    ),
    _rule(
        "KR658",
        Severity.DATA_LOSS,
        "Log cut below what was committed or flushed",
        "log end, and the recorded high watermark (after a clean stop) or recovery point above it",
        "if this broker comes up as the only member of the ISR, the others truncate to its end, and the records are "
        "gone everywhere",
        f"ReplicaManager.checkpointHighWatermarks, LogManager.checkpointLogRecoveryOffsets (3.9.2); {_RAN}",
    ),
    _rule(
        "KR659",
        Severity.DATA_LOSS,
        "Replicas of several topic ids under one name",
        "the topic id of each replica",
        "the topic was deleted and created again while a broker was away; the folder of the old id is foreign data",
        f"partition.metadata, KIP-516; {_RAN}",
    ),
    _rule(
        "KR660",
        Severity.DATA_LOSS,
        "Replica with damaged batches",
        "file, position and what was expected; the replica has no say about others",
        "followers that fetch it stop; readers fail at this offset. krepair check says what can be done",
        f"DefaultRecordBatch.ensureValid (3.9.2); {_RAN}",
    ),
    _rule(
        "KR661",
        Severity.DATA_LOSS,
        "Replica with a torn end",
        "file, position and what was expected, after a clean stop or below the recovery point",
        "a start cuts it; what it held was flushed before",
        f"LogSegment.recover (3.9.2); {_RAN}",
    ),
    _rule(
        "KR662",
        Severity.CONFUSING,
        "Replicas differ, and it cannot be told which is right",
        "what each has, and what would tell",
        "one of them may have lost records, or may serve deleted ones",
        f"section 'What cannot be told' of docs/compare.md; {_RAN}",
    ),
    _rule(
        "KR663",
        Severity.CONFUSING,
        "Marker missed, a later one of the same kind hides it",
        "producer id, first offset, and the marker that another replica has",
        "readers get the same records; the transaction seems to be longer than it was",
        "ProducerAppendInfo.append (4.3.1)",
    ),
    _rule(
        "KR664",
        Severity.CONFUSING,
        "Replica that could not be read",
        "why not",
        "nothing is known of it",
        "the operating system, or a broker that was running",
    ),
    _rule(
        "KR665",
        Severity.INFORMATION,
        "Replica that is behind",
        "its end and the greatest end; it fetches the rest",
        "none: its broker fetches what it lacks, and truncates what was never committed",
        "ReplicaFetcherThread (3.9.2)",
    ),
    _rule(
        "KR666",
        Severity.INFORMATION,
        "Replicas differ as healthy ones do",
        "what differs: segments, how far each was cleaned, the epoch file, the log start",
        "none",
        f"Cleaner, LeaderEpochFileCache (3.9.2, 4.3.1); {_RAN}",
    ),
    _rule(
        "KR667",
        Severity.DATA_LOSS,
        "Replica that is behind, and a leader that no longer has what it lacks",
        "its end; which brokers have removed tombstones or markers above it, and which still have them",
        "if one of the first leads while it catches up, it serves old or aborted records, hides committed ones, or "
        "stands still; no broker notices. Let one of the others lead until it has caught up",
        f"AbstractFetcherThread, Cleaner.shouldRetainRecord, ProducerStateManager (3.9.2); {_RAN}",
    ),
)
