"""Partitions that pre-recovery skips keep their recovery point; the others proceed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.errors import PersonDecidesError, RefusedError
from krepair.ops.check import check
from krepair.plan.model import Plan, RollSegment
from tests.flips import flip
from tests.ops.inline import there_and_back
from tests.ops.scene import part, tree
from tests.recovery.scene import POINTS, TIME_MS, Verbs, points_of, set_points, write_unclean


def rolled(plan: Plan) -> set[str]:
    """Partitions that get a new segment."""
    return {
        one.folder
        for one in plan.partitions
        if any(isinstance(change, RollSegment) for change in one.changes)
    }


def raised(plan: Plan) -> dict[str, int | None]:
    """The lines that the plan changes."""
    if plan.root is None:
        return {}
    (change,) = plan.root.changes
    return {line.topic: line.new for line in change.lines}  # type: ignore[union-attr]


def test_after_a_clean_stop_nothing_is_done_and_the_plan_says_so(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / ".kafka_cleanshutdown").touch()
    plan = Verbs(path).plan()
    assert (rolled(plan), raised(plan)) == (set(), {})
    assert all("stopped cleanly" in one.notes[0] for one in plan.partitions)


@pytest.mark.parametrize("orphans", [True, False])
def test_where_a_segment_is_missing_the_recovery_is_left_to_the_broker(tmp_path: Path, orphans: bool) -> None:
    """It may come back; a recovery that was written down forgets its producers for good."""
    path = write_unclean(tmp_path / "logs")
    for file in (path / "t-0").glob(f"{300:020d}.*"):
        if file.suffix == ".log" or not orphans:
            file.unlink()
    (path / "cleaner-offset-checkpoint").unlink()
    plan = Verbs(path).plan()
    assert (rolled(plan), raised(plan)) == ({"o-0"}, {"o": 3})
    left = part(plan, "t-0")
    assert left.code == "missing-segment"
    assert "a segment with offsets 291 to 399 is missing" in left.why


def damaged(path: Path) -> None:
    flip(path / "t-0" / f"{300:020d}.log", 100)


def damaged_below(path: Path) -> None:
    """A recovery without snapshots reads it for its producers."""
    for snapshot in (path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    flip(path / "t-0" / f"{0:020d}.log", 100)


def pending_swap(path: Path) -> None:
    shutil.copy(path / "t-0" / f"{100:020d}.log", path / "t-0" / f"{100:020d}.log.swap")


def marked(path: Path) -> None:
    (path / f"t-0.{'0' * 32}-future").mkdir()


def point_past_the_end(path: Path) -> None:
    set_points(path, {"t": 451, "o": 0})


def log_start_past_the_end(path: Path) -> None:
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 451\n")


def bad_epochs(path: Path) -> None:
    (path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n9\n0 0\n")


def index_at_the_end(path: Path) -> None:
    (path / "t-0" / f"{450:020d}.index").write_bytes(bytes(8))


def aborts_at_the_end(path: Path) -> None:
    """They would become those of the new segment."""
    (path / "t-0" / f"{450:020d}.txnindex").write_bytes(bytes(34))


def link(path: Path) -> None:
    file = path / "t-0" / f"{300:020d}.log"
    file.rename(path.parent / "elsewhere.log")
    file.symlink_to(path.parent / "elsewhere.log")


@pytest.mark.parametrize(
    ("how", "code", "next_fix"),
    [
        (damaged, "damage", "tail,recovery"),
        (damaged_below, "producers", ""),
        (pending_swap, "untouched", "leftovers"),
        (marked, "marked-folder", ""),
        (log_start_past_the_end, "checkpoint", "checkpoints,recovery"),
        (bad_epochs, "epochs", "epochs,recovery"),
        (index_at_the_end, "leftovers", ""),
        (aborts_at_the_end, "leftovers", ""),
        (link, "special-file", ""),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_partition_keeps_its_point_and_its_files_and_the_other_one_goes_on(
    how, code: str, next_fix: str, tmp_path: Path
) -> None:
    path = write_unclean(tmp_path / "logs")
    how(path)
    before = tree(path / "t-0")
    verbs = Verbs(path)
    plan = verbs.plan()
    left = part(plan, "t-0")
    assert (left.status, left.code) == ("left alone", code), left.why
    assert f"--fix {next_fix} " in str(left.next_command) if next_fix else not str(left.next_command)
    assert rolled(plan) == {"o-0"}
    assert raised(plan) == {"o": 3}
    old = points_of(path)["t"]
    verbs.apply(plan)
    assert points_of(path) == {"t": old, "o": 3}
    assert tree(path / "t-0") == before
    assert verbs.wrong(plan) == []


@pytest.mark.parametrize("point", [451, 900])
def test_point_past_the_log_end_keeps_nothing_off_and_stays(point: int, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs", {"t": point, "o": 0})
    verbs = Verbs(path)
    plan = verbs.plan()
    assert (rolled(plan), raised(plan)) == ({"t-0", "o-0"}, {"o": 3})
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": point, "o": 3}
        assert verbs.wrong(plan) == []
        again = verbs.plan()
        assert (rolled(again), raised(again)) == (set(), {})


@pytest.mark.parametrize("fix", ["recovery", "markers"])
def test_log_start_past_the_log_end_is_dropped_in_the_same_plan(fix: str, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    common = {
        "delete_horizon": str(TIME_MS),
        "broker_version": "3.9.2",
        "settings": (("index.interval.bytes", "200"), ("cleanup.policy", "compact")),
    }
    well = part(Verbs(path, fixes=("checkpoints", fix), **common).plan(), "t-0")
    log_start_past_the_end(path)
    alone = part(Verbs(path, fixes=(fix,), **common).plan(), "t-0")
    assert (alone.status, "--fix checkpoints," in str(alone.next_command)) == ("left alone", True)
    verbs = Verbs(path, fixes=("checkpoints", fix), **common)
    plan = verbs.plan()
    both = part(plan, "t-0")
    assert (both.status, both.changes) == ("change", well.changes)
    with there_and_back(path, plan, verbs.options()):
        assert verbs.wrong(plan) == []


@pytest.mark.parametrize("topic", ["__cluster_metadata", "tiered"])
def test_metadata_and_tiered_topics_are_never_touched(topic: str, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / "t-0").rename(path / f"{topic}-0")
    set_points(path, {topic: 250, "o": 0})
    topics = tmp_path / "topics.json"
    topics.write_text('{"tiered": {"remote.storage.enable": "true"}}')
    plan = Verbs(path, topic_config=str(topics)).plan()
    assert part(plan, f"{topic}-0").status == "left alone"
    assert raised(plan) == {"o": 3}


@pytest.mark.parametrize(
    "text", ["0\n7\nt 0 250\n", "0\n3\nt 0 250\nt 0 300\no 0 0\n"], ids=["cut", "two lines of one"]
)
def test_damaged_recovery_points_leave_everything_alone(text: str, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / POINTS).write_text(text)
    plan = Verbs(path).plan()
    assert {one.code for one in plan.partitions} == {"checkpoint"}
    assert raised(plan) == {}


@pytest.mark.parametrize("text", ["0\n7\nt 0 250\n", "0\n2\nt 0 -250\no 0 0\n"], ids=["cut", "negative"])
def test_damaged_recovery_points_keep_no_other_fix_off(text: str, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / POINTS).write_text(text)
    common = {
        "delete_horizon": str(TIME_MS),
        "broker_version": "3.9.2",
        "settings": (("index.interval.bytes", "200"), ("cleanup.policy", "compact")),
    }
    fixes = ("markers",)
    if "-250" not in text:  # apply would refuse it: the fence lowers a line of the file
        with pytest.raises(PersonDecidesError, match="is damaged: byte 2") as caught:
            Verbs(path, fixes=fixes, **common).plan()
        assert "--fix markers,checkpoints " in str(caught.value.next_command)
        fixes = ("markers", "checkpoints")
    verbs = Verbs(path, fixes=fixes, **common)
    plan = verbs.plan()
    assert (part(plan, "t-0").status, plan.commit.fence) == ("change", True)
    with there_and_back(path, plan, verbs.options()):
        assert verbs.wrong(plan) == []


def test_without_a_file_of_recovery_points_everything_is_made_ready_and_the_file_comes_and_goes(
    tmp_path: Path,
) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / POINTS).unlink()
    verbs = Verbs(path)
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": 450, "o": 3}
        found, like = (path / POINTS).stat(), (path / "replication-offset-checkpoint").stat()
        assert (found.st_uid, found.st_gid, found.st_mode) == (like.st_uid, like.st_gid, like.st_mode)
        assert verbs.wrong(plan) == []


def test_standing_fence_refuses_the_plan(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / "o-0" / "krepair~0123abcd" / "fence").mkdir(parents=True)
    with pytest.raises(RefusedError, match="recovery guard"):
        Verbs(path).plan()


@pytest.mark.parametrize(
    ("version", "rolls"), [("2.2.1", False), ("2.3.1", False), ("", False), ("2.4.0", True), ("4.3.1", True)]
)
def test_offsets_topic_is_rolled_from_2_4_on(version: str, rolls: bool, tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / "t-0").rename(path / "__consumer_offsets-0")
    set_points(path, {"__consumer_offsets": 250, "o": 0})
    plan = Verbs(path, broker_version=version).plan()
    assert rolled(plan) == ({"__consumer_offsets-0", "o-0"} if rolls else {"o-0"})
    assert raised(plan) == {"__consumer_offsets": 450, "o": 3}


def sums(plan: Plan) -> str:
    """What the plan says of the next start."""
    assert plan.root is not None
    return plan.root.changes[0].reason


@pytest.mark.parametrize(("version", "who"), [("2.2.1", "the broker is older than 2.4"), ("", "not known")])
@pytest.mark.parametrize(
    ("topic", "point"),
    [("__consumer_offsets", 250), ("__transaction_state", 430), ("__consumer_offsets", 450)],
)
def test_the_plan_names_what_a_start_still_reads_of_a_topic_of_coordinators(
    topic: str, point: int, version: str, who: str, tmp_path: Path
) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / "t-0").rename(path / f"{topic}-0")
    set_points(path, {topic: point, "o": 0})
    last = (path / f"{topic}-0" / f"{400:020d}.log").stat().st_size
    text = sums(Verbs(path, broker_version=version).plan())
    assert f"afterwards it still reads {last:,} bytes of 1 partition: {topic}-0 (" in text
    assert who in text
    assert "KAFKA-9065" in text
    assert f" bytes of {'1 partition' if point > 400 else '2 partitions'} that this plan makes ready" in text


def test_the_plan_says_that_a_start_reads_nothing_where_all_get_a_new_segment(tmp_path: Path) -> None:
    plan = Verbs(write_unclean(tmp_path / "logs")).plan()
    assert sums(plan).endswith("afterwards it reads nothing of the partitions of this plan")
    assert any("bytes of 1 segment, afterwards 0" in note for note in part(plan, "o-0").notes)
    assert any("bytes of 3 segments, afterwards 0" in note for note in part(plan, "t-0").notes)


def test_the_plan_counts_the_bytes_of_what_is_left_alone(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    damaged(path)
    unread = sum(file.stat().st_size for file in (path / "t-0").glob("*.log") if int(file.stem) >= 200)
    text = sums(Verbs(path).plan())
    assert f"afterwards it still reads {unread:,} bytes of 1 partition: t-0 (left alone, code damage)" in text


def test_point_at_the_log_end_gets_a_new_segment_without_a_changed_line(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs", {"t": 450, "o": 3})
    verbs = Verbs(path)
    plan = verbs.plan()
    assert (rolled(plan), raised(plan)) == ({"t-0", "o-0"}, {})
    with there_and_back(path, plan, verbs.options()):
        assert verbs.wrong(plan) == []
        again = verbs.plan()
        assert (rolled(again), raised(again)) == (set(), {})


def test_check_advises_it_while_there_is_something_to_win_and_not_afterwards(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    verbs = Verbs(path)
    assert "recovery" in str(check([str(path)], verbs.options()).next_command)
    verbs.apply(verbs.plan())
    assert "recovery" not in str(check([str(path)], verbs.options()).next_command)


def test_partitions_below_the_high_watermark_are_listed(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    (path / "replication-offset-checkpoint").write_text("0\n2\nt 0 470\no 0 3\n")
    plan = Verbs(path).plan()
    told = {risk.code: risk.text for risk in plan.risks}
    assert "the stop stays a crash" in told["still-unclean"]
    assert "t-0 (450 of 470)" in told["below-high-watermark"]
    assert "offsets 450 to 469" in " ".join(part(plan, "t-0").notes)


@pytest.mark.parametrize(
    "others",
    [
        ("tail",),
        ("index",),
        ("index=regenerate",),
        ("epochs",),
        ("snapshots",),
        ("checkpoints",),
        ("markers",),
        ("checkpoints", "epochs", "index", "leftovers", "markers", "snapshots", "tail"),
    ],
)
@pytest.mark.parametrize("torn", ["", "log", "indexes"])
def test_together_with_other_fixes_each_file_is_changed_once(
    others: tuple[str, ...], torn: str, tmp_path: Path
) -> None:
    path = write_unclean(tmp_path / "logs")
    log = path / "t-0" / f"{400:020d}.log"
    if torn == "log":
        log.write_bytes(log.read_bytes() + bytes(90))
    if torn == "indexes":  # those of the active segment, which is closed then
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).write_bytes(b"  ")
    (path / "t-0" / f"{300:020d}.timeindex").write_bytes(bytes(24))
    (path / "t-0" / f"{300:020d}.snapshot").unlink()
    epochs = b"0\n0\n" if "epochs" in others else b"0\n1\n0 0\n"
    (path / "t-0" / "leader-epoch-checkpoint").write_bytes(epochs)
    verbs = Verbs(
        path, fixes=tuple(sorted((*others, "recovery"))), delete_horizon=str(TIME_MS), broker_version="3.9.2"
    )
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": 450, "o": 3}
        assert verbs.wrong(plan) == []


def test_plan_names_the_other_log_dirs_of_the_broker_that_were_not_stopped_cleanly(tmp_path: Path) -> None:
    path, other, clean = (write_unclean(tmp_path / name) for name in ("logs", "other", "clean"))
    (clean / ".kafka_cleanshutdown").touch()
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={path},{other},{clean},{tmp_path}/not-there\n")
    plan = Verbs(path, config=str(config)).plan()
    assert plan.root is not None
    told = [note for note in plan.root.notes if "log directory" in note]
    assert told == [
        f"recovery: {other} is another log directory of this broker; without a plan of its own the start recovers it"
    ]
    assert not any("log directory" in note for note in (Verbs(path).plan().root or plan.root).notes)
