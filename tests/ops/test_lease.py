"""Where locks do not reach other hosts, a lease keeps a second krepair out; it goes on where the first one is gone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.durable.disk import Disk
from krepair.errors import ExitCode, KrepairError, LockedError
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import HeldLock
from krepair.journal.lease import LEASE, leased
from krepair.ops import apply as apply_module
from krepair.ops import purge as purge_module
from krepair.ops import undo as undo_module
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from tests.lab.waiting import LIMIT_S
from tests.ops import test_two_drivers
from tests.ops.test_two_drivers import FIRST_DRIVER, Scene, without_lock

pytestmark = pytest.mark.replicas


class NoLock:
    """A lock of a mount that does not carry it: everybody has it."""

    def check(self) -> None:
        """It is always ours."""


@contextmanager
def without_locks(log_dir: str, disk: Disk) -> Iterator[NoLock]:
    """As ``hold_lock`` on such a mount."""
    del log_dir, disk
    yield NoLock()


def on_shared_storage(patch: pytest.MonkeyPatch) -> None:
    """The file system is one that several hosts may mount, and locks reach nobody."""
    patch.setattr(medium, "is_of_one_host", lambda tree, path: False)
    patch.setattr(apply_module, "hold_lock", without_locks)
    patch.setattr(undo_module, "hold_lock", without_locks)
    patch.setattr(purge_module, "hold_own_lock", without_locks)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    on_shared_storage(monkeypatch)
    first = (
        "import pytest\nfrom tests.ops.test_lease import on_shared_storage\n"
        "on_shared_storage(pytest.MonkeyPatch())\n"
    )
    monkeypatch.setattr(test_two_drivers, "FIRST_DRIVER", first + FIRST_DRIVER)
    return Scene(tmp_path)


def leases(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob(f"*/krepair~*/{LEASE}*"))


def as_of_another_host(scene: Scene) -> str:
    """The lease that was left is one of a host of which this kernel knows nothing; its name for ``--take-over``."""
    (path,) = leases(scene.log_dir)
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"host": "elsewhere", "kernel": "another boot"}))
    return f"elsewhere:{said['pid']}"


@pytest.mark.parametrize("at", [12, pytest.param(6, marks=pytest.mark.slow)])
def test_whatever_plan_and_verb_the_second_is_refused_and_told_host_process_and_time(
    scene: Scene, at: int
) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", at) as first:
        for verb, plan in (
            (apply, scene.plan),
            (apply, scene.other),
            (undo, scene.plan),
            (purge, scene.plan),
        ):
            with pytest.raises(
                LockedError, match=rf"as process {first.pid} of host .*, since 20.*--take-over"
            ):
                verb(plan, scene.given)
        said, _ = first.communicate("\n", timeout=LIMIT_S)
        assert said == "0\n"
    assert leases(scene.log_dir) == []
    assert verify_plan(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


@pytest.mark.parametrize("at", [12, pytest.param(6, marks=pytest.mark.slow)])
def test_a_process_of_this_kernel_that_is_gone_keeps_nobody_out(scene: Scene, at: int) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", at) as first:
        killed(first)
    assert len(leases(scene.log_dir)) == 1
    assert apply(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert leases(scene.log_dir) == []
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(LIMIT_S)


def test_what_another_host_left_waits_for_a_person_who_names_host_and_process(scene: Scene) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", 12) as first:
        killed(first)
    name = as_of_another_host(scene)
    for consent in ("", "elsewhere:1", f"other:{first.pid}"):
        with pytest.raises(LockedError, match=f"--take-over {name}"):
            apply(scene.plan, replace(scene.given, take_over=consent))
    assert apply(scene.plan, replace(scene.given, take_over=name)).exit_code is ExitCode.DONE
    assert leases(scene.log_dir) == []
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


def test_who_was_wrongly_taken_for_gone_changes_nothing_more(scene: Scene) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", 8) as first:
        name = as_of_another_host(scene)
        assert apply(scene.plan, replace(scene.given, take_over=name)).exit_code is ExitCode.DONE
        made = without_lock(scene.log_dir)
        said, _ = first.communicate("\n", timeout=LIMIT_S)
        assert said != "0\n"
    assert without_lock(scene.log_dir) == made
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


def test_a_refusal_leaves_no_folder_that_was_made_for_the_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KrepairError("refused")

    before = without_lock(scene.log_dir)
    monkeypatch.setattr(apply_module._Apply, "_check_order", refuse)
    with pytest.raises(KrepairError, match="refused"):
        apply(scene.plan, scene.given)
    assert without_lock(scene.log_dir) == before


def test_on_a_file_system_of_one_host_no_lease_is_made(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with scene.first_driver("apply", 12):
        assert leases(scene.log_dir) == []


def test_what_another_host_has_done_since_undo_looked_is_seen_under_the_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(scene.plan, scene.given).exit_code is ExitCode.DONE

    @contextmanager
    def leased_late(
        folders: Sequence[PartitionFolder], lock: HeldLock, take_over: str = ""
    ) -> Iterator[HeldLock]:
        assert purge(scene.plan, scene.given).exit_code is ExitCode.DONE
        with leased(folders, lock, take_over) as held:
            yield held

    monkeypatch.setattr(undo_module, "leased", leased_late)
    report = undo(scene.plan, scene.given)
    assert {one.outcome for one in report.results} == {"failed"}
    assert all("no journal of this plan is here" in one.why for one in report.results)
    assert verify_plan(scene.plan, scene.given).exit_code is ExitCode.DONE
