"""Compiled kernels are code: only those owned by the user or root are loaded, and a missing cache is no failure."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.kernels import cache
from krepair.kernels.cache import CACHE_VARIABLE, CodeCache, file_name

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "0" * 32
SET = f"kernels-{DIGEST}"
MADE_OF = "5" * 64
NAME = file_name("scan.scan", "(int64,)", MADE_OF)


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folders that krepair would take, all below one."""
    monkeypatch.setattr(cache, "INSTALLED_FOLDER", str(tmp_path / "installed"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def saved(payload: bytes = b"code") -> CodeCache:
    made = CodeCache(DIGEST)
    made.save(NAME, payload)
    return made


def load() -> bytes | None:
    return CodeCache(DIGEST).load(NAME)


def test_what_was_saved_is_loaded_and_nothing_else(places: Path) -> None:
    saved()
    assert load() == b"code"
    assert CodeCache(DIGEST).load(file_name("scan.scan", "(int32,)", MADE_OF)) is None
    assert CodeCache(DIGEST).load(file_name("scan.scan", "(int64,)", "6" * 64)) is None
    assert CodeCache("1" * 32).load(NAME) is None
    file = places / "named" / SET / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == [file.name]


def test_folders_are_taken_in_turn_and_none_is_needed(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("named", "user", "temporary"):
        (places / "block").write_text("")
        saved()
        written = list(places.rglob(NAME))
        assert [path.relative_to(places).parts[0] for path in written] == [folder]
        assert load() == b"code"
        for path in written:
            path.unlink()
        if folder == "named":
            monkeypatch.setenv(CACHE_VARIABLE, str(places / "block" / "below a file"))
        elif folder == "user":
            monkeypatch.setenv("XDG_CACHE_HOME", str(places / "block"))
        else:
            monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(places / "block"))
    saved()
    assert load() is None


def test_a_machine_without_a_temporary_folder_compiles_each_time(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_usable() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(cache.tempfile, "gettempdir", none_usable)
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/nowhere")
    saved()
    assert load() is None


def test_a_relative_or_empty_name_is_no_folder(monkeypatch: pytest.MonkeyPatch, places: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "somewhere")
    saved()
    assert not Path("somewhere").exists()
    assert (places / "user" / "krepair" / SET).is_dir()


def writable_by_the_group(folder: Path) -> None:
    folder.chmod(0o770)


def writable_by_all(folder: Path) -> None:
    folder.chmod(0o777)


def of_somebody_else(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, 12345)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [writable_by_the_group, writable_by_all, of_somebody_else, linked])
@pytest.mark.parametrize("what", ["named", f"named/{SET}", f"named/{SET}/{NAME}"])
def test_what_somebody_else_may_have_written_is_not_loaded(
    places: Path, spoil: Callable[[Path], None], what: str
) -> None:
    saved(b"evil")
    spoil(places / what)
    assert load() is None


@pytest.mark.parametrize("place", [0, 20, -1])
def test_damage_counts_as_not_saved(places: Path, place: int) -> None:
    saved()
    file = places / "named" / SET / NAME
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert load() is None
    for size in range(len(content)):
        file.write_bytes(bytes(content[:size]))
        assert load() is None
    saved()
    assert load() == b"code"


def test_a_pipe_in_the_place_of_a_file_does_not_hang(places: Path) -> None:
    saved()
    file = places / "named" / SET / NAME
    file.unlink()
    os.mkfifo(file, 0o600)
    assert load() is None


def test_what_is_kept_for_everybody_can_be_read_by_all_whatever_the_umask(places: Path) -> None:
    before = os.umask(0o077)
    try:
        made = CodeCache(DIGEST)
        folder = Path(made.keep_for_everybody(str(places / "installed")))
        made.save(NAME, b"code")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, *folder.iterdir())]
    assert modes == [0o755, 0o755, 0o644]
    assert load() == b"code"
    assert not (places / "named").exists()


def test_sets_of_old_versions_go_when_a_new_one_is_made(places: Path) -> None:
    saved()
    old, young = places / "named" / SET, places / "named" / f"kernels-{'2' * 32}"
    young.mkdir(0o700)
    (places / "named" / "precious").mkdir()
    for folder in (old, places / "named" / "precious"):
        os.utime(folder, (0, 0))
    CodeCache("1" * 32).save(NAME, b"new")
    assert sorted(os.listdir(places / "named")) == [f"kernels-{'1' * 32}", young.name, "precious"]


def test_old_files_of_a_kernel_go_when_a_new_version_of_it_is_saved(places: Path) -> None:
    names = [file_name("scan.scan", "(int64,)", digit * 64) for digit in "6789"]
    others = [file_name("scan.scan", "(int32,)", MADE_OF), file_name("scan.scan_more", "(int64,)", MADE_OF)]
    before = CodeCache(DIGEST)
    for name in names + others:
        before.save(name, b"old")
    folder = places / "named" / SET
    for name in names[:2] + others:
        os.utime(folder / name, (0, 0))
    saved()
    assert sorted(os.listdir(folder)) == sorted([*names[2:], *others, NAME])


def test_a_kernel_that_can_be_kept_nowhere_is_compiled_and_works(tmp_path: Path) -> None:
    """What a service user without a home meets in a container whose file system is read-only."""
    script = (
        "import numpy as np\nfrom krepair.kernels.scan_window import crc_piece\n"
        "print(crc_piece(0, np.frombuffer(b'123456789', np.uint8), 0, 9))"
    )
    (tmp_path / "krepair").mkdir()
    for path in (ROOT / "krepair").rglob("*.py"):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    environment = {"HOME": "/proc/nowhere", "TMPDIR": "/proc/nowhere", "PYTHONPATH": str(tmp_path)}
    # Nobody, not even root, makes a folder below /proc; so no file system needs to be read-only here.
    hidden = "import tempfile; tempfile.gettempdir = lambda: '/proc/nowhere'\n"
    ended = subprocess.run(
        [sys.executable, "-c", hidden + script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert (ended.stdout, ended.stderr) == (f"{0xE3069283}\n", "")
