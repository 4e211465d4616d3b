"""States of a log directory that end a start or put folders aside: each made of a small directory of a real node."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from krepair.findings.reports import CheckReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS

METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/00000000000000000000.log"
OTHER_ID = "7nPY89yXcz5QVZrqRaIv4A"
ALL = frozenset(
    {
        *(f"__consumer_offsets-{n}" for n in range(4)),
        "__transaction_state-0",
        "__transaction_state-1",
        "one-0",
    }
)
FORGOTTEN = ALL - {"one-0"}
"""Topics that the metadata log names after ``one``."""
LAST = -1


class Outcome(NamedTuple):
    """Whether a node does not come up, and what it puts aside."""

    ends: bool
    aside: frozenset[str] = frozenset()


class State(NamedTuple):
    """One state.

    Attributes:
        name: what was done.
        make: does it to a directory; gives more of the configuration.
        ends: whether a node does not start on it.
        aside: folders that a controller without others puts aside.
        of_broker: what a broker that is no controller does instead, by the first number of its version.
    """

    name: str
    make: Callable[[Path], Mapping[str, str] | None]
    ends: bool = False
    aside: frozenset[str] = frozenset()
    of_broker: Mapping[str, Outcome] = {}

    def outcome(self, role: str, version: str) -> Outcome:
        """What a node does; beside others, or as a broker, it knows the topics that its own log lacks."""
        if role == "broker" and version[0] in self.of_broker:
            return self.of_broker[version[0]]
        known = role != "alone" and self.aside >= FORGOTTEN
        return Outcome(self.ends, frozenset() if known else self.aside)


def batches(data: bytes) -> list[tuple[int, int, int]]:
    """(base offset, place, end) of each batch of a log."""
    found, place = [], 0
    while place < len(data):
        base, length = struct.unpack_from(">qi", data, place)
        found.append((base, place, place + 12 + length))
        place += 12 + length
    return found


def naming_one(data: bytes) -> int:
    """Number of the batch that makes the first topic."""
    name = data.index(b"\4one")
    return next(number for number, (_, _, end) in enumerate(batches(data)) if name < end)


def flipped(log_dir: Path, after_one: int, byte: int) -> None:
    """Flip one bit of a batch of the metadata log.

    Args:
        log_dir: the log directory.
        after_one: how many batches after the one that makes the first topic; ``LAST``: the last batch of all.
        byte: counts from its begin, or from its end if negative.
    """
    data = bytearray((log_dir / LOG).read_bytes())
    number = LAST if after_one == LAST else naming_one(bytes(data)) + after_one
    _, start, end = batches(bytes(data))[number]
    data[(start if byte >= 0 else end) + byte] ^= 0x40
    (log_dir / LOG).write_bytes(data)


def second(log_dir: Path, **changed: str) -> dict[str, str]:
    """A second log directory, its ``meta.properties`` a copy of the first with values changed; None: no line."""
    other = log_dir.with_name("logs2")
    other.mkdir()
    text = (log_dir / "meta.properties").read_text()
    for key, value in changed.items():
        line = f"{key.replace('_', '.')}={value}\n" if value else ""
        text = re.sub(rf"(?m)^{key.replace('_', '.')}=.*\n", line, text)
    (other / "meta.properties").write_text(text)
    (other / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return {"log.dirs": f"{log_dir},{other}"}


def _above_zero(log_dir: Path) -> None:
    data = (log_dir / LOG).read_bytes()
    base, place, _ = batches(data)[naming_one(data) + 1]
    for file in (log_dir / METADATA).glob("0*"):
        file.unlink()
    (log_dir / METADATA / f"{base:020d}.log").write_bytes(data[place:])


def _moved(log_dir: Path) -> Mapping[str, str]:
    more = second(log_dir, directory_id=OTHER_ID)
    shutil.move(log_dir / METADATA, log_dir.with_name("logs2") / METADATA)
    return more


def _unformatted(log_dir: Path) -> Mapping[str, str]:
    more = second(log_dir)
    (log_dir.with_name("logs2") / "meta.properties").unlink()
    return more


def _moved_here(log_dir: Path) -> None:
    shutil.copytree(log_dir / "one-0", log_dir / f"one-0.{'a' * 32}-future")


def _zookeeper(log_dir: Path) -> None:
    path = log_dir / "meta.properties"
    path.write_text(path.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))


def _zookeeper_without_log(log_dir: Path) -> None:
    _zookeeper(log_dir)
    shutil.rmtree(log_dir / METADATA)


def written(name: str, text: str) -> Callable[[Path], None]:
    """Writes a file."""

    def make(log_dir: Path) -> None:
        (log_dir / name).write_text(text)

    return make


def _in_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def make(log_dir: Path) -> None:
        text = (log_dir / name).read_text()
        assert old in text
        (log_dir / name).write_text(text.replace(old, new))

    return make


def _behind(name: str, more: str) -> Callable[[Path], None]:
    return lambda log_dir: written(name, (log_dir / name).read_text() + more)(log_dir)


ONE = "one-0/partition.metadata"


def _behind_id(log_dir: Path) -> None:
    written(ONE, (log_dir / ONE).read_text().rstrip("\n") + "==\n")(log_dir)


STATES = (
    State("as it was", lambda log_dir: None),
    State("quorum-state empty", written(f"{METADATA}/quorum-state", ""), ends=True),
    State("quorum-state cut", written(f"{METADATA}/quorum-state", '{"leaderId":'), ends=True),
    State("quorum-state with text behind it", _behind(f"{METADATA}/quorum-state", "\0\0")),
    State("quorum-state on several lines", _in_text(f"{METADATA}/quorum-state", ",", ",\n"), ends=True),
    State(
        "quorum-state with a number in quotes",
        _in_text(f"{METADATA}/quorum-state", '"leaderEpoch":1', '"leaderEpoch":"1"'),
        ends=True,
    ),
    State(
        "quorum-state of a later version",
        _in_text(f"{METADATA}/quorum-state", '"data_version":0', '"data_version":2'),
        ends=True,
    ),
    State(
        "quorum-state with a list as its version",
        _in_text(f"{METADATA}/quorum-state", '"data_version":0', '"data_version":[]'),
    ),
    State("quorum-state missing", lambda log_dir: (log_dir / METADATA / "quorum-state").unlink()),
    State(
        "snapshot empty",
        written(f"{METADATA}/00000000000000000041-0000000001.checkpoint", ""),
        ends=True,
        of_broker={"3": Outcome(ends=False, aside=ALL)},
    ),
    State("magic of a batch flipped", lambda log_dir: flipped(log_dir, 0, 16), ends=True),
    State(
        "magic of the last batch flipped",
        lambda log_dir: flipped(log_dir, LAST, 16),
        ends=True,
    ),
    State("content in the middle flipped", lambda log_dir: flipped(log_dir, 3, -3), aside=FORGOTTEN),
    State("size of a batch flipped", lambda log_dir: flipped(log_dir, 3, 8), aside=FORGOTTEN),
    State("last batch cut", lambda log_dir: _cut(log_dir, 5)),
    State("zeros behind the log", lambda log_dir: _zeros(log_dir)),
    State("log empty", written(LOG, ""), aside=ALL),
    State("log begins above 0 without a snapshot", _above_zero, ends=True),
    State(
        "epochs of the metadata log are none", written(f"{METADATA}/leader-epoch-checkpoint", "x"), ends=True
    ),
    State("no metadata log", lambda log_dir: shutil.rmtree(log_dir / METADATA), aside=ALL),
    State("files of ZooKeeper, with the metadata log", _zookeeper),
    State("files of ZooKeeper, no metadata log", _zookeeper_without_log, aside=ALL),
    State("metadata log in the other directory", _moved, ends=True),
    State("other directory not formatted", _unformatted, ends=True),
    State("two directories of one id", second, ends=True),
    State("other directory without an id", lambda log_dir: second(log_dir, directory_id="")),
    State(
        "other directory of another cluster",
        lambda log_dir: second(log_dir, directory_id=OTHER_ID, cluster_id="a" * 22),
        ends=True,
    ),
    State(
        "other directory of another node",
        lambda log_dir: second(log_dir, directory_id=OTHER_ID, node_id="5"),
        ends=True,
    ),
    State("another node", lambda log_dir: _node(log_dir, 7), ends=True),
    State("node id with a plus", lambda log_dir: _meta(log_dir, r"node\.id=.*", "node.id=+0")),
    State("node id under the name of ZooKeeper", lambda log_dir: _meta(log_dir, "node", "broker"), ends=True),
    State("cluster id missing", lambda log_dir: _meta(log_dir, r"cluster\.id=.*", ""), ends=True),
    State("directory id missing", lambda log_dir: _meta(log_dir, r"directory\.id=.*", "")),
    State(
        "directory id empty", lambda log_dir: _meta(log_dir, r"directory\.id=.*", "directory.id="), ends=True
    ),
    State(
        "directory id reserved",
        lambda log_dir: _meta(log_dir, r"directory\.id=.*", f"directory.id={'A' * 22}"),
        ends=True,
    ),
    State("bootstrap.checkpoint empty", written("bootstrap.checkpoint", ""), ends=True),
    State("bootstrap.checkpoint of zeros", written("bootstrap.checkpoint", "\0" * 100), ends=True),
    State(
        "bootstrap.checkpoint missing",
        lambda log_dir: (log_dir / "bootstrap.checkpoint").unlink(missing_ok=True),
    ),
    State("partition.metadata missing", lambda log_dir: (log_dir / ONE).unlink(), aside=frozenset({"one-0"})),
    State("partition.metadata empty", written(ONE, ""), ends=True),
    State("topic id of zeros", written(ONE, "version: 0\ntopic_id: " + "A" * 22), ends=True),
    State("topic id with padding", _behind_id),
    State(
        "topic id of the metadata log",
        written(f"{METADATA}/partition.metadata", f"version: 0\ntopic_id: {OTHER_ID}"),
        ends=True,
    ),
    State("a replica that is moved to where it is", _moved_here, ends=True),
    State("another topic id", written(ONE, f"version: 0\ntopic_id: {OTHER_ID}"), aside=frozenset({"one-0"})),
)


def _cut(log_dir: Path, size: int) -> None:
    data = (log_dir / LOG).read_bytes()
    (log_dir / LOG).write_bytes(data[:-size])


def _zeros(log_dir: Path) -> None:
    (log_dir / LOG).write_bytes((log_dir / LOG).read_bytes() + bytes(100))


def _node(log_dir: Path, number: int) -> None:
    _meta(log_dir, "node.id=0", f"node.id={number}")


def _meta(log_dir: Path, pattern: str, line: str) -> None:
    path = log_dir / "meta.properties"
    path.write_text(re.sub(rf"(?m)^{pattern}", line, path.read_text()))


def checked(
    log_dirs: list[Path], config: Path | None, version: str = "", now_ms: int = NOW_MS
) -> CheckReport:
    """What check says of the directories of a node, by its configuration."""
    options = Options(
        engine=EngineName.INLINE,
        now_ms=now_ms,
        config=None if config is None else str(config),
        broker_version=version,
    )
    return check([str(path) for path in log_dirs], options)


def foretold(report: CheckReport) -> dict[str, str]:
    """Partition -> what its start comes to."""
    return {line.partition: line.expected for one in report.log_dirs for line in one.forecast}
