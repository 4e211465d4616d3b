"""The checkpoints of the root: found, mended so that a broker can only keep more, taken back; ends that are gone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.checks.catalogue import Severity
from krepair.cli.views.planned import planned_view
from krepair.cli.views.writers import markdown
from krepair.errors import ExitCode, UsageError
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.purge import purge
from krepair.ops.show import show_view
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from tests import builders
from tests.fixture_dirs import readable_by_4, unpack
from tests.ops.checkpoints import (
    CLEANER,
    FILES,
    GOOD,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY,
    checked,
    options,
    planned,
)
from tests.ops.inline import there_and_back
from tests.ops.scene import tree

HEALTHY = (
    "compact-2.2.1-after-2.2.1",
    "leader-epochs-2.2.1",
    "offsets-bloat-2.2.0-clean",
    "offsets-cleaned-2.2.1",
    "offsets-tv2-4.3.1",
    "oldformat-2.2.1-before",
    "timeindex-ok-2.2.1",
)
LOST = ("KR312:e-all-0:280",)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A cleanly stopped 2.2.1 with three partitions of 280, 0 and 200 records."""
    path = readable_by_4(unpack("leader-epochs-2.2.1", tmp_path))
    for name in FILES:
        (path / name).write_bytes(GOOD)
    (path / LOG_START).write_bytes(b"0\n1\ne-all 0 0\n")
    return path


def rules(log_dir: Path, name: str = "") -> set[str]:
    return {
        each.rule
        for each in checked(log_dir).findings
        if each.rule[:3] == "KR4" and each.file == (name or each.file)
    }


@pytest.mark.parametrize("fixture", HEALTHY)
def test_checkpoints_as_brokers_leave_them_need_nothing(tmp_path: Path, fixture: str) -> None:
    path = unpack(fixture, tmp_path)
    assert {rule for name, rule in FILES.items() if rule in rules(path, name)} == set()
    assert planned(path).root is None


def test_a_partition_that_was_moved_away_is_named_and_its_lines_stay(tmp_path: Path) -> None:
    """The fixture is without the ``__transaction_state`` that its broker had."""
    path = unpack("compact-2.2.1-before", tmp_path)
    (found,) = [each for each in checked(path).findings if each.rule in {*FILES.values(), "KR312"}]
    assert (found.rule, found.fix, found.severity) == ("KR312", "none", Severity.CONFUSING)
    assert "__transaction_state-0" in found.evidence
    assert "not here" in found.evidence
    assert "checkpoints" not in str(check([str(path)], options()).next_command)
    plan = planned(path)
    assert plan.root is None
    page = planned_view(plan, "P")
    assert "__transaction_state-0" in " ".join(line for section in page.sections for line in section.lines)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:-6],
    "garbage": lambda data: b"garbage\n",
    "count too high": lambda data: b"0\n9" + data[3:],
    "count -1": lambda data: b"0\n-1" + data[3:],
}


def test_a_line_past_the_end_is_mended_beside_a_half_cleaned_file(log_dir: Path) -> None:
    """A start deletes it, and takes the log end from the segments."""
    (log_dir / CLEANER).write_bytes(GOOD.replace(b"e-all 0 200", b"e-all 0 281"))
    (log_dir / "e-all-0" / f"{0:020d}.log.cleaned").write_bytes(b"")
    plan = planned(log_dir)
    assert plan.root is not None
    assert [change.name for change in plan.root.changes] == [CLEANER]
    with there_and_back(log_dir, plan, options()):
        assert planned(log_dir).root is None


def test_all_four_at_once_and_purge_leaves_nothing_behind(log_dir: Path) -> None:
    for name in FILES:
        (log_dir / name).write_bytes(GOOD.replace(b"e-all 0 200", b"e-all 0 999"))
    plan = planned(log_dir, accepted_losses=LOST)
    page = str(show_view(plan, "PLAN"))
    assert all(name in page for name in FILES)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert {name: (log_dir / name).read_bytes() for name in FILES} == {
        RECOVERY: GOOD.replace(b"200", b"280"),
        HIGH_WATERMARK: GOOD.replace(b"200", b"280"),
        LOG_START: b"0\n2\ne-none 0 0\ne-some 0 160\n",
        CLEANER: b"0\n2\ne-none 0 0\ne-some 0 160\n",
    }
    assert {each.outcome for each in apply(plan, options()).results} == {"already"}
    assert {each.outcome for each in purge(plan, options()).results} == {"purged"}
    assert not [path for path in log_dir.rglob("*") if "~" in path.name]
    assert {each.outcome for each in undo(plan, options()).results} == {"failed"}


def test_file_that_a_broker_wrote_since_is_neither_replaced_nor_put_back(log_dir: Path) -> None:
    (log_dir / RECOVERY).write_bytes(DAMAGES["count too high"](GOOD))
    plan = planned(log_dir)
    (log_dir / RECOVERY).write_bytes(GOOD.replace(b"200", b"280"))
    report = apply(plan, options())
    assert ({each.outcome for each in report.results}, report.exit_code) == ({"failed"}, ExitCode.STALE_PLAN)
    assert (log_dir / RECOVERY).read_bytes() == GOOD.replace(b"200", b"280")
    assert not [path for path in log_dir.rglob("*") if "~" in path.name]

    (log_dir / RECOVERY).write_bytes(DAMAGES["count too high"](GOOD))
    plan = planned(log_dir)
    apply(plan, options())
    (log_dir / RECOVERY).write_bytes(b"0\n1\ne-all 0 280\n")
    assert {each.outcome for each in undo(plan, options()).results} == {"failed"}
    assert (log_dir / RECOVERY).read_bytes() == b"0\n1\ne-all 0 280\n"


def test_log_that_grew_since_the_plan_stops_the_mending(log_dir: Path) -> None:
    (log_dir / HIGH_WATERMARK).write_bytes(GOOD.replace(b"e-all 0 200", b"e-all 0 281"))
    plan = planned(log_dir, accepted_losses=LOST)
    last = max((log_dir / "e-all-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    assert apply(plan, options()).exit_code == ExitCode.STALE_PLAN
    assert (log_dir / HIGH_WATERMARK).read_bytes() == GOOD.replace(b"e-all 0 200", b"e-all 0 281")


def test_log_start_past_the_end_is_forecast_to_delete_that_partition_alone(log_dir: Path) -> None:
    (log_dir / LOG_START).write_bytes(b"0\n1\ne-all 0 281\n")
    lines = {line.partition: line.expected for line in checked(log_dir).forecast}
    assert lines == {"e-all-0": "delete", "e-none-0": "start", "e-some-0": "start"}
    (log_dir / LOG_START).write_bytes(b"0\n1\ne-all 0 280\n")
    assert {line.expected for line in checked(log_dir).forecast} == {"start"}


@pytest.mark.parametrize(
    ("name", "damage", "version", "expected", "word"),
    [
        (RECOVERY, "truncated", "2.2.1", "refuse", "cannot be read"),
        (RECOVERY, "truncated", "4.4.0", "refuse", "cannot be read"),
        (RECOVERY, "count -1", "2.2.1", "refuse", "cannot be read"),
        (RECOVERY, "count -1", "3.9.2", "start", "reset to 0"),
        (LOG_START, "count -1", "4.4.0", "start", "first segments' base offsets"),
        (LOG_START, "garbage", "", "refuse", "cannot be read"),
        (HIGH_WATERMARK, "garbage", "2.2.1", "refuse", "2.x starts, but stops"),
        (HIGH_WATERMARK, "count -1", "3.9.2", "start", "does not serve"),
        (CLEANER, "count -1", "4.4.0", "start", "cleaner is dead"),
        (CLEANER, "count -1", "", "refuse", "cannot be read"),
    ],
)
def test_forecast_of_an_unreadable_file_goes_by_version(
    log_dir: Path, name: str, damage: str, version: str, expected: str, word: str
) -> None:
    (log_dir / name).write_bytes(DAMAGES[damage](GOOD))
    for line in checked(log_dir, broker_version=version).forecast:
        assert line.expected == expected
        assert word in line.text


def test_file_too_large_to_be_read_is_told_and_left(log_dir: Path) -> None:
    with (log_dir / RECOVERY).open("wb") as file:
        file.truncate(100 << 20)
    assert rules(log_dir, RECOVERY) == {"KR403"}
    assert planned(log_dir).root is None
    assert {line.expected for line in checked(log_dir).forecast} == {"refuse"}


def test_check_ends_with_the_command_that_mends_all_of_it(log_dir: Path) -> None:
    (log_dir / RECOVERY).write_bytes(b"garbage\n")
    (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"garbage\n")
    report = check([str(log_dir)], options())
    assert str(report.next_command) == f"krepair plan {log_dir} --fix epochs,checkpoints --out PLAN"


def test_half_written_checkpoint_is_told(log_dir: Path) -> None:
    (log_dir / f"{RECOVERY}.tmp").write_bytes(b"0\n")
    assert rules(log_dir, f"{RECOVERY}.tmp") == {"KR406"}


def test_directory_without_a_partition_folder_has_no_place_to_keep_originals(log_dir: Path) -> None:
    for path in log_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    (log_dir / RECOVERY).write_bytes(b"garbage\n")
    assert planned(log_dir).root is None
    assert rules(log_dir, RECOVERY) == {"KR403"}


def test_meta_properties_of_another_cluster_or_copied_are_reported_and_left(tmp_path: Path) -> None:
    one, two = unpack("offsets-tv2-4.3.1", tmp_path / "1"), unpack("offsets-tv2-4.3.1", tmp_path / "2")
    meta = two / "meta.properties"
    same = [
        each for each in check([str(one), str(two)], options()).log_dirs[0].findings if each.rule == "KR407"
    ]
    assert ["one is a copy of the other" in each.evidence for each in same] == [True]
    meta.write_text(
        re.sub(r"directory\.id=.", "directory.id=z", meta.read_text()).replace("cluster.id=", "cluster.id=x")
    )
    before = tree(two)
    found = [each for report in check([str(one), str(two)], options()).log_dirs for each in report.findings]
    assert [each.evidence.split()[0] for each in found if each.rule == "KR407"] == [
        "cluster.id",
        "cluster.id",
    ]
    meta.write_text("version=9\n")
    assert "KR407" in rules(two)
    meta.unlink()
    assert "KR407" in rules(two)
    assert {path: row for path, row in tree(two).items() if path != "meta.properties"} == {
        path: row for path, row in before.items() if path != "meta.properties"
    }


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", "refuse"), (b"version: 0\ntopic_id: x\n", "refuse"), (None, "stray")]
)
def test_partition_metadata_is_reported_and_forecast(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    path = unpack("offsets-tv2-4.3.1", tmp_path)
    file = path / "t-a-0" / "partition.metadata"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    report = checked(path)
    assert [each.partition for each in report.findings if each.rule == "KR408"] == ["t-a-0"]
    assert {
        line.expected for line in report.forecast if expected == "refuse" or line.partition == "t-a-0"
    } == {expected}
    before_kraft = checked(
        path, broker_version="2.2.1"
    )  # it reads no partition.metadata, and nothing of KRaft
    assert "KR805" in {each.rule for each in before_kraft.findings}
    assert all("partition.metadata" not in line.text for line in before_kraft.forecast)


def test_another_topic_id_is_told_of_every_partition_of_the_topic(tmp_path: Path) -> None:
    path = unpack("offsets-tv2-4.3.1", tmp_path)
    shutil.copy(path / "t-b-0" / "partition.metadata", path / "t-a-0" / "partition.metadata")
    found = {each.partition for each in checked(path).findings if each.rule == "KR408"}
    assert found == {"t-a-0", "t-a-1"}


# -- Logs that end below what the last clean stop recorded: said once, and nothing takes the evidence away by
# itself.

FOLDER = "t-0"
SECOND = f"{10:020d}"


@pytest.fixture
def two_segments(tmp_path: Path) -> Path:
    """A clean stop of a partition with offsets 0 to 9 and 10 to 19, and of another one."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    for base in (0, 10):
        one.segment(*(builders.data(base + place, 1, timestamp=builders.NOW_MS) for place in range(10)))
    made.partition("other").segment(builders.data(0, 3))
    return made.write()


def log_of(two_segments: Path, name: str = SECOND) -> Path:
    return two_segments / FOLDER / f"{name}.log"


def without_log(two_segments: Path) -> None:
    log_of(two_segments).unlink()


def without_segment(two_segments: Path) -> None:
    for path in (two_segments / FOLDER).glob(f"{SECOND}.*"):
        path.unlink()


def at_a_batch(two_segments: Path) -> None:
    data = log_of(two_segments).read_bytes()
    log_of(two_segments).write_bytes(data[: len(data) // 2])
    for suffix in ("index", "timeindex"):
        log_of(two_segments).with_suffix(f".{suffix}").write_bytes(b"")


def within_a_batch(two_segments: Path) -> None:
    data = log_of(two_segments).read_bytes()
    log_of(two_segments).write_bytes(data[: len(data) // 2 + 5])


def without_any_log(two_segments: Path) -> None:
    for path in (two_segments / FOLDER).glob("*.log"):
        path.unlink()


def says(name: str, offset: int) -> Callable[[Path], None]:
    def write(two_segments: Path) -> None:
        path = two_segments / name
        path.write_text(path.read_text().replace("t 0 20", f"t 0 {offset}"))

    return write


LOSSES = {
    "the active log, its index left": (without_log, 10, 19),
    "the active segment": (without_segment, 10, 19),
    "half of the active log": (at_a_batch, 15, 19),
    "the log within a batch": (within_a_batch, 15, 19),
    "every log": (without_any_log, 0, 19),
    "a recovery point above": (says(RECOVERY, 25), 20, 24),
    "a high watermark above": (says(HIGH_WATERMARK, 25), 20, 24),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_end_that_is_gone_is_one_finding_and_its_lines_stay_without_a_consent(
    two_segments: Path, loss: str
) -> None:
    damage, first, last = LOSSES[loss]
    damage(two_segments)
    found = [one for one in checked(two_segments).findings if one.partition == FOLDER]
    (gone,) = [one for one in found if one.rule == "KR312"]
    assert (gone.severity, gone.fix, gone.first_offset, gone.last_offset) == (
        Severity.DATA_LOSS, "none", first, last,
    )  # fmt: skip
    assert not {one.rule for one in found} & {"KR205", "KR403", "KR404"}
    consent = f"KR312:{FOLDER}:{first}"
    assert consent in gone.evidence
    assert any(
        f"offsets {first} to {last} are gone" in one.text
        for one in verify_log_dir(str(two_segments), options()).problems
    ) == (
        "within" not in loss  # there the damage is the problem
    )
    assert planned(two_segments).root is None
    fixes = ("checkpoints", "tail") if "within" in loss else ("checkpoints",)
    assert planned(two_segments, fixes=fixes).root is None
    if "every" not in loss:
        plan = planned(two_segments, fixes=fixes, accepted_losses=(consent,))
        assert plan.root is not None
        before = tree(two_segments)
        assert apply(plan, options()).exit_code == ExitCode.DONE
        assert (
            f"t 0 {first}\n"
            in (two_segments / RECOVERY).read_text() + (two_segments / HIGH_WATERMARK).read_text()
        )
        assert before != tree(two_segments)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda path: (path / CLEANER).write_text("0\n1\nt 0 99\n"), id="the cleaner's offset"),
        pytest.param(
            lambda path: (path / FOLDER / f"{5:020d}.index").write_bytes(b"12345678"), id="an index below"
        ),
        pytest.param(
            lambda path: (path / FOLDER / f"{20:020d}.index").write_bytes(b""), id="an empty index at the end"
        ),
    ],
)
def test_what_proves_no_loss_is_told_as_before(two_segments: Path, what: Callable[[Path], None]) -> None:
    what(two_segments)
    assert "KR312" not in {one.rule for one in checked(two_segments).findings}


@pytest.mark.replicas
def test_after_a_crash_the_leader_has_what_is_missing_and_no_consent_is_asked(two_segments: Path) -> None:
    (two_segments / ".kafka_cleanshutdown").unlink()
    without_log(two_segments)
    found = {
        one.rule: one
        for one in check([str(two_segments)], Options(now_ms=builders.NOW_MS)).log_dirs[0].findings
    }
    assert "KR312" not in found
    assert found["KR404"].severity == Severity.CONFUSING
    assert "up to 10 records are to be fetched from the leader" in found["KR404"].evidence


@pytest.mark.parametrize(
    "loss", ["the active log, its index left", "half of the active log", "a high watermark above"]
)
def test_after_a_crash_of_an_only_replica_the_records_are_gone_and_no_line_is_lowered_without_a_consent(
    two_segments: Path, loss: str
) -> None:
    damage, first, last = LOSSES[loss]
    (two_segments / ".kafka_cleanshutdown").unlink()
    damage(two_segments)
    report = checked(two_segments)
    (gone,) = [one for one in report.findings if one.rule == "KR312"]
    assert (gone.severity, gone.first_offset, gone.last_offset) == (Severity.DATA_LOSS, first, last)
    assert f"offsets {first} to {last} are gone, {last - first + 1} in all" in gone.evidence
    assert "this is the only replica" in gone.evidence
    assert "fetch" not in gone.evidence
    assert "KR404" not in {one.rule for one in report.findings}
    plan = planned(two_segments)
    assert plan.root is None or "t 0 20" in (two_segments / HIGH_WATERMARK).read_text()
    plan = planned(two_segments, accepted_losses=(f"KR312:{FOLDER}:{first}",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert f"t 0 {first}\n" in (two_segments / HIGH_WATERMARK).read_text()


def test_a_damaged_checkpoint_is_made_anew_and_keeps_the_lines_that_tell_a_loss(two_segments: Path) -> None:
    without_log(two_segments)
    path = two_segments / RECOVERY
    path.write_bytes(path.read_bytes().replace(b"0\n2\n", b"0\n9\n"))
    plan = planned(two_segments)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert "t 0 20\n" in path.read_text()
    assert "KR312" in {one.rule for one in checked(two_segments).findings}


def test_a_consent_that_means_nothing_is_refused(two_segments: Path) -> None:
    without_log(two_segments)
    with pytest.raises(UsageError, match="type --accept-data-loss KR312:t-0:10"):
        planned(two_segments, accepted_losses=("KR312:t-0:11",))
    with pytest.raises(UsageError, match="means nothing without --fix checkpoints"):
        planned(two_segments, accepted_losses=("KR312:t-0:10",), fixes=("tail",))


def applied_then(two_segments: Path, damage: Callable[[Path], None]) -> Plan:
    """A plan that is applied, and the loss of the partition's end after it."""
    (two_segments / FOLDER / f"{0:020d}.timeindex").write_bytes(b"")
    plan = planned(two_segments, fixes=("index",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, options()).problems == ()
    damage(two_segments)
    return plan


@pytest.mark.parametrize("damage", [without_log, without_segment, at_a_batch])
def test_verify_of_a_plan_says_it_and_purge_keeps_what_it_keeps(
    two_segments: Path, damage: Callable[[Path], None]
) -> None:
    kept = log_of(two_segments).read_bytes()
    plan = applied_then(two_segments, damage)
    found = verify_plan(plan, options())
    assert ["are gone" in one.text for one in found.problems] == [True]
    assert str(found.next_command) == f"krepair check {two_segments}"
    before = tree(two_segments)
    refused = purge(plan, options())
    assert ({one.outcome for one in refused.results}, refused.exit_code) == ({"failed"}, ExitCode.REFUSED)
    assert tree(two_segments) == before
    log_of(two_segments).write_bytes(kept)
    assert {one.outcome for one in purge(plan, options()).results} == {"purged"}


def test_what_krepair_cut_itself_is_no_loss_while_it_is_kept(two_segments: Path) -> None:
    log_of(two_segments).write_bytes(log_of(two_segments).read_bytes()[:-3] + b"\xff" * 3)
    plan = planned(two_segments, fixes=("tail",), accepted_losses=("KR302:t-0:19",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, options()).problems == ()
    assert "KR312" not in {one.rule for one in checked(two_segments).findings}
    assert {one.outcome for one in purge(plan, options()).results} == {"purged"}


def test_a_torn_tail_that_krepair_cut_restores_nothing_so_the_loss_stays_known(two_segments: Path) -> None:
    """Undo gives back the first half of one batch; nobody has the others that the clean stop recorded."""
    within_a_batch(two_segments)
    torn = planned(two_segments, fixes=("tail", "checkpoints"))
    assert "offsets 15 to 19 are gone, 5 in all" in markdown(planned_view(torn, "torn.krplan"))
    assert apply(torn, options()).exit_code == ExitCode.DONE
    assert [one.rule for one in checked(two_segments).findings if one.rule == "KR312"] == ["KR312"]
    assert planned(two_segments).root is None
    assert {one.outcome for one in purge(torn, options()).results} == {"failed"}
    assert "KR312" in {one.rule for one in checked(two_segments).findings}


@pytest.mark.parametrize(
    ("with_config", "with_other", "clean", "severity"),
    [
        (False, False, True, Severity.CONFUSING),
        (True, False, True, Severity.CONFUSING),
        (True, True, True, Severity.DATA_LOSS),
        (True, True, False, Severity.CONFUSING),
    ],
)
def test_a_folder_that_a_checkpoint_names_is_said_by_name(
    two_segments: Path, tmp_path: Path, with_config: bool, with_other: bool, clean: bool, severity: Severity
) -> None:
    other = tmp_path / "two"
    other.mkdir()
    shutil.copy(two_segments / "meta.properties", other)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={two_segments},{other}\n")
    shutil.rmtree(two_segments / FOLDER)
    if not clean:
        (two_segments / ".kafka_cleanshutdown").unlink()
    dirs = [str(two_segments), str(other)] if with_other else [str(two_segments)]
    report = check(dirs, options(config=str(config) if with_config else None)).log_dirs[0]
    (found,) = [one for one in report.findings if one.rule == "KR312"]
    assert found.severity == severity
    assert "t-0 (up to 20)" in found.evidence
    shutil.move(two_segments / "other-0", other)
    if with_other:
        report = check(dirs, options(config=str(config))).log_dirs[0]
        assert "other-0" not in " ".join(one.evidence for one in report.findings)


def test_log_start_above_counts_where_every_log_is_gone(two_segments: Path) -> None:
    (two_segments / LOG_START).write_text("0\n1\nt 0 12\n")
    without_any_log(two_segments)
    (found,) = [one for one in checked(two_segments).findings if one.rule == "KR312"]
    assert (found.first_offset, found.last_offset) == (12, 19)
