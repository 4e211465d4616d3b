"""Messages of v0 and v1, plain and in wrappers of every codec, against the cleaner of 2.2.1 and 2.8.2."""

from __future__ import annotations

import gzip
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.formats import message_set as ms
from krepair.formats.damage import Damage
from krepair.rules.model import LeftAlone
from tests.builders import NOW_MS, Batch, LogDir, data
from tests.compaction.compacting import Compacted, compacted, proven, written
from tests.compaction.directories import through_verbs
from tests.compaction.judged import below, shown
from tests.compaction.old_formats import partition_of, policy
from tests.compaction.trying import SETTINGS, UNLIMITED
from tests.lab.judge import Judge
from tests.old_messages import plain, raw_message


def records(log: bytes) -> list[tuple[object, ...]]:
    """Every record with what its entry says of it."""
    out: list[tuple[object, ...]] = []
    position = 0
    while position < len(log):
        size = 12 + int(struct.unpack_from(">i", log, position + 8)[0])
        raw = log[position : position + size]
        position += size
        if raw[16] == 2:
            out += [("v2", *record) for record in shown(raw).records]
            continue
        placed = next(ms.messages(raw))
        assert isinstance(placed, ms.PlacedMessage)
        message = placed.message
        inner = ms.inner_messages(message) if message.is_wrapper else (message,)
        assert not isinstance(inner, Damage)
        wrapper = (message.magic, message.codec, message.offset, message.timestamp)
        out += [(*wrapper, one.offset, one.timestamp, one.key, one.value) for one in inner]
    return out


@pytest.mark.broker
@pytest.mark.parametrize("version", ["2.2.1", "2.8.2"])
def test_old_messages_are_compacted_as_by_the_cleaner_and_verified(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(16):
        folder, log_end = partition_of(seed, tmp_path / str(seed))
        horizon = 0 if seed % 3 == 0 else UNLIMITED
        ours = compacted(folder, policy(log_end, horizon))
        end = ours.done.decision.span.end_offset
        results = written(ours.logs, folder, folder / "krepair~results")
        assert proven(folder, ours, results).why == ""
        shutil.rmtree(results)
        reached = judge(version).fixpoint(folder, horizon=horizon, end=end, settings=SETTINGS, now_ms=NOW_MS)
        assert reached.reached
        mine = b"".join(log for base, log in ours.logs.items() if base < end)
        forced = ours.done.total.forced
        theirs = records(below(folder, end))
        assert [one for one in records(mine) if forced == 0 or one in theirs] == theirs
        seen["superseded"] += ours.done.total.superseded
        seen["rewritten"] += ours.done.total.rewritten
        seen["gone"] += ours.done.total.old_gone
    assert min(seen["superseded"], seen["rewritten"], seen["gone"]) > 20


@pytest.mark.parametrize("seed", range(12))
def test_old_messages_and_wrappers_that_lose_some_go_through_plan_apply_verify_and_undo(
    seed: int, tmp_path: Path
) -> None:
    folder, log_end = partition_of(seed, tmp_path)
    rules = policy(log_end, 0 if seed % 3 == 0 else UNLIMITED)
    ours = compacted(folder, rules)
    assert ours.done.changed
    assert through_verbs(folder, rules) == ours.logs


def made(root: Path, *segments: list[Batch], horizon_ms: int = UNLIMITED) -> tuple[Path, Compacted]:
    partition = LogDir(root).partition("t")
    for batches in segments:
        partition.segment(*batches)
    folder = partition.write(snapshots=False)
    return folder, compacted(folder, policy(partition.log_end, horizon_ms))


def test_a_span_of_old_messages_that_would_be_empty_keeps_its_last_message_whole(tmp_path: Path) -> None:
    _, ours = made(tmp_path, [plain(0), plain(1, None)], [data(2, 1)])
    assert ours.logs[0] == plain(1, None).raw
    assert (ours.done.total.forced, ours.done.total.tombstones_kept) == (1, 1)


def test_the_last_message_of_an_empty_group_is_taken_out_of_its_wrapper(tmp_path: Path) -> None:
    inner = tuple(ms.Message(offset, 1, 0, NOW_MS, b"key", b"1") for offset in (0, 1))
    raw = ms.encode_message(ms.wrap(inner, 1))
    wrapper = Batch(raw, 0, 1, 0, -1, -1, -1, NOW_MS, 1)
    folder, ours = made(tmp_path, [wrapper], [plain(2, None)], [data(3, 1)])
    # one group of both segments: its last message is the tombstone
    assert ours.logs[0] == plain(2, None).raw
    results = written(ours.logs, folder, folder / "krepair~results")
    assert proven(folder, ours, results).why == ""


def test_a_wrapper_whose_messages_are_of_another_format_leaves_the_partition_alone(tmp_path: Path) -> None:
    inner = raw_message(0, b"value", magic=0, key=b"a") + raw_message(1, b"value", magic=0, key=b"b")
    raw = raw_message(1, gzip.compress(inner, mtime=0), magic=1, attributes=1)
    _, ours = made(tmp_path, [Batch(raw, 0, 1, 0, -1, -1, -1, NOW_MS, 1)], [data(2, 1)])
    assert isinstance(ours.compaction, LeftAlone)
    assert (ours.compaction.code, ours.compaction.damaged) == ("compacted-content", True)
    assert "00000000000000000000.log, position 0" in ours.compaction.why


def other(offset: int) -> Batch:
    """A message of v1 of another key."""
    raw = raw_message(offset, b"value", magic=1, timestamp=NOW_MS, key=b"other")
    return replace(plain(offset), raw=raw)


def test_a_tombstone_stays_above_a_value_that_stays_only_as_the_last_of_its_group(tmp_path: Path) -> None:
    """Without merging, the first segment keeps its only message; without its tombstone the value would be back."""
    partition = LogDir(tmp_path).partition("t")
    for batches in ([plain(0)], [plain(1, None), other(2)], [data(3, 1)]):
        partition.segment(*batches)
    folder = partition.write(snapshots=False)
    ours = compacted(folder, replace(policy(partition.log_end), merge=False))
    results = written(ours.logs, folder, folder / "krepair~results")
    assert ours.logs[0] == plain(0).raw
    assert ours.logs[1] == plain(1, None).raw + other(2).raw
    assert (ours.done.total.forced, ours.done.total.held, ours.done.total.tombstones_dropped) == (1, 1, 0)
    assert proven(folder, ours, results).why == ""


def test_a_result_without_the_tombstone_of_a_value_that_stays_is_refused(tmp_path: Path) -> None:
    partition = LogDir(tmp_path).partition("t")
    for batches in ([plain(0)], [plain(1, None), other(2)], [data(3, 1)]):
        partition.segment(*batches)
    folder = partition.write(snapshots=False)
    ours = compacted(folder, replace(policy(partition.log_end), merge=False))
    results = written({**ours.logs, 1: other(2).raw}, folder, folder / "krepair~results")
    why = proven(folder, ours, results).why
    assert "the tombstone at offset 1 is gone, but an older record of its key stays" in why


@pytest.mark.parametrize("seed", range(40))
def test_no_old_value_stays_without_the_tombstone_above_it(seed: int, tmp_path: Path) -> None:
    """Of each key: if a value stays, so does the last record of the key."""
    folder, log_end = partition_of(seed, tmp_path)
    ours = compacted(folder, replace(policy(log_end), merge=seed % 4 == 0))
    end = ours.done.decision.span.end_offset
    before: dict[object, object] = {}
    for one in records(below(folder, end)):
        before[one[6]] = one[4]
    left: dict[object, set[object]] = {}
    for one in records(b"".join(log for base, log in ours.logs.items() if base < end)):
        left.setdefault(one[6], set()).add(one[4])
    assert all(before[key] in offsets for key, offsets in left.items())
