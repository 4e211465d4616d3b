"""``meta.properties`` of a log directory: the broker and the cluster to which the directory belongs.

The file is a Java properties file, which krepair only reads.

Source: ``BrokerMetadataCheckpoint.scala`` (2.2.1: ``version``, ``broker.id``, from 2.3 ``cluster.id``),
``MetaProperties.java``, ``DirectoryId.java`` (3.9.0: version 1 has ``node.id``, ``cluster.id``, ``directory.id``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from krepair.formats.damage import Bytes, Damage, UnknownVersion, shown
from krepair.formats.java_numbers import parse_java_integer
from krepair.formats.partition_metadata import parse_uuid

MAX_BYTES = 1 << 20
RESERVED_IDS: Final = 100
_AS_WRITTEN: Final = re.compile(rb"(?:#[ -~]*\n|[a-z.]+=[A-Za-z0-9_.-]*\n)*+")
"""Form in which a broker writes the file: comments, and values that need no escapes."""


class MetaProperties(NamedTuple):
    """Content of the file.

    Attributes:
        version: 0 (ZooKeeper) or 1 (KRaft).
        broker_id: value of ``node.id`` or ``broker.id``.
        cluster_id: id of the cluster, empty before 2.3.
        directory_id: id of the log directory, empty before 3.7.
        properties: all keys with their values.
    """

    version: int
    broker_id: str
    cluster_id: str
    directory_id: str
    properties: dict[str, str]


def decode(buf: Bytes) -> MetaProperties | Damage:
    """Read the file; a ``Damage`` says why a broker cannot read it."""
    if len(buf) > MAX_BYTES:
        return Damage(0, len(buf), f"at most {MAX_BYTES} bytes", f"{len(buf)} bytes")
    properties = _properties(bytes(buf))
    if isinstance(properties, Damage):
        return properties
    version = parse_java_integer(properties.get("version", ""), 32)
    if version not in {0, 1}:
        stored = properties.get("version", "")
        if version is not None and version > 1:
            return UnknownVersion(0, len(buf), "version 0 or 1", shown(stored))
        return Damage(0, len(buf), "version=0 or version=1", shown(f"version={stored}"))
    key = "node.id" if version else "broker.id"
    broker_id = parse_java_integer(properties.get(key, ""), 32)
    if broker_id is None:
        return Damage(0, len(buf), f"a number as {key}", shown(properties.get(key, "")) or "nothing")
    if version and "cluster.id" not in properties:
        return Damage(0, len(buf), "cluster.id", "nothing")
    directory_id = properties.get("directory.id")
    if directory_id is not None and _is_reserved(directory_id):
        return Damage(
            0, len(buf), "a UUID that is not reserved as directory.id", shown(directory_id) or "nothing"
        )
    return MetaProperties(
        version, str(broker_id), properties.get("cluster.id", ""), directory_id or "", properties
    )


def _is_reserved(directory_id: str) -> bool:
    """Return whether no log directory can have this id: Kafka reserves the first 100 UUIDs."""
    parsed = parse_uuid(directory_id)
    return parsed is None or parsed.int < RESERVED_IDS


def _properties(data: bytes) -> dict[str, str] | Damage:
    if _AS_WRITTEN.fullmatch(data):
        lines = (line.partition("=") for line in data.decode("ascii").splitlines() if line[:1] != "#")
        return {key: value for key, _, value in lines}
    # Imported late, because this library loads Python's XML and HTTP modules.
    import javaproperties

    try:
        return dict(javaproperties.loads(data.decode("latin-1")))
    except (javaproperties.InvalidUEscapeError, ValueError) as error:
        return Damage(0, len(data), "Java properties", shown(str(error)))
