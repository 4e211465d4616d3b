"""Whether a plan fits: said when it is made, and by apply, with what to do instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from krepair.cli.main import app
from krepair.errors import ExitCode, RefusedError
from krepair.logdir.space import Space
from krepair.ops import apply as apply_module
from krepair.ops import fits_on_disk
from krepair.ops import way_out as way_out_module
from krepair.ops.apply import apply
from krepair.ops.need import Need, need_of_all, need_of_part
from krepair.ops.preview import make_preview
from krepair.ops.target import targets_of
from krepair.ops.way_out import way_out
from krepair.options import Engine, Options
from krepair.plan.diff import diff_plans
from krepair.plan.figures import on_top_of_all
from krepair.plan.model import Plan
from krepair.plan.planfile import read_plan
from tests.ops.scene import Scene, scene, tree

INLINE = Options(engine=Engine.INLINE)


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def space(free_bytes: int, free_inodes: int = -1) -> Space:
    return Space(free_bytes=free_bytes, free_inodes=free_inodes, block_bytes=4096, mounted_read_only=False)


def needs(plan: Plan) -> tuple[Need, list[Need]]:
    targets = targets_of(plan)
    return need_of_all(plan, targets), [need_of_part(plan, [target]) for target in targets]


def test_the_need_is_the_peak_that_the_plan_says(bloat: Scene) -> None:
    plan = bloat.plan()
    assert need_of_all(plan, targets_of(plan)).bytes == plan.peak_extra_bytes


def test_a_plan_that_fits_says_so_last(bloat: Scene) -> None:
    page = fits_on_disk.planned_view(bloat.plan(), "P")
    fits = page.sections[-1]
    assert fits.title == "It fits on the disk"
    for line in fits.lines:
        (figure,) = re.findall(r"[\d,]{6,} \(", line)
        assert line.count(figure[:-2]) == 1


def freeing_needs(bloat: Scene) -> tuple[Need, list[Need]]:
    """As ``needs``, of the plan that frees what it verified."""
    return needs(bloat.plan(keep="until-verified"))


def test_a_plan_that_fits_only_where_groups_make_room_for_the_next_ones_says_the_command(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bloat.plan()
    whole, freeing = needs(plan)[0], freeing_needs(bloat)[0]
    tight = space(freeing.bytes)
    assert tight.free_bytes < whole.bytes
    monkeypatch.setattr(fits_on_disk, "read_space", lambda *_, **__: tight)
    first = fits_on_disk.planned_view(plan, "P").sections[0]
    assert "does NOT fit" in first.title
    assert "with --keep until-verified it fits" in first.lines[-1].lower()
    (command,) = first.commands
    assert command.startswith(f"krepair plan {bloat.path} ")
    assert " --keep until-verified " in command


def test_a_plan_of_which_parts_fit_names_the_command_for_one(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bloat.plan()
    whole, parts = freeing_needs(bloat)
    assert len(parts) > 1
    tight = space(min(part.bytes for part in parts))
    assert tight.free_bytes < whole.bytes
    monkeypatch.setattr(fits_on_disk, "read_space", lambda *_, **__: tight)
    first = fits_on_disk.planned_view(plan, "P").sections[0]
    assert "does NOT fit" in first.title
    assert "one at a time" in first.lines[-1]
    (command,) = first.commands
    assert "--keep until-verified " in command
    assert " --partition __" in command


def test_a_plan_of_which_no_group_fits_says_how_many_bytes_are_missing_and_what_could_go(
    bloat: Scene,
) -> None:
    plan = bloat.plan()
    _, parts = freeing_needs(bloat)
    free = min(part.bytes for part in parts) - 10_000
    way = way_out(plan, targets_of(plan), space(free))
    assert "at least 10,000 (9.8 KiB) more bytes" in way.text
    assert "knows of nothing here that can go" in way.text
    assert way.command == f"krepair check {bloat.path}"
    (Path(bloat.path) / "__consumer_offsets-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 5000)
    left = way_out(plan, targets_of(plan), space(free))
    assert (
        "5,000 bytes (4.9 KiB) of files that brokers left behind, 1 in number (KR701; krepair plan"
        in left.text
    )
    assert left.command == f"krepair plan {bloat.path} --fix leftovers --keep until-verified --out PLAN"
    earlier = bloat.plan(partitions=(("__consumer_offsets", 1),))
    assert bloat.apply(earlier).exit_code == ExitCode.DONE
    way = way_out(plan, targets_of(plan), space(free))
    assert way.command == f"krepair purge {bloat.path} --plan-id {earlier.plan_id}"
    assert way.command in way.text


@pytest.mark.parametrize("user", [0, 4242])
def test_only_root_is_told_of_the_bytes_that_are_reserved_for_root(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    plan = bloat.plan()
    whole = freeing_needs(bloat)[0]
    monkeypatch.setattr(way_out_module.os, "geteuid", lambda: user)
    monkeypatch.setattr(way_out_module, "read_space", lambda *_, **__: space(whole.bytes))
    way = way_out(plan, targets_of(plan), space(0))
    assert ("--use-reserved" in way.text, " --use-reserved " in way.command) == (user == 0, user == 0)


TOPIC: dict[str, object] = {"topics": ("__consumer_offsets",)}
MANY: dict[str, object] = {
    "fixes": ("index", "markers"),
    "merge": False,
    "broker_version": "2.2.1",
    "assume_high_watermark": "log-end",
    "partitions": (("__consumer_offsets", 0), ("__consumer_offsets", 1)),
}


@pytest.mark.parametrize(
    ("said_by", "asked", "one_partition"),
    [
        pytest.param("plan", {}, False, id="plan says it, of all"),
        pytest.param("plan", {}, True, id="plan says it, of one partition"),
        pytest.param("apply", {}, True, id="apply says it, of one partition"),
        pytest.param("plan", TOPIC, False, id="plan says it, of a topic"),
        pytest.param("plan", MANY, False, id="plan says it, with many options"),
        pytest.param("apply", MANY, False, id="apply says it, with many options"),
    ],
)
def test_the_command_that_is_advised_gives_the_plan_of_the_same_options_and_clock(
    bloat: Scene,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, object],
    one_partition: bool,
    said_by: str,
) -> None:
    files = Path(bloat.path).parent
    (files / "server.properties").write_text("log.index.interval.bytes=512\n")
    (files / "my topics.json").write_text('{"__consumer_offsets": {"min.compaction.lag.ms": "1"}}')
    monkeypatch.chdir(files)
    named = asked | {"config": "server.properties", "topic_config": "my topics.json"}
    plan, freeing = bloat.plan(**named), bloat.plan(**named, keep="until-verified")
    whole, parts = needs(freeing)
    tight = space(min(part.bytes for part in parts) if one_partition else whole.bytes)
    monkeypatch.setattr(fits_on_disk, "read_space", lambda *_, **__: tight)
    monkeypatch.setattr(apply_module, "read_space", lambda *_, **__: tight)
    if said_by == "plan":
        (command,) = fits_on_disk.planned_view(plan, "P").sections[0].commands
    else:
        with pytest.raises(RefusedError) as refused:
            apply(plan, INLINE)
        command = refused.value.next_command
    monkeypatch.chdir("/")
    words = shlex.split(command.replace("--out PLAN", f"--out {shlex.quote(str(files / 'again'))}"))
    typed = CliRunner().invoke(app, words[1:])
    assert typed.exit_code == ExitCode.FOUND, typed.output
    wanted = freeing
    if words.count("--partition") == 1:
        name = words[words.index("--partition") + 1].rpartition("-")
        monkeypatch.chdir(files)
        only = {"topics": (), "partitions": ((name[0], int(name[2])),), "keep": "until-verified"}
        wanted = bloat.plan(**named | only)
    assert (words.count("--partition") == 1) == one_partition
    found = diff_plans(read_plan(str(files / "again")), wanted)
    assert found.same, found


def test_where_the_work_is_done_goes_with_the_command_that_is_advised(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bloat.plan()
    tight = space(freeing_needs(bloat)[0].bytes)
    monkeypatch.setattr(fits_on_disk, "read_space", lambda *_, **__: tight)
    at = bloat.options(scratch="/some where", use_reserved=True)
    for command in fits_on_disk.planned_view(plan, "P", at).sections[0].commands:
        assert " --scratch '/some where' --engine inline --use-reserved --out PLAN" in command


def test_the_advice_on_a_preview_is_to_make_another_preview(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    preview = make_preview(str(bloat.path), bloat.options())
    monkeypatch.setattr(fits_on_disk, "read_space", lambda *_, **__: space(freeing_needs(bloat)[0].bytes))
    page = fits_on_disk.planned_view(preview, "P")
    fitting = next(section for section in page.sections if "does NOT fit" in section.title)
    assert all(" --preview " in command for command in fitting.commands)


def test_partitions_that_need_least_come_first_where_what_they_free_makes_room(bloat: Scene) -> None:
    plan = bloat.plan(keep="until-verified")
    needed = [on_top_of_all([target]) for target in targets_of(plan)]
    freeing = [one.peak for one in needed if one.after <= 0]
    assert [one.peak for one in needed][: len(freeing)] == sorted(freeing)
    assert freeing


@pytest.mark.parametrize("tight", [space(100_000), space(10**12, 20)], ids=["bytes", "inodes"])
def test_apply_refuses_what_does_not_fit_and_changes_nothing(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch, tight: Space
) -> None:
    plan, before = bloat.plan(), tree(Path(bloat.path))
    monkeypatch.setattr(apply_module, "read_space", lambda *_, **__: tight)
    with pytest.raises(RefusedError) as refused:
        apply(plan, INLINE)
    assert ("new files" in refused.value.message) == (tight.free_inodes == 20)
    assert refused.value.exit_code == ExitCode.REFUSED
    assert tree(Path(bloat.path)) == before


def test_the_files_that_apply_makes_are_no_more_than_was_said(bloat: Scene) -> None:
    plan = bloat.plan()
    before = len(list(Path(bloat.path).rglob("*")))
    bloat.apply(plan)
    made = len(list(Path(bloat.path).rglob("*"))) - before
    assert made <= need_of_all(plan, targets_of(plan)).files
