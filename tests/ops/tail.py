"""Logs with a torn end or with damage in the middle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.plan.model import Plan
from tests import builders as b
from tests.ops.inline import Inline

PER_BATCH = 5
PER_SEGMENT = 10
INTERVAL = 200
KEY = (("index.interval.bytes", str(INTERVAL)),)
options = Inline(now_ms=b.NOW_MS + 60_000, fixes=("tail",), settings=KEY).options


@dataclass
class Torn:
    """A partition of segments of ten batches of five records, and what was done to it."""

    root: Path

    @classmethod
    def make(
        cls, root: Path, segments: int = 4, *, clean_stop: bool = False, recovery_point: int = 0
    ) -> Torn:
        directory = b.LogDir(root)
        partition = directory.partition("t", index_interval_bytes=INTERVAL)
        for number in range(segments):
            base = number * PER_BATCH * PER_SEGMENT
            partition.segment(
                *(b.data(base + PER_BATCH * n, PER_BATCH, leader_epoch=number) for n in range(PER_SEGMENT))
            )
        directory.write(clean_stop=clean_stop)
        (root / ".lock").touch()  # as 2.2 leaves it
        end = partition.log_end if clean_stop else recovery_point
        (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {end}\n")
        return cls(root)

    @property
    def folder(self) -> Path:
        return self.root / "t-0"

    def log(self, number: int) -> Path:
        return self.folder / f"{number * PER_BATCH * PER_SEGMENT:020d}.log"

    def places(self, number: int) -> list[int]:
        """Where the batches of a segment begin, and where the last one ends."""
        raw, places = self.log(number).read_bytes(), [0]
        while places[-1] < len(raw):
            places.append(places[-1] + 12 + int.from_bytes(raw[places[-1] + 8 : places[-1] + 12], "big"))
        return places

    def write(self, number: int, data: bytes) -> None:
        """New bytes, the same modification time."""
        path = self.log(number)
        found = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    def flip(self, number: int, position: int) -> None:
        self.flip_with(number, position, 0x40)

    def flip_with(self, number: int, position: int, value: int) -> None:
        raw = bytearray(self.log(number).read_bytes())
        raw[position] ^= value
        self.write(number, bytes(raw))

    def tear(self, data: bytes) -> None:
        """Bytes behind the last segment's last batch."""
        last = len(list(self.folder.glob("*.log"))) - 1
        self.write(last, self.log(last).read_bytes() + data)

    def plan(self, **given: object) -> Plan:
        return make_plan(str(self.root), options(**given))

    def check(self, **given: object) -> LogDirReport:
        return check([str(self.root)], options(**given)).log_dirs[0]

    def offsets(self) -> list[int]:
        """First offsets of all batches, read by a parser of the test's own."""
        found = []
        for path in sorted(self.folder.glob("*.log")):
            raw, place = path.read_bytes(), 0
            while place < len(raw):
                found.append(int.from_bytes(raw[place : place + 8], "big"))
                place += 12 + int.from_bytes(raw[place + 8 : place + 12], "big")
            assert place == len(raw)
        return found


def all_first_offsets(segments: int = 4) -> list[int]:
    return list(range(0, segments * PER_BATCH * PER_SEGMENT, PER_BATCH))


TAILS = {
    "part of a batch": b.data(200, PER_BATCH).raw[:100],
    "part of a header": b.data(200, PER_BATCH).raw[:30],
    "one byte": b"\x07",
    "zeros": bytes(4096),
    "a whole batch with a wrong checksum": b.data(200, 3).raw[:-1] + b"\xff",
    "garbage": b"\xa5" * 300,
    "a batch, then zeros where its end should be": b.data(200, PER_BATCH).raw[:90] + bytes(60),
}


def damaged(root: Path) -> Torn:
    """A flipped bit in the fourth batch of the second segment: offsets 65 to 69."""
    torn = Torn.make(root)
    torn.flip(1, torn.places(1)[3] + 80)
    return torn


CONSENT = "KR302:t-0:65"
WAYS: dict[str, dict[str, object]] = {
    "torn tail": {},
    "excise": {"accepted_losses": (CONSENT,)},
    "broker": {"fixes": ("tail=broker",), "accepted_losses": (CONSENT,)},
}


def prepared(root: Path, way: str) -> Torn:
    torn = Torn.make(root, segments=3)
    if way == "torn tail":
        torn.tear(b.data(150, 5).raw[:77])
    else:
        torn.flip(1, torn.places(1)[3] + 80)
    (torn.folder / torn.log(1).with_suffix(".index").name).write_bytes(bytes(4096))
    return torn
