"""The lines of ``krepair dump --json``, for their published schema.

The lines are written without these types, by ``krepair.look.dump``; a test holds real output against them. A field that
may be absent has ``UNSET`` as its default. Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

NullableText = str | None | UnsetType


class DumpLine(Struct, frozen=True, kw_only=True, tag="dump"):
    """The first line.

    Attributes:
        format_version: major.minor of these lines.
        tool_version: of krepair.
    """

    format_version: str
    tool_version: str


class FileLine(Struct, frozen=True, kw_only=True, tag="file"):
    """A file begins.

    Attributes:
        file: its path, as it was named or under the folder that was named.
        kind: what it is by its name.
        size: bytes.
        base_offset: of its segment; absent of files that belong to none.
    """

    file: str
    kind: str
    size: int
    base_offset: int | UnsetType = UNSET


class BatchLine(Struct, frozen=True, kw_only=True, tag="batch"):
    """The header of a batch, or a message of v0 or v1; of these the last ten fields are absent.

    Attributes:
        position: byte in the file.
        base_offset: first offset.
        last_offset: last offset.
        max_timestamp: largest timestamp.
        crc: as it is written.
        valid: whether the checksum is right.
        size: bytes.
        magic: 0, 1 or 2.
        codec: name of the compression, or ``none``.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or none.
        base_timestamp: of the first record.
        producer_id: -1 if none.
        records: how many.
        producer_epoch: -1 if none.
        base_sequence: -1 if none.
        last_sequence: -1 if none.
        leader_epoch: of the partition's leader.
        transactional: whether it belongs to a transaction.
        control: whether it is a control batch.
        delete_horizon_ms: when it may be deleted (KIP-534), or null.
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
    """One header of a record; the name of a field says how its bytes are shown.

    Attributes:
        key: as text.
        key_hex: as hexadecimal digits.
        key_base64: as base64.
        value: as text, or null.
        value_json: as JSON.
        value_hex: as hexadecimal digits.
        value_base64: as base64.
    """

    key: str | UnsetType = UNSET
    key_hex: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value: NullableText = UNSET
    value_json: Any = UNSET
    value_hex: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class RecordLine(Struct, frozen=True, kw_only=True, tag="record"):
    """A record. Of key and value one field is there, whose name says how the bytes are shown.

    Attributes:
        position: of its batch in the file.
        offset: log offset.
        timestamp: of the record.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or none.
        sequence: -1 if none; absent of v0 and v1, as the next four.
        producer_id: -1 if none.
        producer_epoch: -1 if none.
        transactional: whether its batch belongs to a transaction.
        control: whether its batch is a control batch.
        key_size: bytes, -1 for null.
        value_size: bytes, -1 for null.
        marker: of a control record: ``COMMIT``, ``ABORT`` or another name; the number of an unknown one.
        coordinator_epoch: of a commit or abort marker.
        headers: absent where there are none.
        headers_left_out: how many more there are, where they are too large to show.
        record: of a coordinator's record: its type.
        key_version: likewise.
        key_fields: Kafka's own fields of the key.
        value_version: likewise; absent of a tombstone.
        value_fields: Kafka's own fields of the value. A member of a classic consumer group also has what is in its
            ``subscription`` and ``assignment``, under these names with ``_version``, ``_fields`` and ``_left_over``
            (bytes), or with ``_problem`` and ``_hex``.
        tombstone: true where the value is null.
        problem: why it could not be decoded.
        key: as text, or null.
        key_json: as JSON.
        key_hex: as hexadecimal digits.
        key_base64: as base64.
        key_cut: true where only a part is shown.
        value: as text, or null.
        value_json: as JSON.
        value_hex: as hexadecimal digits.
        value_base64: as base64.
        value_cut: true where only a part is shown.
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
    """An entry of an ``.index``.

    Attributes:
        offset: log offset.
        position: byte in the log.
    """

    offset: int
    position: int


class TimeIndexEntryLine(Struct, frozen=True, kw_only=True, tag="time_index_entry"):
    """An entry of a ``.timeindex``.

    Attributes:
        timestamp: largest so far.
        offset: log offset.
    """

    timestamp: int
    offset: int


class AbortedTransactionLine(Struct, frozen=True, kw_only=True, tag="aborted_transaction"):
    """An entry of a ``.txnindex``.

    Attributes:
        version: of the entry.
        producer_id: of the transaction.
        first_offset: of the transaction.
        last_offset: of its marker.
        last_stable_offset: when it was aborted.
    """

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SnapshotLine(Struct, frozen=True, kw_only=True, tag="snapshot"):
    """The head of a producer snapshot.

    Attributes:
        version: of the format.
        crc: as it is written.
        entries: how many.
    """

    version: int
    crc: int
    entries: int


class ProducerLine(Struct, frozen=True, kw_only=True, tag="producer"):
    """An entry of a producer snapshot.

    Attributes:
        producer_id: of the producer.
        producer_epoch: its epoch.
        last_sequence: of its last batch.
        last_offset: of its last batch.
        offset_delta: of its last batch.
        timestamp: of its last batch.
        coordinator_epoch: of its last marker, -1 if none.
        current_txn_first_offset: of its open transaction, -1 if none.
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
    """A line of an offset checkpoint.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: what the checkpoint says of it.
    """

    topic: str
    partition: int
    offset: int


class EpochEntryLine(Struct, frozen=True, kw_only=True, tag="epoch_entry"):
    """A line of a ``leader-epoch-checkpoint``.

    Attributes:
        epoch: leader epoch.
        start_offset: its first offset.
    """

    epoch: int
    start_offset: int


class PropertyLine(Struct, frozen=True, kw_only=True, tag="property"):
    """A line of ``meta.properties``.

    Attributes:
        key: name.
        value: value.
    """

    key: str
    value: str


class PartitionMetadataLine(Struct, frozen=True, kw_only=True, tag="partition_metadata"):
    """What ``partition.metadata`` holds.

    Attributes:
        version: of the format.
        topic_id: as Kafka's tools print it.
    """

    version: int
    topic_id: str


class TextLine(Struct, frozen=True, kw_only=True, tag="text"):
    """A line of a file that is plain text.

    Attributes:
        line: the line.
    """

    line: str


class PaddingLine(Struct, frozen=True, kw_only=True, tag="padding"):
    """The zeros at the end of an index.

    Attributes:
        position: where they begin.
        length: bytes.
        entries: how many entries would have room.
    """

    position: int
    length: int
    entries: int


class DamageLine(Struct, frozen=True, kw_only=True, tag="damage"):
    """Bytes that are not what they should be.

    Attributes:
        position: where they begin.
        length: bytes; 0 where something is missing.
        expected: what should be there.
        found: what is there.
        rule: ``KRnnn`` where one names it.
    """

    position: int
    length: int
    expected: str
    found: str
    rule: str | UnsetType = UNSET


class UnreadableLine(Struct, frozen=True, kw_only=True, tag="unreadable"):
    """A file that could not be read.

    Attributes:
        file: its path.
        why: what the operating system says.
    """

    file: str
    why: str


class EndLine(Struct, frozen=True, kw_only=True, tag="end"):
    """The last line.

    Attributes:
        files: how many were looked at.
        batches: how many were read.
        damages: how many were found.
        unreadable: files that could not be read.
        limit_reached: whether ``--limit`` ended it.
        exit_code: of the process.
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
