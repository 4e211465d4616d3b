"""The manual page and the completions are up to date, and understood by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import share


@pytest.mark.parametrize("name", sorted(share.files()))
def test_file_is_fresh(name: str) -> None:
    assert (share.SHARE / name).read_text() == share.files()[name], "run make docs"


def completed(typed: str, folder: Path) -> set[str]:
    """What bash offers when TAB is pressed behind a line."""
    words = typed.split(" ")
    script = (
        f'source "{share.SHARE / share.BASH}"\n'
        f"COMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
        '_krepair\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    ended = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, cwd=folder
    )
    assert "syntax" not in ended.stderr
    return set(ended.stdout.split("\n")) - {""}


def test_bash_completes_verbs_options_values_and_places(tmp_path: Path) -> None:
    (tmp_path / "kafka logs").mkdir()
    (tmp_path / "a.plan").write_text("")
    assert {"check", "plan", "warm"} < completed("krepair ", tmp_path)
    assert completed("krepair pl", tmp_path) == {"plan"}
    assert completed("krepair plan --delete", tmp_path) == {"--delete-horizon"}
    assert completed("krepair check --engine sp", tmp_path) == {"spark"}
    assert completed("krepair plan --fix ta", tmp_path) == {"tail"}
    assert completed("krepair check k", tmp_path) == {"kafka logs"}
    assert completed("krepair apply a", tmp_path) == {"a.plan"}
    assert completed("krepair explain K", tmp_path) == set()


@pytest.mark.parametrize(("shell", "name"), [("zsh", share.ZSH), ("fish", share.FISH)])
def test_the_shell_can_read_its_completion(shell: str, name: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    ended = subprocess.run(
        [shell, "-n", str(share.SHARE / name)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_fish_completes_verbs_and_options() -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    for typed, expected in (("krepair pl", "plan"), ("krepair check --engine sp", "spark")):
        script = f"source {share.SHARE / share.FISH}; complete -C '{typed}'"
        ended = subprocess.run(["fish", "-c", script], capture_output=True, text=True, check=True)
        assert [line.partition("\t")[0] for line in ended.stdout.splitlines()] == [expected]


def test_the_manual_page_is_drawn_without_a_warning() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    ended = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-c", "-ww", str(share.SHARE / share.MAN)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    plain = re.sub(".\x08", "", ended.stdout, flags=re.ASCII)  # printed twice means bold
    assert "--delete-horizon" in plain.replace("\u2010", "-").replace("\u2212", "-")
