"""Files that a start holds open, and index files that it maps, against the limits of the host's broker.

A broker opens each ``.log`` and each ``.txnindex``, and keeps them open. Up to 2.2 it maps both indexes of every
segment; from 2.3 on (KAFKA-7283) those of the active segment and of each that it recovers. An empty file takes no map.

Source: ``FileRecords.open``, ``TransactionIndex``, ``AbstractIndex`` (2.2.1), ``LazyIndex`` (2.4.0);
seen on 2.2.1, 3.9.2 and 4.3.1. systemd.exec(5), systemd.unit(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from krepair.formats.broker_version import Version
from krepair.logdir.values import LogDir, Partition
from krepair.start.refusal import MAPS_INDEXES_LAZILY, Cause

UNIT_DIRS: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
MAP_COUNT: Final = "/proc/sys/vm/max_map_count"
_STARTS_KAFKA: Final = re.compile(r"kafka-server-start|\bkafka\.Kafka\b")
_OF_JVM: Final = 50
"""Files, and maps, that a JVM with a broker holds besides, at the least: 51 files on 2.2.1, 137 on 4.3.1."""


class OpenAtStart(NamedTuple):
    """What a start holds.

    Attributes:
        files: open files.
        maps: mapped index files.
    """

    files: int
    maps: int


def held_by_start(view: LogDir, version: Version) -> OpenAtStart:
    """What the start of a version holds of a log directory; of an unknown one that of 2.3 or later."""
    files = maps = 0
    lazily = version is None or version >= MAPS_INDEXES_LAZILY
    for partition in (*view.partitions, *view.marked):
        files += sum(1 + (segment.txn_index is not None) for segment in partition.segments)
        maps += _maps(view, partition, lazily=lazily)
    return OpenAtStart(files, maps)


def _maps(view: LogDir, partition: Partition, *, lazily: bool) -> int:
    if not partition.segments:
        return 0
    point = view.recovery_point.offsets.get(partition.key, 0)
    mapped = [
        segment
        for segment, end in partition.segments_with_ends()[:-1]
        if not lazily or (end > point and not view.clean_shutdown)
    ]
    # The indexes of the active segment are extended, and so they are mapped whatever they hold.
    return 2 + sum(
        file is not None and file.size > 0 for one in mapped for file in (one.index, one.time_index)
    )


class Limits(NamedTuple):
    """What this host allows its broker.

    Attributes:
        unit: path of the broker's unit, empty if there is none, or several.
        files: its ``LimitNOFILE``, -1 if it has none, or no limit.
        maps: ``vm.max_map_count``, -1 if it is not known.
    """

    unit: str = ""
    files: int = -1
    maps: int = -1


def limits_of_host(config: str | None) -> Limits:
    """Read the limits. Those of krepair's own process say nothing of the broker's.

    Args:
        config: path of ``server.properties``; among several units that start a broker the one that names it counts.
    """
    starts = {
        path: lines for path, lines in _units() if any(map(_STARTS_KAFKA.search, _values(lines, "ExecStart")))
    }
    if config is not None and len(starts) > 1:
        named = os.path.abspath(config)
        starts = {
            path: lines for path, lines in starts.items() if named in " ".join(_values(lines, "ExecStart"))
        }
    maps = _number(_read(MAP_COUNT).strip())
    if len(starts) != 1:
        return Limits(maps=maps)
    ((path, lines),) = starts.items()
    # A JVM raises its soft limit to the hard one.
    hard = next((value.rpartition(":")[2] for value in reversed(_values(lines, "LimitNOFILE"))), "")
    return Limits(path, _number(hard), maps)


def _units() -> Iterator[tuple[str, list[str]]]:
    """Path and lines of each service, drop-ins behind; a unit of the same name in an earlier folder counts."""
    seen: set[str] = set()
    for folder in UNIT_DIRS:
        for path in sorted(Path(folder).glob("*.service")):
            if path.name in seen:
                continue
            seen.add(path.name)
            drop_ins = {
                one.name: one
                for root in reversed(UNIT_DIRS)
                for one in Path(root, f"{path.name}.d").glob("*.conf")
            }
            files = [path, *(drop_ins[name] for name in sorted(drop_ins))]
            yield str(path), "\n".join(map(_read, files)).replace("\\\n", " ").splitlines()


def _values(lines: Iterable[str], key: str) -> list[str]:
    """What a unit says of a key, in order; an empty value takes back what stands before."""
    found: list[str] = []
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == key:
            found = [*found, value.strip()] if value.strip() else []
    return found


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else -1


def causes_of_limits(
    view: LogDir, others: Sequence[LogDir], limits: Limits, version: Version
) -> Iterator[Cause]:
    """Why a broker of the version does not start on a log directory, or goes on without it.

    A broker with others lost the largest one, and went on with hardly a file left to open (seen on 3.9.2).

    Args:
        view: the log directory.
        others: the other ones of the broker that were given.
        limits: of this host.
        version: of the broker that is to start.
    """
    held = [held_by_start(one, version) for one in (view, *others)]
    if held[0] < max(held):
        return
    files, maps = sum(one.files for one in held), sum(one.maps for one in held)
    if 0 <= limits.files < files + _OF_JVM:
        text = (
            f"the start holds {files:,} files open, and LimitNOFILE={limits.files} of {limits.unit} is too low: "
            "raise it before the start"
        )
        yield Cause("", "", text)
    if 0 <= limits.maps < maps + _OF_JVM:
        text = (
            f"the start maps {maps:,} index files, and vm.max_map_count={limits.maps} of this host is too low: "
            "raise it with sysctl before the start"
        )
        yield Cause("", "", text)
