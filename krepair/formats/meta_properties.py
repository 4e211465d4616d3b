"""``meta.properties`` of a log directory: the broker and the cluster to which it belongs.

It is a Java properties file. krepair only reads it.

Source: ``BrokerMetadataCheckpoint.scala`` (2.2.1: ``version``, ``broker.id``, from 2.3 ``cluster.id``),
``MetaProperties.java`` (3.9.0: version 1 has ``node.id``, ``cluster.id``, ``directory.id``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from krepair.formats.damage import Bytes, Damage, shown
from krepair.formats.java_numbers import parse_java_integer

MAX_BYTES = 1 << 20
_AS_WRITTEN: Final = re.compile(rb"(?:#[ -~]*\n|[a-z.]+=[A-Za-z0-9_.-]*\n)*+")
"""The form in which a broker writes the file: comments, and values that need no escapes."""


class MetaProperties(NamedTuple):
    """The content of the file.

    Attributes:
        version: 0 (ZooKeeper) or 1 (KRaft).
        broker_id: value of ``node.id`` or ``broker.id``.
        cluster_id: empty before 2.3.
        directory_id: empty before 3.7.
        properties: all keys and values.
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
        return Damage(
            0, len(buf), "version=0 or version=1", shown(f"version={properties.get('version', '')}")
        )
    broker_id = properties.get("node.id", properties.get("broker.id", ""))
    if parse_java_integer(broker_id, 32) is None:
        return Damage(0, len(buf), "a number as broker.id or node.id", shown(broker_id) or "nothing")
    return MetaProperties(
        version,
        broker_id,
        properties.get("cluster.id", ""),
        properties.get("directory.id", ""),
        properties,
    )


def _properties(data: bytes) -> dict[str, str] | Damage:
    if _AS_WRITTEN.fullmatch(data):
        lines = (line.partition("=") for line in data.decode("ascii").splitlines() if line[:1] != "#")
        return {key: value for key, _, value in lines}
    # Imported late, because it loads Python's XML and HTTP modules.
    import javaproperties

    try:
        return dict(javaproperties.loads(data.decode("latin-1")))
    except (javaproperties.InvalidUEscapeError, ValueError) as error:
        return Damage(0, len(data), "Java properties", shown(str(error)))
