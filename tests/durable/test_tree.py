"""Opening below a directory descriptor: with ``openat2`` and step by step, with the same result."""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import threading
from pathlib import Path

import pytest

from krepair.durable import tree as module
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree, read_descriptor, without_links
from tests.durable.descriptors import open_descriptors


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


def test_file_and_pipe_in_the_place_of_a_folder_are_not_opened_as_one(tree: Tree) -> None:
    at = f"{tree.path}/t-0"
    os.mkfifo(f"{at}/fifo")
    tree.status(at)
    before = open_descriptors(tree.path)
    for name in ("a.log", "fifo"):
        assert code_of(lambda name=name: tree.open_folder(f"{at}/{name}")) == errno.ENOTDIR
    assert open_descriptors(tree.path) == before


def test_names_of_files_are_those_of_all_entries_but_for_folders(tree: Tree) -> None:
    at = f"{tree.path}/t-0"
    os.symlink("inner", f"{at}/link")
    os.mkfifo(f"{at}/fifo")
    assert tree.file_names(at) == ["a.log", "fifo", "link"]
    assert tree.file_names(f"{at}/inner") == []
    assert tree.file_names(tree.path) == []


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


def test_another_directory_under_the_name_is_noticed_and_closed_again(tree: Tree) -> None:
    without_links().names("/")  # it is opened once
    before = open_descriptors(tree.path)
    wrong = Tree(tree.path, os.stat(tree.path).st_ino + 1)
    assert code_of(lambda: wrong.names(tree.path)) == errno.ESTALE
    assert open_descriptors(tree.path) == before
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


# -- descriptors ------------------------------------------------------------------------------------------------------
def test_no_call_leaves_a_descriptor_open(tree: Tree) -> None:
    at = f"{tree.path}/t-0"
    os.symlink("a.log", f"{at}/link")
    tree.names(tree.path)  # the directory itself is opened once
    before = open_descriptors(tree.path)
    tree.read(f"{at}/a.log", 9)
    tree.read(f"{at}/none.log", 9)
    tree.names(at)
    tree.names(f"{at}/inner")
    tree.entries(at)
    tree.status(f"{at}/inner/none")
    tree.is_folder(tree.path)
    for path in (f"{at}/link", f"{at}/inner"):
        with pytest.raises(OSError):
            tree.read(path, 9)
    for call in (tree.names, tree.entries):
        with pytest.raises(OSError):
            call(f"{at}/a.log")
    os.close(tree.open(f"{at}/a.log", os.O_RDONLY))
    assert open_descriptors(tree.path) == before


def test_closing_gives_the_descriptor_back_and_the_next_use_opens_it_again(tree: Tree) -> None:
    without_links().names("/")
    before = open_descriptors(tree.path)
    tree.close()  # nothing is open yet
    for _ in range(2):
        with tree:
            assert tree.names(tree.path) == ["t-0"]
            assert open_descriptors(tree.path) == before + 1
        assert open_descriptors(tree.path) == before
    tree.close()
    assert open_descriptors(tree.path) == before


def test_descriptor_goes_with_its_tree(tree: Tree) -> None:
    without_links().names("/")
    before = open_descriptors(tree.path)
    other = Tree(tree.path)
    other.names(tree.path)
    del other
    assert open_descriptors(tree.path) == before


# -- paths ------------------------------------------------------------------------------------------------------------
def test_slash_behind_the_directory_does_not_matter_and_other_characters_do(tree: Tree) -> None:
    os.mkdir(f"{tree.path}~")
    assert Tree(f"{tree.path}/").path == tree.path
    assert Tree(f"{tree.path}~").names(f"{tree.path}~") == []
    assert tree.names(f"{tree.path}/") == ["t-0"]
    assert tree.is_folder(f"{tree.path}/")


def test_relative_path_is_refused(tree: Tree) -> None:
    with pytest.raises(OSError, match="path is not absolute"):
        tree.status("t-0/a.log")


def test_other_file_systems_below_the_directory_are_reached() -> None:
    for step_by_step in (False, True):
        with Tree("/", step_by_step=step_by_step) as whole:
            assert "kernel" in whole.names("/proc/sys")


def test_files_that_go_while_a_folder_is_read_are_not_listed(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"{tree.path}/t-0"
    for number in range(9):
        Path(f"{at}/{number}.log").touch()
    real = os.scandir

    class Going:
        """Lists the folder, and removes a file before it can be looked at."""

        def __init__(self, folder: int) -> None:
            with real(folder) as entries:
                self.found = sorted(entries, key=lambda entry: entry.name, reverse=True)
            os.unlink(f"{at}/4.log")

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.found

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Going)
    names = [name for name, _ in tree.entries(at)]
    assert names == [*(f"{number}.log" for number in range(9) if number != 4), "a.log", "inner"]


def test_root_of_the_file_system_is_a_folder() -> None:
    assert Tree().path == "/"
    assert Tree("/").is_folder("/")
    assert Tree("/").names("/") == sorted(os.listdir("/"))


# -- the call of the kernel -------------------------------------------------------------------------------------------
class Kernel:
    """Stands in for the C library: gives these error numbers, one a call, then a descriptor of its own."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls = 0

    def syscall(self, *_: object) -> int:
        self.calls += 1
        if self.codes:
            ctypes.set_errno(self.codes.pop(0))
            return -1
        return os.open("/", os.O_RDONLY)


def test_walk_is_one_call_where_the_kernel_has_it(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real = Tree._walk

    def walking(self: Tree, below: str, flags: int, mode: int) -> int:
        steps.append(below)
        return real(self, below, flags, mode)

    tree.names(tree.path)
    monkeypatch.setattr(Tree, "_walk", walking)
    tree.read(f"{tree.path}/t-0/a.log", 9)
    assert steps == (["t-0/a.log"] if tree._step_by_step or not module._has_openat2() else [])


def test_walk_is_one_call_unless_steps_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_openat2", lambda: True)
    tree = Tree(str(tmp_path))
    tree.names(tree.path)
    kernel = Kernel()
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    os.close(tree.open(f"{tree.path}/t-0/0.log", os.O_RDONLY))
    assert kernel.calls == 1


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDONLY | os.O_DIRECTORY])
def test_a_name_in_the_directory_itself_needs_no_walk_and_may_be_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "link").symlink_to("t-0")
    (tmp_path / "file").touch()
    tree = Tree(str(tmp_path))
    tree.names(tree.path)
    kernel = Kernel()
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    os.close(tree.open(f"{tree.path}/t-0", flags))
    with pytest.raises(OSError, match="symbolic links") as caught:
        tree.open(f"{tree.path}/link", flags)
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, f"{tree.path}/link")
    if flags & os.O_DIRECTORY:
        with pytest.raises(NotADirectoryError):
            tree.open(f"{tree.path}/file", flags)
    assert kernel.calls == 0


def test_number_of_an_error_comes_from_the_kernel_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    if not module._has_openat2():
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(module, "_libc", module._libc.__wrapped__)
    ctypes.set_errno(0)
    with Tree("/proc") as tree:
        root = tree.reach(tree.path)[0]
        with pytest.raises(FileNotFoundError):
            module._openat2(root, "none", os.O_RDONLY, 0)


def test_walk_is_done_in_steps_where_the_kernel_has_no_such_call(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, through_os_open: None
) -> None:
    kernel = Kernel(*[errno.ENOSYS] * 99)
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    assert tree.read(f"{tree.path}/t-0/a.log", 9) == b"abc"
    assert kernel.calls == 0


@pytest.mark.parametrize("codes", [[errno.EAGAIN], [errno.EINTR, errno.EAGAIN], [errno.EAGAIN] * 63])
def test_call_is_made_again_while_a_folder_on_the_way_is_renamed(
    codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(*codes)
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    os.close(module._openat2(0, "t-0", os.O_RDONLY, 0))
    assert kernel.calls == len(codes) + 1


def test_descriptor_0_is_one_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what an open gives where standard input was closed."""
    kernel = Kernel()
    monkeypatch.setattr(kernel, "syscall", lambda *_: 0)
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    assert module._openat2(0, "t-0", os.O_RDONLY, 0) == 0


@pytest.mark.parametrize(
    ("codes", "code", "calls"), [([errno.ENOENT], errno.ENOENT, 1), ([errno.EAGAIN] * 99, errno.EAGAIN, 64)]
)
def test_call_that_fails_is_an_error_with_its_number(
    codes: list[int], code: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(*codes)
    monkeypatch.setattr(module, "_libc", lambda: kernel)
    with pytest.raises(OSError) as caught:
        module._openat2(0, "t-0", os.O_RDONLY, 0)
    assert (caught.value.errno, caught.value.strerror, kernel.calls) == (code, os.strerror(code), calls)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.E2BIG, 0])
def test_kernel_that_does_not_have_the_call_is_asked_once_and_left_no_descriptor(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_descriptors("/")
    monkeypatch.setattr(module, "_libc", lambda: Kernel(*[code] if code else []))
    assert module._has_openat2.__wrapped__() is (code == 0)
    assert open_descriptors("/") == before


def test_other_failure_of_the_first_call_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors("/")
    monkeypatch.setattr(module, "_libc", lambda: Kernel(errno.EMFILE))
    with pytest.raises(OSError) as caught:
        module._has_openat2.__wrapped__()
    assert (caught.value.errno, open_descriptors("/")) == (errno.EMFILE, before)


def test_a_kept_folder_stays_that_folder_whatever_takes_its_name(tree: Tree, tmp_path: Path) -> None:
    at = f"{tree.path}/t-0"
    tree.status(at)  # the directory itself is open from here on
    before = open_descriptors(tree.path)
    with tree.keeping_folders():
        assert tree.is_there(f"{at}/a.log")
        (tmp_path / "logs" / "t-0").rename(tmp_path / "logs" / "moved")
        (tmp_path / "logs" / "t-0").symlink_to(tmp_path / "victim")
        assert tree.names(at) == ["a.log", "inner"]
        assert tree.read(f"{at}/a.log", 9) == b"abc"
        assert tree.status(f"{at}/secret") is None
        (tmp_path / "logs" / "moved" / "b.log").symlink_to(tmp_path / "victim" / "secret")
        assert code_of(lambda: tree.read(f"{at}/b.log", 9)) == errno.ELOOP
        tree.let_go()
        assert code_of(lambda: tree.names(at)) == errno.ELOOP
        assert code_of(lambda: tree.status(f"{at}/secret")) == errno.ELOOP
    assert open_descriptors(tree.path) == before


@pytest.mark.parametrize(
    "let_go", ["", "none", "."], ids=["kept to the end", "another one let go", "let go before"]
)
def test_kept_folders_are_closed_with_the_last_who_keeps_them(tree: Tree, let_go: str) -> None:
    at = f"{tree.path}/t-0"
    tree.status(at)
    before = open_descriptors(tree.path)
    with tree.keeping_folders():
        with tree.keeping_folders():
            tree.status(f"{at}/a.log")
            tree.status(f"{at}/inner/x")
        if let_go:
            tree.let_go(at if let_go == "." else f"{at}/{let_go}")  # and what is below it
        assert open_descriptors(tree.path) == before + (0 if let_go == "." else 2), (
            "the outer body still runs"
        )
    assert open_descriptors(tree.path) == before
    tree.status(f"{at}/a.log")
    assert open_descriptors(tree.path) == before


def test_error_beside_an_open_folder_names_the_whole_path(tree: Tree) -> None:
    path = f"{tree.path}/t-0/none"
    tree.names(tree.path)
    before = open_descriptors(tree.path)
    with pytest.raises(FileNotFoundError) as caught, tree.place(path) as (folder, name):
        os.unlink(name, dir_fd=folder)
    assert caught.value.filename == path
    assert open_descriptors(tree.path) == before


def test_no_more_folders_are_kept_than_work_on_a_partition_needs(tree: Tree) -> None:
    at = f"{tree.path}/t-0/inner"
    for number in range(40):
        Path(at, str(number)).mkdir()
    before = open_descriptors(tree.path)
    with tree.keeping_folders():
        for number in range(40):
            assert tree.names(f"{at}/{number}") == []
        assert open_descriptors(tree.path) <= before + 17


@pytest.mark.parametrize("how", ["renamed", "replaced", "removed"])
def test_a_folder_that_krepair_renames_or_removes_is_not_kept(tree: Tree, how: str) -> None:
    disk, at = RealDisk(tree), f"{tree.path}/t-0/inner"
    with tree.keeping_folders():
        assert tree.names(at) == []
        if how == "renamed":
            disk.rename(at, f"{at}.old")
        elif how == "replaced":
            disk.make_dir(f"{at}.new")
            disk.create(f"{at}.new/x", b"x")
            disk.rename(f"{at}.new", at)
        else:
            disk.remove_dir(at)
        if how != "replaced":
            disk.make_dir(at)
            disk.create(f"{at}/x", b"x")
        assert tree.names(at) == ["x"]


def test_no_more_is_read_of_a_file_that_grew_than_was_asked_for(tmp_path: Path) -> None:
    path, most = tmp_path / "file", (1 << 16) + 10
    path.write_bytes(os.urandom(1 << 18))
    with path.open("rb") as file:
        assert read_descriptor(file.fileno(), most, size=0) == path.read_bytes()[:most]
