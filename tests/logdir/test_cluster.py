"""A copy of the metadata log gives the same facts about the cluster as ``--describe``, or counts as no proof."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krepair.errors import RefusedError, UsageError
from krepair.formats import cluster_metadata as metadata
from krepair.formats.batch_v2 import PlacedBatch, batches, decode_header
from krepair.logdir import cluster
from krepair.logdir.cluster import Assignment, ClusterView, MetadataImage, read_cluster_file
from tests.logdir.metadata_records import batch, value

LOGS = Path(__file__).parent / "metadata_logs"
"""Logs of the active controllers of real clusters, copied at the moment of the text of the same name."""
TEXTS = Path(__file__).parent.parent / "formats" / "described"
PAIRS = sorted(folder.name for folder in LOGS.iterdir() if not folder.name.endswith("all-down"))
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


def text_of(name: str) -> Path:
    version, _, situation = name.partition("-")
    return TEXTS / version / f"{situation}.txt"


def rows(view: ClusterView) -> dict[tuple[str, int], tuple[object, ...]]:
    return {
        key: (
            one.topic_id,
            one.replicas,
            one.isr,
            one.leader,
            one.moving,
        )
        for key, one in view.partitions.items()
    }


class TestRealClusters:
    @pytest.mark.parametrize("name", PAIRS)
    def test_the_metadata_log_says_what_a_broker_says(self, name: str) -> None:
        log, text = read_cluster_file(str(LOGS / name)), read_cluster_file(str(text_of(name)))
        assert rows(log) == rows(text)
        assert (log.source, text.source) == ("metadata-log", "describe")

    @pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
    def test_with_every_broker_down_nobody_leads(self, version: str) -> None:
        view = read_cluster_file(str(LOGS / f"{version}-all-down"))
        assert {one.leader for one in view.partitions.values()} == {-1}
        assert sorted(view.brokers) == [1, 2, 3]

    def test_settings_of_topics_are_those_that_were_set(self) -> None:
        view = read_cluster_file(str(LOGS / "4.3.1-b2-b3-down"))
        assert view.topic_configs["elr"] == {
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "false",
        }

    def test_the_cluster_is_that_of_meta_properties_beside_the_log(self, tmp_path: Path) -> None:
        shutil.copytree(LOGS / "4.3.1-b2-b3-down", tmp_path / "__cluster_metadata-0")
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=100\ncluster.id=abc\n")
        for path in (tmp_path, tmp_path / "__cluster_metadata-0"):
            assert read_cluster_file(str(path)).cluster_id == "abc"


class TestSnapshots:
    @pytest.fixture(params=["3.3.2", "4.3.1"])
    def copy(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        shutil.copytree(LOGS / f"{request.param}-snapshots", tmp_path / "copy")
        return tmp_path / "copy"

    def test_the_log_alone_says_what_the_snapshot_and_the_rest_of_the_log_say(self, copy: Path) -> None:
        with_snapshot = read_cluster_file(str(copy))
        for snapshot in copy.glob("*.checkpoint"):
            snapshot.unlink()
        alone = read_cluster_file(str(copy))
        assert rows(alone) == rows(with_snapshot)
        assert alone.topic_configs == with_snapshot.topic_configs
        assert alone.as_of_ms == with_snapshot.as_of_ms
        assert alone.brokers == with_snapshot.brokers

    def test_a_log_that_begins_at_the_snapshot_needs_nothing_before_it(self, copy: Path) -> None:
        whole = read_cluster_file(str(copy))
        (snapshot,) = copy.glob("*.checkpoint")
        end, (log,) = int(snapshot.name[:20]), copy.glob("*.log")
        data = log.read_bytes()
        placed = [one for one in batches(data) if isinstance(one, PlacedBatch)]
        start = next(one for one in placed if one.header.base_offset == end)
        (copy / f"{end:020d}.log").write_bytes(data[start.position :])
        log.unlink()
        found = read_cluster_file(str(copy))
        assert rows(found) == rows(whole)
        assert found.brokers == whole.brokers

    def test_a_snapshot_that_is_cut_or_changed_is_no_proof(self, copy: Path) -> None:
        (snapshot,) = copy.glob("*.checkpoint")
        data = snapshot.read_bytes()
        placed = [one.position for one in batches(data) if isinstance(one, PlacedBatch)]
        for cut in (*placed, len(data) - 1):
            snapshot.write_bytes(data[:cut])
            with pytest.raises(RefusedError, match="no proof"):
                read_cluster_file(str(copy))
        snapshot.write_bytes(data[:80] + bytes([data[80] ^ 1]) + data[81:])
        with pytest.raises(RefusedError, match="no proof"):
            read_cluster_file(str(copy))


class TestNoProof:
    def refused(self, path: Path) -> str:
        with pytest.raises(RefusedError) as caught:
            read_cluster_file(str(path))
        assert "no proof" in caught.value.message
        assert str(caught.value.next_command)
        return caught.value.message

    @pytest.fixture
    def copy(self, tmp_path: Path) -> Path:
        shutil.copytree(LOGS / "4.3.1-b2-b3-down", tmp_path / "copy")
        return tmp_path / "copy" / "00000000000000000000.log"

    def test_a_log_that_is_cut_inside_of_a_batch(self, copy: Path) -> None:
        copy.write_bytes(copy.read_bytes()[:-7])
        assert "position" in self.refused(copy.parent)

    def test_a_changed_byte_anywhere_is_never_taken(self, copy: Path) -> None:
        data = copy.read_bytes()
        whole = rows(read_cluster_file(str(copy.parent)))
        for place in range(0, len(data), 97):
            copy.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
            try:
                found = rows(read_cluster_file(str(copy.parent)))
            except RefusedError:
                continue
            assert found == whole  # a leader epoch that rises has no checksum

    def test_a_log_that_does_not_begin_at_0_without_a_snapshot(self, copy: Path) -> None:
        copy.rename(copy.parent / "00000000000000000040.log")
        assert "begins at offset 40" in self.refused(copy.parent)

    def test_a_gap_between_two_batches(self, copy: Path) -> None:
        data = copy.read_bytes()
        placed = [one for one in batches(data) if isinstance(one, PlacedBatch)]
        start, end = placed[5].position, placed[6].position
        copy.write_bytes(data[:start] + data[end:])
        assert f"position {start}" in self.refused(copy.parent)

    def test_an_empty_folder_is_no_proof(self, tmp_path: Path) -> None:
        assert "found neither" in self.refused(tmp_path)

    def test_a_text_that_is_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x\n")
        assert "line 1" in self.refused(tmp_path / "f")

    def test_a_path_that_is_not_there_is_wrong_use(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="--cluster"):
            read_cluster_file(str(tmp_path / "none"))


PARTITION = {
    "partition_id": 0,
    "topic_id": TOPIC_ID,
    "replicas": [1, 2],
    "isr": [1, 2],
    "leader": 1,
    "leader_epoch": 4,
}
START = [
    value(metadata.TOPIC, {"name": "t", "topic_id": TOPIC_ID}),
    value(metadata.PARTITION, PARTITION),
]
SHRINK = value(metadata.PARTITION_CHANGE, {"partition_id": 0, "topic_id": TOPIC_ID, "isr": [1], "leader": 1})


class TestRecords:
    def view(self, folder: Path, *values: bytes) -> ClusterView:
        (folder / f"{0:020d}.log").write_bytes(batch(0, [*START, *values]))
        return read_cluster_file(str(folder))

    def test_a_change_says_who_leads_and_is_in_sync(self, tmp_path: Path) -> None:
        one = self.view(tmp_path, SHRINK).partitions["t", 0]
        assert (one.isr, one.leader) == ((1,), 1)

    def test_a_transaction_counts_from_its_end_only(self, tmp_path: Path) -> None:
        begin, end = value(metadata.BEGIN_TRANSACTION, {}), value(metadata.END_TRANSACTION, {})
        abort = value(metadata.ABORT_TRANSACTION, {})
        assert self.view(tmp_path, begin, SHRINK).partitions["t", 0].isr == (1, 2)
        assert self.view(tmp_path, begin, SHRINK, abort).partitions["t", 0].isr == (1, 2)
        assert self.view(tmp_path, begin, SHRINK, end).partitions["t", 0].isr == (1,)

    def test_a_topic_made_again_is_another_one(self, tmp_path: Path) -> None:
        gone = value(metadata.REMOVE_TOPIC, {"topic_id": TOPIC_ID})
        again = value(metadata.TOPIC, {"name": "t", "topic_id": OTHER_ID})
        new = value(
            metadata.PARTITION, PARTITION | {"topic_id": OTHER_ID, "replicas": [3], "isr": [3], "leader": 3}
        )
        one = self.view(tmp_path, gone, again, new).partitions["t", 0]
        assert (one.topic_id, one.replicas) == (OTHER_ID, (3,))

    @pytest.mark.parametrize(
        ("record", "says"),
        [
            (bytes([0, 2, 0]), "frame version"),
            (bytes([1, 3, 9]), "found version 9, written by a later Kafka"),
            (value(metadata.REMOVE_TOPIC, {"topic_id": OTHER_ID}), "is not known"),
            (value(metadata.BROKER_CHANGE, {"broker_id": 7, "broker_epoch": 1}), "broker 7 is not known"),
            (value(metadata.END_TRANSACTION, {}), "never began"),
        ],
    )
    def test_what_is_not_known_makes_it_no_proof(self, tmp_path: Path, record: bytes, says: str) -> None:
        with pytest.raises(RefusedError, match=says):
            self.view(tmp_path, record)

    @pytest.mark.parametrize("record", [bytes([1, 99, 0]), bytes([1, 30, 7, 1, 2]), bytes([1, 0x80, 2, 0])])
    def test_a_type_of_a_later_kafka_ends_only_what_rests_on_replicas(
        self, tmp_path: Path, record: bytes
    ) -> None:
        configured = {"resource_type": 2, "resource_name": "t", "name": "cleanup.policy", "value": "compact"}
        view = self.view(tmp_path, record, value(metadata.CONFIG, configured))
        assert view.topic_configs == {"t": {"cleanup.policy": "compact"}}
        assert f"{0:020d}.log: the batch at position 0: a record of type" in view.no_proof
        assert view.no_proof.endswith("written by a later Kafka")

    def test_its_time_is_that_of_the_last_batch(self, tmp_path: Path) -> None:
        second = batch(2, [SHRINK], time_ms=5000)
        (tmp_path / f"{0:020d}.log").write_bytes(batch(0, START) + second)
        view = read_cluster_file(str(tmp_path))
        assert view.as_of_ms == 5000
        assert decode_header(second).base_offset == 2


def test_partitions_of_other_topics_are_not_gone_through_for_a_topic_that_goes() -> None:
    class Partitions(dict[tuple[str, int], Assignment]):
        times = 0

        def __iter__(self) -> Iterator[tuple[str, int]]:
            Partitions.times += 1
            return super().__iter__()

        def items(self) -> Any:
            Partitions.times += 1
            return super().items()

    image = MetadataImage(partitions=Partitions())
    for number in range(6):
        topic_id = f"id-{number}"
        cluster._add_topic(image, {"topic_id": topic_id, "name": f"t{number}"})
        for partition in (0, 1, 7):
            registered = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
            others: dict[str, list[int]] = {"adding_replicas": [], "removing_replicas": []}
            values = {"topic_id": topic_id, "partition_id": partition, **registered, **others}
            cluster._add_partition(image, values)
    for number in range(5):
        cluster._remove_topic(image, {"topic_id": f"id-{number}"})
    assert Partitions.times == 0
    assert list(image.partitions) == [("id-5", 0), ("id-5", 1), ("id-5", 7)]
    assert image.numbers == {"id-5": {0, 1, 7}}
