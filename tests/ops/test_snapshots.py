"""Producer snapshots: found, made anew or set aside, verified, taken back."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from krepair.checks import catalogue
from krepair.errors import ExitCode
from krepair.fixes import snapshots
from krepair.formats.producer_snapshot import ProducerEntry
from krepair.logdir.values import Snapshot
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.plan.model import Plan
from krepair.rules.snapshots import SnapshotFile
from tests import encoders
from tests.builders import NOW_MS, data
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.ops.inline import there_and_back
from tests.ops.scene import BLOAT, TV2, tree
from tests.ops.snapshots import checked, entries, made, options

RULES = {"KR501", "KR502", "KR503", "KR504"}
END = "00000000000000000015.snapshot"
ACTIVE = "00000000000000000010.snapshot"
AT_END = {
    ProducerEntry(7, 2, 0, 12, 0, NOW_MS, 5, 12),
    ProducerEntry(8, 0, 1, 5, 1, NOW_MS, -1, -1),
    ProducerEntry(9, 3, -1, -1, 0, NOW_MS + 9, 6, -1),
    ProducerEntry(10, 0, 4, 14, 1, NOW_MS, -1, -1),
}


def planned(log_dir: Path, **given: object) -> Plan:
    return make_plan(str(log_dir), options(**given))


def found(log_dir: Path, **given: object) -> dict[str, str]:
    """File (or partition, where it is about none) -> rule."""
    return {
        finding.file or finding.partition: finding.rule
        for finding in checked(log_dir, **given).findings
        if finding.rule in RULES
    }


def changes(plan: Plan) -> list[tuple[str, str, str]]:
    return [
        (change.name, change.method, change.rule)  # type: ignore[union-attr]
        for each in plan.partitions
        for change in each.changes
    ]


def names(folder: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in folder.glob("*.snapshot"))


@pytest.mark.parametrize("lost", [(), (15,), (10, 15), (6, 10, 15)])
def test_state_is_worked_out_from_the_newest_valid_snapshot_or_the_whole_log(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    for offset in {15, *lost}:
        (folder / f"{offset:020d}.snapshot").write_bytes(b"")
    apply(planned(log_dir), options())
    assert entries(folder / END) == AT_END
    assert names(folder) == sorted({6, 10, 15} - set(lost) | {15})


def test_what_only_the_valid_snapshot_knows_is_carried_over(tmp_path: Path) -> None:
    """Compaction or retention took every batch of producer 99; its snapshot lies inside the active segment."""
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    gone = ProducerEntry(99, 1, 17, 2, 0, NOW_MS, 3, -1)
    stale = ProducerEntry(8, 0, 1, 5, 1, NOW_MS, -1, -1)
    held = ProducerEntry(7, 2, -1, -1, 0, NOW_MS, 5, -1)
    (folder / f"{12:020d}.snapshot").write_bytes(encoders.encode_snapshot([gone, stale, held]))
    (folder / END).write_bytes(b"")
    (folder / ACTIVE).write_bytes(b"")
    plan = planned(log_dir)
    assert changes(plan) == [(END, "regenerate", "KR501"), (ACTIVE, "remove", "KR501")]
    apply(plan, options())
    assert entries(folder / END) == {*(e for e in AT_END if e.producer_id in {7, 8, 10}), gone}
    assert names(folder) == [6, 12, 15]


def test_snapshot_past_the_log_end_is_set_aside_until_purge(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    past = folder / f"{90:020d}.snapshot"
    past.write_bytes((folder / END).read_bytes())
    assert found(log_dir) == {past.name: "KR502"}
    before = tree(log_dir)
    plan = planned(log_dir)
    assert changes(plan) == [(past.name, "remove", "KR502")]
    apply(plan, options())
    assert names(folder) == [6, 10, 15]
    undo(plan, options())
    assert tree(log_dir) == before
    apply(plan, options())
    assert purge(plan, options()).exit_code == ExitCode.DONE
    assert names(folder) == [6, 10, 15]
    assert not list(folder.glob("krepair~*"))


def test_only_snapshots_past_the_end_leave_one_at_the_log_end_in_their_place(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    for path in folder.glob("*.snapshot"):
        path.rename(folder / f"{int(path.name[:20]) + 100:020d}.snapshot")
    plan = planned(log_dir)
    assert [(method, rule) for _, method, rule in changes(plan)] == [
        ("regenerate", "KR502"),
        *[("remove", "KR502")] * 3,
    ]
    apply(plan, options())
    assert names(folder) == [15]
    assert entries(folder / END) == AT_END


def test_snapshots_below_the_last_two_segments_that_no_segment_is_named_after_are_set_aside(
    tmp_path: Path,
) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    usual, stray = folder / f"{9:020d}.snapshot", folder / f"{4:020d}.snapshot"
    for path in (usual, stray):
        path.write_bytes((folder / f"{6:020d}.snapshot").read_bytes())
    assert found(log_dir) == {stray.name: "KR504"}
    assert catalogue.RULES["KR504"].severity is catalogue.Severity.INFORMATION  # a broker leaves such ones
    plan = planned(log_dir)
    assert changes(plan) == [(stray.name, "remove", "KR504")]
    apply(plan, options())
    assert names(folder) == [6, 9, 10, 15]


def test_clean_stop_without_a_snapshot_forgets_producers_unless_one_is_made(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    for path in folder.glob("*.snapshot"):
        path.unlink()
    report = checked(log_dir)
    assert found(log_dir) == {"t-0": "KR503"}
    line = next(line for line in report.forecast if line.partition == "t-0")
    assert "4 producers, 1 of them with an open transaction are forgotten" in line.text
    plan = planned(log_dir)
    assert changes(plan) == [(END, "regenerate", "KR503")]
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert entries(folder / END) == AT_END
    assert (folder / END).stat().st_mode == (folder / f"{10:020d}.log").stat().st_mode


def test_after_an_unclean_stop_no_snapshot_is_no_finding_since_the_broker_reads_the_log(
    tmp_path: Path,
) -> None:
    log_dir = made(tmp_path, clean=False)
    for path in (log_dir / "t-0").glob("*.snapshot"):
        path.unlink()
    assert found(log_dir) == {}
    assert changes(planned(log_dir)) == []


def test_expired_producers_are_left_out_but_for_those_with_an_open_transaction(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / END).write_bytes(b"")
    day_ms = 86_400_000
    for version, days, ids in (
        ("4.3.1", 2, {7}),
        ("2.8.2", 2, {7, 8, 9, 10}),
        ("2.2.1", 2, {7, 8, 10}),  # the time of a marker counts since 2.4.1
        ("", 2, {7, 8, 9, 10}),
        ("", 8, {7}),
    ):
        plan = planned(log_dir, now_ms=NOW_MS + days * day_ms, broker_version=version)
        apply(plan, options())
        assert {entry.producer_id for entry in entries(folder / END)} == ids
        undo(plan, options())


def test_time_of_a_producer_known_by_a_marker_is_none_for_2_2(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / END).write_bytes(b"")
    (folder / ACTIVE).write_bytes(b"")
    given = {"broker_version": "2.2.1", "settings": (("transactional.id.expiration.ms", "2147483647"),)}
    plan = planned(log_dir, now_ms=NOW_MS, **given)
    apply(plan, options())
    assert {entry for entry in entries(folder / END) if entry.producer_id in {7, 9}} == {
        ProducerEntry(7, 2, 0, 12, 0, NOW_MS, 5, 12)
    }


def test_log_that_ends_in_a_torn_batch_ends_after_its_last_whole_one(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    log = folder / f"{10:020d}.log"
    log.write_bytes(log.read_bytes()[:-3])
    plan = planned(log_dir)
    at_end = f"{13:020d}.snapshot"
    assert changes(plan) == [(at_end, "regenerate", "KR502"), (END, "remove", "KR502")]
    apply(plan, options())
    assert entries(folder / at_end) == {entry for entry in AT_END if entry.producer_id != 10}


def test_damage_behind_the_newest_valid_snapshot_leaves_the_others_alone_and_says_why(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    flip(folder / f"{6:020d}.log", 70)
    (folder / END).write_bytes(b"")
    (folder / ACTIVE).write_bytes(b"")
    assert found(log_dir) == {END: "KR501", ACTIVE: "KR501"}
    plan = planned(log_dir)
    assert changes(plan) == []
    assert any("not changed" in note and f"{6:020d}.log" in note for note in plan.partitions[0].notes)


def test_of_the_log_before_the_newest_valid_snapshot_nothing_is_asked(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    flip(folder / f"{6:020d}.log", 70)
    (folder / END).write_bytes(b"")
    assert found(log_dir) == {END: "KR501"}
    apply(planned(log_dir), options())
    assert entries(folder / END) == AT_END


def test_transaction_index_that_is_damaged_does_not_matter(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / f"{6:020d}.txnindex").write_bytes(b"\1" * 33)
    (folder / END).write_bytes(b"")
    (folder / ACTIVE).write_bytes(b"")
    assert apply(planned(log_dir), options()).exit_code == ExitCode.DONE
    assert entries(folder / END) == AT_END


def test_what_is_no_regular_file_leaves_the_others_alone_and_is_said(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    path = log_dir / "t-0" / END
    path.unlink()
    path.symlink_to("/etc/hostname")
    (log_dir / "t-0" / ACTIVE).write_bytes(b"")
    plan = planned(log_dir)
    assert changes(plan) == []
    assert any("no regular file" in note for note in plan.partitions[0].notes)
    assert "KR501" in found(log_dir).values()


def test_apply_builds_the_same_snapshot_where_the_plan_drops_a_log_start_past_the_log_end(
    tmp_path: Path,
) -> None:
    """With that line the start would delete every segment, and there would be nothing to build."""
    log_dir = made(tmp_path)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    newest = max((log_dir / "t-0").glob("*.snapshot"))
    flip(newest, 20)
    chosen = options(fixes=("checkpoints", "epochs", "snapshots"))
    plan = make_plan(str(log_dir), chosen)
    with there_and_back(log_dir, plan, chosen):
        assert {entry.producer_id for entry in entries(newest)} == {7, 8, 9, 10}


def test_snapshot_that_the_system_cannot_read_is_no_damage_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    (log_dir / "t-0" / END).write_bytes(b"")
    read = snapshots.read_snapshot_file

    def fails(snapshot: Snapshot) -> SnapshotFile:
        if snapshot.file.name == ACTIVE:
            raise OSError(errno.EIO, "Input/output error", snapshot.file.path)
        return read(snapshot)

    monkeypatch.setattr(snapshots, "read_snapshot_file", fails)
    assert found(log_dir) == {}
    # Nothing here tells how long the scene's transaction has been open: KR107.
    assert [(one.rule, one.file) for one in checked(log_dir).findings] == [("KR308", ACTIVE), ("KR107", "")]
    plan = planned(log_dir)
    assert changes(plan) == []
    assert any(f"{ACTIVE} could not be read: Input/output error" in note for note in plan.partitions[0].notes)


def test_garbage_of_100_mb_is_told_by_its_head_in_bounded_memory(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    path = log_dir / "t-0" / END
    with path.open("wb") as file:
        file.write(b"\xde\xad\xbe\xef" * 1000)
        file.truncate(100 << 20)
    planned(log_dir)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan = planned(log_dir)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10
    apply(plan, options())
    assert entries(path) == AT_END


def test_partition_without_batches_of_v2_gets_the_empty_snapshot_that_a_broker_writes(tmp_path: Path) -> None:
    log_dir = unpack("oldformat-2.2.1-before", tmp_path)
    path = log_dir / "m1-none-0" / f"{401:020d}.snapshot"
    intact = path.read_bytes()
    path.write_bytes(intact[:-1])
    apply(planned(log_dir), options())
    assert path.read_bytes() == intact


REAL = [
    (BLOAT, "__consumer_offsets-0", "2.2.0"),
    ("compact-2.2.1-after-2.2.1", "c-open-0", "2.2.1"),
    ("compact-2.2.1-before", "c-none-0", "2.2.1"),
    (TV2, "__consumer_offsets-0", "4.3.1"),
]


@pytest.mark.parametrize(("fixture", "folder", "version"), REAL, ids=[row[0] for row in REAL])
@pytest.mark.parametrize("lost", ["at the end", "all", "all, by hand"])
def test_snapshot_that_a_real_broker_wrote_at_its_clean_stop_comes_back(
    tmp_path: Path, fixture: str, folder: str, version: str, lost: str
) -> None:
    log_dir = unpack(fixture, tmp_path)
    files = sorted((log_dir / folder).glob("*.snapshot"))
    written, now_ms = entries(files[-1]), files[-1].stat().st_mtime_ns // 1_000_000
    for path in files if lost != "at the end" else files[-1:]:
        if lost == "all, by hand":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
    plan = planned(log_dir, now_ms=now_ms, broker_version=version)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert entries(files[-1]) == written
    assert len(written) > 2


def test_plan_that_another_snapshot_has_come_under_is_refused(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / END).write_bytes(b"")
    plan = planned(log_dir)
    other = ProducerEntry(99, 1, 17, 2, 0, NOW_MS, 3, -1)
    (folder / f"{12:020d}.snapshot").write_bytes(encoders.encode_snapshot([other]))
    report = apply(plan, options())
    assert [result.outcome for result in report.results] == ["failed"]
    assert "not those of the plan" in report.results[0].why
    assert (folder / END).read_bytes() == b""


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.2.1", f"removes the producer snapshots {90:020d} unread"),
        (
            "3.9.2",
            f"removes the producer snapshots {15:020d}, {90:020d} unread, reads the log from offset 10 on",
        ),
    ],
)
def test_forecast_tells_what_a_snapshot_past_the_end_costs_since_2_8(
    tmp_path: Path, version: str, text: str
) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / f"{90:020d}.snapshot").write_bytes((folder / END).read_bytes())
    assert text in checked(log_dir, broker_version=version).forecast[0].text


@pytest.mark.parametrize(
    "name",
    ["abc.snapshot", f"{10**20}.snapshot", ".snapshot", "abc.log", "abc.index", "x.txnindex", "abc.cleaned"],
)
def test_name_without_an_offset_is_forecast_to_keep_a_broker_down(tmp_path: Path, name: str) -> None:
    log_dir = made(tmp_path)
    (log_dir / "t-0" / name).write_bytes((log_dir / "t-0" / END).read_bytes())
    report = checked(log_dir)
    assert {line.expected for line in report.forecast} == {"refuse"}
    assert name in report.forecast[0].text
    assert ("KR803", name) in {(finding.rule, finding.file) for finding in report.findings}


def test_snapshot_under_a_name_that_no_broker_writes_leaves_the_others_alone(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    (log_dir / "t-0" / "15.snapshot").write_bytes((log_dir / "t-0" / ACTIVE).read_bytes())
    (log_dir / "t-0" / END).write_bytes(b"")
    plan = planned(log_dir)
    assert changes(plan) == []
    assert any("15.snapshot is not how a broker names" in note for note in plan.partitions[0].notes)


def test_log_that_grew_by_records_of_no_producer_since_the_plan_is_refused(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    folder = log_dir / "t-0"
    (folder / END).write_bytes(b"")
    plan = planned(log_dir)
    with (folder / f"{10:020d}.log").open("ab") as log:
        log.write(data(15, 2).raw)
    report = apply(plan, options())
    assert [result.outcome for result in report.results] == ["failed"]
    assert "the log ends at offset 17" in report.results[0].why
    assert (folder / END).read_bytes() == b""


def test_plan_shows_each_file_its_reason_and_the_transactions_that_are_open_in_it(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    (log_dir / "t-0" / END).write_bytes(b"")
    (part,) = planned(log_dir).partitions
    assert part.changes[0].reason == (  # type: ignore[union-attr]
        "expected at least 10 bytes, found 0 bytes; 4 producers, 1 of them with an open transaction, "
        f"by {ACTIVE} and the log from there on"
    )
    (note,) = part.notes
    assert note == (
        "producer snapshots: producer 7, epoch 2, has a transaction open since offset 12; its last batch is of "
        "2025-06-15T15:06:40.000Z; read_committed stops there until it is ended"
    )


def test_plan_says_when_producers_cannot_be_known(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    for path in (log_dir / "t-0").glob("*.snapshot"):
        path.write_bytes(b"")
    compacted = planned(log_dir, settings=(("cleanup.policy", "compact"),)).partitions[0].notes
    assert any("remaining batch are unknown" in note for note in compacted)
    whole = planned(log_dir).partitions[0].notes
    assert not any("remaining batch are unknown" in note for note in whole)
