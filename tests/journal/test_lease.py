"""A lease that another krepair makes in the very moment in which one without an owner is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.errors import LockedError
from krepair.journal import lease
from krepair.journal.lease import LEASE, leased
from tests.journal.scene import PLAN_ID, FreeLock, Scene, UnsyncedDisk

DEAD = b'{"host":"h","pid":1,"since":"s","kernel":"k","started":"s","token":"dead"}\n'
ALIVE = b'{"host":"h","pid":2,"since":"s","kernel":"k","started":"s","token":"alive"}\n'


class Overtaken(UnsyncedDisk):
    """Right before a lease is renamed another krepair has ended it, and made its own."""

    makes: bytes | None = ALIVE

    def rename(self, source: str, target: str) -> None:
        if source.endswith(f"/{LEASE}"):
            Path(source).unlink()
            if self.makes is not None:
                Path(source).write_bytes(self.makes)
        super().rename(source, target)


@pytest.fixture
def scene(memory_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(medium, "is_of_one_host", lambda tree, path: False)
    return Scene(memory_dir / "logs")


def place(scene: Scene) -> Path:
    private = scene.path / f"krepair~{PLAN_ID}"
    private.mkdir()
    (private / LEASE).write_bytes(DEAD)
    return private


def test_lease_without_an_owner_is_taken_over_and_goes_at_the_end(scene: Scene) -> None:
    private = place(scene)
    with leased([scene.folder()], FreeLock(), "h:1") as lock:
        lock.check()
        assert b"dead" not in (private / LEASE).read_bytes()
    assert list(private.iterdir()) == []


def test_lease_that_another_has_made_meanwhile_is_put_back(scene: Scene) -> None:
    private = place(scene)
    with (
        pytest.raises(LockedError, match="another krepair has made it just now; nothing was changed"),
        leased([scene.folder(Overtaken(str(scene.root)))], FreeLock(), "h:1"),
    ):
        raise AssertionError("it is held by two")
    assert [path.name for path in private.iterdir()] == [LEASE]
    assert (private / LEASE).read_bytes() == ALIVE


def test_lease_that_another_is_taking_over_is_left_to_it(scene: Scene) -> None:
    private, disk = place(scene), Overtaken(str(scene.root))
    disk.makes = None
    with (
        pytest.raises(LockedError, match="another krepair has taken it over just now"),
        leased([scene.folder(disk)], FreeLock(), "h:1"),
    ):
        raise AssertionError("it is held by two")
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("take_over", ["", "h:1"])
def test_lease_of_another_plan_keeps_this_one_out_and_this_one_withdraws(
    scene: Scene, take_over: str
) -> None:
    other = scene.path / "krepair~99999999"
    other.mkdir()
    (other / LEASE).write_bytes(ALIVE)
    with (
        pytest.raises(LockedError, match="krepair is at work on this log directory as process 2 of host h"),
        leased([scene.folder()], FreeLock(), take_over, make=True),
    ):
        raise AssertionError("it is held by two")
    assert (other / LEASE).read_bytes() == ALIVE
    assert not (scene.path / f"krepair~{PLAN_ID}").exists()
    with leased([scene.folder()], FreeLock(), "h:2", make=True):
        assert list(other.iterdir()) == []


def test_where_the_kernel_does_not_say_which_boot_it_is_no_lease_is_taken_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: str, **_: str) -> None:
        raise PermissionError(path)

    private = place(scene)
    monkeypatch.setattr(lease, "open", unreadable, raising=False)
    with pytest.raises(LockedError), leased([scene.folder()], FreeLock(), ""):
        raise AssertionError("nobody said that its owner is gone")
    assert (private / LEASE).read_bytes() == DEAD


@pytest.mark.parametrize("data", [b'{"host":"\xff"}', b"[" * 4000, b"{", b"\xff"])
def test_lease_that_cannot_be_read_is_of_somebody_unknown(data: bytes, scene: Scene) -> None:
    private = place(scene)
    (private / LEASE).write_bytes(data)
    with (
        pytest.raises(LockedError, match="--take-over unknown:0; nothing was changed"),
        leased([scene.folder()], FreeLock()),
    ):
        raise AssertionError("it is held by two")
    with leased([scene.folder()], FreeLock(), "unknown:0") as lock:
        lock.check()
