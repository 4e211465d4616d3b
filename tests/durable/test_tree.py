"""The walk from one descriptor: with ``openat2`` and step by step, both the same."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from pathlib import Path

import pytest

from krepair.durable.tree import Tree


@pytest.fixture(params=[False, True], ids=["openat2", "step by step"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    root = tmp_path / "logs"
    (root / "t-0" / "inner").mkdir(parents=True)
    (root / "t-0" / "a.log").write_bytes(b"abc")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "secret").write_bytes(b"secret")
    return Tree(str(root), step_by_step=request.param)


def code_of(call: object) -> int:
    with pytest.raises(OSError) as caught:
        call()  # type: ignore[operator]
    assert os.path.isabs(caught.value.filename)
    return caught.value.errno or 0


def test_files_and_folders_are_seen(tree: Tree) -> None:
    at = f"{tree.path}/t-0"
    assert tree.read(f"{at}/a.log", 2) == b"ab"
    assert tree.names(at) == ["a.log", "inner"]
    assert [(name, found.st_size) for name, found in tree.entries(at) if name == "a.log"] == [("a.log", 3)]
    assert (tree.is_folder(at), tree.is_folder(f"{at}/a.log"), tree.is_folder(tree.path)) == (
        True,
        False,
        True,
    )
    assert (tree.is_there(f"{at}/a.log"), tree.is_there(f"{at}/b.log"), tree.is_there(f"{at}/a.log/x")) == (
        True,
        False,
        False,
    )
    assert tree.read(f"{at}/b.log", 1) is None


def test_a_link_in_the_place_of_any_component_is_an_error_and_not_a_way_out(tree: Tree) -> None:
    victim = Path(tree.path).parent / "victim"
    os.symlink(victim, f"{tree.path}/l-0")
    os.symlink(victim / "secret", f"{tree.path}/t-0/b.log")
    os.symlink(victim, f"{tree.path}/t-0/inner/stage")
    assert code_of(lambda: tree.read(f"{tree.path}/l-0/secret", 9)) == errno.ELOOP
    assert code_of(lambda: tree.read(f"{tree.path}/t-0/b.log", 9)) == errno.ELOOP
    assert code_of(lambda: tree.names(f"{tree.path}/l-0")) == errno.ELOOP
    assert code_of(lambda: tree.status(f"{tree.path}/t-0/inner/stage/secret")) == errno.ELOOP
    assert (
        code_of(lambda: tree.open(f"{tree.path}/l-0/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        == errno.ELOOP
    )
    assert (tree.is_folder(f"{tree.path}/l-0"), tree.is_there(f"{tree.path}/l-0")) == (False, True)
    assert os.listdir(victim) == ["secret"]


def test_a_path_that_leads_out_is_refused(tree: Tree) -> None:
    for path in (
        f"{tree.path}/../victim/secret",
        f"{tree.path}x/a",
        "/etc/passwd",
        f"{tree.path}/t-0/../../victim",
    ):
        assert code_of(lambda path=path: tree.status(path)) == errno.EXDEV


def test_another_directory_under_the_name_is_noticed(tree: Tree) -> None:
    wrong = Tree(tree.path, os.stat(tree.path).st_ino + 1)
    assert code_of(lambda: wrong.names(tree.path)) == errno.ESTALE
    assert Tree(tree.path, os.stat(tree.path).st_ino).names(tree.path) == ["t-0"]


def test_what_was_opened_stays_the_directory_when_it_is_renamed_and_replaced(tree: Tree) -> None:
    assert tree.names(tree.path) == ["t-0"]
    os.rename(tree.path, tree.path + ".old")
    os.symlink(Path(tree.path).parent / "victim", tree.path)
    assert tree.names(tree.path) == ["t-0"]
    assert tree.read(f"{tree.path}/t-0/a.log", 9) == b"abc"


def test_it_travels_to_other_processes_without_its_descriptor(tree: Tree) -> None:
    tree.names(tree.path)
    again = pickle.loads(pickle.dumps(tree))
    assert again.names(tree.path) == ["t-0"]


def test_a_folder_that_is_exchanged_for_a_link_again_and_again_never_leads_out(tree: Tree) -> None:
    """An attacker who swaps a folder and a link as fast as he can."""
    folder, aside, link = (f"{tree.path}/{name}" for name in ("t-0", "aside", "link"))
    os.symlink(Path(tree.path).parent / "victim", link)
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            os.rename(folder, aside)
            os.rename(link, folder)
            os.rename(folder, link)
            os.rename(aside, folder)

    attacker = threading.Thread(target=exchange)
    attacker.start()
    seen, codes = set(), set()
    try:
        for _ in range(3_000):
            try:
                seen.add(tree.read(f"{folder}/secret", 9))
            except OSError as error:
                codes.add(error.errno)
    finally:
        done.set()
        attacker.join()
    assert seen <= {None}
    assert codes <= {errno.ELOOP, errno.ENOENT, errno.EAGAIN}
