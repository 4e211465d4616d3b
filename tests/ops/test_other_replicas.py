"""What a plan removes with and without evidence about other replicas: markers and tombstones stay whole without it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.cli.views.writers import markdown
from krepair.errors import ExitCode, UsageError
from krepair.formats.words import time_text
from krepair.ops.explain import explained, row
from krepair.ops.show import show_view
from krepair.options import parse_partition
from krepair.plan.model import Evidence, PartitionPlan, Plan, RewriteSegments
from krepair.plan.planfile import seal
from krepair.plan.review import review
from tests.builders import NOW_MS, LogDir, abort, commit, data, emptied
from tests.compaction.directories import Verbs, groups_of, keys_of, logs
from tests.ops.replica_scenes import (
    OLD,
    SAID,
    directory,
    given,
    left_in,
    watermark,
)
from tests.pages import facts, titled, words_of

pytestmark = pytest.mark.replicas


def part(plan: Plan) -> PartitionPlan:
    return plan.partitions[0]


PRODUCT = [
    one
    for one in itertools.product(SAID, ("markers", "compact"), (2, 1), (False, True), (True, False))
    if one[1:3] != ("compact", 1)  # messages of v1 are not compacted by key
]


@pytest.mark.parametrize(("kind", "fix", "magic", "stamped", "merge"), PRODUCT)
def test_markers_and_tombstones_go_only_with_evidence(
    kind: str, fix: str, magic: int, stamped: bool, merge: bool, tmp_path: Path
) -> None:
    log_dir = directory(tmp_path, magic=magic, stamped=stamped)
    watermark(log_dir)
    verbs = Verbs(log_dir, given(tmp_path, kind, fixes=(fix,), merge=merge))
    before = left_in(log_dir / "t-0")
    plan = verbs.plan()
    assert review(plan) == []
    if part(plan).changes:
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
    after = left_in(log_dir / "t-0")
    if kind == "none":
        assert (after.markers, after.tombstones) == (before.markers, before.tombstones)
    else:
        free = {5, 7, 9} if fix == "compact" else {9}
        assert set(before.markers) - set(after.markers) == (free if magic == 2 else set())
        # of v1, the value of the first group stays as its last message: so does its tombstone
        stays = fix == "markers" or (magic == 1 and not merge)
        assert after.tombstones == (1 if stays else 0)
    assert 8 not in after.batches
    if fix == "compact":
        assert not {0, 4, 6} & set(after.batches)
    evidence = part(plan).evidence
    assert isinstance(evidence, Evidence)
    assert evidence.kind == kind
    again = verbs.plan()
    assert part(again).changes == ()


def test_the_last_marker_of_the_span_stays_whole_without_evidence(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t", index_interval_bytes=200)
    partition.segment(emptied(0, pid=7, timestamp=OLD), commit(1, pid=7, timestamp=OLD), mtime_ms=OLD)
    partition.segment(data(2))
    log_dir.write()
    watermark(tmp_path / "logs", 3)
    verbs = Verbs(tmp_path / "logs", given(tmp_path, "none", fixes=("markers",)))
    plan = verbs.plan()
    assert [tally.reason for tally in groups_of(part(plan))[0].sources[0].reasons] == ["K09", "D01"]
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert logs(tmp_path / "logs" / "t-0")[0] == commit(1, pid=7, timestamp=OLD).raw


@pytest.mark.parametrize("kind", ["only-replica", "as-broker"])
def test_a_segment_dated_in_the_future_does_not_move_the_horizon(kind: str, tmp_path: Path) -> None:
    """One segment dated 2030: markers younger than ``delete.retention.ms`` stay."""
    log_dir = directory(tmp_path, mtime_ms=NOW_MS - 1000)
    watermark(log_dir)
    for path in (log_dir / "t-0").glob("*12.log"):
        os.utime(path, (1_900_000_000, 1_900_000_000))
    plan = Verbs(log_dir, given(tmp_path, kind)).plan()
    assert part(plan).horizon_ms == NOW_MS - 86_400_000
    assert keys_of(part(plan)).tombstones_dropped == 0
    assert left_in(log_dir / "t-0").markers == (5, 7, 9)


@pytest.mark.parametrize("kind", ["as-broker", "only-replica"])
def test_a_later_horizon_needs_more_than_as_broker(kind: str, tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    plan = Verbs(log_dir, given(tmp_path, kind, delete_horizon=str(NOW_MS + 10**9))).plan()
    latest = NOW_MS - 86_400_000 if kind == "as-broker" else NOW_MS + 10**9
    assert part(plan).horizon_ms == latest
    assert review(plan) == []


def test_a_transaction_of_two_epochs_leaves_the_partition_alone_but_for_an_only_replica(
    tmp_path: Path,
) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t", index_interval_bytes=200)
    partition.segment(data(0, 1, pid=7, epoch=1, txn=True, timestamp=OLD), data(1, 1), mtime_ms=OLD)
    partition.segment(
        data(2, 1, pid=7, epoch=2, txn=True, timestamp=OLD), abort(3, pid=7, epoch=2), mtime_ms=OLD
    )
    partition.segment(data(4))
    log_dir.write()
    watermark(tmp_path / "logs", 5)
    for kind, fix in itertools.product(SAID, ("markers", "compact")):
        found = part(Verbs(tmp_path / "logs", given(tmp_path, kind, fixes=(fix,))).plan())
        assert (found.code == "mixed-epochs") == (kind in ("none", "as-broker")), (kind, fix, found.code)
        if found.code:
            assert "the batch at offset 2 goes on with a transaction" in found.why


def test_a_transaction_of_two_epochs_inside_one_segment_is_seen_too(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t", index_interval_bytes=200)
    batches = [
        data(0, 1, pid=7, epoch=1, txn=True),
        data(1, 1, pid=7, epoch=2, txn=True),
        abort(2, pid=7, epoch=2),
    ]
    partition.segment(*batches, mtime_ms=OLD)
    partition.segment(data(3))
    log_dir.write()
    watermark(tmp_path / "logs", 4)
    assert part(Verbs(tmp_path / "logs", given(tmp_path, "none")).plan()).code == "mixed-epochs"


# -- the page


def test_first_lines_say_what_is_left_out_and_what_to_type(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    plan = Verbs(log_dir, given(tmp_path, "none")).plan()
    page = show_view(plan, "P")
    first = titled(page, "Other replicas")
    assert first.table is not None
    evidence = part(plan).evidence
    assert isinstance(evidence, Evidence)
    assert min(evidence.always_bytes, evidence.by_time_bytes) > 0
    assert [row[1:] for row in first.table.rows] == [
        (f"{evidence.always_bytes} bytes", "0 bytes"),
        ("0 bytes", f"{evidence.by_time_bytes} bytes"),
        ("0 bytes", f"{evidence.later_bytes} bytes"),
    ]
    assert str(first.commands[0]).startswith("kafka-topics.sh --bootstrap-server")
    assert str(first.commands[1]).endswith("--cluster cluster.txt --out PLAN")
    text = markdown(page)
    assert facts(page.sections[0])["Evidence"].endswith("more with --cluster FILE: krepair explain evidence")
    assert "--only-replica TOPIC" in words_of(explained(row("evidence")))
    assert not any(command.has("--only-replica") for one in page.sections for command in one.commands)
    assert "unclean-election" in text


def summary(plan: Plan) -> tuple[str, str]:
    """What is said of the delete horizon, and which one it is."""
    page = show_view(plan, "P")
    lines = titled(page, "What each delete horizon would give").lines
    return "\n".join(lines), facts(titled(page, "How it was made"))["delete horizon"]


def bytes_in_plan(plan: Plan) -> list[int]:
    """The column "goes" of the table of parts."""
    table = titled(show_view(plan, "P"), "Other replicas").table
    assert table is not None
    assert [row[0].split()[0] for row in table.rows] == ["superseded", "markers", "markers"]
    return [int(row[1].split()[0]) for row in table.rows]


@pytest.mark.parametrize("fix", ["markers", "compact"])
@pytest.mark.parametrize("kind", ["as-broker", "only-replica"])
@pytest.mark.parametrize("mtime_ms", [OLD, NOW_MS - 86_400_500])
def test_what_goes_by_the_chosen_horizon_counts_as_in_this_plan(
    mtime_ms: int, kind: str, fix: str, tmp_path: Path
) -> None:
    """The markers are older than newest, or between it and now minus delete.retention.ms."""
    log_dir = directory(tmp_path, mtime_ms=mtime_ms)
    watermark(log_dir)
    found = {}
    for horizon in ("newest", str(NOW_MS - 86_400_000), str(OLD - 1)):
        plan = Verbs(log_dir, given(tmp_path, kind, fixes=(fix,), delete_horizon=horizon)).plan()
        evidence = part(plan).evidence
        assert isinstance(evidence, Evidence)
        whole = (evidence.by_time_bytes, evidence.later_bytes)
        assert [size > 0 for size in whole] == [mtime_ms == OLD, mtime_ms != OLD]
        found[horizon] = bytes_in_plan(plan)[1:]
    newest, later, earlier = found.values()
    assert newest == [whole[0], 0]
    assert later == list(whole)
    assert earlier == [0, 0]


@pytest.mark.parametrize(("kind", "word"), [("as-broker", "with --as-broker"), ("only-replica", "")])
def test_a_time_that_is_not_used_is_told(kind: str, word: str, tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    plan = Verbs(log_dir, given(tmp_path, kind, delete_horizon=str(NOW_MS))).plan()
    lines, horizon = summary(plan)
    assert horizon == time_text(NOW_MS)
    told = f"later than now minus delete.retention.ms: {word} the plan uses {time_text(NOW_MS - 86_400_000)}."
    assert (told in lines) is bool(word), lines
    assert bool(lines) is bool(word)


def test_where_no_horizon_is_used_the_summary_says_none(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    _, horizon = summary(Verbs(log_dir, given(tmp_path, "none")).plan())
    assert horizon == "none (newest was asked; no evidence of other replicas)"
    _, horizon = summary(Verbs(log_dir, given(tmp_path, "only-replica")).plan())
    assert horizon == "newest"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("as-broker", "--as-broker"),
        ("only-replica", "--only-replica"),
    ],
)
def test_a_consent_stands_on_the_short_page(kind: str, words: str, tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    page = show_view(Verbs(log_dir, given(tmp_path, kind)).plan(), "P")
    assert facts(page.sections[0])["Consent"].startswith(words)


def test_an_assumed_high_watermark_is_a_consent_on_the_short_page(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    page = show_view(Verbs(log_dir, given(tmp_path, "none", assume_high_watermark="log-end")).plan(), "P")
    assert facts(page.sections[0])["Consent"].startswith("--assume-high-watermark")


# -- the review


def sealed(plan: Plan, change: PartitionPlan, **policy: object) -> Plan:
    return seal(replace(plan, partitions=(change,), policy=replace(plan.policy, **policy)))


def with_sources(found: PartitionPlan, **fields: object) -> PartitionPlan:
    changes = tuple(
        replace(change, sources=tuple(replace(source, **fields) for source in change.sources))
        if isinstance(change, RewriteSegments)
        else change
        for change in found.changes
    )
    return replace(found, changes=changes)


def codes(plan: Plan) -> set[str]:
    return {objection.code for objection in review(plan)}


def test_review_objects_to_a_plan_that_was_edited_to_remove_more(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    plan = Verbs(log_dir, given(tmp_path, "only-replica")).plan()
    found = part(plan)
    evidence = found.evidence
    assert isinstance(evidence, Evidence)
    none = replace(evidence, kind="none")
    others = plan.policy.others
    edited = {
        "evidence taken away": sealed(plan, replace(found, evidence=UNSET)),
        "evidence none, but all goes": sealed(plan, replace(found, evidence=none)),
        "evidence none, sources edited too": sealed(
            plan, with_sources(replace(found, evidence=none), keeps_all=True)
        ),
        "nobody said that": sealed(plan, found, others=replace(others, only_replica=("other",))),
        "another kind": sealed(plan, replace(found, evidence=replace(evidence, kind="as-broker"))),
        "in sync without a file": sealed(plan, replace(found, evidence=replace(evidence, kind="in-sync"))),
        "a later horizon": sealed(plan, replace(found, horizon_ms=NOW_MS)),
    }
    for name, crafted in edited.items():
        assert "RV33" in codes(crafted), name
    assert codes(sealed(plan, found)) == set()


# -- the evidence of --describe


DESCRIBED = """Topic: t\tTopicId: AAAAAAAAAAAAAAAAAAAAAA\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1
\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: {replicas}\tIsr: {isr}
"""


@pytest.mark.parametrize(
    ("isr", "replicas", "kind"),
    [
        ("2,3", "1,2,3", "in-sync"),
        ("1,2,3", "1,2,3", "none"),
        ("2", "1,2,3", "none"),
        ("2,3", "4,2,3", "none"),
    ],
)
def test_what_the_running_brokers_print_lets_markers_and_tombstones_go_by_time(
    isr: str, replicas: str, kind: str, tmp_path: Path
) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    file = tmp_path / "cluster.txt"
    file.write_text(DESCRIBED.format(isr=isr, replicas=replicas))
    verbs = Verbs(log_dir, given(tmp_path, "none", cluster=str(file)))
    plan = verbs.plan()
    assert review(plan) == []
    evidence = part(plan).evidence
    assert isinstance(evidence, Evidence)
    assert evidence.kind == kind, evidence.why
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert left_in(log_dir / "t-0").markers == (() if kind == "in-sync" else (5, 7, 9))


@pytest.mark.parametrize("others", [True, False], ids=["other checkpoints", "no checkpoint"])
def test_an_old_description_is_no_evidence_where_no_high_watermark_was_recorded(
    tmp_path: Path, others: bool
) -> None:
    log_dir = directory(tmp_path)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    for checkpoint in log_dir.glob("*-checkpoint"):
        if checkpoint.name.startswith("replication") or not others:
            checkpoint.unlink()
    file = tmp_path / "cluster.txt"
    file.write_text(DESCRIBED.format(isr="2,3", replicas="1,2,3"))
    os.utime(file, (1_500_000_000, 1_500_000_000))
    given_now = given(tmp_path, "none", cluster=str(file), assume_high_watermark="log-end")
    evidence = part(Verbs(log_dir, given_now).plan()).evidence
    assert isinstance(evidence, Evidence)
    assert evidence.kind == "none"
    assert ("before this broker's last write" if others else "no checkpoint is here") in evidence.why


def test_an_only_replica_that_describe_contradicts_keeps_everything(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    file = tmp_path / "cluster.txt"
    file.write_text(DESCRIBED.format(isr="1,2,3", replicas="1,2,3"))
    evidence = part(Verbs(log_dir, given(tmp_path, "only-replica", cluster=str(file))).plan()).evidence
    assert isinstance(evidence, Evidence)
    assert evidence.kind == "none"
    assert "has replicas 1, 2, 3" in evidence.why


def test_a_partition_that_is_typed_wrong_is_named() -> None:
    with pytest.raises(UsageError, match="--partition 't'"):
        parse_partition("t")
