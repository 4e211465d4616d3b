"""``--fix compact`` through plan, apply, verify, undo and purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.cli.views.writers import markdown
from krepair.errors import ExitCode, RefusedError
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.ops.check import check
from krepair.ops.plan import make_plan, make_preview
from krepair.plan.model import ReplaceFile
from krepair.plan.render import plan_view
from krepair.plan.review import review
from tests import naive
from tests.builders import LogDir, Record, abort, data, emptied
from tests.compaction.cases import OLD, batch, small
from tests.compaction.directories import Verbs, dead_cleaner, groups_of, keys_of, logs, options
from tests.fixture_dirs import unpack
from tests.flips import flip
from tools.torture.scenes import look, visible


def test_a_preview_beside_a_broker_decides_as_the_plan_after_the_stop(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    given = options(tmp_path)
    preview = make_preview(str(log_dir), given)
    made = Verbs(log_dir, given).plan()
    assert keys_of(preview.partitions[0]) == keys_of(made.partitions[0])
    assert preview.partitions[0].changes == made.partitions[0].changes != ()
    assert Verbs(log_dir, given).apply(made).exit_code is ExitCode.DONE


def test_page_of_a_plan_says_what_goes_by_key_and_what_each_horizon_would_do(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    text = markdown(plan_view(Verbs(log_dir, options(tmp_path, delete_horizon="newest")).plan()))
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| t-0 |" in line
    ]
    assert ["t-0", "6", "10", "4", "0", "2", "0", "0", "6"] in [row[:9] for row in cells]
    assert ["t-0", "unlimited", "any time", "305 bytes", "0", "2", "0", ""] in cells
    assert "Records go that have a later record of their key" in text
    assert "Every record that stays is carried over byte for byte" in text
    assert "--scratch DIR" in text
    assert "The plan names the last record of each key in 3 segments: 6 records stay." in text
    assert '"stays"' not in text


@pytest.mark.parametrize("fix", ["markers", "compact"])
def test_marker_of_a_living_producer_that_a_broker_emptied_stays_and_is_verified(
    fix: str, tmp_path: Path
) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    whole = abort(2, pid=7, epoch=1, timestamp=OLD)
    partition.segment(
        abort(0, pid=7, timestamp=OLD),
        whole,
        emptied(3, pid=7, epoch=1, control=True, timestamp=OLD),
        mtime_ms=OLD,
    )
    partition.segment(batch(4, "active"))
    directory.write()
    verbs = Verbs(tmp_path / "logs", options(tmp_path, fixes=(fix,)))
    plan = verbs.plan()
    assert groups_of(plan.partitions[0])[0].sources[0].kept_markers == 2
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(logs(tmp_path / "logs" / "t-0")[0]) == len(whole.raw) + 61
    assert verbs.verify(plan).problems == ()


def test_what_a_broker_appended_since_the_plan_stays_and_hides_nothing(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    verbs = Verbs(log_dir, options(tmp_path))
    plan = verbs.plan()
    active = log_dir / "t-0" / f"{10:020d}.log"
    with active.open("ab") as log:
        log.write(batch(11, "a", "c").raw)
    grown = active.read_bytes()
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(logs(log_dir / "t-0")[0]) == groups_of(plan.partitions[0])[0].log_bytes
    assert active.read_bytes() == grown
    assert verbs.verify(plan).problems == ()
    assert verbs.plan().partitions[0].changes == ()


def test_plan_is_stale_once_what_may_be_compacted_ends_earlier(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    verbs = Verbs(log_dir, options(tmp_path, assume_high_watermark=""))
    plan = verbs.plan()
    assert groups_of(plan.partitions[0])
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    before = visible(look(log_dir))
    assert verbs.apply(plan).exit_code is ExitCode.STALE_PLAN
    assert visible(look(log_dir)) == before


def test_check_names_keys_that_wait_only_where_the_topic_itself_says_compact(tmp_path: Path) -> None:
    log_dir = dead_cleaner(tmp_path / "logs")
    given = options(tmp_path, "changelog")
    report = check([str(log_dir)], given)
    found = {one.partition for one in report.log_dirs[0].findings if one.rule == "KR108"}
    assert found == {"__consumer_offsets-0", "changelog-0"}
    assert "--fix compact" in str(report.next_command)
    for setting in (("cleanup.policy", "compact"), ("cleanup.policy", "delete")):
        other = options(tmp_path, "nothing", settings_given=(setting,))
        (one,) = check([str(log_dir)], other).log_dirs
        rules = {finding.partition for finding in one.findings if finding.rule == "KR108"}
        assert rules == ({"__consumer_offsets-0"} if setting[1] == "compact" else set())


@pytest.mark.parametrize(("place", "told"), [(0, False), (2, False), (8, True)])
def test_check_names_no_keys_that_an_open_transaction_keeps(
    tmp_path: Path, place: int, *, told: bool
) -> None:
    """Before it there is little or nothing to do, and behind it no cleaner compacts anything."""
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("changelog")
    for number in range(14):
        records = [Record(b"key", b"%d" % number)]
        partition.segment(data(number, records, pid=1 if number == place else -1, txn=number == place))
    partition.segment(data(14, 1))
    log_dir = directory.write()
    (one,) = check([str(log_dir)], options(tmp_path, "changelog")).log_dirs
    found = [finding for finding in one.findings if finding.rule == "KR108"]
    assert [finding.evidence.partition(" with ")[0] for finding in found] == ["8 segments"] * told
    (planned,) = make_plan(str(log_dir), options(tmp_path, "changelog")).partitions
    assert bool(planned.changes) or not told


def test_check_names_a_log_of_few_segments_that_no_cleaner_has_ever_seen(tmp_path: Path) -> None:
    log_dir = unpack("compact-2.2.1-before", tmp_path)
    given = options(tmp_path, "c-lat", partitions=(("c-lat", 0),), now_ms=4_000_000_000_000)
    (one,) = check([str(log_dir)], given).log_dirs
    (found,) = [finding for finding in one.findings if finding.rule == "KR108"]
    (partition,) = make_plan(str(log_dir), given).partitions
    assert partition.log_bytes_before == 177_802
    assert partition.log_bytes_after < 25_000
    # At most so much can go, and no promise.
    assert partition.log_bytes_before - partition.log_bytes_after <= found.bytes < partition.log_bytes_before
    assert "cleaner-offset-checkpoint has no entry for this partition" in found.evidence
    # With a line the same log waits for the ratio of its dirty part, which a living cleaner may do, too.
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nc-lat 0 1\n")
    (one,) = check([str(log_dir)], given).log_dirs
    assert not [finding for finding in one.findings if finding.rule == "KR108"]


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ((), {"by-time": "not-asked", "changelog": ""}),
        ((("cleanup.policy", "compact"),), {"by-time": "not-asked", "changelog": "not-asked"}),
    ],
)
def test_topic_is_compacted_only_by_its_own_configuration_even_when_it_is_named(
    settings: tuple[tuple[str, str], ...], codes: dict[str, str], tmp_path: Path
) -> None:
    log_dir = dead_cleaner(tmp_path / "logs")
    given = options(tmp_path, "changelog", settings_given=settings, topics=("by-time", "changelog"))
    plan = Verbs(log_dir, given).plan()
    assert {part.topic: part.code for part in plan.partitions} == codes
    assert {part.topic for part in plan.partitions if part.changes} == {
        topic for topic, code in codes.items() if not code
    }


def test_without_a_name_only_topics_that_ask_for_it_are_planned(tmp_path: Path) -> None:
    log_dir = dead_cleaner(tmp_path / "logs")
    plan = Verbs(log_dir, options(tmp_path, "changelog")).plan()
    assert [part.topic for part in plan.partitions] == ["__consumer_offsets", "changelog"]


def test_markers_and_compact_together_propose_each_partition_once(tmp_path: Path) -> None:
    log_dir = dead_cleaner(tmp_path / "logs")
    compact = Verbs(log_dir, options(tmp_path, "changelog")).plan()
    given = options(
        tmp_path, "changelog", fixes=("compact", "markers"), settings_given=(("cleanup.policy", "compact"),)
    )
    both = Verbs(log_dir, given).plan()
    assert review(both) == []
    changes = {part.topic: part.changes for part in both.partitions}
    assert changes["__consumer_offsets"] == compact.partitions[0].changes
    # --set hides what the topic itself says, so only markers may go there, and there are none
    by_key = {
        topic: [one.loses_records for one in groups_of(part)]
        for topic, part in zip(changes, both.partitions, strict=True)
    }
    assert by_key == {"__consumer_offsets": [True], "by-time": [False], "changelog": [False]}
    assert Verbs(log_dir, given).apply(both).exit_code is ExitCode.DONE


@pytest.mark.parametrize("damaged", [0, 3])
def test_partition_with_damage_below_the_bound_is_left_alone_whole_with_the_position(
    damaged: int, tmp_path: Path
) -> None:
    log_dir = dead_cleaner(tmp_path / "logs")
    log = log_dir / "changelog-0" / f"{10 * damaged:020d}.log"
    flip(log, -1)
    parts = {part.topic: part for part in Verbs(log_dir, options(tmp_path, "changelog")).plan().partitions}
    left = parts["changelog"]
    assert (left.status, left.code, left.changes) == ("left alone", "damage", ())
    assert f"{10 * damaged:020d}.log, position 0" in left.why
    logs = (log_dir / "changelog-0").glob("*.log")
    assert left.uncleanable_bytes == sum(each.stat().st_size for each in logs)
    assert parts["__consumer_offsets"].changes


def test_scratch_inside_of_the_log_directory_is_refused_and_beside_it_only_unasked(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    with pytest.raises(RefusedError, match="inside the log directory"):
        Verbs(log_dir, options(tmp_path, scratch=str(log_dir / "t-0"))).plan()
    with pytest.raises(RefusedError, match="no folder can be made there") as refused:
        Verbs(log_dir, options(tmp_path, scratch=str(tmp_path / "no-such"))).plan()
    assert "krepair" not in str(refused.value.next_command), "what cannot be pasted is in words alone"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    verbs = Verbs(log_dir, options(tmp_path, scratch=str(scratch)))
    plan = verbs.plan()
    assert plan == Verbs(log_dir, options(tmp_path)).plan()
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    assert list(scratch.iterdir()) == []


def test_groups_of_keys_are_freed_together_once_all_of_them_are_proven(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    several = {"segment.bytes": "150"}
    verbs = Verbs(log_dir, options(tmp_path, settings=several, keep="until-verified"))
    before = logs(log_dir / "t-0")
    plan = verbs.plan()
    assert len(groups_of(plan.partitions[0])) > 1
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert not list((log_dir / "t-0").glob("krepair~*/keep/*.log"))
    assert verbs.verify(plan).problems == ()
    assert Verbs(log_dir, options(tmp_path, settings=several)).plan().partitions[0].changes == ()
    assert verbs.undo(plan).exit_code is not ExitCode.DONE
    assert logs(log_dir / "t-0") != before


@pytest.mark.parametrize(("begins", "left"), [(4, [0, 1, 6, 7]), (0, [1, 6, 7])])
def test_records_whose_commit_marker_a_cleaner_has_removed_stay_if_the_index_says_that_the_aborted_begin_later(
    tmp_path: Path, begins: int, left: list[int]
) -> None:
    """Up to 2.2.1 a cleaner removes the marker at offset 3 (KAFKA-8351); a consumer still gets offset 0."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(0, 1, pid=7, txn=True), data(1, 2), data(4, 1, pid=7, txn=True), abort(5, pid=7), data(6)
    ).segment(data(7))
    log_dir = directory.write()
    index = log_dir / "t-0" / f"{0:020d}.txnindex"
    index.write_bytes(txn_index.encode([AbortedTxn(0, 7, begins, 5, 6)]))
    verbs = Verbs(log_dir, options(tmp_path, only_replica=("*",)))
    plan = verbs.plan()
    assert verbs.apply(plan).exit_code == ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    segments, _ = naive.read_partition(log_dir / "t-0")
    batches = [batch for segment in segments for batch in naive.parse(segment.log)]
    assert [batch.base_offset for batch in batches if batch.kind == "data"] == left


@pytest.mark.parametrize("later", [True, False])
def test_an_entry_made_for_an_abort_without_records_hides_none_where_a_later_one_tells(
    tmp_path: Path, *, later: bool
) -> None:
    """The marker of a commit at offset 3 is gone, as cleaners up to 2.2.1 remove it."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(0, 1, pid=7, txn=True), data(1, 2), abort(5, pid=7), data(6, 1, pid=8, txn=True), abort(7, pid=8)
    ).segment(data(8))
    log_dir = directory.write()
    index = log_dir / "t-0" / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes()[34:] if later else b"")
    verbs = Verbs(log_dir, options(tmp_path, only_replica=("*",), fixes=("index=regenerate",)))
    plan = verbs.plan()
    (change,) = plan.partitions[0].changes
    assert isinstance(change, ReplaceFile)
    assert ("had no records" if later else "hides committed ones") in change.reason
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    entries = [
        (one.producer_id, one.first_offset, one.last_offset) for one in txn_index.decode(index.read_bytes())
    ]
    assert entries == [(7, 5 if later else 0, 5), (8, 6, 7)]
    (part,) = Verbs(log_dir, options(tmp_path, only_replica=("*",))).plan().partitions
    assert part.code == ""


def test_records_that_may_be_committed_stay_where_no_index_says_that_they_are_aborted(tmp_path: Path) -> None:
    """As above, and the abort at offset 5 has no entry: brokers since 2.8 write none if nothing was written."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(0, 1, pid=7, txn=True), data(1, 2), abort(5, pid=7), data(6)
    ).segment(data(7))
    log_dir = directory.write()
    (log_dir / "t-0" / f"{0:020d}.txnindex").unlink()
    [part] = Verbs(log_dir, options(tmp_path, only_replica=("*",))).plan().partitions
    assert (part.code, part.changes) == ("txnindex-disagrees", ())
    assert "does not name the abort marker of producer 7 at offset 5" in part.why
    assert str(part.next_command).startswith("krepair compare ")
