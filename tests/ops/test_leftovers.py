"""Leftovers of a broker: completed, removed, stopped at every call, taken back; what cannot be told is left alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from krepair.checks.catalogue import Severity
from krepair.cli.views.planned import not_mended
from krepair.commit.kept import kept_report
from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode, PersonDecidesError
from krepair.findings.reports import LogDirReport
from krepair.formats.filenames import log_name, segment_name
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import CompleteSwap, PartitionPlan, Plan, ReplaceFile
from krepair.rewrite import swaps
from krepair.start.room import removable
from tests.builders import LogDir, data
from tests.commit import txfixture
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import FILE_CHANGING, SimulatedCrash, StoppingDisk
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.ops import pending
from tests.ops.by_hand import end_by_hand
from tests.ops.inline import there_and_back
from tests.ops.pending import BASE, EXTENSIONS, FOLDER, name, options
from tests.ops.scene import part, tree
from tests.ops.stops import each_stop

UNFENCED = {"P1": "2.2.1", "P2": "3.9.2"}
orders = pytest.mark.parametrize("order", ["P1 fenced", "P1", "P2"])


def scene(root: Path, order: str = "P1 fenced", **given: Sequence[int]) -> tuple[Path, Options, Plan]:
    """A pending swap, the options and the plan that completes it in an order."""
    if order in UNFENCED:
        pending.write(root, damage_elsewhere=True, **given)  # type: ignore[arg-type]
        chosen = options(broker_version=UNFENCED[order], partitions=(("t", 0),))
    else:
        pending.write(root, **given)  # type: ignore[arg-type]
        chosen = options()
    plan = make_plan(str(root), chosen)
    assert (plan.commit.order, plan.commit.fence) == (order[:2], order not in UNFENCED)
    return root, chosen, plan


def files(root: Path) -> set[str]:
    return {path.name for path in (root / FOLDER).iterdir() if path.is_file()}


@orders
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"deleted": (200,)},
        {"gone": (300,)},
        {"gone": (100, 200, 300)},
        {"deleted": (100, 200, 300)},
        {"cleaned": (300,)},
        {"deleted": (100, 300), "cleaned": (200,)},
        {"without": (".index", ".timeindex")},
    ],
    ids=str,
)
def test_a_swap_is_completed_verified_and_put_back_to_the_byte(
    tmp_path: Path, order: str, given: dict[str, Sequence[int]]
) -> None:
    root, chosen, plan = scene(tmp_path / "logs", order, **given)
    merged = txfixture.merged()
    with there_and_back(root, plan, chosen):
        assert (root / FOLDER / name(BASE)).read_bytes() == merged[".log"]
        for extension in (".index", ".timeindex"):
            assert (root / FOLDER / name(BASE, extension)).read_bytes() == merged[extension]
        assert (root / FOLDER / name(BASE, ".txnindex")).read_bytes() == merged[".txnindex"]
        assert not [each for each in files(root) if each.endswith((".swap", ".deleted"))]
        assert {name(base) for base in (0, 100, 400)} == {
            each for each in files(root) if each.endswith(".log")
        }
        again = part(make_plan(str(root), chosen), FOLDER)
        assert (again.status, again.changes) == ("nothing", ())


def test_a_swap_with_abort_markers_and_without_its_transaction_index_is_left_to_the_start(
    tmp_path: Path,
) -> None:
    """Only the logs before it tell what was aborted; a start that finds no indexes replays them."""
    root = pending.write(tmp_path / "logs", without=(".txnindex",))
    left = part(make_plan(str(root), options()), FOLDER)
    assert (left.status, left.changes) == ("left alone", ())
    assert "only a start works out what was aborted" in left.why


@pytest.mark.parametrize("there", [None, 12, 36])
def test_a_right_index_swap_takes_the_place_of_a_missing_or_wrong_index(
    tmp_path: Path, there: int | None
) -> None:
    """A broker since 3.0 renames it; removed, it would leave what is wrong."""
    made = LogDir(tmp_path / "logs")
    batches = (data(3 * number, 3, timestamp=txfixture.TIME_MS + number) for number in range(4))
    made.partition("t", index_interval_bytes=10).segment(*batches).segment(data(12, 2))
    root = made.write()
    path = root / "t-0" / name(0, ".timeindex")
    right = path.read_bytes()
    Path(f"{path}.swap").write_bytes(right)
    path.write_bytes(right[:there])
    if there is None:
        path.unlink()
    chosen = options(settings=(("index.interval.bytes", "10"),))
    plan = make_plan(str(root), chosen)
    with there_and_back(root, plan, chosen):
        assert path.read_bytes() == right
        assert not Path(f"{path}.swap").exists()


def test_each_index_swap_is_judged_by_itself_in_whatever_order_results_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps no order."""
    in_order = InlineEngine.map
    monkeypatch.setattr(InlineEngine, "map", lambda *given: reversed(list(in_order(*given))))
    made = LogDir(tmp_path / "logs")
    partition = made.partition("t", index_interval_bytes=10)
    for first in (0, 12, 24):
        partition.segment(
            *(data(first + 3 * one, 3, timestamp=txfixture.TIME_MS + first + one) for one in range(4))
        )
    root = made.write()
    wrong, right = (root / "t-0" / name(base, ".timeindex") for base in (0, 12))
    contents = wrong.read_bytes(), right.read_bytes()
    for path, swap in ((wrong, contents[0]), (right, contents[1][:12])):
        Path(f"{path}.swap").write_bytes(swap)
    wrong.write_bytes(contents[0][:12])
    chosen = options(settings=(("index.interval.bytes", "10"),))
    plan = make_plan(str(root), chosen)
    with there_and_back(root, plan, chosen):
        assert (wrong.read_bytes(), right.read_bytes()) == contents
        assert not list((root / "t-0").glob("*.swap"))


@orders
def test_a_swap_is_not_made_pending_again_beside_what_a_cleaner_has_begun(tmp_path: Path, order: str) -> None:
    """A broker that starts would delete the swap, and with it what the segments held that it replaced."""
    root, chosen, plan = scene(tmp_path / "logs", order, gone=(100, 200, 300))
    with there_and_back(root, plan, chosen):
        theirs = root / FOLDER / f"{name(0)}.cleaned"
        theirs.write_bytes(b"of a cleaner")
        report = undo(plan, chosen)
        assert report.exit_code == ExitCode.STALE_PLAN
        assert f"{theirs}: " in report.results[0].why
        assert (root / FOLDER / name(BASE)).read_bytes() == txfixture.merged()[".log"]
        theirs.unlink()


@pytest.mark.slow
@orders
def test_a_completion_that_was_stopped_and_has_lost_its_staged_indexes_is_begun_anew(
    tmp_path: Path, order: str
) -> None:
    """At stops at which files are staged and the swap is still pending; or it is refused, and undo gives all back."""
    emptied = 0
    for stop in each_stop(first=3, step=3):
        root, chosen, plan = scene(tmp_path / str(stop.number), order, without=(".index", ".timeindex"))
        before = tree(root)
        with stop as disk:
            apply(plan, chosen, disk=disk)
        journals = [
            path for path in root.glob(f"{FOLDER}/krepair~*/journal") if b'"begin"' in path.read_bytes()
        ]
        staged = list(root.glob(f"{FOLDER}/krepair~*/stage/*"))
        if stop.happened and journals and staged and (root / FOLDER / f"{name(BASE)}.swap").exists():
            emptied += 1
            for path in staged:
                path.unlink()
        if apply(plan, chosen).exit_code != ExitCode.DONE:
            # In P2 a pending index looks like the staged one that it would become.
            assert order == "P2"
            assert undo(plan, chosen).exit_code == ExitCode.DONE
            assert apply(plan, chosen).exit_code == ExitCode.DONE
        assert (root / FOLDER / name(BASE)).read_bytes() == txfixture.merged()[".log"]
        assert (root / FOLDER / name(BASE, ".index")).read_bytes() == txfixture.merged()[".index"]
        assert undo(plan, chosen).exit_code == ExitCode.DONE
        assert tree(root) == before
    assert emptied


@pytest.mark.parametrize("byte", [9, 25], ids=["producer", "marker"])
def test_a_swap_whose_transaction_index_contradicts_it_is_left_alone(tmp_path: Path, byte: int) -> None:
    root = pending.write(tmp_path / "logs")
    flip(root / FOLDER / name(BASE, ".txnindex.swap"), byte)
    planned = part(make_plan(str(root), options()), FOLDER)
    assert (planned.status, planned.code, planned.changes) == ("left alone", "leftovers", ())
    assert ".txnindex.swap, position 0: the entry names no marker of that producer" in planned.why


def test_a_transaction_index_that_a_plan_took_is_read_again_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pending.write(tmp_path / "logs")
    flip(root / FOLDER / name(BASE, ".txnindex.swap"), 25)
    before, chosen = tree(root), options()
    monkeypatch.setattr(swaps, "_contradiction", lambda *_: "")
    report = apply(make_plan(str(root), chosen), chosen)
    assert report.exit_code == ExitCode.VERIFY_FAILED
    assert "names no marker of that producer; nothing was changed" in report.results[0].why
    assert tree(root) == before


def test_a_swap_to_be_thrown_away_is_removed_whatever_its_transaction_index_says(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs")
    folder = root / FOLDER
    (folder / name(0, ".log.cleaned")).touch()
    for byte in (25, 0):  # names no marker; of no known version
        flip(folder / name(BASE, ".txnindex.swap"), byte)
        planned = part(make_plan(str(root), options()), FOLDER)
        assert {change.change_id for change in planned.changes} == {
            f"{FOLDER}/{path.name}" for path in folder.iterdir() if path.suffix in {".swap", ".cleaned"}
        }


def test_a_swap_to_be_thrown_away_beside_no_segment_holds_the_only_copy(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs")
    folder = root / FOLDER
    (folder / name(0, ".log.cleaned")).touch()
    for log in folder.glob("*.log"):
        log.unlink()
    planned = part(make_plan(str(root), options()), FOLDER)
    assert planned.changes == ()
    assert "the swap may hold the only copy" in planned.why


def test_purge_frees_what_the_swap_replaced_and_the_plan_said_how_much(tmp_path: Path) -> None:
    root, chosen, plan = scene(tmp_path / "logs", deleted=(300,))
    before = sum(path.stat().st_blocks for path in (root / FOLDER).iterdir())
    apply(plan, chosen)
    assert purge(plan, chosen).exit_code == ExitCode.DONE
    now = sum(path.stat().st_blocks for path in (root / FOLDER).iterdir())
    assert plan.freed_at_purge == (before - now) * 512
    assert not verify_plan(plan, chosen).problems


def test_verify_reads_a_completed_swap_again_and_names_what_is_wrong(tmp_path: Path) -> None:
    root, chosen, plan = scene(tmp_path / "logs")
    apply(plan, chosen)
    for file, words in ((name(BASE), "CRC"), (name(BASE, ".timeindex"), "is not the file of")):
        path = root / FOLDER / file
        good, mtime_ns = path.read_bytes(), path.stat().st_mtime_ns
        path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        os.utime(path, ns=(mtime_ns, mtime_ns))
        (problem,) = verify_plan(plan, chosen).problems
        assert words in problem.text
        path.write_bytes(good)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    assert not verify_plan(plan, chosen).problems


def test_leftovers_of_a_swap_that_did_not_begin_are_removed_and_the_segments_stay(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs")
    folder = root / FOLDER
    for extension in (".index", ".timeindex", ".txnindex"):  # a crash between the first two renames
        (folder / name(BASE, f"{extension}.swap")).rename(folder / name(BASE, f"{extension}.cleaned"))
    chosen = options()
    plan = make_plan(str(root), chosen)
    names = [change.name for change in part(plan, FOLDER).changes if isinstance(change, ReplaceFile)]
    assert names == [name(BASE, ".log.swap"), *(name(BASE, f"{e}.cleaned") for e in sorted(EXTENSIONS[1:]))]
    with there_and_back(root, plan, chosen):
        assert not [each for each in files(root) if each.endswith((".swap", ".cleaned"))]


@pytest.mark.parametrize(("version", "expected"), [("", "start"), ("2.2.1", "truncate"), ("3.9.2", "start")])
def test_a_damaged_swap_is_left_alone_with_both_sides_shown(
    tmp_path: Path, version: str, expected: str
) -> None:
    root = pending.write(tmp_path / "logs")
    swap = root / FOLDER / name(BASE, ".log.swap")
    flip(swap, 7000)
    plan = part(make_plan(str(root), options(broker_version=version)), FOLDER)
    assert (plan.status, plan.code, plan.changes) == ("left alone", "leftovers", ())
    assert "a broker before 3.0 truncates a swap where it is damaged" in plan.why
    (side,) = [note for note in plan.notes if note.startswith("leftovers: ")]
    assert f"{name(BASE, '.log.swap')}: 14196 bytes" in side
    assert (
        "26 batches, ends at 265, position 6913 of 14196: the batch's CRC-32C is not that of its bytes"
        in side
    )
    assert side.endswith("segments 100 to 200 (2): 11239 bytes, 41 batches, end at 291; the log ends at 450")
    report = check([str(root)], options(broker_version=version))
    line = next(one for one in report.log_dirs[0].forecast if one.partition == FOLDER)
    assert (line.expected, "this depends on the version" in line.text) == (expected, not version)
    assert "leftovers" not in str(report.next_command)


def test_a_txnindex_swap_alone_that_differs_is_left_alone(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs", without=(".log", ".index", ".timeindex"))
    plan = part(make_plan(str(root), options()), FOLDER)
    assert (plan.status, plan.code) == ("left alone", "leftovers")
    assert "overwrite the .txnindex with the swap without reading it" in plan.why


def test_damaged_segments_that_are_replaced_are_kept_as_real_copies_and_come_back(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs")
    log = root / FOLDER / name(200)
    flip(log, 3000)
    damaged = log.read_bytes()
    chosen = options(broker_version="3.9.2")
    plan = make_plan(str(root), chosen)
    (change,) = part(plan, FOLDER).changes
    assert isinstance(change, CompleteSwap)
    assert (change.copied, plan.commit.order, plan.commit.fence) == ((200,), "P2", False)
    with there_and_back(root, plan, chosen):
        kept = root / FOLDER / f"krepair~{plan.plan_id}" / "keep" / name(200)
        assert (kept.read_bytes(), kept.stat().st_nlink) == (damaged, 1)


def test_a_directory_id_tells_that_the_broker_is_a_new_one(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs", damage_elsewhere=True)
    with pytest.raises(PersonDecidesError):
        make_plan(str(root), options())
    meta = root / "meta.properties"
    meta.write_text(meta.read_text() + "directory.id=AAAAAAAAAAAAAAAAAAAAzg\n")
    plan = make_plan(str(root), options())
    assert (plan.commit.order, plan.commit.fence) == ("P2", False)


def test_a_swap_of_krepair_s_own_that_was_interrupted_is_not_taken_for_a_broker_s(tmp_path: Path) -> None:
    root, chosen, plan = scene(tmp_path / "logs")
    with pytest.raises(SimulatedCrash):
        apply(plan, chosen, disk=StoppingDisk(UnsyncedDisk(), 25, FILE_CHANGING))
    again = part(make_plan(str(root), chosen), FOLDER)
    assert (again.status, again.code) == ("left alone", "leftovers")
    assert f"of plan {plan.plan_id} is half done here" in again.why


@pytest.mark.parametrize(
    "odd", [b"\xff\xfe.deleted", b"a\nb.deleted", b"x.swap", b"100.log.swap", b"x.cleaned"]
)
def test_names_that_no_broker_makes_are_left_alone_and_named(tmp_path: Path, odd: bytes) -> None:
    root = txfixture.write_log_dir(tmp_path / "logs")
    with open(os.fsencode(root / FOLDER) + b"/" + odd, "wb") as file:
        file.write(b"?")
    plan = part(make_plan(str(root), options()), FOLDER)
    assert (plan.status, plan.code) == ("left alone", "leftovers")
    assert plan.why.isprintable()


def test_orphan_indexes_and_set_aside_files_go_and_come_back(tmp_path: Path) -> None:
    root = txfixture.write_log_dir(tmp_path / "logs")
    folder = root / FOLDER
    (folder / name(50, ".timeindex")).write_bytes(bytes(12))
    (folder / name(50, ".log.deleted")).write_bytes(b"old")
    (folder / "anything.deleted").write_bytes(b"old")
    (folder / name(500, ".log.cleaned")).write_bytes(b"half")
    before, chosen = tree(root), options()
    report = check([str(root)], chosen)
    assert str(report.next_command) == f"krepair plan {root} --fix leftovers --out PLAN"
    freed = next(one for one in report.log_dirs[0].findings if one.rule == "KR701")
    assert freed.bytes == 4 * (folder / "anything.deleted").stat().st_blocks * 512
    plan = make_plan(str(root), chosen)
    assert {
        change.size_after for change in part(plan, FOLDER).changes if isinstance(change, ReplaceFile)
    } == {-1}
    apply(plan, chosen)
    gone = {name(50, ".timeindex"), name(50, ".log.deleted"), "anything.deleted", name(500, ".log.cleaned")}
    assert not gone & files(root)
    assert make_plan(str(root), chosen).plan_id != plan.plan_id
    assert not any(each.changes for each in make_plan(str(root), chosen).partitions)
    assert undo(plan, chosen).exit_code == ExitCode.DONE
    assert before == tree(root)


GONE_ON = {
    "an index of another segment": (name(450, ".txnindex"), {name(450): data(450, 2).raw}, name(450)),
    "an index swap of another segment": (name(100, ".index.swap"), {name(100): data(100, 2).raw}, name(100)),
    "a snapshot of another log": (name(600, ".snapshot"), {name(700): data(700, 2).raw}, name(700)),
    "the end of a swap": (
        name(0, ".log.cleaned"),
        {name(100, ".log.swap"): b"all there is"},
        name(100, ".log.swap"),
    ),
}
"""What comes back, what a broker made since, and the file that tells."""


@pytest.mark.parametrize("how", ["undo", "by hand"])
@pytest.mark.parametrize("case", GONE_ON)
def test_what_was_removed_does_not_come_back_beside_another_log(tmp_path: Path, case: str, how: str) -> None:
    """A broker would use it for the log that is there: aborted records, hidden ones, a swap that it throws away."""
    left, came, telling = GONE_ON[case]
    root = txfixture.write_log_dir(tmp_path / "logs")
    folder, chosen = root / FOLDER, options(fixes=("leftovers", "snapshots"))
    (folder / left).write_bytes(b"old")
    with_log = {name(450, ".log.deleted")} if left == name(450, ".txnindex") else set()
    for file in with_log:
        (folder / file).write_bytes(b"")
    plan = make_plan(str(root), chosen)
    assert {change.files[0].name for change in part(plan, FOLDER).changes} == {left, *with_log}
    before = (folder / name(100)).read_bytes()
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    for file, content in came.items():
        (folder / file).write_bytes(content)
    (kept,) = kept_report(str(root), 0).plans
    assert kept.undo == "no"
    assert kept.why_not.startswith(f"{folder / telling}: ")
    if how == "by hand":
        next(folder.glob("krepair~*/journal")).write_bytes(b"")
    report = undo(plan, chosen)
    assert report.exit_code in {ExitCode.STALE_PLAN, ExitCode.REFUSED}
    assert any(f"{folder / telling}: " in one.why for one in report.results)
    assert report.by_hand == ()
    assert not (folder / left).exists()
    if how == "undo":
        for file in came:
            (folder / file).unlink()
        if name(100) in came:
            (folder / name(100)).write_bytes(before)
        assert undo(plan, chosen).exit_code == (ExitCode.STALE_PLAN if name(100) in came else ExitCode.DONE)


def test_a_partition_with_a_swap_is_planned_for_markers_once_it_is_completed(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "logs")
    compact = (*pending.SETTINGS, ("cleanup.policy", "compact"))
    chosen = options(settings=compact, fixes=("leftovers", "markers"), assume_high_watermark="log-end")
    first = make_plan(str(root), chosen)
    changes = part(first, FOLDER).changes
    assert [type(change) for change in changes] == [CompleteSwap]
    assert any("its markers are not changed (leftovers)" in note for note in part(first, FOLDER).notes)
    apply(first, chosen)
    second = part(make_plan(str(root), chosen), FOLDER)
    assert second.code == ""
    assert second.span is not None


@pytest.mark.parametrize("extension", [".index", ".timeindex"])
def test_where_the_journal_is_damaged_a_swap_of_which_an_index_is_gone_is_pending_again(
    tmp_path: Path, extension: str
) -> None:
    root, chosen, plan = scene(tmp_path / "logs")
    before = tree(root)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    (root / FOLDER / name(BASE, extension)).unlink()
    for journal in root.rglob("journal"):
        journal.write_bytes(b"")
    end_by_hand(plan, chosen)
    assert before == tree(root)


# -- A file that an interrupted cleaning left hides nothing: neither from ``check``, nor from a plan that mends
# beside it.

# A start deletes a ``.cleaned`` and reads all other files as they are. A ``.swap`` becomes a segment first.
NOW_MS = 1_795_261_500_763  # an hour after the newest record of the padded indexes
EPOCHS, PADDED = "leader-epochs-2.2.1-corrupt", "timeindex-padded-2.2.1"
FOLDERS = {EPOCHS: "e-all-0", PADDED: "f-t-0"}


def options_of(*fixes: str, version: str = "") -> Options:
    return Options(fixes=fixes, engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)


def left_in(tmp_path: Path, fixture: str, left: str) -> Path:
    """A real directory, with what a broker left in a partition of it; a swap is a copy of the last but one segment."""
    log_dir = unpack(fixture, tmp_path)
    folder = log_dir / FOLDERS[fixture]
    if left == "swap":
        log = sorted(folder.glob("*.log"))[-2]
        shutil.copy2(log, f"{log}.swap")
    elif left:
        (folder / f"{log_name(240)}.{left}").write_bytes(b"")
    return log_dir


def checked(log_dir: Path, version: str = "", **more: Any) -> LogDirReport:
    (report,) = check([str(log_dir)], replace(options_of(version=version), **more)).log_dirs
    return report


def expected(report: LogDirReport, folder: str) -> str:
    return next(line.expected for line in report.forecast if line.partition == folder)


@pytest.mark.parametrize("left", ["", "deleted", "cleaned", "swap"])
@pytest.mark.parametrize(
    ("fixture", "rule", "start"),
    [(EPOCHS, "KR401", "refuse"), (PADDED, "KR802", "delete"), (PADDED, "KR501", "")],
    ids=["epochs", "retention", "snapshot"],
)
def test_what_is_wrong_is_told_beside_what_was_left(
    tmp_path: Path, fixture: str, rule: str, start: str, left: str
) -> None:
    log_dir, folder = left_in(tmp_path, fixture, left), FOLDERS[fixture]
    if rule == "KR501":
        spoil(log_dir / folder, "snapshots")
    retention = {"settings": (("cleanup.policy", "delete"),)} if rule == "KR802" else {}
    report = checked(log_dir, "3.9.2" if rule == "KR802" else "", **retention)
    (told,) = (one for one in report.findings if (one.partition, one.rule) == (folder, rule))
    assert start in ("", expected(report, folder))
    assert told.file == log_name(0) or rule != "KR802"
    if rule == "KR401":
        assert "KR803" in {one.rule for one in report.findings if one.partition == folder}
        assert "--fix epochs " in str(told.command)


def test_epochs_with_a_negative_number_are_told_beside_a_swap(tmp_path: Path) -> None:
    log_dir = left_in(tmp_path, EPOCHS, "swap")
    (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n-3 0\n")
    report = checked(log_dir, "3.9.2")
    assert {"KR402", "KR803"} <= {one.rule for one in report.findings if one.partition == "e-all-0"}
    assert expected(report, "e-all-0") == "refuse"


def test_sound_epochs_beside_a_swap_are_no_finding(tmp_path: Path) -> None:
    """A swap may hold batches that no segment has: what the segments do not show is no contradiction."""
    log_dir = left_in(tmp_path, EPOCHS, "swap")
    (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 999\n")
    told = {one.rule for one in checked(log_dir).findings if one.partition == "e-all-0"}
    assert not told & {"KR401", "KR402", "KR803"}


def test_of_segments_behind_a_swap_no_deletion_is_told(tmp_path: Path) -> None:
    log_dir = left_in(tmp_path, PADDED, "")
    shutil.copy2(log_dir / "f-t-0" / log_name(0), log_dir / "f-t-0" / f"{log_name(0)}.swap")
    assert "KR802" not in {one.rule for one in checked(log_dir, "3.9.2").findings}


# -- plans


def spoil(folder: Path, fix: str) -> None:
    """Something that a fix mends; the indexes are padded, and the epochs damaged, in what was unpacked."""
    if fix == "snapshots":
        (folder / segment_name(1000, ".snapshot")).write_bytes(b"\xa5" * 40)
    elif fix == "tail":
        with open(folder / log_name(960), "ab") as log:
            log.write(b"\xa5" * 30)


CASES = [(EPOCHS, "epochs"), (PADDED, "index"), (PADDED, "snapshots"), (PADDED, "tail")]
WORDS = {"epochs": "leader epochs", "index": "indexes", "snapshots": "producer snapshots", "tail": "logs"}
cases = pytest.mark.parametrize(("fixture", "fix"), CASES, ids=lambda value: value)


def planned(log_dir: Path, fixture: str, *fixes: str) -> tuple[Plan, PartitionPlan]:
    plan = make_plan(str(log_dir), options_of(*fixes))
    return plan, next(one for one in plan.partitions if one.folder == FOLDERS[fixture])


@pytest.mark.parametrize(("fixture", "fix"), CASES[1:], ids=lambda value: value)
def test_what_a_fix_would_mend_beside_a_swap_is_left_alone_and_named(
    tmp_path: Path, fixture: str, fix: str
) -> None:
    log_dir = left_in(tmp_path, fixture, "swap")
    spoil(log_dir / FOLDERS[fixture], fix)
    plan, part = planned(log_dir, fixture, fix)
    assert (part.status, part.code, part.changes) == ("left alone", "leftovers", ())
    first = f"one plan cannot repair both: first --fix leftovers, then plan its {WORDS[fix]} again"
    assert part.why.endswith(f".log.swap: a broker left it, and {first}")
    assert str(part.next_command) == "krepair plan LOGDIR --fix leftovers --out PLAN"
    assert not any("not changed" in note for note in part.notes)
    assert plan.exit_code == ExitCode.FOUND
    assert str(not_mended(plan).commands[0]).startswith(f"krepair plan {log_dir} --fix leftovers")


@pytest.mark.parametrize("others", [(), ("leftovers",)], ids=["alone", "with-leftovers"])
@pytest.mark.parametrize("negative", [False, True], ids=["unreadable", "negative"])
def test_beside_a_swap_epochs_that_stop_a_start_are_mended_from_their_own_lines(
    tmp_path: Path, others: tuple[str, ...], *, negative: bool
) -> None:
    log_dir = left_in(tmp_path, EPOCHS, "swap")
    if negative:
        (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n-3 0\n7 999\n")
    before = tree(log_dir / "e-all-0")
    plan, part = planned(log_dir, EPOCHS, *others, "epochs")
    assert "e-all-0/leader-epoch-checkpoint" in {change.change_id for change in part.changes}
    assert apply(plan, options_of()).exit_code == ExitCode.DONE
    assert verify_plan(plan, options_of()).exit_code == ExitCode.DONE
    assert "KR803" not in {one.rule for one in checked(log_dir).findings if one.partition == "e-all-0"}
    assert undo(plan, options_of()).exit_code == ExitCode.DONE
    assert tree(log_dir / "e-all-0") == before


@cases
@pytest.mark.parametrize("others", [(), ("leftovers",)], ids=["alone", "with-leftovers"])
def test_beside_a_half_cleaned_file_a_fix_mends_in_one_plan_and_undo_gives_all_back(
    tmp_path: Path, fixture: str, fix: str, others: tuple[str, ...]
) -> None:
    """A start deletes the file and reads all others as they are."""
    log_dir = left_in(tmp_path, fixture, "cleaned")
    spoil(log_dir / FOLDERS[fixture], fix)
    before = tree(log_dir / FOLDERS[fixture])
    plan, part = planned(log_dir, fixture, *others, fix)
    removed = f"{part.folder}/{log_name(240)}.cleaned"
    assert (removed in {change.change_id for change in part.changes}) is bool(others)
    assert len(part.changes) > len(others)
    assert not any("not changed" in note for note in part.notes)
    assert apply(plan, options_of()).exit_code == ExitCode.DONE
    assert not planned(log_dir, fixture, *others, fix)[1].changes
    assert undo(plan, options_of()).exit_code == ExitCode.DONE
    assert tree(log_dir / FOLDERS[fixture]) == before


@pytest.mark.parametrize("fix", ["epochs", "snapshots", "tail"])
@pytest.mark.parametrize("left", ["cleaned", "swap"])
def test_where_nothing_is_to_be_mended_beside_what_was_left_nothing_is_to_do(
    tmp_path: Path, fix: str, left: str
) -> None:
    _, part = planned(left_in(tmp_path, PADDED, left), PADDED, fix)
    assert (part.status, part.code) == ("nothing", "")


def cut_behind(root: Path, high_watermark: int, *, regrown: bool = False) -> Path:
    """A partition of 30 records whose last segment, from 20 on, is to be deleted."""
    made = LogDir(root)
    partition = made.partition("t")
    partition.segment(data(0, 10))
    partition.segment(data(10, 10), *([data(20, 10)] if regrown else []))
    root = made.write(clean_stop=False, high_watermarks={FOLDER: high_watermark})
    gone = LogDir(root.with_name("gone"))
    gone.partition("t").segment(data(20, 10))
    for path in (gone.write() / FOLDER).glob(f"{20:020d}.*"):
        shutil.copy(path, root / FOLDER / f"{path.name}.deleted")
    return root


def test_a_deleted_segment_that_may_be_the_only_copy_of_committed_records_stays(tmp_path: Path) -> None:
    root, chosen = cut_behind(tmp_path / "logs", 30), options()
    only = f"{20:020d}.log.deleted"
    assert removable(str(root)) == ()
    plan = make_plan(str(root), chosen)
    with there_and_back(root, plan, chosen):
        assert {one for one in files(root) if one.endswith(".deleted")} == {only}
    (report,) = check([str(root)], chosen).log_dirs
    (found,) = [one for one in report.findings if one.file == only]
    assert (found.fix, found.severity) == ("none", Severity.DATA_LOSS)
    assert "may hold the only copy of committed records" in found.evidence


@pytest.mark.parametrize(("high_watermark", "regrown"), [(20, False), (30, True)])
def test_a_deleted_segment_that_a_follower_cut_off_or_fetched_again_goes(
    high_watermark: int, regrown: bool, tmp_path: Path
) -> None:
    root, chosen = cut_behind(tmp_path / "logs", high_watermark, regrown=regrown), options()
    plan = make_plan(str(root), chosen)
    with there_and_back(root, plan, chosen):
        assert not [one for one in files(root) if one.endswith(".deleted")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("12.log", True),
        (f"{12:019d}.log", True),
        ("+3.old.log", True),
        (f"{3:020d}.old.log", False),
        ("-1.log", False),
    ],
)
def test_a_file_that_a_start_takes_for_a_log_by_its_number_is_told(
    tmp_path: Path, name: str, *, told: bool
) -> None:
    """Loaders of 2.2.1 and 3.9.2 began an empty segment at 12, and the log, which ended at 15, ended there."""
    directory = LogDir(tmp_path / "logs")
    one = directory.partition("t").segment(data(0, 3)).segment(data(3, 3)).segment(data(6, 9))
    log_dir = directory.write()
    (one.folder / name).write_bytes(b"kept")
    if name == "+3.old.log":
        (one.folder / f"{3:020d}.log").unlink()
    (report,) = check([str(log_dir)], Options(engine=EngineName.INLINE)).log_dirs
    found = [finding for finding in report.findings if finding.rule == "KR601"]
    assert [(finding.file, finding.fix, finding.severity) for finding in found] == [
        (name, "none", Severity.DATA_LOSS)
    ] * told


def finished_by_2(folder: Path) -> None:
    """As brokers up to 2.8 finish it: the swap is recovered, which writes its transaction index in place."""
    swap = folder / f"{name(BASE, '.txnindex')}.swap"
    entries = bytearray(swap.read_bytes())
    entries[-1] ^= 1
    with swap.open("r+b") as file:
        file.write(entries)
    for base in (100, 200, 300):
        for path in folder.glob(f"{base:020d}.*"):
            if path.suffix != ".swap":
                path.unlink()
    for path in folder.glob("*.swap"):
        path.rename(path.with_suffix(""))


@pytest.mark.slow
def test_a_swap_that_a_broker_finishes_after_its_undo_was_stopped_stays_and_is_no_damage(
    memory_dir: Path,
) -> None:
    """The undo had given the kept names back, so the broker wrote into what was kept."""
    finished = 0
    for stop in each_stop():
        root, chosen, plan = scene(memory_dir / str(stop.number))
        apply(plan, chosen, disk=UnsyncedDisk())
        with stop as disk:
            undo(plan, chosen, disk=disk)
        waits = {name(BASE), name(300), *(f"{name(BASE, one)}.swap" for one in EXTENSIONS)} <= files(root)
        kept = list(root.glob(f"{FOLDER}/krepair~*/keep/{name(BASE, '.txnindex')}.swap"))
        if not stop.happened or not waits or not kept:
            continue
        finished_by_2(root / FOLDER)
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        before = files(root)
        for _ in range(2):
            report = undo(plan, chosen, disk=UnsyncedDisk())
            assert report.exit_code == ExitCode.STALE_PLAN, (stop.number, report)
            assert "it was finished again, and stays" in report.results[0].why
            assert files(root) >= before - {name(200, ".snapshot"), name(300, ".snapshot")}
        assert purge(plan, chosen).exit_code == ExitCode.DONE
        finished += 1
    assert finished
