"""The Java that Spark gets: one of the host from 17 on, else that of krepair[java] behind a wrapper."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.engine import java
from krepair.engine.choice import WorkKind, choose_engine
from krepair.errors import RefusedError


@pytest.fixture(autouse=True)
def bare_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("KREPAIR_JAVA", "")
    monkeypatch.setattr(java, "packaged_java", lambda: "")
    return tmp_path


MUCH = {WorkKind.KEYS: 10**12}


def fake_java(path: Path, said: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    path.chmod(0o755)
    return path


def packaged(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: str(path))


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("sorry", 0),
    ],
)
def test_the_version_is_read(bare_host: Path, said: str, version: int) -> None:
    assert java.java_version(str(fake_java(bare_host / "bin" / "java", said))) == version


def test_a_java_of_the_host_is_taken_first(bare_host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare_host / "bin" / "java", 'version "17.0.1"')
    packaged(monkeypatch, fake_java(bare_host / "packaged", 'version "21"'))
    assert java.prepare_java() == ""
    assert "JAVA_HOME" not in os.environ


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(
    bare_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(bare_host / "old" / "bin" / "java", 'version "1.8.0"')
    fake_java(bare_host / "bin" / "java", 'version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(bare_host / "old"))
    assert java.prepare_java() == ""
    assert "JAVA_HOME" not in os.environ


def test_an_old_java_gives_way_to_the_packaged_one(bare_host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare_host / "bin" / "java", 'version "11.0.1"')
    path = fake_java(bare_host / "packaged", 'version "21"')
    packaged(monkeypatch, path)
    assert java.prepare_java() == ""
    assert os.environ["KREPAIR_JAVA"] == str(path)
    assert os.environ["JAVA_HOME"] == java.WRAPPED_HOME


def test_an_old_java_alone_is_named(bare_host: Path) -> None:
    path = fake_java(bare_host / "bin" / "java", 'version "1.8.0"')
    assert java.prepare_java() == f"Spark needs Java 17 or later, and {path} is Java 8"


def test_without_java_spark_is_refused_and_auto_works_here(bare_host: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"there is no java in JAVA_HOME or on PATH.*krepair\[java\]"
    ) as error:
        choose_engine("spark", "", {})
    assert str(error.value.next_command) == "the same command with --engine inline"
    assert choose_engine("auto", "", MUCH).why == "inline: there is no java in JAVA_HOME or on PATH"


def test_with_an_old_java_auto_works_here_and_says_why(bare_host: Path) -> None:
    fake_java(bare_host / "bin" / "java", 'version "1.8.0"')
    assert "is Java 8" in choose_engine("auto", "", MUCH).why


def test_an_installation_without_spark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the single-file bundle is."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RefusedError, match="this installation is without Spark"):
        choose_engine("spark", "", {})
    assert choose_engine("auto", "", MUCH).why == "inline: this installation is without Spark"


def test_the_wrapper_drops_one_word_and_passes_the_others_as_they_are(bare_host: Path) -> None:
    shell = shutil.which("sh", path="/usr/bin:/bin")
    assert shell is not None
    shown = fake_java(bare_host / "shown", "")
    shown.write_text(f'#!{shell}\nprintf "%s|" "$@"\n')
    wrapper = os.path.join(java.WRAPPED_HOME, "bin", "java")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-opens=x=y", "*"]
    ended = subprocess.run(
        [wrapper, *words], capture_output=True, text=True, check=True, env={"KREPAIR_JAVA": str(shown)}
    )
    assert ended.stdout == "-Xmx1g|a b||--add-opens=x=y|*|"
