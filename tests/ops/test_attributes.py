"""New files take over owner, group, mode, extended attributes and modification time of those they replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.ops.inline import there_and_back
from tests.ops.scene import Scene, part, rewrites, scene

BROKER_UID, BROKER_GID = 4711, 4712
NAME, VALUE = "user.krepair-test", b"kept\0whole"


def dress(one: Scene) -> None:
    """As a broker of another user would have left the directory."""
    for path in [one.path, *one.path.rglob("*")]:
        mtime_ns = path.stat().st_mtime_ns
        if path.is_file():
            path.chmod(0o640)
        else:
            path.chmod(0o2750)
        if os.geteuid() == 0:
            os.chown(path, BROKER_UID, BROKER_GID)
        if path.suffix == ".log":
            os.setxattr(path, NAME, VALUE)
        os.utime(path, ns=(mtime_ns, mtime_ns))


def who(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def test_new_files_belong_to_whom_the_old_ones_did_and_undo_restores_all(tmp_path: Path) -> None:
    one = scene(tmp_path)
    try:
        os.setxattr(one.path, NAME, VALUE)
    except OSError:
        pytest.skip("the file system has no extended attributes")
    os.removexattr(one.path, NAME)
    dress(one)
    expected = (BROKER_UID, BROKER_GID) if os.geteuid() == 0 else who(one.path)
    plan = one.plan()
    with there_and_back(one.path, plan, one.options()):
        new = 0
        for each in plan.partitions:
            for change in rewrites(each):
                stem = one.path / each.folder / f"{change.base_offset:020d}"
                for path in (
                    stem.with_suffix(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")
                ):
                    if not path.exists():
                        continue
                    new += 1
                    assert who(path) == expected, path
                    assert stat.S_IMODE(path.stat().st_mode) == 0o640, path
                    assert path.stat().st_mtime_ns == change.mtime_ns, path
                assert os.getxattr(stem.with_suffix(".log"), NAME) == VALUE
        assert new >= 12
        # the journal is krepair's own, in a folder from which the broker may remove it
        strangers = {path.name for path in one.path.rglob("*") if who(path) != expected}
        assert strangers <= {"journal"}


def test_merged_segment_has_the_time_of_its_last_source_which_is_the_brokers_clock(tmp_path: Path) -> None:
    one = scene(tmp_path)
    plan = one.plan()
    for change in rewrites(part(plan, "__consumer_offsets-0")):
        last = one.path / "__consumer_offsets-0" / f"{change.sources[-1].base_offset:020d}.log"
        assert change.mtime_ns == last.stat().st_mtime_ns
