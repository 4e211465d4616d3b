"""Torn tails and damage in the middle: found with their price, mended by consent, verified, taken back."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from krepair.checks.catalogue import Severity
from krepair.cli.main import app
from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode, RefusedError, UsageError
from krepair.fixes.context import place_of
from krepair.formats.filenames import CLEAN_SHUTDOWN
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.plan.build import build_plan
from krepair.plan.model import MendLog, NewCompanion, Plan, RewriteSegments, RollSegment, SetAside
from krepair.plan.planfile import read_plan
from krepair.plan.review import review
from krepair.plan.short import _if_not_applied
from krepair.rewrite.damage import RepairedLogItem, RepairedLogResult, write_repaired_log
from tests import builders
from tests import builders as b
from tests.commit.scene import UnsyncedDisk
from tests.compaction.directories import topic_config
from tests.durable.disks import SimulatedCrash, StoppingDisk
from tests.engine.travelled import travelled
from tests.flips import flip
from tests.ops.inline import Inline, there_and_back
from tests.ops.scene import cannot_be_read, scene, tree
from tests.ops.stops import each_stop
from tests.ops.tail import (
    CONSENT,
    INTERVAL,
    PER_BATCH,
    PER_SEGMENT,
    TAILS,
    WAYS,
    Torn,
    all_first_offsets,
    damaged,
    options,
    prepared,
)
from tests.rewrite.damage import twin


def test_torn_tail_is_cut_kept_and_given_back(tmp_path: Path) -> None:
    tail = TAILS["a whole batch with a wrong checksum"]
    torn = Torn.make(tmp_path / "logs")
    whole = torn.log(3).read_bytes()
    torn.tear(tail)
    before = tree(torn.root)
    rules = {finding.rule for finding in torn.check().findings} & {"KR301", "KR302", "KR305"}
    assert rules == {"KR301"}
    assert tree(torn.root) == before
    plan = torn.plan()
    (change,) = plan.partitions[0].changes
    assert isinstance(change, MendLog)
    assert (change.method, change.size_after, change.removed[0].consent) == ("cut", len(whole), "")
    inode = torn.log(3).stat().st_ino
    with there_and_back(torn.root, plan, options()):
        assert torn.log(3).read_bytes() == whole
        assert torn.log(3).stat().st_ino == inode
        assert tree(torn.root)["t-0/" + torn.log(3).name][3] == before["t-0/" + torn.log(3).name][3]
        kept = torn.folder / f"krepair~{plan.plan_id}" / "keep" / f"{torn.log(3).name}.cut"
        assert kept.read_bytes() == tail
        assert verify_log_dir(str(torn.root), options()).problems == ()
        assert not torn.plan().partitions[0].changes


@pytest.mark.parametrize("number", [0, 1, 2])
def test_padding_of_a_closed_segment_is_information_and_goes_without_a_consent(
    tmp_path: Path, number: int
) -> None:
    padded = Torn.make(tmp_path / "logs")
    (padded.root / ".kafka_cleanshutdown").touch()
    whole = padded.log(number).read_bytes()
    padded.write(number, whole + bytes(5000))
    (finding,) = (one for one in padded.check().findings if one.rule == "KR305")
    assert (finding.severity, finding.records_lost) == (Severity.INFORMATION, 0)
    plan = padded.plan()
    assert (
        _if_not_applied(plan.partitions[0].changes) == "without this plan KR305 stays: krepair explain KR305"
    )
    with there_and_back(padded.root, plan, options()):
        assert padded.log(number).read_bytes() == whole
        assert padded.offsets() == all_first_offsets()
        assert not padded.plan().partitions[0].changes


def test_padding_of_a_closed_segment_that_the_start_recovers_costs_later_segments(tmp_path: Path) -> None:
    padded = Torn.make(tmp_path / "logs")
    padded.write(1, padded.log(1).read_bytes() + bytes(5000))
    (padded.root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (finding,) = (one for one in padded.check().findings if one.rule == "KR305")
    assert (finding.severity, finding.fix) == (Severity.DATA_LOSS, "tail")
    assert "2 later segments" in finding.evidence
    with there_and_back(padded.root, padded.plan(), options()):
        assert padded.offsets() == all_first_offsets()


def undone_and_the_kept_bytes_are_back(root: Path) -> tuple[Torn, Plan, Path]:
    """The power went after the last record of undo; that the kept bytes were removed was lost (earlier versions)."""
    torn = Torn.make(root)
    torn.tear(TAILS["garbage"])
    plan = torn.plan()
    assert apply(plan, options()).exit_code == ExitCode.DONE
    with pytest.raises(SimulatedCrash):
        undo(plan, options(), disk=StoppingDisk(UnsyncedDisk(), 1, {"remove_dir"}))
    kept = torn.folder / f"krepair~{plan.plan_id}" / "keep" / f"{torn.log(3).name}.cut"
    kept.parent.mkdir(exist_ok=True)
    assert not kept.exists()
    kept.write_bytes(TAILS["garbage"])
    return torn, plan, kept


@pytest.mark.parametrize("verb", ["undo", "apply, undo", "purge"])
def test_kept_bytes_that_are_back_after_a_power_cut_go_where_the_log_holds_them(
    tmp_path: Path, verb: str
) -> None:
    torn, plan, _ = undone_and_the_kept_bytes_are_back(tmp_path / "logs")
    before = tree(torn.root, private=False)
    if verb == "purge":
        assert purge(plan, options()).exit_code == ExitCode.DONE
    else:
        if verb == "apply, undo":
            assert apply(plan, options()).exit_code == ExitCode.DONE
        assert undo(plan, options()).exit_code == ExitCode.DONE
    assert tree(torn.root) == before


@pytest.mark.parametrize("missing", ["all", "a byte", "the log"])
def test_kept_bytes_that_are_back_after_a_power_cut_stay_where_the_log_does_not_hold_them(
    tmp_path: Path, missing: str
) -> None:
    torn, plan, kept = undone_and_the_kept_bytes_are_back(tmp_path / "logs")
    whole = torn.log(3).read_bytes()
    if missing == "the log":
        torn.log(3).unlink()
    else:
        torn.write(3, whole[: -len(TAILS["garbage"])] if missing == "all" else whole[:-1] + b"!")
    report = undo(plan, options())
    assert report.exit_code != ExitCode.DONE
    purged = purge(plan, options())
    assert purged.exit_code != ExitCode.DONE
    for results in (report.results, purged.results):
        assert f"{kept.name} tells that a change was begun" in " ".join(result.why for result in results)
        assert any(str(result.next_command).startswith("krepair ") for result in results)
    assert kept.read_bytes() == TAILS["garbage"]


def test_purge_frees_the_cut_bytes_and_then_nothing_can_be_undone(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.tear(bytes(10_000))
    plan = torn.plan()
    apply(plan, options())
    report = purge(plan, options())
    assert report.exit_code == ExitCode.DONE
    assert report.bytes_freed >= 10_000
    assert not list(torn.folder.glob("krepair~*"))
    assert undo(plan, options()).exit_code == ExitCode.REFUSED
    assert torn.offsets() == all_first_offsets()


def test_flushed_batch_that_went_bad_at_the_end_is_no_torn_tail(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs", clean_stop=True)
    torn.flip(3, torn.places(3)[9] + 80)
    (found,) = [each for each in torn.check().findings if each.rule.startswith("KR3")]
    assert found.rule == "KR302"
    assert "--accept-data-loss KR302:t-0:195" in found.evidence
    plan = torn.plan()
    assert not plan.partitions[0].changes
    plan = torn.plan(accepted_losses=("KR302:t-0:195",))
    (change,) = plan.partitions[0].changes
    assert isinstance(change, MendLog)
    assert (change.method, change.removed[0].records) == ("cut", 5)


def test_broken_rest_of_a_flushed_batch_is_cut_without_consent(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs", clean_stop=True)
    torn.write(3, torn.log(3).read_bytes()[:-7])
    plan = torn.plan()
    assert [change.change_id for change in plan.partitions[0].changes] == [f"t-0/{torn.log(3).name}"]


def test_tail_that_holds_a_whole_batch_is_damage_in_the_middle(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b.data(200, 5).raw[:50] + b.data(205, 5).raw)
    (found,) = [each for each in torn.check().findings if each.rule.startswith("KR3")]
    assert found.rule == "KR302"
    assert "next valid batch" in found.evidence
    assert not torn.plan().partitions[0].changes


@pytest.mark.parametrize("further", [0, 1], ids=["behind the log", "behind damage"])
def test_edited_plan_that_takes_whole_batches_for_a_torn_tail_is_refused(
    tmp_path: Path, further: int
) -> None:
    """It is right in all digests: only a search of what would go shows that records are in it."""
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b.data(200, PER_BATCH).raw[:100])
    plan = torn.plan()
    (part,) = plan.partitions
    (change,) = (one for one in part.changes if isinstance(one, MendLog))
    start = change.size_after // PER_SEGMENT * (PER_SEGMENT - 2)
    if further:
        torn.flip(3, start + 80)
        plan = torn.plan(accepted_losses=("KR302:t-0:190",))
    view = read_log_dir(str(torn.root))
    item = RepairedLogItem(
        place=place_of(view, view.partitions[0]),
        base_offset=change.base_offset,
        size=change.size_before,
        without=((start, change.size_before),),
        interval_bytes=INTERVAL,
    )
    made = travelled(write_repaired_log, item)
    assert isinstance(made, RepairedLogResult)
    files = {one.name: one for one in plan.partitions[0].files}
    edited = replace(
        change,
        removed=(replace(change.removed[0], start=start, first_lost=made.last_offset + 1),),
        mtime_ns=files[change.name].mtime_ns,
        size_after=made.size,
        digest_after=made.digest,
        digest_removed=made.digest_gone,
        last_offset=made.last_offset,
        companions=tuple(
            NewCompanion(
                name=f"{change.base_offset:020d}{one.suffix}",
                size_before=one.size_before,
                size_after=one.size_after,
                digest_after=one.digest_after,
            )
            for one in made.companions
            if not one.same
        ),
        front_bytes=max(one.front_bytes for one in made.companions),
    )
    parts = [
        replace(plan.partitions[0], changes=(edited,), status="change", code="", why="", uncleanable_bytes=0)
    ]
    crafted = build_plan(view, plan.policy, parts, plan.commit)
    assert review(crafted) == []
    now = tree(torn.root)
    report = apply(crafted, options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert "is in a valid batch, and would go as a torn tail" in report.results[0].why
    assert tree(torn.root) == now


def test_damage_in_the_middle_is_told_with_the_price_of_each_way_out(tmp_path: Path) -> None:
    torn = damaged(tmp_path / "logs")
    places = torn.places(1)
    later = sum(torn.log(number).stat().st_size for number in (2, 3))
    (found,) = [each for each in torn.check().findings if each.rule.startswith("KR3")]
    size = places[4] - places[3]
    assert (found.rule, found.position, found.bytes) == ("KR302", places[3], size)
    assert (
        f"a broker's recovery cuts here: {places[-1] - places[3] + later} bytes, 2 later segments among them, "
        "offsets 65 to 199, 135 records are lost"
    ) in found.evidence
    assert f"cutting out only the damage: {size} bytes, offsets 65 to 69, 5 records" in found.evidence
    assert f"--accept-data-loss {CONSENT}" in found.evidence
    plan = torn.plan()
    assert not plan.partitions[0].changes
    assert any(f"--accept-data-loss {CONSENT}" in note for note in plan.partitions[0].notes)


def test_consent_for_the_brokers_way_cuts_there_and_sets_later_segments_aside(tmp_path: Path) -> None:
    torn = damaged(tmp_path / "logs")
    plan = torn.plan(fixes=("tail=broker",), accepted_losses=(CONSENT,))
    assert plan == torn.plan(fixes=("tail=broker",), accepted_losses=(CONSENT,))
    changes = plan.partitions[0].changes
    assert [type(change) for change in changes] == [SetAside, SetAside, MendLog]
    assert [change.change_id[-3:] for change in changes[:2]] == ["150", "100"]
    assert any("high watermark 200 (--fix checkpoints)" in note for note in plan.partitions[0].notes)
    with there_and_back(torn.root, plan, options()):
        assert torn.offsets() == all_first_offsets()[:13]
        assert not list(torn.folder.glob("*150.*")) + list(torn.folder.glob("*100.*"))
        assert not torn.plan().partitions[0].changes


@pytest.mark.parametrize(
    ("consent", "expected"),
    [
        ("KR302:t-0:66", "type --accept-data-loss KR302:t-0:65"),
        ("KR305:t-0:65", "type --accept-data-loss KR302:t-0:65"),
        ("KR302:t-1:65", "t-1 is not among the partitions"),
        ("KR302:u-0:65", "u-0 is not among the partitions"),
    ],
)
def test_consent_that_names_no_damage_is_wrong_use_and_says_what_to_type(
    tmp_path: Path, consent: str, expected: str
) -> None:
    torn = damaged(tmp_path / "logs")
    with pytest.raises(UsageError) as error:
        torn.plan(accepted_losses=(consent,))
    assert expected in error.value.message
    if "type" in expected:
        assert "135 records are lost" in error.value.message


def test_consent_without_damage_or_without_the_fix_is_wrong_use(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    with pytest.raises(UsageError, match="no damage that needs a consent"):
        torn.plan(accepted_losses=(CONSENT,))
    with pytest.raises(UsageError, match="without --fix tail"):
        torn.plan(fixes=("markers",), accepted_losses=(CONSENT,))


def test_segment_with_two_damages_needs_both_consents(tmp_path: Path) -> None:
    torn = damaged(tmp_path / "logs")
    torn.flip(1, torn.places(1)[7] + 80)
    plan = torn.plan(accepted_losses=(CONSENT,))
    assert not plan.partitions[0].changes
    assert any("--accept-data-loss KR302:t-0:85 as well" in note for note in plan.partitions[0].notes)
    plan = torn.plan(accepted_losses=(CONSENT, "KR302:t-0:85"))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert torn.offsets() == [offset for offset in all_first_offsets() if offset not in (65, 85)]


def test_segment_that_is_damaged_from_its_start_is_left_empty(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.write(1, b"\x99" * torn.log(1).stat().st_size)
    consent = "KR302:t-0:50"
    plan = torn.plan(accepted_losses=(consent,))
    (change,) = plan.partitions[0].changes
    assert isinstance(change, MendLog)
    assert (change.size_after, change.removed[0].last_lost) == (0, 99)
    with there_and_back(torn.root, plan, options()):
        assert torn.log(1).read_bytes() == b""


def test_offsets_that_go_back_are_cut_out_by_consent(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    places, raw = torn.places(1), torn.log(1).read_bytes()
    torn.write(1, raw[: places[4]] + raw[places[1] : places[2]] + raw[places[4] :])
    (found,) = [each for each in torn.check().findings if each.rule.startswith("KR3")]
    assert found.rule == "KR303"
    assert "no offsets" in found.evidence
    plan = torn.plan(accepted_losses=("KR303:t-0:70",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert torn.log(1).read_bytes() == raw


def test_unreadable_log_is_never_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = damaged(tmp_path / "logs")
    plan = torn.plan(accepted_losses=(CONSENT,))
    before = tree(torn.root)
    cannot_be_read(monkeypatch, torn.log(1))
    assert apply(plan, options()).exit_code == ExitCode.UNREADABLE
    assert tree(torn.root) == before
    assert {each.rule for each in torn.check().findings if each.rule.startswith("KR3")} == {"KR308"}
    plan = torn.plan()
    assert (plan.partitions[0].status, plan.partitions[0].code) == ("left alone", "unreadable")
    with pytest.raises(UsageError):
        torn.plan(accepted_losses=(CONSENT,))


def test_log_with_a_second_name_is_not_cut_in_place(tmp_path: Path) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b"torn")
    plan = torn.plan()
    os.link(torn.log(3), tmp_path / "backup")
    other = torn.plan()
    assert not other.partitions[0].changes
    assert any("hard links" in note for note in other.partitions[0].notes)
    report = apply(plan, options())
    assert [result.outcome for result in report.results] == ["failed"]
    assert (tmp_path / "backup").read_bytes().endswith(b"torn")


@pytest.mark.parametrize("what", ["written to", "a segment behind the cut"])
def test_what_a_broker_wrote_since_keeps_undo_off(tmp_path: Path, what: str) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b"torn")
    plan = torn.plan()
    apply(plan, options())
    log = torn.log(3) if what == "written to" else torn.log(4)
    with log.open("ab") as file:
        file.write(b.data(200, 5).raw)
    now = tree(torn.root, private=False)
    report = undo(plan, options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert log.name in report.results[0].why
    assert tree(torn.root, private=False) == now


@pytest.mark.parametrize("how", ["undo", "by hand"])
@pytest.mark.parametrize("way", ["torn tail", "broker"])
def test_damaged_bytes_do_not_come_back_where_no_start_would_recover_them(
    tmp_path: Path, way: str, how: str
) -> None:
    """A broker that was stopped cleanly since would write behind them: nobody could read what it wrote."""
    torn = prepared(tmp_path / "logs", way)
    plan, before = torn.plan(**WAYS[way]), tree(torn.root, private=False)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    marker = torn.root / CLEAN_SHUTDOWN
    marker.touch()
    if how == "by hand":
        next(torn.root.glob("*/krepair~*/journal")).write_bytes(b"")
    after = tree(torn.root, private=False)
    undo(plan, options())
    report = undo(plan, options())
    assert report.exit_code == (ExitCode.STALE_PLAN if how == "undo" else ExitCode.REFUSED)
    assert any("a broker was stopped cleanly since" in one.why for one in report.results)
    assert report.by_hand == ()
    assert tree(torn.root, private=False) == after
    marker.unlink()  # the broker was started again, and killed: it recovers at its next start
    if how == "undo":
        assert undo(plan, options()).exit_code == ExitCode.DONE
        assert tree(torn.root, private=False) == before


def test_the_marker_that_apply_found_is_known_by_its_bytes_and_not_by_a_clock(tmp_path: Path) -> None:
    """The clock was slow while apply ran, so the plan's copy is older than a marker that was there before."""
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b"torn")
    (torn.root / CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":17}')
    plan, before = torn.plan(), tree(torn.root, private=False)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    os.utime(next(torn.root.glob("*/krepair~*/plan")), ns=(5, 5))
    assert undo(plan, options()).exit_code == ExitCode.DONE
    assert tree(torn.root, private=False) == before


def test_log_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    torn = damaged(tmp_path / "logs")
    plan = torn.plan(accepted_losses=(CONSENT,))
    torn.flip(1, torn.places(1)[6] + 80)
    now = tree(torn.root)
    report = apply(plan, options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert tree(torn.root) == now


@pytest.mark.parametrize("verb", [apply, undo])
def test_what_a_broker_wrote_between_two_runs_is_not_covered_by_segments_that_come_back(
    tmp_path: Path, verb: Callable[..., ApplyReport]
) -> None:
    met = 0
    for stop in each_stop():
        torn = prepared(tmp_path / str(stop.number), "broker")
        plan = torn.plan(**WAYS["broker"])
        if verb is undo:
            apply(plan, options(), disk=UnsyncedDisk())
        with stop as disk:
            verb(plan, options(), disk=disk)
        logs = sorted(torn.folder.glob("*.log"))
        if len(logs) == 3:
            continue
        met += 1
        with logs[-1].open("ab") as log:
            log.write(b.data(140, 5).raw)
        there = {path.name: path.read_bytes() for path in logs}
        report = undo(plan, options(), disk=UnsyncedDisk())
        assert report.exit_code in {ExitCode.PARTLY, ExitCode.STALE_PLAN}, stop.number
        assert {path.name: path.read_bytes() for path in torn.folder.glob("*.log")} == there, stop.number
    assert met > 5


def test_a_log_that_a_broker_wrote_in_the_middle_of_an_undo_has_a_way_out(tmp_path: Path) -> None:
    torn = prepared(tmp_path / "logs", "torn tail")
    plan = torn.plan()
    assert apply(plan, options()).exit_code == ExitCode.DONE
    with contextlib.suppress(SimulatedCrash):
        undo(plan, options(), disk=StoppingDisk(UnsyncedDisk(), 5))
    with torn.log(2).open("ab") as log:
        log.write(b.data(150, 5).raw)
    left = torn.log(2).read_bytes()
    report = undo(plan, options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert str(report.next_command) == f"krepair purge {torn.root} --plan-id {plan.plan_id}"
    assert purge(plan, options()).exit_code == ExitCode.DONE
    assert torn.log(2).read_bytes() == left
    assert not list(torn.folder.glob("krepair~*"))


@pytest.mark.parametrize("way", ["torn tail", "excise"])
def test_an_undo_that_was_stopped_has_to_end_before_a_purge(tmp_path: Path, way: str) -> None:
    refused: list[str] = []
    for stop in each_stop():
        torn = prepared(tmp_path / str(stop.number), way)
        before = tree(torn.root, private=False)
        plan = torn.plan(**WAYS[way])
        apply(plan, options(), disk=UnsyncedDisk())
        applied = tree(torn.root, private=False)
        with stop as disk:
            undo(plan, options(), disk=disk)
        try:
            purge(plan, options())
        except RefusedError as error:
            refused.append(str(error.next_command))
            assert undo(plan, options(), disk=UnsyncedDisk()).exit_code == ExitCode.DONE, stop.number
        found = tree(torn.root, private=False)
        now = {name: what for name, what in found.items() if name != ".lock"}
        assert now.items() <= before.items() or now.items() <= applied.items(), stop.number
        assert len(found) in {len(before) + 1, len(applied)}, stop.number
    assert len(refused) > 3
    assert all(command.startswith("krepair undo") for command in refused)


@pytest.mark.parametrize("way", WAYS)
def test_all_fixes_in_one_plan_know_what_the_others_change_and_a_second_plan_is_empty(
    tmp_path: Path, way: str
) -> None:
    torn = Torn.make(tmp_path / "logs", clean_stop=way == "broker")
    if way == "torn tail":
        torn.tear(bytes(500))
    else:
        torn.flip(1, torn.places(1)[3] + 80)
    (torn.folder / "leader-epoch-checkpoint").unlink()
    before = tree(torn.root)
    tail = "tail=broker" if way == "broker" else "tail"
    fixes = ("checkpoints", "epochs", "index=regenerate", "leftovers", "snapshots", tail)
    plans = []
    for _ in range(3):
        accepted = WAYS[way].get("accepted_losses", ()) if not plans else ()
        plan = torn.plan(fixes=fixes, accepted_losses=accepted)
        if plan.root is None and not plan.partitions[0].changes:
            break
        report = apply(plan, options())
        assert report.exit_code == ExitCode.DONE, report.results
        assert verify_plan(plan, options()).problems == ()
        plans.append(plan)
    assert len(plans) == 1
    assert not [one for one in torn.check().findings if one.rule not in {"KR801", "KR802", "KR901"}]
    for plan in reversed(plans):
        report = undo(plan, options())
        assert report.exit_code == ExitCode.DONE, report.results
    assert tree(torn.root) == before


@pytest.mark.parametrize("fix", ["markers", "compact"])
def test_where_damage_is_mended_beside_a_compaction_the_second_plan_is_told_with_its_command(
    tmp_path: Path, fix: str
) -> None:
    made = scene(tmp_path)
    second = sorted((made.path / "__consumer_offsets-0").glob("*.log"))[1]
    flip(second, bits=0x40)
    report = check([str(made.path)], made.options()).log_dirs[0]
    consent = next(
        told.group(1)
        for one in report.findings
        if (told := re.search(r"--accept-data-loss (KR304:__consumer_offsets-0:\d+)", one.evidence))
    )
    only = {"partitions": (("__consumer_offsets", 0),), "broker_version": "2.2.1"}
    first = made.plan(fixes=(fix, "tail"), accepted_losses=(consent,), **only)
    assert not [change for change in first.partitions[0].changes if isinstance(change, RewriteSegments)]
    (command,) = (
        note.partition(": ")[2]
        for note in first.partitions[0].notes
        if note.startswith(f"after this plan is applied, make a second one for {fix}: krepair plan ")
    )
    assert made.apply(first).exit_code == ExitCode.DONE
    path = tmp_path / "second.krplan"
    typed = CliRunner().invoke(app, shlex.split(command.replace("--out PLAN", f"--out {path}"))[1:])
    assert typed.exit_code == ExitCode.FOUND, typed.output
    (part,) = read_plan(str(path)).partitions
    assert (part.folder, {type(change) for change in part.changes}) == (
        "__consumer_offsets-0",
        {RewriteSegments},
    )


@pytest.mark.parametrize("offset", [0, 20, 21, 22])
def test_another_plan_goes_on_with_a_log_of_which_damage_was_cut_out(tmp_path: Path, offset: int) -> None:
    """Where no entry of the new index lies behind the damage, all of it is true of the old log, too."""
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("t", index_interval_bytes=INTERVAL)
    partition.segment(*(builders.data(first, count) for first, count in ((0, 20), (20, 1), (21, 1), (22, 1))))
    partition.segment(builders.data(23, 1))
    root = made.write()
    log, index = (partition.folder / f"{0:020d}{suffix}" for suffix in (".log", ".index"))
    _break_the_batch(log, offset)
    before = tree(root)
    first = make_plan(str(root), options(accepted_losses=(f"KR302:t-0:{offset}",)))
    assert apply(first, options()).exit_code is ExitCode.DONE
    assert not list(partition.folder.glob("krepair~*/stage/*")), (
        "what is staged is of a plan that has not ended"
    )
    whole, times = index.read_bytes(), (index.stat().st_atime_ns, index.stat().st_mtime_ns)
    index.write_bytes(whole + b"x")
    second = make_plan(str(root), options(fixes=("index",)))
    assert apply(second, options(fixes=("index",))).exit_code is ExitCode.DONE
    assert undo(second, options()).exit_code is ExitCode.DONE
    index.write_bytes(whole)
    os.utime(index, ns=times)
    assert undo(first, options()).exit_code is ExitCode.DONE
    assert tree(root) == before


def _break_the_batch(log: Path, offset: int) -> None:
    """Flip a bit of the last byte of the batch that begins at an offset."""
    raw, place = bytearray(log.read_bytes()), 0
    while int.from_bytes(raw[place : place + 8], "big") < offset:
        place += 12 + int.from_bytes(raw[place + 8 : place + 12], "big")
    raw[place + 11 + int.from_bytes(raw[place + 8 : place + 12], "big")] ^= 1
    log.write_bytes(bytes(raw))


# -- Damage and the log start: records below it were deleted, so their loss costs nothing; a cut below it is told.

VERBS = Inline(fixes=("tail",))
CONSENT_OF_5 = "KR302:t-0:5"


def damaged_at_5(root: Path, log_start: int) -> Path:
    """Offsets 0 to 9 and 10 to 19, a record each; the batch of offset 5 has a wrong checksum."""
    made = builders.LogDir(root)
    one = made.partition("t")
    for base in (0, 10):
        one.segment(*(builders.data(base + place, 1) for place in range(10)))
    log_dir = made.write(log_starts={"t-0": log_start})
    log = one.folder / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    size = len(content) // 10
    content[6 * size - 1] ^= 1
    log.write_bytes(bytes(content))
    return log_dir


@pytest.mark.parametrize(
    ("log_start", "excised", "as_broker"),
    [(0, 1, "15 records"), (5, 1, "15 records"), (6, 0, "14 records"), (20, 0, "0 records")],
)
def test_records_below_the_log_start_are_not_counted_as_lost(
    tmp_path: Path, log_start: int, excised: int, as_broker: str
) -> None:
    report = VERBS.checked(damaged_at_5(tmp_path / "logs", log_start))
    (found,) = [one for one in report.findings if one.rule == "KR302"]
    assert (found.first_offset, found.last_offset, found.records_lost) == (5, 5, excised)
    assert as_broker in found.evidence
    assert (f"(the log start is {log_start})" in found.evidence) == (log_start > 5)


@pytest.mark.parametrize(
    ("fixes", "text"),
    [
        (("tail=broker",), "the next start deletes every segment here and begins at 12"),
        (("checkpoints", "tail=broker"), "--fix checkpoints removes its line, and deleted records are back"),
        (("tail",), ""),
    ],
)
def test_a_cut_below_the_log_start_is_told(tmp_path: Path, fixes: tuple[str, ...], text: str) -> None:
    plan = VERBS.planned(damaged_at_5(tmp_path / "logs", 12), fixes=fixes, accepted_losses=(CONSENT_OF_5,))
    (partition,) = plan.partitions
    told = " ".join(partition.notes)
    assert ("the log start 12 lies above the new log end 5" in told) == bool(text)
    assert text in told


# -- Damage that holds the marker of an aborted transaction.


def aborted(root: Path, *, behind: str, whole: bool) -> Path:
    """A transaction at 0 aborted at 2, the next one committed at 5; damaged is the marker, or all of the first."""
    made = builders.LogDir(root)
    first = [builders.data(0, 2, pid=7, txn=True), builders.abort(2, pid=7)]
    second = [builders.data(3, 2, pid=7, txn=True, sequence=2), builders.commit(5, pid=7)]
    one = made.partition("t")
    one.segment(*first, *(second if behind == "here" else ()))
    if behind == "next":
        one.segment(*second)
    one.segment(
        *([builders.data(6)] if behind != "nothing" else []), base_offset=6 if behind != "nothing" else 3
    )
    log_dir = made.write()
    log = one.folder / f"{0:020d}.log"
    flip(log, len(first[0].raw) + 70)
    if whole:
        flip(log, 70)
    return log_dir


@pytest.mark.parametrize("behind", ["here", "next", "nothing"])
def test_a_marker_that_aborted_records_which_stay_is_not_cut_out_alone(tmp_path: Path, behind: str) -> None:
    """In the index it would hide later records; without its entry consumers would read what was aborted."""
    log_dir = aborted(tmp_path / "logs", behind=behind, whole=False)
    given = {"accepted_losses": ("KR302:t-0:2",)}
    (found,) = VERBS.found(log_dir, "KR302")
    assert "it cannot be cut out alone" in found.evidence
    (part,) = VERBS.planned(log_dir, **given).partitions
    assert (part.code, part.changes) == ("damage", ())
    assert "a transaction of producer 7" in part.why
    for told in (found.command, part.next_command):
        assert "--fix tail=broker --accept-data-loss KR302:t-0:2" in str(told)
    given["fixes"] = ("tail=broker",)
    plan = VERBS.planned(log_dir, **given)
    with there_and_back(log_dir, plan, VERBS.options(**given)):
        assert (log_dir / "t-0" / f"{0:020d}.txnindex").read_bytes() == b""


@pytest.mark.parametrize("behind", ["here", "next", "nothing"])
def test_an_aborted_transaction_that_is_lost_with_its_marker_loses_its_entry(
    tmp_path: Path, behind: str
) -> None:
    log_dir = aborted(tmp_path / "logs", behind=behind, whole=True)
    given = {"accepted_losses": ("KR302:t-0:0",)}
    plan = VERBS.planned(log_dir, **given)
    with there_and_back(log_dir, plan, VERBS.options(**given)):
        assert (log_dir / "t-0" / f"{0:020d}.txnindex").read_bytes() == b""
        assert VERBS.found(log_dir, "KR204") == []


@pytest.mark.parametrize("index", ["an impossible first offset", "nine bytes"])
def test_a_marker_may_be_of_any_transaction_where_the_index_of_aborts_is_damaged_too(
    tmp_path: Path, index: str
) -> None:
    log_dir = aborted(tmp_path / "logs", behind="here", whole=False)
    file = log_dir / "t-0" / f"{0:020d}.txnindex"
    if index == "nine bytes":
        file.write_bytes(file.read_bytes()[:9])
    else:
        flip(file, 10)
    (found,) = VERBS.found(log_dir, "KR302")
    assert f"{file.name} is damaged too" in found.evidence
    (part,) = VERBS.planned(log_dir, accepted_losses=("KR302:t-0:2",)).partitions
    assert part.changes == ()


def test_of_two_batches_with_the_same_offsets_a_consent_names_the_offsets_of_both(tmp_path: Path) -> None:
    """The batch at 1 says 3, like the good one behind it; compaction has left a gap behind both."""
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("t")
    partition.segment(
        builders.data(0), builders.data(1, 2, pid=3), builders.data(3, 2, pid=2), builders.data(9)
    )
    log_dir = made.write()
    log = partition.folder / f"{0:020d}.log"
    raw = bytearray(log.read_bytes())
    struct.pack_into(">q", raw, len(builders.data(0).raw), 3)
    log.write_bytes(raw)
    (found,) = VERBS.found(log_dir, "KR303")
    assert "nothing shows which one is right" in found.evidence
    assert (found.first_offset, found.last_offset, found.records_lost) == (1, 8, 2)
    plan = VERBS.planned(log_dir, accepted_losses=("KR303:t-0:1",))
    with there_and_back(log_dir, plan, VERBS.options(accepted_losses=("KR303:t-0:1",))):
        assert VERBS.found(log_dir, "KR303") == []


WRONG_INDEXES = {
    "an entry that begins late": struct.pack(">hqqqq", 0, 1, 7, 9, 10),
    "an entry too many": struct.pack(">hqqqq", 0, 1, 6, 9, 10) + struct.pack(">hqqqq", 0, 2, 10, 11, 12),
    "bytes behind the entries": struct.pack(">hqqqq", 0, 1, 6, 9, 10) + bytes(9),
    "nothing": b"",
    "no file": None,
}


@pytest.mark.parametrize("name", WRONG_INDEXES)
@pytest.mark.parametrize(
    ("fixes", "clean"),
    [
        (("tail",), True),
        (("tail", "index=regenerate"), True),
        (("tail",), False),
        (("tail", "recovery"), False),
    ],
)
def test_a_transaction_index_behind_which_a_tail_was_torn_is_made_with_the_cut(
    tmp_path: Path, name: str, fixes: tuple[str, ...], clean: bool
) -> None:
    """After a clean stop no start makes it anew, and behind the torn tail nothing tells what is wrong with it."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(builders.data(0, 6, pid=2, txn=True))
    one.segment(builders.data(6, 3, pid=1, txn=True), builders.abort(9, pid=1), builders.commit(10, pid=2))
    log_dir = made.write(clean_stop=clean)
    log, index = (one.folder / f"{6:020d}{suffix}" for suffix in (".log", ".txnindex"))
    right = index.read_bytes()
    index.unlink()
    if (wrong := WRONG_INDEXES[name]) is not None:
        index.write_bytes(wrong)
    log.write_bytes(log.read_bytes() + builders.data(11, 3).raw[:70])
    plan = VERBS.planned(log_dir, fixes=fixes)
    rolls = any(isinstance(one, RollSegment) for one in plan.partitions[0].changes)
    assert rolls is ("recovery" in fixes)
    with there_and_back(log_dir, plan, VERBS.options(fixes=fixes)):
        assert index.read_bytes() == right
        assert VERBS.found(log_dir, "KR204") == []


def test_damage_that_the_plan_leaves_is_no_objection_to_the_transaction_index_that_it_makes(
    tmp_path: Path,
) -> None:
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(builders.data(0, 6))
    records = builders.data(6, 3, pid=1, txn=True)
    one.segment(records, builders.abort(9, pid=1))
    log_dir = made.write()
    closed, active = (one.folder / f"{base:020d}.log" for base in (0, 6))
    noise = b"noise" * 4
    closed.write_bytes(closed.read_bytes() + noise)
    active.write_bytes(active.read_bytes()[:-7])
    plan = VERBS.planned(log_dir)
    (change,) = plan.partitions[0].changes
    assert isinstance(change, MendLog)
    assert [new.name for new in change.companions if new.name.endswith(".txnindex")] != []
    before = tree(log_dir)
    assert apply(plan, VERBS.options()).exit_code == ExitCode.DONE
    assert (active.read_bytes(), closed.read_bytes()[-len(noise) :]) == (records.raw, noise)
    assert verify_plan(plan, VERBS.options()).problems == ()
    assert undo(plan, VERBS.options()).exit_code == ExitCode.DONE
    assert tree(log_dir) == before


# -- A last batch whose base offset, which no checksum covers, lies behind where the next segment begins.


@pytest.mark.parametrize("batches", [1, 3])
def test_a_last_batch_that_jumps_over_the_next_segment_is_damage(tmp_path: Path, batches: int) -> None:
    """A consumer that has read it goes on behind it, and never gets what is in the next segment."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(*(builders.data(2 * number, 2) for number in range(batches)))
    one.segment(builders.data(2 * batches, 4)).segment(builders.data(2 * batches + 4))
    log_dir = made.write()
    log, last = one.folder / f"{0:020d}.log", 2 * batches - 2
    whole = log.read_bytes()
    at = len(whole) // batches * (batches - 1)
    log.write_bytes(whole[:at] + struct.pack(">q", last | 1 << 20) + whole[at + 8 :])
    (found,) = VERBS.found(log_dir, "KR303")
    assert (found.position, found.first_offset, found.last_offset, found.records_lost) == (
        at,
        last,
        last + 1,
        2,
    )
    (problem,) = verify_log_dir(str(log_dir), options()).problems
    assert f"a last offset below {2 * batches}, where the log continues, was expected" in problem.text
    compacted = {"topic_config": str(topic_config(tmp_path, None, "t")), "only_replica": ("t",)}
    for fix in ("markers", "compact"):
        (part,) = VERBS.planned(log_dir, fixes=(fix,), topics=("t",), **compacted).partitions
        assert (part.code, part.changes) == ("damage", ())
    given = {"accepted_losses": (f"KR303:t-0:{last}",)}
    plan = VERBS.planned(log_dir, **given)
    with there_and_back(log_dir, plan, VERBS.options(**given)):
        assert log.read_bytes() == whole[:at]
        assert VERBS.found(log_dir, "KR303") == []


def test_the_batch_that_jumps_over_the_next_segment_is_the_damage_however_small_the_one_behind_it(
    tmp_path: Path,
) -> None:
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(builders.data(0, 2), builders.data(2, 20), builders.data(22, 1)).segment(builders.data(23))
    log_dir = made.write()
    log, at = one.folder / f"{0:020d}.log", len(builders.data(0, 2).raw)
    whole = log.read_bytes()
    log.write_bytes(whole[:at] + struct.pack(">q", 2 | 1 << 10) + whole[at + 8 :])
    (found,) = VERBS.found(log_dir, "KR303")
    assert (found.position, found.first_offset, found.last_offset) == (at, 2, 21)
    given = {"accepted_losses": ("KR303:t-0:2",)}
    plan = VERBS.planned(log_dir, **given)
    with there_and_back(log_dir, plan, VERBS.options(**given)):
        assert log.read_bytes() == whole[:at] + builders.data(22, 1).raw
        assert VERBS.found(log_dir, "KR303") == []


@pytest.mark.parametrize("point", [14, 13, 10, 9, None])
def test_a_last_batch_that_jumps_over_the_end_of_a_clean_stop_is_damage(
    tmp_path: Path, point: int | None
) -> None:
    """The broker gives the next record an offset behind it. A recovery point of an earlier end proves nothing."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(builders.data(0, 5)).segment(builders.data(5, 5), builders.data(10, 4))
    log_dir = made.write()
    log = one.folder / f"{5:020d}.log"
    whole, at = log.read_bytes(), len(builders.data(5, 5).raw)
    log.write_bytes(whole[:at] + struct.pack(">q", 10 | 1 << 20) + whole[at + 8 :])
    lines = [] if point is None else [f"t 0 {point}"]
    (log_dir / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    found = VERBS.found(log_dir, "KR303")
    assert [(one.position, one.first_offset) for one in found] == [(at, 10)] * (point in {13, 14})
    problems = [one.text for one in verify_log_dir(str(log_dir), options()).problems if one.file == log.name]
    assert [f"a last offset below {point}" in text for text in problems] == [True] * len(found)
    if found:
        given = {"accepted_losses": ("KR303:t-0:10",)}
        plan = VERBS.planned(log_dir, **given)
        with there_and_back(log_dir, plan, VERBS.options(**given)):
            assert log.read_bytes() == whole[:at]


def test_segments_with_the_same_offsets_are_told(tmp_path: Path) -> None:
    """Behind the first one, consumers never get what is in the next: no fix takes it, and all refused in silence."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    one.segment(*(builders.data(2 * number, 2) for number in range(5)))
    one.segment(builders.data(6, 4)).segment(builders.data(10))
    log_dir = made.write()
    (found,) = VERBS.found(log_dir, "KR303")
    assert (found.file, found.fix, found.first_offset, found.last_offset) == (f"{0:020d}.log", "none", 6, 9)
    (problem,) = verify_log_dir(str(log_dir), options()).problems
    assert (problem.file, problem.text) == (
        f"{0:020d}.log",
        "a last offset below 6, where the log continues, was expected, found 9",
    )


# -- Random damage to partitions: the forecast is that of a slow twin of recovery, and what stays is what is
# valid.

SEGMENTS = 3
SPAN = 50
CONSENTS = re.compile(r"--accept-data-loss (\S+)")
CUT = re.compile(
    r"recovery cuts (\d{20})\.log at position (\d+): (\d+) bytes?(?:, (\d+) later segments? among them)?"
)
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, SEGMENTS - 1),
        st.sampled_from(["flip", "zero", "cut", "garbage", "repeat"]),
        st.floats(0, 1),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class Recovered:
    """What a broker's recovery does to a partition: where it cuts, and which segments it deletes."""

    segment: int = -1
    position: int = -1
    bytes: int = 0
    deleted: int = 0


def recover_segment(raw: bytes, base: int) -> int:
    """Valid bytes as LogSegment.recover finds them (Kafka 2.2.1, 3.9).

    0 also where its own index entries go back; -1 where it comes to an offset that does not fit the segment.
    """
    place, last_entry, last_offset = 0, 0, base
    largest, of_largest, written, written_offset = -1, -1, -1, -1
    while place + 17 <= len(raw):
        offset, length = struct.unpack_from(">qi", raw, place)
        end = place + 12 + length
        # a magic above 2 is read as v2, and no checksum covers it; below 2 another checksum is looked for
        if length < 14 or end > len(raw) or length < 49 or not 2 <= raw[place + 16] < 128:
            break
        if crc32c.crc32c(raw[place + 21 : end]) != struct.unpack_from(">I", raw, place + 17)[0]:
            break
        last = offset + struct.unpack_from(">i", raw, place + 23)[0]
        if not 0 <= last - base < 2**31:
            return -1
        timestamp = struct.unpack_from(">q", raw, place + 35)[0]
        if timestamp > largest:
            largest, of_largest = timestamp, last
        if place - last_entry > INTERVAL:
            if last <= last_offset or of_largest < written_offset:
                return 0
            last_entry, last_offset = place, last
            if largest > written:
                written, written_offset = largest, of_largest
        place = end
    return place


def recover(logs: list[bytes]) -> Recovered:
    for number, raw in enumerate(logs):
        valid = recover_segment(raw, number * SPAN)
        if valid < 0:
            return Recovered(number)
        if valid < len(raw):
            later = logs[number + 1 :]
            return Recovered(number, valid, len(raw) - valid + sum(map(len, later)), len(later))
    return Recovered()


def with_damage(raw: bytes, kind: str, where: float, size: int) -> bytes:
    place = int(where * max(len(raw) - 1, 0))
    if kind == "flip" and raw:
        return raw[:place] + bytes([raw[place] ^ (size % 255 + 1)]) + raw[place + 1 :]
    if kind == "zero":
        return raw[:place] + bytes(min(size, len(raw) - place)) + raw[place + size :]
    if kind == "cut":
        return raw[: max(len(raw) - size, 0)]
    if kind == "garbage":
        return raw + b"\xa7" * size
    return raw[:place] + raw[max(place - size, 0) : place] + raw[place:]


@pytest.mark.slow
@settings(max_examples=60)
@given(damage=DAMAGE)
def test_forecast_is_the_twins_recovery_and_consents_leave_exactly_what_is_valid(
    damage: list[tuple[int, str, float, int]],
) -> None:
    with tempfile.TemporaryDirectory() as work:
        torn = Torn.make(Path(work) / "logs", SEGMENTS)
        for number, kind, where, size in damage:
            torn.write(number, with_damage(torn.log(number).read_bytes(), kind, where, size))
        logs = [torn.log(number).read_bytes() for number in range(SEGMENTS)]
        before = tree(torn.root)
        report = torn.check()
        expected = recover(logs)
        (line,) = report.forecast
        found = CUT.search(line.text)
        if expected.segment < 0:
            assert found is None, line
        elif expected.position < 0:
            assert line.expected == "refuse" or any("splits" in one.evidence for one in report.findings)
        else:
            assert found, line
            assert (
                Recovered(int(found[1]) // SPAN, int(found[2]), int(found[3]), int(found[4] or 0)) == expected
            )
        consents = {
            consent
            for finding in report.findings
            if finding.fix == "tail"
            for consent in CONSENTS.findall(finding.evidence)
        }
        plan = torn.plan(accepted_losses=tuple(sorted(consents)))
        maps = [
            twin(number * SPAN, raw, SPAN - 1 if number < SEGMENTS - 1 else 2**31 - 1)
            for number, raw in enumerate(logs)
        ]
        left = [
            b"".join(raw[start:end] for start, end, _, _ in valid)
            for raw, (valid, _) in zip(logs, maps, strict=True)
        ]
        assert plan.partitions[0].log_bytes_before - plan.partitions[0].log_bytes_after == sum(
            end - start for _, ranges in maps for start, end in ranges
        )
        assert apply(plan, options(), disk=UnsyncedDisk()).exit_code == ExitCode.DONE
        assert [torn.log(number).read_bytes() for number in range(SEGMENTS)] == left
        assert verify_plan(plan, options()).problems == ()
        assert verify_log_dir(str(torn.root), options()).problems == ()
        assert not torn.plan().partitions[0].changes
        assert undo(plan, options(), disk=UnsyncedDisk()).exit_code == ExitCode.DONE
        assert tree(torn.root) == before
