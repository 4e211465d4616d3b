"""What is copied is read again from the file before it is swapped in: no byte can be another or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from tests.ops.scene import TV2, scene, tree

Bend = Callable[[int, bytearray], tuple[int, bytearray]]


def flipped(place: int) -> Bend:
    def bend(position: int, data: bytearray) -> tuple[int, bytearray]:
        data[place] ^= 1
        return position, data

    return bend


BENDS: dict[str, Bend] = {
    "base offset": flipped(7),
    "leader epoch, which no CRC of a batch covers": flipped(15),
    "magic": flipped(16),
    "attributes": flipped(22),
    "last byte": flipped(-1),
    "one byte later": lambda position, data: (position + 1, data),
    "the end is missing": lambda position, data: (position, data[:-60]),
    "zeros": lambda position, data: (position, bytearray(len(data))),
}


@pytest.mark.parametrize("bend", BENDS)
def test_what_a_disk_keeps_otherwise_than_it_was_copied_is_never_swapped_in(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, bend: str
) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    before = tree(one.path)
    bent: list[str] = []
    write_at = RealDisk.write_at

    def write(self: RealDisk, path: str, position: int, pieces: list[memoryview]) -> int:
        data = bytearray(b"".join(pieces))
        if bent or not path.endswith(".log"):
            return write_at(self, path, position, pieces)
        bent.append(path)
        at, kept = BENDS[bend](position, data)
        write_at(self, path, at, [memoryview(kept)])
        return len(data)

    monkeypatch.setattr(RealDisk, "write_at", write)
    report = apply(plan, one.options())
    assert bent
    folder = bent[0].removeprefix(f"{one.path}/").partition("/")[0]
    (failed,) = [result for result in report.results if result.outcome == "failed"]
    assert (failed.partition, failed.exit_code) == (folder, ExitCode.VERIFY_FAILED)
    now = tree(one.path)
    mine = {name for name in before if name.startswith(f"{folder}/") and "krepair~" not in name}
    assert {name: now[name] for name in mine} == {name: before[name] for name in mine}
    monkeypatch.undo()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
