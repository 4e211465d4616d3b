"""A copy of a log directory beside its original: 4 for both until ``--at`` names one, and only that one changes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError, PersonDecidesError, StalePlanError
from krepair.ops.apply import apply
from krepair.ops.by_id import purge_by_id, undo_by_id
from krepair.ops.kept import kept_report
from krepair.ops.purge import purge
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.model import Plan
from tests.durable.disks import FILE_CHANGING, FailingDisk, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.full_disks import file_system
from tests.ops.test_keep_copies import Site, elsewhere
from tests.ops.test_resume import stops
from tools.torture.scenes import Tree, build, differences, look, private, visible

__all__ = ["elsewhere"]

VERBS: dict[str, Callable[..., ApplyReport]] = {"apply": apply, "undo": undo, "purge": purge}
SCENES = ("markers", "everything", "leftovers")


def seen(path: Path) -> Tree:
    return visible(look(path))


def cloned(path: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", str(path), str(to)], check=True)
    return to


class Pair:
    """An original in which a plan was applied, or half applied, and a copy of it beside it or anywhere."""

    def __init__(self, root: Path, to: Path, name: str = "markers", stop: int = 0) -> None:
        self.scene = build(name)
        root.mkdir()
        placed = self.scene.place(root)
        self.original, self.plan = placed.path, placed.plan
        self.before = seen(self.original)
        if stop:
            with pytest.raises(SimulatedCrash):
                apply(self.plan, self.scene.options, disk=StoppingDisk(RealDisk(), stop))
        else:
            assert apply(self.plan, self.scene.options).exit_code == ExitCode.DONE
        self.after = seen(self.original)
        self.clone = cloned(self.original, to)

    def run(self, verb: str, at: Path | None = None) -> ApplyReport:
        return VERBS[verb](self.plan, self.options(at))

    def by_id(self, verb: str, path: Path, at: Path | None = None) -> ApplyReport:
        do = {"undo": undo_by_id, "purge": purge_by_id}[verb]
        return do(str(path), self.plan.plan_id, self.options(at))

    def options(self, at: Path | None):  # type: ignore[no-untyped-def]
        return replace(self.scene.options, at="" if at is None else str(at))


@pytest.fixture
def pair(memory_dir: Path) -> Pair:
    return Pair(memory_dir / "a", memory_dir / "a" / "copy")


def test_every_verb_ends_with_4_in_both_and_changes_nothing(pair: Pair) -> None:
    trees = look(pair.original), look(pair.clone)
    tries: list[Callable[[], object]] = [lambda verb=verb: pair.run(verb) for verb in VERBS]  # type: ignore[misc]
    tries += [lambda: verify_plan(pair.plan, pair.scene.options)]
    for path in (pair.original, pair.clone):
        tries += [lambda verb=verb, path=path: pair.by_id(verb, path) for verb in ("undo", "purge")]  # type: ignore[misc]
    for do in tries:
        with pytest.raises(PersonDecidesError) as caught:
            do()
        assert "--at" in caught.value.message
        assert f"--at {pair.original}" in caught.value.next_command or (
            f"--at {pair.clone}" in caught.value.next_command
        )
    assert (look(pair.original), look(pair.clone)) == trees


@pytest.mark.parametrize("by_id", [False, True], ids=["plan", "id"])
@pytest.mark.parametrize("which", ["original", "clone"])
@pytest.mark.parametrize("verb", ["undo", "purge"])
@pytest.mark.parametrize("name", SCENES)
def test_the_one_that_is_named_changes_and_the_other_does_not(
    memory_dir: Path, name: str, verb: str, which: str, *, by_id: bool
) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "a" / "copy", name)
    mine, other = (pair.original, pair.clone) if which == "original" else (pair.clone, pair.original)
    untouched = look(other)
    report = pair.by_id(verb, mine, mine) if by_id else pair.run(verb, mine)
    assert report.exit_code == ExitCode.DONE, report.results
    assert report.log_dir == str(mine)
    assert differences(seen(mine), pair.before if verb == "undo" else pair.after) == ""
    assert private(look(mine)) == []
    assert look(other) == untouched
    # The other one is alone now. At the plan's path it needs no name; anywhere else it still does.
    if which == "clone":
        assert pair.run("undo").exit_code == ExitCode.DONE
    else:
        with pytest.raises(PersonDecidesError):
            pair.by_id("undo", other)
        assert pair.run("undo", other).exit_code == ExitCode.DONE
    assert differences(seen(other), pair.before) == ""
    assert private(look(other)) == []


def test_verify_and_apply_go_on_in_the_one_that_is_named(pair: Pair) -> None:
    for path in (pair.original, pair.clone):
        assert verify_plan(pair.plan, pair.options(path)).problems == ()
        assert pair.run("apply", path).exit_code == ExitCode.DONE


@pytest.mark.parametrize("stop", [3, 12, 30, 45])
def test_a_clone_made_while_half_applied_is_finished_or_taken_back_by_itself(
    memory_dir: Path, stop: int
) -> None:
    for number, verb in enumerate(("apply", "undo")):
        root = memory_dir / str(number)
        pair = Pair(root, root / "copy", stop=stop)
        if not list(pair.clone.rglob("journal")):
            continue
        with pytest.raises(PersonDecidesError):
            pair.run(verb)
        untouched = look(pair.original)
        assert pair.run(verb, pair.clone).exit_code == ExitCode.DONE
        assert look(pair.original) == untouched
        for path in (path for path in (pair.clone, pair.original) if private(look(path))):
            assert pair.run("undo", path).exit_code == ExitCode.DONE
            assert differences(seen(path), pair.before) == ""
            assert private(look(path)) == []
        assert differences(seen(pair.clone), pair.before) == ""


def test_a_copy_without_the_plan_that_holds_a_journal_is_noticed_too(pair: Pair) -> None:
    for copy in pair.clone.rglob("krepair~*/plan"):
        copy.unlink()
    with pytest.raises(PersonDecidesError):
        pair.by_id("purge", pair.clone)
    untouched = look(pair.original)
    assert pair.by_id("purge", pair.clone, pair.clone).exit_code == ExitCode.DONE
    assert private(look(pair.clone)) == []
    assert look(pair.original) == untouched


def test_the_same_directory_under_another_name_is_no_clone(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "a" / "copy")
    shutil.rmtree(pair.clone)
    pair.clone.symlink_to(pair.original)
    assert pair.run("undo").exit_code == ExitCode.DONE


def test_the_list_of_a_directory_at_another_path_types_at(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "b")
    report = kept_report(str(pair.clone), pair.scene.options.now_ms)
    assert report.plans[0].made_for == str(pair.original)
    assert report.next_command.endswith(f"--plan-id {pair.plan.plan_id} --at {pair.clone}")


def test_at_another_path_a_directory_has_to_be_named_even_if_it_is_alone(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "b")
    shutil.rmtree(pair.original)
    with pytest.raises(PersonDecidesError, match="was begun in"):
        pair.by_id("undo", pair.clone)
    with pytest.raises(StalePlanError):
        pair.run("undo")
    assert pair.run("undo", pair.clone).exit_code == ExitCode.DONE
    assert differences(seen(pair.clone), pair.before) == ""


def test_another_name_than_the_given_directory_is_a_wrong_use(pair: Pair) -> None:
    with pytest.raises(KrepairError) as caught:
        pair.by_id("undo", pair.clone, pair.original)
    assert caught.value.exit_code == ExitCode.USAGE


# -- what is no copy


def test_another_log_directory_of_the_broker_is_refused_with_and_without_a_folder_of_the_plan(
    memory_dir: Path,
) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "b", "everything")
    other = pair.clone
    partitions = sorted({path.parent.parent for path in other.rglob("krepair~*/journal")})
    assert len(partitions) > 1
    (other / "only-here-0").mkdir()
    for path in other.rglob("krepair~*"):
        shutil.rmtree(path, ignore_errors=True)
    before = look(other)
    for verb in VERBS:
        with pytest.raises(StalePlanError, match="another directory"):
            pair.run(verb, other)
    assert look(other) == before
    # Folders of partitions were copied into it, with what the plan keeps in them.
    for path in partitions[:1]:
        shutil.rmtree(path)
        cloned(pair.original / path.name, path)
    for path in partitions[1:]:
        shutil.rmtree(path)
    before = look(other)
    for verb in VERBS:
        with pytest.raises(StalePlanError, match="is another log directory than"):
            pair.run(verb, other)
    assert look(other) == before


def test_another_log_directory_with_a_folder_of_the_plan_is_refused_where_the_original_is_not_there(
    memory_dir: Path,
) -> None:
    # Both have equal meta.properties, as before directory ids existed; what the plan names tells them apart.
    pair = Pair(memory_dir / "a", memory_dir / "b", "everything")
    other = pair.clone
    folders = sorted({path.parent.parent for path in other.rglob("krepair~*/journal")} - {other})
    for path in folders[1:]:
        shutil.rmtree(path)
    (other / "only-here-0").mkdir()
    shutil.rmtree(pair.original)
    before = look(other)
    for verb in VERBS:
        with pytest.raises(StalePlanError, match="is another log directory than the plan's"):
            pair.run(verb, other)
    assert look(other) == before


def test_the_byte_equal_replica_of_another_broker_is_refused(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "b")
    meta = pair.clone / "meta.properties"
    assert meta.exists()
    text = meta.read_text()
    for key, value in (("broker.id", "9"), ("cluster.id", "another-cluster-000000")):
        assert key in text
        lines = [f"{key}={value}" if key in line else line for line in text.splitlines()]
        meta.write_text("\n".join(lines) + "\n")
        before = look(pair.clone)
        for verb in VERBS:
            with pytest.raises(StalePlanError, match=key.replace(".", r"\.")):
                pair.run(verb, pair.clone)
        assert look(pair.clone) == before
    meta.unlink()
    with pytest.raises(StalePlanError, match="not there"):
        pair.run("undo", pair.clone)


def test_a_snapshot_of_partition_folders_only_is_no_log_directory(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "b")
    for path in list(pair.clone.iterdir()):
        if path.is_file():
            path.unlink()
    before = look(pair.clone)
    for verb in VERBS:
        with pytest.raises(StalePlanError):
            pair.run(verb, pair.clone)
    assert look(pair.clone) == before


# -- directory ids


def with_directory_id(path: Path, directory_id: str) -> None:
    meta = path / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if "directory.id" not in line]
    meta.write_text("\n".join([*lines, f"directory.id={directory_id}"]) + "\n")


@pytest.mark.parametrize("verb", ["apply", "undo", "purge", "verify"])
def test_a_copy_with_another_directory_id_is_refused(memory_dir: Path, verb: str) -> None:
    scene = build("markers")
    (memory_dir / "a").mkdir()
    placed = scene.place(memory_dir / "a")
    with_directory_id(placed.path, "AAAAAAAAAAAAAAAAAAAAAA")
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    clone = cloned(placed.path, memory_dir / "b")
    shutil.rmtree(placed.path)
    clone.rename(placed.path)  # the same path, other inodes
    with_directory_id(placed.path, "BBBBBBBBBBBBBBBBBBBBBB")
    before = look(placed.path)
    with pytest.raises(StalePlanError, match=r"directory\.id is BBBBBBBBBBBBBBBBBBBBBB"):
        verify_plan(placed.plan, scene.options) if verb == "verify" else VERBS[verb](
            placed.plan, scene.options
        )
    assert look(placed.path) == before
    with_directory_id(placed.path, "AAAAAAAAAAAAAAAAAAAAAA")
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE


# -- copies of originals, which both need


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def copies_of(folder: Path) -> set[str]:
    return {name for name in files_of(folder) if name.endswith((".log", "index"))}


class Kept(Site):
    """As ``Site``, with a copy of the directory."""

    def __init__(self, memory_dir: Path, elsewhere: Path, name: str = "markers") -> None:
        super().__init__(name, memory_dir / "a", elsewhere)
        assert self.run("apply") == ExitCode.DONE, self.why
        self.after = self.seen()
        self.elsewhere = elsewhere
        self.clone = cloned(self.path, memory_dir / "a" / "copy")

    def at(self, verb: str, path: Path) -> ApplyReport:
        return VERBS[verb](self.plan, replace(self.options, at=str(path)))


@pytest.mark.parametrize("first", ["undo", "purge"])
@pytest.mark.parametrize("which", ["original", "clone"])
@pytest.mark.parametrize("name", ["markers", "partitions"])
def test_copies_of_originals_stay_while_another_directory_needs_them(
    memory_dir: Path, elsewhere: Path, name: str, which: str, first: str
) -> None:
    site = Kept(memory_dir, elsewhere, name)
    mine, other = (site.path, site.clone) if which == "original" else (site.clone, site.path)
    kept = copies_of(elsewhere)
    assert kept
    report = site.at(first, mine)
    assert report.exit_code == ExitCode.DONE, report.results
    assert any("stay" in note and str(other) in note for note in report.notes), report.notes
    assert copies_of(elsewhere) == kept
    assert private(look(mine)) == []
    report = site.at("undo", other)
    assert report.exit_code == ExitCode.DONE, report.results
    assert differences(seen(other), site.before) == ""
    assert not any("stay" in note for note in report.notes)
    assert list(elsewhere.iterdir()) == []


def test_copies_stay_while_a_directory_that_uses_them_is_not_mounted(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Kept(memory_dir, elsewhere)
    kept = copies_of(elsewhere)
    away = memory_dir / "away"
    away.mkdir()
    hidden = away / "hidden"
    site.path.rename(hidden)  # its file system is not mounted: nothing is at its path
    report = site.at("purge", site.clone)
    assert report.exit_code == ExitCode.DONE, report.results
    assert any("is not there now" in note for note in report.notes), report.notes
    assert copies_of(elsewhere) == kept
    hidden.rename(site.path)
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
    assert list(elsewhere.iterdir()) == []


def test_a_disk_that_was_replaced_takes_the_place_of_the_old_one(memory_dir: Path, elsewhere: Path) -> None:
    site = Kept(memory_dir, elsewhere)
    shutil.rmtree(site.path)
    site.clone.rename(site.path)
    assert site.run("purge") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.after) == ""
    assert list(elsewhere.iterdir()) == []


def test_a_directory_on_another_host_keeps_the_copies(
    memory_dir: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Kept(memory_dir, elsewhere)
    shutil.rmtree(site.path)
    site.clone.rename(site.path)
    kept = copies_of(elsewhere)
    monkeypatch.setattr("socket.gethostname", lambda: "another-host")
    report = VERBS["purge"](site.plan, site.options)
    assert report.exit_code == ExitCode.DONE, report.results
    assert any("on host" in note for note in report.notes), report.notes
    assert copies_of(elsewhere) == kept


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["undo", "purge"])
def test_stopped_at_any_call_in_a_clone_the_original_is_still_taken_back(
    memory_dir: Path, elsewhere: Path, verb: str
) -> None:
    site = Kept(memory_dir / "whole", elsewhere) if (memory_dir / "whole").mkdir() is None else None
    assert site is not None
    recording = RecordingDisk(RealDisk())
    VERBS[verb](site.plan, replace(site.options, at=str(site.clone)), disk=recording)
    calls = sum(call.kind in FILE_CHANGING for call in recording.calls)
    for stop in stops(calls, int(os.environ.get("KREPAIR_MOVED", "8"))):
        shutil.rmtree(memory_dir / "try", ignore_errors=True)
        (memory_dir / "try").mkdir()
        for left in elsewhere.iterdir():
            shutil.rmtree(left)
        site = Kept(memory_dir / "try", elsewhere)
        with pytest.raises(SimulatedCrash):
            VERBS[verb](
                site.plan, replace(site.options, at=str(site.clone)), disk=StoppingDisk(RealDisk(), stop)
            )
        report = site.at("undo", site.path)
        assert report.exit_code == ExitCode.DONE, (stop, report.results)
        assert differences(site.seen(), site.before) == "", stop
        # Where the clone has ended too far to be noticed, its journals are gone.
        if list(site.clone.rglob("journal")):
            report = site.at(verb, site.clone)
            assert report.exit_code == ExitCode.DONE, (stop, report.results)
        wanted = site.before if verb == "undo" else site.after
        assert differences(seen(site.clone), wanted) == "", stop


# -- another file system


def test_a_clone_on_another_file_system_that_is_mounted_is_noticed(tmp_path: Path) -> None:
    """The original is mounted elsewhere, and its copy at the path of the plan."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    scene = build("markers")
    with (
        file_system("ext4", tmp_path / "a", 64 << 20) as one,
        file_system("ext4", tmp_path / "b", 64 << 20) as two,
    ):
        placed = scene.place(one)
        plan: Plan = placed.plan
        before = seen(placed.path)
        assert apply(plan, scene.options).exit_code == ExitCode.DONE
        clone = cloned(placed.path, two / "logs")
        trees = look(placed.path), look(clone)
        with pytest.raises(PersonDecidesError) as caught:
            undo(plan, scene.options)
        assert str(clone) in caught.value.message
        assert (look(placed.path), look(clone)) == trees
        assert undo(plan, replace(scene.options, at=str(clone))).exit_code == ExitCode.DONE
        assert differences(seen(clone), before) == ""
        assert look(placed.path) == trees[0]
        assert undo(plan, scene.options).exit_code == ExitCode.DONE
        assert differences(seen(placed.path), before) == ""


def test_what_purge_by_id_left_is_ended_by_the_command_that_it_names(memory_dir: Path) -> None:
    pair = Pair(memory_dir / "a", memory_dir / "a" / "a copy")
    disk = FailingDisk(RealDisk(), 1, errno.EIO, kinds={"unlink"})
    options = pair.options(pair.clone)
    report = purge_by_id(str(pair.clone), pair.plan.plan_id, options, disk=disk)
    named = f"'{pair.clone}'"
    assert (report.exit_code, report.next_command) == (
        ExitCode.PARTLY,
        f"krepair purge {named} --plan-id {pair.plan.plan_id} --at {named}",
    )
    assert purge_by_id(str(pair.clone), pair.plan.plan_id, options).exit_code == ExitCode.DONE
