"""``krepair dump`` on hostile input: names, texts, sizes, links, pipes, files of other formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests import builders
from tests.hostile.names import make_terabytes
from tests.hostile.verbs import CONTROL, picture, run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

COMMAND = (sys.executable, "-m", "krepair")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FRONT = "00000000000000000000"
SMALL = (
    "meta.properties",
    "partition.metadata",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("t")
    partition.segment(builders.data(0, 3, pid=7, txn=True), builders.commit(3, pid=7), builders.data(4, 2))
    partition.segment(builders.data(6, 3))
    made.write()
    return partition.folder


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.slow
def test_a_folder_is_its_files_in_order_and_nothing_is_written(folder: Path) -> None:
    before = picture(folder.parent)
    ran = run("dump", str(folder), "--batches", "--records")
    lines = json_lines(run("dump", str(folder), "--json").out)
    assert ran.code == ExitCode.DONE
    names = [Path(str(line["file"])).name for line in lines if line["type"] == "file"]
    assert names == [
        *(FRONT + suffix for suffix in (".log", ".index", ".timeindex")),
        *("00000000000000000006" + suffix for suffix in (".log", ".index", ".timeindex", ".snapshot")),
        "00000000000000000009.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert (lines[0]["type"], lines[0]["format_version"], lines[-1]["exit_code"]) == ("dump", "1.0", 0)
    assert picture(folder.parent) == before


def test_texts_that_steer_a_terminal_are_spelled_out(folder: Path) -> None:
    nasty = "\x1b[2J\x07\x9b\u202e\u2028\nKR999".encode()
    header = ("\u202eh", b"\x1b]0;x\x07")
    log = builders.data(
        0, [builders.Record(nasty, nasty + b"\xff", (header,)), builders.Record(nasty, nasty)]
    ).raw
    (folder / f"{FRONT}.log").write_bytes(log)
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n\x1b[2J\n")
    (folder / "partition.metadata").write_bytes(nasty)
    for words in ((), ("--json",), ("--values", "text"), ("--keys", "json", "--json"), ("--values", "hex")):
        ran = run("dump", str(folder), *words)
        assert ran.code == ExitCode.FOUND
        assert not CONTROL.search(ran.out + ran.err)
        assert not [line for line in ran.out.split("\n") if line.startswith("KR999")]


@pytest.mark.parametrize("name", [*(FRONT + suffix for suffix in SUFFIXES), *SMALL])
def test_a_file_of_another_format_under_any_name_is_damage_and_no_crash(folder: Path, name: str) -> None:
    target = folder / name
    for source in (
        sys.executable,
        __file__,
        str(folder / "00000000000000000006.log"),
        str(folder / "leader-epoch-checkpoint"),
    ):
        data = Path(source).read_bytes()[: 1 << 20]
        target.write_bytes(data)
        ran = run("dump", str(target), "--json")
        assert ran.code in {ExitCode.DONE, ExitCode.FOUND}
        assert json_lines(ran.out)[-1]["type"] == "end"
        for size in (0, 1, 7, 11, 60):
            target.write_bytes(data[:size])
            assert run("dump", str(target)).code in {ExitCode.DONE, ExitCode.FOUND}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(FRONT + suffix for suffix in SUFFIXES), *SMALL])
def test_a_file_of_terabytes_ends_soon_in_little_memory(memory_dir: Path, name: str) -> None:
    folder = memory_dir / "t-0"
    folder.mkdir()
    path = folder / name
    path.write_bytes(builders.data(0, 2).raw if name.endswith(".log") else b"")
    make_terabytes(path)
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from krepair.cli.main import main\n"
        f"sys.argv = ['krepair', 'dump', {str(path)!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode in {ExitCode.FOUND, ExitCode.DONE}, done.stderr[-800:]
    assert "Traceback" not in done.stderr
    assert len(done.stdout) < 10_000


def test_links_pipes_and_folders_are_not_opened_as_files(folder: Path) -> None:
    shutil.move(folder / f"{FRONT}.log", folder.parent / "elsewhere")
    (folder / f"{FRONT}.log").symlink_to(folder.parent / "elsewhere")
    os.mkfifo(folder / "00000000000000000009.log")
    assert run("dump", str(folder / f"{FRONT}.log")).code == ExitCode.UNREADABLE
    assert run("dump", str(folder / "00000000000000000009.log")).code == ExitCode.UNREADABLE
    listed = json_lines(run("dump", str(folder), "--json").out)
    names = {Path(str(line["file"])).name for line in listed if line["type"] == "file"}
    assert not names & {f"{FRONT}.log", "00000000000000000009.log"}


def test_a_reader_that_leaves_ends_it_without_a_word(folder: Path) -> None:
    (folder / f"{FRONT}.log").write_bytes(b"".join(builders.data(n, 1).raw for n in range(20_000)))
    words = " ".join((*COMMAND, "dump", str(folder), "--json"))
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -3; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
    assert done.returncode in {0, 2, 141}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-file.log",), "No such file"),
        (("@/notes.txt",), "not a name of a file"),
        (("@",), ""),
        (("@", "--offsets", "9..3"), "above"),
        (("@", "--offsets", "x"), "A..B"),
        (("@", "--grep", "("), "regular expression"),
        (("@", "--grep", "(" * 2000), "regular expression"),
        (("@", "--grep", "a{99999999999}"), "regular expression"),
        (("@", "--grep", "x", "--batches"), "--records"),
        (("@", "--keys", "upper"), "expected one of"),
        (("@", "--limit", "0"), "from 1 on"),
        (("@", "--decode", "x"), "expected one of"),
    ],
)
def test_wrong_use_is_named(folder: Path, words: tuple[str, ...], said: str) -> None:
    (folder / "notes.txt").write_text("x")
    ran = run("dump", *(word.replace("@", str(folder)) for word in words))
    assert said in ran.err
    assert ran.code in ({ExitCode.USAGE, ExitCode.UNREADABLE} if said else {ExitCode.DONE})


def test_an_error_as_json_is_one_line_too(folder: Path) -> None:
    ran = run("dump", str(folder), "--json", "--offsets", "x")
    assert ran.code == ExitCode.USAGE
    [line] = json_lines(ran.out)
    assert line["exit_code"] == ExitCode.USAGE
