"""Torn tails and damage in the middle before Kafka's own log classes: forecast, and mended.

Real brokers start on what was mended in ``tests/corpus``; where a torn tail is cut says ``tests/ops/test_tail.py``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.formats.filenames import CLEAN_SHUTDOWN
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from tests import builders as b
from tests.brokers.killed import producer
from tests.commit.states_disk import StatesDisk
from tests.durable.disks import NAME_CHANGING
from tests.fixture_dirs import unpack
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import ENDS, VERSIONS
from tests.lab.judge import Judge, JudgeError, Loaded
from tests.lab.waiting import LIMIT_S
from tests.ops.scene import tree
from tests.ops.tail import INTERVAL, WAYS, Torn, all_first_offsets, options, prepared

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
SETTINGS = {"index.interval.bytes": str(INTERVAL), "retention.ms": "-1"}
JudgeOf = Callable[[str], Judge]
LOST = re.compile(
    r"(\d+) bytes?(?:, (\d+) later segments? among them)?, offsets (\d+) to (\d+), (\d+) records? are lost"
)


def loaded(judge: Judge, folder: Path, work: Path, *, clean: bool, point: int = 0) -> Loaded:
    copy = Path(shutil.copytree(folder, work / folder.name))
    try:
        return judge.load(copy, clean=clean, recovery_point=point, settings=SETTINGS, list_records=True)
    finally:
        shutil.rmtree(work)


def loaded_or_corrupt(judge: Judge, folder: Path, work: Path, *, clean: bool) -> Loaded | None:
    """None where reading comes to the damage that a clean start leaves."""
    try:
        return loaded(judge, folder, work, clean=clean)
    except JudgeError as error:
        if "corrupt" not in str(error):
            raise
        return None


def log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def read(found: Loaded) -> list[int]:
    """Offsets that a consumer reads, the same in both isolation levels."""
    offsets = [record.offset for record in found.uncommitted.records]
    assert not found.uncommitted.stuck
    assert not found.committed.stuck
    assert (found.uncommitted.repeats, found.committed.repeats) == (0, 0)
    assert found.committed.digest == found.committed_in_small_fetches
    return offsets


def offsets_of(first_offsets: list[int]) -> list[int]:
    return [offset for first in first_offsets for offset in range(first, first + 5)]


@pytest.mark.parametrize(
    ("kind", "number", "version"),
    [
        (kind, number, version)
        for row, kind in enumerate(["flip", "zeros", "length"])
        for number in range(3)
        for turn, version in enumerate(VERSIONS)
        if EVERY or (row + number + turn) % 3 == 0  # each version meets each kind, and each segment
    ],
)
def test_recovery_loses_what_check_says_and_the_consented_way_only_the_damage(
    tmp_path: Path, judge: JudgeOf, version: str, number: int, kind: str
) -> None:
    torn = Torn.make(tmp_path / "logs")
    places = torn.places(number)
    raw = bytearray(torn.log(number).read_bytes())
    if kind == "flip":
        raw[places[3] + 80] ^= 0x40
    elif kind == "zeros":
        raw[places[3] : places[5]] = bytes(places[5] - places[3])
    else:
        raw[places[3] + 8] = 0x7F
    torn.write(number, bytes(raw))
    first = 50 * number + 15
    lost = [first, first + 5] if kind == "zeros" else [first]
    size = log_bytes(torn.folder)
    (line,) = torn.check(broker_version=version).forecast
    said = LOST.search(line.text.replace("at most ", ""))
    assert line.expected == "truncate"
    assert said, line.text
    before = loaded(judge(version), torn.folder, tmp_path / "work", clean=False)
    assert size - sum(segment.bytes for segment in before.segments) == int(said[1])
    assert 4 - len(before.segments) == int(said[2] or 0)
    assert (before.log_end, 200 - before.log_end) == (int(said[3]), int(said[5]))
    if kind == "length":  # a clean start leaves the damage: consumers miss records there without a word
        missed = loaded(judge(version), torn.folder, tmp_path / "work", clean=True)
        assert missed.uncommitted.count < 195
    else:  # or fail there
        with pytest.raises(JudgeError):
            loaded(judge(version), torn.folder, tmp_path / "work", clean=True)
    rule = "KR305" if kind == "zeros" else "KR302"
    plan = torn.plan(accepted_losses=(f"{rule}:t-0:{first}",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    for clean in (False, True):
        after = loaded(judge(version), torn.folder, tmp_path / "work", clean=clean)
        assert after.complaints == ()
        assert after.log_end == 200
        assert read(after) == offsets_of([one for one in all_first_offsets() if one not in lost])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_brokers_way_gives_what_the_brokers_recovery_gives(
    tmp_path: Path, judge: JudgeOf, version: str
) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.flip(1, torn.places(1)[3] + 80)
    before = loaded(judge(version), torn.folder, tmp_path / "work", clean=False)
    assert apply(torn.plan(**WAYS["broker"]), options()).exit_code == ExitCode.DONE
    for clean in (False, True):
        after = loaded(judge(version), torn.folder, tmp_path / "work", clean=clean)
        assert after.complaints == ()
        assert (after.log_end, after.segments, after.served) == (
            before.log_end,
            before.segments,
            before.served,
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("at_entry", [False, True])
def test_offsets_that_go_back_empty_the_segment_only_where_check_says_so(
    tmp_path: Path, judge: JudgeOf, version: str, at_entry: bool
) -> None:
    """Recovery does not compare the offsets of batches, only those of the index entries that it makes."""
    torn = Torn.make(tmp_path / "logs")
    places, raw = torn.places(1), torn.log(1).read_bytes()
    repeated = raw[places[1] : places[2]]
    place = places[6] if at_entry else places[5]
    torn.write(1, raw[:place] + repeated + raw[place:])
    (line,) = torn.check(broker_version=version).forecast
    found = loaded(judge(version), torn.folder, tmp_path / "work", clean=False)
    if line.expected == "truncate":
        assert at_entry
        assert "position 0" in line.text
        assert [segment.base_offset for segment in found.segments][:2] == [0, 50]
        assert (len(found.segments), found.segments[-1].bytes, found.log_end) == (2, 0, 50)
    else:
        assert not at_entry
        assert (len(found.segments), found.log_end) == (4, 200)
        assert sum(segment.bytes for segment in found.segments) == log_bytes(torn.folder)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("byte", "value"), [(0, 0x40), (3, 0x02), (0, 0x80), (7, 0x40)])
def test_offset_that_does_not_fit_keeps_a_broker_from_starting_until_it_is_cut_out(
    tmp_path: Path, judge: JudgeOf, version: str, byte: int, value: int
) -> None:
    """The checksum does not cover a batch's offset: one flipped bit there is enough."""
    torn = Torn.make(tmp_path / "logs")
    torn.flip_with(1, torn.places(1)[3] + byte, value)
    (line,) = torn.check(broker_version=version).forecast
    assert line.expected == "refuse"
    assert "it cannot be split" in line.text
    with pytest.raises(JudgeError, match="Split operation is only permitted"):
        loaded(judge(version), torn.folder, tmp_path / "work", clean=False)
    plan = torn.plan(accepted_losses=("KR304:t-0:65",))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    for clean in (False, True):
        after = loaded(judge(version), torn.folder, tmp_path / "work", clean=clean)
        assert after.complaints == ()
        assert read(after) == offsets_of([one for one in all_first_offsets() if one != 65])


@pytest.mark.parametrize("version", VERSIONS)
def test_last_offset_that_is_too_far_makes_the_log_end_jump_unless_it_is_cut(
    tmp_path: Path, judge: JudgeOf, version: str
) -> None:
    torn = Torn.make(tmp_path / "logs")
    torn.tear(b.data(2**31 + 500, 5).raw)
    (found,) = [one for one in torn.check().findings if one.rule.startswith("KR3")]
    assert found.rule == "KR304"
    assert "splits the segment, and the log end jumps there" in found.evidence
    split = loaded(judge(version), torn.folder, tmp_path / "work", clean=False)
    assert read(split) == [*range(200), *range(2**31 + 500, 2**31 + 505)]
    assert not torn.plan().partitions[0].changes
    assert apply(torn.plan(accepted_losses=("KR304:t-0:200",)), options()).exit_code == ExitCode.DONE
    assert read(loaded(judge(version), torn.folder, tmp_path / "work", clean=False)) == list(range(200))


def transactional(root: Path) -> Torn:
    """Producer 7 commits and aborts by turns, producer 8 writes plain data between; compacted, one key a record."""
    directory = b.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=INTERVAL)
    offset = sequence = 0
    for number in range(3):
        batches = []
        for turn in range(6):
            batches.append(b.data(offset, 4, pid=7, txn=True, sequence=sequence))
            sequence += 4
            batches.append(b.data(offset + 4, 2))
            end = b.abort if turn % 2 else b.commit
            batches.append(end(offset + 6, pid=7))
            offset += 7
        partition.segment(*batches, base_offset=42 * number)
    directory.write(clean_stop=False)
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return Torn(root)


@pytest.mark.parametrize("version", VERSIONS)
def test_hole_in_a_log_with_transactions_is_read_in_both_isolation_levels(
    tmp_path: Path, judge: JudgeOf, version: str
) -> None:
    whole = transactional(tmp_path / "whole")
    intact = loaded(judge(version), whole.folder, tmp_path / "work", clean=False)
    torn = transactional(tmp_path / "logs")
    folder = torn.folder / f"{42:020d}.log"
    raw = bytearray(folder.read_bytes())
    places, place = [], 0
    while place < len(raw):
        places.append(place)
        place += 12 + int.from_bytes(raw[place + 8 : place + 12], "big")
    raw[places[4] + 70] ^= 1  # plain data at offsets 53 and 54
    raw[places[6] + 70] ^= 1  # data of a committed transaction at offsets 56 to 59
    folder.write_bytes(bytes(raw))
    plan = torn.plan(accepted_losses=("KR302:t-0:53", "KR302:t-0:56"))
    assert apply(plan, options()).exit_code == ExitCode.DONE
    lost = {53, 54, 56, 57, 58, 59}
    for clean in (False, True):
        found = loaded(judge(version), torn.folder, tmp_path / "work", clean=clean)
        assert found.complaints == ()
        assert (found.log_end, found.stable_offset) == (intact.log_end, intact.stable_offset)
        assert found.aborted == intact.aborted
        for now, before in ((found.uncommitted, intact.uncommitted), (found.committed, intact.committed)):
            assert not now.stuck
            assert now.records == tuple(record for record in before.records if record.offset not in lost)


SEEN_BY_A_BROKER = NAME_CHANGING | {"truncate", "write_at", "create", "set_attributes"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", WAYS)
def test_every_state_on_the_way_there_and_back_is_read_as_before_or_as_after(
    tmp_path: Path, judge: JudgeOf, version: str, way: str
) -> None:
    """Unclean: nothing beyond what recovery loses anyway. Clean: never a record twice, never a wrong log end."""
    torn = prepared(tmp_path / "logs", way)
    plan = torn.plan(**WAYS[way])
    disk = StatesDisk(torn.root, tmp_path / "states", SEEN_BY_A_BROKER)
    assert apply(plan, options(), disk=disk).exit_code == ExitCode.DONE
    assert undo(plan, options(), disk=disk).exit_code == ExitCode.DONE
    recovered = set()
    for copy in disk.seen.values():
        for clean in (False, True):
            found = loaded_or_corrupt(judge(version), copy / "t-0", tmp_path / "work", clean=clean)
            if found is None:
                assert clean, copy
                continue
            offsets = read(found)
            assert offsets == sorted(set(offsets))
            if clean:
                assert found.log_end in ({150} if way != "broker" else {150, 100, 65})
            else:
                recovered.add((found.log_end, len(offsets)))
    expected = {"torn tail": {(150, 150)}, "excise": {(65, 65), (150, 145)}, "broker": {(65, 65)}}
    assert recovered == expected[way]
    assert len(disk.seen) > 3


OLD = ("m0-none-0", "m0-gzip-0", "m1-lz4-0", "m1-none-0", "mixed-0")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", OLD)
def test_old_formats_are_cut_and_cut_out_as_well(
    tmp_path: Path, judge: JudgeOf, version: str, folder: str
) -> None:
    """Real v0 and v1 logs, plain and compressed: a torn tail, and a wrapper or message in the middle that went bad."""
    log_dir = unpack("oldformat-2.2.1-before", tmp_path)
    for other in log_dir.iterdir():
        if other.is_dir() and other.name != folder:
            shutil.rmtree(other)
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    logs = sorted((log_dir / folder).glob("*.log"))
    intact = loaded(judge(version), log_dir / folder, tmp_path / "work", clean=False)
    raw = logs[1].read_bytes()
    place = 12 + int.from_bytes(raw[8:12], "big")
    logs[1].write_bytes(raw[: place + 40] + bytes([raw[place + 40] ^ 1]) + raw[place + 41 :])
    with open(logs[-1], "ab") as last:
        last.write(raw[:57])
    before = tree(log_dir)
    topic, _, number = folder.rpartition("-")
    given = options(partitions=((topic, int(number)),), settings=())
    report = check([str(log_dir)], given).log_dirs[0]
    consents = tuple(
        sorted(
            found
            for one in report.findings
            for found in re.findall(r"--accept-data-loss (\S+)", one.evidence)
        )
    )
    assert len(consents) == 1
    plan = make_plan(
        str(log_dir), options(partitions=((topic, int(number)),), settings=(), accepted_losses=consents)
    )
    assert len(plan.partitions[0].changes) == 2
    assert apply(plan, given).exit_code == ExitCode.DONE
    (lost,) = plan.partitions[0].changes[0].removed  # type: ignore[union-attr]
    for clean in (False, True):
        after = loaded(judge(version), log_dir / folder, tmp_path / "work", clean=clean)
        assert after.complaints == ()
        assert after.log_end == intact.log_end
        left = {record.offset for record in after.uncommitted.records}
        gone = [record.offset for record in intact.uncommitted.records if record.offset not in left]
        assert gone
        assert (gone[0], gone) == (lost.first_lost, list(range(gone[0], gone[-1] + 1)))
        assert gone[-1] <= lost.last_lost
        assert after.uncommitted.records == tuple(
            record for record in intact.uncommitted.records if record.offset not in gone
        )
    assert undo(plan, given).exit_code == ExitCode.DONE
    assert tree(log_dir) == before


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_undo_after_a_broker_has_loaded_the_partition_and_written_nothing(
    tmp_path: Path, judge: JudgeOf, version: str, clean: bool, way: str
) -> None:
    """It resizes indexes of the active segment and may write a snapshot; the logs it leaves as they are."""
    torn = prepared(tmp_path / "logs", way)
    before = {path.name: path.read_bytes() for path in torn.folder.glob("0*[gx]")}
    plan = torn.plan(**WAYS[way])
    assert apply(plan, options()).exit_code == ExitCode.DONE
    judge(version).load(torn.folder, clean=clean, recovery_point=0, settings=SETTINGS)
    report = undo(plan, options())
    assert report.exit_code == ExitCode.DONE, report.results
    after = {path.name: path.read_bytes() for path in torn.folder.glob("0*[gx]")}
    logs = [name for name in before if name.endswith(".log")]
    assert {name: after[name] for name in logs} == {name: before[name] for name in logs}


@pytest.mark.parametrize("version", ENDS)
def test_no_torn_bytes_come_back_under_a_broker_that_trusts_its_logs(tmp_path: Path, version: str) -> None:
    """Between two brokers that are stopped cleanly: what the second one writes behind them, nobody could read."""
    root, sent = tmp_path / "logs", 20
    root.mkdir()
    with Broker(version, root, {"log.cleaner.enable": "false"}, {"t": Topic()}) as broker:
        _send(broker, sent)
        broker.stop()
        (root / CLEAN_SHUTDOWN).unlink()
        with max((root / "t-0").glob("*.log")).open("ab") as log:
            log.write(b.data(sent, 5).raw[:77])
        plan = make_plan(str(root), options())
        assert apply(plan, options()).exit_code == ExitCode.DONE
        broker.start()
        broker.stop()
        report = undo(plan, options())
        assert report.exit_code == ExitCode.STALE_PLAN
        assert "a broker was stopped cleanly since" in report.results[0].why
        broker.start()
        _send(broker, sent)
        assert len(client.read_all(broker.bootstrap, "t")) == 2 * sent


def _send(broker: Broker, count: int) -> None:
    sending = producer(broker)
    for number in range(count):
        sending.produce("t", b"%d" % number, partition=0)
    assert not sending.flush(LIMIT_S)
