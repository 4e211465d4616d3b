"""The lines of ``krepair dump --json``, for their published schema.

``krepair.look.dump`` writes the lines without these types; a test compares them with real output. A field that may be
absent has ``UNSET`` as its default. Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

NullableText = str | None | UnsetType


class DumpLine(Struct, frozen=True, kw_only=True, tag="dump"):
    """First line of the output.

    Attributes:
        format_version: major.minor version of these lines.
        tool_version: version of krepair.
    """

    format_version: str
    tool_version: str


class FileLine(Struct, frozen=True, kw_only=True, tag="file"):
    """Start of a file.

    Attributes:
        file: path of the file, as typed or below the typed folder.
        kind: kind of the file, by its name.
        size: size of the file in bytes.
        base_offset: base offset of its segment; absent if it belongs to none.
    """

    file: str
    kind: str
    size: int
    base_offset: int | UnsetType = UNSET


class BatchLine(Struct, frozen=True, kw_only=True, tag="batch"):
    """Header of a batch, or a message of v0 or v1, for which the last ten fields are absent.

    Attributes:
        position: byte position in the file.
        base_offset: first offset of the batch.
        last_offset: last offset of the batch.
        max_timestamp: largest timestamp of the batch.
        crc: checksum stored in the file.
        valid: true if the stored checksum is correct.
        size: size of the batch in bytes.
        magic: message format: 0, 1 or 2.
        codec: name of the compression, or ``none``.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or none.
        base_timestamp: timestamp of the first record.
        producer_id: producer id, -1 if none.
        records: number of records.
        producer_epoch: producer epoch, -1 if none.
        base_sequence: sequence number of the first record, -1 if none.
        last_sequence: sequence number of the last record, -1 if none.
        leader_epoch: epoch of the partition's leader that appended the batch.
        transactional: true if the batch belongs to a transaction.
        control: true for a control batch.
        delete_horizon_ms: time from which the log cleaner may delete the batch (KIP-534), or null.
    """

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    crc: int
    valid: bool
    size: int
    magic: int
    codec: str
    timestamp_type: str
    base_timestamp: int | UnsetType = UNSET
    producer_id: int | UnsetType = UNSET
    records: int | UnsetType = UNSET
    producer_epoch: int | UnsetType = UNSET
    base_sequence: int | UnsetType = UNSET
    last_sequence: int | UnsetType = UNSET
    leader_epoch: int | UnsetType = UNSET
    transactional: bool | UnsetType = UNSET
    control: bool | UnsetType = UNSET
    delete_horizon_ms: int | UnsetType | None = UNSET


class HeaderOfRecord(Struct, frozen=True, kw_only=True):
    """Header of a record; the name of a field says how its bytes are shown.

    Attributes:
        key: key of the header as text.
        key_hex: key as hexadecimal digits.
        key_base64: key as base64.
        value: value of the header as text, or null.
        value_json: value as JSON.
        value_hex: value as hexadecimal digits.
        value_base64: value as base64.
    """

    key: str | UnsetType = UNSET
    key_hex: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value: NullableText = UNSET
    value_json: Any = UNSET
    value_hex: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class RecordLine(Struct, frozen=True, kw_only=True, tag="record"):
    """Record. Its key and its value have one field each, whose name says how the bytes are shown.

    Attributes:
        position: byte position of its batch in the file.
        offset: offset of the record in the log.
        timestamp: timestamp of the record.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or none.
        sequence: sequence number, -1 if none; absent for v0 and v1, like the next four fields.
        producer_id: producer id, -1 if none.
        producer_epoch: producer epoch, -1 if none.
        transactional: true if its batch belongs to a transaction.
        control: true if its batch is a control batch.
        key_size: size of the key in bytes, -1 for null.
        value_size: size of the value in bytes, -1 for null.
        marker: type of a control record: ``COMMIT``, ``ABORT`` or another name; the number of an unknown one.
        coordinator_epoch: coordinator epoch of a COMMIT or ABORT marker.
        headers: headers of the record; absent if there are none.
        headers_left_out: number of headers omitted because they are too large to show.
        record: type of a coordinator's record.
        key_version: version of a coordinator record's key.
        key_fields: decoded fields of the key, by Kafka's names.
        value_version: version of a coordinator record's value; absent for a tombstone.
        value_fields: decoded fields of the value, by Kafka's names. A member of a classic consumer group also has the
            decoded ``subscription`` and ``assignment``, under these names with ``_version``, ``_fields`` and
            ``_left_over`` (bytes), or with ``_problem`` and ``_hex``.
        tombstone: true if the value is null.
        problem: reason why the record could not be decoded.
        key: key as text, or null.
        key_json: key as JSON.
        key_hex: key as hexadecimal digits.
        key_base64: key as base64.
        key_cut: true if only a part of the key is shown.
        value: value as text, or null.
        value_json: value as JSON.
        value_hex: value as hexadecimal digits.
        value_base64: value as base64.
        value_cut: true if only a part of the value is shown.
    """

    position: int
    offset: int
    timestamp: int
    timestamp_type: str
    sequence: int | UnsetType = UNSET
    producer_id: int | UnsetType = UNSET
    producer_epoch: int | UnsetType = UNSET
    transactional: bool | UnsetType = UNSET
    control: bool | UnsetType = UNSET
    key_size: int
    value_size: int
    marker: str | int | UnsetType = UNSET
    coordinator_epoch: int | UnsetType = UNSET
    headers: tuple[HeaderOfRecord, ...] | UnsetType = UNSET
    headers_left_out: int | UnsetType = UNSET
    record: str | UnsetType = UNSET
    key_version: int | UnsetType = UNSET
    key_fields: dict[str, Any] | UnsetType = UNSET
    value_version: int | UnsetType = UNSET
    value_fields: dict[str, Any] | UnsetType = UNSET
    tombstone: bool | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    key: NullableText = UNSET
    key_json: Any = UNSET
    key_hex: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    key_cut: bool | UnsetType = UNSET
    value: NullableText = UNSET
    value_json: Any = UNSET
    value_hex: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    value_cut: bool | UnsetType = UNSET


class IndexEntryLine(Struct, frozen=True, kw_only=True, tag="index_entry"):
    """Entry of an ``.index``.

    Attributes:
        offset: offset in the log.
        position: byte position in the log.
    """

    offset: int
    position: int


class TimeIndexEntryLine(Struct, frozen=True, kw_only=True, tag="time_index_entry"):
    """Entry of a ``.timeindex``.

    Attributes:
        timestamp: largest timestamp up to this entry.
        offset: offset in the log.
    """

    timestamp: int
    offset: int


class AbortedTransactionLine(Struct, frozen=True, kw_only=True, tag="aborted_transaction"):
    """Entry of a ``.txnindex``.

    Attributes:
        version: format version of the entry.
        producer_id: producer id of the transaction.
        first_offset: first offset of the transaction.
        last_offset: offset of the ABORT marker.
        last_stable_offset: last stable offset at the time of the abort.
    """

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SnapshotLine(Struct, frozen=True, kw_only=True, tag="snapshot"):
    """Header of a producer snapshot.

    Attributes:
        version: format version.
        crc: checksum stored in the file.
        entries: number of producers.
    """

    version: int
    crc: int
    entries: int


class ProducerLine(Struct, frozen=True, kw_only=True, tag="producer"):
    """Entry of a producer snapshot.

    Attributes:
        producer_id: id of the producer.
        producer_epoch: epoch of the producer.
        last_sequence: last sequence number of the producer's last batch.
        last_offset: last offset of the producer's last batch.
        offset_delta: offset delta of the producer's last batch.
        timestamp: timestamp of the producer's last batch.
        coordinator_epoch: coordinator epoch of the producer's last marker, -1 if none.
        current_txn_first_offset: first offset of the producer's open transaction, -1 if none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class CheckpointEntryLine(Struct, frozen=True, kw_only=True, tag="checkpoint_entry"):
    """Entry of an offset checkpoint.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: offset recorded for the partition.
    """

    topic: str
    partition: int
    offset: int


class EpochEntryLine(Struct, frozen=True, kw_only=True, tag="epoch_entry"):
    """Entry of a ``leader-epoch-checkpoint``.

    Attributes:
        epoch: leader epoch.
        start_offset: first offset of the epoch.
    """

    epoch: int
    start_offset: int


class PropertyLine(Struct, frozen=True, kw_only=True, tag="property"):
    """Line of ``meta.properties``.

    Attributes:
        key: name of the property.
        value: value of the property.
    """

    key: str
    value: str


class PartitionMetadataLine(Struct, frozen=True, kw_only=True, tag="partition_metadata"):
    """Content of ``partition.metadata``.

    Attributes:
        version: format version.
        topic_id: topic id as Kafka's tools print it.
    """

    version: int
    topic_id: str


class TextLine(Struct, frozen=True, kw_only=True, tag="text"):
    """Line of a plain text file.

    Attributes:
        line: the line without its end.
    """

    line: str


class PaddingLine(Struct, frozen=True, kw_only=True, tag="padding"):
    """Zeros at the end of an index.

    Attributes:
        position: byte position of the first zero.
        length: number of zero bytes.
        entries: number of entries that would fit there.
    """

    position: int
    length: int
    entries: int


class DamageLine(Struct, frozen=True, kw_only=True, tag="damage"):
    """Damaged bytes.

    Attributes:
        position: byte position of the damage.
        length: number of damaged bytes; 0 if something is missing.
        expected: expected content.
        found: content found.
        rule: rule ``KRnnn`` of the damage, if there is one.
    """

    position: int
    length: int
    expected: str
    found: str
    rule: str | UnsetType = UNSET


class UnreadableLine(Struct, frozen=True, kw_only=True, tag="unreadable"):
    """File that could not be read.

    Attributes:
        file: path of the file.
        why: message of the operating system.
    """

    file: str
    why: str


class EndLine(Struct, frozen=True, kw_only=True, tag="end"):
    """Last line of the output.

    Attributes:
        files: number of files read.
        batches: number of batches read.
        damages: number of damaged ranges.
        unreadable: number of files that could not be read.
        limit_reached: true if ``--limit`` ended the output.
        exit_code: exit code of the process.
    """

    files: int
    batches: int
    damages: int
    unreadable: int
    limit_reached: bool
    exit_code: int


Line = (
    DumpLine
    | FileLine
    | BatchLine
    | RecordLine
    | IndexEntryLine
    | TimeIndexEntryLine
    | AbortedTransactionLine
    | SnapshotLine
    | ProducerLine
    | CheckpointEntryLine
    | EpochEntryLine
    | PropertyLine
    | PartitionMetadataLine
    | TextLine
    | PaddingLine
    | DamageLine
    | UnreadableLine
    | EndLine
)
