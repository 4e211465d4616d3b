"""Facts files as evidence: a marker goes only if the facts of every other replica say that nobody needs it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from krepair.errors import ExitCode, RefusedError, StalePlanError, UnreadableError, UsageError
from krepair.logdir.cluster import read_cluster_file
from krepair.logdir.values import LogDir as LogDirView
from krepair.logdir.values import Partition
from krepair.ops import held
from krepair.ops.facts import facts
from krepair.ops.preview import make_preview
from krepair.ops.show import show_view
from krepair.options import Engine, Options
from krepair.plan.diff import diff_plans
from krepair.plan.review import review
from tests.builders import Batch, LogDir, emptied
from tests.compaction.directories import topic_config
from tests.ops.replica_scenes import OLD, left_in, watermark
from tests.ops.replicas_read import FIXES, applied, broker, cleaned, evidence, value, verbs, whole

pytestmark = pytest.mark.replicas
METADATA = Path(__file__).resolve().parents[1] / "logdir" / "metadata_logs" / "3.9.2-b2-b3-down"


def recovery_point(log_dir: Path, offset: int) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")


def other(root: Path, number: int, batches: Sequence[Batch], *, flushed: int = 10, **more: str) -> Path:
    """Another broker, of which a recovery point is recorded, and its facts ``b2.facts``."""
    log_dir = broker(root, number, batches, **more)
    recovery_point(log_dir, flushed)
    return taken(root, number)


def taken(root: Path, number: int, **more: object) -> Path:
    out = root / f"b{number}.facts"
    report = facts([str(root / f"b{number}")], str(out), Options(engine=Engine.INLINE, now_ms=OLD, **more))  # type: ignore[arg-type]
    assert report.exit_code is ExitCode.DONE
    return out


def test_markers_that_nobody_needs_go_by_facts_and_tombstones_stay(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    given = [f"{number}={other(tmp_path, number, cleaned())}" for number in (2, 3)]
    for fix in FIXES:
        plan = applied(verbs(tmp_path, fix, *given))
        assert evidence(plan).kind == "replicas", evidence(plan).why
        assert [one.reach for one in evidence(plan).facts] == [10, 10]
        left = left_in(tmp_path / "b1" / "t-0")
        assert left.markers == ()
        assert left.tombstones == 1


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("third", ["facts", "directory"])
def test_what_another_replica_still_holds_keeps_its_marker(fix: str, third: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    behind = [batch for batch in whole() if batch.base_offset in {0, 1, 2, 3, 5, 6, 7}]
    given = [f"2={other(tmp_path, 2, cleaned())}", f"3={other(tmp_path, 3, behind)}"]
    if third == "directory":
        given[1] = f"3={tmp_path}/b3"
    applied(verbs(tmp_path, fix, *given))
    assert left_in(tmp_path / "b1" / "t-0").markers == (2,)


def test_an_emptied_batch_in_facts_holds_its_marker(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    given = f"2={other(tmp_path, 2, [emptied(1, pid=7, timestamp=OLD), *cleaned()])}"
    applied(verbs(tmp_path, "compact", given, replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").markers == (2,)


@pytest.mark.parametrize("what", ["log end", "high watermark", "recovery point"])
@pytest.mark.parametrize("at", [2, 3, 5, 6])
def test_facts_speak_only_below_log_end_high_watermark_and_recovery_point(
    what: str, at: int, tmp_path: Path
) -> None:
    """Markers at 2 and 5: each goes only if all three were above it when the facts were taken."""
    broker(tmp_path, 1, cleaned())
    log_dir = broker(tmp_path, 2, cleaned())
    recovery_point(log_dir, 10)
    if what == "log end":
        shutil.rmtree(log_dir)
        made = LogDir(log_dir)
        made.partition("t", index_interval_bytes=200).segment(
            value(at - 1, "last"), base_offset=0, mtime_ms=OLD
        )
        made.write()
        (log_dir / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
        watermark(log_dir, at)
        recovery_point(log_dir, at)
    elif what == "high watermark":
        watermark(log_dir, at)
    else:
        recovery_point(log_dir, at)
    plan = applied(verbs(tmp_path, "compact", f"2={taken(tmp_path, 2)}", replicas="1,2"))
    assert evidence(plan).facts[0].reach == at
    assert left_in(tmp_path / "b1" / "t-0").markers == tuple(marker for marker in (2, 5) if marker >= at)


# -- what is missing


def test_facts_that_say_nothing_of_a_replica_keep_everything(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned(), topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    for number in range(2, 10):
        broker(tmp_path, number, cleaned())
        recovery_point(tmp_path / f"b{number}", 10)
        (tmp_path / f"b{number}" / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
    (tmp_path / "b2" / "t-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBQ\n"
    )
    shutil.move(tmp_path / "b3" / "t-0", tmp_path / "b3" / "u-0")
    (tmp_path / "b4" / "t-0" / f"{0:020d}.log.cleaned").write_bytes(b"")
    (tmp_path / "b5" / "t-0" / "krepair~0123abcd").mkdir()
    log = tmp_path / "b6" / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\x77")
    watermark(tmp_path / "b7", 11)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path}/b8,{tmp_path}/b8-more\n")
    said: dict[int, tuple[str, dict[str, object]]] = {
        2: ("topic id", {}),
        3: ("0 folders", {}),
        4: ("leftovers", {}),
        5: ("keeps originals", {}),
        6: ("CRC-32C", {}),
        7: ("cut", {}),
        8: ("b8-more was not read", {"config": str(config)}),
        9: ("nothing is said of the transactions", {"topics": ("other",)}),
    }
    for number, (why, more) in said.items():
        plan = verbs(tmp_path, "compact", f"2={taken(tmp_path, number, **more)}", replicas="1,2").plan()
        assert evidence(plan).kind == "none", number
        assert why in evidence(plan).why, evidence(plan).why
        assert review(plan) == []


def test_a_folder_that_is_about_to_become_a_replica_stands_in_the_facts(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    other(tmp_path, 2, cleaned())
    future = broker(tmp_path / "elsewhere", 5, whole())
    shutil.copytree(future / "t-0", tmp_path / "b2" / f"t-0.{'a' * 32}-future")
    applied(verbs(tmp_path, "compact", f"2={taken(tmp_path, 2)}", replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)


def test_a_replica_that_is_assigned_and_not_given_keeps_everything(tmp_path: Path) -> None:
    """Of the running cluster a new replica stands in --describe: what was taken before it says nothing of it."""
    broker(tmp_path, 1, cleaned())
    given = [f"{number}={other(tmp_path, number, cleaned())}" for number in (2, 3)]
    plan = verbs(tmp_path, "compact", *given, replicas="1,2,3,4").plan()
    assert "replica 4 is not given" in evidence(plan).why
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)


def test_a_replica_that_was_assigned_to_another_directory_since_keeps_everything(tmp_path: Path) -> None:
    """The metadata log of a real cluster of 3.9.2 has the directory of each replica."""
    assert METADATA.is_dir()
    line = read_cluster_file(str(METADATA)).partitions["two", 0]
    assert line.replicas == (1, 2)
    for number in (1, 2):
        folder = broker(tmp_path, number, cleaned())
        (folder / "t-0").rename(folder / "two-0")
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (folder / name).write_text("0\n1\ntwo 0 10\n")
    kinds = []
    for directory_id in (line.directories[1], line.directories[0]):
        (tmp_path / "b2" / "meta.properties").write_text(
            f"version=1\nnode.id=2\ncluster.id=c\ndirectory.id={directory_id}\n"
        )
        run = verbs(tmp_path, "compact", f"2={taken(tmp_path, 2)}")
        topics = topic_config(tmp_path, None, "two")
        run.given = dataclasses.replace(run.given, cluster=str(METADATA), topic_config=str(topics))
        kinds.append(evidence(run.plan()).kind)
    assert kinds == ["replicas", "none"]


# -- the facts of a running broker


def test_of_a_log_that_grows_while_it_is_read_the_active_segment_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(tmp_path, 1, cleaned())
    other(tmp_path, 2, cleaned())
    active = tmp_path / "b2" / "t-0" / f"{9:020d}.log"
    from krepair.logdir.view import read_partition as real

    def growing(view: LogDirView, folder: str) -> Partition:
        with active.open("ab") as log:
            log.write(value(9 + growing.calls, "more").raw)  # type: ignore[attr-defined]
        growing.calls += 1  # type: ignore[attr-defined]
        return real(view, folder)

    growing.calls = 1  # type: ignore[attr-defined]
    monkeypatch.setattr(held, "read_partition", growing)
    plan = applied(verbs(tmp_path, "compact", f"2={taken(tmp_path, 2)}", replicas="1,2"))
    assert evidence(plan).facts[0].reach == 9
    assert left_in(tmp_path / "b1" / "t-0").markers == ()


# -- files that are not what they say


def test_facts_of_another_broker_or_cluster_are_refused(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    with pytest.raises(UsageError, match="are of broker 2, not 3"):
        verbs(tmp_path, "compact", f"3={file}").plan()
    (tmp_path / "b2" / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=d\n")
    with pytest.raises(RefusedError, match="are of cluster d, expected c"):
        verbs(tmp_path, "compact", f"2={taken(tmp_path, 2)}").plan()


def test_a_broker_is_given_once_as_directory_or_as_facts(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    for twice in ((f"2={file}", f"2={tmp_path}/b2"), (f"2={file}", f"2={file}")):
        with pytest.raises(UsageError, match="given twice"):
            verbs(tmp_path, "compact", *twice).plan()


def test_facts_that_are_cut_or_changed_are_unreadable_wherever_it_is(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, whole())
    raw = file.read_bytes()
    run = verbs(tmp_path, "compact", f"2={file}", replicas="1,2")
    for place in range(0, len(raw), max(len(raw) // 40, 1)):
        flipped = bytearray(raw)
        flipped[place] ^= 4
        for content in (bytes(flipped), raw[:place]):
            file.write_bytes(content)
            with pytest.raises((UnreadableError, RefusedError)):
                run.plan()


# -- apply, preview


def test_apply_needs_the_same_facts_again(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={file}", replicas="1,2")
    plan = run.plan()
    raw = file.read_bytes()
    for content in (raw[:-1], taken(tmp_path, 2, topics=("t",)).read_bytes() + b"x", b""):
        file.write_bytes(content)
        with pytest.raises(StalePlanError, match="the facts of broker 2"):
            run.apply(plan)
    recovery_point(tmp_path / "b2", 3)
    taken(tmp_path, 2)
    with pytest.raises(StalePlanError, match="are not those of the plan"):
        run.apply(plan)
    os.unlink(file)
    with pytest.raises(StalePlanError):
        run.apply(plan)
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)
    file.write_bytes(raw)
    assert run.apply(plan).exit_code is ExitCode.DONE
    os.unlink(file)
    assert run.verify(plan).problems == ()
    assert run.undo(plan).exit_code is ExitCode.DONE


def test_a_preview_asks_the_facts_again_and_says_what_changed(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={file}", replicas="1,2")
    preview = make_preview(str(run.log_dir), run.given)
    assert evidence(preview).kind == "replicas"
    recovery_point(tmp_path / "b2", 3)
    taken(tmp_path, 2)
    planned = run.plan()
    assert evidence(planned).facts[0].reach == 3
    changed = next(one for one in diff_plans(preview, planned).partitions if one.folder == "t-0")
    assert any(one.what.startswith("evidence.facts") for one in changed.differences), changed.differences


def test_the_plan_says_whose_facts_they_are_how_old_and_whom_the_reviewer_trusts(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    plan = verbs(tmp_path, "compact", f"2={file}", replicas="1,2").plan()
    text = " ".join(show_view(plan, "P").sections[0].lines)
    for words in (str(file), evidence(plan).facts[0].digest[:16], "proves no sender", "taken"):
        assert words in text, words


def test_a_replica_with_more_headers_than_anybody_reads_is_told_when_the_facts_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krepair.pipeline.replicas.facts._HEADERS_AT_MOST", 10)
    broker(tmp_path, 2, whole())
    report = facts([str(tmp_path / "b2")], str(tmp_path / "f"), Options(engine=Engine.INLINE, now_ms=OLD))
    assert report.exit_code is not ExitCode.DONE
    assert "give its directory" in " ".join(report.failed)
