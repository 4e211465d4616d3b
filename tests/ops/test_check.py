"""What check finds in single files, how findings are summed up by rule, and what to type for them."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from krepair.checks import fetch_size
from krepair.checks.catalogue import Finding, Severity
from krepair.checks.side_by_side import SideBySide
from krepair.cli.main import app
from krepair.cli.views.metrics import Ended, families, render
from krepair.durable.tree import Tree
from krepair.errors import ExitCode
from krepair.findings.by_rule import by_rule
from krepair.formats import batch_v2, message_set, record
from krepair.formats.compression import Codec
from krepair.logdir import view
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.plan.planfile import read_plan
from krepair.start.folders import comparison_text
from tests import builders, encoders
from tests.builders import NOW_MS, Batch, commit, data
from tests.commit import txfixture
from tests.ops.inline import Inline
from tests.ops.pending import FOLDER, name
from tests.ops.pending import options as duplicates_options
from tests.ops.scene import TV2, cannot_be_read, scene
from tests.ops.snapshots import checked, made
from tests.ops.tail import CONSENT, damaged


def test_a_deleted_file_that_the_start_removes_is_no_data_loss_and_with_room_nobody_is_alarmed(
    memory_dir: Path,
) -> None:
    bloat = scene(memory_dir)
    (bloat.path / "__consumer_offsets-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 10)
    report = check([str(bloat.path)], bloat.options())
    by_code = {one.rule: one for one in report.log_dirs[0].findings}
    left, freed = by_code["KR601"], by_code["KR701"]
    assert (left.severity, left.fix) == (Severity.CONFUSING, "leftovers")
    assert str(left.command) == f"krepair plan {bloat.path} --fix leftovers --out PLAN"
    assert freed.severity is Severity.INFORMATION
    alarming = [
        line
        for line in render(families(report, Ended("check", 2, 0.0, 0.0))).decode().splitlines()
        if 'severity="data loss"' in line
    ]
    assert not any("KR601" in line or "KR701" in line for line in alarming)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_after_a_start_as_root_one_command_gives_every_folder_back(memory_dir: Path) -> None:
    bloat = scene(memory_dir)
    for place in [bloat.path, *bloat.path.rglob("*")]:
        os.chown(place, 4242, 4343)
    for number in (0, 1):
        for place in (bloat.path / f"__consumer_offsets-{number}").glob("*.index"):
            os.chown(place, 0, 0)
            place.chmod(0o600)
    report = check([str(bloat.path)], bloat.options())
    rows = [row for row in report.log_dirs[0].rules if row.rule == "KR605"]
    assert [str(row.command) for row in rows] == [f"chown -R 4242:4343 {bloat.path}"]
    assert len(rows[0].partitions) == 2


def test_a_damaged_batch_says_offsets_records_and_bytes_as_numbers_and_the_whole_command(
    tmp_path: Path,
) -> None:
    torn = damaged(tmp_path / "logs")
    (finding,) = Inline().found(torn.root, "KR302")
    assert finding.severity is Severity.DATA_LOSS
    assert (finding.first_offset, finding.last_offset, finding.records_lost) == (65, 69, 5)
    assert finding.bytes_lost == finding.bytes
    command = f"krepair plan {torn.root} --fix tail --accept-data-loss {CONSENT} --out PLAN"
    assert str(finding.command) == command
    words = shlex.split(command.replace("PLAN", str(tmp_path / "p.krplan")))[1:]
    assert CliRunner().invoke(app, words).exit_code == ExitCode.FOUND
    assert read_plan(str(tmp_path / "p.krplan")).partitions[0].changes


def test_rows_are_by_rule_and_severity_the_worst_first_and_name_the_largest_partition_first() -> None:
    rows = by_rule(
        [
            Finding(rule="KR601", partition="a-0", bytes=1, severity=Severity.CONFUSING),
            Finding(rule="KR101", partition="b-0", bytes=1),
            Finding(rule="KR101", partition="b-1", bytes=2),
            Finding(rule="KR601", partition="a-1", bytes=5),
        ]
    )
    assert [(row.rule, row.severity, row.partitions) for row in rows] == [
        ("KR601", Severity.DATA_LOSS, ("a-1",)),
        ("KR101", Severity.SLOW, ("b-1", "b-0")),
        ("KR601", Severity.CONFUSING, ("a-0",)),
    ]


# -- Compressed content that cannot be read (KR307): found by ``check --deep`` and by nothing else of ``check``.

RECORDS = encoders.encode_records([record.Record(key=b"k", value=b"v" * 400)])


def compressed(codec: Codec, *, broken: bool) -> bytes:
    """A batch with a right checksum over content that decompresses, or does not."""
    body = bytearray(encoders.compress(codec, RECORDS))
    if broken:
        body[len(body) // 2 :] = bytes(len(body) - len(body) // 2)
    header = batch_v2.BatchHeader(1, 0, 0, 2, 0, codec, 0, builders.NOW_MS, builders.NOW_MS, -1, -1, -1, 1)
    return batch_v2.encode_batch(header, bytes(body))


def broken_contents(tmp_path: Path, second: bytes, *, deep: bool) -> list[tuple[str, int]]:
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("t")
    partition.segment(builders.data(0, 1))
    made.write()
    log = partition.folder / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + second)
    return [(one.evidence, one.position) for one in Inline(deep=deep).found(made.root, "KR307")]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_broken_content_under_a_right_checksum_is_found_only_deep(tmp_path: Path, codec: Codec) -> None:
    bad = compressed(codec, broken=True)
    position = len(builders.data(0, 1).raw) + batch_v2.HEADER_SIZE
    [(evidence, at)] = broken_contents(tmp_path / "deep", bad, deep=True)
    assert at == position
    assert codec.name.lower() in evidence
    assert broken_contents(tmp_path / "plain", bad, deep=False) == []
    assert broken_contents(tmp_path / "good", compressed(codec, broken=False), deep=True) == []


def test_a_broken_wrapper_of_an_old_format_is_found(tmp_path: Path) -> None:
    wrapper = encoders.wrapped((message_set.Message(1, 1, 0, 5, b"k", b"v" * 400),), Codec.GZIP)
    assert wrapper.value is not None
    broken = wrapper._replace(value=wrapper.value[:20] + bytes(len(wrapper.value) - 20))
    assert len(broken_contents(tmp_path, encoders.encode_messages([broken]), deep=True)) == 1


def test_a_wrong_checksum_is_not_this_rules_business(tmp_path: Path) -> None:
    batch = bytearray(compressed(Codec.LZ4, broken=True))
    batch[17] ^= 1
    assert broken_contents(tmp_path, bytes(batch), deep=True) == []


# -- KR309 by way of ``check``, with a response that holds little.


def test_a_topic_with_more_than_one_response_holds_is_named(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene(memory_dir, TV2)
    assert Inline().found(one.path, "KR309") == []
    monkeypatch.setattr(fetch_size, "MOST_RESPONSE_BYTES", 0)
    found = Inline().found(one.path, "KR309")
    with_batches = {
        log.parent.name.rpartition("-")[0] for log in one.path.glob("*/*.log") if log.stat().st_size
    }
    assert [each.evidence.split(":")[0] for each in found] == [
        f"topic {name}" for name in sorted(with_batches)
    ]
    assert "__consumer_offsets" in with_batches


# -- KR106: file times that a copy has reset are told by what brokers wrote into files, not by the times of
# records.

MINUTE = 60_000
OFFSETS = "__consumer_offsets"


def aged(root: Path, topic: str, ages: list[int], file_ages: list[int], *, markers: bool = False) -> Path:
    """One segment per age in minutes: of its records or, with ``markers``, of the marker behind each."""
    directory = builders.LogDir(root)
    partition = directory.partition(topic)
    for number, (age, file_age) in enumerate(zip(ages, file_ages, strict=True)):
        stamp = NOW_MS - age * MINUTE
        batches: list[Batch] = [data(2 * number, pid=7, sequence=number, txn=markers, timestamp=stamp)]
        batches += (
            [commit(2 * number + 1, pid=7, timestamp=stamp)]
            if markers
            else [data(2 * number + 1, timestamp=stamp)]
        )
        partition.segment(*batches, mtime_ms=NOW_MS - file_age * MINUTE)
    return directory.write()


VERBS = Inline(now_ms=NOW_MS, settings=(("retention.ms", "-1"),))
SPREAD = [4000, 3000, 2000, 1000]
LONG_AGO = [100 * 1440 + number for number in range(4)]
TOGETHER, AS_WRITTEN = [5, 4, 3, 2], SPREAD
COPIES = [
    # topic, whether there are markers, ages of what is in the files, ages of the files, whether they were copied
    *(("t", False, ages, TOGETHER, False) for ages in (SPREAD, LONG_AGO)),
    *((OFFSETS, False, ages, TOGETHER, True) for ages in (SPREAD, LONG_AGO)),
    *(("t", True, ages, TOGETHER, True) for ages in (SPREAD, LONG_AGO)),
    (OFFSETS, False, SPREAD, AS_WRITTEN, False),
    ("t", True, SPREAD, AS_WRITTEN, False),
]


@pytest.mark.parametrize(("topic", "markers", "ages", "file_ages", "copied"), COPIES)
def test_files_were_copied_where_their_markers_or_commits_are_older_than_they_are(
    tmp_path: Path, topic: str, markers: bool, ages: list[int], file_ages: list[int], copied: bool
) -> None:
    """Not where records are older: a producer may give them any time."""
    log_dir = aged(tmp_path / "logs", topic, ages, file_ages, markers=markers)
    assert bool(VERBS.found(log_dir, "KR106")) is copied


# -- The same partition in two log directories: which log is the beginning of which, or where they part.


def said_of_duplicates(one: Path, other: Path) -> list[tuple[str, str]]:
    report = check([str(one), str(other)], duplicates_options())
    return [
        (finding.partition, finding.evidence)
        for each in report.log_dirs
        for finding in each.findings
        if finding.rule == "KR603"
    ]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    one = txfixture.write_log_dir(tmp_path / "one")
    other = txfixture.write_log_dir(tmp_path / "other")
    shutil.rmtree(other / "o-0")
    return one, other


def test_a_copy_that_stopped_earlier_is_the_beginning_of_the_other(pair: tuple[Path, Path]) -> None:
    one, other = pair
    (other / FOLDER / name(400)).unlink()
    (here, there) = said_of_duplicates(one, other)
    assert here[0] == FOLDER
    assert here[1] == (
        f"also {other}/{FOLDER}: the log here ends at 450, there at 400; the one there is the beginning of the one "
        "here, which continues for 10 batches; a broker with both log directories does not start: move one of the "
        "two folders out"
    )
    assert (
        "the log here ends at 400, there at 450; the one here is the beginning of the one there" in there[1]
    )


def test_two_that_hold_the_same_say_so(pair: tuple[Path, Path]) -> None:
    assert all("both hold the same" in evidence for _, evidence in said_of_duplicates(*pair))
    assert not said_of_duplicates(pair[0], pair[0])


def test_logs_that_part_name_the_offset(pair: tuple[Path, Path]) -> None:
    one, other = pair
    batches = txfixture.batches(400, txfixture.END, "X")
    (other / FOLDER / name(400)).write_bytes(b"".join(batch.raw for batch in batches))
    assert all(
        "they are not the same log: the batch that ends at 404 differs" in evidence
        for _, evidence in said_of_duplicates(one, other)
    )


def test_one_that_was_compacted_lacks_batches_and_is_not_another_log(pair: tuple[Path, Path]) -> None:
    one, other = pair
    for base in (200, 300):
        (other / FOLDER / name(base)).unlink()
    (other / FOLDER / name(100)).write_bytes(
        b"".join(batch.raw for batch in txfixture.batches(100, 400, "", txfixture.DROPPED))
    )
    here = said_of_duplicates(one, other)[0][1]
    assert "they are not the same log" in here  # the values name their files
    (other / FOLDER / name(100)).unlink()
    here = said_of_duplicates(one, other)[0][1]
    assert "are only here (compaction, or a log start that moved)" in here


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SideBySide(same=3, first_end=9, second_end=9), "both hold the same 3 batches"),
        (SideBySide(first_end=9, after_second=3), "the one there holds no valid batch"),
        (SideBySide(same=2, only_first=1, first_end=9, second_end=9), "they end alike; batches: 1 of"),
        (
            SideBySide(same=2, only_second=1, first_end=9, second_end=12, after_first=1),
            "the one there continues for 1 batch; batches: 1 of their common offsets are only there",
        ),
    ],
)
def test_what_is_said_of_two_logs(seen: SideBySide, words: str) -> None:
    assert comparison_text(seen).startswith(words)


# -- A file that the system cannot read is named, once, whichever reader met it.

WAY = "; run krepair as root, or as the user of the broker"


@pytest.mark.parametrize(
    ("code", "more"),
    [(errno.EIO, ""), (errno.EACCES, WAY), (errno.EPERM, WAY)],
    ids=["EIO", "EACCES", "EPERM"],
)
@pytest.mark.parametrize("name", ["00000000000000000006.txnindex", "00000000000000000006.log"])
def test_file_that_cannot_be_read_is_named_once_with_what_to_do(
    name: str, code: int, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    cannot_be_read(monkeypatch, log_dir / "t-0" / name, code)
    found = [one for one in checked(log_dir).findings if one.rule == "KR308"]
    assert [one.evidence for one in found] == [
        f"t-0/{name}: {os.strerror(code)} ({errno.errorcode[code]}){more}"
    ]
    assert not [one for one in found if one.file not in {"", name}]


def test_folder_that_this_user_may_not_list_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    listed = view.opened_folder

    def refusing(name: str, within: Tree | int | None = None) -> AbstractContextManager[int]:
        if name.endswith("t-0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return listed(name, within)

    monkeypatch.setattr(view, "opened_folder", refusing)
    (found,) = [one for one in checked(log_dir).findings if one.rule == "KR308"]
    assert found.evidence.endswith(f"t-0: could not be read: Permission denied (EACCES){WAY}")
    report = check([str(log_dir)], Options(now_ms=NOW_MS, engine=EngineName.INLINE))
    assert str(report.next_command) == f"krepair check {log_dir}   # as root, or as the user of the broker"
