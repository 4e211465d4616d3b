"""Staged files of a group are those of the plan: the log by size and time, each index by its bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import RefusedError, VerifyFailedError
from krepair.journal.freshness import check_staged
from krepair.logdir.fingerprint import digest_file
from krepair.plan.model import RewriteSegments
from tests.journal.scene import PLAN_ID, Scene, name

STAGE = f"krepair~{PLAN_ID}/stage"


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    made = Scene(memory_dir / "logs", index_change=False)
    made.stage(made.partition.changes[0])
    for extension in (".index", ".timeindex", ".txnindex"):
        os.utime(made.path / STAGE / name(100, extension), ns=(5, 5))
    return made


def group(scene: Scene) -> RewriteSegments:
    change = scene.partition.changes[0]
    assert isinstance(change, RewriteSegments)
    return change


def test_log_is_known_by_its_own_size_and_time_and_not_by_those_of_an_index(scene: Scene) -> None:
    change = group(scene)
    states = check_staged(scene.folder(), change)
    assert [state.name for state in states] == [
        name(100, end) for end in (".log", ".index", ".timeindex", ".txnindex")
    ]
    index = states[1]
    assert index.size != change.log_bytes
    for other in (replace(change, log_bytes=index.size), replace(change, mtime_ns=index.mtime_ns)):
        with pytest.raises(RefusedError, match=f"expected {other.log_bytes} bytes of mtime {other.mtime_ns}"):
            check_staged(scene.folder(), other)


@pytest.mark.parametrize("wrong", ["gone", "empty"])
def test_log_that_is_gone_or_empty_is_refused(scene: Scene, wrong: str) -> None:
    log = scene.path / STAGE / name(100)
    log.unlink()
    if wrong == "empty":
        log.write_bytes(b"")
    with pytest.raises(RefusedError, match="is missing" if wrong == "gone" else "has no bytes"):
        check_staged(scene.folder(), group(scene))


def test_index_that_is_not_the_one_that_was_made_is_refused(scene: Scene) -> None:
    index = scene.path / STAGE / name(100, ".index")
    made = {index.name: digest_file(str(index))}
    assert len(check_staged(scene.folder(), group(scene), made)) == 4
    index.write_bytes(b"x" + index.read_bytes()[1:])
    with pytest.raises(VerifyFailedError, match="its bytes are not those that krepair wrote"):
        check_staged(scene.folder(), group(scene), made)
