from __future__ import annotations

import uuid

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import meta_properties, partition_metadata
from krepair.formats.damage import Damage, shown
from krepair.formats.meta_properties import MetaProperties
from krepair.formats.partition_metadata import PartitionMetadata
from tests import encoders

TOPIC_ID = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


@given(st.uuids().filter(lambda found: found.int != 0), st.integers(0, 2**31 - 1))
def test_partition_metadata_decodes_to_what_was_encoded(topic_id: uuid.UUID, version: int) -> None:
    metadata = PartitionMetadata(version, topic_id)
    assert partition_metadata.decode(encoders.encode_partition_metadata(metadata)) == metadata


def test_partition_metadata_bytes_are_those_of_a_broker() -> None:
    data = encoders.encode_partition_metadata(PartitionMetadata(0, TOPIC_ID))
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD/",
        b"version: 0\ntopic_id: \xff",
        bytes(50),
        b"x" * 100_000,
    ],
)
def test_partition_metadata_that_stops_a_broker_is_damage(data: bytes) -> None:
    assert isinstance(partition_metadata.decode(data), Damage)


def test_meta_properties_of_zookeeper_and_kraft_brokers_are_read() -> None:
    old = meta_properties.decode(
        b"#\n#Sat Nov 21 10:31:52 UTC 2026\nbroker.id=3\nversion=0\ncluster.id=abc\n"
    )
    new = meta_properties.decode(
        b"node.id=4\nversion=1\ncluster.id=x\\=y\ndirectory.id=XsPS_H-jo4Bd2rBhpbaVIg\n"
    )
    assert isinstance(old, MetaProperties)
    assert isinstance(new, MetaProperties)
    assert old[:4] == (0, "3", "abc", "")
    assert new[:4] == (1, "4", "x=y", "XsPS_H-jo4Bd2rBhpbaVIg")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version=2\n",
        b"version=0\nbroker.id=three\n",
        b"version=0\nx=\\uZZZZ\n",
        bytes(200),
        b"#" * (2 << 20),
    ],
)
def test_meta_properties_that_no_broker_reads_are_damage(data: bytes) -> None:
    assert isinstance(meta_properties.decode(data), Damage)


@given(st.text(max_size=300))
def test_untrusted_text_is_shown_on_one_short_line(text: str) -> None:
    found = shown(text)
    assert len(found) <= 83
    assert found.isascii()
    assert found.isprintable()


PROPERTY_LINES = st.sampled_from(
    [
        b"#\n",
        b"# Mon Nov 21 UTC 2026\n",
        b"version=1\n",
        b"version=0\n",
        b"version=\n",
        b"broker.id=3\n",
        b"node.id=7\n",
        b"cluster.id=kRepairLab_Cluster-0w\n",
        b"cluster.id=a=b\n",
        b"directory.id=x\\=\n",
        b" node.id = 5\n",
        b"node.id=1\\\n2\n",
        b"node.id: 6\n",
        b"\n",
        b"!a\n",
        b"node.id=9",
        b"node.id=9\r\n",
        b"=5\n",
    ]
)


@given(st.lists(PROPERTY_LINES, max_size=6).map(b"".join))
def test_meta_properties_as_written_are_what_java_reads(data: bytes) -> None:
    read = meta_properties._properties(data)
    assert read == dict(javaproperties.loads(data.decode("latin-1")))
