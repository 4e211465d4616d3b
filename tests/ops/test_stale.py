"""What came or changed after the plan was made: what goes on, and what makes the plan stale and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.commit.reports import ApplyReport
from krepair.engine.engine import Engine
from krepair.errors import ExitCode, RefusedError
from krepair.fixes import order
from krepair.fixes.logs import read_active_segments
from krepair.formats.producer_snapshot import ProducerEntry
from krepair.logdir.values import Partition
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan, RewriteSegments
from krepair.plan.planfile import seal
from krepair.plan.review import review
from tests import encoders
from tests.builders import NOW_MS, Batch, LogDir, commit, data, emptied
from tests.commit.scene import UnsyncedDisk
from tests.compaction.cases import OLD, rec
from tests.compaction.directories import Verbs, logs
from tests.compaction.directories import options as options_of_keys
from tests.durable.disks import RecordingDisk
from tests.flips import flip
from tests.ops import pending
from tests.ops.scene import FAR, TV2, Scene, outcomes, scene, tree
from tests.ops.written import padded

SWAP_BASE, SWAP_LAST = 100, 399


def served(root: Path) -> dict[str, object]:
    return {name: row for name, row in tree(root, private=False).items() if not name.endswith(".lock")}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (f"{SWAP_BASE + 1:020d}.log", True),
        (f"{SWAP_LAST:020d}.log", True),
        (f"{SWAP_LAST + 1:020d}.index", False),
        (f"{150:020d}.index.swap", True),
        (f"{0:020d}.log.swap", True),
        (f"{SWAP_BASE:020d}.log.cleaned", True),
        (f"{0:020d}.log.cleaned", True),
        (f"{SWAP_BASE + 1:020d}.log.cleaned", False),
        (f"{150:020d}.log.deleted", False),
        ("the swap is touched", True),
    ],
)
def test_swap_is_completed_only_among_the_files_that_the_plan_knows(
    memory_dir: Path, name: str, refused: bool
) -> None:
    root = pending.write(memory_dir / "logs")
    plan = make_plan(str(root), pending.options())
    if name == "the swap is touched":
        name = f"{SWAP_BASE:020d}.log.swap"
        os.utime(root / pending.FOLDER / name, ns=(5, 5))
    else:
        (root / pending.FOLDER / name).write_bytes(b"")
    before = served(root)
    report = apply(plan, pending.options(), disk=UnsyncedDisk())
    if refused:
        assert report.exit_code == ExitCode.STALE_PLAN
        assert any(name in result.why for result in report.results)
        assert served(root) == before
    else:
        assert report.exit_code == ExitCode.DONE


@pytest.mark.parametrize("state", [".swap", ".cleaned"])
def test_file_is_not_replaced_beside_a_swap_that_came_since(memory_dir: Path, state: str) -> None:
    root = padded(memory_dir / "logs", 3)
    options = Options(fixes=("index",), now_ms=1_700_000_000_000)
    plan = make_plan(str(root), options)
    (root / "t-0" / f"{10:020d}.log{state}").write_bytes(b"half")
    before = served(root)
    report = apply(plan, options, disk=UnsyncedDisk())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert served(root) == before


def test_fence_is_down_while_a_single_file_is_replaced(memory_dir: Path) -> None:
    """What such a change does to an active segment's files would else look like a broker's start."""
    one = scene(memory_dir, TV2)
    folder = next(part.folder for part in one.plan(merge=False).partitions if part.changes)
    (one.path / ".kafka_cleanshutdown").write_bytes(b"")
    checkpoint = one.path / folder / "leader-epoch-checkpoint"
    checkpoint.write_bytes(b"0\n7\n0 0\n")
    before = served(one.path)
    plan = one.plan(merge=False, fixes=("markers", "epochs"))
    kinds = {type(change).__name__ for part in plan.partitions for change in part.changes}
    assert kinds == {"RewriteSegments", "ReplaceFile"}
    for verb in (apply, undo):
        disk = RecordingDisk(UnsyncedDisk())
        assert verb(plan, one.options(), disk=disk).exit_code == ExitCode.DONE
        standing: set[str] = set()
        went_up = replaced = 0
        for call in disk.calls:
            if call.kind == "make_dir" and os.path.basename(call.path) == "fence":
                standing.add(call.path)
                went_up += 1
            if call.kind == "remove_dir":
                standing.discard(call.path)
            if call.kind == "rename" and call.target == str(checkpoint):
                replaced += 1
                assert not [place for place in standing if f"/{folder}/" in place]
        assert went_up
        assert replaced
        assert standing == set()
    assert served(one.path) == before


# -- Not a size and not a time, but the bytes say whether a change is done, and whether an original may come back.

EPOCHS = "leader-epoch-checkpoint"


def epochs_scene(root: Path) -> tuple[Scene, Path]:
    """A leader epoch checkpoint whose mended form has the same size: an offset in it is too low."""
    one = scene(root, "leader-epochs-2.2.1")
    file = one.path / "e-all-0" / EPOCHS
    lines = file.read_bytes().split(b"\n")
    last = lines[-2]
    lines[-2] = last[:-1] + (b"0" if last[-1:] != b"0" else b"1")
    file.write_bytes(b"\n".join(lines))
    return one, file


def test_a_file_that_was_only_touched_is_not_done_and_stale(memory_dir: Path) -> None:
    one, file = epochs_scene(memory_dir)
    plan = one.plan(fixes=("epochs",))
    (change,) = [change for part in plan.partitions for change in part.changes if EPOCHS in change.change_id]
    assert (change.size_before, change.size_after) == (file.stat().st_size,) * 2  # type: ignore[union-attr]
    os.utime(file)
    before = tree(one.path)
    report = apply(plan, one.options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert str(file) in " ".join(result.why for result in report.results)
    assert tree(one.path) == before
    assert str(report.next_command).startswith(f"krepair plan {one.path} --fix epochs ")
    undone = undo(plan, one.options())
    assert (undone.exit_code, outcomes(undone)[file.parent.name]) == (ExitCode.DONE, {"already"})


def test_another_file_of_the_same_size_is_not_done(memory_dir: Path) -> None:
    one, file = epochs_scene(memory_dir)
    plan = one.plan(fixes=("epochs",))
    file.write_bytes(b"x" * file.stat().st_size)
    assert apply(plan, one.options()).exit_code == ExitCode.STALE_PLAN


def test_after_a_purge_what_is_done_is_read_before_it_is_called_done(memory_dir: Path) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    assert purge(plan, one.options()).exit_code == ExitCode.DONE
    again = apply(plan, one.options())
    assert (again.exit_code, {word for words in outcomes(again).values() for word in words}) == (
        0,
        {"already"},
    )
    changed = next(part for part in plan.partitions if part.changes)
    log = one.path / changed.folder / f"{changed.changes[0].base_offset:020d}.log"  # type: ignore[union-attr]
    flip(log, log.stat().st_size // 2)
    assert apply(plan, one.options()).exit_code in {ExitCode.STALE_PLAN, ExitCode.PARTLY}


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("at", ["first byte", "leader epoch", "middle", "last byte"])
def test_a_kept_file_with_a_flipped_bit_is_named_and_not_put_back_and_the_other_partitions_are(
    memory_dir: Path, suffix: str, at: str
) -> None:
    one = scene(memory_dir, TV2)
    before = tree(one.path)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    kept = [path for path in sorted(one.path.glob(f"*/krepair~*/keep/*{suffix}")) if path.stat().st_size > 15]
    if not kept:
        pytest.skip(f"no {suffix} with entries was replaced")
    bad = kept[0]
    size = bad.stat().st_size
    flip(bad, {"first byte": 0, "leader epoch": 15, "middle": size // 2, "last byte": size - 1}[at])
    applied = tree(one.path)
    folder = bad.parents[2].name
    report = undo(plan, one.options())
    (result,) = [result for result in report.results if result.outcome == "failed"]
    assert (result.partition, result.exit_code) == (folder, ExitCode.VERIFY_FAILED)
    assert str(bad) in result.why
    assert report.exit_code == ExitCode.PARTLY
    now = tree(one.path)
    for name, row in now.items():
        if name.endswith("/journal"):
            continue  # it was written anew, with the same records
        if name.startswith(f"{folder}/"):
            assert row == applied[name]
        elif name != ".lock":
            assert row == before[name]


def test_a_bit_flipped_in_a_new_log_outside_of_its_crc_is_found_by_verify(memory_dir: Path) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, one.options()).problems == ()
    changed = next(part for part in plan.partitions if part.changes)
    log = one.path / changed.folder / f"{changed.changes[0].base_offset:020d}.log"  # type: ignore[union-attr]
    flip(log, 15)  # the last byte of the first batch's leader epoch
    (problem,) = verify_plan(plan, one.options()).problems
    assert "not those that were written" in problem.text


# -- A plan that has the batch that stays as the last one at a place where none begins is stale, and nothing
# changes.

EXPIRY = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


@pytest.mark.parametrize("moved", [-61, -5, 3, 40, 61])
def test_no_batch_begins_where_the_plan_has_the_last_one(moved: int, tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    markers = [commit(1 + number, pid=7, timestamp=OLD) for number in range(5)]
    partition.segment(data(0, [rec("a")], timestamp=OLD), *markers, mtime_ms=OLD)
    partition.segment(data(6, [rec("active")], timestamp=OLD))
    directory.write()
    given = options_of_keys(
        tmp_path,
        fixes=("markers",),
        settings_given=tuple((key, "1") for key in EXPIRY),
        only_replica=("*",),
    )
    verbs = Verbs(tmp_path / "logs", given)
    plan = verbs.plan()
    part = plan.partitions[0]
    (group,) = (change for change in part.changes if isinstance(change, RewriteSegments))
    source = replace(group.sources[0], last_position=group.sources[0].last_position + moved)
    other = replace(group, sources=(source,))
    changes = tuple(other if change is group else change for change in part.changes)
    wrong = seal(replace(plan, partitions=(replace(part, changes=changes),)))
    assert not review(wrong)
    before = logs(verbs.log_dir / "t-0")
    report = verbs.apply(wrong)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"t-0/{0:020d}.log" in report.results[0].why
    assert logs(verbs.log_dir / "t-0") == before
    assert verbs.apply(plan).exit_code is ExitCode.DONE


# -- A broker ran, for a while, between plan and apply: what it appended makes a plan stale only where it matters.

MONTH_MS = 30 * 24 * 60 * 60 * 1000
END = 60
ACTIVE = f"{40:020d}.log"
SETTINGS = (("cleanup.policy", "compact"), ("delete.retention.ms", "1000"))


@dataclass
class Stopped:
    """A stopped broker's directory: ``t-0`` is bloated, ``u-0`` is not and no plan touches it."""

    root: Path
    options: Options = field(
        default_factory=lambda: Options(
            settings=SETTINGS,
            topics=("t",),
            delete_horizon=FAR,
            now_ms=NOW_MS + MONTH_MS,
            engine=EngineName.INLINE,
        )
    )

    def plan(self) -> Plan:
        plan = make_plan(str(self.root), self.options)
        assert [len(one.changes) for one in plan.partitions] == [1]
        assert plan.commit.fence
        return plan

    def apply(self, plan: Plan) -> ApplyReport:
        return apply(plan, self.options)

    @property
    def folder(self) -> Path:
        return self.root / "t-0"

    def append(self, *batches: Batch, folder: str = "t-0") -> None:
        """A broker appends, and stops cleanly."""
        with (self.root / folder / ACTIVE).open("ab") as log:
            log.write(b"".join(batch.raw for batch in batches))
        self.high_watermark(folder, batches[-1].last_offset + 1)

    def high_watermark(self, folder: str, offset: int | None) -> None:
        path = self.root / "replication-offset-checkpoint"
        topic = folder[0]
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith(f"{topic} ")]
        lines += [] if offset is None else [f"{topic} 0 {offset}"]
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")

    def snapshot(self, offset: int, *entries: ProducerEntry) -> None:
        (self.folder / f"{offset:020d}.snapshot").write_bytes(encoders.encode_snapshot(entries))


@pytest.fixture
def stopped(memory_dir: Path) -> Stopped:
    made = LogDir(memory_dir / "logs")
    bloated = made.partition("t")
    for base in (0, 20):
        batches = [
            batch
            for number in range(10)
            for at in [base + 2 * number]
            for batch in (emptied(at, pid=at, timestamp=NOW_MS), commit(at + 1, pid=at))
        ]
        bloated.segment(*batches)
    bloated.segment(data(40, 20))
    other = made.partition("u")
    other.segment(data(0, 40)).segment(data(40, 20))
    return Stopped(made.write())


def outcome(report: ApplyReport) -> tuple[ExitCode, list[str]]:
    return report.exit_code, [f"{one.outcome} {one.why}".strip() for one in report.results]


def nothing(stopped: Stopped) -> None:
    pass


def more_data(stopped: Stopped) -> None:
    stopped.append(data(END, 5))


def more_data_of_another_partition(stopped: Stopped) -> None:
    stopped.append(data(END, 5), folder="u-0")


def more_data_of_both(stopped: Stopped) -> None:
    more_data(stopped)
    more_data_of_another_partition(stopped)


def a_transaction_that_began_and_goes_on(stopped: Stopped) -> None:
    stopped.append(data(END, 5, pid=77, txn=True))


def a_transaction_that_ended(stopped: Stopped) -> None:
    stopped.append(data(END, 5, pid=77, txn=True), commit(END + 5, pid=77))


def a_torn_tail(stopped: Stopped) -> None:
    stopped.append(data(END, 5))
    with (stopped.folder / ACTIVE).open("ab") as log:
        log.write(data(END + 5, 5).raw[:50])


def a_torn_tail_elsewhere(stopped: Stopped) -> None:
    with (stopped.root / "u-0" / ACTIVE).open("ab") as log:
        log.write(data(END, 5).raw[:50])


def a_kill(stopped: Stopped) -> None:
    """Without the marker active segments are recovered in any case: damage there is no matter of the fence."""
    more_data(stopped)
    damage_elsewhere(stopped)
    (stopped.root / ".kafka_cleanshutdown").unlink()


def a_high_watermark_that_fell_not_below_what_goes(stopped: Stopped) -> None:
    stopped.high_watermark("t-0", 45)


GOES = (
    nothing,
    more_data,
    more_data_of_another_partition,
    more_data_of_both,
    a_transaction_that_began_and_goes_on,
    a_transaction_that_ended,
    a_torn_tail,
    a_torn_tail_elsewhere,
    a_kill,
    a_high_watermark_that_fell_not_below_what_goes,
)


@pytest.mark.parametrize("with_digest", [True, False], ids=["plan of now", "plan of an older version"])
@pytest.mark.parametrize("happens", GOES)
def test_what_was_appended_to_active_segments_makes_no_plan_stale(
    stopped: Stopped, happens: Callable[[Stopped], None], with_digest: bool
) -> None:
    def damage_free(plan: Plan) -> Plan:
        return plan if with_digest else seal(replace(plan, commit=replace(plan.commit, looked_at=UNSET)))

    plan = damage_free(stopped.plan())
    happens(stopped)
    before = tree(stopped.root)
    active = (stopped.folder / ACTIVE).read_bytes()
    assert outcome(stopped.apply(plan)) == (ExitCode.DONE, ["committed"])
    assert verify_plan(plan, stopped.options).problems == ()
    assert (stopped.folder / ACTIVE).read_bytes() == active
    assert undo(plan, stopped.options).exit_code is ExitCode.DONE
    assert tree(stopped.root) == before


def damage_elsewhere(stopped: Stopped) -> None:
    """A whole batch behind a damaged one: a recovery would cut both."""
    bad = bytearray(data(END, 5).raw)
    bad[-1] ^= 1
    with (stopped.root / "u-0" / ACTIVE).open("ab") as log:
        log.write(bytes(bad) + data(END + 5, 5).raw)


def damage_in_its_own_active_segment(stopped: Stopped) -> None:
    bad = bytearray(data(END, 5).raw)
    bad[-1] ^= 1
    with (stopped.folder / ACTIVE).open("ab") as log:
        log.write(bytes(bad) + data(END + 5, 5).raw)


def damage_elsewhere_behind_a_fence_that_keeps_the_marker(stopped: Stopped) -> None:
    """Another plan is half done: it gives the clean-shutdown marker back, and then no start mends the damage."""
    damage_elsewhere(stopped)
    fence = stopped.root / "u-0" / "krepair~0f0f0f0f" / "fence"
    fence.mkdir(parents=True)
    (stopped.root / ".kafka_cleanshutdown").rename(fence / ".kafka_cleanshutdown")


def a_roll(stopped: Stopped) -> None:
    (stopped.folder / f"{END:020d}.log").write_bytes(data(END, 5).raw)


def another_file(stopped: Stopped) -> None:
    """A replica was fetched anew."""
    log = stopped.folder / ACTIVE
    new = log.with_suffix(".new")
    was = bytearray(log.read_bytes())
    was[15] ^= 1  # the leader epoch of its first batch, which no checksum covers
    new.write_bytes(bytes(was) + data(END, 5).raw)
    new.rename(log)


def a_cut(stopped: Stopped) -> None:
    os.truncate(stopped.folder / ACTIVE, 10)


def a_touch(stopped: Stopped) -> None:
    os.utime(stopped.folder / ACTIVE, ns=(7, 7))


def a_high_watermark_that_fell(stopped: Stopped) -> None:
    stopped.high_watermark("t-0", 25)


def a_high_watermark_that_went(stopped: Stopped) -> None:
    stopped.high_watermark("t-0", None)


def an_open_transaction_in_what_goes(stopped: Stopped) -> None:
    """The broker's own state says so: its newest snapshot."""
    more_data(stopped)
    entry = ProducerEntry(20, 0, 0, 20, 0, NOW_MS, -1, 20)
    stopped.snapshot(END + 5, entry)


def a_producer_that_came_back(stopped: Stopped) -> None:
    """Its last batch, emptied as it is, has to stay now."""
    more_data(stopped)
    stopped.snapshot(END + 5, ProducerEntry(20, 0, 0, 20, 0, NOW_MS + MONTH_MS, -1, -1))


def a_snapshot_that_contradicts_the_log(stopped: Stopped) -> None:
    stopped.append(data(END, 5, pid=20, timestamp=NOW_MS + MONTH_MS))
    stopped.snapshot(END + 5, ProducerEntry(20, 0, 0, 20, 0, NOW_MS + MONTH_MS, -1, -1))


REFUSED: dict[Callable[[Stopped], None], str] = {
    damage_elsewhere: f"u-0/{ACTIVE} is damaged, and was not when the plan was made",
    damage_elsewhere_behind_a_fence_that_keeps_the_marker: f"u-0/{ACTIVE} is damaged, and was not when",
    damage_in_its_own_active_segment: f"t-0/{ACTIVE} is damaged, and was not when the plan was made",
    a_roll: f"{END:020d}.log: was not there when the plan was made",
    another_file: f"{ACTIVE}: changed since the plan was made",
    a_cut: f"{ACTIVE}: changed since the plan was made",
    a_touch: f"{ACTIVE}: changed since the plan was made",
    a_high_watermark_that_fell: "a transaction since offset 24 ends at or above the high watermark 25",
    a_high_watermark_that_went: "its high watermark is no longer recorded; the plan has 60",
    an_open_transaction_in_what_goes: "may no longer be compacted: producer 20 has a transaction open since",
    a_producer_that_came_back: "what stays was decided again, and is not what the plan has",
    a_snapshot_that_contradicts_the_log: "the newest producer snapshot says",
}


@pytest.mark.parametrize("happens", REFUSED)
def test_what_changes_a_choice_makes_the_plan_stale_and_changes_nothing(
    stopped: Stopped, happens: Callable[[Stopped], None]
) -> None:
    plan = stopped.plan()
    happens(stopped)
    before = tree(stopped.root)
    code, told = outcome(stopped.apply(plan))
    assert code is ExitCode.STALE_PLAN
    assert len(told) == 1
    assert REFUSED[happens] in told[0]
    assert tree(stopped.root) == before


def test_active_segments_are_read_again_only_where_one_is_another(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stopped.plan()
    read: list[int] = []

    def reading(view: Any, engine: Engine, partitions: Sequence[Partition], analyses: Any) -> object:
        read.append(len(partitions))
        return read_active_segments(view, engine, partitions, analyses)

    monkeypatch.setattr(order, "read_active_segments", reading)
    stopped.apply(plan)
    undo(plan, stopped.options)
    assert read == []
    more_data_of_another_partition(stopped)
    stopped.apply(plan)
    assert read == [2]


def test_a_plan_without_the_fence_goes_on_when_the_damage_has_gone(stopped: Stopped) -> None:
    damage_elsewhere(stopped)
    plan = make_plan(str(stopped.root), replace_version(stopped.options))
    assert not plan.commit.fence
    os.truncate(stopped.root / "u-0" / ACTIVE, len(data(40, 20).raw))
    assert outcome(stopped.apply(plan)) == (ExitCode.DONE, ["committed"])


def replace_version(options: Options) -> Options:
    return Options(
        settings=options.settings,
        topics=options.topics,
        delete_horizon=options.delete_horizon,
        now_ms=options.now_ms,
        engine=options.engine,
        broker_version="3.9.2",
    )


def test_no_plan_goes_without_the_fence_where_nothing_tells_of_a_version(stopped: Stopped) -> None:
    """Its order of renames would be a guess: a directory of 3.7 or later tells of one, and a person may."""
    plan = stopped.plan()
    unfenced = replace(plan, commit=replace(plan.commit, order="P2", fence=False))
    before = tree(stopped.root)
    with pytest.raises(RefusedError, match=r"goes without the recovery guard.*--broker-version"):
        stopped.apply(seal(unfenced))
    assert tree(stopped.root) == before
    meta = stopped.root / "meta.properties"
    meta.write_text("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAzg\n")
    now = replace(unfenced, cluster_id="", broker_id="")
    assert stopped.apply(seal(now)).exit_code == ExitCode.DONE
