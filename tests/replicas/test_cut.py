"""Replicas that hold what a plan cuts from a log: found by offsets, named in the plan with the next command."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.show import show_view
from krepair.options import EngineName, Options
from krepair.rules.evidence import OPEN, CutPart, CutRange, Holders, describe_loss, who_has
from krepair.rules.replicas.model import ReplicaColumn
from tests import builders as b
from tests.pages import words_of

pytestmark = pytest.mark.replicas

PER_BATCH, BATCHES, SEGMENTS = 5, 4, 3
END = PER_BATCH * BATCHES * SEGMENTS


def column(broker: int, start: int, end: int) -> ReplicaColumn:
    return ReplicaColumn(
        broker=broker,
        log_start=start,
        log_end=end,
        last_stable_offset=end,
        high_watermark=-1,
        cleaner_position=-1,
        clean_stop=True,
        log_bytes=0,
        segments=1,
    )


@pytest.mark.parametrize(
    ("gone", "having"),
    [
        (CutRange(CutPart.END, 50, 100), Holders(confirmed=(1,), unsure=(2,), lacking=(3, 4))),
        (CutRange(CutPart.END, 50, 90), Holders(confirmed=(1,), unsure=(2,), lacking=(3, 4))),
        (CutRange(CutPart.END, 50, 101), Holders(lacking=(1, 2, 3, 4))),
        (CutRange(CutPart.END, 59, OPEN), Holders(confirmed=(1, 3), unsure=(2,), lacking=(4,))),
        (CutRange(CutPart.END, 60, OPEN), Holders(confirmed=(1,), unsure=(2,), lacking=(3, 4))),
        (CutRange(CutPart.END, 100, OPEN), Holders(lacking=(1, 2, 3, 4))),
        (CutRange(CutPart.MIDDLE, 70, 71), Holders(confirmed=(1, 4), unsure=(2,), lacking=(3,))),
        (CutRange(CutPart.START, 0, 60), Holders(confirmed=(1, 3), unsure=(2,), lacking=(4,))),
        (CutRange(CutPart.EPOCHS), Holders(confirmed=(1, 3, 4), unsure=(2,))),
    ],
)
def test_a_replica_has_what_is_cut_if_it_begins_before_it_and_ends_behind_it(
    gone: CutRange, having: Holders
) -> None:
    others = [column(1, 0, 100), column(2, 0, 100), column(3, 0, 60), column(4, 70, 100)]
    assert who_has(gone, others, (1, 3, 4)) == having


@pytest.mark.parametrize(
    ("hole", "cleaner", "right"), [(49, -1, True), (50, -1, False), (70, 60, False), (59, 60, True)]
)
def test_a_replica_in_which_offsets_are_missing_there_does_not_surely_have_them(
    hole: int, cleaner: int, right: bool
) -> None:
    other = replace(column(1, 0, 100), highest_hole=hole, cleaner_position=cleaner)
    having = who_has(CutRange(CutPart.MIDDLE, 50, 55), [other], (1,))
    assert having == (Holders(confirmed=(1,)) if right else Holders(unsure=(1,)))


@pytest.mark.parametrize(
    ("fields", "unsure"), [({}, False), ({"state": "missing"}, True), ({"limited": True}, True)]
)
def test_a_replica_that_was_not_read_to_its_end_is_not_said_to_lack_them(
    fields: dict[str, object], unsure: bool
) -> None:
    having = who_has(CutRange(CutPart.END, 50, 100), [replace(column(1, 0, 50), **fields)], (1,))
    assert having == (Holders(unsure=(1,)) if unsure else Holders(lacking=(1,)))


def test_a_replica_that_cannot_be_read_is_not_said_to_lack_them(replicas: tuple[Path, Path]) -> None:
    one, two = replicas
    log = two / "t-0" / f"{2 * PER_BATCH * BATCHES:020d}.log"
    log.rename(f"{log}.swap")
    [text] = said(one, options(f"2={two}", accepted_losses=consent(one)))
    assert "Replica 2 may have them, or other records in their place, or none" in text
    assert "lost" not in text


def test_what_nobody_has_is_said_to_be_lost_and_who_is_not_right_is_to_be_compared() -> None:
    gone = CutRange(CutPart.END, 50, 100)
    assert describe_loss("t-0", gone, Holders(lacking=(2,)))[-1].startswith(
        "No replica that was given has them"
    )
    assert describe_loss("t-0", gone, Holders(unsure=(2,)))[-1].startswith("Compare the replicas")


def made(
    root: Path, broker: int, segments: int = SEGMENTS, *, epoch_from: int = END, marked: int = -1
) -> Path:
    """A replica of three segments with four batches of five records; epoch and high watermark as they are given."""
    directory = b.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=200)
    for number in range(segments):
        base = number * PER_BATCH * BATCHES
        offsets = [base + PER_BATCH * n for n in range(BATCHES)]
        partition.segment(*(b.data(at, PER_BATCH, leader_epoch=int(at >= epoch_from)) for at in offsets))
    directory.write(clean_stop=True)
    (root / ".lock").touch()
    (root / "meta.properties").write_text(f"version=0\nbroker.id={broker}\ncluster.id=c\n")
    mark = partition.log_end if marked < 0 else marked
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {partition.log_end}\n")
    return root


def flip(root: Path, segment: int, batch: int) -> None:
    """Damage a batch of a replica."""
    log = root / "t-0" / f"{segment * PER_BATCH * BATCHES:020d}.log"
    raw = bytearray(log.read_bytes())
    raw[(batch + 1) * len(raw) // BATCHES - 1] ^= 1
    log.write_bytes(bytes(raw))


def options(*replicas: str, **given: object) -> Options:
    common: dict[str, object] = {"fixes": ("tail",), "settings": (("index.interval.bytes", "200"),)}
    return Options(engine=EngineName.INLINE, now_ms=b.NOW_MS + 60_000, replicas=replicas, **(common | given))  # type: ignore[arg-type]


def consent(root: Path) -> tuple[str, ...]:
    """What the damage of a replica asks for."""
    [waiting] = make_plan(str(root), options()).partitions
    return tuple(re.findall(r"KR302:\S+", str(waiting.next_command)))


def said(root: Path, given: Options) -> list[str]:
    plan = make_plan(str(root), given)
    texts = [f"{one.text} {one.more}".rstrip() for one in plan.risks if one.code == "others-have"]
    page = words_of(show_view(plan, "P"))
    assert all(text in page for text in texts)
    return texts


@pytest.fixture
def replicas(tmp_path: Path) -> tuple[Path, Path]:
    """A damaged replica 1, and replica 2."""
    one, two = made(tmp_path / "b1", 1), made(tmp_path / "b2", 2)
    flip(one, 1, 2)
    return one, two


def test_a_hole_names_who_has_its_records_and_how_to_fetch_the_replica_anew(
    replicas: tuple[Path, Path],
) -> None:
    one, two = replicas
    [text] = said(one, options(f"2={two}", accepted_losses=consent(one)))
    assert text.startswith(
        "t-0: offsets 30 to 34 are removed from the middle of the log. Replica 2 has them, and"
    )
    assert "let broker 2 lead, and fetch this replica again" in text


def test_a_log_that_is_cut_as_a_broker_would_names_who_should_lead(replicas: tuple[Path, Path]) -> None:
    one, two = replicas
    given = options(f"2={two}", accepted_losses=consent(one), fixes=("tail=broker",))
    [text] = said(one, given)
    assert text.startswith(
        f"t-0: the log ends at offset 30 after this plan; offsets 30 to {END - 1} are removed"
    )
    assert "Let broker 2 lead before this broker starts" in text
    assert apply(make_plan(str(one), given), given).exit_code is ExitCode.DONE


def test_a_replica_that_ends_inside_of_what_a_cut_takes_does_not_have_it(tmp_path: Path) -> None:
    """What lies behind the damage is read, also where no high watermark says how far the log went."""
    one, two = (made(tmp_path / f"b{broker}", broker, marked=40) for broker in (1, 2))
    flip(one, 2, 2)
    log = two / "t-0" / f"{2 * PER_BATCH * BATCHES:020d}.log"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // BATCHES])
    (two / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {END - PER_BATCH}\n")
    [text] = said(one, options(f"2={two}", accepted_losses=consent(one), fixes=("tail=broker",)))
    assert f"offsets 50 to {END - 1} are removed from this replica. Replica 2 does not have them." in text


def test_a_replica_that_ends_before_the_cut_or_is_damaged_itself_is_not_called_right(
    replicas: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = replicas
    three = made(tmp_path / "b3", 3, segments=1)
    flip(two, 1, 2)
    [text] = said(one, options(f"2={two}", f"3={three}", accepted_losses=consent(one)))
    assert "compare calls" not in text
    assert "Replica 3 does not have them" in text


def test_a_replica_that_lost_the_same_batch_is_not_said_to_have_it(replicas: tuple[Path, Path]) -> None:
    """Nothing can be held against a damaged batch, so compare tells nothing of its offsets."""
    one, two = replicas
    log = two / "t-0" / f"{PER_BATCH * BATCHES:020d}.log"
    raw = log.read_bytes()
    quarter = len(raw) // BATCHES
    log.write_bytes(raw[: 2 * quarter] + raw[3 * quarter :])
    [text] = said(one, options(f"2={two}", accepted_losses=consent(one)))
    assert "Replica 2 may have them, or other records in their place, or none" in text
    assert "Compare the replicas before you apply this plan" in text


@pytest.mark.parametrize(("parts_at", "has"), [(END, True), (45, False), (55, True)])
def test_who_has_another_history_there_is_not_said_to_have_them(
    parts_at: int, has: bool, tmp_path: Path
) -> None:
    """Broker 1 was stopped cleanly with a tail above its high watermark; compare calls broker 2 right."""
    one = made(tmp_path / "b1", 1, marked=40)
    two = made(tmp_path / "b2", 2, epoch_from=parts_at, marked=40)
    flip(one, 2, 2)
    [text] = said(one, options(f"2={two}", accepted_losses=consent(one)))
    assert "offsets 50 to 54 are removed from the middle" in text
    assert ("Replica 2 has them, and krepair compare calls it right" in text) is has


def test_a_torn_tail_above_the_high_watermark_is_said_to_be_fetched_again(tmp_path: Path) -> None:
    one, two = made(tmp_path / "b1", 1), made(tmp_path / "b2", 2)
    last = one / "t-0" / f"{2 * PER_BATCH * BATCHES:020d}.log"
    last.write_bytes(last.read_bytes()[:-10])
    for path in (one / ".kafka_cleanshutdown", one / "recovery-point-offset-checkpoint"):
        path.unlink(missing_ok=True)
    [text] = said(one, options(f"2={two}"))
    assert f"ends at offset {END - PER_BATCH} after this plan" in text
    assert "Replica 2 has them" in text


def test_recovery_of_a_log_below_its_high_watermark_says_who_has_the_rest(tmp_path: Path) -> None:
    one, two = made(tmp_path / "b1", 1), made(tmp_path / "b2", 2)
    shutil.rmtree(one)
    made(one, 1, segments=2)
    (one / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (one / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    (one / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {END}\n")
    given = options(f"2={two}", fixes=("recovery",), broker_version="3.9.2")
    texts = said(one, given)
    assert any(f"offsets {END - 20} to {END - 1} are removed from this replica" in text for text in texts)


def test_new_leader_epochs_say_who_should_lead(tmp_path: Path) -> None:
    one, two = made(tmp_path / "b1", 1), made(tmp_path / "b2", 2)
    (one / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 900\n")
    [text] = said(one, options(f"2={two}", fixes=("epochs",)))
    assert "its leader epochs change" in text
    assert "Let broker 2 lead" in text


@pytest.mark.parametrize("replicas_given", [True, False])
def test_a_plan_that_cuts_nothing_and_one_without_other_replicas_say_nothing(
    tmp_path: Path, *, replicas_given: bool
) -> None:
    one, two = made(tmp_path / "b1", 1), made(tmp_path / "b2", 2)
    if not replicas_given:
        flip(one, 1, 2)
        assert said(one, options(accepted_losses=consent(one))) == []
    else:
        assert said(one, options(f"2={two}")) == []
