"""The copy of a plan that lies with what the plan keeps: one file with several names, and never trusted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import COPY_NAME
from krepair.commit.kept import PlanCopy, PlanKeeper, find_copy, load_copy, private_folders
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from krepair.formats.filenames import root_private_folder
from krepair.plan.model import Plan, RootPlan
from krepair.plan.planfile import dumps, kept_copy, seal
from tests.durable.disks import NAME_CHANGING, FailingDisk, RecordingDisk
from tests.ops.stops import each_stop
from tests.plan.plans import FOLDER, good_plan, partition

OTHER = "__consumer_offsets-4"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan that changes two partitions of a directory that is there."""
    for folder in (FOLDER, OTHER):
        (tmp_path / folder).mkdir()
    second = partition(partition=4, folder=OTHER)
    changes = tuple(replace(change, change_id=f"{OTHER}/0") for change in second.changes)
    plan = good_plan(partition(), replace(second, changes=changes))
    return seal(replace(plan, log_dir=str(tmp_path)))


def folders(plan: Plan, disk: object = None) -> list[PartitionFolder]:
    """The partition folders of the plan, with private sub-folders."""
    made = []
    for name in (FOLDER, OTHER):
        folder = PartitionFolder(disk or RealDisk(), plan.log_dir, name, plan.plan_id)  # type: ignore[arg-type]
        if not Path(folder.private).exists():
            Path(folder.private).mkdir()
        made.append(folder)
    return made


def copies(plan: Plan) -> list[Path]:
    return [Path(folder.private) / COPY_NAME for folder in folders(plan)]


def looked_up(plan: Plan, **limits: int) -> PlanCopy | None:
    private = [str(path.parent) for path in copies(plan)]
    return find_copy(Tree(plan.log_dir), plan.plan_id, private, **limits)


def found(plan: Plan, **limits: int) -> Plan:
    return load_copy(plan.log_dir, plan.plan_id, looked_up(plan, **limits))


def keep(plan: Plan, disk: object = None) -> None:
    keeper = PlanKeeper(disk or RealDisk(), plan)  # type: ignore[arg-type]
    for folder in folders(plan, disk):
        keeper.keep_in(folder)


def test_every_partition_names_the_same_file_and_the_plan_is_read_back(plan: Plan):
    keep(plan)
    assert [path.read_bytes() for path in copies(plan)] == [kept_copy(plan)] * 2
    assert len({path.stat().st_ino for path in copies(plan)}) == 1
    assert found(plan) == plan


def test_any_partition_may_be_purged_first_and_the_copy_stays_with_the_others(plan: Plan):
    for gone in (0, 1):
        keep(plan)
        copies(plan)[gone].unlink()
        assert found(plan) == plan


def test_a_copy_of_an_earlier_run_is_used_and_nothing_is_written_again(plan: Plan):
    keep(plan)
    disk = RecordingDisk(RealDisk())
    keep(plan, disk)
    assert disk.calls == []


def test_a_partition_that_has_none_gets_the_name_of_the_one_that_is_there(plan: Plan):
    keep(plan)
    copies(plan)[0].unlink()
    keep(plan)
    assert len({path.stat().st_ino for path in copies(plan)}) == 1


@pytest.mark.parametrize("damaged", [b"", b"{", b"x" * 7])
def test_a_torn_copy_is_replaced(plan: Plan, damaged: bytes):
    copies(plan)[0].write_bytes(damaged)
    keep(plan)
    assert [path.read_bytes() for path in copies(plan)] == [kept_copy(plan)] * 2


def test_where_no_link_can_be_made_each_partition_has_a_file_of_its_own(plan: Plan):
    keep(plan, FailingDisk(RealDisk(), 1, errno.EMLINK, kinds={"link"}))
    assert len({path.stat().st_ino for path in copies(plan)}) == 2
    assert found(plan) == plan


def test_a_full_disk_is_an_error_and_leaves_no_copy_that_is_not_whole(plan: Plan):
    with pytest.raises(OSError, match="No space"):
        keep(plan, FailingDisk(RealDisk(), 1, errno.ENOSPC, kinds={"create"}))
    assert not any(path.exists() for path in copies(plan))


def test_a_link_in_the_place_of_the_copy_is_refused_and_never_written_through(plan: Plan, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    copies(plan)[1].symlink_to(victim)
    with pytest.raises(RefusedError, match="no regular file"):
        keep(plan)
    assert victim.read_text() == "precious"


def test_after_a_crash_at_any_call_the_copy_is_whole_or_not_there_and_the_next_run_makes_it(plan: Plan):
    for stop in each_stop(inner=RealDisk, kinds=NAME_CHANGING | {"sync_dir"}):
        for path in copies(plan):
            for name in (path, path.with_name("plan.new")):
                name.unlink(missing_ok=True)
        with stop as disk:
            keep(plan, disk)
        if stop.happened:
            assert all(path.read_bytes() == kept_copy(plan) for path in copies(plan) if path.exists())
        keep(plan)
        assert found(plan) == plan
        assert {name for folder in folders(plan) for name in os.listdir(folder.private)} == {COPY_NAME}
    # create or link, rename, sync; for each of two partitions; and the run that came to its end
    assert stop.number == 7


def resealed(plan: Plan, **fields: object) -> bytes:
    return dumps(seal(replace(plan, **fields)))


BAD: list[tuple[str, Callable[[Plan], bytes], str]] = [
    ("empty", lambda plan: b"", "empty, not a plan"),
    ("cut", lambda plan: kept_copy(plan)[:-40], "cut off"),
    ("flipped", lambda plan: kept_copy(plan).replace(b'"broker-1"', b'"broker-2"'), "the plan was edited"),
    (
        "another version",
        lambda plan: kept_copy(plan).replace(b'"format_version": "', b'"format_version": "9'),
        "reads 2.x",
    ),
    ("another id", lambda plan: resealed(plan, tool_version="other"), "was expected"),
]


@pytest.mark.parametrize(("data", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_copy_that_is_not_as_it_was_written_is_refused_with_its_path(
    plan: Plan, data: Callable[[Plan], bytes], words: str
):
    copies(plan)[0].write_bytes(data(plan))
    with pytest.raises(RefusedError, match=words) as refused:
        found(plan)
    assert str(copies(plan)[0]) in refused.value.message
    assert "undo needs the plan file" in refused.value.message


def test_one_good_copy_is_enough_beside_damaged_ones(plan: Plan):
    copies(plan)[0].write_bytes(b"damaged")
    copies(plan)[1].write_bytes(kept_copy(plan))
    assert found(plan) == plan


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_regular_file_is_never_opened(plan: Plan, tmp_path: Path, kind: str):
    path = copies(plan)[0]
    (tmp_path / "elsewhere").write_bytes(kept_copy(plan))
    match kind:
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(RefusedError, match="is no regular file"):
        found(plan)


def test_a_private_folder_that_is_a_link_is_not_followed(plan: Plan, tmp_path: Path):
    keep(plan)
    private = copies(plan)[0].parent
    private.rename(tmp_path / "moved")
    private.symlink_to(tmp_path / "moved")
    copies(plan)[1].unlink()
    with pytest.raises(RefusedError, match="could not be read"):
        found(plan)


def test_a_larger_file_than_any_plan_is_refused_unread(plan: Plan):
    with copies(plan)[0].open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(RefusedError, match="a plan has at most"):
        found(plan)


def test_a_missing_copy_is_told_apart(plan: Plan):
    with pytest.raises(RefusedError, match="no copy of plan"):
        found(plan)


def test_folders_of_a_plan_are_those_of_partitions_that_change_and_that_of_the_root(plan: Plan):
    unchanged = replace(partition(partition=5, folder="t-5"), changes=())
    more = replace(plan, partitions=(*plan.partitions, unchanged))
    own = [f"{plan.log_dir}/{name}/krepair~{plan.plan_id}" for name in (FOLDER, OTHER)]
    assert private_folders(more) == own
    root = RootPlan(keeper="t-5", files=(), changes=())
    of_root = f"{plan.log_dir}/t-5/{root_private_folder(plan.plan_id)}"
    assert private_folders(replace(more, root=root)) == [*own, of_root]


def test_a_file_as_large_as_the_limit_is_read_and_of_a_larger_one_only_its_place_is_told(plan: Plan):
    keep(plan)
    size = copies(plan)[0].stat().st_size
    assert found(plan, at_most=size) == plan
    assert looked_up(plan, at_most=size - 1) == (str(copies(plan)[0]), None, "")


def test_in_a_folder_that_is_not_durable_yet_the_copy_costs_no_sync_of_its_own(plan: Plan):
    disk = RecordingDisk(RealDisk())
    folder = PartitionFolder(disk, plan.log_dir, FOLDER, plan.plan_id)
    folder.make_private_folders()
    PlanKeeper(disk, plan).keep_in(folder)
    assert "sync_dir" not in disk.kinds()
    folder.sync_new()
    assert [call.path for call in disk.calls if call.kind == "sync_dir"][-2:] == [folder.private, folder.path]
