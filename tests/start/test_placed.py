"""Partitions and directories that should be here: what the metadata log places on the node (KR611, KR407)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding, Severity
from krepair.errors import KrepairError
from krepair.findings.reports import CheckReport
from krepair.formats import cluster_metadata as metadata
from krepair.formats.partition_metadata import decode, topic_id_text
from tests.fixture_dirs import unpack
from tests.logdir.metadata_records import value
from tests.start.metadata_log import appended
from tests.start.nodes import written
from tests.start.states import METADATA, OTHER_ID, checked, foretold, second

ONE = "one-0"
UNASSIGNED = "A" * 21 + "Q"


def found(report: CheckReport, *rules: str) -> list[Finding]:
    return [one for each in report.log_dirs for one in each.findings if one.rule in rules]


def changed(log_dir: Path, isr: list[int], replicas: list[int], directories: list[str]) -> None:
    """Let the metadata log say something else of ``one-0``, whose folder is gone then."""
    said = decode((log_dir / ONE / "partition.metadata").read_bytes())
    values = {
        "partition_id": 0,
        "topic_id": topic_id_text(said.topic_id),
        "isr": isr,
        "leader": isr[0] if isr else -1,
        "replicas": replicas,
        "directories": directories,
    }
    appended(log_dir, value(metadata.PARTITION_CHANGE, values, 1))
    shutil.rmtree(log_dir / ONE)


@pytest.mark.parametrize(
    ("situation", "isr", "replicas", "directories", "severity", "text"),
    [
        ("alone", [0], [0], [UNASSIGNED], Severity.DATA_LOSS, "no other replica: its data is lost"),
        ("in a directory that is gone", [0], [0], [OTHER_ID], Severity.DATA_LOSS, OTHER_ID),
        ("others in sync", [0, 1, 2], [0, 1, 2], [UNASSIGNED] * 3, Severity.DATA_LOSS, "broker 1, 2"),
        ("only others in sync", [1], [0, 1], [UNASSIGNED] * 2, Severity.CONFUSING, "broker 1"),
        ("nobody in sync", [], [0, 1], [UNASSIGNED] * 2, Severity.DATA_LOSS, "no other replica is in sync"),
        ("of others", [1], [1, 2], [UNASSIGNED] * 2, None, ""),
    ],
)
def test_a_partition_of_this_node_without_a_folder_is_named(
    tmp_path: Path,
    situation: str,
    isr: list[int],
    replicas: list[int],
    directories: list[str],
    severity: Severity | None,
    text: str,
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    changed(log_dir, isr, replicas, directories)
    report = checked([log_dir], None, "3.9.2")
    named = found(report, "KR611")
    assert [(one.partition, one.severity) for one in named] == ([(ONE, severity)] if severity else []), (
        situation
    )
    assert all(text in one.evidence and "new, and empty" in one.evidence for one in named)
    assert not [one for one in found(report, "KR312") if ONE in one.evidence and severity]


@pytest.mark.parametrize("mark", ["stray", "delete"])
def test_a_marked_folder_of_a_missing_partition_is_named(mark: str, tmp_path: Path) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    marked = f"{ONE}.{'a' * 32}-{mark}"
    (log_dir / ONE).rename(log_dir / marked)
    (named,) = found(checked([log_dir], None, "3.9.2"), "KR611")
    assert f"{marked} beside it may have the records" in named.evidence
    assert ("the start deletes it" in named.evidence) == (mark == "delete")


def test_nothing_is_missing_of_a_whole_directory(tmp_path: Path) -> None:
    for version in ("3.9.2", "4.4.0"):
        report = checked([unpack(f"kraft-{version}", tmp_path)], None, version)
        assert found(report, "KR611", "KR407") == []


def test_a_partition_in_a_directory_that_was_not_given_is_not_missing(tmp_path: Path) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    second(log_dir, directory_id=OTHER_ID)
    shutil.move(log_dir / ONE, log_dir.with_name("logs2") / ONE)
    both = [log_dir, log_dir.with_name("logs2")]
    assert found(checked(both, None, "3.9.2"), "KR611") == []


@pytest.mark.parametrize("named", ["typed", "by the configuration"])
@pytest.mark.parametrize("state", ["empty", "lost+found", "not there"])
@pytest.mark.parametrize("gone", [False, True], ids=["nothing is missing", "a partition is missing"])
def test_a_directory_that_is_not_formatted_does_not_hide_the_others(
    tmp_path: Path, named: str, state: str, gone: bool
) -> None:
    log_dir, other = unpack("kraft-3.9.2", tmp_path), tmp_path / "disk2"
    if state != "not there":
        other.mkdir()
    if state == "lost+found":
        (other / "lost+found").mkdir()
    if gone:
        changed(log_dir, [0], [0], [OTHER_ID])
    lines = {"log.dirs": f"{log_dir},{other}", "process.roles": "broker,controller", "node.id": "0"}
    config = written(tmp_path / "server.properties", lines) if named != "typed" else None
    if named == "typed" and state == "not there":
        with pytest.raises(KrepairError):
            checked([log_dir, other], None, "3.9.2")
        return
    report = checked([log_dir, other], config, "3.9.2")
    assert set(foretold(report).values()) == {"refuse"}
    (finding,) = found(report, "KR407")
    mount, format_it = finding.evidence.index("mounted"), finding.evidence.index("kafka-storage.sh format")
    assert mount < format_it
    assert [one.partition for one in found(report, "KR611")] == ([ONE] if gone else [])
    assert (ONE in finding.evidence) is gone
    assert bool(finding.command) is not gone
    assert "kafka-storage.sh" not in str(report.next_command)
    assert report.log_dirs[0].partitions
    assert report.left_out == ()


def test_under_zookeeper_an_empty_directory_is_formatted_by_the_broker(tmp_path: Path) -> None:
    log_dir, other = unpack("kraft-3.9.2", tmp_path), tmp_path / "disk2"
    other.mkdir()
    shutil.rmtree(log_dir / METADATA)
    meta = log_dir / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
    report = checked([log_dir, other], None, "3.6.2")
    (finding,) = found(report, "KR407")
    assert (finding.severity, str(finding.command)) == (Severity.CONFUSING, "")
    assert "refuse" not in foretold(report).values()


def test_directories_of_which_none_can_be_read_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(KrepairError, match=r"not a Kafka log directory.*its disk is not mounted"):
        checked([tmp_path / "a", tmp_path / "b"], None)
