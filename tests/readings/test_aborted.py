"""A transaction index read again: a plain replay gives it, one wrong field or a planted defect does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.ops.verify import verify_plan
from krepair.pipeline.indexes import transactions as txn_indexes
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
