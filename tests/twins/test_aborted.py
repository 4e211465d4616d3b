"""A rebuilt transaction index agrees with its twin; one wrong field or a planted defect is found."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from krepair.durable.tree import without_links
from krepair.fixes.staging import Wrong
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.rewrite.indexes import transactions as txn_indexes
from tests import builders, strategies
from tests.builders import abort, commit, data
from tests.engine.travelled import travelled
from tests.readings.scenes import FOLDER, Applied, applied, options
from tests.twins.aborted import AbortedIndex, aborted_problems
from tests.twins.logs import LogPath
from tests.twins.of_plan import twin_problems

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


def by_twin(done: Applied, contents: bytes | None, original: bytes | None = None) -> str:
    """What the twin has against these bytes, had a defect made them; None: no file."""
    path, kept = done.folder / NAME, done.root / "original"
    path.unlink(missing_ok=True)
    if contents is not None:
        path.write_bytes(contents)
    if original is not None:
        kept.write_bytes(original)
    logs = [LogPath(int(log.stem), str(log), 0) for log in sorted(done.folder.glob("*.log"))]
    index = AbortedIndex(6, str(path), "" if original is None else str(kept))
    return aborted_problems([index], logs, without_links())[0]


def test_what_is_made_is_right(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", txn_index.encode(RIGHT[:1]))
    assert txn_index.decode((done.folder / NAME).read_bytes()) == RIGHT
    assert done.problems() == twin_problems(done.plan) == []


@pytest.mark.parametrize("field", AbortedTxn._fields)
def test_one_wrong_field_of_any_entry_is_found(tmp_path: Path, field: str) -> None:
    done = made(tmp_path / "logs", b"")
    for number, entry in enumerate(RIGHT):
        for more in (1, -1):
            wrong = [*RIGHT]
            wrong[number] = entry._replace(**{field: getattr(entry, field) + more})
            assert by_twin(done, txn_index.encode(wrong)), wrong
            assert done.problems() != []


def test_an_entry_too_few_or_too_many_is_found_and_one_without_data_is_let_be(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", b"")
    empty = AbortedTxn(0, 10, 9, 9, 3)  # brokers up to 2.7 write it, and it hides nothing
    assert by_twin(done, txn_index.encode((RIGHT[0], empty, RIGHT[1]))) == ""
    for wrong in (RIGHT[:1], RIGHT[1:], (*RIGHT, AbortedTxn(0, 8, 3, 11, 12)), ()):
        assert by_twin(done, txn_index.encode(wrong))
        assert done.problems() != []
    assert by_twin(done, txn_index.encode(RIGHT)[:-1])
    assert by_twin(done, b"") == by_twin(done, None) != ""


@pytest.mark.parametrize("field", ["first_offset", "last_stable_offset"])
def test_what_the_original_said_wrongly_of_a_log_that_has_lost_nothing_is_found(
    tmp_path: Path, field: str
) -> None:
    wrong = (RIGHT[0], RIGHT[1]._replace(**{field: getattr(RIGHT[1], field) - 1}))
    done = made(tmp_path / "logs", txn_index.encode(wrong))
    assert by_twin(done, txn_index.encode(RIGHT), txn_index.encode(wrong)) == ""
    assert "were expected" in by_twin(done, txn_index.encode(wrong), txn_index.encode(wrong))


def test_what_a_follower_said_that_caught_up_stays_as_it_is(tmp_path: Path) -> None:
    """It enters a whole fetch before it looks at what is open: the next transaction of another producer."""
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(6, 2, pid=7, txn=True),
        abort(8, pid=7),
        data(9, 1, pid=7, txn=True),
        data(10, 1, pid=8, txn=True),
        abort(11, pid=7),
        commit(12, pid=8),
        base_offset=6,
    ).segment(data(13, 1, pid=9, txn=True), data(14))
    path = directory.write() / FOLDER / NAME
    follower, leader = AbortedTxn(0, 7, 6, 8, 10), AbortedTxn(0, 7, 6, 8, 9)
    last = AbortedTxn(0, 7, 9, 11, 10)
    path.write_bytes(txn_index.encode((follower, last._replace(first_offset=10))))
    done = applied(tmp_path / "logs", options("index=regenerate"))
    assert txn_index.decode(path.read_bytes()) == (follower, last)
    assert done.problems() == twin_problems(done.plan) == []
    for first in (follower, leader):
        assert by_twin(done, txn_index.encode((first, last)), txn_index.encode((first, last))) == ""
    assert by_twin(done, txn_index.encode((follower, last)), b"")  # nobody makes it so anew
    for stable in (8, 11, 12, 13):
        wrong = txn_index.encode((follower._replace(last_stable_offset=stable), last))
        assert "were expected, found 6 and" in by_twin(done, wrong, wrong)
    for stable in (9, 11, 12, 13):  # another one is open, and no follower says otherwise
        wrong = txn_index.encode((follower, last._replace(last_stable_offset=stable)))
        assert "were expected, found 9 and" in by_twin(done, wrong, wrong)


def test_a_defect_of_what_judges_the_files_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = txn_indexes.judged

    def forgets(*given: Any, **named: Any) -> Any:
        true, text, position = real(*given, **named)
        return list(true)[:1], text, position

    monkeypatch.setattr(txn_indexes, "judged", forgets)
    done = made(tmp_path / "logs", b"")
    (by_krepair,), (by_its_twin,) = done.problems(), twin_problems(done.plan)
    assert by_krepair == "the transaction of producer 9 at 6 to 10 (stable 3) was aborted and is missing"
    assert "producer 9 that was aborted at offset 10 is missing" in by_its_twin


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
    assert done.problems() == twin_problems(done.plan) == []


def many(root: Path, number: int) -> tuple[Applied, list[str]]:
    """So many segments, in each of which a transaction aborts that began in the one before; no index is there."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    for base in range(0, 3 * number, 3):
        ends = [abort(base, pid=base - 3)] if base else [data(base)]
        partition.segment(*ends, data(base + 1, 2, pid=base, txn=True))
    partition.segment(data(3 * number))
    path = directory.write()
    names = [f"{base:020d}.txnindex" for base in range(3, 3 * number, 3)]
    for name in names:
        (path / FOLDER / name).unlink(missing_ok=True)
    return applied(path, options("index=regenerate")), names


@pytest.mark.parametrize(
    ("damage", "blamed"),
    [
        ("nothing", set()),
        ("a log is cut", {2, 3, 4}),
        ("a log is gone", {0, 1, 2, 3, 4}),
        ("one is empty, one is gone", {0, 2}),
        ("an index is torn", {2}),
    ],
)
def test_one_replay_serves_all_transaction_indexes_of_a_partition_and_only_the_wrong_ones_are_blamed(
    tmp_path: Path, damage: str, blamed: set[int]
) -> None:
    done, names = many(tmp_path / "logs", 6)
    [reading] = [one for _, one in done.works(together=True)]
    assert reading.files == len(names)
    log, index = done.folder / f"{9:020d}.log", done.folder / names[2]
    if damage == "a log is cut":
        log.write_bytes(log.read_bytes()[:-5])
    elif damage == "a log is gone":
        log.unlink()
    elif damage == "an index is torn":
        index.write_bytes(index.read_bytes()[:-1])
    elif damage != "nothing":
        index.write_bytes(b"")
        (done.folder / names[0]).unlink()
    assert isinstance(reading.reader, FunctionType)
    found = reading.says([travelled(reading.reader, item) for item in reading.items])
    wrong = {Path(one.change_id).name for one in found if isinstance(one, Wrong)}
    assert wrong == {names[number] for number in blamed}
