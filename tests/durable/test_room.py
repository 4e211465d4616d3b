"""Whether a file system really gives the space that it reports as free: tried, and nothing of it stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from krepair.durable.room import can_take
from krepair.durable.tree import Tree
from tests.durable.descriptors import open_descriptors


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(str(tmp_path))
    assert tree.names(tree.path) == []  # the directory is open from here on
    return tree


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_room_that_is_there_is_taken_and_given_back(tree: Tree, size: int) -> None:
    before = open_descriptors(tree.path)
    assert can_take(tree.path, size, tree)
    assert open_descriptors(tree.path) == before
    assert tree.names(tree.path) == []


def test_room_for_more_than_any_file_may_have_is_not_there(tree: Tree) -> None:
    assert not can_take(tree.path, 1 << 62, tree)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP, errno.EIO])
def test_no_room_is_an_answer_and_every_other_failure_is_an_error(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    before = open_descriptors(tree.path)
    if code in {errno.EOPNOTSUPP, errno.EIO}:
        with pytest.raises(OSError) as caught:
            can_take(tree.path, 1, tree)
        assert caught.value.errno == code
    else:
        assert not can_take(tree.path, 1, tree)
    assert open_descriptors(tree.path) == before


def test_as_many_bytes_are_tried_as_are_asked_for_but_at_least_one(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, start, size: tried.append((start, size)))
    for size in (0, 1, 2, 5000):
        assert can_take(tree.path, size, tree)
    assert tried == [(0, 1), (0, 1), (0, 2), (0, 5000)]
