"""No segment of ``__transaction_state`` ends without records: a coordinator before 3.9.2 hangs there (KAFKA-17941)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding, Severity, severity_of
from krepair.durable.attributes import read_attributes
from krepair.durable.tree import Tree
from krepair.engine.engine import InlineEngine
from krepair.engine.items import Failed, FinishItem
from krepair.errors import ExitCode
from krepair.ops.check import check
from krepair.options import Options
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.review import review
from krepair.rewrite.segments.verify import verify_group
from tests import naive
from tests.builders import NOW_MS, Batch, LogDir, Record, commit, data
from tests.builders import emptied as of_producer
from tests.compaction.compacting import change_of, compacted, staged
from tests.compaction.directories import Verbs, logs, options
from tests.compaction.trying import rules_of, with_twin
from tests.places import place_of
from tests.rules.scanned import Held, policy_of
from tests.strategies import History, Shape

TOPIC = "__transaction_state"
OLD = NOW_MS - 86_400_000
Segments = Sequence[Sequence[Batch]]


def state(offset: int, *keys: str) -> Batch:
    """A batch of the coordinator: ``a`` is the state of a transactional id, ``a-`` its tombstone."""
    records = [Record(key[:1].encode(), None if key.endswith("-") else b"%d" % offset) for key in keys]
    return data(offset, records, timestamp=OLD)


def emptied(offset: int, last_offset: int | None = None) -> Batch:
    """A batch of the coordinator that a cleaner emptied."""
    return of_producer(offset, last_offset, pid=-1, epoch=-1, sequence=-1, txn=False, timestamp=OLD)


def write(root: Path, segments: Segments, *, bases: Sequence[int] = (), **more: object) -> Path:
    """A log directory with one partition of the coordinator; the last segment is the active one."""
    directory = LogDir(root)
    partition = directory.partition(TOPIC)
    for number, batches in enumerate(segments):
        base = bases[number] if bases else batches[0].base_offset
        partition.segment(*batches, base_offset=base, mtime_ms=OLD)
    return directory.write(**more)  # type: ignore[arg-type]


def contents(root: Path) -> list[list[tuple[int, int]]]:
    """(base offset, records) of each batch of each segment."""
    return [
        [(one.base_offset, one.records) for one in naive.parse(log)]
        for log in logs(root / f"{TOPIC}-0").values()
    ]


def planned(root: Path, **more: object) -> tuple[Verbs, Plan, PartitionPlan]:
    """The plan of ``--fix compact``, which the review takes."""
    verbs = Verbs(root, options(root.parent, TOPIC, **more))
    plan = verbs.plan()
    assert review(plan) == []
    (part,) = plan.partitions
    return verbs, plan, part


def carried_out(root: Path, **more: object) -> list[list[tuple[int, int]]]:
    """What the segments hold after apply; it is verified, and a second plan is empty."""
    verbs, plan, part = planned(root, **more)
    if part.changes:
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
    again = verbs.plan().partitions[0]
    assert (again.status, again.changes) == ("nothing", ())
    return contents(root)


ACTIVE = [state(20, "a")]
"""An active segment that begins at offset 20 and has a record."""

SITUATIONS = {
    "all but the last batch of the span is superseded": (
        [[state(0, "a"), state(1, "b")], [state(10, "a"), state(11, "b")], ACTIVE],
        [[(10, 1), (11, 1)], [(20, 1)]],
    ),
    "the span ends with a tombstone": (
        [[state(0, "a"), state(1, "b")], [state(10, "a-")], ACTIVE],
        [[(1, 1), (10, 1)], [(20, 1)]],
    ),
    "the span ends with a batch of tombstones: all of them stay, older ones go": (
        [[state(0, "a"), state(1, "c-")], [state(10, "a-", "b-", "a-")], ACTIVE],
        [[(10, 2)], [(20, 1)]],
    ),
    "a cleaner left an emptied batch at the end of a segment": (
        [[state(0, "a"), emptied(1)], [state(10, "b")], ACTIVE],
        [[(0, 1), (10, 1)], [(20, 1)]],
    ),
    "a cleaner left an emptied batch at the end of the span": (
        [[state(0, "a"), state(1, "b-")], [emptied(10, 19)], ACTIVE],
        [[(0, 1), (1, 1)], [(20, 1)]],
    ),
    "an emptied batch at the end of the span, and only an empty segment follows": (
        [[state(0, "a"), state(1, "a")], [state(10, "b"), emptied(11, 19)], []],
        [[(1, 1), (10, 1), (11, 0)], []],
    ),
    "a tombstone at the end of the span, and only an empty segment follows": (
        [[state(0, "a"), state(1, "a")], [state(10, "b-")], []],
        [[(1, 1), (10, 1)], []],
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_new_segments_end_with_records(situation: str, tmp_path: Path) -> None:
    before, after = SITUATIONS[situation]
    bases = [batches[0].base_offset if batches else 20 for batches in before]
    root = write(tmp_path / "logs", before, bases=bases)
    assert carried_out(root) == after


def test_without_merging_only_a_segment_that_keeps_nothing_joins_its_neighbour(tmp_path: Path) -> None:
    before = [[state(0, "a")], [state(4, "b"), emptied(5)], [state(10, "a")], [emptied(12)], ACTIVE]
    root = write(tmp_path / "logs", before)
    assert carried_out(root, merge=False) == [[(4, 1)], [(10, 1)], [(20, 1)]]


def test_a_segment_that_keeps_nothing_joins_a_neighbour_that_is_larger_than_segment_bytes(
    tmp_path: Path,
) -> None:
    large = [state(number, chr(ord("b") + number)) for number in range(4, 9)]
    root = write(tmp_path / "logs", [[state(0, "a")], large, [state(10, "a")], ACTIVE])
    assert carried_out(root, settings={"segment.bytes": "100"}) == [
        [(number, 1) for number in range(4, 9)],
        [(10, 1)],
        [(20, 1)],
    ]


@pytest.mark.parametrize(
    ("before", "bases", "why"),
    [
        ([[emptied(0)], [emptied(10)], ACTIVE], [0, 10, 20], "no record of it would stay"),
        (
            [[state(0, "a")], [state(2**32, "a")], [state(2**32 + 10, "b")]],
            [0, 2**32, 2**32 + 10],
            "no record of it would stay",
        ),
        ([[state(0, "a"), commit(1, pid=7)], [state(10, "a")], ACTIVE], [0, 10, 20], "a batch of a producer"),
    ],
    ids=["no record below the bound", "offsets too far apart", "a producer"],
)
def test_sources_stay_where_no_new_segment_could_end_with_records(
    before: Segments, bases: Sequence[int], why: str, tmp_path: Path
) -> None:
    root = write(tmp_path / "logs", before, bases=bases)
    _, _, part = planned(root)
    assert (part.status, part.code, part.changes) == ("left alone", "coordinator-load", ())
    assert why in part.why
    assert "3.9.2" in part.why


def test_the_markers_fix_holds_the_same_rule(tmp_path: Path) -> None:
    before = [[state(0, "a"), emptied(1)], [state(4, "a"), emptied(5)], [emptied(10, 19)], ACTIVE]
    root = write(tmp_path / "logs", before)
    assert carried_out(root, fixes=("markers",)) == [[(0, 1), (4, 1)], [(20, 1)]]


def test_the_offsets_topic_keeps_the_last_batch_of_its_span(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", [[state(0, "a")], [state(10, "b-")], ACTIVE])
    (root / f"{TOPIC}-0").rename(root / "__consumer_offsets-0")
    (root / "replication-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 21\n")
    verbs = Verbs(root, options(root.parent, "__consumer_offsets"))
    assert verbs.apply(verbs.plan()).exit_code is ExitCode.DONE
    kept = [naive.parse(log) for log in logs(root / "__consumer_offsets-0").values()]
    assert [(one.base_offset, one.records) for one in kept[0]] == [(0, 1), (10, 0)]


def test_a_new_segment_that_ends_without_records_is_found_when_it_is_verified(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", [[state(0, "a"), state(1, "a")], [state(10, "b-")], ACTIVE])
    verbs, plan, _ = planned(root)
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    path = root / f"{TOPIC}-0" / f"{0:020d}.log"
    log = path.read_bytes()
    last = naive.parse(log)[-1]
    path.write_bytes(log[: last.position] + emptied(10).raw)
    problems = verbs.verify(plan).problems
    assert problems
    verbs.undo(plan)


@pytest.mark.parametrize("ends_in_records", [False, True])
def test_the_verification_of_new_segments_knows_the_rule_by_itself(
    ends_in_records: bool, tmp_path: Path
) -> None:
    """It is asked of a log that was rightly made for another topic."""
    made = LogDir(tmp_path).partition("t")
    for batches in ([state(0, "a")], [state(10, "b-")], ACTIVE):
        made.segment(*batches, mtime_ms=OLD)
    folder = made.write()
    policy = policy_of(
        rules_of(naive.Rules(now_ms=NOW_MS, horizon_ms=2**60)), Held(*naive.read_partition(folder))
    )
    found, target = compacted(folder, policy), tmp_path / "new"
    target.mkdir()
    (group,) = found.done.decision.groups
    path = staged(folder, found.prepared, found.done, group, InlineEngine("test"), target)
    assert naive.parse(path.read_bytes())[-1].records == 0
    tree = Tree(str(tmp_path), tmp_path.stat().st_ino)
    item = FinishItem(
        place=place_of(folder),
        change=change_of(folder, group, policy),
        stage=str(target),
        attributes=read_attributes(str(folder / f"{10:020d}.log"), tree),
        index_interval_bytes=policy.index_interval_bytes,
        make=False,
        ends_in_records=ends_in_records,
    )
    verified = verify_group(item, tree)
    assert isinstance(verified, Failed) is ends_in_records
    assert not isinstance(verified, Failed) or "its last batch has no records" in verified.why


# -- random logs of a coordinator


def coordinator_log(seed: int) -> History:
    """States and tombstones of few ids in some segments, with emptied batches anywhere; the active one may be empty."""
    chance = random.Random(seed)
    made = History(Shape())
    offset = 0
    segments = chance.randint(2, 6)
    for number in range(segments):
        base, batches = offset, []
        for _ in range(chance.randint(number < segments - 1, 5)):
            if (number or batches) and chance.random() < 0.3:
                batches.append(emptied(offset, offset + chance.randint(0, 3)))
            else:
                names = (
                    chance.choice("abcdef") + chance.choice(["", "-"]) for _ in range(chance.randint(1, 3))
                )
                batches.append(state(offset, *names))
            offset = batches[-1].last_offset + 1 + chance.choice([0, 0, 2])
        offset = max(offset, base + 1)
        made.segments.append((base, batches, OLD))
    return made


def _ends(logs_of: dict[int, bytes]) -> list[int]:
    return [naive.parse(log)[-1].records for log in logs_of.values() if log]


@pytest.mark.slow
def test_random_logs_of_a_coordinator_are_compacted_as_by_the_twin_and_end_with_records(
    tmp_path: Path,
) -> None:
    changed = 0
    for seed in range(25):
        rules = rules_of(
            naive.Rules(
                now_ms=NOW_MS, horizon_ms=2**60, segment_bytes=400 if seed % 3 else 100_000, ends_in_records=True,
                merge=seed % 5 != 0, high_watermark=2**40,
            )
        )  # fmt: skip
        made = coordinator_log(seed)
        tried = with_twin(tmp_path / str(seed), made, rules)
        changed += bool(tried.ours.done.changed)
        end = tried.theirs.markers.span_end
        below = {base: log for base, log in tried.ours.logs.items() if base < end}
        follows = any(log for base, log in tried.ours.logs.items() if base >= end)
        ends = _ends(below)
        assert all(ends if follows else ends[:-1]), seed
    assert changed >= 15


# -- check


def found(root: Path, version: str = "") -> list[Finding]:
    """What ``krepair check`` says of KR109."""
    report = check([str(root)], Options(now_ms=NOW_MS, broker_version=version))
    return [one for one in report.log_dirs[0].findings if one.rule == "KR109"]


LEFT_BY_A_CLEANER = [[state(0, "a"), emptied(1)], [state(10, "b")], ACTIVE]


@pytest.mark.parametrize(
    ("version", "severity"),
    [("", Severity.INFORMATION), ("2.2.1", Severity.BROKER_DOWN), ("3.7.2", Severity.BROKER_DOWN),
     ("3.9.1", Severity.BROKER_DOWN), ("3.9.2", None), ("4.3.1", None)],
)  # fmt: skip
def test_check_names_a_segment_that_ends_without_records(
    version: str, severity: Severity | None, tmp_path: Path
) -> None:
    root = write(tmp_path / "logs", LEFT_BY_A_CLEANER)
    named = found(root, version)
    assert [severity_of(one) for one in named] == ([] if severity is None else [severity])
    for one in named:
        assert (one.file, one.fix, one.command.verb) == (f"{0:020d}.log", "compact", "plan")
    carried_out(root)
    assert not found(root, version)


@pytest.mark.parametrize(
    ("before", "log_start", "named"),
    [
        ([[state(0, "a")], [emptied(10, 19)], []], 0, {"2.2.1": "none", "3.7.2": "none", "3.9.2": ""}),
        ([[state(0, "a")], [state(10, "b")], []], 0, {"2.2.1": "none", "3.7.2": ""}),
        ([[state(0, "a")], [state(10, "b")], []], 20, {"2.2.1": ""}),
        ([[state(0, "a"), emptied(1)], ACTIVE], 2, {"2.2.1": ""}),
        ([[state(0, "a"), emptied(1), state(2, "a")], ACTIVE], 0, {"2.2.1": ""}),
        ([[state(0, "a")], [state(20, "a"), emptied(21)]], 0, {"2.2.1": "none"}),
    ],
    ids=["emptied end, nothing follows", "offsets without a batch before an empty segment", "all below the log start",
         "below the log start", "inside of a segment", "end of the active segment"],
)  # fmt: skip
def test_check_says_where_no_plan_helps(
    before: Segments, log_start: int, named: dict[str, str], tmp_path: Path
) -> None:
    bases = [batches[0].base_offset if batches else 20 for batches in before]
    root = write(tmp_path / "logs", before, bases=bases, log_starts={f"{TOPIC}-0": log_start})
    for version, fix in named.items():
        findings = found(root, version)
        assert [one.fix for one in findings] == ([fix] if fix else []), version
        assert all("start 3.9.2 or later" in one.evidence for one in findings)


def test_another_topic_may_end_without_records(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", LEFT_BY_A_CLEANER)
    (root / f"{TOPIC}-0").rename(root / "__consumer_offsets-0")
    assert not found(root, "2.2.1")
