"""A new log of the same size as the old one: the bytes decide which of the two is in place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.compaction.cases import same_length
from tests.compaction.directories import Verbs, groups_of, options
from tests.flips import flip
from tools.torture.scenes import look, visible

LOG = f"{0:020d}.log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Looked for once: with another zlib it takes a thousand compressions."""
    return same_length(tmp_path_factory.mktemp("made"))


@pytest.fixture
def verbs(made: Path, tmp_path: Path) -> Verbs:
    return Verbs(Path(shutil.copytree(made, tmp_path / "logs")), options(tmp_path, merge=False))


def test_once_its_originals_are_purged_a_log_of_the_old_length_is_done(verbs: Verbs) -> None:
    log = verbs.log_dir / "t-0" / LOG
    plan, old = verbs.plan(), log.read_bytes()
    (group,) = groups_of(plan.partitions[0])
    assert (len(group.sources), group.log_bytes) == (1, len(old))
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(log.read_bytes()) == len(old)
    assert log.read_bytes() != old
    assert verbs.purge(plan).exit_code is ExitCode.DONE
    again = verbs.apply(plan)
    assert (again.exit_code, [result.outcome for result in again.results]) == (ExitCode.DONE, ["already"])
    assert verbs.verify(plan).problems == ()
    assert verbs.undo(plan).exit_code is ExitCode.REFUSED
    assert verbs.plan().partitions[0].changes == ()


@pytest.mark.parametrize("place", [8 + 4 + 4 + 1, -30])
def test_purged_log_of_the_old_length_with_a_flipped_bit_is_not_called_done(place: int, verbs: Verbs) -> None:
    log = verbs.log_dir / "t-0" / LOG
    plan = verbs.plan()
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.purge(plan).exit_code is ExitCode.DONE
    flip(log, place)
    before = visible(look(verbs.log_dir))
    assert verbs.apply(plan).exit_code is ExitCode.STALE_PLAN
    assert verbs.verify(plan).problems
    assert visible(look(verbs.log_dir)) == before


def test_before_apply_and_after_undo_an_original_as_long_as_the_new_log_is_planned(verbs: Verbs) -> None:
    before, plan = visible(look(verbs.log_dir)), verbs.plan()
    for _ in range(2):
        (problem,) = verbs.verify(plan).problems
        assert problem.text == "1 change is not applied: its state is planned"
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
        assert verbs.undo(plan).exit_code is ExitCode.DONE
        assert visible(look(verbs.log_dir)) == before


def test_original_that_came_back_from_a_backup_is_not_taken_for_the_new_log_of_its_length(
    verbs: Verbs,
) -> None:
    log = verbs.log_dir / "t-0" / LOG
    plan, old = verbs.plan(), log.stat()
    copy = log.with_suffix(".copy")
    shutil.copy2(log, copy)
    copy.replace(log)
    os.utime(log, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert log.stat().st_ino != old.st_ino
    (problem,) = verbs.verify(plan).problems
    assert problem.text == "1 change is not applied: its state is planned"
    assert verbs.apply(plan).exit_code is ExitCode.DONE  # what it holds says that it is the original
    assert verbs.verify(plan).problems == ()


def test_original_as_long_as_the_new_log_with_a_flipped_bit_is_stale(verbs: Verbs) -> None:
    plan = verbs.plan()
    flip(verbs.log_dir / "t-0" / LOG, 20)
    before = visible(look(verbs.log_dir))
    assert verbs.apply(plan).exit_code is ExitCode.STALE_PLAN
    assert visible(look(verbs.log_dir)) == before
