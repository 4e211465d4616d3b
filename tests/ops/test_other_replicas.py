"""What a plan removes with and without evidence about other replicas, and what it takes for evidence."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.cli.views.writers import markdown
from krepair.errors import ExitCode, RefusedError, UsageError
from krepair.fixes.table import requested_fixes
from krepair.formats.words import time_text
from krepair.logdir.cluster import METADATA_FOLDER, ClusterView, read_cluster_file
from krepair.logdir.values import LogDir as LogDirView
from krepair.logdir.view import read_log_dir
from krepair.ops.explain import explained, row
from krepair.ops.plan import read_other_brokers
from krepair.ops.show import show_view
from krepair.plan.model import Evidence, PartitionPlan, Plan, RewriteSegments
from krepair.plan.planfile import seal
from krepair.plan.review import review
from krepair.start import log_dirs_given
from tests.builders import NOW_MS, Batch, LogDir, abort, commit, data, emptied
from tests.compaction.directories import Verbs, groups_of, keys_of, logs, options
from tests.ops.replica_scenes import EXPIRED, OLD, SAID, directory, given, left_in, watermark
from tests.ops.replicas_read import LINE, broker, cleaned, describe, of_two, part, verbs, whole
from tests.ops.replicas_read import evidence as evidence_in
from tests.pages import facts, titled, words_of

pytestmark = pytest.mark.replicas
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
    evidence = evidence_in(plan)
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


def two_epochs(root: Path, *segments: list[Batch]) -> Path:
    """Producer 7 begins a transaction with epoch 1 and goes on with epoch 2."""
    log_dir = LogDir(root / "logs")
    partition = log_dir.partition("t", index_interval_bytes=200)
    for batches in segments:
        partition.segment(*batches, mtime_ms=OLD)
    partition.segment(data(4))
    log_dir.write()
    watermark(root / "logs", 5)
    return root / "logs"


FIRST, SECOND = (
    data(0, 1, pid=7, epoch=1, txn=True, timestamp=OLD),
    data(2, 1, pid=7, epoch=2, txn=True, timestamp=OLD),
)
END = abort(3, pid=7, epoch=2)


def test_a_transaction_of_two_epochs_leaves_the_partition_alone_but_for_an_only_replica(
    tmp_path: Path,
) -> None:
    log_dir = two_epochs(tmp_path, [FIRST, data(1, 1)], [SECOND, END])
    for kind, fix in itertools.product(SAID, ("markers", "compact")):
        found = part(Verbs(log_dir, given(tmp_path, kind, fixes=(fix,))).plan())
        assert (found.code == "mixed-epochs") == (kind in ("none", "as-broker")), (kind, fix, found.code)
        if found.code:
            assert "the batch at offset 2 continues a transaction" in found.why


def test_a_transaction_of_two_epochs_inside_one_segment_is_seen_too(tmp_path: Path) -> None:
    log_dir = two_epochs(tmp_path, [FIRST, SECOND, END])
    assert part(Verbs(log_dir, given(tmp_path, "none")).plan()).code == "mixed-epochs"


# -- the page


def test_first_lines_say_what_is_left_out_and_what_to_type(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    plan = Verbs(log_dir, given(tmp_path, "none")).plan()
    page = show_view(plan, "P")
    first = titled(page, "Other replicas")
    assert first.table is not None
    evidence = evidence_in(plan)
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
        evidence = evidence_in(plan)
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
    ("kind", "more", "words"),
    [
        ("as-broker", {}, "--as-broker"),
        ("only-replica", {}, "--only-replica"),
        ("none", {"assume_high_watermark": "log-end"}, "--assume-high-watermark"),
    ],
)
def test_a_consent_stands_on_the_short_page(
    kind: str, more: dict[str, object], words: str, tmp_path: Path
) -> None:
    log_dir = directory(tmp_path)
    if not more:
        watermark(log_dir)
    page = show_view(Verbs(log_dir, given(tmp_path, kind, **more)).plan(), "P")
    assert facts(page.sections[0])["Consent"].startswith(words)


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
    evidence = evidence_in(plan)
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


def described(root: Path, isr: str, replicas: str) -> str:
    return describe(root, LINE.format(isr=isr, replicas=replicas), topic_id="A" * 22)


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
    verbs = Verbs(log_dir, given(tmp_path, "none", cluster=described(tmp_path, isr, replicas)))
    plan = verbs.plan()
    assert review(plan) == []
    evidence = evidence_in(plan)
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
    file = described(tmp_path, "2,3", "1,2,3")
    os.utime(file, (1_500_000_000, 1_500_000_000))
    given_now = given(tmp_path, "none", cluster=file, assume_high_watermark="log-end")
    evidence = evidence_in(Verbs(log_dir, given_now).plan())
    assert evidence.kind == "none"
    assert ("before this broker's last write" if others else "no checkpoint is here") in evidence.why


def test_an_only_replica_that_describe_contradicts_keeps_everything(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    file = described(tmp_path, "1,2,3", "1,2,3")
    evidence = evidence_in(Verbs(log_dir, given(tmp_path, "only-replica", cluster=file)).plan())
    assert evidence.kind == "none"
    assert "has replicas 1, 2, 3" in evidence.why


# -- ``__cluster_metadata-0`` beside the partitions: where it assigns this replica alone, no option has to say so.

# The logs are those of real controllers (``tests/logdir/metadata_logs``); topic ``alone`` has one replica there, on
# broker 3.
LOGS = Path(__file__).resolve().parents[1] / "logdir" / "metadata_logs"
VERSIONS = ("3.9.2", "4.3.1")
NAMES = ("3.9.2-b2-b3-down", "3.9.2-all-down", "4.3.1-b2-b3-down", "4.3.1-all-down")


def beside(root: Path, name: str, *, topic: str = "alone", broker: int = 3, topic_id: str = "") -> Path:
    """A log directory with one partition, and the metadata log of a real cluster beside it."""
    log_dir = directory(root)
    if topic != "t":
        (log_dir / "t-0").rename(log_dir / f"{topic}-0")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} 0 14\n")
    shutil.copytree(LOGS / name, log_dir / METADATA_FOLDER)
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    if topic_id:
        set_topic_id(log_dir / f"{topic}-0", topic_id)
    return log_dir


def set_topic_id(folder: Path, topic_id: str) -> None:
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def planned(
    root: Path,
    log_dir: Path,
    topic: str = "alone",
    *,
    only_replica: tuple[str, ...] = (),
    config: Path | None = None,
) -> tuple[Verbs, Plan]:
    given = options(
        root,
        topic,
        delete_horizon="newest",
        assume_high_watermark="",
        settings_given=EXPIRED,
        topics=(topic,),
        broker_version="3.9.2",
        only_replica=only_replica,
        config=None if config is None else str(config),
    )
    verbs = Verbs(log_dir, given)
    return verbs, verbs.plan()


def kind_of(plan: Plan) -> str:
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    return found.kind


def id_of(name: str, topic: str = "alone") -> str:
    return read_cluster_file(str(LOGS / name)).partitions[topic, 0].topic_id


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_metadata_log_does_not_assign_to_this_replica_alone_keeps_everything(
    version: str, tmp_path: Path
) -> None:
    name = f"{version}-b2-b3-down"
    elsewhere = {
        "another broker": beside(tmp_path / "broker", name, broker=1),
        "two replicas": beside(tmp_path / "two", name, topic="two", broker=1),
        "another life of the topic": beside(tmp_path / "life", name, topic_id="AAAAAAAAAAAAAAAAAAAAAg"),
        "not in it": beside(tmp_path / "none", name, topic="other"),
        "no id of this broker": beside(tmp_path / "nobody", name),
        "damaged": beside(tmp_path / "damaged", name),
        "another directory": beside(tmp_path / "directory", name),
    }
    (elsewhere["no id of this broker"] / "meta.properties").write_text("version=1\ncluster.id=c\n")
    log = next((elsewhere["damaged"] / METADATA_FOLDER).glob("*.log"))
    log.write_bytes(log.read_bytes()[:60] + b"damaged" + log.read_bytes()[67:])
    (elsewhere["another directory"] / "meta.properties").write_text(
        "version=1\nnode.id=3\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAzg\n"
    )
    for why, log_dir in elsewhere.items():
        topic = "two" if why == "two replicas" else "other" if why == "not in it" else "alone"
        _, plan = planned(log_dir.parent, log_dir, topic)
        assert kind_of(plan) == "none", why
        assert review(plan) == []


def test_a_partition_that_is_being_moved_is_no_only_replica(tmp_path: Path) -> None:
    """While a reassignment goes on, old and new replicas are assigned."""
    for version in VERSIONS:
        root = tmp_path / version
        log_dir = beside(root, f"{version}-reassigning", topic="two", broker=1)
        assert kind_of(planned(root, log_dir, "two")[1]) == "none"


def test_the_plan_says_which_metadata_log_it_was(tmp_path: Path) -> None:
    log_dir = beside(tmp_path, NAMES[0])
    _, plan = planned(tmp_path, log_dir)
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    assert found.why == f"{log_dir}/{METADATA_FOLDER} has this broker as its only replica"
    assert plan.policy.others.own_metadata == (f"{log_dir}/{METADATA_FOLDER}",)


# -- the metadata log is not beside the partitions
BESIDE = ""
PLACES = (
    BESIDE,
    "metadata.log.dir={meta}\nlog.dirs={logs}\n",
    "log.dirs={logs},{meta}\n",
    "log.dir={meta}\n",
)


def apart(
    root: Path, name: str, text: str, *, topic: str, broker: int, node: int = -1
) -> tuple[Path, Path | None]:
    """A log directory, and a configuration that puts the metadata log into another one, if not beside it."""
    log_dir = beside(root, name, topic=topic, broker=broker)
    if text == BESIDE:
        return log_dir, None
    meta = root / "meta"
    meta.mkdir()
    (log_dir / METADATA_FOLDER).rename(meta / METADATA_FOLDER)
    (meta / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    config = root / "server.properties"
    text = f"node.id={broker if node < 0 else node}\n{text}"
    config.write_text(text.format(meta=meta, logs=log_dir))
    return log_dir, config


ASSIGNED = [
    *((name, BESIDE, with_id) for name in NAMES for with_id in (True, False)),
    *((NAMES[0], text, False) for text in PLACES if text != BESIDE),
]


@pytest.mark.parametrize(("name", "text", "with_id"), ASSIGNED)
def test_one_assigned_replica_is_read_from_the_metadata_log(
    name: str, text: str, with_id: bool, tmp_path: Path
) -> None:
    log_dir, config = apart(tmp_path, name, text, topic="alone", broker=3)
    if with_id:
        set_topic_id(log_dir / "alone-0", id_of(name))
    verbs, plan = planned(tmp_path, log_dir, config=config)
    assert kind_of(plan) == "only-replica"
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    left = left_in(log_dir / "alone-0")
    assert (left.markers, left.tombstones) == ((), 0)


@pytest.mark.parametrize(
    ("now", "text"),
    [("tells it", BESIDE), ("has replicas 3, 1", BESIDE), ("has replicas 3, 1", PLACES[1])],
    ids=["beside, not told", "beside", "elsewhere"],
)
@pytest.mark.parametrize("said", [False, True])
def test_apply_asks_the_metadata_log_again_which_the_broker_has_written_since(
    said: bool, now: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was assigned since may have the value already, and not the tombstone that would go."""
    log_dir, config = apart(tmp_path, "3.9.2-all-down", text, topic="alone", broker=3)
    place = f"{log_dir if text == BESIDE else tmp_path / 'meta'}/{METADATA_FOLDER}"
    verbs, plan = planned(tmp_path, log_dir, only_replica=("alone",) if said else (), config=config)
    assert kind_of(plan) == "only-replica"
    before = left_in(log_dir / "alone-0")
    later = read_cluster_file(str(LOGS / "3.9.2-reassigning"))
    if now != "tells it":
        line = read_cluster_file(str(LOGS / "3.9.2-all-down")).partitions["alone", 0]
        line = dataclasses.replace(line, replicas=(3, 1), moving=True)
        later = dataclasses.replace(later, partitions={("alone", 0): line})
    later = dataclasses.replace(later, path=place)
    monkeypatch.setattr("krepair.fixes.evidence.read_cluster_file", lambda path: later)
    report = verbs.apply(plan)
    if said and now == "tells it":
        assert report.exit_code is ExitCode.DONE, "it does not contradict what was said"
        return
    assert report.exit_code is ExitCode.STALE_PLAN
    who = f"no metadata log of this broker ({METADATA_FOLDER})" if now == "tells it" else place
    assert f"{who} {now} now" in report.results[0].why
    assert left_in(log_dir / "alone-0") == before
    assert str(report.next_command).startswith("krepair plan ")


@pytest.mark.parametrize("text", PLACES)
@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_that_names_several_replicas_beats_only_replica_wherever_it_is(
    version: str, text: str, tmp_path: Path
) -> None:
    log_dir, config = apart(tmp_path, f"{version}-b2-b3-down", text, topic="two", broker=1)
    _, plan = planned(tmp_path, log_dir, "two", only_replica=("two",), config=config)
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    assert found.kind == "none"
    place = log_dir if text == BESIDE else tmp_path / "meta"
    assert f"--only-replica two, but {place}/{METADATA_FOLDER} has replicas " in found.why
    assert kind_of(planned(tmp_path, log_dir, "two", only_replica=("*",), config=config)[1]) == "none"


def test_metadata_of_another_broker_or_cluster_says_nothing(tmp_path: Path) -> None:
    log_dir, config = apart(tmp_path, NAMES[0], PLACES[1], topic="two", broker=1, node=2)
    assert config is not None
    for _ in ("broker", "cluster"):
        _, plan = planned(tmp_path, log_dir, "two", only_replica=("two",), config=config)
        assert kind_of(plan) == "only-replica"
        config.write_text(config.read_text().replace("node.id=2", "node.id=1"))
        (tmp_path / "meta" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")


@pytest.mark.parametrize("found", [True, False])
def test_the_page_says_what_an_only_replica_was_held_against(found: bool, tmp_path: Path) -> None:
    log_dir, config = apart(tmp_path, NAMES[0], PLACES[1], topic="alone", broker=3)
    if not found:
        shutil.rmtree(tmp_path / "meta")
    _, plan = planned(tmp_path, log_dir, only_replica=("alone",), config=config)
    text = words_of(show_view(plan, "P"))
    held = f"{tmp_path}/meta/{METADATA_FOLDER} does not contradict it"
    assert (held in text) is found
    assert ("No metadata log was found that could contradict it" in text) is not found


# -- What a tired operator may give as evidence: a wrong or an old file, a directory of nobody, half a broker.

GOOD = LINE.format(replicas="1,2,3", isr="2,3")
MINE, OTHERS = "AAAAAAAAAAAAAAAAAAAAAw", "BBBBBBBBBBBBBBBBBBBBBQ"


def in_sync(root: Path, **more: Any) -> Verbs:
    """``--cluster`` with a line in which brokers 2 and 3 are in sync without broker 1."""
    if "cluster" not in more:
        more["cluster"] = describe(root, GOOD)
    run = verbs(root, "compact", **more)
    run.given = dataclasses.replace(run.given, delete_horizon="newest")
    return run


# -- directories of nobody


def test_one_directory_is_not_given_for_two_brokers(tmp_path: Path) -> None:
    of_two(tmp_path, "compact")
    (tmp_path / "link").symlink_to(tmp_path / "b2")
    for second in ("b2", "link"):
        with pytest.raises(UsageError, match="is given for two brokers"):
            verbs(tmp_path, "compact", f"2={tmp_path}/b2", f"3={tmp_path}/{second}").plan()


# -- half a broker


def moving(root: Path, number: int) -> Path:
    """A second log directory of a broker, with a folder in it that is about to become the replica."""
    more = broker(root / "more", number, whole())
    (more / "t-0").rename(more / f"t-0.{uuid.UUID(int=1).hex}-future")
    return more


def test_a_second_log_directory_counts_though_its_inode_is_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roots of two file systems of one kind have the same inode number."""
    mine, more = broker(tmp_path, 1, cleaned()), moving(tmp_path, 1)
    same = mine.stat().st_ino

    def as_a_mount(path: str) -> LogDirView:
        view = read_log_dir(path)
        return view._replace(inode=same, device=77) if path == str(more) else view

    monkeypatch.setattr(log_dirs_given, "read_log_dir", as_a_mount)
    run = verbs(tmp_path, "compact", f"1={mine},{more}", replicas="1,2")
    _, own = read_other_brokers(requested_fixes(("compact",)), run.given, read_log_dir(str(mine)))
    assert [view.path for view in own.views] == [str(more)]


@pytest.mark.parametrize("said", ["replicas", "only-replica", "as-broker"])
def test_a_partition_that_lies_in_two_log_directories_of_this_broker_keeps_everything(
    said: str, tmp_path: Path
) -> None:
    """Whichever of the two the broker goes on with: the other one's older records may be what comes back."""
    twin = broker(tmp_path / "more", 1, whole())
    run = of_two(tmp_path, "compact")
    run.given = dataclasses.replace(run.given, replicas=(*run.given.replicas, f"1={tmp_path}/b1,{twin}"))
    if said != "replicas":
        run.given = dataclasses.replace(run.given, cluster="", **SAID[said])
    found = evidence_in(run.plan())
    assert found.kind == "none"
    assert f"this broker has it in {twin}, too" in found.why


def test_a_configuration_that_does_not_name_this_directory_keeps_everything(tmp_path: Path) -> None:
    """It names several: one of them may hold a folder that is about to become the replica."""
    config = tmp_path / "server.properties"
    config.write_text("broker.id=1\nlog.dirs=/var/lib/kafka1,/var/lib/kafka2\n")
    run = of_two(tmp_path, "compact", config=str(config))
    plan = run.plan()
    assert evidence_in(plan).kind == "none"
    assert "/var/lib/kafka1, /var/lib/kafka2" in evidence_in(plan).why
    sides = (f"2={tmp_path}/b2", f"1={tmp_path}/b1,{moving(tmp_path, 1)}")
    plan = verbs(tmp_path, "compact", *sides, replicas="1,2", config=str(config)).plan()
    assert evidence_in(plan).kind == "replicas"
    config.write_text("broker.id=1\nlog.dirs=/var/lib/kafka1\n")
    assert evidence_in(run.plan()).kind == "replicas"


@pytest.mark.parametrize("given", ["directory", "own"])
def test_a_broker_that_has_registered_more_log_directories_than_were_read_keeps_everything(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.7 on the metadata log says how many a broker has."""
    found = []
    for count in (1, 2):
        dirs = tuple(str(uuid.UUID(int=number)) for number in range(count))

        def with_brokers(path: str, dirs: tuple[str, ...] = dirs) -> ClusterView:
            of = 1 if given == "own" else 2
            known = {of: dirs}
            return dataclasses.replace(read_cluster_file(path), brokers=known)

        monkeypatch.setattr("krepair.fixes.evidence.read_cluster_file", with_brokers)
        found.append(evidence_in(of_two(tmp_path, "compact").plan()))
    assert [one.kind for one in found] == ["replicas", "none"]
    assert "registered 2 log directories" in found[1].why


# -- the state of the cluster


@pytest.mark.parametrize("kind", ["replicas", "alone in it"])
def test_a_state_of_another_topic_of_the_same_name_says_nothing(kind: str, tmp_path: Path) -> None:
    """The file of another cluster, where this topic has one replica: no other one would be asked."""
    broker(tmp_path, 1, cleaned(), topic_id=MINE)
    broker(tmp_path, 2, cleaned())
    line = LINE.format(replicas="1,2" if kind == "replicas" else "1", isr="1")
    for topic_id, expected in ((OTHERS, "none"), (MINE, "replicas")):
        cluster = describe(tmp_path, line, topic_id=topic_id)
        plan = verbs(tmp_path, "compact", f"2={tmp_path}/b2", cluster=cluster).plan()
        assert evidence_in(plan).kind == expected, evidence_in(plan).why
        assert ("topic id" in evidence_in(plan).why) == (expected == "none")


def test_an_answer_of_the_running_cluster_from_before_the_stop_says_nothing(tmp_path: Path) -> None:
    """Broker 1 was out of the ISR then too, as it was stopped then too. A copy may make a file newer, never older."""
    log_dir = broker(tmp_path, 1, cleaned())
    run = in_sync(tmp_path)
    assert evidence_in(run.plan()).kind == "in-sync"
    stopped_ms = (log_dir / "replication-offset-checkpoint").stat().st_mtime_ns // 1_000_000
    file = tmp_path / "cluster.txt"
    for before_ms, kind in ((61_000, "none"), (50_000, "in-sync")):
        os.utime(file, ns=((stopped_ms - before_ms) * 1_000_000,) * 2)
        found = evidence_in(run.plan())
        assert found.kind == kind, found.why
        assert ("before this broker's last write" in found.why) == (kind == "none")
        assert ("if it was copied, this is the time of the copy" in found.why) == (kind == "in-sync")


def test_a_segment_dated_in_the_future_takes_no_evidence_away(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, cleaned())
    for path in (log_dir / "t-0").glob("*.log"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    assert evidence_in(in_sync(tmp_path).plan()).kind == "in-sync"


def test_a_topic_with_one_replica_is_told_the_option_that_fits(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    line = "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1\tIsr: 1\n"
    found = evidence_in(in_sync(tmp_path, cluster=describe(tmp_path, line)).plan())
    assert found.kind == "none"
    assert "--only-replica t" in found.why


HEAD = "Topic: t\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(HEAD + GOOD + HEAD + GOOD, "every topic once", id="two answers"),
        pytest.param(HEAD + GOOD + GOOD, "every partition once", id="a line twice"),
        pytest.param(HEAD + GOOD[:-4], "cut in the middle of a line", id="cut in a line"),
        pytest.param(
            HEAD.replace("Count: 1", "Count: 2") + GOOD, "2 partitions of topic t", id="cut after a line"
        ),
        pytest.param(GOOD, "run --describe without a filter", id="no head"),
        *(
            pytest.param(
                HEAD + GOOD.replace(f"\t{left_out}", ""), "a line of kafka-topics.sh --describe", id=left_out
            )
            for left_out in ("Leader: 2", "Replicas: 1,2,3", "Isr: 2,3")
        ),
    ],
)
def test_a_text_that_is_not_one_whole_answer_is_refused_with_its_line(
    text: str, says: str, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned())
    file = tmp_path / "wrong.txt"
    file.write_text(text)
    with pytest.raises(RefusedError, match=says):
        in_sync(tmp_path, cluster=str(file)).plan()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (LINE.format(replicas="1,2,3", isr=""), "not in sync|no other replica"),
        (LINE.format(replicas="1,2,3", isr="2"), "replica 3 is not in sync"),
        (GOOD.replace("Leader: 2", "Leader: -1"), "was not written by a running broker"),
        (GOOD.rstrip("\n") + "\tMarkedForDeletion: true\n", "was not written by a running broker"),
    ],
    ids=["no isr", "one behind", "a leader of -1", "zookeeper"],
)
def test_a_line_that_does_not_show_all_others_in_sync_is_no_evidence(
    line: str, says: str, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned())
    found = evidence_in(in_sync(tmp_path, cluster=describe(tmp_path, line)).plan())
    assert found.kind == "none"
    assert re.search(says, found.why), found.why


def test_of_versions_that_do_not_say_who_answered_the_plan_says_whose_word_it_is(tmp_path: Path) -> None:
    """Up to 2.8; from 3.7 on the columns of the ELR show that a broker answered."""
    broker(tmp_path, 1, cleaned())
    elr = GOOD.rstrip("\n") + "\tElr: \tLastKnownElr: \n"
    of_an_old_broker = elr.replace(
        "Elr: ", "Elr: N/A"
    )  # asked by a tool of 3.7 or later, which knows no ZooKeeper
    for line, said in ((GOOD, True), (elr, False), (of_an_old_broker, False)):
        found = evidence_in(in_sync(tmp_path, cluster=describe(tmp_path, line)).plan())
        assert found.kind == "in-sync"
        assert ("that a broker answered, and not ZooKeeper, is your word too" in found.why) == said


@pytest.mark.parametrize("fix", ["compact", "tail", "epochs"])
def test_a_facts_file_is_for_compare_and_a_plan_refuses_it(fix: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    (tmp_path / "b2.facts").write_bytes(b"krepair facts")
    with pytest.raises(UsageError, match=r"--replicas 2=\S+b2.facts: a plan needs the log directories"):
        verbs(tmp_path, fix, f"2={tmp_path}/b2.facts", replicas="1,2").plan()
