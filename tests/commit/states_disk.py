"""A disk that remembers each of its states, and what the loader of a broker makes of one."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection
from pathlib import Path

from krepair.formats.checkpoint import decode_offsets
from tests.commit import txfixture
from tests.commit.scene import UnsyncedDisk, tree
from tests.durable.disks import NAME_CHANGING, Call, PassingDisk
from tests.lab.judge import Judge, Loaded, Reading


class StatesDisk(PassingDisk):
    """Keeps a copy of the directory after every call of some kinds, once per state that a broker can tell."""

    def __init__(self, root: Path, states: Path, kinds: Collection[str] = NAME_CHANGING) -> None:
        super().__init__(UnsyncedDisk())
        self.root = root
        self.kinds = kinds
        self.states = states
        self.seen: dict[str, Path] = {}
        self.calls: dict[str, str] = {}
        self.take("start")

    def _before(self, call: Call) -> None:
        return

    def _after(self, call: Call) -> None:
        if call.kind in self.kinds:
            self.take(call.shown(str(self.root)))

    def take(self, shown: str) -> None:
        state = {path: each for path, each in tree(self.root, private=False).items() if path != ".lock"}
        digest = hashlib.sha256(repr(sorted(state.items())).encode()).hexdigest()
        if digest not in self.seen:
            copy = self.states / f"{len(self.seen):03d}"
            shutil.copytree(self.root, copy)
            self.seen[digest] = copy
            self.calls[copy.name] = shown


def load(judge: Judge, root: Path) -> Loaded:
    """As a broker of that version would start on the directory: clean or not, from its recovery point."""
    points = decode_offsets((root / "recovery-point-offset-checkpoint").read_bytes()).entries
    point = next(entry.offset for entry in points if entry.topic == "t")
    clean = (root / ".kafka_cleanshutdown").exists()
    return judge.load(
        root / "t-0", clean=clean, recovery_point=point, settings=txfixture.SETTINGS, list_records=True
    )


def sources(reading: Reading) -> list[tuple[int, str]]:
    """(offset, file it came from) of each record."""
    return [(r.offset, bytes.fromhex(r.value or "").split(b"|")[0].decode()) for r in reading.records]


def verdict(loaded: Loaded) -> str:
    """OLD, NEW, or what is wrong; small fetches are compared by the digest."""
    if (loaded.log_end, loaded.stable_offset) != (txfixture.END, txfixture.STABLE):
        return f"end {loaded.log_end}, stable {loaded.stable_offset}"
    if loaded.committed.digest != loaded.committed_in_small_fetches:
        return "small fetches differ"
    if any(reading.stuck or reading.repeats for reading in (loaded.uncommitted, loaded.committed)):
        return "stuck or repeated"
    for word, new in (("OLD", False), ("NEW", True)):
        if sources(loaded.uncommitted) == txfixture.readable(new=new, committed=False):
            expected = txfixture.readable(new=new, committed=True)
            wrong = set(sources(loaded.committed)) ^ set(expected)
            return word if not wrong else f"{word}, committed differs at {sorted(wrong)[:5]}"
    return "MIX"


def verdicts(judge: Judge, disk: StatesDisk) -> dict[str, str]:
    """Per call that made a new state: what a broker serves."""
    out = {}
    for copy in disk.seen.values():
        out[f"{copy.name} {disk.calls[copy.name]}"] = verdict(load(judge, copy))
        shutil.rmtree(copy)
    return out
