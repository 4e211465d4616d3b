"""The launcher of ``dist/krepair``: where it unpacks, what it refuses, and that nothing planted is ever started.

The tree behind it is a small one here: its "loader" is a script that prints what it was started with. ``make trials``
starts the whole file in trees that have nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tools.onefile.pack import write_file

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc") or os.uname().machine != "x86_64", reason="needs a C compiler"),
    pytest.mark.slow,
]
DONE, REFUSED, UNREADABLE = 0, 13, 15
FILE_BYTES = 9_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a launcher and a small tree: three blocks, one of them all zeros."""
    room = tmp_path_factory.mktemp("onefile")
    tree = room / "tree"
    (tree / "lib/deep").mkdir(parents=True)
    loader = tree / "lib/loader"
    loader.write_text('#!/bin/sh\necho "$@"\n')
    loader.chmod(0o755)
    (tree / "lib/deep/empty").write_bytes(b"")
    (tree / "lib/deep/large").write_bytes(bytes(FILE_BYTES - 1000) + os.urandom(1000))
    out = room / "krepair"
    write_file(tree, "loader", out, room)
    return out


def start(program: Path, *words: str, **environment: str | Path) -> subprocess.Popen[str]:
    values = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in environment.items()}}
    return subprocess.Popen(
        [program, *words], env=values, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(program: Path, *words: str, **environment: str | Path) -> tuple[int, str, str]:
    process = start(program, *words, **environment)
    out, errors = process.communicate()
    return process.returncode, out, errors


def test_the_first_start_unpacks_and_the_second_says_nothing(built: Path, tmp_path: Path) -> None:
    code, out, errors = run(built, "check", "a b", KREPAIR_CACHE_DIR=tmp_path)
    assert (code, errors) == (DONE, f"krepair: unpacks 10 MB into {tmp_path}/krepair-{os.geteuid()}, once\n")
    place = tmp_path / f"krepair-{os.geteuid()}"
    [unpacked] = (path for path in place.iterdir() if path.is_dir())
    assert (
        out
        == f"--inhibit-cache --library-path {unpacked}/lib {unpacked}/bin/python3 -I -S -B {unpacked}/start.py"
        f" {built} check a b\n"
    )
    assert (unpacked / "lib/deep/large").stat().st_size == FILE_BYTES
    assert place.stat().st_mode & 0o777 == 0o700
    assert run(built, "check", "a b", KREPAIR_CACHE_DIR=tmp_path) == (DONE, out, "")


def test_a_home_of_this_user_comes_first_and_a_foreign_one_is_passed_over(
    built: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    assert run(built, HOME=tmp_path / "home", TMPDIR=tmp_path)[0] == DONE
    assert (tmp_path / f"home/.cache/krepair-{os.geteuid()}").is_dir()
    assert run(built, HOME=tmp_path / "none", TMPDIR=tmp_path)[0] == DONE
    assert (tmp_path / f"krepair-{os.geteuid()}").is_dir()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("planted", ["a link", "a file", "a folder that others may write"])
def test_what_another_user_could_have_planted_is_refused(built: Path, tmp_path: Path, planted: str) -> None:
    place = tmp_path / f"krepair-{os.geteuid()}"
    if planted == "a link":
        (tmp_path / "other").mkdir()
        place.symlink_to(tmp_path / "other")
    elif planted == "a file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o770)
    code, out, errors = run(built, KREPAIR_CACHE_DIR=tmp_path)
    assert (code, out) == (REFUSED, "")
    assert "not private" in errors
    assert errors.endswith("name another folder: KREPAIR_CACHE_DIR=DIR\n")


def test_a_file_that_others_may_write_is_not_started(built: Path, tmp_path: Path) -> None:
    assert run(built, KREPAIR_CACHE_DIR=tmp_path)[0] == DONE
    [loader] = tmp_path.rglob("loader")
    loader.write_text(loader.read_text().replace("echo", "exit"))
    loader.chmod(0o757)
    code, out, errors = run(built, KREPAIR_CACHE_DIR=tmp_path)
    assert (code, "once" in errors) == (DONE, True)
    assert out


def test_a_folder_below_one_that_others_may_write_is_refused(built: Path, tmp_path: Path) -> None:
    (tmp_path / "open/own").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    code, _, errors = run(built, KREPAIR_CACHE_DIR=tmp_path / "open/own")
    assert (code, f"another user can write {tmp_path}/open;" in errors) == (REFUSED, True)


@pytest.mark.parametrize("place", ["relative", "/no/such/folder"])
def test_a_place_that_is_none_is_named(built: Path, place: str) -> None:
    code, _, errors = run(built, KREPAIR_CACHE_DIR=place)
    assert (code, place in errors, errors.count("\n")) == (REFUSED, True, 1)


def test_of_many_first_starts_at_once_one_unpacks(built: Path, tmp_path: Path) -> None:
    started = [start(built, KREPAIR_CACHE_DIR=tmp_path) for _ in range(8)]
    said = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [DONE] * 8
    assert sum(map(bool, said)) == 1


def test_what_a_killed_unpacking_left_goes(built: Path, tmp_path: Path) -> None:
    place = tmp_path / f"krepair-{os.geteuid()}"
    for _ in range(5):
        process = start(built, KREPAIR_CACHE_DIR=tmp_path)
        while not list(place.glob("new-*/lib")) and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (place / "new-1/lib").mkdir(parents=True)
    (place / "new-1/lib/half").write_text("half")
    for unpacked in place.glob("[0-9a-f]*"):
        shutil.rmtree(unpacked)
    assert run(built, KREPAIR_CACHE_DIR=tmp_path)[0] == DONE
    assert not list(place.glob("new-*"))


def test_a_file_that_a_cleaner_took_is_unpacked_again(built: Path, tmp_path: Path) -> None:
    assert run(built, KREPAIR_CACHE_DIR=tmp_path)[0] == DONE
    [taken] = tmp_path.rglob("empty")
    taken.unlink()
    assert "once" in run(built, KREPAIR_CACHE_DIR=tmp_path)[2]
    assert taken.exists()


@pytest.mark.parametrize("damage", ["a byte is missing", "a bit is flipped"])
def test_a_damaged_copy_is_refused(built: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "krepair"
    shutil.copy(built, copy)
    with copy.open("r+b") as file:
        if damage == "a byte is missing":
            file.truncate(copy.stat().st_size - 1)
        else:
            file.seek(-10, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-10, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
    code, out, errors = run(copy, KREPAIR_CACHE_DIR=tmp_path)
    assert (code, out, errors.endswith("copy it again\n")) == (UNREADABLE, "", True)
    assert not list(tmp_path.glob("krepair-*/[0-9a-f]*"))
