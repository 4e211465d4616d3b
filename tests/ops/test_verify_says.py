"""Verify of a plan says which files it checked, and how: none that it read counts for nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.cli.views.reports import verify_view
from krepair.cli.views.writers import on_screen, plain
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.logdir.lock import hold_lock
from krepair.next_command import Next
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import CheckedFiles, VerifyReport, verify_log_dir, verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from tests.builders import LogDir, abort, data
from tests.durable.disks import RecordingDisk, SimulatedCrash, StoppingDisk
from tests.encoders import encode_snapshot
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.journeys import built
from tests.ops.stops import telling_stops

NOTHING = re.compile(r"\bno (batch|segment|file)\b|(?<![0-9,])0 bytes")


def files_of(plan: Plan) -> int:
    parts = (*plan.partitions, *([plan.root] if plan.root else []))
    return sum(len(part.changes) for part in parts)


def test_a_plan_that_only_cuts_indexes_says_that_they_were_held_against_their_logs(tmp_path: Path) -> None:
    logs, plan = str(unpack("timeindex-padded-2.2.1", tmp_path)), str(tmp_path / "u.krplan")
    assert run("plan", logs, "--fix", "index", "--engine", "inline", "--out", plan).code == 2
    assert run("apply", plan, "--engine", "inline").code == 0
    ran = run("verify", plan, "--engine", "inline")
    words = " ".join(ran.out.split())
    assert ran.code == 0
    assert not NOTHING.search(words), words
    assert (
        "Everything is as it should be. Looked at 1 partition. Indexes (4): size, digest and attributes against the "
        "plan, and its entries against the log." in words
    )


SCENES = (
    "markers", "partitions", "indexes", "derived", "everything", "leftovers", "removals", "tail-cut", "excise",
    "set-aside", "keys", "recovery",
)  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_every_kind_of_change_is_told_of(memory_dir: Path, name: str) -> None:
    scene = built(name)
    placed = scene.place(memory_dir)
    before = verify_plan(placed.plan, scene.options)
    assert before.checked == ()
    shown = plain(verify_view(before))
    assert "No file of this plan was checked" in shown
    assert "as it should be" not in shown
    apply(placed.plan, scene.options)
    report = verify_plan(placed.plan, replace(scene.options, originals=True))
    assert report.problems == ()
    assert sum(one.files for one in report.checked) >= files_of(placed.plan)
    page = " ".join(plain(verify_view(report)).split())
    for one in report.checked:
        assert f"{one.what.capitalize()} ({one.files})" in page or f"{one.what} ({one.files})" in page
        assert one.how in page or len(report.checked) > 3
    assert not NOTHING.search(page), page
    assert bool(report.bytes_read) is ("of .log" in page)
    assert bool(report.segments) <= bool(report.bytes_read)


def test_logs_that_are_empty_are_called_that(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(base_offset=0)
    report = verify_log_dir(str(made.write()), Options())
    assert "Read 1 partition, 1 segment, all empty." in plain(verify_view(report))


@pytest.mark.parametrize("clean_stop", [True, False])
@pytest.mark.parametrize("base", [0, 6])
def test_an_aborted_transaction_without_an_entry_is_told(
    tmp_path: Path, base: int, *, clean_stop: bool
) -> None:
    """read_committed consumers see its records, and all was called as it should be."""
    directory = LogDir(tmp_path / "logs")
    one = directory.partition("t").segment(
        data(0, 3, pid=1, txn=True), abort(3, pid=1), data(4, 2, pid=1, txn=True)
    )
    one.segment(abort(6, pid=1), data(7))
    log_dir = directory.write(clean_stop=clean_stop)
    assert verify_log_dir(str(log_dir), Options()).problems == ()
    (log_dir / "t-0" / f"{base:020d}.txnindex").unlink()
    found = [one.file for one in verify_log_dir(str(log_dir), Options()).problems]
    assert found == [f"{base:020d}.txnindex"] * (clean_stop or base == 0)


def test_the_page_of_a_plan_fits_a_screen_for_any_number_of_partitions() -> None:
    how = "size, digest and attributes against the plan, and its entries against the log"
    checked = tuple(CheckedFiles(what=f"kind {n}", files=2000, how=how) for n in range(5))
    report = VerifyReport(
        target="/d", plan_id="0123abcd", partitions=2000, checked=checked, next_command=Next.read("k")
    )
    assert len(on_screen(verify_view(report), 80).splitlines()) <= 24


NONE_KEPT = "Not compared with the originals: there are no backups any more."


@pytest.mark.parametrize("name", ["markers", "keys", "markers~until-verified"])
def test_without_originals_nothing_is_said_to_be_compared_with_them(memory_dir: Path, name: str) -> None:
    scene = built(name)
    placed = scene.place(memory_dir)
    apply(placed.plan, scene.options)
    if name != "markers~until-verified":
        kept = verify_plan(placed.plan, replace(scene.options, originals=True))
        assert (kept.exit_code, kept.not_compared) == (ExitCode.DONE, "")
        assert str(kept.next_command).startswith("krepair purge PLAN")
        assert purge(placed.plan, scene.options).exit_code is ExitCode.DONE
    report = verify_plan(placed.plan, replace(scene.options, originals=True))
    assert report.problems == ()
    assert report.exit_code is ExitCode.FOUND
    page = plain(verify_view(report))
    assert NONE_KEPT in page
    assert "as it should be" not in page
    unasked = verify_plan(placed.plan, scene.options)
    assert (unasked.exit_code, unasked.not_compared) == (ExitCode.DONE, "")
    for one in (report, unasked):
        assert str(one.next_command) == f"krepair check {placed.path}"


def test_partitions_whose_originals_are_gone_are_named(memory_dir: Path) -> None:
    scene = built("partitions")
    placed = scene.place(memory_dir)
    apply(placed.plan, scene.options)
    first, *others = sorted(one.folder for one in placed.plan.partitions)
    assert others
    shutil.rmtree(placed.path / first / f"krepair~{placed.plan.plan_id}")
    report = verify_plan(placed.plan, replace(scene.options, originals=True))
    assert report.exit_code is ExitCode.FOUND
    assert report.not_compared == f"Not compared with the originals in {first}: there are no backups any more"


def test_one_row_tells_of_all_changes_of_a_partition_that_are_not_applied(memory_dir: Path) -> None:
    scene = built("partitions")
    placed = scene.place(memory_dir)
    report = verify_plan(placed.plan, scene.options)
    counts = {one.folder: len(one.changes) for one in placed.plan.partitions if one.changes}
    assert max(counts.values()) > 1
    assert {one.partition: one.text for one in report.problems} == {
        folder: f"{n} change{'s are' if n > 1 else ' is'} not applied: {'their' if n > 1 else 'its'} state is planned"
        for folder, n in counts.items()
    }
    assert len(report.problems) == len(counts)
    assert str(report.next_command) == "krepair apply PLAN"


def test_files_that_a_broker_has_gone_on_with_are_its_own_and_still_read(memory_dir: Path) -> None:
    scene = built("recovery")
    placed = scene.place(memory_dir)
    apply(placed.plan, scene.options)
    log, small = placed.path / "r-0" / f"{40:020d}.log", placed.path / "r-0" / f"{40:020d}.snapshot"
    log.write_bytes(made := data(40, 3).raw)
    small.write_bytes(encode_snapshot([]))
    before = verify_plan(placed.plan, scene.options)
    assert before.problems
    assert str(before.next_command) == "krepair undo PLAN"

    raised(placed.path, "r", 43)
    report = verify_plan(placed.plan, scene.options)
    assert (report.problems, report.of_the_broker, report.exit_code) == ((), 2, ExitCode.DONE)
    assert "A broker has run since the apply: 2 files rewritten or removed by it." in plain(
        verify_view(report)
    )
    assert str(report.next_command).startswith("krepair purge PLAN")

    log.write_bytes(made[:-1] + bytes([made[-1] ^ 1]))
    small.write_bytes(encode_snapshot([])[:-1])
    wrong = {one.file for one in verify_plan(placed.plan, scene.options).problems}
    assert wrong == {log.name, small.name}


def raised(log_dir: Path, topic: str, high_watermark: int) -> None:
    """Write the high watermarks, as a broker does every five seconds."""
    file = log_dir / "replication-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    others = [line for line in lines if not line.startswith(f"{topic} 0 ")]
    rows = [*others, f"{topic} 0 {high_watermark}"]
    file.write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")


def as_anew(log_dir: Path, newest: str) -> None:
    """Give the root's files and the journals other times, as a copy without times has; one is the newest by far."""
    paths = [*log_dir.glob("*"), *log_dir.rglob("journal")]
    for number, path in enumerate(sorted(paths, reverse=True)):
        os.utime(path, (1_800_000_000 + number,) * 2)
    for path in log_dir.rglob(newest):
        os.utime(path, (1_900_000_000,) * 2)


@pytest.mark.parametrize("newest", ["replication-offset-checkpoint", ".kafka_cleanshutdown", "journal"])
def test_times_do_not_tell_whether_a_broker_has_run(newest: str, memory_dir: Path) -> None:
    scene = built("recovery")
    placed = scene.place(memory_dir)
    apply(placed.plan, scene.options)
    as_anew(placed.path, newest)
    assert verify_plan(placed.plan, scene.options).problems == ()
    (placed.path / "r-0" / f"{40:020d}.snapshot").write_bytes(encode_snapshot([]))
    as_anew(placed.path, newest)
    assert verify_plan(placed.plan, scene.options).problems
    raised(placed.path, "r", 43)
    as_anew(placed.path, newest)
    report = verify_plan(placed.plan, scene.options)
    assert report.problems == ()
    assert report.of_the_broker


@pytest.mark.parametrize("sign", ["marker", "snapshot", "lock", "epochs", "flip"])
def test_what_a_broker_writes_tells_that_it_has_run_and_damage_does_not(sign: str, memory_dir: Path) -> None:
    scene = built("recovery")
    placed = scene.place(memory_dir)
    apply(placed.plan, scene.options)
    folder = "r-0"
    (placed.path / folder / f"{40:020d}.snapshot").write_bytes(encode_snapshot([]))
    with contextlib.ExitStack() as stack:
        last = sorted((placed.path / folder).glob("*.log"))[0]
        if sign == "marker":
            (placed.path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
        elif sign == "snapshot":
            last.with_name(f"{43:020d}.snapshot").write_bytes(encode_snapshot([]))
        elif sign == "lock":
            stack.enter_context(hold_lock(str(placed.path), RealDisk()))
        elif sign == "epochs":
            (placed.path / folder / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
        else:
            flip(last, last.stat().st_size - 1)
        report = verify_plan(placed.plan, scene.options)
    assert bool(report.of_the_broker) == (sign in {"marker", "snapshot", "lock"})
    assert bool(report.problems) != bool(report.of_the_broker)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [apply, undo])
def test_of_a_plan_that_is_half_done_verify_and_purge_name_the_same_command(
    verb: Callable[..., object], memory_dir: Path
) -> None:
    scene, named = built("markers"), set()
    recording = RecordingDisk(RealDisk())
    first = scene.place(subfolder(memory_dir, 0))
    if verb is undo:
        apply(first.plan, scene.options)
    verb(first.plan, scene.options, disk=recording)
    for stop in telling_stops(recording.calls):
        placed = scene.place(subfolder(memory_dir, stop))
        if verb is undo:
            apply(placed.plan, scene.options)
        with contextlib.suppress(SimulatedCrash):
            verb(placed.plan, scene.options, disk=StoppingDisk(RealDisk(), stop))
        report = verify_plan(placed.plan, scene.options)
        command = refused_purge(placed.plan, scene.options)
        named.add(command)
        assert command in ("", str(report.next_command)), stop
    assert "krepair apply PLAN" in named or verb is undo
    assert "krepair undo PLAN" in named or verb is apply


def refused_purge(plan: Plan, options: Options) -> str:
    """What purge says to type first; empty where it does its work."""
    try:
        purge(plan, options)
    except RefusedError as refused:
        return str(refused.next_command)
    return ""


def subfolder(parent: Path, number: int) -> Path:
    made = parent / str(number)
    made.mkdir()
    return made
