"""The fence: up and down again at any instant, and what it gives back when a broker was started meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit import fence as module
from krepair.commit.fence import Fence, Point, Watch, lowered_points, raised_points, standing_fences
from krepair.commit.folder import PartitionFolder
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from tests.commit.scene import LOWERED, MARKER, PLAN_ID, POINTS, Scene, UnsyncedDisk, name, put, tree
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import each_stop

POINT = Point("t", 0, 100)


def fence(scene: Scene, disk: UnsyncedDisk | StoppingDisk | RecordingDisk | None = None) -> Fence:
    folder = scene.folder(disk)
    private = scene.path / f"krepair~{PLAN_ID}"
    private.mkdir(exist_ok=True)
    return Fence(folder, POINT)


def roots(scene: Scene) -> tuple[bytes, bool]:
    return (scene.root / "recovery-point-offset-checkpoint").read_bytes(), (
        scene.root / ".kafka_cleanshutdown"
    ).exists()


def test_up_it_lowers_the_point_and_sets_the_marker_aside_and_down_it_gives_both_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    up = fence(scene)
    up.put_up()
    assert roots(scene) == (LOWERED, False)
    up.put_up()
    assert roots(scene) == (LOWERED, False)
    assert up.lift() is False
    assert scene.before == tree(scene.root, private=False)
    assert not up.is_up()


def test_a_marker_that_was_not_there_is_never_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    (scene.root / ".kafka_cleanshutdown").unlink()
    fence(scene).put_up()
    fence(scene).lift()
    assert roots(scene) == (POINTS, False)


def test_stopped_at_every_call_it_goes_up_or_down_and_gives_everything_back(tmp_path: Path) -> None:
    for first in ("put_up", "lift"):
        for stop in each_stop():
            stops = stop.number
            scene = Scene(tmp_path / f"{first}{stops}")
            if first == "lift":
                fence(scene).put_up()
            with stop as disk:
                getattr(fence(scene, disk), first)()
            if not stop.happened:
                break
            points, _marker = roots(scene)
            assert points in {POINTS, LOWERED}
            if stops % 2:
                fence(scene).put_up()
                assert roots(scene) == (LOWERED, False), (first, stops)
            fence(scene).lift()
            assert scene.before == tree(scene.root, private=False), (first, stops)
        assert stops >= 5


def pad(scene: Scene, path: str) -> None:
    put(scene.root / path, b"\0" * 100, 9_000)


def write_points(scene: Scene) -> None:
    (scene.root / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 700\n")


def spoil(scene: Scene, file: str, data: bytes) -> None:
    """A file that the fence keeps, or its list."""
    (scene.path / f"krepair~{PLAN_ID}" / "fence" / file).write_bytes(data)


def own_change_that_is_killed(scene: Scene) -> None:
    path = scene.path / name(600, ".index")
    own_change = Watch(UnsyncedDisk(), str(scene.root)).our_own_change([f"t-0/{path.name}"])
    with contextlib.suppress(SimulatedCrash), own_change:
        path.write_bytes(b"half")
        raise SimulatedCrash
    path.unlink()


def own_change_over_half_a_list(scene: Scene) -> None:
    spoil(scene, "seen.json.new", b"half")
    path = scene.path / name(600, ".index")
    with Watch(UnsyncedDisk(), str(scene.root)).our_own_change([f"t-0/{path.name}"]):
        path.write_bytes(b"mended")


INDEX, OTHERS = f"t-0/{name(600, '.index')}", f"o-0/{name(0, '.timeindex')}"
BROKER, NOBODY = (True, LOWERED, False), (False, POINTS, True)
MEANWHILE: dict[str, tuple[Callable[[Scene], object], tuple[bool, bytes, bool]]] = {
    # what happened while the fence was up; whether a broker is noticed, the points and whether the marker is back
    "a broker was killed": (lambda scene: pad(scene, INDEX), BROKER),
    "it had written its points": (
        lambda scene: (pad(scene, INDEX), write_points(scene)),
        (True, b"0\n1\nt 0 700\n", False),
    ),
    "it is seen by another partition only": (lambda scene: pad(scene, OTHERS), BROKER),
    "a file of the partition was removed": (lambda scene: (scene.root / INDEX).unlink(), BROKER),
    "a file of the root was removed": (lambda scene: (scene.root / "meta.properties").unlink(), BROKER),
    **{
        f"the list is damaged: {left!r}": (lambda scene, left=left: spoil(scene, "seen.json", left), BROKER)
        for left in (b"", b'{"t-0/', b"\0" * 64, b"[1, 2]", b"\xff\xfe")
    },
    "the points set aside are zeros": (
        lambda scene: spoil(scene, "recovery-point-offset-checkpoint", b"\0" * len(POINTS)),
        (False, LOWERED, True),
    ),
    "nothing": (lambda scene: None, NOBODY),
    "a change of krepair's own was killed": (own_change_that_is_killed, NOBODY),
    "one was made over half a list of a killed run": (own_change_over_half_a_list, NOBODY),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_later_run_takes_the_fence_down_and_forges_no_clean_shutdown_where_a_broker_was(
    tmp_path: Path, what: str
) -> None:
    scene = Scene(tmp_path / "logs")
    fence(scene).put_up()
    happens, (noticed, points, marker) = MEANWHILE[what]
    happens(scene)
    assert fence(scene).lift() is noticed
    assert roots(scene) == (points, marker)
    assert not (scene.path / f"krepair~{PLAN_ID}" / "fence").exists()


def test_a_run_looks_at_all_files_behind_an_earlier_run_and_at_root_and_partition_behind_itself(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "logs")
    others: module.Seen = {f"x-{number}/{name(0, '.index')}": (1, 2, 3) for number in range(1_000)}
    own: module.Seen = {"meta.properties": (1, 2, 3), f"t-0/{name(600, '.index')}": (1, 2, 3)}
    watch = Watch(scene.folder().disk, str(scene.root))
    assert watch.names_to_look_at("/p", others | own, "t-0") == [*others, *own]
    watch.put_up_here("/p")
    assert watch.names_to_look_at("/p", others | own, "t-0") == list(own)
    watch.is_down("/p")
    assert watch.names_to_look_at("/p", others | own, "t-0") == [*others, *own]


def test_what_happened_to_the_partition_itself_is_noticed_by_the_same_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    same = fence(scene)
    same.put_up()
    put(scene.path / name(600, ".timeindex"), b"\0" * 100, 9_000)
    assert same.lift() is True
    assert not (scene.root / ".kafka_cleanshutdown").exists()


def test_a_broker_stopped_cleanly_meanwhile_keeps_its_own_marker(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    fence(scene).put_up()
    put(scene.path / name(600, ".index"), b"", 9_000)
    (scene.root / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 700\n")
    (scene.root / ".kafka_cleanshutdown").write_bytes(b"its own")
    fence(scene).put_up()
    assert roots(scene) == (b"0\n1\nt 0 100\n", False)
    fence(scene).lift()
    assert roots(scene) == (b"0\n1\nt 0 700\n", True)
    assert (scene.root / ".kafka_cleanshutdown").read_bytes() == b"its own"
    assert MARKER != b"its own"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (POINTS, LOWERED),
        (LOWERED, None),
        (b"0\n1\no 0 7\n", None),
        (b"0\n1\nt 0 99\n", None),
        (b"", None),
    ],
)
def test_only_a_higher_point_of_this_partition_is_lowered(data: bytes, expected: bytes | None) -> None:
    assert expected == lowered_points(data, POINT, "points")


@pytest.mark.parametrize("data", [b"0\n2\nt 0 7\n", b"garbage", b"1\n0\n", b"0\n-1\n"])
def test_a_damaged_recovery_point_file_is_refused_and_nothing_is_changed(tmp_path: Path, data: bytes) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    (scene.root / "recovery-point-offset-checkpoint").write_bytes(data)
    was = scene.now()
    with pytest.raises(RefusedError, match="recovery-point-offset-checkpoint: byte"):
        fence(scene).put_up()
    fence(scene).lift()
    assert was == scene.now()
    assert scene.apply()[0].failed
    assert was == scene.now()


def test_what_is_to_be_given_back_is_on_the_disk_before_the_root_changes_and_after(tmp_path: Path) -> None:
    """Each name that moves is durable in its new folder before the next one moves."""
    scene = Scene(tmp_path / "logs")
    disk = RecordingDisk(UnsyncedDisk())
    up = fence(scene, disk)
    up.put_up()
    up.lift()
    open_folders: set[str] = set()
    for call in disk.calls:
        if call.kind == "sync_dir":
            open_folders.discard(call.path)
            continue
        if call.kind == "rename":
            leaving_the_fence = os.path.dirname(call.path) == up.place
            assert not (leaving_the_fence and os.path.dirname(call.path) in open_folders), call
            assert str(scene.root) not in open_folders, call
            open_folders |= {os.path.dirname(call.path), os.path.dirname(call.target)}
        if call.kind in {"link", "create", "unlink", "make_dir", "remove_dir"}:
            open_folders.add(os.path.dirname(call.target or call.path))
    assert open_folders <= {up.place}


@pytest.mark.parametrize("marker", ["moves from another fence", "moves from the root"])
def test_fence_that_a_killed_run_left_is_on_the_disk_before_the_marker_comes_into_it(
    tmp_path: Path, marker: str
) -> None:
    """That run may have written its list without having synced it: lost, it would keep the marker from its place."""
    scene = Scene(tmp_path / "logs")
    with pytest.raises(SimulatedCrash):
        fence(scene, StoppingDisk(UnsyncedDisk(), 3, FILE_CHANGING)).put_up()
    assert os.listdir(scene.path / f"krepair~{PLAN_ID}" / "fence") == ["seen.json"]
    disk = RecordingDisk(UnsyncedDisk())
    if marker == "moves from another fence":
        (scene.root / "o-0" / f"krepair~{PLAN_ID}").mkdir()
        other = Fence(PartitionFolder(disk, str(scene.root), "o-0", PLAN_ID), Point("o", 0, 0))
        other.put_up()
        other.lift()
    else:
        fence(scene, disk).put_up()
    private = str(scene.path / f"krepair~{PLAN_ID}")
    calls = [(call.kind, call.path, call.target) for call in disk.calls]
    comes = next(
        number for number, call in enumerate(calls) if call[2] == f"{private}/fence/.kafka_cleanshutdown"
    )
    listed = calls.index(("rename", f"{private}/fence/seen.json.new", f"{private}/fence/seen.json"))
    assert ("sync_dir", f"{private}/fence", "") in calls[listed:comes]
    assert ("sync_dir", private, "") in calls[:comes]


@pytest.mark.parametrize("left", ["no list", "half a list"])
@pytest.mark.parametrize("started", [False, True])
def test_marker_that_came_into_a_fence_that_was_left_half_put_up_goes_back_unless_a_broker_was_started(
    tmp_path: Path, left: str, started: bool
) -> None:
    scene = Scene(tmp_path / "logs")
    stop = 2 if left == "no list" else 3
    with pytest.raises(SimulatedCrash):
        fence(scene, StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING)).put_up()
    if left == "half a list":
        (scene.path / f"krepair~{PLAN_ID}" / "fence" / "seen.json").write_bytes(b"")
    (scene.root / "o-0" / f"krepair~{PLAN_ID}").mkdir()
    other = Fence(PartitionFolder(UnsyncedDisk(), str(scene.root), "o-0", PLAN_ID), Point("o", 0, 0))
    other.put_up()
    assert other.lift() is False
    assert not (scene.root / ".kafka_cleanshutdown").exists()
    if started:
        put(scene.path / name(600, ".index"), b"\0" * 100, 9_000)
    assert fence(scene).lift() is started
    assert (scene.root / ".kafka_cleanshutdown").exists() is not started


def test_change_of_krepairs_own_is_no_brokers_start_for_another_fence(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    up = fence(scene)
    up.put_up()
    path = scene.path / name(600, ".index")
    disk = RecordingDisk(UnsyncedDisk())
    with Watch(disk, str(scene.root)).our_own_change([f"t-0/{path.name}"]):
        path.write_bytes(b"mended")
    assert [call.kind for call in disk.calls] == ["create", "rename", "sync_dir"] * 2
    assert fence(scene).lift() is False
    assert roots(scene) == (POINTS, True)


def test_change_of_a_file_that_no_fence_watches_writes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    fence(scene).put_up()
    disk = RecordingDisk(UnsyncedDisk())
    with Watch(disk, str(scene.root)).our_own_change([f"t-0/{name(100, '.index')}"]):
        pass
    assert disk.calls == []


def another(scene: Scene, topic: str) -> Path:
    """A further partition with an active segment."""
    path = scene.root / f"{topic}-0"
    (path / f"krepair~{PLAN_ID}").mkdir(parents=True)
    for extension in (".log", ".index", ".timeindex"):
        put(path / name(0, extension), b"another", 700)
    return path


def fence_of(scene: Scene, topic: str, watch: Watch) -> Fence:
    return Fence(
        PartitionFolder(UnsyncedDisk(), str(scene.root), f"{topic}-0", PLAN_ID), Point(topic, 0, 3), watch
    )


@pytest.mark.parametrize("number", [2, 6])
def test_behind_a_change_of_krepairs_own_a_run_lists_the_folder_of_that_change_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    scene = Scene(tmp_path / "logs")
    for topic in "abcdef"[:number]:
        another(scene, topic)
    watch = Watch(UnsyncedDisk(), str(scene.root))
    watch.seen()
    listed: list[str] = []
    real = Tree.entries

    def listing(tree: Tree, path: str) -> list[tuple[str, os.stat_result]]:
        listed.append(path.removeprefix(f"{scene.root}"))
        return real(tree, path)

    monkeypatch.setattr(Tree, "entries", listing)
    for topic in "abcdef"[:number]:
        path = scene.root / f"{topic}-0" / name(0, ".index")
        with watch.our_own_change([f"{topic}-0/{path.name}"]):
            put(path, b"mended", 9_000)
        seen = watch.seen()
        assert seen == watch.seen()
    folders = [path for path in listed if path]
    assert folders == [f"/{topic}-0" for topic in "abcdef"[:number]]
    assert list(seen.items()) == list(Watch(UnsyncedDisk(), str(scene.root)).seen().items())


def test_behind_changes_of_krepairs_own_a_run_knows_what_another_one_that_looks_anew_sees(
    tmp_path: Path,
) -> None:
    """Another segment is the active one; a folder has no log any more; a file of the root is another one."""
    scene = Scene(tmp_path / "logs")
    path = another(scene, "a")
    watch = Watch(UnsyncedDisk(), str(scene.root))
    watch.seen()
    rolled = [f"t-0/{name(700, end)}" for end in (".log", ".index", ".timeindex")]
    emptied = [f"a-0/{name(0, end)}" for end in (".log", ".index", ".timeindex")]
    with watch.our_own_change([*rolled, *emptied, "replication-offset-checkpoint"]):
        for file in rolled:
            put(scene.root / file, b"", 9_000)
        for found in path.iterdir():
            if found.is_file():
                found.unlink()
        put(scene.root / "replication-offset-checkpoint", b"0\n0\n", 9_000)
    assert set(rolled) <= set(watch.seen())
    assert list(watch.seen().items()) == list(Watch(UnsyncedDisk(), str(scene.root)).seen().items())
    assert f"t-0/{name(600)}" not in watch.seen()


@pytest.mark.parametrize("removed", [False, True])
def test_what_somebody_else_changed_before_a_change_of_krepairs_own_is_noticed_by_a_fence_that_goes_up_behind_it(
    tmp_path: Path, removed: bool
) -> None:
    """Was the whole directory looked at anew, the broker's file was taken for what a clean stop had left."""
    scene = Scene(tmp_path / "logs")
    another(scene, "a")
    watch = Watch(UnsyncedDisk(), str(scene.root))
    first = fence_of(scene, "a", watch)
    first.put_up()
    assert first.lift() is False
    brokers, own = scene.path / name(600, ".timeindex"), scene.root / "a-0" / name(0, ".index")
    if removed:
        brokers.unlink()
    else:
        put(brokers, b"\0" * 100, 9_000)
    with watch.our_own_change([f"a-0/{own.name}"]):
        put(own, b"mended", 9_001)
    (scene.path / f"krepair~{PLAN_ID}").mkdir()
    second = fence_of(scene, "t", watch)
    second.put_up()
    assert second.lift() is True
    assert not (scene.root / ".kafka_cleanshutdown").exists()


def test_what_a_run_takes_back_outside_of_a_change_is_no_brokers_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    another(scene, "a")
    watch = Watch(UnsyncedDisk(), str(scene.root))
    watch.seen()
    put(scene.path / name(600, ".index"), b"as before", 9_000)
    watch.look_again([f"t-0/{name(600, '.index')}"])
    one = fence_of(scene, "a", watch)
    one.put_up()
    assert one.lift() is False


def three(scene: Scene) -> list[Fence]:
    """Fences of three partitions in one run, all up."""
    watch = Watch(UnsyncedDisk(), str(scene.root))
    fences = []
    for topic in ("t", "o", "z"):
        path = scene.root / f"{topic}-0"
        path.mkdir(exist_ok=True)
        (path / f"krepair~{PLAN_ID}").mkdir(exist_ok=True)
        folder = PartitionFolder(UnsyncedDisk(), str(scene.root), path.name, PLAN_ID)
        fences.append(Fence(folder, Point(topic, 0, 3), watch))
    for one in fences:
        one.put_up()
    return fences


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_marker_goes_back_with_the_last_of_several_fences(tmp_path: Path, order: tuple[int, ...]) -> None:
    scene = Scene(tmp_path / "logs")
    marker = scene.root / ".kafka_cleanshutdown"
    fences = three(scene)
    for number, place in enumerate(order):
        assert not marker.exists()
        assert fences[place].lift() is False
        assert marker.exists() == (number == 2)
    assert marker.read_bytes() == MARKER
    assert (scene.root / "recovery-point-offset-checkpoint").read_bytes() == POINTS


def test_only_a_folder_of_krepairs_own_is_a_fence(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    fence(scene).put_up()
    (scene.path / "other" / "fence").mkdir(parents=True)
    (scene.root / "no-partition" / f"krepair~{PLAN_ID}" / "fence").mkdir(parents=True)
    assert standing_fences(Tree(str(scene.root)), str(scene.root)) == [
        f"{scene.path}/krepair~{PLAN_ID}/fence"
    ]


def test_fence_that_is_not_up_is_lifted_without_a_call(tmp_path: Path) -> None:
    disk = RecordingDisk(UnsyncedDisk())
    assert fence(Scene(tmp_path / "logs"), disk).lift() is False
    assert disk.calls == []


def test_only_files_of_the_active_segment_and_of_the_root_are_watched(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    (scene.path / name(600, ".timeindex")).unlink()
    (scene.path / name(600, ".timeindex")).mkdir()
    (scene.path / name(700, ".index")).write_bytes(b"without a log")
    (scene.path / name(700, ".log.swap")).write_bytes(b"pending")
    assert sorted(Watch(UnsyncedDisk(), str(scene.root)).seen()) == sorted(
        [
            "meta.properties",
            "replication-offset-checkpoint",
            f"t-0/{name(600)}",
            f"t-0/{name(600, '.index')}",
            *(f"o-0/{name(0, end)}" for end in (".log", ".index", ".timeindex")),
        ]
    )


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_checkpoint_larger_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, refused: bool
) -> None:
    scene = Scene(tmp_path / "logs")
    monkeypatch.setattr(module, "MOST_CHECKPOINT_BYTES", len(POINTS) - more)
    if refused:
        with pytest.raises(RefusedError, match=f"larger than {len(POINTS) - 1} bytes"):
            fence(scene).put_up()
    else:
        fence(scene).put_up()
    assert roots(scene) == ((POINTS, True) if refused else (LOWERED, False))


def test_higher_point_of_another_partition_is_not_lowered() -> None:
    data = b"0\n3\no 0 700\nt 0 660\nt 1 660\n"
    assert lowered_points(data, POINT, "points") == data.replace(b"t 0 660", b"t 0 100")


def test_segment_whose_name_a_broker_does_not_write_so_is_not_the_active_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    before = Watch(UnsyncedDisk(), str(scene.root)).seen()
    (scene.path / "700.log").write_bytes(b"copied by hand")
    assert Watch(UnsyncedDisk(), str(scene.root)).seen() == before


@pytest.mark.parametrize(
    ("data", "kept", "expected"),
    [
        (LOWERED, POINTS, POINTS),
        (LOWERED, b"0\n1\no 0 7\n", None),
        (b"0\n1\no 0 7\n", POINTS, None),
        (b"0\n2\no 0 7\nt 0 101\n", POINTS, None),
        # lines that a broker does not write so are read one by one
        (b"0\n2\no 0 07\nt 0 100\n", POINTS, POINTS),
        (b"0\n2\no 0 07\nt 0 100\n", b"0\n1\no 0 07\n", None),
        (b"0\n2\no 0 07\nt 0 101\n", POINTS, None),
    ],
)
def test_only_a_line_that_is_as_it_was_lowered_is_raised_to_what_it_was(
    data: bytes, kept: bytes, expected: bytes | None
) -> None:
    assert raised_points(data, kept, POINT, "points") == expected


def test_damaged_checkpoint_asks_for_a_check_of_its_directory_whatever_that_is_called() -> None:
    with pytest.raises(RefusedError) as refused:
        lowered_points(b"0\n1\nnothing\n", POINT, "/mnt/a disk/logs/points")
    assert str(refused.value.next_command) == "krepair check '/mnt/a disk/logs'"
