"""Logs that end below what the last clean stop recorded: said once, and nothing takes the evidence away by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.checks.catalogue import Severity
from krepair.errors import ExitCode, UsageError
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.purge import purge
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.plan.model import Plan
from tests import builders
from tests.ops.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY, checked, options, planned
from tests.ops.scene import tree

FOLDER = "t-0"
SECOND = f"{10:020d}"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A clean stop of a partition with offsets 0 to 9 and 10 to 19, and of another one."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t")
    for base in (0, 10):
        one.segment(*(builders.data(base + place, 1, timestamp=builders.NOW_MS) for place in range(10)))
    made.partition("other").segment(builders.data(0, 3))
    return made.write()


def log_of(log_dir: Path, name: str = SECOND) -> Path:
    return log_dir / FOLDER / f"{name}.log"


def without_log(log_dir: Path) -> None:
    log_of(log_dir).unlink()


def without_segment(log_dir: Path) -> None:
    for path in (log_dir / FOLDER).glob(f"{SECOND}.*"):
        path.unlink()


def at_a_batch(log_dir: Path) -> None:
    data = log_of(log_dir).read_bytes()
    log_of(log_dir).write_bytes(data[: len(data) // 2])
    for suffix in ("index", "timeindex"):
        log_of(log_dir).with_suffix(f".{suffix}").write_bytes(b"")


def within_a_batch(log_dir: Path) -> None:
    data = log_of(log_dir).read_bytes()
    log_of(log_dir).write_bytes(data[: len(data) // 2 + 5])


def without_any_log(log_dir: Path) -> None:
    for path in (log_dir / FOLDER).glob("*.log"):
        path.unlink()


def says(name: str, offset: int) -> Callable[[Path], None]:
    def write(log_dir: Path) -> None:
        path = log_dir / name
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
    log_dir: Path, loss: str
) -> None:
    damage, first, last = LOSSES[loss]
    damage(log_dir)
    found = [one for one in checked(log_dir).findings if one.partition == FOLDER]
    (gone,) = [one for one in found if one.rule == "KR312"]
    assert (gone.severity, gone.fix, gone.first_offset, gone.last_offset) == (
        Severity.DATA_LOSS, "none", first, last,
    )  # fmt: skip
    assert not {one.rule for one in found} & {"KR205", "KR403", "KR404"}
    consent = f"KR312:{FOLDER}:{first}"
    assert consent in gone.evidence
    assert any(
        f"offsets {first} to {last} are gone" in one.text
        for one in verify_log_dir(str(log_dir), options()).problems
    ) == (
        "within" not in loss  # there the damage is the problem
    )
    assert planned(log_dir).root is None
    fixes = ("checkpoints", "tail") if "within" in loss else ("checkpoints",)
    assert planned(log_dir, fixes=fixes).root is None
    if "every" not in loss:
        plan = planned(log_dir, fixes=fixes, accepted_losses=(consent,))
        assert plan.root is not None
        before = tree(log_dir)
        assert apply(plan, options()).exit_code == ExitCode.DONE
        assert f"t 0 {first}\n" in (log_dir / RECOVERY).read_text() + (log_dir / HIGH_WATERMARK).read_text()
        assert before != tree(log_dir)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda path: (path / ".kafka_cleanshutdown").unlink(), id="not a clean stop"),
        pytest.param(lambda path: (path / CLEANER).write_text("0\n1\nt 0 99\n"), id="the cleaner's offset"),
        pytest.param(
            lambda path: (path / FOLDER / f"{5:020d}.index").write_bytes(b"12345678"), id="an index below"
        ),
        pytest.param(
            lambda path: (path / FOLDER / f"{20:020d}.index").write_bytes(b""), id="an empty index at the end"
        ),
    ],
)
def test_what_proves_no_loss_is_told_as_before(log_dir: Path, what: Callable[[Path], None]) -> None:
    if what(log_dir) is None and not (log_dir / ".kafka_cleanshutdown").exists():
        without_log(log_dir)
    assert "KR312" not in {one.rule for one in checked(log_dir).findings}


def test_a_damaged_checkpoint_is_made_anew_and_keeps_the_lines_that_tell_a_loss(log_dir: Path) -> None:
    without_log(log_dir)
    path = log_dir / RECOVERY
    path.write_bytes(path.read_bytes().replace(b"0\n2\n", b"0\n9\n"))
    plan = planned(log_dir)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert "t 0 20\n" in path.read_text()
    assert "KR312" in {one.rule for one in checked(log_dir).findings}


def test_a_consent_that_means_nothing_is_refused(log_dir: Path) -> None:
    without_log(log_dir)
    with pytest.raises(UsageError, match="type --accept-data-loss KR312:t-0:10"):
        planned(log_dir, accepted_losses=("KR312:t-0:11",))
    with pytest.raises(UsageError, match="means nothing without --fix checkpoints"):
        planned(log_dir, accepted_losses=("KR312:t-0:10",), fixes=("tail",))


def applied_then(log_dir: Path, damage: Callable[[Path], None]) -> Plan:
    """A plan that is applied, and the loss of the partition's end after it."""
    (log_dir / FOLDER / f"{0:020d}.timeindex").write_bytes(b"")
    plan = planned(log_dir, fixes=("index",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, options()).problems == ()
    damage(log_dir)
    return plan


@pytest.mark.parametrize("damage", [without_log, without_segment, at_a_batch])
def test_verify_of_a_plan_says_it_and_purge_keeps_what_it_keeps(
    log_dir: Path, damage: Callable[[Path], None]
) -> None:
    kept = log_of(log_dir).read_bytes()
    plan = applied_then(log_dir, damage)
    found = verify_plan(plan, options())
    assert ["are gone" in one.text for one in found.problems] == [True]
    assert str(found.next_command) == f"krepair check {log_dir}"
    before = tree(log_dir)
    refused = purge(plan, options())
    assert ({one.outcome for one in refused.results}, refused.exit_code) == ({"failed"}, ExitCode.REFUSED)
    assert tree(log_dir) == before
    log_of(log_dir).write_bytes(kept)
    assert {one.outcome for one in purge(plan, options()).results} == {"purged"}


def test_what_krepair_cut_itself_is_no_loss_while_it_is_kept(log_dir: Path) -> None:
    log_of(log_dir).write_bytes(log_of(log_dir).read_bytes()[:-3] + b"\xff" * 3)
    plan = planned(log_dir, fixes=("tail",), accepted_losses=("KR302:t-0:19",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, options()).problems == ()
    assert "KR312" not in {one.rule for one in checked(log_dir).findings}
    assert {one.outcome for one in purge(plan, options()).results} == {"purged"}


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
    log_dir: Path, tmp_path: Path, with_config: bool, with_other: bool, clean: bool, severity: Severity
) -> None:
    other = tmp_path / "two"
    other.mkdir()
    shutil.copy(log_dir / "meta.properties", other)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={log_dir},{other}\n")
    shutil.rmtree(log_dir / FOLDER)
    if not clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    dirs = [str(log_dir), str(other)] if with_other else [str(log_dir)]
    report = check(dirs, options(config=str(config) if with_config else None)).log_dirs[0]
    (found,) = [one for one in report.findings if one.rule == "KR312"]
    assert found.severity == severity
    assert "t-0 (up to 20)" in found.evidence
    shutil.move(log_dir / "other-0", other)
    if with_other:
        report = check(dirs, options(config=str(config))).log_dirs[0]
        assert "other-0" not in " ".join(one.evidence for one in report.findings)


def test_log_start_above_counts_where_every_log_is_gone(log_dir: Path) -> None:
    (log_dir / LOG_START).write_text("0\n1\nt 0 12\n")
    without_any_log(log_dir)
    (found,) = [one for one in checked(log_dir).findings if one.rule == "KR312"]
    assert (found.first_offset, found.last_offset) == (12, 19)
