"""Records that were counted when their keys were found are told as records that are counted with what stays of them."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from msgspec.structs import replace

from krepair.kernels.key_census import GROUP_COLUMNS
from krepair.ops.plan import make_plan
from krepair.options import Engine, Options
from krepair.pipeline.compaction import census, keys
from krepair.pipeline.compaction.census import CensusResult, census_of
from krepair.pipeline.compaction.fronts import KeyFronts
from krepair.pipeline.compaction.items import CompactItem, CompactResult, KeysItem, KeysResult, OffsetFile
from krepair.pipeline.compaction.tasks import compact, find_keys
from krepair.pipeline.items import Place
from tests.builders import NOW_MS
from tests.compaction.test_census import log_of

MANY = 1 << 16
PRODUCER, FROM, UP_TO = 1, 100, 700
ABORTED = np.array([[PRODUCER, FROM, UP_TO]], np.int64).tobytes()


def keys_item(root: Path, log: bytes, *, aborted: bytes = b"", most_groups: int = MANY) -> KeysItem:
    """A segment with this log, whose records are counted when its keys are found."""
    folder = root / "__consumer_offsets-0"
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020d}.log").write_bytes(log)
    place = Place(
        host=socket.gethostname(), log_dir=str(root), log_dir_inode=root.stat().st_ino, folder=folder.name
    )
    return KeysItem(
        place=place, base_offset=0, size=len(log), aborted=aborted, secret=bytes(range(16)), rows_inline=MANY,
        scratch="", most_groups=most_groups,
    )  # fmt: skip


def found(item: KeysItem) -> KeysResult:
    result = find_keys(item)
    assert (result.failure, result.problem) == ("", "")
    assert result.records > 1000
    return result


def compact_item(
    item: KeysItem, end: int, chance: random.Random, *, forced: bool, late: bool = False
) -> CompactItem:
    """The same segment, of which some records stay; or none of the first ones."""
    stays = np.array(sorted(chance.sample(range(end // 2 if late else 0, end), end // 9)), np.int64)
    return CompactItem(
        place=item.place, base_offset=0, next_base=end, size=item.size, now_ms=NOW_MS, high_watermark=end,
        protected=(), drop_unstamped=chance.random() < 0.5, aborted=item.aborted,
        stays=(OffsetFile(data=stays.tobytes()),), forced=int(stays[5]) + 1 if forced else -1, keyless=False,
        held=(OffsetFile(data=stays[::2].tobytes()),), most_groups=MANY,
    )  # fmt: skip


def told(result: CompactResult) -> CensusResult:
    assert result.census is not None
    return census_of([result.census])


def without_frame(told_so: CensusResult, frame: int) -> CensusResult:
    """As told by the later reading, which does not count the frame of a record that is larger than its buffer."""
    kinds = [
        replace(kind, bytes_before=kind.bytes_before - (frame if "version 1)" in kind.kind else 0))
        for kind in told_so.kinds
    ]
    groups = [
        replace(group, bytes_before=group.bytes_before - (frame if group.group == "g" else 0))
        for group in told_so.groups
    ]
    return replace(told_so, kinds=tuple(kinds), groups=tuple(groups))


@pytest.mark.parametrize("forced", [False, True], ids=["free", "forced"])
@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "committed"])
@pytest.mark.parametrize("other", ["", "old", "large", "packed"])
@pytest.mark.parametrize("seed", range(3))
def test_what_was_counted_with_the_keys_ends_as_what_is_counted_with_what_stays(
    tmp_path: Path, seed: int, other: str, *, transactions: bool, forced: bool
) -> None:
    chance = random.Random(f"{seed} {other}")
    log, end = log_of(chance, other, transactions=transactions, keyless=False)
    item = keys_item(tmp_path, log)
    counted = found(item).census
    assert counted is not None
    whole = compact_item(item, end, chance, forced=forced)
    expected = compact(whole)
    at_once = compact(replace(whole, counted=counted))
    assert replace(at_once, census=None) == replace(expected, census=None)
    frame = 4 + 1 + 1 + 1 + 1 + 4 + 1 if other == "large" else 0
    assert without_frame(told(at_once), frame) == told(expected)


@pytest.mark.parametrize("other", ["", "old", "packed"])
def test_windows_of_which_nothing_stays_are_passed_over_and_nothing_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    chance = random.Random(f"late {other}")
    log, end = log_of(chance, other, keyless=False)
    item = keys_item(tmp_path, log)
    whole = compact_item(item, end, chance, forced=False, late=True)
    expected = compact(whole)
    monkeypatch.setattr("krepair.pipeline.compaction.log.WINDOW_BYTES", 1 << 13)
    read: list[int] = []
    take_window = census._Tables.take_window  # the test looks at which windows are read

    def noted(tables: Any, *arguments: Any) -> int:
        read.append(1)
        return take_window(tables, *arguments)

    monkeypatch.setattr(census._Tables, "take_window", noted)
    counted = found(item).census
    assert told(compact(replace(whole, counted=counted))) == told(expected)
    assert 0 < len(read) < (len(log) >> 13) * 3 // 4


@pytest.mark.parametrize("rows", [1 << 6, 1 << 9])
def test_a_table_of_keys_that_is_emptied_or_grows_loses_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    log, _ = log_of(random.Random(4), "packed", keyless=False)
    item = keys_item(tmp_path, log)
    counted = found(item).census
    assert counted is not None
    monkeypatch.setattr(keys, "_FIRST_ROWS", 16)
    grown = found(item).census
    assert grown is not None
    assert census_of([grown]) == census_of([counted])
    monkeypatch.setattr("krepair.pipeline.compaction.tasks.TABLE_ROWS", rows)
    monkeypatch.setattr("krepair.pipeline.compaction.tasks.KeysResult", lambda **some: some)
    files: list[object] = []
    with mock.patch(
        "krepair.pipeline.compaction.tasks.write_scratch", side_effect=lambda *_: files.append(1)
    ):
        result: dict[str, Any] = find_keys(replace(item, scratch="there"))  # type: ignore[assignment]
    assert files
    assert census_of([result["census"]]) == census_of([counted])


def test_records_without_a_key_or_of_an_aborted_transaction_leave_the_counting_to_the_later_reading(
    tmp_path: Path,
) -> None:
    log, _ = log_of(random.Random(5), "", keyless=True)
    assert found(keys_item(tmp_path, log)).census is None
    log, _ = log_of(random.Random(5), "", keyless=False)
    assert found(keys_item(tmp_path, log)).census is not None
    with_aborted = found(keys_item(tmp_path, log, aborted=ABORTED))
    assert with_aborted.aborted_records
    assert with_aborted.census is None


def test_of_more_fronts_than_there_is_room_for_nothing_is_told_and_the_keys_are_found(tmp_path: Path) -> None:
    log, _ = log_of(random.Random(6), "", keyless=False)
    item = keys_item(tmp_path, log)
    whole = found(item)
    assert whole.census is not None
    groups = len(whole.census.groups) // (8 * GROUP_COLUMNS)
    few = found(replace(item, most_groups=groups - 1))
    assert few.census is None
    assert few == replace(whole, census=None)
    assert found(replace(item, most_groups=0)) == few


def test_names_that_are_longer_than_there_is_room_for_are_not_told(tmp_path: Path) -> None:
    log, _ = log_of(random.Random(6), "", keyless=False)
    item = keys_item(tmp_path, log)
    with mock.patch("krepair.pipeline.compaction.fronts._NAME_BYTES", 1):
        assert found(replace(item, most_groups=1 << 12)).census is None


def test_a_plan_tells_the_same_of_groups_whether_they_were_counted_with_the_keys_or_later(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    folder = tmp_path / "logs" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    offset = 0
    for other in ("", "packed", "old", ""):
        log, end = log_of(chance, other, offset, transactions=False, keyless=False)
        (folder / f"{offset:020d}.log").write_bytes(log)
        offset = end
    (tmp_path / "logs" / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=some\n")
    (tmp_path / "logs" / ".kafka_cleanshutdown").touch()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "logs" / name).write_text(f"0\n1\n__consumer_offsets 0 {offset}\n")
    options = Options(engine=Engine.INLINE, now_ms=NOW_MS, fixes=("compact",), only_replica=("*",))
    with_keys = make_plan(str(tmp_path / "logs"), options)
    with mock.patch.object(KeyFronts, "counted", return_value=None):
        later = make_plan(str(tmp_path / "logs"), options)
    compaction = with_keys.partitions[0].compaction
    assert compaction is not None
    assert compaction.groups
    assert with_keys.partitions == later.partitions
