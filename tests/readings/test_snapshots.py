"""A producer snapshot read again: the replay of any history gives it, one wrong field or a planted defect does not."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import producer_snapshot
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from krepair.ops.verify import verify_plan
from krepair.pipeline.readings import snapshots as readings
from krepair.rules.snapshots import ProducerTable
from tests import builders, strategies
from tests.builders import NOW_MS, abort, commit, data
from tests.ops import snapshots
from tests.readings.scenes import FOLDER, Applied, applied, options, read_instead

END = "00000000000000000015.snapshot"


def written(root: Path, *segments: list[builders.Batch]) -> Path:
    """Segments without a snapshot."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    for batches in segments:
        partition.segment(*batches)
    return without_snapshots(directory.write())


def without_snapshots(log_dir: Path, first: int = 0) -> Path:
    """Only so many of the snapshots stay."""
    for path in sorted((log_dir / FOLDER).glob("*.snapshot"))[first:]:
        path.unlink()
    return log_dir


def made(folder: Path, **given: object) -> Applied:
    """Without a snapshot: an epoch that rises, an abort, an open transaction, a marker alone."""
    return applied(without_snapshots(snapshots.made(folder)), options("snapshots", **given))


def entries(done: Applied) -> tuple[ProducerEntry, ...]:
    found = producer_snapshot.decode((done.folder / END).read_bytes())
    assert isinstance(found, ProducerSnapshot)
    return found.entries


@pytest.mark.parametrize("version", ["", "2.2.1", "3.9.2"])
def test_what_the_first_implementation_makes_is_right(tmp_path: Path, version: str) -> None:
    done = made(tmp_path, broker_version=version)
    assert len(entries(done)) == (3 if version == "2.2.1" else 4)  # it forgets one known by a marker alone
    assert done.problems() == []
    assert verify_plan(done.plan, done.options).problems == ()


@pytest.mark.parametrize("field", ProducerEntry._fields)
def test_one_wrong_field_of_any_producer_is_found(tmp_path: Path, field: str) -> None:
    done = made(tmp_path)
    work, right = done.work(END), entries(done)
    for number, entry in enumerate(right):
        for more in (1, -1):
            wrong = [*right]
            value = getattr(entry, field) + more
            wrong[number] = entry._replace(**{field: max(value, -1) if value != -2 else 3})
            if wrong[number] != entry:
                assert read_instead(work, producer_snapshot.encode(wrong)) != (), wrong[number]


def test_a_producer_too_few_or_too_many_or_twice_is_found(tmp_path: Path) -> None:
    done = made(tmp_path)
    work, right = done.work(END), entries(done)
    assert read_instead(work, producer_snapshot.encode(right)) == ()
    assert read_instead(work, producer_snapshot.encode(right[::-1])) == ()  # their order means nothing
    for wrong in (right[1:], (*right, right[0]._replace(producer_id=99)), (*right, right[0])):
        assert read_instead(work, producer_snapshot.encode(wrong)) != ()
    assert read_instead(work, producer_snapshot.encode(right)[:-1]) != ()
    assert read_instead(work, b"") != ()


def test_a_defect_of_the_first_implementation_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ProducerTable.entries

    def forgets(self: ProducerTable) -> np.ndarray:  # type: ignore[type-arg]
        table = real(self)
        table[:, -1] = -1  # every transaction is taken for ended
        return table

    monkeypatch.setattr(ProducerTable, "entries", forgets)
    done = made(tmp_path)
    assert any("current_txn_first_offset 12 was expected" in text for text in done.problems())
    assert verify_plan(done.plan, done.options).problems != ()


def test_after_a_purge_only_the_files_own_bytes_are_asked_for(tmp_path: Path) -> None:
    """The newest valid snapshot may have been set aside; without it the state cannot be worked out again."""
    done = made(tmp_path)
    (done.folder / "00000000000000000000.log").unlink()
    assert done.problems() == []


def test_a_replay_begins_with_the_producers_of_an_earlier_snapshot(tmp_path: Path) -> None:
    """The log of some of them is gone; one that had expired then is not known any more."""
    root = written(tmp_path / "logs", [data(0, 3, pid=7, sequence=0)], [data(3, 2, pid=8), data(5)])
    known = [
        ProducerEntry(
            producer_id=pid, producer_epoch=0, last_sequence=4, last_offset=2, offset_delta=0,
            timestamp=NOW_MS - age, coordinator_epoch=-1, current_txn_first_offset=-1,
        )
        for pid, age in ((7, 0), (20, 1000), (21, 8 * 86_400_000))
    ]  # fmt: skip
    (root / FOLDER / "00000000000000000003.snapshot").write_bytes(producer_snapshot.encode(known))
    (root / FOLDER / "00000000000000000006.snapshot").write_bytes(b"damaged")
    done = applied(root, options("snapshots"))
    (name,) = (one.name for one in done.part.changes)
    found = producer_snapshot.decode((done.folder / name).read_bytes())
    assert isinstance(found, ProducerSnapshot)
    assert {entry.producer_id for entry in found.entries} == {7, 8, 20}
    assert done.problems() == []


@pytest.mark.parametrize("seed", range(8))
def test_any_history_replayed_is_right(tmp_path: Path, seed: int) -> None:
    history = strategies.history(
        seed, strategies.Shape(segments=1 + seed % 4, steps=12, open_at_end=seed % 2 == 0)
    )
    directory = builders.LogDir(tmp_path / "logs")
    history.fill(directory.partition("t"))
    root = without_snapshots(directory.write(), seed % 3)
    version = ["", "2.2.1", "2.4.1", "3.9.2"][seed % 4]
    chosen = options("snapshots", broker_version=version, now_ms=history.shape.now_ms)
    assert applied(root, chosen).problems() == []


def _replayed(tmp_path: Path, seed: int, version: str) -> list[str]:
    """What the reading has against a snapshot made from many batches of few producers."""
    chance = random.Random(seed)
    offset = 0
    segments: list[list[builders.Batch]] = []
    for _ in range(3):
        batches: list[builders.Batch] = []
        for _ in range(60):
            pid, epoch = chance.randrange(3), chance.choice((1, 1, 1, 2))
            kind = chance.choice("dddtttmmm")
            if kind == "m":
                batches.append(
                    chance.choice((commit, abort))(
                        offset, pid=pid, epoch=epoch, coordinator_epoch=chance.randrange(3)
                    )
                )
            else:
                count = chance.randrange(1, 4)
                batches.append(
                    data(offset, count, pid=pid, epoch=epoch, sequence=chance.randrange(9), txn=kind == "t")
                )
            offset = batches[-1].last_offset + 1
        segments.append(batches)
    root = written(tmp_path / "logs", *segments)
    return applied(root, options("snapshots", broker_version=version)).problems()


@pytest.mark.parametrize("seed", range(12))
def test_batches_that_say_nothing_are_left_out_and_the_producers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen: list[tuple[int, int]] = []
    real = readings.telling

    def counted(producers: np.ndarray, epochs: np.ndarray, kinds: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        told = real(producers, epochs, kinds)
        seen.append((len(kinds), len(told)))
        return told

    monkeypatch.setattr(readings, "telling", counted)
    problems = _replayed(tmp_path, seed, ["", "2.2.1", "3.9.2"][seed % 3])
    assert problems == []
    assert sum(told for _, told in seen) < sum(count for count, _ in seen)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), max_size=40))
def test_producers_after_all_batches_are_those_after_the_telling_ones(
    rows: list[tuple[int, int, int]],
) -> None:
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(3)]
    told = set(readings.telling(*columns).tolist())
    assert _after(rows, set(range(len(rows)))) == _after(rows, told)


def _after(rows: list[tuple[int, int, int]], taken: set[int]) -> dict[int, list[int]]:
    """Producer -> epoch, last data, where its transaction began, last marker; as a broker goes from batch to batch."""
    state: dict[int, list[int]] = {}
    for number, (pid, epoch, kind) in enumerate(rows):
        if number not in taken or kind == 3:
            continue
        one = state.setdefault(pid, [epoch, -1, -1, -1])
        if one[0] != epoch:
            one[:2] = epoch, -1
        if kind == 2:
            one[2:] = -1, number
        else:
            one[1] = number
            if kind == 1 and one[2] < 0:
                one[2] = number
    return state
