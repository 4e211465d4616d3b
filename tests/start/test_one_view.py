"""What a plan takes for the log end, the loaded snapshot and the recovered segments is what the next start takes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from krepair.errors import ExitCode
from krepair.fixes.files import removal_change
from krepair.fixes.next_start import why_not_started
from krepair.fixes.table import FIXES
from krepair.formats.producer_snapshot import ENTRY, ProducerEntry, encode_table
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.plan import contexts
from krepair.ops.undo import undo
from krepair.plan.model import Change, Plan
from tests.builders import NOW_MS, LogDir, abort, commit, data
from tests.flips import flip
from tests.ops.inline import Inline
from tests.ops.scene import tree
from tests.ops.snapshots import entries

VERBS = Inline(now_ms=NOW_MS + 60_000, settings=(("index.interval.bytes", "1"),))
FOLDER = "t-0"


def snapshot(log_dir: Path, offset: int) -> Path:
    return log_dir / FOLDER / f"{offset:020d}.snapshot"


def log(log_dir: Path, base: int) -> Path:
    return log_dir / FOLDER / f"{base:020d}.log"


def written(root: Path, *, clean: bool, point: int = 0, log_start: int = 0) -> Path:
    """Segments 0, 8 and 16, log end 24; producer 7 has a transaction open since offset 20."""
    directory = LogDir(root)
    partition = directory.partition("t", index_interval_bytes=1)
    for base in (0, 8):
        partition.segment(
            data(base, 3, pid=7, txn=True, sequence=base),
            data(base + 3, 2, pid=9, sequence=base),
            commit(base + 5, pid=7),
            data(base + 6, 2),
        )
    partition.segment(
        data(16, 2, pid=9, sequence=16), data(18, 2), data(20, 2, pid=7, txn=True, sequence=20), data(22, 2)
    )
    path = directory.write(clean_stop=clean, log_starts={FOLDER: log_start})
    if not clean:
        (path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    return path


def changes(plan: Plan) -> list[Change]:
    return [change for part in plan.partitions for change in part.changes]


def there_and_back(path: Path, plan: Plan) -> dict[Path, bytes]:
    """Apply a plan, plan again, undo; returns the directory in between."""
    options, before = VERBS.options(), tree(path)
    report = apply(plan, options)
    assert report.exit_code == ExitCode.DONE, report.results
    between = {one: one.read_bytes() for one in (path / FOLDER).iterdir() if one.is_file()}
    assert undo(plan, options).exit_code == ExitCode.DONE
    assert tree(path) == before
    return between


def test_the_snapshot_at_the_end_that_a_clean_start_finds_stays_though_the_log_before_it_is_damaged(
    tmp_path: Path,
) -> None:
    """A start after a clean stop finds the end by the active index, and reads no batch before its last entry."""
    path = written(tmp_path, clean=True)
    flip(log(path, 16), 8)  # the size of the first batch
    plan = VERBS.planned(path, fixes=("snapshots",))
    assert (changes(plan), plan.partitions[0].status) == ([], "nothing")
    line = VERBS.checked(path).forecast[0]
    assert (line.log_end, snapshot(path, 24).exists()) == (24, True)


def test_past_the_end_is_what_lies_behind_the_end_that_a_clean_start_finds(tmp_path: Path) -> None:
    """The last entry of the active index leads behind a torn log: the start takes the base offset for the end."""
    path = written(tmp_path, clean=True)
    whole = log(path, 16).read_bytes()
    log(path, 16).write_bytes(whole[:-9])
    line = VERBS.checked(path).forecast[0]
    assert line.log_end == 16
    plan = VERBS.planned(path, fixes=("snapshots",))
    assert plan.partitions[0].log_end_offset in {0, 16}
    assert [change.touches for change in changes(plan)] == [(snapshot(path, 24).name,)]
    mended = VERBS.planned(path, fixes=("snapshots", "tail", "index"))
    assert mended.partitions[0].log_end_offset == 22


@pytest.mark.parametrize("fixes", [("recovery", "snapshots"), ("recovery",)])
def test_a_snapshot_for_a_start_that_recovers_holds_what_it_reads_below_the_log_start(
    tmp_path: Path, fixes: tuple[str, ...]
) -> None:
    """The recovery reads the whole segment in which the log starts, so it knows the producers below the start."""
    path = written(tmp_path, clean=False, point=22, log_start=22)
    snapshot(path, 16).write_bytes(b"")
    between = there_and_back(path, VERBS.planned(path, fixes=fixes))
    made = tmp_path / "made"
    made.write_bytes(between[snapshot(path, 24)])
    assert entries(made) == {
        ProducerEntry(7, 0, 21, 21, 1, NOW_MS, -1, 20),
        ProducerEntry(9, 0, 17, 17, 1, NOW_MS, -1, -1),
    }


def test_the_end_of_a_plan_is_that_of_the_start_and_not_an_offset_that_a_flipped_bit_made(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, clean=False, point=16)
    whole = bytearray(log(path, 8).read_bytes())
    struct.pack_into(">q", whole, 0, 8 + (1 << 14))
    log(path, 8).write_bytes(whole)
    plan = VERBS.planned(path, fixes=("epochs", "recovery"))
    assert plan.partitions[0].log_end_offset == 24
    there_and_back(path, plan)


def test_a_recovery_of_the_first_segment_begins_with_the_snapshot_of_its_base_offset(tmp_path: Path) -> None:
    """It asks the recorded log start alone (UnifiedLog.rebuildProducerState); the segments before it are gone."""
    path = written(tmp_path, clean=False, point=24)
    for base in (0, 8):
        for file in (path / FOLDER).glob(f"{base:020d}.*"):
            file.unlink()
    (path / "log-start-offset-checkpoint").write_text("0\n0\n")
    known = ProducerEntry(11, 0, 5, 5, 0, NOW_MS, 0, -1)
    row = np.array([[getattr(known, name) for name in ENTRY.names]], np.int64)
    snapshot(path, 16).write_bytes(encode_table(row))
    between = there_and_back(
        path, VERBS.planned(path, fixes=("recovery", "snapshots"), broker_version="4.4.0")
    )
    made = tmp_path / "made"
    made.write_bytes(between[snapshot(path, 24)])
    assert known in entries(made)


def test_an_active_index_that_2_2_1_cannot_take_stays_where_it_is_made_anew_for_its_time_index(
    tmp_path: Path,
) -> None:
    """With a wrong time index 2.2.1 makes both again; with a right one it would map what is longer than allowed."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    partition.segment(*(data(base, 4, timestamp=NOW_MS + base) for base in (0, 4, 8)))
    path = directory.write(clean_stop=True)
    index, times = (log(path, 0).with_suffix(one) for one in (".index", ".timeindex"))
    index.write_bytes(index.read_bytes().ljust(8192, b"\0"))
    times.write_bytes(struct.pack(">q", NOW_MS + 100) + times.read_bytes()[8:])
    settings = (*VERBS.options().settings, ("segment.index.bytes", "4096"))
    plans = {
        version: VERBS.planned(path, fixes=("index=regenerate",), settings=settings, broker_version=version)
        for version in ("2.2.1", "3.9.2")
    }
    assert {version: one.partitions[0].status for version, one in plans.items()} == {
        "2.2.1": "left alone",
        "3.9.2": "change",
    }
    assert plans["2.2.1"].partitions[0].code == "fails-to-start"


@pytest.mark.parametrize(
    ("version", "status"),
    [("", "left alone"), ("2.2.1", "left alone"), ("2.4.0", "change"), ("3.9.2", "change")],
)
def test_damage_stays_where_the_start_would_fail_without_it(
    tmp_path: Path, version: str, status: str
) -> None:
    """Before 2.4 the segment in which an open transaction begins has to have a batch from there on (KAFKA-8443)."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    partition.segment(data(0, 4), data(4, 4), data(8, 2, pid=7, txn=True))
    partition.segment(data(10, 4), data(14, 2))
    path = directory.write(clean_stop=True)
    raw = log(path, 0).read_bytes()
    flip(log(path, 0), len(raw) - 3)
    consent = "KR302:t-0:8"
    plan = VERBS.planned(path, fixes=("tail",), accepted_losses=(consent,), broker_version=version)
    assert plan.partitions[0].status == status
    if status == "left alone":
        assert plan.partitions[0].code == "fails-to-start"
        assert "2.2.1 would not start any more" in plan.partitions[0].why


@pytest.mark.parametrize(
    ("version", "status"), [("", "left alone"), ("2.2.1", "change"), ("4.4.0", "left alone")]
)
def test_no_index_is_made_for_one_of_two_segments_that_a_clean_start_recovers(
    tmp_path: Path, version: str, status: str
) -> None:
    """From 2.8 on the recovery of segment 0 deletes all snapshots; that of segment 8 makes them again."""
    path = written(tmp_path, clean=True)
    for base in (0, 8):
        log(path, base).with_suffix(".index").unlink()
    flip(log(path, 0), len(log(path, 0).read_bytes()) - 3)
    plan = VERBS.planned(path, fixes=("index=regenerate",), broker_version=version)
    assert plan.partitions[0].status == status
    if status == "left alone":
        assert plan.partitions[0].code == "forgets-producers"
        assert (
            "all producers of the log, as it recovers 00000000000000000000.log only" in plan.partitions[0].why
        )


def test_a_snapshot_is_made_for_the_start_after_checkpoints_of_this_plan_removes_a_log_start_past_the_end(
    tmp_path: Path,
) -> None:
    """The fix snapshots reads no log for that, so it has to ask for the log end."""
    path = written(tmp_path, clean=True, log_start=30)
    snapshot(path, 24).write_bytes(b"")
    alone = VERBS.planned(path, fixes=("snapshots",))
    assert (changes(alone), "first --fix checkpoints" in str(alone.partitions[0])) == ([], True)
    plan = VERBS.planned(path, fixes=("snapshots", "checkpoints"))
    assert [change.change_id for change in changes(plan)] == [f"{FOLDER}/{snapshot(path, 24).name}"]
    made = there_and_back(path, plan)[snapshot(path, 24)]
    assert len(made) > len(b"")


@pytest.mark.parametrize(("version", "status"), [("2.2.1", "left alone"), ("3.9.2", "change")])
def test_a_swap_whose_recovery_saves_a_start_is_left_to_that_start(
    tmp_path: Path, version: str, status: str
) -> None:
    """2.2.1 recovers the swap and forgets where the transaction began; else no batch is found there (KAFKA-8443)."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    partition.segment(data(0, 4))
    partition.segment(data(4, 2, pid=7, txn=True))
    partition.segment(data(8, 4, pid=7, txn=True, sequence=2))
    partition.segment(data(12, 2))
    path = directory.write(clean_stop=False, log_starts={FOLDER: 6})
    (path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    log(path, 8).rename(f"{log(path, 8)}.swap")
    for file in (path / FOLDER).glob(f"{8:020d}.*"):
        if not file.name.endswith(".swap"):
            file.unlink()
    plan = VERBS.planned(path, fixes=("leftovers",), broker_version=version)
    assert (plan.partitions[0].status, plan.partitions[0].code) == (
        status,
        "fails-to-start" if status == "left alone" else "",
    )


def test_a_cut_by_consent_takes_no_producers_along_with_the_last_snapshot(tmp_path: Path) -> None:
    """The snapshot at the end goes with its segment, and a clean start without any reads no batch for producers."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    partition.segment(data(0, 4, pid=9, timestamp=NOW_MS), data(4, 4, pid=9, sequence=4, timestamp=NOW_MS))
    partition.segment(base_offset=8)
    path = directory.write(clean_stop=True)
    flip(log(path, 0), len(log(path, 0).read_bytes()) - 3)
    consent = {"accepted_losses": ("KR302:t-0:4",)}
    (part,) = VERBS.planned(path, fixes=("tail=broker",), **consent).partitions
    assert (part.status, part.code) == ("left alone", "forgets-producers")
    again = "--fix tail=broker,snapshots --accept-data-loss KR302:t-0:4"
    assert again in str(part.next_command)
    there_and_back(path, VERBS.planned(path, fixes=("tail=broker", "snapshots"), **consent))


@pytest.mark.parametrize("fixes", [("leftovers",), ("leftovers", "snapshots")])
def test_a_swap_whose_recovery_restores_the_producers_is_left_to_that_start(
    tmp_path: Path, fixes: tuple[str, ...]
) -> None:
    """2.2.1 recovers the swap after a clean stop too; no plan names the command that made it."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    for base in (0, 8):
        partition.segment(data(base, 8, pid=9, sequence=base, timestamp=NOW_MS))
    path = directory.write(clean_stop=True)
    log(path, 8).rename(f"{log(path, 8)}.swap")
    for file in (path / FOLDER).glob(f"{8:020d}.*"):
        if not file.name.endswith(".swap"):
            file.unlink()
    for file in (path / FOLDER).glob("*.snapshot"):
        file.unlink()
    (part,) = VERBS.planned(path, fixes=fixes, broker_version="2.2.1").partitions
    assert (part.status, part.code) == ("left alone", "forgets-producers")
    if "snapshots" in fixes:
        assert part.why.endswith("a start on the files as they are keeps the producers")
        assert str(part.next_command) == ""
    else:
        assert "--fix leftovers,snapshots" in str(part.next_command)


def test_an_index_is_not_made_beside_an_untrue_txnindex_that_the_start_would_rebuild(tmp_path: Path) -> None:
    """Without the .index the start recovers the segment; with it, it would show what the lost entry hides."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=1)
    partition.segment(data(0, 4, pid=9, txn=True), abort(4, pid=9))
    partition.segment(data(5, 4))
    path = directory.write(clean_stop=True)
    aborted = log(path, 0).with_suffix(".txnindex")
    whole = aborted.read_bytes()
    aborted.write_bytes(b"")
    log(path, 0).with_suffix(".index").unlink()
    assert there_and_back(path, VERBS.planned(path, fixes=("index",)))[aborted] == whole


def refused(path: Path, *made: Change) -> dict[str, str]:
    """Partition -> code of the reason for which a plan with these changes is not made."""
    options = VERBS.options(fixes=("index",))
    view = read_log_dir(str(path))
    with contexts(view, options, FIXES, view.partitions, None) as context_of:
        context = context_of(view)
        for analysis in context.analyze_all(view.partitions):
            analysis.changes += made
        return {folder: skipped.code for folder, skipped in why_not_started(context).items()}


def test_no_change_makes_a_clean_start_recover_a_segment(tmp_path: Path) -> None:
    path = written(tmp_path, clean=True)
    (file,) = (
        segment.index
        for partition in read_log_dir(str(path)).partitions
        for segment in partition.segments
        if segment.base_offset == 8
    )
    assert file is not None
    assert refused(path, removal_change(FOLDER, file, "KR201", "a fault in a fix")) == {
        FOLDER: "recovers-more"
    }


def test_a_start_that_recovers_less_does_not_begin_with_an_impossible_snapshot(tmp_path: Path) -> None:
    """With the new indexes a start recovers the last segment alone, from the snapshot before it."""
    path = written(tmp_path, clean=True)
    ahead = ProducerEntry(9, 0, 0, 99, 0, NOW_MS, -1, -1)
    row = np.array([[getattr(ahead, name) for name in ENTRY.names]], np.int64)
    snapshot(path, 16).write_bytes(encode_table(row))
    for base in (0, 8, 16):
        log(path, base).with_suffix(".index").unlink()
    (part,) = VERBS.planned(path, fixes=("index",), broker_version="3.9.2").partitions
    assert (part.status, part.code) == ("left alone", "forgets-producers")
    assert "--fix index,snapshots" in str(part.next_command)


def test_the_indexes_of_a_log_that_is_known_to_be_damaged_wait_for_tail(tmp_path: Path) -> None:
    """2.2.1 recovers such a segment, and the later ones stay; with a right index the next crash would delete them."""
    path = written(tmp_path, clean=True)
    flip(log(path, 8), len(log(path, 8).read_bytes()) - 3)
    for base in (0, 8):
        log(path, base).with_suffix(".index").write_bytes(b"\0" * 8)
    plan = VERBS.planned(path, fixes=("tail", "index"))
    assert [change.change_id for change in changes(plan)] == [f"{FOLDER}/{0:020d}.index"]
    assert "first --fix tail; its indexes are left" in str(plan.partitions[0].notes)


def test_a_snapshot_for_a_start_that_recovers_for_missing_indexes_is_built_again_by_apply(
    tmp_path: Path,
) -> None:
    """It recovers from segment 0 on, and so never reads the snapshot from which the recovery point would begin."""
    path = written(tmp_path, clean=False, point=24)
    for base in (0, 8):
        log(path, base).with_suffix(".index").unlink()
    with open(log(path, 16), "ab") as end:
        end.write(bytes(20))
    known = ProducerEntry(11, 0, 5, 5, 0, NOW_MS, 0, -1)
    row = np.array([[getattr(known, name) for name in ENTRY.names]], np.int64)
    snapshot(path, 16).write_bytes(encode_table(row))
    snapshot(path, 24).write_bytes(b"")
    fixes = ("tail", "index", "snapshots", "recovery")
    there_and_back(path, VERBS.planned(path, fixes=fixes, broker_version="3.9.2"))
