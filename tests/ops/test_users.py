"""Another user: what root applied, the broker's user can undo; what a user may not touch is refused before anything."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from krepair.cli.views.writers import plain
from krepair.commit.kept import kept_originals, kept_report
from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode, KrepairError
from krepair.findings.table import kept_findings
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.show import show_view
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.model import Plan
from krepair.plan.planfile import dumps, read_plan
from tests.ops.scene import TV2, Scene, scene, tree

BROKER, STRANGER = 4242, 4343
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def owned(root: Path) -> Scene:
    """A log directory that is the broker's."""
    one = scene(root, TV2)
    for path in [one.path, *one.path.rglob("*")]:
        os.chown(path, BROKER, BROKER)
    for folder in (root, *root.parents):
        if folder.is_relative_to("/dev/shm/krepair-"[:8]) and folder != Path("/dev/shm"):
            folder.chmod(0o755)
    for folder in one.path.relative_to(root).parents:
        (root / folder).chmod(0o755)
    return one


def as_user(user: int, do: Callable[[], ApplyReport]) -> tuple[int, str]:
    """Exit code and words of a verb that another user runs, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            report = do()
            said = (int(report.exit_code), " ".join(filter(None, (result.why for result in report.results))))
        except KrepairError as error:
            said = (int(error.exit_code), error.message)
        except BaseException as error:  # the parent is told
            said = (1, repr(error))
        os.write(writing, pickle.dumps(said)[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer: tuple[int, str] = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return answer


def said_as_user(user: int, do: Callable[[], str]) -> str:
    """What another user is told, in a process of its own."""

    class Said:
        exit_code = ExitCode.DONE

        def __init__(self) -> None:
            self.results = [SimpleNamespace(why=do())]

    return as_user(user, Said)[1]  # type: ignore[arg-type]


def run(verb: Callable[..., ApplyReport], plan: Plan, one: Scene) -> Callable[[], ApplyReport]:
    return lambda: verb(plan, one.options())


def test_all_that_root_leaves_belongs_to_the_partition_s_owner(memory_dir: Path) -> None:
    one = owned(memory_dir)
    plan = one.plan(fixes=("markers", "checkpoints", "index"))
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in one.path.rglob("*")}
    assert owners == {(BROKER, BROKER)}
    assert list(one.path.glob("*/krepair~*/journal"))


@pytest.mark.parametrize("after", ["undo", "purge"])
def test_what_root_applied_the_broker_s_user_can_undo_or_purge(memory_dir: Path, after: str) -> None:
    one = owned(memory_dir)
    before = tree(one.path)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    assert as_user(BROKER, run(undo if after == "undo" else purge, plan, one)) == (0, "")
    assert not list(one.path.glob("*/krepair~*"))
    assert after == "purge" or tree(one.path) == before


def test_the_broker_s_user_can_apply_and_undo(memory_dir: Path) -> None:
    one = owned(memory_dir)
    before = tree(one.path)
    plan = one.plan()
    assert as_user(BROKER, run(apply, plan, one)) == (0, "")
    assert tree(one.path) != before
    assert as_user(BROKER, run(undo, plan, one)) == (0, "")
    assert tree(one.path) == before


@pytest.mark.parametrize("verb", [apply, undo, purge])
def test_a_stranger_is_refused_before_anything_is_begun(
    memory_dir: Path, verb: Callable[..., ApplyReport]
) -> None:
    one = owned(memory_dir)
    plan = one.plan()
    if verb is not apply:
        apply(plan, one.options())
    before = tree(one.path)
    code, said = as_user(STRANGER, run(verb, plan, one))
    assert code in {ExitCode.REFUSED, ExitCode.UNREADABLE}
    assert str(one.path) in said
    assert tree(one.path) == before


def test_one_file_of_somebody_else_is_named_before_anything_is_begun(memory_dir: Path) -> None:
    one = owned(memory_dir)
    plan = one.plan()
    changed = next(part for part in plan.partitions if part.changes)
    log = sorted((one.path / changed.folder).glob("*.log"))[0]
    os.chown(log, 0, 0)
    plan = one.plan()
    before = tree(one.path)
    code, said = as_user(BROKER, run(apply, plan, one))
    assert (code, str(log) in said) == (ExitCode.REFUSED, True)
    assert tree(one.path) == before


def test_who_may_not_look_at_what_is_kept_is_sent_to_the_right_user_and_not_to_purge(
    memory_dir: Path,
) -> None:
    one = owned(memory_dir)
    assert apply(one.plan(), one.options()).exit_code == ExitCode.DONE
    for path in [one.path, *one.path.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)

    def listed(verb: str) -> Callable[[], str]:
        return lambda: str(kept_report(str(one.path), 0, verb).next_command)

    for verb in ("undo", "purge"):
        told = said_as_user(STRANGER, listed(verb))
        assert told == f"krepair {verb} {one.path}   # as root, or as the user of the broker"
    view = read_log_dir(str(one.path))
    found = said_as_user(
        STRANGER,
        lambda: next(kept_findings(view, kept_originals(view, 0))).evidence,
    )
    assert "it is not known whether undo is possible: " in found
    assert "Permission denied (EACCES)" in found
    assert "purge" not in found


def test_verify_and_purge_by_id_of_a_user_who_may_not_look_name_who_may_and_not_undo(
    memory_dir: Path,
) -> None:
    one = owned(memory_dir)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    for path in [one.path, *one.path.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    said = said_as_user(STRANGER, lambda: str(verify_plan(plan, one.options()).next_command))
    assert said == "krepair verify PLAN   # as root, or as the user of the broker"
    said = said_as_user(
        STRANGER, lambda: str(purge_by_id(str(one.path), plan.plan_id, one.options()).next_command)
    )
    assert said.endswith("may not change this folder; run krepair as its owner, or as root")


def test_a_plan_of_root_that_the_brokers_user_cannot_read_is_for_root(memory_dir: Path) -> None:
    one = owned(memory_dir)
    path = memory_dir / "p.krplan"
    path.write_bytes(dumps(one.plan()))
    for mode, who in ((0o600, "as root:"), (0o644, "as the broker's user or as root:")):
        path.chmod(mode)
        assert f"Next, with the broker stopped, {who}" in plain(show_view(read_plan(str(path)), str(path)))
