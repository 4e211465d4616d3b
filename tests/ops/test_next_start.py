"""What check says of the next start: what it reads, writes, reserves and deletes, and which file prevents it."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import crc32c
import pytest

from krepair.checks.recovery_time import ASSUMED
from krepair.formats.batch_v2 import HEADER_SIZE
from krepair.formats.words import count_text, time_text
from krepair.logdir.space import VolumeSpace
from krepair.ops.check import check
from krepair.ops.reports import LogDirReport
from krepair.options import EngineName, Options
from krepair.start import needs
from krepair.start.line import ForecastLine
from tests import builders
from tests.builders import NOW_MS, data
from tests.encoders import compress
from tests.fixture_dirs import unpack
from tests.ops.inline import Inline
from tests.ops.next_start import KILLS, compacted

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


def test_segment_without_an_index_is_read_after_a_clean_stop_too_but_not_by_2_2(small: Path) -> None:
    (small / "t-0" / f"{5:020d}.index").unlink()
    assert line_of(checked(small), "t-0").segments == (5,)
    assert line_of(checked(small, broker_version="4.4.0"), "t-0").expected == "recover"
    assert line_of(checked(small, broker_version="2.2.1"), "t-0").expected == "start"


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
    for left, told in ((0, 1), (1, 0), (-1, 0)):
        monkeypatch.setattr(
            needs, "read_space", lambda path, left=left: VolumeSpace(1 << 30, left, 4096, False)
        )
        found = evidence(checked(small), "KR703")
        assert len(found) == told
        assert all("no inode is free, see df -i" in one for one in found)


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
            "brokers 2.2.1, 3.9.2, 4.4.0 do not start: folder lost+found in the root is no partition; it ends a broker "
            "with several log directories, too"
        ),
        ("", "cleaner-offset-checkpoint"): (
            "broker 2.2.1 does not start: cleaner-offset-checkpoint cannot be read by a broker"
        ),
        **{
            (folder, "leader-epoch-checkpoint"): (
                f"brokers 2.2.1, 3.9.2, 4.4.0 do not start: {folder}/leader-epoch-checkpoint "
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
    bad, good = (unpack("leader-epochs-2.2.1", tmp_path / name) for name in ("bad", "good"))
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
        (b"", "2.2.1, 3.9.2, 4.4.0"),
        (b"version=9\nbroker.id=0\n", "2.2.1, 3.9.2, 4.4.0"),
        (b"version=1\ncluster.id=x\n", "2.2.1, 3.9.2, 4.4.0"),
        (b"version=0\nbroker.id=x\n", "2.2.1, 3.9.2, 4.4.0"),
        (None, "3.9.2, 4.4.0"),
    ],
)
def test_meta_properties_that_keep_a_broker_down(tmp_path: Path, content: bytes | None, refuses: str) -> None:
    """As seen on the three; without the file 2.2.1 starts, and KRaft takes the directory for a new one."""
    log_dir = unpack("offsets-tv2-4.3.1", tmp_path)
    path = log_dir / "meta.properties"
    path.unlink() if content is None else path.write_bytes(content)
    report = checked(log_dir)
    assert [one.split(" do")[0] for one in evidence(report, "KR803")] == [f"brokers {refuses}"]
    assert len(evidence(report, "KR407")) == 1
    assert {line.expected for line in report.forecast} == {"refuse"}


@pytest.mark.parametrize(
    ("base", "suffix", "refuses"),
    [
        (7, ".index", "2.2.1, 3.9.2, 4.4.0"),
        (7, ".timeindex", "2.2.1, 3.9.2, 4.4.0"),
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
    assert (line_of(checked(small, broker_version="4.4.0"), "t-0").expected == "refuse") is (
        "4.4.0" in refuses
    )


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
    raw = builders.encode(offset, records, attributes=codec)
    body = compress(codec, raw[HEADER_SIZE:])
    front = bytearray(raw[:HEADER_SIZE])
    struct.pack_into(">i", front, 8, HEADER_SIZE - 12 + len(body))
    sealed = bytes(front[21:]) + body
    struct.pack_into(">I", front, 17, crc32c.crc32c(sealed))
    return replace(data(offset, records), raw=bytes(front) + body)


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
