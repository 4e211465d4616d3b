"""A preview is made while a broker writes, rolls, compacts and deletes: it claims only what was there at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.cli.views.writers import markdown
from krepair.errors import LockedError, RefusedError, UsageError
from krepair.ops import plan as previews
from krepair.ops.diff import diff_plans
from krepair.ops.plan import make_preview, propose_changes
from krepair.ops.verify import verify_plan
from krepair.plan.model import PartitionPlan, Plan, Preview
from krepair.plan.planfile import dumps, loads
from krepair.plan.render import plan_view
from krepair.plan.short import PageContext
from tests.flips import flip
from tests.ops.scene import BLOAT, TV2, Scene, outcomes, part, scene, tree
from tests.pages import facts

FOLDER = "__consumer_offsets-0"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "PAUSE_S", 0.0)


def make(one: Scene, **changed: object) -> Plan:
    return make_preview(str(one.path), one.options(**changed))


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def decided(plan: PartitionPlan) -> Any:
    """What a plan decides, without files and figures of the moment."""
    return plan.status, plan.code, plan.span, plan.changes


# -- what the broker does while the partition is read


def append_part_of_a_batch(folder: Path) -> None:
    """A broker is writing: the last batch is not whole yet."""
    log = logs(folder)[-1]
    batch = logs(folder)[0].read_bytes()[:40]
    with log.open("ab") as file:
        file.write(batch)


def roll(folder: Path) -> None:
    last = int(logs(folder)[-1].stem)
    (folder / f"{last + 1_000_000:020d}.log").touch()


def delete_the_first(folder: Path) -> None:
    """Retention: renamed first."""
    first = logs(folder)[0]
    for path in folder.glob(f"{first.stem}.*"):
        path.rename(path.with_name(path.name + ".deleted"))


def compact_the_first(folder: Path) -> None:
    """A compacted segment takes the name: another inode."""
    first = logs(folder)[0]
    new = first.with_name(first.name + ".new")
    shutil.copy2(first, new)
    first.rename(first.with_name(first.name + ".deleted"))
    new.rename(first)


def cut_a_closed_one(folder: Path) -> None:
    """A follower truncates."""
    log = logs(folder)[2]
    os.truncate(log, log.stat().st_size // 2)


def begin_a_cleaning(folder: Path) -> None:
    (folder / f"{0:020d}.log.cleaned").write_bytes(b"half of it")


def end_a_cleaning(folder: Path) -> None:
    (folder / f"{0:020d}.log.cleaned").unlink(missing_ok=True)


def delete_the_folder(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}.0123456789abcdef0123456789abcdef-delete"))


def nothing(folder: Path) -> None:
    pass


class Busy:
    """Lets a broker do something right before, or right after, the logs are read; each time it is asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.before: list[Callable[[Path], None]] = []
        self.after: list[Callable[[Path], None]] = []
        self.readings = 0
        monkeypatch.setattr(previews, "propose_changes", self.look)

    def look(self, *given: Any) -> Any:
        self.readings += 1
        (self.before.pop(0) if self.before else nothing)(self.folder)
        found = propose_changes(*given)
        (self.after.pop(0) if self.after else nothing)(self.folder)
        return found


CHANGES = (delete_the_first, compact_the_first, cut_a_closed_one)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_partition_that_changes_once_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], when: str
) -> None:
    one = scene(tmp_path)
    busy = Busy(monkeypatch, one.path / FOLDER)
    getattr(busy, when).append(change)
    found = make(one)
    assert busy.readings > 1
    again = make(one)
    assert decided(part(found, FOLDER)) == decided(part(again, FOLDER))
    assert part(found, FOLDER).code != "changed"
    assert decided(part(found, "__consumer_offsets-1")) == decided(part(again, "__consumer_offsets-1"))


@pytest.mark.parametrize("fixes", [("markers",), ("index=regenerate",), ("index", "markers")])
@pytest.mark.parametrize("change", [append_part_of_a_batch, roll])
def test_what_a_broker_appends_or_begins_changes_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], fixes: tuple[str, ...]
) -> None:
    one = scene(tmp_path)
    quiet = make(one, fixes=fixes)
    busy = Busy(monkeypatch, one.path / FOLDER)
    busy.before, busy.after = [change], [change] if change is append_part_of_a_batch else []
    found = make(one, fixes=fixes)
    assert busy.readings == 1
    assert [decided(part(found, each.folder)) for each in quiet.partitions] == [
        decided(each) for each in quiet.partitions
    ]
    assert found.uncleanable_partitions == 0


def test_a_partition_that_never_holds_still_is_left_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene(tmp_path)
    busy = Busy(monkeypatch, one.path / FOLDER)
    busy.after = [compact_the_first] * 10
    found = make(one)
    left = part(found, FOLDER)
    assert (left.status, left.code, left.uncleanable_bytes, left.changes) == ("left alone", "changed", 0, ())
    assert "it changed while it was read: " in left.why
    assert "00000000000000000000.log" in left.why
    assert part(found, "__consumer_offsets-1").changes
    assert busy.readings == previews.TRIES


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_partition_that_is_deleted_meanwhile_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    one = scene(tmp_path)
    getattr(Busy(monkeypatch, one.path / FOLDER), when).append(delete_the_folder)
    found = make(one)
    left = part(found, FOLDER)
    assert (left.code, left.uncleanable_bytes) == ("changed", 0)
    assert "its folder is gone" in left.why
    assert found.uncleanable_partitions == 0
    assert part(found, "__consumer_offsets-1").changes


def test_a_cleaner_at_work_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene(tmp_path)
    quiet = make(one)
    begin_a_cleaning(one.path / FOLDER)
    busy = Busy(monkeypatch, one.path / FOLDER)
    busy.after = [nothing, end_a_cleaning]
    found = make(one)
    assert decided(part(found, FOLDER)) == decided(part(quiet, FOLDER))
    begin_a_cleaning(one.path / FOLDER)
    left = part(make(one), FOLDER)
    assert (left.code, left.uncleanable_bytes) == ("changed", 0)
    assert "cleaner is at work" in left.why


def test_files_that_wait_to_be_deleted_are_no_leftovers_beside_a_broker(tmp_path: Path) -> None:
    one = scene(tmp_path)
    delete_the_first(one.path / FOLDER)
    found = part(make(one), FOLDER)
    assert found.changes
    assert any(".deleted" in note and "--fix leftovers" in note for note in found.notes)
    assert part(one.plan(), FOLDER).code == "leftovers"


def test_damage_in_a_closed_segment_is_told_and_was_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene(tmp_path)
    log = logs(one.path / FOLDER)[1]
    flip(log)
    busy = Busy(monkeypatch, one.path / FOLDER)
    found = part(make(one), FOLDER)
    assert (found.code, found.why.partition(",")[0]) == ("damage", log.name)
    assert busy.readings == 2


# -- a preview is no plan


def test_a_preview_is_refused_by_apply_and_verify_with_the_next_command(tmp_path: Path) -> None:
    one = scene(tmp_path)
    before = tree(one.path)
    found = make(one)
    for verb in (one.apply, one.undo, lambda plan: verify_plan(plan, one.options())):
        with pytest.raises(RefusedError, match="is a preview") as refused:
            verb(found)
        again = str(refused.value.next_command)
        assert again.startswith(f"krepair plan {one.path} ")
        assert again.endswith(" --out PLAN")
        assert "--preview" not in again
    assert tree(one.path) == before


def test_a_preview_is_a_plan_file_that_says_what_it_is(tmp_path: Path) -> None:
    one = scene(tmp_path)
    found = make(one)
    assert loads(dumps(found), "it") == found
    assert isinstance(found.preview, Preview)
    assert "This is a preview: apply refuses it" in markdown(plan_view(found))
    page = plan_view(found, PageContext(path="P"))
    assert page.title.startswith("Preview ")
    assert facts(page.sections[0])["Preview"].startswith("apply refuses it")
    commands = [str(command) for section in page.sections for command in section.commands]
    assert commands[0] == "krepair diff P PLAN"
    assert not any(command.startswith("krepair apply P") and "PLAN" not in command for command in commands)
    # of a plan there is no such field
    assert "preview" not in msgspec.json.decode(dumps(one.plan()))


@pytest.mark.parametrize("fix", ["tail", "epochs", "snapshots", "checkpoints", "leftovers"])
def test_a_fix_that_needs_a_stopped_broker_is_refused(tmp_path: Path, fix: str) -> None:
    with pytest.raises(UsageError, match=rf"--preview with --fix {fix}"):
        make(scene(tmp_path), fixes=(fix,))


# -- the real plan


def test_the_real_plan_of_a_quiet_directory_decides_the_same_and_is_applied(tmp_path: Path) -> None:
    one = scene(tmp_path, TV2)
    found = make(one, topics=("__consumer_offsets",))
    plan = one.plan(topics=("__consumer_offsets",))
    diff = diff_plans(found, plan)
    assert plan.policy == found.policy
    assert diff.previews == ("first",)
    assert all(each.decisions_same for each in diff.partitions)
    assert set().union(*outcomes(one.apply(plan)).values()) == {"committed"}


def test_the_real_plan_names_the_partition_that_decides_otherwise(tmp_path: Path) -> None:
    one = scene(tmp_path)
    found = make(one)
    delete = logs(one.path / FOLDER)[0]
    for path in (one.path / FOLDER).glob(f"{delete.stem}.*"):
        path.unlink()
    diff = diff_plans(found, one.plan())
    assert [each.folder for each in diff.partitions if not each.decisions_same] == [FOLDER]


# -- another process writes

BROKER = textwrap.dedent(
    """
    import fcntl, os, random, shutil, struct, sys, time
    from pathlib import Path
    root = Path(sys.argv[1])
    lock = open(root / ".lock", "w")
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("up", flush=True)
    dice = random.Random(int(sys.argv[2]))
    ends = {}
    while os.path.exists(sys.argv[3]):
        folders = [one for one in root.iterdir() if one.name[-1].isdigit() and one.is_dir()]
        folder = dice.choice(folders)
        logs = sorted(folder.glob("*.log"))
        active = logs[-1]
        what = dice.random()
        if what < 0.6:
            data = logs[0].read_bytes()
            size = 12 + int.from_bytes(data[8:12], "big") if len(data) > 61 else 0
            first = ends.get(folder, int(active.stem) + 500_000)
            ends[folder] = first + (1 + int.from_bytes(data[23:27], "big") if size else 0)
            data = struct.pack(">q", first) + data[8:]  # no CRC covers it
            cut = dice.randrange(size + 1)
            for piece in (data[:cut], data[cut:size]):
                with open(active, "ab") as file:
                    file.write(piece)
        elif what < 0.75 and folder in ends:  # as a broker does, at the log end: no segment is missing before it
            (folder / f"{ends[folder]:020d}.log").touch()
        elif what < 0.85 and len(logs) > 4:
            for path in folder.glob(f"{logs[0].stem}.*"):
                path.rename(f"{path}.deleted")
        elif what < 0.95 and len(logs) > 4:
            chosen = dice.choice(logs[:-1])
            shutil.copy2(chosen, f"{chosen}.cleaned")
            os.rename(f"{chosen}.cleaned", f"{chosen}.swap")
            os.rename(chosen, f"{chosen}.deleted")
            os.rename(f"{chosen}.swap", chosen)
        elif len(folders) > 3:
            folder.rename(f"{folder}.{'0' * 32}-delete")
            shutil.rmtree(f"{folder}.{'0' * 32}-delete")
        for old in list(folder.glob("*.deleted"))[:2]:
            old.unlink()
        time.sleep(0.003)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_previews_beside_a_process_that_appends_rolls_compacts_and_deletes_claim_no_damage(
    tmp_path: Path, seed: int
) -> None:
    one = scene(tmp_path, BLOAT)
    for number in range(4):
        shutil.copytree(one.path / FOLDER, one.path / f"more-{number}")
    goes_on = tmp_path / "goes-on"
    goes_on.touch()
    argv = [sys.executable, "-c", BROKER, str(one.path), str(seed), str(goes_on)]
    made, end = 0, time.monotonic() + 6
    fixes = ("index=regenerate", "markers")
    settings = (*one.settings.items(), ("cleanup.policy", "compact"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "up\n"
        with pytest.raises(LockedError):
            one.plan()
        try:
            while made < 2 or time.monotonic() < end:
                found = make(one, fixes=fixes, settings=settings, assume_high_watermark="log-end")
                assert found.uncleanable_partitions == 0, [each.why for each in found.partitions]
                assert {each.code for each in found.partitions} <= {"", "changed"}
                made += 1
                time.sleep(0.05)
        finally:
            goes_on.unlink()  # else the wait for the process has no end
    assert broker.returncode == 0
