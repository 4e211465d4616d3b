"""Offsets without records: a warning where the topic is known not to be compacted, else only said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from krepair.checks.catalogue import Severity, counts
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.start.room import removable
from tests import builders
from tests.builders import NOW_MS, commit, data
from tests.flips import flip
from tests.ops.inline import Inline

RULES = {"KR310", "KR311"}
DELETE = (("cleanup.policy", "delete"), ("retention.ms", "-1"))
COMPACT = (("cleanup.policy", "compact"), ("retention.ms", "-1"))


VERBS = Inline(now_ms=NOW_MS + 60_000, settings=DELETE)


def found(log_dir: Path, **given: object) -> list[tuple[str, str]]:
    """(rule, evidence up to the first reason) of what is said of offsets."""
    return [(one.rule, one.evidence.rpartition("; ")[0]) for one in VERBS.found(log_dir, *RULES, **given)]


def ranges(log_dir: Path) -> list[str]:
    """What is said to be missing."""
    return [evidence.split(";")[0] for _, evidence in found(log_dir)]


def made(root: Path, **given: object) -> Path:
    """Four segments of ten offsets, each with a marker; nothing is missing."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    for base in range(0, 40, 10):
        partition.segment(
            data(base, 3, pid=7, sequence=base, txn=True), commit(base + 3, pid=7), data(base + 4, 6)
        )
    return directory.write(**given)  # type: ignore[arg-type]


def lose(log_dir: Path, base: int) -> None:
    for path in (log_dir / "t-0").glob(f"{base:020d}.*"):
        path.unlink()


def test_log_without_a_gap_says_nothing_whatever_its_policy(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    assert [found(log_dir, settings=settings) for settings in (DELETE, COMPACT, ())] == [[], [], []]


def test_lost_segment_of_a_topic_that_is_not_compacted_is_a_warning_with_the_range(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    lose(log_dir, 10)
    lose(log_dir, 20)
    (finding,) = VERBS.found(log_dir, *RULES)
    assert finding.evidence == (
        "20 offsets without a record: 10 to 29 are in no segment; the topic is not compacted (cleanup.policy=delete, "
        "--set); usual causes: the topic was compacted once, an earlier --fix tail=excise removed them, or a log file "
        "was lost or moved away (here, or on the replica from which this one was copied)"
    )
    assert (finding.rule, counts(finding)) == ("KR310", True)


@pytest.mark.parametrize(
    ("cleaner_points", "emptied", "severity"),
    [
        ({}, False, Severity.DATA_LOSS),
        ({"t-0": 5}, False, Severity.CONFUSING),
        ({}, True, Severity.CONFUSING),
    ],
)
def test_a_lost_segment_is_data_loss_unless_an_earlier_cleaning_left_a_trace(
    tmp_path: Path, cleaner_points: dict[str, int], emptied: bool, severity: Severity
) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(builders.emptied(0, 4, pid=7, txn=False) if emptied else data(0, 5), data(5, 5))
    partition.segment(data(10, 10))
    partition.segment(data(20, 10))
    log_dir = directory.write(cleaner_points=cleaner_points)
    lose(log_dir, 10)
    assert [one.severity for one in VERBS.found(log_dir, "KR310")] == [severity]


def test_where_the_policy_is_not_known_it_is_said_and_is_no_warning(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    lose(log_dir, 10)
    (finding,) = VERBS.found(log_dir, *RULES, settings=DELETE[1:])
    assert (finding.rule, counts(finding)) == ("KR311", False)
    assert finding.evidence.startswith("10 offsets without a record: 10 to 19 are in no segment; ")
    assert "cleanup.policy is not known" in finding.evidence


@pytest.mark.parametrize(
    ("described", "rule"),
    [({"cleanup.policy": "delete"}, "KR310"), ({"cleanup.policy": "compact"}, ""), ({}, "KR311")],
)
def test_policy_comes_from_the_topics_own_description(
    tmp_path: Path, described: dict[str, str], rule: str
) -> None:
    log_dir = made(tmp_path / "logs")
    lose(log_dir, 10)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"t": described}))
    assert [one for one, _ in found(log_dir, settings=(), topic_config=str(topics))] == (
        [rule] if rule else []
    )


def test_a_first_segment_that_is_empty_is_data_loss_with_the_range(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    (log_dir / "t-0" / f"{0:020d}.log").write_bytes(b"")
    (finding,) = VERBS.found(log_dir, *RULES)
    assert (finding.rule, finding.severity) == ("KR310", Severity.DATA_LOSS)
    assert finding.evidence.startswith(
        "10 offsets without a record: 0 to 9 are in no segment; first copy it back"
    )
    assert VERBS.found(log_dir, *RULES, settings=COMPACT) == []


def test_a_first_segment_that_is_missing_is_data_loss_after_a_clean_stop(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs", log_starts={"t-0": 3})
    lose(log_dir, 0)
    version = {"broker_version": "3.5.2"}  # else it may be tiered
    (finding,) = VERBS.found(log_dir, *RULES, **version)
    assert (finding.rule, finding.severity) == ("KR310", Severity.DATA_LOSS)
    assert finding.evidence.startswith("7 offsets without a record: 3 to 9 are in no segment")
    assert VERBS.found(log_dir, *RULES, settings=COMPACT, **version) == []
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert VERBS.found(log_dir, *RULES, **version) == []


TEN = "10 offsets without a record: {} to {} are in no segment"


@pytest.mark.parametrize(
    ("checkpoint", "lost", "settings", "rule", "text"),
    [
        pytest.param(
            {"cleaner_points": {"t-0": 30}}, (10,), (), "", "", id="below the cleaner's, policy not known"
        ),
        pytest.param(
            {"cleaner_points": {"t-0": 30}}, (10,), DELETE, "KR311", TEN.format(10, 19), id="below it"
        ),
        pytest.param(
            {"cleaner_points": {"t-0": 10}}, (20,), DELETE, "KR310", TEN.format(20, 29), id="above it"
        ),
        pytest.param({"log_starts": {"t-0": 15}}, (0,), DELETE, "", "", id="deleted up to the log start"),
        pytest.param(
            {"log_starts": {"t-0": 15}}, (0, 20), DELETE, "KR310", TEN.format(20, 29), id="and behind it"
        ),
        pytest.param(
            {"log_starts": {"t-0": 17}},
            (10,),
            DELETE,
            "KR310",
            "3 offsets without a record: 17 to 19 are in no segment",
            id="in part below the log start",
        ),
    ],
)
def test_what_a_cleaning_or_a_deletion_explains_is_no_warning(
    tmp_path: Path,
    checkpoint: dict[str, object],
    lost: tuple[int, ...],
    settings: tuple[tuple[str, str], ...],
    rule: str,
    text: str,
) -> None:
    log_dir = made(tmp_path / "logs", **checkpoint)
    for base in lost:
        lose(log_dir, base)
    told = [(code, evidence.split(";")[0]) for code, evidence in found(log_dir, settings=settings)]
    assert told == ([(rule, text)] if rule else [])


def test_gap_inside_a_segment_is_counted_and_so_are_records_that_went_out_of_a_batch(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, 3), data(5, 5))
    partition.segment(data(10, 2, last_offset=14))
    partition.segment(data(15, 1))
    log_dir = directory.write()
    ((_, evidence),) = found(log_dir)
    assert evidence == (
        f"5 offsets without a record: 2 of the 10 offsets from 0 to 9 in {0:020d}.log; "
        f"3 of the 5 offsets from 10 to 14 in "
        f"{10:020d}.log; the topic is not compacted (cleanup.policy=delete, --set)"
    )


def test_damaged_segment_says_nothing_of_the_offsets_behind_the_damage(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    log = log_dir / "t-0" / f"{10:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    assert found(log_dir) == []


def test_swap_that_fills_the_gap_and_a_deleted_log_that_would_are_told_apart(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    log = log_dir / "t-0" / f"{10:020d}.log"
    swap = log.with_name(f"{log.name}.swap")
    shutil.copy(log, swap)
    lose_log = log.read_bytes()
    log.unlink()
    assert found(log_dir) == []
    swap.unlink()
    log.with_name(f"{log.name}.deleted").write_bytes(lose_log)
    (told,) = found(log_dir)
    assert f"{log.name}.deleted may be what is missing, and the next start deletes it" in told[1]


def test_gap_of_our_own_excision_is_no_finding_until_what_is_kept_is_purged(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    log = log_dir / "t-0" / f"{10:020d}.log"
    flip(log, 70)
    given = VERBS.options(fixes=("tail=excise",), accepted_losses=("KR302:t-0:10",))
    plan = make_plan(str(log_dir), given)
    for verb in (apply, undo, apply):
        assert verb(plan, given).exit_code == ExitCode.DONE
        assert found(log_dir) == []
    lose(
        log_dir, 30
    )  # nothing of ours explains this one; it is the log end, so KR312 tells it, and purge keeps all
    assert found(log_dir) == []
    assert purge(plan, given).exit_code == ExitCode.REFUSED
    (log_dir / ".kafka_cleanshutdown").unlink()  # a broker has taken it away, and stopped otherwise
    assert purge(plan, given).exit_code == ExitCode.DONE
    assert ranges(log_dir) == [
        f"3 offsets without a record: 3 of the 10 offsets from 10 to 19 in {10:020d}.log"
    ]


def test_what_our_kept_originals_explain_is_taken_out_of_a_larger_gap(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    kept = log_dir / "t-0" / "krepair~0123abcd" / "keep"
    kept.mkdir(parents=True)
    shutil.copy(log_dir / "t-0" / f"{20:020d}.log", kept)
    for base in (10, 20):
        lose(log_dir, base)
    assert ranges(log_dir) == ["10 offsets without a record: 10 to 19 are in no segment"]


@pytest.mark.parametrize("mark", ["stray", "future", "delete"])
def test_a_marked_folder_beside_a_log_that_lost_its_end_is_named_and_never_offered_for_removal(
    mark: str, tmp_path: Path
) -> None:
    log_dir = made(tmp_path / "logs")
    marked = f"t-0.{'a' * 32}-{mark}"
    shutil.copytree(log_dir / "t-0", log_dir / marked)
    assert removable(str(log_dir)) == ()
    (log_dir / "t-0" / f"{30:020d}.log").write_bytes(b"")
    (finding,) = VERBS.found(log_dir, "KR312")
    assert f"{marked} beside it may have the records (copy it away, and look there first" in finding.evidence
    assert ("the start deletes it" in finding.evidence) == (mark == "delete")
    assert finding.severity is None or finding.severity is Severity.DATA_LOSS
    shutil.rmtree(log_dir / "t-0")
    assert bool(removable(str(log_dir))) == (mark == "delete")


@pytest.mark.replicas
@pytest.mark.parametrize("mark", ["stray", "future", "delete"])
def test_a_marked_folder_is_named_after_a_crash_too(mark: str, tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs", clean_stop=False)
    marked = f"t-0.{'a' * 32}-{mark}"
    shutil.copytree(log_dir / "t-0", log_dir / marked)
    (log_dir / "t-0" / f"{30:020d}.log").write_bytes(b"")
    (finding,) = VERBS.found(log_dir, "KR404")
    assert f"{marked} beside it may have the records (copy it away, and look there first" in finding.evidence
    assert ("the start deletes it" in finding.evidence) == (mark == "delete")
