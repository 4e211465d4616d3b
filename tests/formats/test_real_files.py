"""Every file of real log directories decodes without damage and encodes to the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from krepair.formats import (
    batch_v2,
    checkpoint,
    compression,
    control,
    message_set,
    meta_properties,
    offset_index,
    producer_snapshot,
    record,
    time_index,
    txn_index,
)
from krepair.formats.damage import Damage
from krepair.formats.filenames import FileKind, FolderKind, parse_file_name, parse_folder_name
from tests import builders, codecs, encoders
from tests.fixture_dirs import unpack

ALL = ("offsets-bloat-2.2.0-clean", "compact-2.2.1-before", "oldformat-2.2.1-before", "leader-epochs-2.2.1")
INDEXES: dict[FileKind, ModuleType] = {
    FileKind.OFFSET_INDEX: offset_index,
    FileKind.TIME_INDEX: time_index,
    FileKind.TXN_INDEX: txn_index,
}
RealLogs = Callable[[str], Path]


def files_of(log_dir: Path, kind: FileKind) -> list[bytes]:
    paths = (path for path in sorted(log_dir.glob("*/*")) if parse_file_name(path.name).kind is kind)
    return [path.read_bytes() for path in paths]


@pytest.mark.parametrize("name", ALL)
def test_names_of_a_real_log_dir_are_what_a_broker_would_give(real_logs: RealLogs, name: str) -> None:
    for folder in filter(Path.is_dir, real_logs(name).iterdir()):
        parsed = parse_folder_name(folder.name)
        assert (parsed.kind, parsed.is_canonical) == (FolderKind.PARTITION, True)
        for path in folder.iterdir():
            found = parse_file_name(path.name)
            assert found.is_canonical, path


@pytest.mark.parametrize("kind", list(INDEXES))
@pytest.mark.parametrize("name", ALL)
def test_real_indexes_have_no_damage_and_encode_to_the_same_bytes(
    real_logs: RealLogs, name: str, kind: FileKind
) -> None:
    files = files_of(real_logs(name), kind)
    assert len(files) > 10 or kind is FileKind.TXN_INDEX
    for data in files:
        assert INDEXES[kind].damage(data) == []
        assert encoders.encode_index(INDEXES[kind], encoders.decode_index(INDEXES[kind], data)) == data


@pytest.mark.parametrize("name", ["offsets-bloat-2.2.0-clean", "compact-2.2.1-before", "leader-epochs-2.2.1"])
def test_real_snapshots_decode_and_encode_to_the_same_bytes(real_logs: RealLogs, name: str) -> None:
    files = files_of(real_logs(name), FileKind.SNAPSHOT)
    assert files
    for data in files:
        snapshot = producer_snapshot.decode(data)
        assert isinstance(snapshot, producer_snapshot.ProducerSnapshot)
        assert encoders.encode_snapshot(snapshot.entries) == data


@pytest.mark.parametrize("name", ALL)
def test_real_checkpoints_decode_and_encode_to_the_same_bytes(real_logs: RealLogs, name: str) -> None:
    log_dir = real_logs(name)
    for path in log_dir.glob("*-offset-checkpoint"):
        offsets = checkpoint.decode_offsets(path.read_bytes())
        assert (offsets.damage, offsets.broker_reads) == ((), True)
        # 0 bytes: created by the broker, not yet filled
        assert checkpoint.encode_offsets(offsets.entries) == (path.read_bytes() or b"0\n0\n")
    for data in files_of(log_dir, FileKind.LEADER_EPOCHS):
        epochs = checkpoint.decode_epochs(data)
        assert (epochs.damage, epochs.broker_reads) == ((), True)
        assert checkpoint.encode_epochs(epochs.entries) == data


def test_real_leader_epochs_are_read_as_the_broker_counted_them(real_logs: RealLogs) -> None:
    path = real_logs("leader-epochs-2.2.1") / "e-all-0" / "leader-epoch-checkpoint"
    epochs = checkpoint.decode_epochs(path.read_bytes()).entries
    assert [entry.start_offset for entry in epochs] == sorted({entry.start_offset for entry in epochs})
    assert len(epochs) == len(path.read_text().splitlines()) - 2 >= 7


@pytest.mark.parametrize("name", ALL)
def test_real_meta_properties_name_the_broker(real_logs: RealLogs, name: str) -> None:
    found = meta_properties.decode((real_logs(name) / "meta.properties").read_bytes())
    assert isinstance(found, meta_properties.MetaProperties)
    assert (found.version, found.broker_id) == (0, "0")


@pytest.mark.parametrize("name", ["offsets-bloat-2.2.0-clean", "compact-2.2.1-before"])
def test_real_batches_encode_to_the_same_bytes_records_included(real_logs: RealLogs, name: str) -> None:
    for data in files_of(real_logs(name), FileKind.LOG):
        for batch in batch_v2.batches(data):
            assert isinstance(batch, batch_v2.PlacedBatch), batch
            position, header = batch
            raw = data[position : position + header.size_bytes]
            assert batch_v2.encode_batch(header, raw[batch_v2.HEADER_SIZE :]) == raw
            records = list(record.batch_records(data, position))
            assert [found for found in records if isinstance(found, Damage)] == []
            assert len(records) == header.record_count
            if header.codec == compression.Codec.NONE:
                assert encoders.encode_records(records) == raw[batch_v2.HEADER_SIZE :]  # type: ignore[arg-type]


def test_emptied_batches_of_a_real_cleaner_equal_ours(real_logs: RealLogs) -> None:
    """Emptying a batch that Kafka's cleaner emptied gives the same bytes, 17867 times."""
    emptied = 0
    for data in files_of(real_logs("offsets-bloat-2.2.0-clean"), FileKind.LOG):
        for position, header in encoders.decode_batches(data):
            if header.is_empty:
                emptied += 1
                assert batch_v2.empty_batch(header) == data[position : position + header.size_bytes]
    assert emptied == 8876 + 8991


@pytest.mark.parametrize("name", ["offsets-bloat-2.2.0-clean", "compact-2.2.1-before"])
def test_real_markers_are_read_and_equal_those_of_the_builders(real_logs: RealLogs, name: str) -> None:
    markers = 0
    for data in files_of(real_logs(name), FileKind.LOG):
        for position, header in encoders.decode_batches(data):
            if not header.is_control or header.is_empty:
                continue
            (marker,) = record.batch_records(data, position)
            assert isinstance(marker, record.Record)
            key = control.decode_key(marker.key)
            value = control.decode_end_txn(marker.value)
            assert isinstance(key, control.ControlKey)
            assert isinstance(value, control.EndTxnMarker)
            made = builders.marker(
                header.base_offset,
                key.type_id,
                pid=header.producer_id,
                epoch=header.producer_epoch,
                coordinator_epoch=value.coordinator_epoch,
                timestamp=header.max_timestamp,
                leader_epoch=header.partition_leader_epoch,
            )
            attributes = made.attributes | header.attributes & batch_v2.LOG_APPEND_TIME
            expected = codecs.sealed(made.raw, made.raw[batch_v2.HEADER_SIZE :], attributes=attributes)
            assert data[position : position + header.size_bytes] == expected
            markers += 1
    assert markers > 100


def test_real_old_messages_open_and_encode_to_the_same_bytes(real_logs: RealLogs) -> None:
    """v0 and v1, plain and in wrappers of each codec; ``mixed`` goes on to v2 in the same log."""
    seen: set[tuple[int, int]] = set()
    inner_count = 0
    for data in files_of(real_logs("oldformat-2.2.1-before"), FileKind.LOG):
        old = encoders.decode_messages(data)
        old_end = sum(placed.size_bytes for placed in old)
        assert encoders.encode_messages(placed.message for placed in old) == data[:old_end]
        assert batch_v2.damage(data[old_end:]) == []
        for placed in old:
            message = placed.message
            seen.add((message.magic, message.codec))
            if message.codec == compression.Codec.NONE:
                continue
            inner = compression.decompress(message.codec, message.value or b"", magic=message.magic)
            assert isinstance(inner, bytes), inner
            assert message_set.damage(inner) == []
            inner_count += len(encoders.decode_messages(inner))
    assert seen == {(magic, codec) for magic in (0, 1) for codec in range(4)}
    assert inner_count > 1000


def test_real_lz4_frames_of_v0_carry_the_wrong_header_checksum_and_v1_the_right_one(
    real_logs: RealLogs,
) -> None:
    seen = set()
    for data in files_of(real_logs("oldformat-2.2.1-before"), FileKind.LOG):
        for placed in encoders.decode_messages(data):
            message = placed.message
            if message.codec == compression.Codec.LZ4 and message.value is not None:
                stored = message.value[6]
                broken = message.magic == 0
                assert compression.lz4_header_checksum(message.value, broken=broken) == stored
                assert compression.lz4_header_checksum(message.value, broken=not broken) != stored
                seen.add(message.magic)
    assert seen == {0, 1}


@pytest.fixture(scope="session")
def real_logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``real_logs("leader-epochs-2.2.1")``: that log directory, shared, so never to be changed."""
    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            known[name] = unpack(name, tmp_path_factory.mktemp("real"))
        return known[name]

    return of
