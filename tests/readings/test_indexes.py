"""Indexes rebuilt by an index fix, for a swap and for a new segment: a planted defect is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.derive.segment import RecoveredSegment, recover_segment
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.rewrite import swaps
from krepair.rewrite.indexes import segment as indexes
from krepair.rewrite.segments import stage
from tests import builders, encoders
from tests.ops import pending
from tests.ops.pending import BASE, name
from tests.readings.scenes import options

INTERVAL = (("index.interval.bytes", "200"),)


def positions_off(made: RecoveredSegment) -> RecoveredSegment:
    entries = [
        entry._replace(position=entry.position + 1) for entry in encoders.decode_offset_index(made.index)
    ]
    return replace(made, index=encoders.encode_offset_index(entries))


def offsets_off(made: RecoveredSegment) -> RecoveredSegment:
    entries = encoders.decode_offset_index(made.index)
    low = [
        entry._replace(relative_offset=1 + number if number == len(entries) - 1 else entry.relative_offset)
        for number, entry in enumerate(entries)
    ]
    return replace(made, index=encoders.encode_offset_index(low[-1:]))


def times_off(made: RecoveredSegment) -> RecoveredSegment:
    entries = encoders.decode_time_index(made.time_index)
    last = entries[-1]._replace(timestamp=entries[-1].timestamp + 1)
    return replace(made, time_index=encoders.encode_time_index([*entries[:-1], last]))


DEFECTS = [positions_off, offsets_off, times_off]
Defect = Callable[[RecoveredSegment], RecoveredSegment]


def plant(monkeypatch: pytest.MonkeyPatch, module: Any, defect: Defect) -> None:
    real = module.rebuild_offset_and_time
    monkeypatch.setattr(
        module, "rebuild_offset_and_time", lambda *given, **named: defect(real(*given, **named))
    )


def broken_indexes(root: Path) -> tuple[Path, Options]:
    directory = builders.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=200)
    for base in (0, 40):
        partition.segment(
            *(builders.data(base + 4 * n, 4, timestamp=builders.NOW_MS + base + n) for n in range(10))
        )
    directory.write()
    for suffix in (".index", ".timeindex"):
        (root / "t-0" / f"{0:020d}{suffix}").unlink()
    return root, options("index=regenerate", settings=INTERVAL)


@pytest.mark.parametrize("defect", DEFECTS)
def test_wrong_indexes_of_the_index_fix_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    root, chosen = broken_indexes(tmp_path / "logs")
    plant(monkeypatch, indexes, defect)
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.VERIFY_FAILED
    assert not list((root / "t-0").glob("*0.index"))[1:]  # nothing took its place


@pytest.mark.parametrize("defect", DEFECTS)
def test_wrong_indexes_of_a_swap_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    root, chosen = pending.write(tmp_path / "logs"), pending.options()
    plant(monkeypatch, swaps, defect)
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.VERIFY_FAILED
    assert (root / pending.FOLDER / name(BASE, ".log.swap")).exists()


def new_segment(root: Path) -> tuple[Path, Options]:
    directory = builders.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=200)
    for base in (0, 100, 200):
        batches = [builders.commit(base + n, pid=7) if n % 2 else builders.data(base + n) for n in range(40)]
        partition.segment(*batches, mtime_ms=builders.NOW_MS - 10**9)
    directory.write()
    chosen = options("markers", settings=(*INTERVAL, ("cleanup.policy", "compact")), delete_horizon="newest")
    return root, chosen


@pytest.mark.parametrize("defect", DEFECTS)
def test_wrong_indexes_of_a_new_segment_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    root, chosen = new_segment(tmp_path / "logs")
    plan = make_plan(str(root), chosen)
    assert plan.partitions[0].changes
    real = stage.index_bytes

    def wrong(*given: Any) -> tuple[bytes, bytes]:
        made = defect(
            replace(
                recover_segment(0, 0, 1, lambda *_: 0),
                **dict(zip(("index", "time_index"), real(*given), strict=True)),
            )
        )
        return made.index, made.time_index

    monkeypatch.setattr(stage, "index_bytes", wrong)
    assert apply(plan, chosen).exit_code == ExitCode.VERIFY_FAILED


def of_no_batch(offsets: Any, times: Any) -> tuple[Any, Any]:
    return offsets + np.array([0, 1]), times


def too_early(offsets: Any, times: Any) -> tuple[Any, Any]:
    return offsets, times - np.array([1, 0])


def too_late(offsets: Any, times: Any) -> tuple[Any, Any]:
    return offsets, times + np.array([1, 0])


@pytest.mark.parametrize("wrong", [of_no_batch, too_early, too_late])
def test_entries_that_are_made_wrongly_while_the_new_log_is_read_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any, Any], tuple[Any, Any]]
) -> None:
    """The proof looks at the window of which they are made, by headers that it has read itself."""

    class Wrong(stage.IndexEntries):  # type: ignore[misc,name-defined]
        def so_far(self) -> tuple[Any, Any]:
            return wrong(*super().so_far())

        def entries(self) -> tuple[Any, Any]:
            return wrong(*super().entries())

    root, chosen = new_segment(tmp_path / "logs")
    plan = make_plan(str(root), chosen)
    monkeypatch.setattr(stage, "IndexEntries", Wrong)
    assert apply(plan, chosen).exit_code == ExitCode.VERIFY_FAILED


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("bit", range(8))
def test_a_bit_of_a_new_index_that_the_disk_keeps_otherwise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, bit: int
) -> None:
    root, chosen = new_segment(tmp_path / "logs")
    plan = make_plan(str(root), chosen)
    create = RealDisk.create

    def bent(self: RealDisk, path: str, data: bytes, like: Any = None, **named: Any) -> None:
        flip = path.endswith(suffix) and data
        create(self, path, bytes([*data[:-1], data[-1] ^ 1 << bit]) if flip else data, like, **named)

    monkeypatch.setattr(RealDisk, "create", bent)
    assert apply(plan, chosen).exit_code == ExitCode.VERIFY_FAILED


SWAP_DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a record": (".log", lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], "CRC"),
    "an offset": (
        ".log",
        lambda raw: raw[:7] + bytes([raw[7] ^ 64]) + raw[8:],
        "is below the segment's base offset",
    ),
    "an index": (".index", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "is not the file of"),
    "a transaction index": (".txnindex", lambda raw: raw[:-34], "is not the file of"),
    "a shorter log": (".log", lambda raw: raw[:-1], "is not the file of"),
}


@pytest.mark.parametrize("damage", SWAP_DAMAGES)
def test_one_damage_of_a_completed_swap_is_found(tmp_path: Path, damage: str) -> None:
    root, chosen = pending.write(tmp_path / "logs"), pending.options()
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    assert verify_plan(plan, chosen).problems == ()
    suffix, edit, words = SWAP_DAMAGES[damage]
    path = root / pending.FOLDER / name(BASE, suffix)
    mtime_ns = path.stat().st_mtime_ns
    path.write_bytes(edit(path.read_bytes()))
    os.utime(path, ns=(mtime_ns, mtime_ns))
    texts = [problem.text for problem in verify_plan(plan, chosen).problems]
    assert texts
    assert words in texts[0]


def test_a_segment_that_the_swap_replaced_and_that_is_back_is_found(tmp_path: Path) -> None:
    root, chosen = pending.write(tmp_path / "logs"), pending.options()
    plan = make_plan(str(root), chosen)
    apply(plan, chosen)
    (root / pending.FOLDER / name(200)).write_bytes(b"")
    assert any(name(200) in problem.text for problem in verify_plan(plan, chosen).problems)
