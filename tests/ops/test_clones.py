"""A copy of a log directory is found by the journals in it, however many folders have to be looked through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.ops import clones
from tests import calls

PRIVATE = tuple(f"t-{number}/krepair~0123" for number in range(5))


def copy_at(path: Path, *, partition: int = 3, more: int = 0) -> str:
    """A folder with a journal of one partition, and with other entries."""
    folder = path / PRIVATE[partition]
    folder.mkdir(parents=True)
    (folder / clones.JOURNAL_NAME).write_bytes(b"")
    for number in range(more):
        (path / f"other-{number}").mkdir()
    return str(path)


@pytest.fixture(autouse=True)
def _no_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clones, "mounted", list)


def found(tmp_path: Path, *named: str) -> tuple[str, ...]:
    log_dir = tmp_path / "here" / "logs"
    log_dir.mkdir(parents=True, exist_ok=True)
    return clones.other_directories(str(log_dir), PRIVATE, named)


@pytest.mark.parametrize("more", [0, 99, 100, 300])
def test_a_copy_is_found_with_few_and_with_many_other_folders_in_it(tmp_path: Path, more: int) -> None:
    copy = copy_at(tmp_path / "copy", more=more)
    assert found(tmp_path, copy) == (copy,)


def test_a_folder_with_partitions_and_no_journal_is_no_copy(tmp_path: Path) -> None:
    (tmp_path / "copy" / "t-3").mkdir(parents=True)
    assert found(tmp_path, str(tmp_path / "copy")) == ()


def test_a_copy_in_a_folder_that_can_be_entered_and_not_listed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, real = copy_at(tmp_path / "copy"), os.scandir

    def listing(path: str) -> object:
        if path == copy:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", listing)
    assert found(tmp_path, copy) == (copy,)


def test_a_folder_without_partitions_costs_no_look_at_a_journal(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with calls.counted() as counts:
        assert found(tmp_path, str(tmp_path / "empty")) == ()
    assert counts["stat"] <= 4  # the directory itself and the folder, twice each
