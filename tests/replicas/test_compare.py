"""Real clusters get their verdicts, healthy models raise no alarm, and planted divergences are found."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from krepair.derive.transactions import last_stable_offset
from krepair.durable.scratch import Scratch
from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode, RefusedError
from krepair.fixes.replicas import parse_brokers, read_current
from krepair.formats import txn_index
from krepair.formats.facts_file import FactsReader
from krepair.formats.txn_index import AbortedTxn
from krepair.logdir.config import load_settings
from krepair.ops.compare import CompareReport, Comparison, compare, open_brokers, served_offsets
from krepair.ops.facts import facts
from krepair.options import EngineName, Options
from krepair.replicas import contents
from krepair.replicas.records import find_keys
from krepair.rules.replicas import model as m
from tests.builders import LogDir, Record, abort, commit
from tests.builders import data as batch_of
from tests.flips import flip
from tests.replicas.directories import PLANTED, written
from tests.replicas.model import Cluster, healthy_clusters
from tests.replicas.real_clusters import NAMES, compared, sides_of, unpack_cluster
from tests.replicas.said import compared_cluster, compared_sides

FINE = {m.BYTE_EQUAL, m.HARMLESS, m.IS_BEHIND}
EXPECTED = {
    "tomb": (m.DIVERGED, m.TOMBSTONE_MISSED, (3,)),
    "abrt": (m.DIVERGED, m.ABORTED_TO_COMMITTED, (3,)),
    "comm": (m.DIVERGED, m.COMMITTED_TO_ABORTED, (3,)),
    "stuck": (m.DIVERGED, m.STUCK, (3,)),
    "behind": (m.IS_BEHIND, m.BEHIND, (3,)),
    "dele": (m.IS_BEHIND, m.BEHIND, (3,)),
    "tid": (m.DIVERGED, m.TOPIC_ID, (1, 2, 3)),
    "uncl": (m.DIVERGED, m.FORK, (1, 2)),
    "cutmid": (m.DIVERGED, m.CUT, None),
    "cutbatch": (m.DIVERGED, m.CUT, None),
    "flip": (m.DAMAGED, m.CORRUPT, None),
}
MORE = int(os.environ.get("KREPAIR_REPLICA_HISTORIES", "0"))


@pytest.mark.parametrize("name", NAMES)
def test_a_real_cluster_gets_its_verdict(name: str, tmp_path: Path) -> None:
    unpack_cluster(name, tmp_path)
    report = compared(tmp_path)
    scenario = name.split("-", 2)[2]
    verdict, kind, brokers = EXPECTED.get(scenario, ("", "", None))
    if not verdict:
        assert {one.verdict for one in report.partitions} <= FINE
        assert report.exit_code is ExitCode.DONE
        return
    [partition] = report.partitions
    found = {one.kind: one for one in partition.disagreements}
    assert partition.verdict == verdict
    assert kind in found
    if brokers is not None:
        assert found[kind].brokers == brokers
    assert report.exit_code is (ExitCode.DONE if verdict == m.IS_BEHIND else ExitCode.FOUND)


@pytest.mark.parametrize(("scenario", "kind"), [("future", "future"), ("stray", "stray")])
def test_marked_folders_are_listed(scenario: str, kind: str, tmp_path: Path) -> None:
    unpack_cluster(f"open-3.9.2-{scenario}", tmp_path)
    [marked] = compared(tmp_path).marked
    assert marked.kind == kind


def test_a_missed_tombstone_names_keys_what_each_serves_and_who_is_right(tmp_path: Path) -> None:
    unpack_cluster("open-3.9.2-tomb", tmp_path)
    [partition] = compared(tmp_path).partitions
    [found] = partition.disagreements
    assert (found.offset, found.count, found.right, partition.right) == (7, 3, (1, 2), (1, 2))
    assert next((line.key, line.have, line.lack) for line in found.keys) == ("t64195", (3,), (1, 2))
    served = {one.broker: (one.offset, one.value) for one in found.keys[0].served}
    assert served == {1: (-1, ""), 2: (-1, ""), 3: (7, "live-t64195")}


@pytest.mark.parametrize("name", NAMES)
def test_what_each_would_serve_is_what_a_real_broker_served(name: str, tmp_path: Path) -> None:
    manifest = unpack_cluster(name, tmp_path)
    opened = open_brokers(parse_brokers(sides_of(tmp_path)), Options())
    asked = 0
    for one in read_current(InlineEngine("test"), opened, lambda topic, number: True):
        told = (manifest.get("served_alone", {}).get(f"b{one.replica.broker}") or {}).get(one.log.state.topic)
        table = told and (told.get("read_committed", {}).get("map") or told.get("read_committed_map"))
        if table is None or one.replica.headers.damages:
            continue
        asked += 1
        stable = last_stable_offset(one.replica.transactions, one.replica.end)
        assert (told["start"], told["hw"], told["lso"]) == (one.log.state.log_start, one.replica.end, stable)
        mine = {
            _text(found.key): _shortened(found.value, found.value_size)
            for found in find_keys(one.source, (), served_offsets(one.replica))
            if found.value is not None
        }
        assert mine == {key: value for key, value in table.items() if value is not None}
    assert asked or "killed" in name or manifest.get("scenario") in {"flip", "future", "stray", "healthy"}


def _text(key: bytes | None) -> str:
    return "None" if key is None else key.decode()


def _shortened(value: bytes | None, size: int) -> str:
    text = (value or b"").decode()
    return text if size < 60 else f"{text[:24]}..({size})"


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith("open-4") and "killed" not in name]
)
def test_a_facts_file_gives_the_verdict_of_its_directory(name: str, tmp_path: Path) -> None:
    unpack_cluster(name, tmp_path)
    direct = compared(tmp_path)
    for broker in (1, 3):
        path = str(tmp_path / f"b{broker}.facts")
        facts([f"{tmp_path}/b{broker}"], path, Options(engine=EngineName.INLINE))
        sides = [f"{broker}={path}" if side.startswith(f"{broker}=") else side for side in sides_of(tmp_path)]
        report = compare(parse_brokers(sides), Options(engine=EngineName.INLINE))
        assert _gist(report) == _gist(direct)


def _gist(report: CompareReport) -> list[object]:
    """All but the texts of keys and values, which a facts file does not hold."""
    return [
        (
            one.name,
            one.verdict,
            one.harmless,
            one.right,
            [
                (
                    found.kind,
                    found.brokers,
                    found.offset,
                    found.count,
                    [(line.offset, line.have, line.lack) for line in found.keys],
                )
                for found in one.disagreements
            ],
        )
        for one in report.partitions
    ]


# -- clusters made by code ----------------------------------------------------------------------------


def healthy(count: int, first: int, **fixed: object) -> Iterator[Cluster]:
    for cluster in healthy_clusters(count, first, **fixed):
        cluster.stop_all()
        yield cluster


@pytest.mark.slow
def test_healthy_clusters_give_no_alarm(tmp_path: Path) -> None:
    verdicts: Counter[str] = Counter()
    for number, cluster in enumerate(healthy(60 + MORE, first=0)):
        verdict = compared_cluster(cluster, tmp_path / str(number))
        assert verdict.verdict in FINE, (cluster.kind, verdict)
        verdicts[verdict.verdict] += 1
    assert {m.IS_BEHIND, m.HARMLESS} <= set(verdicts)


@pytest.mark.parametrize("kind", ["cut", "fork", "record-differs"])
def test_planted_divergences_are_found_by_kind(kind: str, tmp_path: Path) -> None:
    done = 0
    for number, cluster in enumerate(healthy(20 + MORE // 10, first=300, magic=2)):
        found = PLANTED[kind](cluster, random.Random(number))
        if found is None or found[1] < max(one.start for one in cluster.replicas.values()):
            continue
        if kind == "record-differs" and not any(
            value.offset == found[1]
            for broker, one in cluster.replicas.items()
            for entry in one.entries
            for value in entry.records
            if broker != found[0]
        ):
            continue  # nobody else has got there, or all others have cleaned it away
        verdict = compared_cluster(cluster, tmp_path / str(number))
        kinds = {one.kind for one in verdict.disagreements if found[0] in one.brokers}
        assert verdict.verdict == m.DIVERGED, verdict
        assert kind in kinds or kinds & {m.FORK, m.RECORD_DIFFERS}, verdict
        done += 1
    assert done >= 5


@pytest.mark.slow
def test_a_lost_segment_is_lost_or_cannot_be_told_and_nobody_else_is_blamed(tmp_path: Path) -> None:
    verdicts: Counter[str] = Counter()
    for number, cluster in enumerate(healthy(40 + MORE // 5, first=700, magic=2)):
        root = tmp_path / str(number)
        paths = written(cluster, root)
        broker = sorted(paths)[number % len(paths)]
        logs = sorted(paths[broker].glob("*-0/*.log"))
        if len(logs) < 3:
            continue
        before = compared_sides(cluster, paths)
        for file in logs[1].parent.glob(f"{logs[1].stem}.*"):
            file.unlink()
        after = compared_sides(cluster, paths)
        assert before.verdict in FINE
        bad = [one for one in after.disagreements if m.VERDICT_OF[one.kind] in {m.DIVERGED, m.CANNOT_TELL}]
        for one in bad:
            assert broker in one.brokers, (cluster.kind, broker, logs[1].name, after)
        verdicts[after.verdict] += 1
    assert verdicts[m.DIVERGED] >= 5, verdicts


def _flipped(path: Path, chance: random.Random) -> None:
    """Change one bit of a batch, behind what no checksum covers."""
    data = bytearray(path.read_bytes())
    starts, place = [], 0
    while place + 61 <= len(data):
        starts.append(place)
        place += 12 + int.from_bytes(data[place + 8 : place + 12], "big")
    start = chance.choice(starts)
    end = min(start + 12 + int.from_bytes(data[start + 8 : start + 12], "big"), len(data))
    data[chance.randrange(start + 21, end)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.slow
def test_a_damaged_replica_makes_no_false_alarm_and_is_never_right(tmp_path: Path) -> None:
    """One or two bits are changed anywhere in one replica of a healthy cluster."""
    verdicts: Counter[str] = Counter()
    for number, cluster in enumerate(healthy(40 + MORE, first=2000)):
        chance = random.Random(number)
        root = tmp_path / str(number)
        paths = written(cluster, root)
        broker = chance.choice(sorted(paths))
        logs = [path for path in sorted(paths[broker].glob("*-0/*.log")) if path.stat().st_size > 61]
        for _ in range(chance.choice([1, 1, 2]) if logs else 0):
            _flipped(chance.choice(logs), chance)
        verdict = compared_sides(cluster, paths)
        assert verdict.verdict not in {m.DIVERGED, m.CANNOT_TELL, m.MISSING}, (cluster.kind, broker, verdict)
        for one in verdict.disagreements:
            assert one.kind == m.BEHIND or one.brokers == (broker,), (cluster.kind, broker, verdict)
        if verdict.verdict == m.DAMAGED:
            assert broker not in verdict.right
        verdicts[verdict.verdict] += 1
    assert verdicts[m.DAMAGED] >= 10, verdicts


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_beside_damage_above_and_below_it_what_has_diverged_is_still_found(
    damaged: int, tmp_path: Path
) -> None:
    """Broker 3 misses three tombstones, the first at offset 7. A batch of one replica is damaged besides.

    Where the damaged one can no longer bear witness, a single other one may as well have lost a file.
    """
    unpack_cluster("open-3.9.2-tomb", tmp_path)
    logs = sorted((tmp_path / f"b{damaged}").glob("velvet-*/*.log"))
    flip(logs[0], 70)  # in the first batch, at offset 0
    [partition] = compared(tmp_path).partitions
    found = {one.kind: one for one in partition.disagreements}
    kind, broker = (m.TOMBSTONE_MISSED, 3) if damaged == 3 else (m.UNKNOWN_LOSS, 3 - damaged)
    assert set(found) == {m.CORRUPT, kind}
    assert found[m.CORRUPT].brokers == (damaged,)
    assert found[kind].brokers == (broker,)
    assert (found[kind].offset, found[kind].count) == (7, 3)
    assert damaged not in partition.right
    rest = "what else is wrong" if damaged == 3 else "the rest of it is as on the others"
    assert rest in found[m.CORRUPT].text


@pytest.mark.parametrize(
    ("mark", "other", "kind", "words"),
    [
        (8, 8, m.BEHIND, "it fetches the rest again"),
        (8, 7, m.CORRUPT, "below its recorded high watermark 8, which no other replica here reaches"),
        (8, 5, m.CORRUPT, "below its recorded high watermark 8, which no other replica here reaches"),
        (6, 5, m.BEHIND, "no other replica that was read continues from there"),
    ],
)
@pytest.mark.parametrize("torn", [False, True], ids=["damaged", "gone"])
def test_an_end_that_an_unclean_stop_has_cost_is_fetched_again_only_where_somebody_has_it(
    mark: int, other: int, kind: str, words: str, torn: bool, tmp_path: Path
) -> None:
    """Broker 1 was killed with nothing flushed; its log is good up to offset 6."""
    for broker, end in ((1, 6 if torn else 8), (2, other)):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(*(batch_of(offset) for offset in range(end)))
        directory.write(broker=broker, clean_stop=broker == 2)
        (tmp_path / f"b{broker}" / "replication-offset-checkpoint").write_text(
            f"0\n1\nt 0 {mark if broker == 1 else other}\n"
        )
    (tmp_path / "b1" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    log = tmp_path / "b1" / "t-0" / f"{0:020d}.log"
    if not torn:
        flip(log, 6 * log.stat().st_size // 8 + 70)
    sides = parse_brokers([f"{broker}={tmp_path}/b{broker}" for broker in (1, 2)])
    report = compare(sides, Options(engine=EngineName.INLINE))
    found = [one for one in report.partitions[0].disagreements if one.brokers == (1,)]
    assert report.way_back is None
    if torn:
        assert [one.kind for one in found] == (
            [] if mark == 6 else [m.CUT if kind == m.CORRUPT else m.BEHIND]
        )
    else:
        assert [(one.kind, one.offset, words in one.text) for one in found] == [(kind, 6, True)]


def test_an_end_that_an_unclean_stop_has_cost_is_not_called_gone_where_a_replica_could_not_be_read(
    tmp_path: Path,
) -> None:
    for broker, end in ((1, 6), (2, 8)):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(*(batch_of(offset) for offset in range(end)))
        directory.write(broker=broker, clean_stop=broker == 2)
        (tmp_path / f"b{broker}" / "replication-offset-checkpoint").write_text("0\n1\nt 0 8\n")
    log = tmp_path / "b2" / "t-0" / f"{0:020d}.log"
    log.rename(f"{log}.swap")
    sides = parse_brokers([f"{broker}={tmp_path}/b{broker}" for broker in (1, 2)])
    [verdict] = compare(sides, Options(engine=EngineName.INLINE)).partitions
    assert {one.kind for one in verdict.disagreements} == {m.UNREADABLE}


@pytest.mark.parametrize("lost", [False, True])
def test_who_has_lost_what_is_damaged_elsewhere_is_not_right_about_it(lost: bool, tmp_path: Path) -> None:
    """The way back would delete the only copy, of which perhaps one bit is wrong."""
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(
            *(batch_of(offset) for offset in range(3) if (broker, offset, lost) != (2, 1, True))
        )
        directory.write(broker=broker)
    log = tmp_path / "b1" / "t-0" / f"{0:020d}.log"
    flip(log, log.stat().st_size // 3 + 70)
    sides = parse_brokers([f"{broker}={tmp_path}/b{broker}" for broker in (1, 2)])
    report = compare(sides, Options(engine=EngineName.INLINE))
    [found] = report.partitions[0].disagreements
    assert (found.kind, found.brokers, found.offset) == (m.CORRUPT, (1,), 1)
    assert found.right == (() if lost else (2,))
    assert (report.way_back is None) is lost


@pytest.mark.parametrize(
    "name", ["open-3.9.2-tomb", "open-4.3.1-abrt", "open-3.9.2-flip", "open-4.3.1-equal"]
)
def test_a_replica_that_is_read_in_several_parts_gets_the_same_verdict(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part ends with the first segment that fills it; here each segment does. So is it for facts."""
    unpack_cluster(name, tmp_path)
    whole = compared(tmp_path)
    monkeypatch.setattr("krepair.replicas.items._PART_BYTES", 1)
    assert compared(tmp_path).partitions == whole.partitions
    path = str(tmp_path / "b3.facts")
    facts([f"{tmp_path}/b3"], path, Options(engine=EngineName.INLINE))
    report = compare(parse_brokers([*sides_of(tmp_path)[:2], f"3={path}"]), Options(engine=EngineName.INLINE))
    assert _gist(report) == _gist(whole)


def test_one_partition_can_be_asked_for_by_other_verbs(tmp_path: Path) -> None:
    unpack_cluster("open-3.9.2-tomb", tmp_path)
    options = Options(engine=EngineName.INLINE)
    opened = open_brokers(parse_brokers(sides_of(tmp_path)), options)
    with closing(Scratch("", ())) as scratch:
        settings = load_settings(None, None, {})
        [verdict] = Comparison(opened, settings, options, InlineEngine("test"), scratch).verdicts()
    assert verdict.right == (1, 2)


def test_facts_of_a_partition_with_one_key_are_read(tmp_path: Path) -> None:
    """A table of one row was taken for one that cannot be written to."""
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(
            batch_of(0, [Record(b"k", b"v")]), *([batch_of(1, [Record(b"k", b"w")])] * broker)[1:]
        )
        directory.write(broker=broker)
    path = str(tmp_path / "b1.facts")
    facts([f"{tmp_path}/b1"], path, Options(engine=EngineName.INLINE))
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    [verdict] = compare(parse_brokers([f"1={path}", f"2={tmp_path}/b2"]), options).partitions
    assert verdict.verdict == m.IS_BEHIND


@pytest.mark.parametrize(
    ("file", "forks"),
    [("0 0\n3 1\n", False), ("0 0\n3 2\n7 3\n", False), ("5 0\n0 2\n", False), ("0 0\n3 2\n7 4\n", True)],
    ids=["starts too early", "an epoch without a batch", "out of order", "led from its log end on"],
)
def test_a_checkpoint_that_its_own_batches_contradict_is_no_other_history(
    file: str, forks: bool, tmp_path: Path
) -> None:
    """``plan --fix epochs`` says to compare the replicas then: it was always a fork, and neither was right."""
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(
            *(batch_of(offset, leader_epoch=3 * (offset >= 2)) for offset in range(6 if broker == 1 else 4))
        )
        directory.write(broker=broker)
        (tmp_path / f"b{broker}" / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (tmp_path / "b2" / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n{file.count(chr(10))}\n{file}")
    options = Options(engine=EngineName.INLINE)
    [verdict] = compare(
        parse_brokers([f"{broker}={tmp_path}/b{broker}" for broker in (1, 2)]), options
    ).partitions
    assert (m.FORK in {one.kind for one in verdict.disagreements}) is forks


@pytest.mark.parametrize("facts_of", [(), (1,), (2,), (1, 2)])
def test_a_log_directory_that_does_not_say_its_cluster_is_compared_like_any_other(
    facts_of: tuple[int, ...], tmp_path: Path
) -> None:
    """Its meta.properties is gone. Only facts that were made with other keys of the hashes cannot be joined."""
    sides = []
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(
            *(batch_of(at, [Record(b"k%d" % at, b"v")]) for at in range(3 - broker))
        )
        path = directory.write(broker=broker)
        if broker == 1:
            (path / "meta.properties").unlink()
        else:
            (path / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
        sides.append(f"{broker}={path}")
        if broker in facts_of:
            facts([str(path)], f"{path}.facts", Options(engine=EngineName.INLINE))
            sides[-1] += ".facts"
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    if facts_of == (1, 2):
        with pytest.raises(RefusedError, match="hashes of different keys"):
            compare(parse_brokers(sides), options)
        return
    [verdict] = compare(parse_brokers(sides), options).partitions
    assert (verdict.verdict, [one.kind for one in verdict.disagreements]) == (m.IS_BEHIND, [m.BEHIND])


def _one_without_its_commit_marker(root: Path, begins: int, *, behind: bool = False) -> list[str]:
    """Broker 2 lacks the marker at offset 3, which a cleaner up to 2.2.1 removes (KAFKA-8351); sides as typed."""
    log = [
        batch_of(0, [Record(b"k", b"committed")], pid=7, txn=True),
        batch_of(1, [Record(b"a", b"1"), Record(b"b", b"1")]),
        commit(3, pid=7),
        batch_of(4, [Record(b"k2", b"aborted")], pid=7, txn=True),
        abort(5, pid=7),
        batch_of(6, [Record(b"c", b"1")]),
    ]
    for broker, batches in ((1, log), (2, log[:2] + log[3:]), (3, log[:2])):
        if broker == 3 and not behind:
            continue
        directory = LogDir(root / f"b{broker}")
        directory.partition("t").segment(*batches)
        directory.write(broker=broker)
        if broker == 2:
            index = root / "b2" / "t-0" / f"{0:020d}.txnindex"
            index.write_bytes(txn_index.encode([AbortedTxn(0, 7, begins, 5, 6)]))
            (root / "b2" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    return [f"{broker}={root}/b{broker}" for broker in (1, 2, 3)[: 2 + behind]]


@pytest.mark.parametrize("facts_of", [(), (2,)])
@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize(("begins", "kind"), [(4, ""), (0, m.COMMITTED_TO_ABORTED)])
def test_records_whose_commit_marker_a_cleaner_has_removed_are_committed_if_the_index_says_so(
    tmp_path: Path, begins: int, kind: str, policy: str, facts_of: tuple[int, ...]
) -> None:
    sides = _one_without_its_commit_marker(tmp_path, begins)
    if facts_of:
        facts([f"{tmp_path}/b2"], f"{tmp_path}/b2.facts", Options(engine=EngineName.INLINE))
        sides[1] = f"2={tmp_path}/b2.facts"
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", policy),))
    [verdict] = compare(parse_brokers(sides), options).partitions
    found = {(one.kind, one.brokers) for one in verdict.disagreements}
    assert found == ({(kind, (2,))} if kind else set()), [one.text for one in verdict.disagreements]


def test_a_replica_that_has_a_transaction_open_is_not_led_by_one_whose_commit_marker_is_gone(
    tmp_path: Path,
) -> None:
    sides = _one_without_its_commit_marker(tmp_path, 4, behind=True)
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    [verdict] = compare(parse_brokers(sides), options).partitions
    [found] = verdict.disagreements
    assert (found.kind, found.may_lead, found.must_not_lead) == (m.LEADER_DECIDES, (1,), (2,))


@pytest.mark.parametrize("unread", [False, True])
def test_one_that_could_not_be_read_may_be_the_one_that_leads_without_harm(
    unread: bool, tmp_path: Path
) -> None:
    """Broker 1 still has the tombstone that broker 3 lacks, but is damaged; broker 2 has cleaned it away."""
    whole = [
        batch_of(0, [Record(b"k", b"v")]),
        batch_of(1, [Record(b"x", b"1")]),
        batch_of(2, [Record(b"k", None)]),
        batch_of(3, [Record(b"x", b"2")]),
        batch_of(4, [Record(b"z", b"1")]),
    ]
    sides = []
    for broker, batches in ((1, whole), (2, whole[3:]), (3, whole[:2]), (4, whole))[: 3 + unread]:
        directory = LogDir(tmp_path / f"b{broker}")
        directory.partition("t").segment(*batches, base_offset=0)
        directory.write(broker=broker)
        (tmp_path / f"b{broker}" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 4\n")
        sides.append(f"{broker}={tmp_path}/b{broker}")
    flip(tmp_path / "b1" / "t-0" / f"{0:020d}.log", len(whole[0].raw) + 65)
    if unread:
        log = tmp_path / "b4" / "t-0" / f"{0:020d}.log"
        log.rename(f"{log}.swap")
    [verdict] = compare(parse_brokers(sides), Options(engine=EngineName.INLINE)).partitions
    [found] = [one for one in verdict.disagreements if one.kind == m.LEADER_DECIDES]
    assert (found.brokers, found.may_lead, found.must_not_lead) == ((3,), (), (2,))
    assert ("no other replica here can lead it" in found.text) is not unread
    assert ("compare again, or fetch it again" in found.text) is unread


@pytest.mark.parametrize("partitions", [2, 6])
def test_a_facts_file_is_read_for_its_digest_once_for_headers_and_for_all_partitions_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        for number in range(partitions):
            value = b"v" * broker  # of each partition another one on each broker
            directory.partition("t", number).segment(batch_of(0, [Record(b"k", value)]))
        directory.write(broker=broker)
    path = str(tmp_path / "b1.facts")
    facts([f"{tmp_path}/b1"], path, Options(engine=EngineName.INLINE))
    read = Counter[str]()
    real = FactsReader._digest_of

    def counted(reader: FactsReader, size: int) -> bytes:
        read["digest"] += 1
        return real(reader, size)

    monkeypatch.setattr(FactsReader, "_digest_of", counted)
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    verdicts = compare(parse_brokers([f"1={path}", f"2={tmp_path}/b2"]), options).partitions
    assert [one.verdict for one in verdicts] == [m.DIVERGED] * partitions
    assert read == {"digest": 1}


class _NoRoom(Scratch):
    """The temporary folder lies on the file system of a log directory, and the operator named no other place."""

    @property
    def path(self) -> str:
        return ""


def _differing(tmp_path: Path, partitions: int) -> list[str]:
    """Two brokers whose replicas of each partition differ in their last record; sides as typed."""
    for broker in (1, 2):
        directory = LogDir(tmp_path / f"b{broker}")
        for number in range(partitions):
            directory.partition("t", number).segment(
                *(batch_of(offset, [Record(b"k%d" % offset, b"v" * 100)]) for offset in range(20)),
                batch_of(20, [Record(b"last", b"of %d" % broker)]),
            )
        directory.write(broker=broker)
    return [f"{broker}={tmp_path}/b{broker}" for broker in (1, 2)]


@pytest.mark.parametrize("most", [12_000, 1 << 28])
def test_partitions_that_need_no_scratch_folder_one_by_one_need_none_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    opened = open_brokers(parse_brokers(_differing(tmp_path, 4)), options)
    monkeypatch.setattr(contents, "_SMALL_BYTES", 0)
    monkeypatch.setattr(contents, "_WITHOUT_SCRATCH_BYTES", most)
    settings = load_settings(None, None, {})
    found = list(Comparison(opened, settings, options, InlineEngine("test"), _NoRoom("", ())).verdicts())
    assert [one.verdict for one in found] == [m.DIVERGED] * 4


def test_a_partition_that_needs_a_scratch_folder_by_itself_is_refused_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(engine=EngineName.INLINE, settings=(("cleanup.policy", "compact"),))
    opened = open_brokers(parse_brokers(_differing(tmp_path, 2)), options)
    monkeypatch.setattr(contents, "_SMALL_BYTES", 0)
    monkeypatch.setattr(contents, "_WITHOUT_SCRATCH_BYTES", 1_000)
    settings = load_settings(None, None, {})
    with pytest.raises(RefusedError, match="the temporary folder is on the file system"):
        list(Comparison(opened, settings, options, InlineEngine("test"), _NoRoom("", ())).verdicts())
