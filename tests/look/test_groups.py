"""Results of ``krepair groups`` against a slow twin that shares no code with it, also on broken partitions."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepair.engine.items import LogsItem
from krepair.formats import group_metadata, message_set
from krepair.look.coordinators import commits
from krepair.look.coordinators.groups import Group, GroupsResult, read_groups
from krepair.ops.groups import subscription_findings
from tests import builders, encoders
from tests.codecs import packed
from tests.encoders import encode_fields as encode
from tests.encoders import encode_versioned
from tests.engine.travelled import travelled
from tests.look.group_records import group_record, key_of, member, text, value_of
from tests.places import place_of

FOLDER = "__consumer_offsets-0"
TRANSACTIONAL = 0x10


def written(
    folder: Path, *segments: tuple[int, bytes], log_start: int = 0, wanted: tuple[str, ...] = ()
) -> GroupsResult:
    folder.mkdir(parents=True, exist_ok=True)
    for base, data in segments:
        (folder / f"{base:020d}.log").write_bytes(data)
    place = place_of(folder)
    sizes = tuple((base, len(data)) for base, data in segments)
    result = travelled(read_groups, LogsItem(place=place, segments=sizes), log_start, wanted)
    assert isinstance(result, GroupsResult)
    return result


class Twin:
    """Dicts and lists: what is committed, by the rule as it is told."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], tuple[int, int]] = {}
        self.waiting: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
        self.deleted: dict[tuple[str, int], int] = {}

    def commit(self, record: int, group: str, partition: int, offset: int | None, pid: int) -> None:
        key = group, partition
        if pid >= 0:
            mine = self.waiting.setdefault(pid, {})
            if offset is None:
                mine.pop(key, None)
            else:
                mine[key] = (record, offset)
        elif offset is None:
            self.committed.pop(key, None)
            self.deleted[key] = record
        else:
            self.committed[key] = (record, offset)

    def marker(self, pid: int, *, commit: bool) -> None:
        for key, (record, offset) in self.waiting.pop(pid, {}).items():
            newest = max(self.committed.get(key, (-1, 0))[0], self.deleted.get(key, -1))
            if commit and record > newest:
                self.committed[key] = (record, offset)


COMMITS = st.tuples(
    st.sampled_from(["a", "b", ""]), st.integers(0, 2), st.none() | st.integers(0, 10**6), st.integers(0, 90)
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(-1, 2), st.lists(COMMITS, min_size=1, max_size=4)),
    st.tuples(st.just("marker"), st.integers(0, 2), st.booleans()),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=40), st.integers(0, 40), st.sampled_from([0, 1, 3, 4]))
def test_any_history_gives_what_the_twin_says(
    tmp_path: Path, steps: list[Any], split: int, codec: int
) -> None:
    twin, offset = Twin(), 0
    segments: list[tuple[int, bytes]] = [(0, b"")]
    for number, (kind, pid, what) in enumerate(steps):
        if number == split and offset:
            segments.append((offset, b""))
        if kind == "marker":
            raw = builders.marker(offset, int(what), pid=pid).raw
            twin.marker(pid, commit=what)
            offset += 1
        else:
            records = []
            for place, (group, partition, commit, size) in enumerate(what):
                value = None if commit is None else value_of(commit, "m" * size)
                records.append(builders.Record(key_of(group, partition, size % 2), value))
                twin.commit(offset + place, group, partition, commit, pid)
            raw = packed(builders.data(offset, records, pid=pid, txn=pid >= 0).raw, codec)
            offset += len(what)
        base, data = segments[-1]
        segments[-1] = (base, data + raw)
    result = written(tmp_path / "logs" / FOLDER, *segments)
    found = {
        (group.group, each.partition): (each.record_offset, each.offset)
        for group in result.groups
        for each in group.commits
    }
    assert found == twin.committed
    pending = {
        (group.group, each.partition, each.producer_id): (each.record_offset, each.offset)
        for group in result.groups
        for each in group.pending
    }
    assert pending == {
        (*key, pid): value for pid, mine in twin.waiting.items() for key, value in mine.items()
    }
    metadata = {each.metadata for group in result.groups for each in group.commits}
    assert all(set(each) <= {"m"} for each in metadata)


def test_records_are_put_together_again_and_again_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_MANY_ROWS", 4)
    monkeypatch.setattr(commits, "_MANY_BYTES", 1 << 8)
    batches, offset = [], 0
    for pid in range(300):
        records = [
            builders.Record(key_of(f"g{pid % 50}", n), value_of(pid * 10 + n, "x" * (pid % 200)))
            for n in range(3)
        ]
        batches.append(builders.data(offset, records, pid=pid, txn=True).raw)
        offset += 3
        if pid % 3:
            batches.append(builders.marker(offset, pid % 3 - 1, pid=pid).raw)
            offset += 1
        names = [builders.Record(struct.pack(">h", 2) + text(f"n{pid}-{n}"), None) for n in range(5)]
        batches.append(builders.data(offset, names).raw)
        offset += 5
    result = written(tmp_path / FOLDER, (0, b"".join(batches)))
    named = {group.group: group for group in result.groups}
    for number in range(50):
        last = max(pid for pid in range(number, 300, 50) if pid % 3 == 2)
        group = named[f"g{number}"]
        assert [(each.partition, each.offset, len(each.metadata)) for each in group.commits] == [
            (n, last * 10 + n, last % 200) for n in range(3)
        ]
        assert {each.producer_id for each in group.pending} == {
            pid for pid in range(number, 300, 50) if pid % 3 == 0
        }
    assert sum(group.state == "Dead" for group in result.groups) == 1500


def one_group(tmp_path: Path, *records: builders.Record) -> Group:
    log = b"".join(builders.data(n, [record]).raw for n, record in enumerate(records))
    [group] = written(tmp_path / FOLDER, (0, log)).groups
    return group


@pytest.mark.parametrize("version", range(5))
def test_a_classic_group_of_any_version_of_its_record(tmp_path: Path, version: int) -> None:
    group = one_group(
        tmp_path, group_record("g", [member("m0", "b", "a"), member("m1", "a", "b")], 7, version)
    )
    assert (group.kind, group.state, group.generation, group.protocol, group.leader) == (
        "classic",
        "Stable",
        7,
        "range",
        "m0",
    )
    assert [(each.member_id, each.topics, each.assigned) for each in group.members] == [
        (name, ("a", "b"), {"a": (0, 1), "b": (0, 1)}) for name in ("m0", "m1")
    ]
    assert list(subscription_findings(group)) == []


def test_members_that_want_different_topics_are_kr609(tmp_path: Path) -> None:
    [finding] = subscription_findings(
        one_group(tmp_path, group_record("g", [member("m0", "a"), member("m1", "a"), member("m2", "b")]))
    )
    assert (finding.rule, finding.partition) == ("KR609", FOLDER)
    assert finding.evidence == "group g: 3 members subscribe to different topics: 2 of a; 1 of b"


def test_subscriptions_that_change_to_and_fro_are_kr609_too(tmp_path: Path) -> None:
    turns = [group_record("g", [member("m0", "a" if n % 2 else "b")], n) for n in range(6)]
    group = one_group(tmp_path, *turns, group_record("g", [], 6))
    assert (group.state, group.history.generations, group.history.changes, group.history.returns) == (
        "Empty",
        7,
        5,
        4,
    )
    [finding] = subscription_findings(group)
    assert "came back 4 times" in finding.evidence
    once = [group_record("g", [member("m0", topic)], n) for n, topic in enumerate("aab")]
    assert list(subscription_findings(one_group(tmp_path / "once", *once))) == []


def modern(key_version: int, key: dict[str, Any], value: dict[str, Any] | None) -> builders.Record:
    kind = group_metadata.RECORDS.types[key_version]
    raw = struct.pack(">h", key_version) + encode(kind.key, 0, key)
    return builders.Record(raw, None if value is None else encode_versioned(kind.value, 0, value))


def consumer_group(*topics: str, epoch: int, assigned: int, state: int = 0) -> list[builders.Record]:
    id_ = {"group_id": "g"}
    records = [modern(3, id_, {"epoch": epoch}), modern(6, id_, {"assignment_epoch": assigned})]
    for number, topic in enumerate(topics):
        key = id_ | {"member_id": f"m{number}"}
        records.append(
            modern(5, key, {"client_id": "c", "client_host": "h", "subscribed_topic_names": [topic]})
        )
        current = {"member_epoch": assigned, "previous_member_epoch": 0, "state": state,
                   "assigned_partitions": [{"topic_id": "A" * 22, "partitions": [3]}]}  # fmt: skip
        records.append(modern(8, key, current))
    return records


@pytest.mark.parametrize(
    ("epoch", "assigned", "state", "expected"),
    [(4, 4, 0, "Stable"), (5, 4, 0, "Assigning"), (4, 4, 1, "Reconciling")],
)
def test_a_group_of_the_newer_coordinator(
    tmp_path: Path, epoch: int, assigned: int, state: int, expected: str
) -> None:
    group = one_group(tmp_path, *consumer_group("a", "b", epoch=epoch, assigned=assigned, state=state))
    assert (group.kind, group.state, group.generation, len(group.members)) == ("consumer", expected, epoch, 2)
    assert group.members[0].assigned == {"A" * 22: (3,)}
    assert [each.rule for each in subscription_findings(group)] == ["KR609"]


def streams_group(epoch: int, assigned: int, state: int, validated: int) -> list[builders.Record]:
    id_, part = (
        {"group_id": "g"},
        {"subtopology_id": "0", "source_topics": ["b", "a"], "source_topic_regex": ["x.*"]},
    )
    tasks = [{"subtopology_id": "0", "partitions": [1, 2], "assignment_epochs": [3, 3]}]
    current = {"member_epoch": assigned, "previous_member_epoch": 0, "state": state, "active_tasks": tasks}
    return [
        modern(19, id_ | {"member_id": "m"}, {"client_id": "c", "client_host": "h", "topology_epoch": 0}),
        modern(23, id_, {"epoch": 0, "subtopologies": [part]}),
        modern(17, id_, {"epoch": epoch, "validated_topology_epoch": validated}),
        modern(20, id_, {"assignment_epoch": assigned}),
        modern(22, id_ | {"member_id": "m"}, current),
    ]


@pytest.mark.parametrize(
    ("epoch", "assigned", "state", "validated", "expected"),
    [
        (4, 4, 1, 0, "Stable"),
        (5, 4, 1, 0, "Assigning"),
        (4, 4, 2, 0, "Reconciling"),
        (4, 4, 1, -1, "NotReady"),
    ],
)
def test_a_streams_group_has_tasks_reads_what_its_topology_reads_and_waits_for_its_topics(
    tmp_path: Path, epoch: int, assigned: int, state: int, validated: int, expected: str
) -> None:
    group = one_group(tmp_path, *streams_group(epoch, assigned, state, validated))
    assert (group.kind, group.state, group.generation) == ("streams", expected, epoch)
    assert [(m.topics, m.assigned) for m in group.members] == [(("a", "b", "/x.*/"), {"0": (1, 2)})]
    assert group.history.seen == (("a, b, /x.*/",),)
    assert list(subscription_findings(group)) == []


def test_a_deleted_group_is_dead_and_a_new_one_of_its_name_is_not(tmp_path: Path) -> None:
    id_ = {"group_id": "g"}
    gone = [*consumer_group("a", epoch=1, assigned=1), modern(8, id_ | {"member_id": "m0"}, None),
            modern(5, id_ | {"member_id": "m0"}, None), modern(6, id_, None), modern(3, id_, None)]  # fmt: skip
    group = one_group(tmp_path, *gone)
    assert (group.state, group.members, group.tombstones) == ("Dead", (), 4)
    again = one_group(tmp_path / "again", *gone, group_record("g", [member("m0", "a")]))
    assert (again.kind, again.state) == ("classic", "Stable")


def test_records_below_the_log_start_do_not_count(tmp_path: Path) -> None:
    log = b"".join(builders.data(n, [builders.Record(key_of(f"g{n}", 0), value_of(n))]).raw for n in range(4))
    assert [group.group for group in written(tmp_path / FOLDER, (0, log), log_start=2).groups] == ["g2", "g3"]
    assert [group.group for group in written(tmp_path / "2" / FOLDER, (0, log), wanted=("g1",)).groups] == [
        "g1"
    ]


def test_damage_is_passed_over_and_told(tmp_path: Path) -> None:
    parts = [builders.data(n, [builders.Record(key_of(f"g{n}", 0), value_of(n))]).raw for n in range(4)]
    broken = bytearray(b"".join(parts))
    broken[len(parts[0]) + 20] ^= 1
    broken += b"torn"
    result = written(tmp_path / FOLDER, (0, bytes(broken)))
    assert [group.group for group in result.groups] == ["g0", "g2", "g3"]
    assert [(each.position, each.length) for each in result.damaged] == [
        (len(parts[0]), len(parts[1])),
        (len(broken) - 4, 4),
    ]


def test_values_and_keys_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    records = [
        builders.Record(key_of("g", 0), struct.pack(">h", 77) + b"new"),
        builders.Record(key_of("g", 1), b""),
        builders.Record(b"\0\1\0", value_of(1)),
        builders.Record(struct.pack(">h", 99) + b"what", b"x"),
        builders.Record(None, b"x"),
        builders.Record(struct.pack(">h", 2) + text("g"), b"\0\3\0"),
    ]
    result = written(tmp_path / FOLDER, (0, builders.data(0, records).raw))
    [group] = result.groups
    assert [bool(each.problem) for each in group.commits] == [True, True]
    assert "version 77" in group.commits[0].problem
    assert (len(group.problems), result.unknown) == (1, 3)


@pytest.mark.parametrize("magic", [0, 1])
def test_partitions_of_old_formats(tmp_path: Path, magic: int) -> None:
    time = 5 if magic else -1
    plain = message_set.Message(0, magic, 0, time, key_of("g", 0, 0), value_of(1))
    inner = tuple(message_set.Message(n, magic, 0, time, key_of("g", n), value_of(n)) for n in (1, 2, 3))
    result = written(tmp_path / FOLDER, (0, encoders.encode_messages([plain, encoders.wrapped(inner, 1)])))
    [group] = result.groups
    assert [(each.partition, each.offset, each.record_offset) for each in group.commits] == [
        (0, 1, 0),
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 3),
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60)), max_size=8),
    st.booleans(),
)
def test_any_records_have_a_result(
    tmp_path: Path, pairs: list[tuple[bytes | None, bytes | None]], txn: bool
) -> None:
    records = [builders.Record(key, value) for key, value in pairs]
    fronts = [
        builders.Record(struct.pack(">h", n) + (key or b""), value) for n, (key, value) in enumerate(pairs)
    ]
    log = (
        builders.data(0, records or 1, pid=1, txn=txn).raw
        + builders.data(50, fronts or 1).raw
        + builders.commit(90, pid=1).raw
    )
    written(tmp_path / "any" / FOLDER, (0, log))
