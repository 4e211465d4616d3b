"""A log directory of three small partitions that a plan changes in every way, and runs of each verb on both."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests import builders
from tests.builders import NOW_MS, data
from tests.corpus.bases import bloat
from tests.hostile.verbs import ALL_FIXES, Ran, run

PARTITIONS = ("m-0", "i-0", "c-0")
"""Markers go from the first, indexes of the second are made anew, the end of the third is cut off."""
WORDS = (
    *(
        "--fix",
        ALL_FIXES,
        "--engine",
        "inline",
        "--delete-horizon",
        "4000000000000",
        "--set",
        "cleanup.policy=compact",
        "--only-replica",
        "*",
    ),
    *("--set", "index.interval.bytes=100"),
)


def write(root: Path) -> Path:
    """Write it; returns the log directory."""
    directory = builders.LogDir(root)
    bloat(directory.partition("m", index_interval_bytes=100))
    for topic in ("i", "c"):
        partition = directory.partition(topic, index_interval_bytes=100)
        partition.segment(*(data(offset, 2, timestamp=NOW_MS) for offset in range(0, 10, 2)))
        partition.segment(*(data(offset, 2, timestamp=NOW_MS) for offset in range(10, 20, 2)))
    path = directory.write(clean_stop=True)
    with (path / "i-0" / f"{0:020d}.index").open("ab") as index:
        index.write(bytes(80))
    (path / "i-0" / f"{0:020d}.timeindex").write_bytes(b"\x7f" * 12)
    with (path / "c-0" / f"{10:020d}.log").open("ab") as log:
        log.write(b"torn")
    (path / "cleaner-offset-checkpoint").write_bytes(b"0\n2\nm 0 1\n")
    return path


@dataclass
class Scene:
    """The directory and its plan.

    Attributes:
        root: of everything.
    """

    root: Path

    @property
    def log_dir(self) -> Path:
        return self.root / "logs"

    @property
    def plan(self) -> Path:
        return self.root / "p.plan"

    def anew(self) -> None:
        """The directory as it is before its first plan."""
        shutil.rmtree(self.log_dir, ignore_errors=True)
        for plan in self.root.glob("*.plan"):
            plan.unlink()
        write(self.log_dir)

    def words(self, verb: str) -> tuple[str, ...]:
        """How a verb is called."""
        words = {
            "check": (str(self.log_dir), "--engine", "inline"),
            "plan": (str(self.log_dir), *WORDS, "--out", str(self.plan)),
            "verify": (str(self.plan), "--originals", "--engine", "inline"),
            "apply": (str(self.plan), "--engine", "inline"),
            "explain": ("KR101",),
        }
        return words.get(verb, (str(self.plan),))

    def run(self, verb: str) -> Ran:
        """Run a verb."""
        return run(verb, *self.words(verb))
