"""Table of all rules with their dangers and fixes, and the type of a finding.

Codes are stable and never reused for other rules. A row omits values that equal the defaults of ``Rule``: no fix,
nothing lost, reported by ``check``. The docs and ``krepair explain`` are generated from this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from krepair.next_command import Next

NOTHING_CHANGED: Final = "nothing: krepair only reports it"
KEPT: Final = "nothing: the originals are kept until purge, and undo restores them"
FROM_THE_LOG: Final = "nothing: an index is made from the log"
ACCEPTED_LOSS: Final = (
    "the records that --accept-data-loss named; krepair keeps them until purge, and undo restores them"
)

CHECK: Final = "krepair check"
"""Command that reports most rules."""
COMPARE: Final = "krepair compare"
IN_USE: Final = "KR608"
"""Rule of a log directory that a broker, or another krepair, has locked."""


class Severity(StrEnum):
    """Consequence of a finding if nobody acts."""

    DATA_LOSS = "data loss"
    BROKER_DOWN = "broker down"
    SLOW = "slow"
    CONFUSING = "confusing"
    INFORMATION = "information"


class StartEffect(StrEnum):
    """Effect of a finding on the next start, from harmless to worst."""

    NONE = "none"
    UNKNOWN = "unknown"
    """Something could not be read or understood, so the effect is not known."""
    ASIDE = "aside"
    """The broker renames the partition's folder to ``-stray`` and creates an empty one."""
    DIRECTORY = "directory"
    """This log directory goes offline; a broker with other log directories continues, one without any stops."""
    ENDS = "ends"
    """The broker does not start, even if it has other log directories."""


def strongest(effects: Iterable[StartEffect]) -> StartEffect:
    """Return the worst of the effects, or ``NONE`` if there are none."""
    order = list(StartEffect)
    return max(effects, key=order.index, default=StartEffect.NONE)


class Rule(Struct, frozen=True, tag_field="kind", tag="rule"):
    """One row of the table.

    Attributes:
        code: stable code of the form ``KRnnn``.
        severity: consequence if nobody acts, as a keyword.
        title: name of the rule in a few words.
        evidence: facts that a finding of this rule shows.
        danger: consequence if nobody acts, in words.
        fix: name for ``--fix``, or ``none``.
        lost_if_wrong: loss if krepair is wrong and the fix is applied.
        source: Kafka's code, KIP or issue, and the broker versions on which this was seen.
        start: effect on the next start, unless a finding states its own.
        command: command that reports the rule.
    """

    code: str
    severity: Severity
    title: str
    evidence: str
    danger: str
    source: str
    fix: str = "none"
    lost_if_wrong: str = NOTHING_CHANGED
    start: StartEffect = StartEffect.NONE
    command: str = CHECK


class Finding(Struct, frozen=True, kw_only=True):
    """One fault, or one fact that an operator should know, in a log directory.

    Attributes:
        rule: code of the rule, ``KRnnn``.
        partition: folder name, or empty for the root of the log directory.
        file: file name in that folder, or empty.
        position: byte in the file, -1 if the finding is about the whole file.
        evidence: one line with what was found and what was expected.
        bytes: bytes that are wasted, damaged or at risk; 0 if a number of bytes means nothing here.
        severity: severity of this case where it differs from the rule's; always set in the output of ``check``.
        start: effect of this case on the next start where it differs from the rule's.
        fix: name for ``--fix`` that repairs this case, or ``none``; empty until ``check`` fills it in.
        command: command to type next, one line, or empty.
        first_offset: first damaged or lost offset, -1 if not known or not applicable.
        last_offset: last damaged or lost offset, -1 if not known or not applicable.
        records_lost: records that the repair costs, -1 if not known or if there is no repair.
        bytes_lost: log bytes that the repair costs, -1 if not known or if there is no repair.
    """

    rule: str
    partition: str = ""
    file: str = ""
    position: int = -1
    evidence: str = ""
    bytes: int = 0
    severity: Severity | None = None
    start: StartEffect | None = None
    fix: str = ""
    command: Next = field(default_factory=Next)
    first_offset: int = -1
    last_offset: int = -1
    records_lost: int = -1
    bytes_lost: int = -1


DATA_LOSS, BROKER_DOWN, SLOW, CONFUSING, INFORMATION = Severity
_RAN: Final = "run on clusters of three brokers of 3.9.2 and 4.3.1"

# fmt: off
CATALOGUE: Final[tuple[Rule, ...]] = (
    # -- transactions and the cleaner
    Rule("KR101", SLOW, "Transaction markers and retained empty batches that no cleaner removes", fix="markers",
         lost_if_wrong=KEPT,
         evidence="batches and bytes of markers, of retained empty batches and of data, per partition",
         danger="the partition grows without limit (hundreds of GB have been seen) and fills the disk; after the loss "
                "of a broker, loading its groups takes hours",
         source="KAFKA-8335, commit 0bf7fa85de1 (2.2.1)"),
    Rule("KR103", SLOW, "Transaction that never ends",
         evidence="producer id, epoch and first offset of a transaction without a marker. It was open for more than "
                  "its timeout (or transaction.max.timeout.ms) plus five minutes, measured from the coordinator's log "
                  "or a later marker to the broker's last write; or the coordinator's log does not have it",
         danger="read_committed consumers wait at its first offset forever, and nothing after it is compacted",
         lost_if_wrong=f"{NOTHING_CHANGED}. Do not abort a transaction only because of this finding: the abort of a "
                       "live transaction loses its records. kafka-transactions.sh find-hanging and describe show on "
                       "the running cluster whether it is alive; krepair transactions prints the commands",
         source="KIP-664, KAFKA-8351"),
    Rule("KR104", SLOW, "Log cleaner makes no progress",
         evidence="offset in cleaner-offset-checkpoint, or none; the log end, and the bytes between the two",
         danger="a compacted partition grows without limit; committed offsets take longer and longer to load",
         source="KIP-346; LogCleanerManager (2.2.1)"),
    Rule("KR105", SLOW, "Batch or segment that stops the log cleaner",
         evidence="the segment and position at which the cleaner finds no next batch; before 2.0 also the batch above "
                  "max.message.bytes and the segment whose offsets overflow; from 4.4 on a record of a compressed "
                  "batch above max.decompressed.message.bytes",
         danger="the cleaner fails on this partition in each pass, and cleans nothing after this point",
         source="KIP-346, KAFKA-6264, KAFKA-6834; LogCleaner.growBuffersOrFail (2.2.1, 3.9); seen on 2.2.1, 3.9.2 and "
                "4.3.1: large batches, records without a key and wrong CRCs do not stop the cleaner"),
    Rule("KR106", CONFUSING, "Modification times look copied",
         evidence="the times of all segments are within minutes of each other although brokers wrote for a day or "
                  "more, or they are a month or more away from when brokers wrote. Markers tell when that was, and "
                  "batches in the brokers' own topics",
         danger="the modification time of a file is the broker's clock for markers and tombstones. If a copy has other "
                "times, they are removed too late or too early",
         source="Cleaner.cleanSegments (2.2.1), LogSegment.lastModified"),
    Rule("KR107", INFORMATION, "Open transaction of unknown age",
         evidence="partition, producer id and first offset of transactions without a marker, if neither a later "
                  "marker nor __transaction_state here shows how long they have been open",
         danger="none if it is alive: the coordinator ends it after its timeout; if it is never ended, see KR103",
         source="KIP-664; the times of data batches are the producers' (message.timestamp.type)"),
    Rule("KR108", SLOW, "Keys that wait to be compacted", fix="compact",
         evidence="segments and bytes between cleaner-offset-checkpoint and the active segment, for topics whose own "
                  "configuration says cleanup.policy=compact and for the brokers' own topics. Reported from 11 "
                  "closed segments on, or from 4 on if the checkpoint has no entry for the partition, because a "
                  "running cleaner takes such a log in its next pass. Segments younger than min.compaction.lag.ms do "
                  "not count. The bytes are an upper limit, because no key is read for this",
         danger="if keys repeat, the partition is far larger than its content, and loading it takes far longer",
         lost_if_wrong="values that have a later value of their key, and tombstones past their horizon, but never "
                       "the last value of a key. The plan says how many records go, and the originals stay until "
                       "krepair purge",
         source="KIP-346; KAFKA-6854, KAFKA-8764, KAFKA-9826; Cleaner.shouldRetainRecord (2.2.1, 3.9, 4.3)"),
    Rule("KR109", BROKER_DOWN, "Transaction log that a coordinator cannot load to its end", fix="compact",
         lost_if_wrong=KEPT,
         evidence="a segment that ends with a retained empty batch, for a broker before 3.9.2; or offsets without a "
                  "batch before an empty active segment, for a broker before 2.4. The severity is 'information' if the "
                  "version is not known: cleaners of 3.9.2 and later leave such batches, and their brokers read past "
                  "them",
         danger="the broker starts, but the coordinator of this partition of __transaction_state answers "
                "COORDINATOR_LOAD_IN_PROGRESS forever: none of its transactional ids can begin a transaction, and the "
                "load keeps one CPU core busy",
         source="KAFKA-17941, KAFKA-9065, KAFKA-17076; TransactionStateManager.loadTransactionMetadata; seen on 2.2.1, "
                "3.7.2, 3.9.2"),
    # -- indexes
    Rule("KR201", DATA_LOSS, "Time index with a tail of zeros, or never written", fix="index",
         lost_if_wrong=FROM_THE_LOG,
         evidence="the number of real and of padding entries, and the time that a broker would read from the file",
         danger="from 2.3 on retention reads the last entry as 1970 and deletes the segment at the next start; a roll "
                "can fail with BufferOverflowException",
         source="KAFKA-10207, KAFKA-19200, KAFKA-20979, JDK-8202261; seen on 2.3.1, 3.9.2, 4.4.0"),
    Rule("KR202", DATA_LOSS, "Time index whose largest timestamp is wrong, missing or not growing", fix="index",
         lost_if_wrong=FROM_THE_LOG,
         evidence="the entry, and the largest timestamp that the log has up to its offset",
         danger="retention deletes the segment too early or never; lookups by time miss records",
         source="LogSegment.largestTimestamp, deleteRetentionMsBreachedSegments (3.9)"),
    Rule("KR203", SLOW, "Offset index missing, short, out of order, or pointing between batches", fix="index",
         lost_if_wrong=FROM_THE_LOG,
         evidence="the entry, and the batch that begins nearest to its position",
         danger="fetches read from the wrong place, or from the start of the segment; after an unclean stop the start "
                "may rebuild indexes for hours",
         source="LogSegment.recover (2.2.1, 3.9)"),
    Rule("KR204", DATA_LOSS, "Transaction index that disagrees with the markers of the log", fix="index",
         evidence="the aborted transaction without an entry, or the entry that no broker can have written",
         danger="read_committed consumers see aborted records, or never see committed ones; marker compaction skips "
                "the partition. With an entry of an unknown version no broker starts. With an entry below the base "
                "offset the broker recovers the segment, after a clean stop too",
         lost_if_wrong="the first offset and the last stable offset of entries whose batches were compacted away; "
                       "nobody can compute them again",
         source="TransactionIndex, KAFKA-10702, KAFKA-13727"),
    Rule("KR205", CONFUSING, "Index without a log, or with a size that is not a multiple of its entries", fix="index",
         lost_if_wrong=FROM_THE_LOG,
         evidence="size of the file, and size of one entry",
         danger="the broker deletes the orphan; a partial entry is a sign of a torn write. Up to 2.2 a broker then "
                "recovers the segment, after a clean stop too, and cuts its log where it is damaged",
         source="AbstractIndex.sanityCheck (2.2.1, 3.9)"),
    Rule("KR206", SLOW, "Empty offset index beside a large log", fix="index", lost_if_wrong=FROM_THE_LOG,
         evidence="size of the log, compared with the cleaner's I/O chunk; beside a small cleaned segment an empty "
                  "index is right",
         danger="the broker only checks that the file is there, so it stays empty, and each fetch reads the segment "
                "from its start",
         source="LogSegment.sanityCheck (3.9); seen on 2.2.1"),
    Rule("KR207", BROKER_DOWN, "Index longer than 2 GiB", fix="index", lost_if_wrong=FROM_THE_LOG,
         evidence="size of the file",
         danger="the broker cannot map it",
         source="AbstractIndex (3.9)"),
    # -- the bytes of logs
    Rule("KR301", BROKER_DOWN, "Torn tail: partial bytes after the last valid batch of the last segment", fix="tail",
         evidence="position after the last valid batch, how many bytes follow, and that no valid batch is among them",
         danger="after an unclean stop the broker truncates the tail. After a clean stop it appends after the tail, "
                "and consumers fail there; or it does not start, if the first bytes declare a size that no batch has "
                "(KR803)",
         lost_if_wrong="the bytes after the last valid batch; they are kept until purge, and undo writes them back",
         source="LogLoader.recoverLog (3.9), Log.recoverLog (2.2.1)"),
    Rule("KR302", DATA_LOSS, "Damaged batch before the end of the log", fix="tail", lost_if_wrong=ACCEPTED_LOSS,
         evidence="position, which check failed (size, magic, CRC), how many bytes to the next valid batch, and what "
                  "each repair loses in bytes, offsets and records",
         danger="after an unclean stop the broker truncates the segment there and deletes all later segments; "
                "consumers stop there",
         source="LogLoader.recoverLog (3.9), KAFKA-3919, KAFKA-8722"),
    Rule("KR303", BROKER_DOWN, "Offsets that do not grow, or lie outside their segment", fix="tail",
         lost_if_wrong=ACCEPTED_LOSS,
         evidence="position, the offset there, the offset before it, and what each repair loses",
         danger="consumers read offsets twice or out of order; if a recovery writes an index entry there, it empties "
                "the segment and deletes all later ones",
         source="KAFKA-3919, Log.recoverLog and OffsetIndex.append (2.2.1)"),
    Rule("KR304", BROKER_DOWN, "Offsets that do not fit the base of their segment", fix="tail",
         lost_if_wrong=ACCEPTED_LOSS,
         evidence="the offset and the segment's base, whether a broker's recovery splits the segment, and what each "
                  "repair loses",
         danger="if the last offset is too far from the base, a broker splits the segment and loses nothing; in all "
                "other cases a recovery that reads the offset fails, and the broker does not start",
         source="KAFKA-6264, Log.splitOverflowedSegment (2.2.1); seen on 2.2.1, 3.9.2, 4.3.1"),
    Rule("KR305", DATA_LOSS, "Range of zeros in a log", fix="tail",
         evidence="position, length, whether valid batches follow, and what each repair loses if they do. The severity "
                  "is 'information' if the zeros are space that a broker allocated ahead (preallocate): at the end of "
                  "a closed segment whose next one begins at the next offset; at the log end after a kill, if "
                  "preallocate of the topic is on",
         danger="a write did not reach the disk; the broker truncates the log there and loses everything after it. "
                "After a clean stop no broker starts if an active log ends with 18 or more zeros (KR803)",
         lost_if_wrong="at the end of a partition: zeros only; elsewhere: the records that --accept-data-loss named. "
                       "All bytes are kept until purge",
         source="LogLoader.recoverLog, FileRecords.open (3.9), KAFKA-3919, KAFKA-5431"),
    Rule("KR306", INFORMATION, "Batches of format v0 or v1",
         evidence="the first segment and position that has one",
         danger="none by itself; such messages have no producer and are carried over byte for byte",
         source="KIP-98; design"),
    Rule("KR307", DATA_LOSS, "Compressed content that cannot be read", command="krepair check --deep",
         evidence="position, codec, and what failed: frame checksum, length, or more output than the limit",
         danger="consumers fail at this batch, and so does the cleaner",
         source="KAFKA-3160 (lz4 frame checksum), design"),
    Rule("KR308", BROKER_DOWN, "File that the operating system cannot read",
         evidence="file, position and the system's own message",
         danger="with an I/O error (EIO) the disk may be failing: copy it first. With Permission denied (EACCES, "
                "EPERM) run krepair as root, or as the user of the broker. krepair treats neither as "
                "corruption, and plans no change",
         source="design"),
    Rule("KR309", CONFUSING, "Batch that can overflow an old client's fetch response",
         evidence="largest batch of a topic times its partitions here, against 2147483647",
         danger="a client before 0.10.1 asks each partition for that many bytes; one response cannot hold them, so the "
                "fetch fails",
         source="KAFKA-1196, KIP-74"),
    Rule("KR310", DATA_LOSS, "Offsets without records in a topic that is not compacted",
         evidence="the ranges, between segments or inside one, and the source that says that the topic is not "
                  "compacted; a gap that a kept original of krepair fills is not counted. The severity is "
                  "'confusing' if only Kafka's default says that, or if the log shows an earlier compaction",
         danger="a leader leaves no gaps, so records were here. A log file was lost or moved away, or an earlier --fix "
                "tail=excise removed them, or the topic was compacted once (then nothing is wrong). Consumers skip the "
                "gap without an error",
         source="LogValidator.validateMessagesAndAssignOffsets (2.2.1, 3.9)"),
    Rule("KR311", INFORMATION, "Offsets without records; it is not known whether compaction removed them",
         evidence="the ranges, and the setting that would answer it: the topic's cleanup.policy",
         danger="none if the topic is compacted, or was once; if not, these records are lost",
         source="design"),
    Rule("KR312", DATA_LOSS, "Records that the last stop recorded are not here",
         evidence="after a clean stop: the log end, and the recovery point, the high watermark or an index without its "
                  "log above it; or a partition that a checkpoint names, and whose folder is not here",
         danger="the next start begins at the log end, or with an empty folder, without a warning: it gives the lost "
                "offsets to new records, and consumers and followers do not notice",
         lost_if_wrong="the checkpoint entries that show the loss: --fix checkpoints lowers them only with "
                       "--accept-data-loss",
         source="LogManager.shutdown, LogLoader.load (3.9), Log.loadSegments (2.2.1); seen on 2.2.1, 3.9.2, 4.3.1"),
    # -- checkpoints
    Rule("KR401", BROKER_DOWN, "Leader epoch checkpoint malformed, or empty beside batches that have epochs",
         fix="epochs",
         evidence="line and what was expected there, or the epochs that the log has",
         danger="malformed: the broker does not start; empty or missing: it starts without its epochs, and followers "
                "can diverge",
         lost_if_wrong="epochs that have no batch in the log any more; the old file is kept until purge",
         source="LeaderEpochFileCache (2.1, 2.3, 3.9); seen on 2.2.1, 3.9.2, 4.3.1"),
    Rule("KR402", DATA_LOSS, "Leader epochs that contradict the log", fix="epochs",
         evidence="the entry, and the first batch of that epoch or the log end",
         danger="followers truncate to the wrong offset",
         lost_if_wrong="the entry that is replaced; the old file is kept until purge",
         source="KIP-101, KIP-279"),
    Rule("KR403", SLOW, "Recovery point checkpoint malformed or past the log end", fix="checkpoints",
         evidence="entry, and the log end",
         danger="the broker recovers every segment from 0, or does not recover what it should",
         lost_if_wrong="time: a lower recovery point only makes the start longer",
         source="LogManager.loadLogs (2.2.1, 3.9)"),
    Rule("KR404", CONFUSING, "High watermark checkpoint malformed or past the log end", fix="checkpoints",
         evidence="entry, and the log end",
         danger="consumers see records twice or wait for records that are not there",
         lost_if_wrong="time: a lower high watermark rises again by itself",
         source="ReplicaManager, OffsetCheckpointFile (2.2.1, 3.9)"),
    Rule("KR405", DATA_LOSS, "Log start checkpoint malformed, or past the log end", fix="checkpoints",
         evidence="entry, and the log end",
         danger="past the log end: at the next start the broker deletes every segment of the partition; malformed: it "
                "does not start",
         lost_if_wrong="nothing: a lower log start only keeps more, records deleted by request among them",
         source="LogLoader.recoverLog (3.9)"),
    Rule("KR406", INFORMATION, "Checkpoint left half written (.tmp)",
         evidence="file and size",
         danger="none: the broker writes it again",
         lost_if_wrong="nothing",
         source="CheckpointFile.write (3.9)"),
    Rule("KR407", BROKER_DOWN, "meta.properties missing, malformed, or of another cluster or broker",
         evidence="key, value here and value in the other log directories or in --config; for a directory that is "
                  "empty or missing, the partitions that the metadata log places in it",
         danger="the broker does not start. If a disk is not mounted, its folder is empty. If somebody then formats "
                "it and starts the broker, the replicas in it are empty",
         source="BrokerMetadataCheckpoint (2.2.1), MetaPropertiesEnsemble (3.9)"),
    Rule("KR408", DATA_LOSS, "partition.metadata missing, empty, or with another topic id",
         evidence="folder, topic id here and elsewhere",
         danger="a KRaft broker marks the folder as stray, and it is deleted later; with another id, 3.3 to 3.6 delete "
                "it as they start. With an empty file the broker does not start",
         source="PartitionMetadataFile (3.9); seen on 3.3.2, 3.6.2, 3.9.2, 4.3.1"),
    Rule("KR409", CONFUSING, "No high watermark recorded",
         evidence="the partition has no entry in replication-offset-checkpoint",
         danger="it is not known which records followers have. So krepair changes no markers of this partition, "
                "unless a person decides to use the log end (--assume-high-watermark log-end)",
         lost_if_wrong="if the assumed offset is too high, krepair also compacts records that no other replica has; "
                       "the last record of each key stays",
         source="KAFKA-13194"),
    Rule("KR410", SLOW, "Cleaner checkpoint malformed or past the log end", fix="checkpoints",
         evidence="entry, and the log end",
         danger="the cleaner starts at the log start again, or skips the partition",
         lost_if_wrong="time: the cleaner reads more",
         source="LogCleanerManager.cleanableOffsets (2.2.1, 3.9)"),
    Rule("KR411", CONFUSING, "Leader epoch that the batches around it contradict",
         evidence="the batch, its leader epoch, and those of its neighbours",
         danger="consumers read the batch; but a recovery that reads it can write the epoch into "
                "leader-epoch-checkpoint, by which followers truncate. krepair derives nothing from it. A log that "
                "diverged before 0.11 can have such batches. Otherwise it is a flipped bit; no checksum covers this "
                "field",
         source="DefaultRecordBatch (the checksum begins after the epoch), LogSegment.recover (2.2.1, 3.9, 4.4), "
                "KIP-101"),
    # -- producer snapshots
    Rule("KR501", SLOW, "Producer snapshot that cannot be read", fix="snapshots",
         evidence="file, and which check failed: version, CRC or structure",
         danger="the broker deletes it and reads the log from an older snapshot or from the start of the log, so it "
                "starts slowly. If the last one is removed by hand, a clean start forgets all producers",
         lost_if_wrong="duplicate detection of the producers in it",
         source="ProducerStateManager.loadFromSnapshot (2.2.1, 3.9), KAFKA-5829; seen on 2.2.1, 3.9.2, 4.3.1"),
    Rule("KR502", CONFUSING, "Producer snapshot past the log end", fix="snapshots",
         evidence="file, and the log end",
         danger="the broker deletes it; since 2.8 it then also deletes the good snapshot at the log end, and reads the "
                "log instead",
         lost_if_wrong="duplicate detection of the producers in it",
         source="ProducerStateManager.truncateAndReload (2.2.1, 3.9), KAFKA-7076"),
    Rule("KR503", DATA_LOSS, "No producer snapshot, after a clean stop", fix="snapshots",
         evidence="the log end, and the producers and open transactions in the log",
         danger="without any snapshot, a broker that was stopped cleanly forgets producer sequences and open "
                "transactions; records of open transactions are then read as if committed",
         lost_if_wrong="duplicate detection of producers whose state is wrong",
         source="Log.rebuildProducerState (2.2.1), UnifiedLog (3.9), KAFKA-9393; seen on 2.2.1, 3.9.2, 4.3.1"),
    Rule("KR504", INFORMATION, "Producer snapshot that belongs to no segment", fix="snapshots",
         evidence="files below the last two segments whose offset is not the base offset of a segment",
         danger="none: each clean stop and each recovery leaves one at the log end, and the broker removes it later, "
                "at a start or a clean-up",
         lost_if_wrong="nothing that a start would read",
         source="ProducerStateManager.removeStraySnapshots (2.8, 3.9), deleteSnapshotsBefore (2.2.1), KAFKA-9393; seen "
                "on 2.2.1, 2.8.2, 3.9.2, 4.3.1"),
    Rule("KR505", SLOW, "Stale open transaction: open in a snapshot, absent from the log", fix="snapshots",
         evidence="the snapshot with which the next start begins, and in it a producer whose transaction is open; the "
                  "log begins at or below its first offset and holds no batch of that producer from there on",
         danger="read_committed consumers wait at its first offset forever, and nothing after it is compacted; a "
                "broker before 2.4 may not start at all (KR803)",
         lost_if_wrong="read_committed consumers no longer wait for a transaction that has no record in the log",
         source="ProducerStateManager.loadFromSnapshot, Cleaner.checkBatchRetention (2.2.1, 3.9), KAFKA-8443; seen on "
                "2.2.1, 2.8.2, 3.9.2, 4.3.1"),
    Rule("KR506", SLOW, "Very many producer ids",
         evidence="the newest snapshot has 100,000 producer ids or more: how many, how many of them wrote one batch "
                  "only, its bytes, and when a broker forgets an id",
         danger="each id takes heap; each roll and each stop writes all of them, and each start reads them. A usual "
                "cause is a client that makes a new idempotent producer for each message",
         source="KAFKA-15063, KIP-936, KIP-854, ProducerStateManager (2.2.1, 3.9)"),
    # -- folders, and what stands in them
    Rule("KR601", DATA_LOSS, "Leftovers of an interrupted cleaning or deletion (.swap, .cleaned, .deleted)",
         fix="leftovers",
         evidence="file, size, and what the next start does with it",
         danger="a .swap holds data, perhaps the only copy: if you remove it by hand, records are lost. If a "
                ".cleaned has the same or a lower base offset, every broker deletes the .swap. If broker versions "
                "treat it differently, krepair shows both results and skips the partition. For a .swap that cannot "
                "be read it says what to do by hand, and whether a start is safe",
         lost_if_wrong="the segments that were replaced, or the .swap that was removed; both are kept until purge",
         source="Log.loadSegments (2.2.1), LogLoader.load (3.0 to 3.9), seen on 2.2.1, 3.9.2 and 4.3.1"),
    Rule("KR602", BROKER_DOWN, "Folder in the log directory that is not a partition", start=StartEffect.ENDS,
         evidence="its name",
         danger="the broker does not start (lost+found, x.bak), or loads it as a partition",
         source="Log.parseTopicPartitionName (2.2.1), LocalLog (3.9)"),
    Rule("KR603", BROKER_DOWN, "The same partition in two log directories", start=StartEffect.ENDS,
         evidence="both paths, their log ends, and whether one is a prefix of the other",
         danger="the broker does not start and asks to remove one of the two, but does not say which one",
         source="LogManager.loadLog (2.2.1, 3.9), KAFKA-16234, seen on 2.2.1, 3.9.2 and 4.3.1"),
    Rule("KR604", CONFUSING, "Folder of a deleted, moved or stray partition (-delete, -future, -stray)",
         evidence="its name, files and bytes, and what the next start does with it",
         danger="a -delete folder is deleted after the start, a -future folder is still being moved, a -stray folder "
                "stays forever. With a -delete folder without a .log 2.2.1 does not start; with a -stray folder no "
                "broker before 3.6.1 starts",
         source="LogManager.loadLog (2.2.1, 3.9), KAFKA-8564, KAFKA-15605, seen on 2.2.1, 3.9.2 and 4.3.1"),
    Rule("KR605", BROKER_DOWN, "File that the broker cannot read or write",
         evidence="owner, group and mode, compared with those of most files, and the command that corrects it",
         danger="the broker does not start, or takes the log directory offline at the first write; after an unclean "
                "stop a broker since 4.0 may lose records, see KR804",
         source="Log.removeTempFilesAndCollectSwapFiles (2.2.1), LogLoader (3.9): Could not read file; seen on 3.9.2 "
                "and 4.3.1"),
    Rule("KR606", CONFUSING, "Symlink, FIFO, socket or device in the log directory",
         evidence="its name and kind",
         danger="krepair does not open it; a broker does, and may hang or write to another place",
         source="design"),
    Rule("KR607", INFORMATION, "Topic that krepair never touches",
         evidence="__cluster_metadata; or the topic with tiered storage, and what says so",
         danger="none by itself; a part of its data is in another place, so krepair does not change it",
         source="KIP-405, KIP-595, design"),
    Rule(IN_USE, INFORMATION, "Log directory locked",
         evidence="process id of the holder of .lock, if the system reports it",
         danger="a broker is running on it, so files may change while krepair reads them; apply refuses to run",
         source="LogManager.lockLogDirs (2.2.1, 3.9)"),
    Rule("KR609", CONFUSING, "One group name used by consumers with different subscriptions", command="krepair groups",
         evidence="group, members and their topics; or how often its subscriptions changed and changed back",
         danger="each join or leave makes all of them rebalance",
         source="GroupCoordinator (2.2.1, 3.9)"),
    Rule("KR610", BROKER_DOWN, "KRaft metadata log broken, at another place, or missing",
         evidence="the file, what was expected in it, and what each kind of node makes of it",
         danger="the node does not start; or a single controller forgets topics, and the folders of their partitions "
                "are renamed to -stray. A KRaft node reads this log at every start, also after a clean stop",
         source="KafkaMetadataLog, KafkaRaftServer, SharedServer, LogManager.isStrayKraftReplica (3.9), KAFKA-14240; "
                "seen on 3.9.2, 4.3.1, 4.4.0"),
    Rule("KR611", DATA_LOSS, "Partition of this node without a folder",
         evidence="the log directory in which the metadata log places the partition, and which other replicas are in "
                  "sync as of its end. Only confusing if others are in sync and this replica is not",
         danger="the next start creates the partition again, empty, without an error: its records are lost if no "
                "other replica is in sync. A disk that was replaced, or is not mounted, is the usual cause",
         source="LogManager.getOrCreateLog, ReplicaManager (3.9); KIP-858; seen on 3.9.2"),
    # -- replicas that disagree
    Rule("KR650", DATA_LOSS, "Tombstone missed: a replica still has values that were deleted", command=COMPARE,
         evidence="keys whose last record here is a value, while another replica has the tombstone, or has cleaned "
                  "away value and tombstone",
         danger="as leader this replica serves deleted keys again; no broker notices, because followers are compared "
                "by leader epochs only",
         source=f"Cleaner.shouldRetainRecord, AbstractFetcherThread.truncateOnFetchResponse (3.9.2); {_RAN}"),
    Rule("KR651", DATA_LOSS, "Aborted records count as committed", command=COMPARE,
         evidence="records whose transaction ends with a COMMIT here and with an ABORT on another replica; or that "
                  "another replica removed as aborted",
         danger="as leader this replica serves records of an aborted transaction to read_committed readers",
         source=f"ProducerAppendInfo.append, CleanedTransactionMetadata (4.3.1); {_RAN}"),
    Rule("KR652", DATA_LOSS, "Committed records count as aborted", command=COMPARE,
         evidence="records whose transaction ends with an ABORT here and with a COMMIT on another replica; or an ABORT "
                  "that covers more in this replica's transaction index",
         danger="as leader this replica hides committed records from read_committed readers",
         source=f"ProducerAppendInfo.append (4.3.1); {_RAN}"),
    Rule("KR653", DATA_LOSS, "Tombstone or ABORT missed: which of the two is unknown", command=COMPARE,
         evidence="keys whose last value on this replica is part of a transaction; another replica cleaned this "
                  "value away and has no later one",
         danger="as leader this replica serves records that the others do not",
         source=f"Cleaner.shouldRetainRecord (3.9.2); {_RAN}"),
    Rule("KR654", DATA_LOSS, "Transaction that is open on this replica only: its marker never came", command=COMPARE,
         evidence="producer id and first offset of the transaction; the marker on another replica, or that another "
                  "replica has cleaned past it",
         danger="with this replica as leader read_committed readers wait at this offset forever, and so "
                "does its cleaner",
         source=f"ProducerStateManager.lastStableOffset (3.9.2); {_RAN}"),
    Rule("KR655", DATA_LOSS, "Two histories: other records at the same offsets, both committed", command=COMPARE,
         evidence="the first offset, and the leader epochs that contradict each other below a recorded high watermark",
         danger="an unclean election, or a tail that was lost: acknowledged records of one history are gone as soon as "
                "the other one leads. Neither is right by itself",
         source=f"LeaderEpochFileCache, unclean.leader.election.enable; {_RAN}"),
    Rule("KR656", DATA_LOSS, "Another record at the same offset and leader epoch", command=COMPARE,
         evidence="the first offset, and the replicas",
         danger="which of the records readers get depends on which replica leads; a follower never notices",
         source="UnifiedLog.appendAsFollower (3.9.2): a follower appends its leader's bytes as they are"),
    Rule("KR657", DATA_LOSS, "Records lost inside of the log", command=COMPARE,
         evidence="records that another replica has, in offsets that this replica has never cleaned, or whose file is "
                  "gone",
         danger="as leader this replica does not serve them; a follower that starts empty copies the loss",
         source="UnifiedLog, LogLoader (3.9.2): a missing segment is not noticed at a start"),
    Rule("KR658", DATA_LOSS, "Log cut below what was committed or flushed", command=COMPARE,
         evidence="log end, and above it the recorded recovery point, or the high watermark (after a clean stop, or "
                  "where no other replica reaches it)",
         danger="if this broker starts as the only member of the ISR, the others truncate to its end, and the "
                "records are gone everywhere",
         source=f"ReplicaManager.checkpointHighWatermarks, LogManager.checkpointLogRecoveryOffsets (3.9.2); {_RAN}"),
    Rule("KR659", DATA_LOSS, "Replicas of several topic ids under one name", command=COMPARE,
         evidence="the topic id of each replica",
         danger="the topic was deleted and created again while a broker was away; the folder of the old id belongs "
                "to another topic",
         source=f"partition.metadata, KIP-516; {_RAN}"),
    Rule("KR660", DATA_LOSS, "Replica with damaged batches", command=COMPARE,
         evidence="file, position and what was expected; this replica is no evidence about others",
         danger="followers that fetch it stop; readers fail at this offset. krepair check says what can be done",
         source=f"DefaultRecordBatch.ensureValid (3.9.2); {_RAN}"),
    Rule("KR661", DATA_LOSS, "Replica with a torn end", command=COMPARE,
         evidence="file, position and what was expected, after a clean stop or below the recovery point, or where no "
                  "other replica has all that was committed",
         danger="the next start cuts the end, although those bytes had been flushed to the disk, or committed",
         source=f"LogSegment.recover (3.9.2); {_RAN}"),
    Rule("KR662", CONFUSING, "Replicas differ, and it is unknown which is right", command=COMPARE,
         evidence="what each has, and what would show which is right",
         danger="one of them may have lost records, or may serve deleted ones",
         source=f"section 'What krepair cannot find out' of docs/compare.md; {_RAN}"),
    Rule("KR663", CONFUSING, "Marker missed; a later one of the same kind hides it", command=COMPARE,
         evidence="producer id, first offset, and the marker that another replica has",
         danger="readers get the same records; the transaction seems to be longer than it was",
         source="ProducerAppendInfo.append (4.3.1)"),
    Rule("KR664", CONFUSING, "Replica that could not be read", command=COMPARE,
         evidence="why it could not be read",
         danger="nothing is known about it",
         source="the operating system, or a broker that was running"),
    Rule("KR665", INFORMATION, "Replica that is behind", command=COMPARE,
         evidence="its end and the greatest end, or where its next start cuts it; it fetches what another one has",
         danger="none: what is cut is above the high watermark that it has recorded, or on another replica",
         source="ReplicaFetcherThread (3.9.2)"),
    Rule("KR666", INFORMATION, "Replicas differ as healthy ones do", command=COMPARE,
         evidence="what differs: segments, how far each was cleaned, the epoch file, the log start",
         danger="none",
         source=f"Cleaner, LeaderEpochFileCache (3.9.2, 4.3.1); {_RAN}"),
    Rule("KR667", DATA_LOSS, "Replica that is behind, and a leader that no longer has what it lacks", command=COMPARE,
         evidence="its end; which brokers have removed tombstones or markers above it, and which still have them",
         danger="if a broker that has removed them leads while this replica catches up, this replica later serves "
                "old or aborted records, hides committed ones, or stalls; no broker notices. Let a broker that still "
                "has them lead until it has caught up",
         source=f"AbstractFetcherThread, Cleaner.shouldRetainRecord, ProducerStateManager (3.9.2); {_RAN}"),
    # -- space and time
    Rule("KR701", BROKER_DOWN, "Space that the broker would free when it starts, if it could start", fix="leftovers",
         evidence="files and bytes: .deleted, .cleaned, indexes without a log, -delete folders",
         danger="with a full disk the broker stops before it deletes anything",
         lost_if_wrong="what the broker would delete anyway",
         source="Log.loadSegments (2.2.1), LogLoader.load (3.9)"),
    Rule("KR702", INFORMATION, "Segments past their retention",
         evidence="segments, bytes, and the time of their youngest record in the log, if retention.ms is known",
         danger="none by itself: the next start deletes them. But with a full disk the broker stops before retention "
                "runs",
         source="deleteRetentionMsBreachedSegments (3.9)"),
    Rule("KR703", BROKER_DOWN, "Not enough space for the next start",
         evidence="bytes that the start may write (rebuilt indexes, snapshots, checkpoints) and new files that it may "
                  "make, and how many are free",
         danger="the broker stops with 'No space left on device' while it starts",
         source="AbstractIndex.resize (2.2.1, 3.9)"),
    Rule("KR704", CONFUSING, "Timestamps of records that cannot be right",
         evidence="the segment, its largest timestamp, whether it looks like seconds or microseconds, and the "
                  "segments and bytes after it",
         danger="a time in the future stops retention by time at its segment: nothing after it is deleted, and the "
                "disk fills. A broker takes a time in seconds for January 1970, and the next start deletes the "
                "segment (then: data loss)",
         source="KAFKA-6482, KAFKA-20609, UnifiedLog.deleteRetentionMsBreachedSegments (3.9); seen on 3.9.2"),
    # -- the next start
    Rule("KR801", SLOW, "The next start recovers segments", fix="recovery",
         evidence="segments, bytes, and how long a broker needs for them",
         danger="if a liveness probe waits for less time, it kills the broker, and the recovery starts again",
         lost_if_wrong="records that the disk reported as written but did not write: the start no longer checks them",
         source="LogLoader.recoverLog (3.9); speeds seen on 2.2.1, 3.9.2"),
    Rule("KR802", DATA_LOSS, "The next start deletes segments by retention", fix="index", lost_if_wrong=FROM_THE_LOG,
         evidence="segments, the time that the broker will read, and the real time of the records",
         danger="records are deleted before their time",
         source="UnifiedLog.deleteRetentionMsBreachedSegments (3.9)"),
    Rule("KR803", BROKER_DOWN, "The next start fails, or takes the log directory offline", start=StartEffect.ENDS,
         evidence="the file, or the limit of the host, that causes it, by broker version",
         danger="one small file keeps all partitions of the log directory offline: a checkpoint or meta.properties "
                "that cannot be read, or a log, an index or a transaction index on which the loader of a partition "
                "fails",
         source="CheckpointFileWithFailureHandler (3.9), LogManager (2.2.1), Log.loadSegments (2.2.1), LogLoader "
                "(3.9)"),
    Rule("KR804", DATA_LOSS, "The next start may empty healthy segments", fix="recovery",
         evidence="bytes that are recovered, and the cause: too little space, or a folder that the broker's user "
                  "cannot write",
         danger="after an unclean stop a broker since 4.0 takes its own I/O error for a corrupt segment. It empties "
                "that segment and deletes all later ones; then it starts as if nothing had happened, or it fails. A "
                "broker before 4.0 only fails",
         lost_if_wrong="records that the disk reported as written but did not write: the start no longer checks them",
         source="LogLoader.recoverLog (4.0.0 to 4.3.1); seen with whole brokers of 4.3.1 in a folder of another user "
                "and on a full disk, and not on 3.9.2"),
    Rule("KR805", BROKER_DOWN, "A version of Kafka cannot read the log directory", start=StartEffect.ENDS,
         evidence="the file; the level of a feature, or the version of a record or file, that it needs; what the "
                  "version of --broker-version reads instead, and which versions can read the directory",
         danger="the broker does not start. Downgrade metadata.version with kafka-features.sh before an older version "
                "starts, and raise it before 4.0 starts",
         source="MetadataVersion, FeatureControlManager.replay, BootstrapDirectory, BrokerMetadataCheckpoint (3.3 to "
                "4.4); seen on 2.2.1, 3.3.2, 3.6.2, 3.7.2, 3.9.2, 4.4.0"),
    Rule("KR806", BROKER_DOWN, "Setting of a topic that the version refuses", start=StartEffect.ENDS,
         evidence="the setting, its value and its topics; what the version of --broker-version takes",
         danger="the broker does not start: it reads the settings of every topic of the cluster while it starts. The "
                "topics need not have a partition here",
         source="LogManager.fetchTopicConfigOverrides, LogConfig (2.2.1, 3.3, 4.1), KAFKA-16368, KIP-1030; seen on "
                "4.4.0"),
    Rule("KR807", DATA_LOSS, "Groups or transactional ids that the version cannot load",
         evidence="the first record that the version of --broker-version does not read, and the groups or ids of its "
                  "partition",
         danger="the broker starts, and its coordinator does not know any group, or any transactional id, of this "
                "partition: consumers begin as auto.offset.reset says, producers get no answer",
         source="GroupMetadataManager, TransactionStateManager (2.2.1, 3.4.1), CoordinatorLoaderImpl (3.9, 4.4)"),
    # -- what krepair keeps
    Rule("KR901", INFORMATION, "An earlier plan still keeps originals",
         evidence="plan id, bytes that purge would free, how old they are, and whether the plan can still be undone",
         danger="none by itself: they take space until krepair purge. Undo is possible until then, or until a broker "
                "has changed a file that the plan changed. With a damaged journal (then: slow) undo shows the lines to "
                "type instead",
         source="the commit protocol of krepair"),
    Rule("KR902", SLOW, "An apply or undo was interrupted",
         evidence="plan id, the change that is half done, and the partitions whose recovery guard is set",
         danger="a broker can read all records, but while that guard is set, it recovers the partition when it starts; "
                "no other plan can change the partition",
         lost_if_wrong=f"{NOTHING_CHANGED}; run the same apply or undo again, and it is finished",
         source="the commit protocol of krepair"),
)
# fmt: on

RULES: Final[dict[str, Rule]] = {rule.code: rule for rule in CATALOGUE}


def severity_of(finding: Finding) -> Severity:
    """Return the severity of a finding: its own, else that of its rule."""
    return finding.severity or RULES[finding.rule].severity


def start_of(finding: Finding) -> StartEffect:
    """Return the effect of a finding on the next start: its own, else that of its rule."""
    return RULES[finding.rule].start if finding.start is None else finding.start


def of_version(finding: Finding, *, unknown: bool) -> Finding:
    """Return a finding as it is; of a version later than krepair knows as no damage, and nothing that a fix touches."""
    return replace(finding, severity=Severity.CONFUSING, fix="none") if unknown else finding


def counts(finding: Finding) -> bool:
    """Return True if the finding makes ``check`` exit with 2: any but those of severity information."""
    return severity_of(finding) is not Severity.INFORMATION


# -- codes of rules and objections of earlier builds; none of them is used again

_OF_THE_REVIEW: Final = "krepair apply computes it again and refuses any difference"
GONE: Final[Mapping[str, str]] = {
    "KR670": "krepair compare names a wrong replica; docs/compare.md, The way back, says how to replace it",
    **{
        f"RV{number:02d}": _OF_THE_REVIEW
        for number in (1, 2, 3, 6, 7, 8, 10, 11, 12, 15, 19, 20, 22, 26, 27, 32, 34)
    },
}
"""Retired code -> what replaces it."""
