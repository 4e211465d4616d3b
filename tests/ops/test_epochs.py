"""Leader epoch checkpoints of real log directories: what comes back, and what is left. Damages are in the corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from tests.builders import LogDir, data
from tests.fixture_dirs import unpack
from tests.old_messages import plain
from tests.ops.inline import Inline, there_and_back
from tests.ops.scene import part

NAME = "leader-epoch-checkpoint"
INTACT = "leader-epochs-2.2.1"
ALL_EPOCHS = b"0\n7\n0 0\n2 40\n4 80\n6 120\n8 160\n10 200\n12 240\n"
SOME_EPOCHS = b"0\n5\n0 0\n4 40\n6 80\n10 120\n12 160\n"
NOW_MS = 1_790_000_000_000


VERBS = Inline(now_ms=NOW_MS, fixes=("epochs",))
options, checked, planned = VERBS.options, VERBS.checked, VERBS.planned


def found(log_dir: Path) -> dict[str, set[str]]:
    """Partition -> rules of its epochs."""
    out: dict[str, set[str]] = {}
    for finding in checked(log_dir).findings:
        if finding.rule in {"KR401", "KR402"}:
            out.setdefault(finding.partition, set()).add(finding.rule)
    return out


@pytest.mark.parametrize("damage", ["deleted", "empty"])
def test_history_that_is_gone_is_forecast_to_be_forgotten(tmp_path: Path, damage: str) -> None:
    lines = {line.partition: line for line in checked(unpack(f"{INTACT}-{damage}", tmp_path)).forecast}
    assert {line.expected for line in lines.values()} == {"start"}
    assert "its 7 leader epochs are forgotten" in lines["e-all-0"].text
    assert "forgotten" not in lines["e-none-0"].text


REBUILT = [
    # fixture, partition, intact file, rebuilt file (None: no entry can come back, nothing is planned), late epochs
    (INTACT, "e-all-0", ALL_EPOCHS, ALL_EPOCHS, False),
    (INTACT, "e-some-0", SOME_EPOCHS, SOME_EPOCHS, False),
    (INTACT, "e-none-0", b"0\n1\n12 0\n", None, False),  # of a leader without data
    ("offsets-bloat-2.2.0-clean", "__consumer_offsets-0", b"0\n1\n0 0\n", b"0\n1\n0 0\n", False),
    ("offsets-bloat-2.2.0-clean", "__consumer_offsets-1", b"0\n1\n0 0\n", b"0\n1\n0 2\n", True),
    ("offsets-bloat-2.2.0-clean", "__transaction_state-0", b"0\n1\n0 0\n", b"0\n1\n0 9063\n", True),
    ("offsets-bloat-2.2.0-clean", "t-a-0", b"0\n1\n0 0\n", None, False),
    ("offsets-cleaned-2.2.1", "__consumer_offsets-1", b"0\n1\n0 0\n", b"0\n1\n0 9059\n", True),
    ("offsets-tv2-4.3.1", "__consumer_offsets-0", b"0\n1\n2 0\n", b"0\n1\n2 2\n", True),
    ("offsets-tv2-4.3.1", "t-b-1", b"0\n1\n2 0\n", None, False),
    ("compact-2.2.1-before", "c-none-0", b"0\n1\n0 0\n", b"0\n1\n0 0\n", False),
    ("compact-2.2.1-after-2.2.1", "c-none-0", b"0\n1\n0 0\n", b"0\n1\n0 480\n", True),
    ("oldformat-2.2.1-before", "mixed-0", b"0\n1\n0 968\n", b"0\n1\n0 968\n", False),
    ("timeindex-ok-2.2.1", "f-t-0", b"0\n1\n0 0\n", b"0\n1\n0 0\n", False),
]


@pytest.mark.parametrize(
    ("fixture", "folder", "intact", "rebuilt", "late"), REBUILT, ids=[f"{row[0]} {row[1]}" for row in REBUILT]
)
def test_intact_file_needs_nothing_and_deleted_gives_back_what_the_log_still_shows(
    tmp_path: Path, fixture: str, folder: str, intact: bytes, rebuilt: bytes | None, late: bool
) -> None:
    """What cannot come back: epochs without a batch, and starts whose first batches compaction has taken."""
    log_dir = unpack(fixture, tmp_path)
    path = log_dir / folder / NAME
    topic, _, number = folder.rpartition("-")
    compacted = (("cleanup.policy", "compact"),) if topic.startswith("c-") else ()
    given = {"partitions": ((topic, int(number)),), "settings": compacted}
    assert path.read_bytes() == intact
    assert planned(log_dir, **given).partitions[0].changes == ()
    path.unlink()
    plan = planned(log_dir, **given)
    assert any("may start late" in note for note in plan.partitions[0].notes) is late
    apply(plan, options())
    assert (path.read_bytes() if path.exists() else None) == rebuilt


def test_deleted_history_rebuilt_for_a_2_2_broker_leaves_epoch_zero_out(tmp_path: Path) -> None:
    log_dir = unpack(f"{INTACT}-deleted", tmp_path)
    apply(planned(log_dir, broker_version="2.2.1"), options())
    assert (log_dir / "e-all-0" / NAME).read_bytes() == b"0\n6\n2 40\n4 80\n6 120\n8 160\n10 200\n12 240\n"
    assert {each.status for each in planned(log_dir).partitions} == {"nothing"}


@pytest.mark.parametrize(("lines", "rules"), [("0 0", set()), ("0 0\n1 4", set()), ("0 0\n1 6", {"KR402"})])
def test_an_entry_below_the_log_start_is_left_to_the_start(
    tmp_path: Path, lines: str, rules: set[str]
) -> None:
    """So a recovery writes it, and records may be deleted by request before the file follows."""
    directory = LogDir(tmp_path / "logs")
    one = directory.partition("t").segment(data(0, 4), data(4, 4, leader_epoch=1 if "1" in lines else 0))
    log_dir = directory.write(log_starts={"t-0": 2})
    text = f"0\n{len(lines.splitlines())}\n{lines}\n"
    (one.folder / NAME).write_text(text)
    assert {found.rule for found in checked(log_dir).findings} & {"KR401", "KR402"} == rules


TIERED = {"t": {"remote.storage.enable": "true"}}
NOT_TIERED = {"t": {"remote.storage.enable": "false"}}


@pytest.mark.parametrize(
    ("start", "version", "topics", "left"),
    [
        (10, "", None, True),
        (10, "3.6.0", None, True),
        (10, "3.5.2", None, False),
        (10, "", TIERED, True),
        (10, "", NOT_TIERED, False),
        (41, "", None, False),
        (None, "", None, False),
    ],
)
def test_the_epochs_of_remote_segments_stay(
    tmp_path: Path, start: int | None, version: str, topics: dict[str, dict[str, str]] | None, left: bool
) -> None:
    """A broker deletes remote segments before its first epoch. The settings of a tiered topic may not be known."""
    directory = LogDir(tmp_path / "logs")
    one = directory.partition("t").segment(data(40, 4, leader_epoch=3), data(44, 4, leader_epoch=4))
    log_dir = directory.write(log_starts={} if start is None else {"t-0": start})
    (one.folder / NAME).write_bytes(b"0\n3\n0 0\n2 20\n4 44\n")
    file = tmp_path / "topics.json"
    file.write_text(json.dumps(topics))
    given = {"broker_version": version} if topics is None else {"topic_config": str(file)}
    plan = planned(log_dir, **given)
    assert (part(plan, "t-0").code == "tiered") is left
    told = [one.evidence for one in VERBS.found(log_dir, "KR607", **given)]
    assert [("--topic-config FILE" in text) for text in told] == [topics is None] * left
    apply(plan, options(**given))
    new = b"0\n3\n0 0\n2 20\n4 44\n" if left else b"0\n4\n0 0\n2 20\n3 %d\n4 44\n" % max(40, start or 0)
    assert (one.folder / NAME).read_bytes() == new


def test_contradicted_entry_is_told_both_ways_and_the_log_wins(tmp_path: Path) -> None:
    log_dir = unpack(INTACT, tmp_path)
    path = log_dir / "e-all-0" / NAME
    path.write_bytes(path.read_bytes().replace(b"4 80", b"4 90"))
    assert found(log_dir) == {"e-all-0": {"KR402"}}
    plan = planned(log_dir)
    notes = part(plan, "e-all-0").notes
    assert any("recorded to start at 90" in note and "at 80" in note for note in notes)
    assert any("follower" in note for note in notes)
    apply(plan, options())
    assert path.read_bytes() == ALL_EPOCHS


def test_missing_file_takes_owner_and_mode_of_the_log_and_undo_removes_it(tmp_path: Path) -> None:
    log_dir = unpack(f"{INTACT}-deleted", tmp_path)
    for path in (log_dir / "e-all-0").glob("*.log"):
        path.chmod(0o640)
    plan = planned(log_dir)
    with there_and_back(log_dir, plan, options()):
        assert (log_dir / "e-all-0" / NAME).stat().st_mode & 0o777 == 0o640


def test_a_file_that_ends_a_start_is_built_anew_beside_segments_that_overlap(tmp_path: Path) -> None:
    """No epoch is derived from the offsets that two segments share; lines and other batches count."""
    directory = LogDir(tmp_path)
    partition = directory.partition("t")
    partition.segment(data(0, 4), data(4, 4, leader_epoch=1))
    partition.segment(data(6, 2, leader_epoch=3))
    partition.segment(data(8, 2, leader_epoch=2), data(10, 2, leader_epoch=2))
    path = directory.write()
    file = path / "t-0" / NAME
    file.write_bytes(b"0\n3\n0 0\n1 4\n")
    with there_and_back(path, planned(path), options()):
        assert file.read_bytes() == b"0\n3\n0 0\n1 4\n2 8\n"


def test_a_file_that_ends_a_start_is_built_of_its_own_lines_where_the_log_shows_no_epochs(
    tmp_path: Path,
) -> None:
    directory = LogDir(tmp_path)
    partition = directory.partition("t")
    partition.segment(data(0, 4, leader_epoch=1))
    partition.segment(plain(4))
    path = directory.write()
    file = path / "t-0" / NAME
    file.write_bytes(b"0\n3\n0 0\n1 4\n")
    with there_and_back(path, planned(path), options()):
        assert file.read_bytes() == b"0\n2\n0 0\n1 4\n"
    file.write_bytes(b"0\n1\n0 0\n")
    assert not part(planned(path), "t-0").changes


@pytest.mark.parametrize("line", ["-1 0", "x"])
def test_epochs_that_stop_a_start_are_mended_although_old_messages_follow_new_batches(
    tmp_path: Path, line: str
) -> None:
    """Nothing is derived from such a log, but its own other lines stay."""
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(plain(0), data(1), plain(2)).segment(data(3), base_offset=3)
    log_dir = made.write()
    (log_dir / "t-0" / NAME).write_text(f"0\n2\n{line}\n4 3\n")
    plan = planned(log_dir, broker_version="3.9.2")
    assert apply(plan, options()).exit_code == 0
    assert (log_dir / "t-0" / NAME).read_text() == "0\n1\n4 3\n"
    (again,) = planned(log_dir, broker_version="3.9.2").partitions
    assert (again.status, again.changes) == ("nothing", ())
