"""A transaction index read again: a plain replay gives it, one wrong field or a planted defect does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Wrong
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.ops.verify import verify_plan
from krepair.pipeline.indexes import transactions as txn_indexes
from krepair.pipeline.readings import aborted
from krepair.pipeline.readings.aborted import verify_aborted
from krepair.pipeline.readings.partition import LogBatches, LogPath
from tests import builders, strategies
from tests.builders import abort, commit, data
from tests.readings.scenes import FOLDER, Applied, applied, options, read, read_instead

NAME = "00000000000000000006.txnindex"
RIGHT = (AbortedTxn(0, 7, 0, 8, 3), AbortedTxn(0, 9, 6, 10, 3))


def made(root: Path, original: bytes) -> Applied:
    """Producer 7 aborts over two segments while 8 is open; 9 aborts too; 10 aborts nothing."""
    directory = builders.LogDir(root)
    directory.partition("t").segment(data(0, 3, pid=7, txn=True), data(3, 3, pid=8, txn=True)).segment(
        data(6, 2, pid=9, txn=True),
        abort(8, pid=7),
        abort(9, pid=10),
        abort(10, pid=9),
        commit(11, pid=8),
    ).segment(data(12))
    directory.write()
    (root / FOLDER / NAME).write_bytes(original)
    return applied(root, options("index=regenerate"))


def test_what_the_first_implementation_makes_is_right(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", txn_index.encode(RIGHT[:1]))
    assert txn_index.decode((done.folder / NAME).read_bytes()) == RIGHT
    assert done.problems() == []
    assert verify_plan(done.plan, done.options).problems == ()


@pytest.mark.parametrize("field", AbortedTxn._fields)
def test_one_wrong_field_of_any_entry_is_found(tmp_path: Path, field: str) -> None:
    done = made(tmp_path / "logs", b"")
    work = done.work(NAME)
    for number, entry in enumerate(RIGHT):
        for more in (1, -1):
            wrong = [*RIGHT]
            wrong[number] = entry._replace(**{field: getattr(entry, field) + more})
            assert read_instead(work, txn_index.encode(wrong)) != (), wrong


def test_an_entry_too_few_or_too_many_is_found_and_one_without_data_is_let_be(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", b"")
    work = done.work(NAME)
    empty = AbortedTxn(0, 10, 9, 9, 3)  # brokers up to 2.7 write it, and it hides nothing
    assert read_instead(work, txn_index.encode((RIGHT[0], empty, RIGHT[1]))) == ()
    for wrong in (RIGHT[:1], RIGHT[1:], (*RIGHT, AbortedTxn(0, 8, 3, 11, 12)), ()):
        assert read_instead(work, txn_index.encode(wrong)) != ()
    assert read_instead(work, txn_index.encode(RIGHT)[:-1]) != ()


def test_a_file_that_is_not_there_has_no_entries(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", b"")
    work = done.work(NAME)
    without = read_instead(work, b"")
    (done.folder / NAME).unlink()
    assert read(work) == without != ()


@pytest.mark.parametrize("field", ["first_offset", "last_stable_offset"])
def test_what_the_original_said_wrongly_of_a_log_that_has_lost_nothing_is_found(
    tmp_path: Path, field: str
) -> None:
    wrong = (RIGHT[0], RIGHT[1]._replace(**{field: getattr(RIGHT[1], field) - 1}))
    done = made(tmp_path / "logs", txn_index.encode(wrong))
    work = done.work(NAME)
    assert read_instead(work, txn_index.encode(RIGHT)) == ()
    (text,) = read_instead(work, txn_index.encode(wrong))
    assert "were expected" in text


def test_a_defect_of_the_first_implementation_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = txn_indexes.judged

    def forgets(*given: Any, **named: Any) -> Any:
        true, text, position = real(*given, **named)
        return list(true)[:1], text, position

    monkeypatch.setattr(txn_indexes, "judged", forgets)
    done = made(tmp_path / "logs", b"")
    assert done.problems() == [
        "the transaction of producer 9 that was aborted at offset 10 is missing",
    ]
    assert verify_plan(done.plan, done.options).problems != ()


@pytest.mark.parametrize("seed", range(8))
def test_any_history_replayed_is_right(tmp_path: Path, seed: int) -> None:
    history = strategies.history(
        seed, strategies.Shape(segments=2 + seed % 3, steps=14, aborted_data=True, emptied=seed % 2 == 0)
    )
    directory = builders.LogDir(tmp_path / "logs")
    history.fill(directory.partition("t"))
    root = directory.write()
    for path in sorted((root / FOLDER).glob("*.txnindex"))[seed % 2 :]:
        path.unlink()
    done = applied(root, options("index=regenerate"))
    assert [text for _, work in done.works() for text in read(work)] == []


def many(root: Path, number: int) -> tuple[Applied, list[str]]:
    """So many segments, in each of which a transaction aborts that began in the one before; no index is there."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    for base in range(0, 10 * number, 10):
        ends = [abort(base, pid=base - 10)] if base else [data(base)]
        partition.segment(*ends, data(base + 1, 2, pid=base, txn=True))
    partition.segment(data(10 * number))
    path = directory.write()
    names = [f"{base:020d}.txnindex" for base in range(10, 10 * number, 10)]
    for name in names:
        (path / FOLDER / name).unlink(missing_ok=True)
    return applied(path, options("index=regenerate")), names


def readings_of(done: Applied) -> list[SecondReading]:
    return [work for _, work in done.works(together=True)]


@pytest.mark.parametrize("number", [2, 6])
def test_one_replay_serves_all_transaction_indexes_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    done, names = many(tmp_path / "logs", number)
    logs: list[int] = []
    real = aborted.parts_of

    def counting(given: Sequence[LogPath], *more: Any, **named: Any) -> Iterator[LogBatches]:
        logs.extend(log.base_offset for log in given)
        return real(given, *more, **named)

    monkeypatch.setattr(aborted, "parts_of", counting)
    [reading] = readings_of(done)
    assert [Path(index.path).name for index in reading.items[0].indexes] == names
    assert reading.files == len(names)
    assert read(reading) == ()
    assert logs == list(range(0, 10 * number, 10))


def test_of_several_transaction_indexes_only_the_wrong_one_is_blamed(tmp_path: Path) -> None:
    done, names = many(tmp_path / "logs", 4)
    (done.folder / names[1]).write_bytes(b"")
    (done.folder / names[0]).unlink()
    texts = {one.change_id: one.text for one in verify_plan(done.plan, done.options).problems}
    assert set(texts) == {f"{FOLDER}/{names[0]}", f"{FOLDER}/{names[1]}"}
    [reading] = readings_of(done)
    assert [type(one) for one in reading.says([verify_aborted(reading.items[0])])] == [Wrong, Wrong]
    assert [
        one.text for one in reading.says([verify_aborted(reading.items[0])]) if isinstance(one, Wrong)
    ] == [
        "the transaction of producer 0 that was aborted at offset 10 is missing",
        "the transaction of producer 10 that was aborted at offset 20 is missing",
    ]


@pytest.mark.parametrize(
    "damage", ["a log is cut", "a log is gone", "an index is a folder", "an index is torn"]
)
def test_several_transaction_indexes_are_told_the_same_of_together_and_one_by_one(
    tmp_path: Path, damage: str
) -> None:
    done, names = many(tmp_path / "logs", 6)
    [reading] = readings_of(done)
    item = reading.items[0]
    log, index = done.folder / f"{30:020d}.log", done.folder / names[2]
    if damage == "a log is cut":
        log.write_bytes(log.read_bytes()[:-5])
    elif damage == "a log is gone":
        log.unlink()
    else:
        whole = index.read_bytes()
        index.unlink()
        if damage == "an index is torn":
            index.write_bytes(whole[:-1])
        else:
            index.mkdir()
    together = verify_aborted(item).problems
    alone = [verify_aborted(msgspec.structs.replace(item, indexes=(one,))).problems for one in item.indexes]
    assert [(text,) for text in together] == alone
    wrong = [number for number, text in enumerate(together) if text]
    assert wrong == ([2, 3, 4] if damage.startswith("a log") else [2])
