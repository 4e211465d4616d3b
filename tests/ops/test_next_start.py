"""What check says of the next start: what it reads, writes, reserves and deletes, and which file prevents it."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.checks.catalogue import StartEffect, start_of
from krepair.checks.recovery_time import ASSUMED
from krepair.findings.reports import LogDirReport
from krepair.findings.table import emptied_findings
from krepair.formats.words import count_text, time_text
from krepair.logdir.space import VolumeSpace
from krepair.logdir.view import read_log_dir
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.start import needs
from krepair.start.line import ForecastLine
from krepair.start.needs import StartSpace
from krepair.start.ownership import Node, lacks, nodes_of, ownership_findings, usual_owner
from tests import builders, codecs
from tests.builders import NOW_MS, LogDir, data
from tests.commit import txfixture
from tests.fixture_dirs import readable_by_4, unpack
from tests.lab.jars import LOADER_VERSIONS
from tests.ops.inline import Inline
from tests.ops.next_start import KILLS, compacted
from tests.ops.starts_by_version import ACTIVE, TABLE, ZEROS_BEHIND, Row, written
from tests.ops.starts_by_version import checked as checked_as
from tests.ops.starts_by_version import file as file_of
from tests.ops.starts_by_version import line as line_as
from tests.ops.starts_by_version import row as row_of

MINUTE_MS = 60_000
checked = Inline(now_ms=NOW_MS + MINUTE_MS).checked


def evidence(report: LogDirReport, rule: str) -> list[str]:
    return [finding.evidence for finding in report.findings if finding.rule == rule]


def line_of(report: LogDirReport, folder: str) -> ForecastLine:
    return next(line for line in report.forecast if line.partition == folder)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Partition t-0 with segments 0, 5 and 7, cleanly stopped."""
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, 3), data(3, 2)).segment(data(5, 2)).segment(data(7, 1))
    return directory.write()


def test_clean_stop_reads_nothing_and_needs_only_checkpoints(small: Path) -> None:
    report = checked(small)
    assert line_of(report, "t-0") == ForecastLine(
        partition="t-0", expected="start", text="cleanly stopped: its logs are not read"
    )
    assert report.start_needs_bytes == 6 * 4096
    assert report.start_reserves_bytes == 10_485_760 + 10_485_756 - 12
    assert report.free_bytes > 0
    assert [finding.rule for finding in report.findings] == []


@pytest.mark.parametrize("what", ["link", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        f"{5:020d}.log",
        f"{5:020d}.index",
        f"{8:020d}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_nothing_is_foretold_of_a_file_that_is_not_opened(small: Path, name: str, what: str) -> None:
    path = small / "t-0" / name
    path.unlink(missing_ok=True)
    if what == "link":
        path.symlink_to(small)
    else:
        path.mkdir()
    line = line_of(checked(small), "t-0")
    kind = "symlink" if what == "link" else "folder"
    assert (line.expected, line.text) == ("unknown", f"{name}: a {kind}, which krepair does not open")


@pytest.mark.parametrize(
    ("point", "read", "blocks"),
    [(8, (7,), 10), (7, (7,), 10), (6, (5, 7), 13), (0, (0, 5, 7), 16)],
)
def test_unclean_stop_reads_the_segments_from_the_recovery_point_on(
    small: Path, point: int, read: tuple[int, ...], blocks: int
) -> None:
    (small / ".kafka_cleanshutdown").unlink()
    (small / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    report = checked(small)
    line = line_of(report, "t-0")
    size = sum((small / "t-0" / f"{base:020d}.log").stat().st_size for base in read)
    assert (line.expected, line.segments, line.bytes_read) == ("recover", read, size)
    assert f"{count_text(len(read), 'segment')} from" in line.text or f"reads {len(read)}" in line.text
    assert ("segment from" in line.text) == ("is read" in line.text)
    assert evidence(report, "KR801") == [
        (
            f"{count_text(len(read), 'segment')} of 1 partition, {size:,} bytes: a few seconds ({ASSUMED}); "
            f"longest: t-0 ({size:,} bytes)"
        )
    ]
    assert report.start_needs_bytes == blocks * 4096  # tests/brokers has what real brokers take


def test_start_that_does_not_fit_on_the_disk_is_told(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "read_space", lambda path: VolumeSpace(6 * 4096 - 1, 9, 4096, False))
    found = [finding for finding in checked(small).findings if finding.rule == "KR703"]
    assert [finding.bytes for finding in found] == [1]
    assert "writes up to 24576 bytes (checkpoints 24576 bytes), 24575 bytes are free" in found[0].evidence
    monkeypatch.setattr(needs, "read_space", lambda path: VolumeSpace(6 * 4096, 9, 4096, False))
    assert evidence(checked(small), "KR703") == []


def test_start_on_a_file_system_without_a_free_inode_is_told(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left, told in ((0, 1), (3, 1), (4, 0), (-1, 0)):
        monkeypatch.setattr(
            needs, "read_space", lambda path, left=left: VolumeSpace(1 << 30, left, 4096, False)
        )
        found = evidence(checked(small), "KR703")
        assert len(found) == told
        assert all(f"up to 4 new files, the file system has room for {left} (df -i)" in one for one in found)


def test_each_file_that_keeps_a_broker_down_is_named_with_the_versions(tmp_path: Path) -> None:
    log_dir = unpack("leader-epochs-2.2.1-truncated", tmp_path)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(b"0\n-1\n")
    (log_dir / "lost+found").mkdir()
    found = {
        (finding.partition, finding.file): finding.evidence
        for finding in checked(log_dir).findings
        if finding.rule == "KR803"
    }
    assert found == {
        (
            "",
            "lost+found",
        ): (
            "brokers 2.2.1, 3.9.2 do not start: folder lost+found in the root is no partition; it ends a broker "
            "with several log directories, too"
        ),
        ("", "cleaner-offset-checkpoint"): (
            "broker 2.2.1 does not start: cleaner-offset-checkpoint cannot be read by a broker"
        ),
        **{
            (folder, "leader-epoch-checkpoint"): (
                f"brokers 2.2.1, 3.9.2 do not start: {folder}/leader-epoch-checkpoint "
                "cannot be read by a broker; broker 2.2.1 does not start with several log directories, either"
            )
            for folder in ("e-all-0", "e-some-0")
        },
    }
    given = {
        finding.file: finding.evidence
        for finding in checked(log_dir, broker_version="3.9.2").findings
        if finding.rule == "KR803"
    }
    assert "cleaner-offset-checkpoint" not in given
    assert given["lost+found"].startswith("broker 3.9.2 does not start")


NO_NUMBER, NO_PAIR = b"0\n2\n0 0\n2 99999999999999999999\n", b"0\n2\n0 0\n2\n"


@pytest.mark.parametrize(
    ("written", "version", "other"),
    [
        (NO_NUMBER, "2.2.1", "refuse"),
        (NO_NUMBER, "3.9.2", "refuse"),
        (NO_NUMBER, "4.4.0", "refuse"),
        (b"0\n-1\n0 0\n", "4.4.0", "refuse"),
        (NO_PAIR, "2.2.1", "refuse"),
        (NO_PAIR, "2.8.2", "refuse"),
        (NO_PAIR, "3.9.2", "start"),
        (NO_PAIR, "4.4.0", "start"),
    ],
)
def test_an_epoch_file_without_a_number_ends_a_broker_with_its_other_directories(
    tmp_path: Path, written: bytes, version: str, other: str
) -> None:
    """As the real brokers did, see ``tests/brokers/test_epochs.py``."""
    bad, good = (readable_by_4(unpack("leader-epochs-2.2.1", tmp_path / name)) for name in ("bad", "good"))
    for folder in good.glob("e-*"):  # the same partition in two directories would end the broker by itself
        folder.rename(good / f"g{folder.name}")
    (bad / "e-all-0" / "leader-epoch-checkpoint").write_bytes(written)
    given = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    for order in ([bad, good], [good, bad]):
        said = {
            report.log_dir: {(line.expected, line.text) for line in report.forecast}
            for report in check([str(path) for path in order], given).log_dirs
        }
        assert {expected for expected, _ in said[str(bad)]} == {"refuse"}
        assert {expected for expected, _ in said[str(good)]} == {other}
        if other == "refuse":
            why = f"the broker does not start: e-all-0/leader-epoch-checkpoint cannot be read by a broker (in {bad})"
            assert {text for _, text in said[str(good)]} == {why}


@pytest.mark.parametrize(
    ("content", "refuses"),
    [
        (b"", "2.2.1, 3.9.2"),
        (b"version=9\nbroker.id=0\n", "2.2.1, 3.9.2"),
        (b"version=1\ncluster.id=x\n", "2.2.1, 3.9.2"),
        (b"version=0\nbroker.id=x\n", "2.2.1, 3.9.2"),
        (None, "3.9.2"),
    ],
)
def test_meta_properties_that_keep_a_broker_down(tmp_path: Path, content: bytes | None, refuses: str) -> None:
    """As seen on the three; without the file 2.2.1 starts, and KRaft takes the directory for a new one."""
    log_dir = unpack("offsets-tv2-4.3.1", tmp_path)
    path = log_dir / "meta.properties"
    path.unlink() if content is None else path.write_bytes(content)
    report = checked(log_dir)
    brokers = f"broker{'s' if ',' in refuses else ''} {refuses}"
    assert [one.split(" do")[0] for one in evidence(report, "KR803")] == [brokers]
    assert len(evidence(report, "KR407")) == 1
    assert {line.expected for line in report.forecast} == {"refuse"}


@pytest.mark.parametrize(
    ("base", "suffix", "refuses"),
    [
        (7, ".index", "2.2.1, 3.9.2"),
        (7, ".timeindex", "2.2.1, 3.9.2"),
        (5, ".index", "2.2.1"),
        (5, ".timeindex", "2.2.1"),
    ],
)
def test_index_that_cannot_be_mapped_keeps_a_broker_down_where_it_is_mapped(
    small: Path, base: int, suffix: str, refuses: str
) -> None:
    """As Kafka's own loader does: from 2.3 on only the active segment's indexes are mapped at the start."""
    os.truncate(small / "t-0" / f"{base:020d}{suffix}", 2**31)
    report = checked(small)
    assert [one.split(" do")[0] for one in evidence(report, "KR803")] == [
        f"broker{'s' if ',' in refuses else ''} {refuses}"
    ]
    assert line_of(checked(small, broker_version="2.2.1"), "t-0").expected == "refuse"
    assert (line_of(checked(small, broker_version="4.4.0"), "t-0").expected == "refuse") is (base == 7)


def test_broker_id_of_the_configuration_is_held_against_that_of_the_directory(tmp_path: Path) -> None:
    log_dir = unpack("offsets-tv2-4.3.1", tmp_path)
    config = tmp_path / "server.properties"
    for text, expected in (
        ("broker.id=0\n", []),
        ("broker.id=-1\n", []),
        ("process.roles=broker\nnode.id=0\nbroker.id=9\n", []),
        ("node.id=9\n", ["broker id 0 here, 9 in the configuration: that broker does not start"]),
        ("broker.id = 7\n", ["broker id 0 here, 7 in the configuration: that broker does not start"]),
    ):
        config.write_text(text)
        assert evidence(checked(log_dir, config=str(config)), "KR407") == expected


def test_segments_past_a_known_retention_are_told_by_the_logs_own_times(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    old, young = NOW_MS - 90 * MINUTE_MS, NOW_MS
    directory.partition("t").segment(data(0, timestamp=old), mtime_ms=young).segment(
        data(1, timestamp=old + 1), mtime_ms=young
    ).segment(data(2, timestamp=young), mtime_ms=young)
    path = directory.write()
    hour = ("retention.ms", str(60 * MINUTE_MS))
    assert evidence(checked(path, settings=(hour,)), "KR702") == []  # its cleanup.policy is not known
    report = checked(path, settings=(hour, ("cleanup.policy", "delete")))
    assert [finding.bytes for finding in report.findings if finding.rule == "KR702"] == [2 * 80]
    assert f"their youngest record is of {time_text(old + 1)}" in evidence(report, "KR702")[0]
    assert line_of(report, "t-0").expected == "delete"
    assert evidence(checked(path, now_ms=NOW_MS + 10**12), "KR702") == []


@pytest.mark.parametrize("damage", KILLS)
def test_what_ends_the_cleaners_pass_is_told_of_compacted_topics(tmp_path: Path, damage: str) -> None:
    path = compacted(tmp_path / "logs", damage)
    compact = (("cleanup.policy", "compact"), ("max.message.bytes", "1000"))
    for version in ("", "1.1.0", "2.2.1", "3.9.2"):
        found = evidence(checked(path, settings=compact, broker_version=version), "KR105")
        assert bool(found) is (version in KILLS[damage]), (version, found)
    assert evidence(checked(path, broker_version="1.1.0"), "KR105") == []


def packed(offset: int, codec: int, *sizes: int) -> builders.Batch:
    """A compressed batch with a value of each size."""
    records = [builders.Record(b"k%d" % offset, b"x" * size) for size in sizes]
    made = data(offset, records)
    return replace(made, raw=codecs.packed(made.raw, codec))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_record_that_a_cleaner_of_4_4_refuses_is_named_with_its_batch(tmp_path: Path, codec: int) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("c")
    partition.segment(packed(0, codec, 50), data(1, [builders.Record(b"k", b"x" * 9000)]))
    partition.segment(packed(2, codec, 70, 5000, 70), packed(5, codec, 6000)).segment(packed(6, codec, 9000))
    path = directory.write()
    most = ("max.decompressed.message.bytes", "4999")
    compact = ("cleanup.policy", "compact")
    (found,) = evidence(checked(path, settings=(compact, most)), "KR105")
    assert found == (
        "the batch of offsets 2 to 4 has a record of 5009 bytes when decompressed, above "
        "max.decompressed.message.bytes=4999: a cleaner of 4.4.0 or later stops there"
    )
    assert evidence(checked(path, settings=(compact, most), broker_version="4.3.1"), "KR105") == []
    assert evidence(checked(path, settings=(compact,)), "KR105") == []
    assert evidence(checked(path, settings=(most,)), "KR105") == []


def test_forecast_of_a_directory_without_partitions_needs_only_checkpoints(small: Path) -> None:
    shutil.rmtree(small / "t-0")
    report = checked(small)
    assert (report.forecast, report.start_reserves_bytes) == ((), 0)
    assert report.start_needs_bytes == 2 * 4096


@pytest.mark.parametrize("clean", [True, False])
def test_partition_folder_without_a_log_starts_empty(small: Path, clean: bool) -> None:
    (small / "new-0").mkdir()
    if not clean:
        (small / ".kafka_cleanshutdown").unlink()
    line = line_of(checked(small), "new-0")
    assert (line.expected, line.segments) == ("start", ())
    assert "no .log" in line.text


# -- Where the loaders of the versions take different steps: a table of damages, judged by Kafka too.

# ``tests/lab/test_starts.py`` lets the loader classes of the four versions do what this table says.
NAMES = [f"{one.name}, {'clean' if one.clean else 'killed'}" for one in TABLE]


def refusals(report: LogDirReport) -> list[str]:
    return [one.evidence for one in report.findings if one.rule == "KR803"]


@pytest.mark.parametrize("one", TABLE, ids=NAMES)
def test_forecast_of_each_version(tmp_path: Path, one: Row) -> None:
    log_dir = written(tmp_path / "logs", one)
    said = {version: checked_as(log_dir, version) for version in LOADER_VERSIONS}
    assert {version: report.forecast[0].expected for version, report in said.items()} == one.expected
    refused = {version for version, report in said.items() if refusals(report)}
    assert refused == {version for version, what in one.expected.items() if what == "refuse"}


def test_what_keeps_a_broker_down_is_named_with_file_and_place(tmp_path: Path) -> None:
    zeros = next(one for one in TABLE if one.breaks is ZEROS_BEHIND and one.clean)
    end = file_of(
        written(tmp_path / "sound", row_of("", lambda _: None, "clean", "start")) / "t-0", ACTIVE, ".log"
    )
    assert refusals(checked_as(written(tmp_path / "logs", zeros))) == [
        (
            "brokers 2.2.1, 3.9.2 do not start: t-0/00000000000000000040.log: "
            f"position {end.stat().st_size}: a record size of 0, smaller than 14; broker 2.2.1 does not start with "
            "several log directories, either"
        )
    ]


def test_a_closed_segment_that_is_recovered_by_itself_is_cut_and_the_later_ones_stay(tmp_path: Path) -> None:
    """The cut of 2.2.1 costs a few bytes; of later versions the segment's rest and everything behind it."""
    log_dir = written(tmp_path / "logs", TABLE[-1])
    old, newer = line_as(log_dir, "2.2.1"), line_as(log_dir, "4.4.0")
    assert [base for base, _ in old.log_bytes] == [0, 20, 40]
    assert [base for base, _ in newer.log_bytes] == [0]
    assert old.log_bytes[0] == newer.log_bytes[0]
    assert "later segments stay, behind a gap" in old.text


def test_where_the_versions_differ_and_none_was_given_each_is_told(tmp_path: Path) -> None:
    log_dir = written(tmp_path / "logs", next(one for one in TABLE if one.name == "odd index, cut log"))
    found = line_as(log_dir)
    assert found.expected == "start"
    assert found.text.startswith("this depends on the version; 3.9.2: cleanly stopped")
    assert "2.2.1: truncate: " in found.text


def test_active_index_that_leads_past_the_log_makes_a_broker_forget_its_end(tmp_path: Path) -> None:
    def breaks(folder: Path) -> None:
        path = file_of(folder, ACTIVE, ".index")
        entries = bytearray(path.read_bytes())
        struct.pack_into(">i", entries, len(entries) - 4, 10**6)
        path.write_bytes(entries)

    log_dir = written(tmp_path / "logs", row_of("", breaks, "clean", "start"))
    report = checked_as(log_dir, "4.4.0")
    assert report.forecast[0].log_end == ACTIVE
    assert "takes 40 for the log end" in report.forecast[0].text
    assert ("KR203", f"{ACTIVE:020d}.index") in {(one.rule, one.file) for one in report.findings}


# -- Where a start may empty healthy segments (KR804): since 4.0, after an unclean stop, on a full disk or in a folder
# of somebody else.

ROOMY = StartSpace(4096, 0, 1 << 30, "")
FULL = StartSpace(4096, 0, 4095, "")


def unclean(root: Path, *, clean_stop: bool = False) -> Path:
    directory = builders.LogDir(root)
    for number in (0, 1):
        directory.partition("t", number).segment(data(0, 3)).segment(data(3, 2)).segment(data(5, 2))
    return directory.write(clean_stop=clean_stop)


def told_as_emptied(log_dir: Path, version: str = "") -> list[str]:
    report = Inline(now_ms=NOW_MS + 60_000).checked(log_dir, broker_version=version)
    return [finding.rule for finding in report.findings if finding.rule == "KR804"]


def owned_but_for(log_dir: Path, foreign: str = "") -> list[Node]:
    """Everything belongs to one user, but for one folder or file, which is root's."""
    return [
        node._replace(uid=0, gid=0, mode=0o755 if node.is_folder else 0o644)
        if "/".join(filter(None, (node.partition, node.name))) == foreign
        else node._replace(uid=KAFKA, gid=KAFKA)
        for node in nodes_of(read_log_dir(str(log_dir)))
    ]


def recovered(partition: str, *segments: int) -> ForecastLine:
    return ForecastLine(
        partition=partition, expected="recover", text="", bytes_read=100 * len(segments), segments=segments
    )


@pytest.mark.parametrize(
    ("version", "clean_stop", "expected"),
    [
        ("4.3.1", False, 1),
        ("4.0.0", False, 1),
        ("3.9.2", False, 0),
        ("", False, 1),
        ("by its directory id", False, 1),
        ("4.3.1", True, 0),
        ("", True, 0),
    ],
)
def test_full_disk_is_told_after_an_unclean_stop_unless_the_broker_is_known_to_be_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, clean_stop: bool, expected: int
) -> None:
    log_dir = unclean(tmp_path / "logs", clean_stop=clean_stop)
    if version == "by its directory id":  # of 3.7 or later: it may be a newer one
        version = ""
        with (log_dir / "meta.properties").open("a") as file:
            file.write("directory.id=sUcJkJTsQQSTxBpDG9_GAA\n")
    assert told_as_emptied(log_dir, version) == []
    monkeypatch.setattr(needs, "read_space", lambda path: VolumeSpace(0, 9, 4096, False))
    assert told_as_emptied(log_dir, version) == ["KR804"] * expected


def test_full_disk_is_one_finding_with_the_bytes_that_are_at_stake(tmp_path: Path) -> None:
    log_dir = unclean(tmp_path / "logs")
    lines = [recovered("t-0", 3, 5), recovered("t-1", 5)]
    (finding,) = emptied_findings(read_log_dir(str(log_dir)), lines, FULL, owned_but_for(log_dir), (4, 0, 0))
    assert (finding.partition, finding.bytes) == ("", 300)
    assert finding.evidence == (
        "the next start recovers 300 bytes of 2 partitions and may write 4096 bytes, 4095 are free; if the disk "
        "becomes full, a broker since 4.0 may empty the healthy segment that it is recovering and delete all later "
        "ones (a broker before 4.0 only stops); free the space before any start"
    )


def test_folder_that_the_brokers_user_cannot_write_is_told_with_what_to_type(tmp_path: Path) -> None:
    log_dir = unclean(tmp_path / "logs")
    view, lines = read_log_dir(str(log_dir)), [recovered("t-0", 3, 5), recovered("t-1", 5)]
    (finding,) = emptied_findings(view, lines, ROOMY, owned_but_for(log_dir, "t-0"), None)
    assert (finding.partition, finding.bytes) == ("t-0", 200)
    assert finding.evidence == (
        f"the next start recovers 200 bytes here, from {3:020d}.log on, in a folder that its user cannot write: t-0: "
        f"root:root 0755; most files are of {KAFKA}:{KAFKA}, who has no write; chown {KAFKA}:{KAFKA} {view.path}/t-0; "
        "a broker since 4.0 then may empty the first of these segments and delete all later ones (a broker before "
        "4.0 only stops)"
    )


def test_files_that_stop_a_start_before_anything_is_lost_and_folders_not_recovered_are_left_to_kr605(
    tmp_path: Path,
) -> None:
    log_dir = unclean(tmp_path / "logs")
    view, lines = read_log_dir(str(log_dir)), [recovered("t-0", 3, 5)]
    for foreign in (f"t-0/{3:020d}.index", f"t-0/{3:020d}.snapshot", f"t-0/{3:020d}.log", "t-1"):
        nodes = owned_but_for(log_dir, foreign)
        assert any(node.uid == 0 for node in nodes), foreign
        assert list(emptied_findings(view, lines, ROOMY, nodes, None)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_folder_of_root_among_those_of_the_broker_is_found_by_check(tmp_path: Path) -> None:
    log_dir = unclean(tmp_path / "logs")
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, KAFKA, KAFKA)
    assert told_as_emptied(log_dir, "4.3.1") == []
    os.chown(log_dir / "t-1", 0, 0)
    assert told_as_emptied(log_dir, "4.3.1") == ["KR804"]
    assert told_as_emptied(log_dir, "3.9.2") == []


# -- Files that the broker's user cannot use are named with what to type; a directory of one owner says nothing.

KAFKA, GROUP = 64_001, 64_002
ALL = ((2, 2, 1), (3, 9, 2), (4, 3, 1))


def node(name: str, uid: int, gid: int, mode: int, partition: str = "t-0") -> Node:
    return Node(partition, name, uid, gid, mode)


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (node("a", KAFKA, GROUP, 0o600), ""),
        (node("a", KAFKA, GROUP, 0o400), "w"),
        (node("a", KAFKA, GROUP, 0o066), "rw"),  # the owner's bits count alone
        (node("a", 0, GROUP, 0o660), ""),
        (node("a", 0, GROUP, 0o640), "w"),
        (node("a", 0, 0, 0o666), ""),
        (node("a", 0, 0, 0o644), "w"),
        (node("", KAFKA, GROUP, 0o600)._replace(is_folder=True), "x"),
        (node("", 0, 0, 0o755)._replace(is_folder=True), "w"),
    ],
)
def test_what_a_user_may_not_do_follows_from_owner_group_and_mode(found: Node, missing: str):
    assert lacks(found, KAFKA, GROUP) == missing
    assert not lacks(found, 0, 0)


def test_the_owner_of_most_files_counts_and_not_that_of_the_directory():
    nodes = [node("a", 0, 0, 0o600), *(node(str(number), KAFKA, GROUP, 0o600) for number in range(3))]
    assert usual_owner(nodes) == (KAFKA, GROUP)


def test_files_restored_as_root_are_one_finding_per_folder_with_the_command(tmp_path: Path):
    view = read_log_dir(str(txfixture.write_log_dir(tmp_path / "logs")))
    good = [node(str(number), KAFKA, GROUP, 0o644, "o-0") for number in range(5)]
    bad = [node(name, 0, 0, 0o400) for name in ("one.log", "two.log")]
    (finding,) = ownership_findings(view, [*good, *bad], ALL)
    assert (finding.rule, finding.partition, finding.file) == ("KR605", "t-0", "one.log")
    path = f"{view.path}/t-0/one.log"
    assert finding.evidence == (
        f"one.log and 1 more file: root:root 0400; most files are of {KAFKA}:{GROUP}, who has no write and no read; "
        f"chown {KAFKA}:{GROUP} {path} && chmod u+w {path}"
    ).replace("no write and no read", "no read and no write")


def test_a_log_directory_of_one_owner_has_no_finding_and_every_file_is_looked_at(tmp_path: Path):
    root = txfixture.write_log_dir(tmp_path / "logs")
    view = read_log_dir(str(root))
    nodes = list(nodes_of(view))
    assert not list(ownership_findings(view, nodes, ALL))
    there = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert {f"{one.partition}/{one.name}".strip("/") for one in nodes} - {""} == there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_and_a_checkpoint_of_root_are_named_where_a_broker_runs_as_another_user(tmp_path: Path):
    root = txfixture.write_log_dir(tmp_path / "logs")
    for path in (root, *root.rglob("*")):
        os.chown(path, KAFKA, GROUP)
    for name in (".lock", "recovery-point-offset-checkpoint"):
        (root / name).touch()
        os.chown(root / name, 0, 0)
        (root / name).chmod(0o600)
    view = read_log_dir(str(root))
    (finding,) = ownership_findings(view, nodes_of(view), ALL)
    assert finding.file == ".lock"
    assert "and 1 more file" in finding.evidence


ACTIVE_BASE = f"{10:020d}"
"""The table was tried on brokers of 3.9.2 and 4.3.1, each with another healthy directory, and of 4.4.0 alone."""
DIRECTORY, NONE = StartEffect.DIRECTORY, StartEffect.NONE


@pytest.mark.parametrize(
    ("name", "unreadable", "unwritable"),
    [
        ("meta.properties", DIRECTORY, NONE),
        ("recovery-point-offset-checkpoint", DIRECTORY, NONE),
        ("cleaner-offset-checkpoint", DIRECTORY, NONE),
        (".lock", DIRECTORY, DIRECTORY),
        ("replication-offset-checkpoint.tmp", DIRECTORY, DIRECTORY),
        ("server.log", NONE, NONE),
        (".kafka_cleanshutdown", NONE, NONE),
        ("", DIRECTORY, DIRECTORY),
        ("t-0/", DIRECTORY, DIRECTORY),
        (f"t-0/{0:020d}.log", DIRECTORY, DIRECTORY),
        (f"t-0/{0:020d}.index", DIRECTORY, NONE),
        (f"t-0/{0:020d}.txnindex", DIRECTORY, DIRECTORY),
        (f"t-0/{ACTIVE_BASE}.timeindex", DIRECTORY, DIRECTORY),
        ("t-0/leader-epoch-checkpoint", DIRECTORY, NONE),
        ("t-0/leader-epoch-checkpoint.tmp", DIRECTORY, DIRECTORY),
        ("t-0/partition.metadata", DIRECTORY, NONE),
        (f"t-0/{20:020d}.snapshot", DIRECTORY, NONE),
    ],
)
def test_what_a_start_makes_of_a_file_that_it_cannot_open(
    name: str, unreadable: StartEffect, unwritable: StartEffect, tmp_path: Path
) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(data(0, 10)).segment(data(10, 10))
    view = read_log_dir(str(made.write()))
    partition, _, file = name.rpartition("/")
    folder = not file
    good = [node(str(number), KAFKA, GROUP, 0o644) for number in range(5)]
    for mode, effect in ((0o700, unreadable), (0o755 if folder else 0o644, unwritable)):
        bad = node(file, 0, 0, mode, partition)._replace(is_folder=folder)
        (finding,) = ownership_findings(view, [*good, bad], [(4, 3, 1)])
        assert start_of(finding) is effect, oct(mode)


def test_a_broker_of_2_2_opens_every_index(tmp_path: Path) -> None:
    view = read_log_dir(str(txfixture.write_log_dir(tmp_path / "logs")))
    nodes = [*(node(str(number), KAFKA, GROUP, 0o644) for number in range(5)), node("x.index", 0, 0, 0o644)]
    effects = [start_of(*ownership_findings(view, nodes, [one])) for one in ((2, 2, 1), (2, 3, 0))]
    assert effects == [DIRECTORY, NONE]
