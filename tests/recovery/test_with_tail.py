"""--fix tail,recovery in one plan, with and without a consent: as docs/recovery.md advises where a log is damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding
from krepair.errors import UsageError
from krepair.ops.check import check
from tests.builders import LogDir, abort, data
from tests.flips import flip
from tests.ops.inline import there_and_back
from tests.recovery.scene import Verbs, points_of, set_points, write_unclean


def damaged(root: Path) -> tuple[Path, str]:
    """``t-0`` with one damaged batch in the middle and ``o-0`` with a torn tail; and the consent that check names."""
    path = write_unclean(root, {"t": 0, "o": 0})
    log = path / "t-0" / f"{100:020d}.log"
    flip(log)
    with open(path / "o-0" / f"{0:020d}.log", "ab") as file:
        file.write(b"torn")
    found = [one for report in check([str(path)], Verbs(path).options()).log_dirs for one in report.findings]
    return path, next(named for one in found if (named := _consent(one)))


def _consent(finding: Finding) -> str:
    match = re.search(r"--accept-data-loss (\S+:t-0:\d+)", finding.evidence)
    return match[1] if match else ""


@pytest.mark.parametrize("fixes", [("tail", "recovery"), ("recovery", "tail"), ("tail=broker", "recovery")])
def test_a_consent_is_taken_with_recovery_beside_it(fixes: tuple[str, ...], tmp_path: Path) -> None:
    path, consent = damaged(tmp_path / "logs")
    verbs = Verbs(path, fixes=fixes, accepted_losses=(consent,))
    plan = verbs.plan()
    assert {f"{one.topic}-{one.partition}" for one in plan.partitions if one.changes} == {"t-0", "o-0"}
    with there_and_back(path, plan, verbs.options()):
        assert verbs.wrong(plan) == []
        then = Verbs(path).plan()
        assert {f"{one.topic}-{one.partition}" for one in then.partitions if one.changes} == {"t-0"}


def test_without_a_consent_the_damage_stays_and_the_other_partition_is_recovered(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path / "logs")
    plan = Verbs(path, fixes=("tail", "recovery")).plan()
    assert {f"{one.topic}-{one.partition}" for one in plan.partitions if one.changes} == {"o-0"}


def test_a_consent_that_names_nothing_is_refused_with_recovery_beside_it(tmp_path: Path) -> None:
    path, consent = damaged(tmp_path / "logs")
    with pytest.raises(UsageError, match="is not among the partitions"):
        Verbs(path, fixes=("tail", "recovery"), accepted_losses=(consent.replace("t-0", "x-0"),)).plan()


@pytest.mark.parametrize("entries", [b"", None])
def test_a_torn_log_whose_transaction_index_lacks_an_abort_is_cut_before_it_is_recovered(
    entries: bytes | None, tmp_path: Path
) -> None:
    """A start would make the index anew; behind a raised recovery point consumers would read what was aborted."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, 2, pid=7, txn=True), abort(2, pid=7), data(3))
    path = directory.write(clean_stop=False)
    set_points(path, {"t": 0})
    with open(path / "t-0" / f"{0:020d}.log", "ab") as file:
        file.write(b"torn")
    index = path / "t-0" / f"{0:020d}.txnindex"
    right = index.read_bytes()
    index.write_bytes(entries) if entries is not None else index.unlink()
    (part,) = Verbs(path).plan().partitions
    assert (part.code, part.changes) == ("txnindex-disagrees", ())
    assert "--fix tail" in str(part.next_command)
    for fix in ("tail", "recovery"):
        verbs = Verbs(path, fixes=(fix,))
        plan = verbs.plan()
        verbs.apply(plan)
        assert verbs.wrong(plan) == []
    assert index.read_bytes() == right
    assert points_of(path) == {"t": 4}


def test_an_entry_of_a_marker_that_goes_with_the_torn_tail_is_cut_with_it(tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(0, 2, pid=7, txn=True), abort(2, pid=7), data(3, 2, pid=7, txn=True, sequence=2), abort(5, pid=7)
    )
    path = directory.write(clean_stop=False)
    set_points(path, {"t": 0})
    log = path / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    verbs = Verbs(path)
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": 5}
        assert (path / "t-0" / f"{0:020d}.txnindex").stat().st_size == 34
