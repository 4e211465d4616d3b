"""What apply, plan and undo refuse as a whole, and that nothing is changed then."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode, KrepairError, LockedError, NotALogDirError, RefusedError, StalePlanError
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.options import Options
from krepair.plan import planfile
from krepair.plan.model import Plan, RewriteSegments
from tests.lab.broker import Broker
from tests.ops.scene import TV2, Scene, scene, tree


@pytest.fixture
def one(memory_dir: Path) -> Scene:
    return scene(memory_dir, TV2)


def refusal(one: Scene, plan: Plan) -> KrepairError:
    """The error of apply and of undo, which change nothing."""
    before = tree(one.path)
    with pytest.raises(KrepairError) as applied:
        one.apply(plan)
    with pytest.raises(KrepairError) as undone:
        one.undo(plan)
    assert tree(one.path) == before
    assert undone.value.exit_code == applied.value.exit_code
    return applied.value


def edits() -> dict[str, Callable[[bytes], bytes]]:
    def number(name: bytes) -> Callable[[bytes], bytes]:
        return lambda text: re.sub(
            b'("%s": )(\\d+)' % name, lambda m: m[1] + b"%d" % (int(m[2]) + 1), text, count=1
        )

    return {
        "a byte count": number(b"log_bytes"),
        "a digest of decisions": lambda text: re.sub(
            b'"decisions": "[0-9a-f]', b'"decisions": "x', text, count=1
        ),
        "the horizon": number(b"horizon_ms"),
        "a note": lambda text: text.replace(b"active producers", b"aktive producers", 1),
        "a new field": lambda text: text.replace(b'"host"', b'"hots": 1,\n  "host"', 1),
    }


@pytest.mark.parametrize("edit", edits().values(), ids=edits().keys())
def test_edited_plan_file_is_not_even_read(
    one: Scene, tmp_path: Path, edit: Callable[[bytes], bytes]
) -> None:
    text = planfile.dumps(one.plan())
    edited = edit(text)
    assert edited != text
    path = tmp_path / "plan.json"
    path.write_bytes(edited)
    with pytest.raises(StalePlanError) as refused:
        planfile.read_plan(str(path))
    assert refused.value.exit_code == ExitCode.STALE_PLAN
    assert str(path) in refused.value.message


def with_change(plan: Plan, **fields: object) -> Plan:
    """The plan with its first change altered, sealed again as a careful forger would."""
    target = next(each for each in plan.partitions if each.changes)
    change = target.changes[0]
    assert isinstance(change, RewriteSegments)
    altered = replace(target, changes=(replace(change, **fields), *target.changes[1:]))
    partitions = tuple(altered if each is target else each for each in plan.partitions)
    return planfile.seal(replace(plan, partitions=partitions))


def test_forged_plan_with_a_good_seal_is_refused_by_the_review(one: Scene) -> None:
    plan = one.plan()
    change = next(each for each in plan.partitions if each.changes).changes[0]
    assert isinstance(change, RewriteSegments)
    forged = [
        with_change(plan, log_bytes=change.log_bytes + 1),
        with_change(plan, sources=change.sources[:-1]),
        with_change(plan, base_offset=change.base_offset + 1),
        with_change(plan, mtime_ns=change.mtime_ns + 1),
    ]
    for each in forged:
        error = refusal(one, each)
        assert isinstance(error, RefusedError), error
        assert "the review of the plan objects" in error.message


def test_plan_of_a_directory_that_is_not_there_is_refused(one: Scene, memory_dir: Path) -> None:
    plan = one.plan()
    moved = memory_dir / "moved"
    one.path.rename(moved)
    with pytest.raises(StalePlanError, match="Is the disk mounted"):
        one.apply(plan)
    moved.rename(one.path)
    assert one.apply(plan).exit_code == ExitCode.DONE


@pytest.mark.parametrize("what", ["missing", "a file", "empty"])
def test_what_is_no_log_directory_is_told_so(one: Scene, tmp_path: Path, what: str) -> None:
    target = tmp_path / "target"
    if what == "a file":
        target.write_text("")
    elif what == "empty":
        target.mkdir()
    one_more = replace_path(one, target)
    with pytest.raises(NotALogDirError) as refused:
        one_more.plan()
    assert str(target) in refused.value.message


def replace_path(one: Scene, target: Path) -> Scene:
    moved = Scene(one.path)
    moved.path = target
    return moved


def test_purged_plan_cannot_be_undone_and_says_so(one: Scene) -> None:
    plan = one.plan()
    one.apply(plan)
    assert purge(plan, one.options()).exit_code == ExitCode.DONE
    after = tree(one.path)
    assert not [name for name in after if "krepair~" in name]
    report = one.undo(plan)
    assert report.exit_code == ExitCode.REFUSED
    whys = [result.why for result in report.results if result.outcome == "failed"]
    assert whys
    assert all("no journal of this plan is here" in why and "nothing to put back" in why for why in whys)
    assert tree(one.path) == after


@pytest.mark.broker
@pytest.mark.slow
def test_running_broker_is_named_with_its_pid_and_nothing_is_changed(tmp_path: Path) -> None:
    from tests.brokers.serving import PASSIVE, topics_of

    one = scene(tmp_path)
    plan = one.plan()
    with Broker("2.2.1", one.path, PASSIVE, topics_of(one.path)) as broker:
        assert broker._process is not None
        pid = str(broker._process.pid)
        for verb in (
            one.plan,
            lambda: one.apply(plan),
            lambda: one.undo(plan),
        ):
            with pytest.raises(LockedError) as refused:
                verb()  # type: ignore[operator]
            assert refused.value.exit_code == ExitCode.LOCKED
            assert pid in refused.value.message
        assert not list(one.path.glob("*/krepair~*"))


def test_no_plan_is_made_of_a_path_that_a_plan_cannot_hold(memory_dir: Path) -> None:
    named = memory_dir / os.fsdecode(b"a\xff")
    named.mkdir()
    path = scene(named, TV2).path
    with pytest.raises(RefusedError, match=r"this path is not UTF-8 \(character \d+\).*mount --bind"):
        make_plan(str(path), Options(engine="inline"))
