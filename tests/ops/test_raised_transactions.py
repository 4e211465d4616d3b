"""Open transactions after ``__transaction_state`` got more partitions: nobody ends those that belong elsewhere now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.formats import cluster_metadata as metadata
from krepair.formats.partition_metadata import decode, topic_id_text
from krepair.ops.check import check
from krepair.ops.transactions import TransactionsReport, transactions
from krepair.options import EngineName, Options
from krepair.start.coordinator_partitions import partition_of_name
from tests.fixture_dirs import unpack
from tests.logdir.metadata_records import value
from tests.start.metadata_log import appended
from tests.start.states import METADATA

NOW_MS = 1_795_863_100_000
OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)


def verdicts(report: TransactionsReport) -> dict[str, str]:
    return {one.transactional_id: one.verdict for one in report.open}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return unpack("raised-transactions-3.9.2", tmp_path)


def test_an_id_that_belongs_to_another_partition_now_is_ended_by_nobody(log_dir: Path) -> None:
    assert [partition_of_name(f"tx-{number}", 3) for number in (1, 2, 3)] == [0, 1, 2]
    report = transactions(str(log_dir), OPTIONS)
    assert verdicts(report) == {"tx-1": "goes on", "tx-2": "hangs", "tx-3": "hangs"}
    assert {one.state.transactional_id: one.belongs_to for one in report.transactions} == {
        "tx-1": -1,
        "tx-2": 1,
        "tx-3": 2,
    }
    assert [one.goes_on for one in report.transactions] == [True, False, False]
    assert report.exit_code is ExitCode.FOUND
    (finding,) = report.findings
    assert "__transaction_state-1" in finding.evidence
    assert "tx-1" not in finding.evidence


@pytest.mark.parametrize("partitions", [4, 7, 50])
def test_the_number_that_the_metadata_log_says_last_counts(log_dir: Path, partitions: int) -> None:
    said = decode((log_dir / "__transaction_state-0" / "partition.metadata").read_bytes())
    raised = {
        "topic_id": topic_id_text(said.topic_id),
        "replicas": [0],
        "isr": [0],
        "leader": 0,
        "leader_epoch": 0,
    }
    appended(
        log_dir,
        *(value(metadata.PARTITION, raised | {"partition_id": number}) for number in range(3, partitions)),
    )
    expected = {
        name: "hangs" if partition_of_name(name, partitions) else "goes on"
        for name in ("tx-1", "tx-2", "tx-3")
    }
    assert "hangs" in expected.values()
    assert verdicts(transactions(str(log_dir), OPTIONS)) == expected


def test_check_says_it_however_young_they_are(log_dir: Path) -> None:
    found = [one for one in check([str(log_dir)], OPTIONS).log_dirs[0].findings if one.rule == "KR103"]
    assert [one.partition for one in found] == ["one-0"]


def test_without_the_metadata_log_the_number_is_only_likely(log_dir: Path) -> None:
    shutil.rmtree(log_dir / METADATA)
    assert verdicts(transactions(str(log_dir), OPTIONS)) == {
        "tx-1": "goes on",
        "tx-2": "not known",
        "tx-3": "not known",
    }


def test_of_a_topic_that_was_not_raised_all_go_on(log_dir: Path) -> None:
    shutil.rmtree(log_dir / METADATA)
    for number in (1, 2):
        shutil.rmtree(log_dir / f"__transaction_state-{number}")
    assert set(verdicts(transactions(str(log_dir), OPTIONS)).values()) == {"goes on"}
