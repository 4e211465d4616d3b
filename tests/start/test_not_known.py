"""No path leads from "could not look" to "starts": whatever cannot be read makes the forecast unknown, or a refusal."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krepair.checks.catalogue import StartEffect, strongest
from krepair.engine.items import Failed
from krepair.errors import KrepairError
from krepair.fixes.analysis import NEXT_START, PartitionAnalysis
from krepair.loading.next_start import NextStart
from krepair.logdir import reading
from krepair.start import forecast as forecasts
from krepair.start.findings import Starting
from tests.fixture_dirs import unpack
from tests.start.metadata_log import appended
from tests.start.states import LOG, METADATA, checked, foretold

NOT_A_START = {"unknown", "refuse"}
ONE = "one-0"
FIRST = f"{ONE}/{0:020d}"


def _a_folder(name: str) -> Callable[[Path], None]:
    def make(log_dir: Path) -> None:
        path = log_dir / name
        if path.exists():
            path.unlink()
        path.mkdir()

    return make


def _a_pipe(name: str) -> Callable[[Path], None]:
    def make(log_dir: Path) -> None:
        (log_dir / name).unlink(missing_ok=True)
        os.mkfifo(log_dir / name)

    return make


def _a_link(log_dir: Path) -> None:
    shutil.move(log_dir / ONE, log_dir.with_name("elsewhere"))
    (log_dir / ONE).symlink_to(log_dir.with_name("elsewhere"))


def _too_long(name: str) -> Callable[[Path], None]:
    return lambda log_dir: os.truncate(log_dir / name, 2**31)


def _long_index(log_dir: Path) -> None:
    (log_dir / f"{FIRST}.index").touch()
    os.truncate(log_dir / f"{FIRST}.index", 2**31)


SITUATIONS: list[tuple[str, Callable[[Path], None], str]] = [
    ("a log that is a folder", _a_folder(f"{FIRST}.log"), ONE),
    ("a log that is a pipe", _a_pipe(f"{FIRST}.log"), ONE),
    ("an index that is a pipe", _a_pipe(f"{FIRST}.index"), ONE),
    ("a partition behind a link", _a_link, ONE),
    ("a log of 2 GiB", _too_long(f"{FIRST}.log"), ONE),
    ("an index of 2 GiB", _long_index, ONE),
    ("a metadata log that is a pipe", _a_pipe(LOG), METADATA),
    ("a metadata log that is a folder", _a_folder(LOG), METADATA),
    ("recovery points that are a pipe", _a_pipe("recovery-point-offset-checkpoint"), ONE),
    ("log starts that are a pipe", _a_pipe("log-start-offset-checkpoint"), ONE),
    ("high watermarks that are a folder", _a_folder("replication-offset-checkpoint"), ONE),
    ("leader epochs that are a pipe", _a_pipe(f"{ONE}/leader-epoch-checkpoint"), ONE),
    ("a topic id that is a pipe", _a_pipe(f"{ONE}/partition.metadata"), ONE),
    ("a quorum-state that is a pipe", _a_pipe(f"{METADATA}/quorum-state"), ONE),
    ("a snapshot of the metadata that is a pipe", _a_pipe(f"{METADATA}/{0:020d}-{0:010d}.checkpoint"), ONE),
    ("a record of a type that is not known", lambda one: appended(one, bytes([1, 99, 0])), ONE),
    ("a record of no content", lambda one: appended(one, b""), ONE),
    ("a record of another frame", lambda one: appended(one, bytes([2, 2, 0])), ONE),
]


@pytest.mark.parametrize(("situation", "make", "folder"), SITUATIONS, ids=[one[0] for one in SITUATIONS])
def test_what_cannot_be_read_is_no_start(
    tmp_path: Path, situation: str, make: Callable[[Path], None], folder: str
) -> None:
    log_dir = unpack("kraft-4.4.0", tmp_path)
    make(log_dir)
    said = foretold(checked([log_dir], None, "4.4.0"))
    assert said[folder] in NOT_A_START, situation


@pytest.mark.parametrize(
    "answer", [None, NextStart(unread=Failed("unreadable", "it could not be read"))], ids=["none", "failed"]
)
def test_a_partition_whose_start_was_not_simulated_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: NextStart | None
) -> None:
    log_dir = unpack("kraft-4.4.0", tmp_path)
    result = PartitionAnalysis.result

    def without(analysis: PartitionAnalysis, key: Any) -> Any:
        return answer if key is NEXT_START else result(analysis, key)

    monkeypatch.setattr(PartitionAnalysis, "result", without)
    said = foretold(checked([log_dir], None, "4.4.0"))
    assert {expected for folder, expected in said.items() if folder != METADATA} == {"unknown"}


@pytest.mark.parametrize("field", ["refused", "not_known", "ends_broker"])
def test_what_is_not_known_of_one_directory_is_not_known_of_its_broker(field: str) -> None:
    lines = (
        forecasts.aside_line("a-0", "why"),
        forecasts.ForecastLine(partition="b-0", expected="start", text=""),
    )
    other = Starting(**{field: "it could not be read"})
    after = forecasts.with_another(lines, "/other", other)
    expected = {"refused": "start", "not_known": "unknown", "ends_broker": "refuse"}[field]
    assert [one.expected for one in after] == ["stray", expected]


def test_an_unknown_start_is_worse_than_none_and_better_than_an_end() -> None:
    assert strongest([StartEffect.NONE, StartEffect.UNKNOWN]) is StartEffect.UNKNOWN
    assert strongest([StartEffect.UNKNOWN, StartEffect.ENDS]) is StartEffect.ENDS


# -- each file and folder that the forecast reads, made unreadable in turn

FUTURE = f"one-0.{'a' * 32}-future"
LEFT_OUT = ("__consumer_offsets-", "__transaction_state-")


def _opens_fail(patch: pytest.MonkeyPatch, path: str, code: int, told: list[str]) -> None:
    real = reading._open_quietly

    def opening(name: str, flags: int, within: Any) -> int:
        opened = real(name, flags, within)
        if os.readlink(f"/proc/self/fd/{opened}") == path:
            os.close(opened)
            told.append(path)
            raise OSError(code, os.strerror(code), name)
        return opened

    patch.setattr(reading, "_open_quietly", opening)


def _reads_fail(patch: pytest.MonkeyPatch, path: str, code: int, told: list[str]) -> None:
    for call in ("read", "pread", "preadv", "readv"):
        real = getattr(os, call)

        def reads(descriptor: int, *given: Any, real: Any = real) -> Any:
            if os.readlink(f"/proc/self/fd/{descriptor}") == path:
                told.append(path)
                raise OSError(code, os.strerror(code))
            return real(descriptor, *given)

        patch.setattr(os, call, reads)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    ("fail", "code"), [(_opens_fail, errno.EACCES), (_reads_fail, errno.EIO)], ids=["permission", "fault"]
)
def test_no_input_that_could_not_be_read_leads_to_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Any, code: int, clean: bool
) -> None:
    log_dir = unpack("kraft-4.4.0", tmp_path)
    for folder in log_dir.iterdir():
        if folder.name.startswith(LEFT_OUT):
            shutil.rmtree(folder)
    if not clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    shutil.copytree(log_dir / ONE, log_dir / "two-0")
    (log_dir / "two-0").rename(log_dir / f"two-0.{'a' * 32}-future")
    inputs, started = 0, []
    for path in sorted((log_dir, *log_dir.rglob("*"))):
        told: list[str] = []
        with monkeypatch.context() as patch:
            fail(patch, str(path), code, told)
            try:
                said = foretold(checked([log_dir], None, "4.4.0"))
            except KrepairError:
                continue
        folder, *_ = (*path.relative_to(log_dir).parts, "")
        of_all = folder == METADATA or not (log_dir / folder).is_dir() or path == log_dir
        of = said.values() if of_all else [said.get(folder, "")]
        started += [(path.name, folder, said)] if told and {"start", "recover"} & {*of} else []
        inputs += bool(told)
    assert started == []
    assert inputs > 10
