"""A snapshot in which a transaction was ended, read again: one wrong field, or the wrong transaction, is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.formats import producer_snapshot
from krepair.formats.producer_snapshot import ProducerEntry
from tests.forgotten import CASES, FORGOTTEN, OPEN, made, snapshot_of
from tests.readings.scenes import Applied, applied, options, read, read_instead

MIXED = next(case for case in CASES if case.name == "beside one that is open")
NAME = f"{MIXED.snapshot:020d}.snapshot"


def done_in(tmp_path: Path) -> Applied:
    return applied(made(tmp_path / "logs", MIXED), options("snapshots"))


def with_first(entries: tuple[ProducerEntry, ...], producer_id: int, first: int) -> bytes:
    return producer_snapshot.encode(
        one._replace(current_txn_first_offset=first) if one.producer_id == producer_id else one
        for one in entries
    )


def test_what_the_first_implementation_makes_is_right(tmp_path: Path) -> None:
    assert done_in(tmp_path).problems() == []


@pytest.mark.parametrize("field", ProducerEntry._fields)
def test_one_wrong_field_of_any_entry_is_found(tmp_path: Path, field: str) -> None:
    done = done_in(tmp_path)
    right = snapshot_of(done.folder / NAME)
    for number, entry in enumerate(right):
        wrong = [*right]
        wrong[number] = entry._replace(**{field: getattr(entry, field) + 1})
        assert read_instead(done.work(NAME), producer_snapshot.encode(wrong)) != (), wrong


def test_a_transaction_that_is_open_and_was_ended_is_found_in_the_log(tmp_path: Path) -> None:
    done = done_in(tmp_path)
    wrong = with_first(snapshot_of(done.folder / NAME), OPEN, -1)
    (text,) = read_instead(done.work(NAME), wrong)
    assert text.startswith(f"{0:020d}.log, position ")
    assert f"a batch of producer {OPEN}, whose transaction from offset 6 on was ended" in text


def test_a_file_in_which_nothing_was_ended_and_one_without_a_producer_are_found(tmp_path: Path) -> None:
    done = done_in(tmp_path)
    right = snapshot_of(done.folder / NAME)
    as_before = with_first(right, FORGOTTEN, 7)
    assert read_instead(done.work(NAME), as_before) == ("no transaction was ended in it",)
    assert read_instead(done.work(NAME), producer_snapshot.encode(right[1:])) != ()
    assert read_instead(done.work(NAME), b"\0" * 10) != ()


def test_without_its_original_only_the_bytes_are_read(tmp_path: Path) -> None:
    done = done_in(tmp_path)
    (kept,) = done.folder.glob(f"krepair~*/keep/{NAME}")
    kept.unlink()
    assert read(done.work(NAME)) == ()
