"""Many small log directories as the ``log.dirs`` of one broker."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.corpus.bases import BASES, KEEP, MARKER, POINTS, WATERMARKS, Made
from tests.corpus.case import Case
from tests.lab import client
from tests.lab.broker import Broker, Topic, release

PROPS = {"log.retention.check.interval.ms": 3_600_000}
Read = list[tuple[int, bytes | None, bytes | None]]


def topic_of(base: str) -> Topic:
    """The topic of a case on that base; nothing is deleted by time, the records are of the past."""
    return Topic(1, dict(BASES[base].config) | KEEP, {0: BASES[base].leader_epoch})


def gather(root: Path, moved: Iterable[tuple[Case, Made]], healthy: Iterable[str]) -> list[Path]:
    """Two log directories, one cleanly stopped and one not, that take the partition folders of others.

    Args:
        root: where they are made.
        moved: cases with their directories, whose partition folders go there.
        healthy: bases of which a healthy partition goes there too, as topic ``healthy-<base>``.
    """
    rows: dict[Path, list[tuple[str, int]]] = {root / "clean": [], root / "unclean": []}
    for path in rows:
        path.mkdir(parents=True)
    for case, directory in moved:
        target = root / ("clean" if (directory.log_dir / MARKER).exists() else "unclean")
        shutil.move(directory.folder, target)
        rows[target].append((directory.topic, BASES[case.base].end))
    for base in healthy:
        name = healthy_name(base)
        whole = BASES[base].write(root / f"of-{name}", name)
        shutil.move(whole.folder, root / "clean")
        shutil.rmtree(root / f"of-{name}")
        rows[root / "clean"].append((name, BASES[base].end))
    (root / "clean" / MARKER).touch()
    for path, lines in rows.items():
        text = "".join(f"{topic} 0 {end}\n" for topic, end in lines)
        for name in (POINTS, WATERMARKS):
            (path / name).write_text(f"0\n{len(lines)}\n{text}")
    return list(rows)


def healthy_name(base: str) -> str:
    """Topic of the healthy partition of a base."""
    return f"healthy-{base}".replace(" ", "-")


def broker_on(
    version: str, dirs: list[Path], topics: dict[str, Topic], work: Path, *, cleaner: bool = False
) -> Broker:
    """A broker with all these log directories, made ready to start."""
    props = PROPS | {"log.dirs": ",".join(map(str, dirs)), "log.cleaner.enable": str(cleaner).lower()}
    broker = Broker(version, dirs[0], props, topics, work_dir=work)
    if release(version) < (3, 0):
        for path in dirs:
            (path / "meta.properties").write_text("version=0\nbroker.id=0\n")
        return broker
    broker._prepare_kraft()
    meta = (dirs[0] / "meta.properties").read_text()
    seed = broker._seed() / "logs"
    for path in dirs[1:]:
        own = base64.urlsafe_b64encode(hashlib.md5(str(path).encode()).digest()).decode().rstrip("=")
        lines = [
            f"directory.id={own}" if line.startswith("directory.id") else line for line in meta.splitlines()
        ]
        (path / "meta.properties").write_text("\n".join(lines) + "\n")
        for folder in path.iterdir():
            if (seed / folder.name).is_dir():
                shutil.copy(seed / folder.name / "partition.metadata", folder)
    return broker


def read_everything(bootstrap: str, topics: Iterable[str], done: Callable[[], bool]) -> dict[str, Read]:
    """Offset, key and value of every record of partition 0 of each topic.

    Args:
        bootstrap: of the broker.
        topics: whose partitions are read to their ends.
        done: called now and then; reading ends when it says so, whatever was read.
    """
    found = client.read_to_the_end(bootstrap, dict.fromkeys(topics, (0,)), "read_uncommitted", done)
    return {topic: list(records) for (topic, _), records in found.items()}
