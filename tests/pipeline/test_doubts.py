"""What one worker could not read is tried by another one, and is unreadable when both, or the last one, say so."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from krepair.errors import UnreadableError
from krepair.pipeline.engines import spark
from krepair.pipeline.engines.doubts import Doubts, cannot_read
from krepair.pipeline.engines.spark import SparkEngine
from krepair.pipeline.indexes.segment import MendResult, MendResults
from krepair.pipeline.items import ScanResult
from krepair.pipeline.scan import scan
from krepair.pipeline.sight import why_not_here
from tests.pipeline.sights import items, log_dir, sight

__all__ = ["log_dir"]
BAD = ScanResult(failure="unreadable", why="t-0/0.log: Input/output error")


def test_the_first_who_cannot_read_is_doubted_and_the_second_is_believed() -> None:
    doubts = Doubts()
    assert doubts.is_new(3, "a", BAD)
    assert doubts.is_new(3, "a", BAD)
    assert doubts.workers([2, 3]) == ("a",)
    assert not doubts.is_new(3, "b", BAD)
    assert not doubts.is_new(4, "a", ScanResult())
    assert doubts.said([3, 4]) == [(3, BAD)]


@pytest.mark.parametrize(
    ("result", "doubtful"),
    [
        (BAD, True),
        (ScanResult(failure="changed"), False),
        (MendResults(results=(MendResult(), MendResult(failure="unreadable", why="x"))), True),
        (MendResults(results=(MendResult(),)), False),
    ],
)
def test_a_result_of_several_parts_is_doubted_for_one_of_them(result: object, doubtful: bool) -> None:
    assert cannot_read(result) is doubtful


@pytest.mark.parametrize(("code", "said"), [(errno.EIO, ""), (errno.ESTALE, "Stale file handle")])
def test_a_sample_that_gives_an_io_error_is_left_to_the_task_and_a_stale_handle_is_another_directory(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    seen, pread = sight(log_dir), os.pread

    def fail(descriptor: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            raise OSError(code, os.strerror(code))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", fail)
    wrong = why_not_here(seen)
    assert (said in wrong) if said else wrong == ""


def test_what_this_host_cannot_look_at_while_workers_read_is_said_with_its_path(log_dir: Path) -> None:
    engine = SparkEngine.__new__(SparkEngine)
    engine._is_local, engine._greeting = False, None
    work = spark._Work(scan, items(log_dir), Doubts(), 0.0)
    assert engine._proof(work, [0, 1], {}).sights
    log_dir.rename(log_dir.with_name("away"))
    log_dir.mkdir()
    with pytest.raises(UnreadableError, match=r"this host could not look at it while workers read") as error:
        engine._proof(work, [0, 1], {})
    assert str(log_dir) in error.value.message
