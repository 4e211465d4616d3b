"""More keys than the tables hold go through files in a scratch folder, with the same result."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable.scratch import make_scratch, remove_scratch
from krepair.rewrite.compaction import check as compaction_check
from krepair.rewrite.compaction import log as compaction_log
from krepair.rewrite.compaction import partitions as compaction
from krepair.rewrite.compaction import proof as compaction_proof
from krepair.rewrite.compaction import tasks as compaction_tasks
from krepair.rules.model import Skipped
from tests import codecs, naive
from tests.builders import NOW_MS, LogDir, Record, data
from tests.compaction import histories, twin
from tests.compaction.compacting import compacted, proven, written
from tests.compaction.trying import twin_rules, with_twin
from tests.rules.scanned import Held, policy_of
from tests.strategies import Shape


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of sixteen rows, and nothing that travels in results."""
    monkeypatch.setattr(compaction_tasks, "TABLE_ROWS", 16)
    monkeypatch.setattr(compaction_check, "_TABLE_ROWS", 16)
    monkeypatch.setattr(compaction_check, "_FIRST_ROWS", 16)
    monkeypatch.setattr(compaction, "_INLINE_BYTES", 0)
    monkeypatch.setattr(compaction, "_MIN_ROWS_INLINE", 0)
    monkeypatch.setattr(compaction, "_OFFSETS_INLINE", 0)
    monkeypatch.setattr(compaction, "_JOIN_ROWS", 4)
    monkeypatch.setattr(compaction_proof, "_INLINE_BYTES", 0)
    monkeypatch.setattr(compaction_proof, "_MIN_ROWS_INLINE", 0)


SHAPE = Shape(segments=5, steps=20, tombstones=True)


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("unique_keys", [False, True], ids=["few keys", "every key once"])
def test_keys_that_do_not_fit_into_memory_give_the_same_result(tmp_path: Path, *, unique_keys: bool) -> None:
    scratch = make_scratch("/dev/shm" if Path("/dev/shm").is_dir() else str(tmp_path), [], asked=True)
    try:
        shape = Shape(segments=5, steps=20, tombstones=True, unique_keys=unique_keys)
        made = histories.of_seed(5, codecs=True, shape=shape)
        with_twin(tmp_path / "t", made, twin_rules(5), scratch=scratch)
        names = {path.name.partition("-")[0] for path in Path(scratch).iterdir()}
        assert names == {"keys", "stays", "checked"}
    finally:
        remove_scratch(scratch)
    assert not Path(scratch).exists()


@pytest.mark.usefixtures("small_tables")
def test_without_a_scratch_folder_the_partition_is_left_alone_and_says_why(tmp_path: Path) -> None:
    made = histories.of_seed(5, codecs=False, shape=SHAPE)
    folder = made.fill(LogDir(tmp_path).partition("t")).write()
    segments, snapshots = naive.read_partition(folder)
    found = compacted(folder, policy_of(twin_rules(5), Held(tuple(segments), snapshots)))
    assert isinstance(found.compaction, Skipped)
    assert "a scratch folder is needed" in found.compaction.why


def test_a_batch_too_large_to_be_held_is_packed_again_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_log, "_HELD_BYTES", 10)
    for seed in (1, 2, 3):
        made = histories.of_seed(seed, codecs=True, shape=SHAPE)
        done = with_twin(tmp_path / str(seed), made, twin_rules(seed)).ours.done
        assert done.total.rewritten > 3


def test_a_batch_larger_than_the_window_is_packed_again_with_the_same_bytes(tmp_path: Path) -> None:
    chance = random.Random(3)
    records = [Record(b"%d" % (number % 70), chance.randbytes(40_000)) for number in range(100)]
    first = data(0, records, timestamp=NOW_MS - 5)
    for codec in range(5):
        partition = LogDir(tmp_path / str(codec)).partition("t")
        raw = codecs.packed(first.raw, codec)
        partition.segment(replace(first, raw=raw)).segment(data(100, 1))
        folder = partition.write(snapshots=False)
        segments, snapshots = naive.read_partition(folder)
        rules = twin_rules(0)
        found = compacted(folder, policy_of(rules, Held(tuple(segments), snapshots)))
        assert found.logs == twin.compact(segments, rules, snapshots).markers.logs
        results = written(found.logs, folder, folder / "krepair~results")
        assert (proven(folder, found, results).why, found.done.total.kept) == ("", 70)
