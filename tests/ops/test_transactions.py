"""Which open transactions hang, what they hold back, and when an abort is shown: only where it is proven harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.ops.transactions import OpenInLog, TransactionsReport, transactions
from krepair.options import EngineName, Options
from tests import builders
from tests.builders import NOW_MS, Record, commit, data
from tests.look.transaction_records import key_of, value_of
from tests.ops.transaction_scene import LAST, MINUTE, START, Scene

COMPACTED = ("cleanup.policy", "compact")


def said(log_dir: Path, *wanted: str, version: str = "3.9.2", **more: str) -> TransactionsReport:
    given = tuple((name.replace("_", "."), value) for name, value in more.items())
    options = Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS,
        broker_version=version,
        settings=(("retention.ms", "-1"), *given),
    )
    return transactions(str(log_dir), options, wanted)


def opened(report: TransactionsReport) -> OpenInLog:
    [row] = report.open
    return row


PRODUCER = (
    "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --producer-id 7 "
    "--producer-epoch 5 --coordinator-epoch 3"
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.3.1", START), ("3.0.0", START), ("2.8.2", PRODUCER), ("2.2.1", PRODUCER), ("", "")],
)
def test_abort_is_in_the_form_of_the_brokers_version_and_of_none_if_that_is_not_known(
    tmp_path: Path, version: str, expected: str
) -> None:
    report = said(Scene().write(tmp_path / "logs"), version=version)
    row = opened(report)
    assert (row.verdict, row.abort) == ("hangs", expected)
    assert bool(row.no_abort) == (not expected)
    assert report.live_commands == (
        "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --max-transaction-timeout 15 --broker-id 0",
        "kafka-transactions.sh --bootstrap-server HOST:PORT describe --transactional-id id",
    )
    assert [finding.rule for finding in report.findings] == ["KR103"]
    assert str(report.next_command).endswith("explain KR103" if version else "--broker-version VERSION")


PROVEN = [
    Scene(state="Empty"), Scene(state="CompleteAbort"), Scene(state="Dead"), Scene(state="tombstone"),
    # an epoch or an id that was taken away proves it, however far the coordinator's log reaches
    Scene(epoch=6, ends_ms=LAST - 40 * MINUTE), Scene(owner=8, epoch=0, ends_ms=LAST - 40 * MINUTE),
    Scene(state="tombstone", ends_ms=LAST - 40 * MINUTE), Scene(ends_ms=LAST - 24 * MINUTE),
]  # fmt: skip


@pytest.mark.parametrize("scene", PROVEN)
def test_transaction_that_is_over_for_the_coordinator_may_be_aborted(tmp_path: Path, scene: Scene) -> None:
    row = opened(said(scene.write(tmp_path / "logs")))
    assert (row.verdict, row.abort, row.no_abort) == ("hangs", START, "")


NOT_PROVEN = [
    (Scene(state="Ongoing", partitions=(("t", 0),)), "is Ongoing by __transaction_state-0"),
    (Scene(state="Ongoing", partitions=(("u", 3),)), "is Ongoing by __transaction_state-0"),
    (Scene(state="PrepareCommit", partitions=(("t", 0),)), "is PrepareCommit by"),
    (Scene(state="PrepareAbort"), "is PrepareAbort by"),
    (Scene(state="PrepareEpochFence", epoch=6), "is PrepareEpochFence by"),
    (Scene(state="Ongoing", owner=8), "is Ongoing by"),  # its last id: nothing is known to be done
    (Scene(state=""), "names no transactional id for producer 7"),
    (Scene(second=True), "names 2 transactional ids for producer 7"),
    (Scene(damaged=True), "1 parts that could not be read"),
    (Scene(high_watermark=1), "is at offset 1 of __transaction_state-0, and the high watermark is 1"),
    (Scene(ends_ms=LAST - 25 * MINUTE), "may end before the transaction began"),
    (Scene(epoch=4), "ends at epoch 4 of the producer, the transaction is of epoch 5"),
    (Scene(torn=True), "the tail of t-0 is damaged"),
]


@pytest.mark.parametrize(("scene", "why"), NOT_PROVEN)
@pytest.mark.parametrize("version", ["4.3.1", "2.2.1"])
def test_without_proof_there_is_no_abort_but_a_reason(
    tmp_path: Path, scene: Scene, why: str, version: str
) -> None:
    report = said(scene.write(tmp_path / "logs"), version=version)
    row = opened(report)
    assert row.abort == ""
    assert " abort " not in "".join(report.live_commands)
    assert row.verdict == "hangs"
    assert why in row.no_abort


def test_nothing_is_said_of_an_abort_where_nothing_hangs(tmp_path: Path) -> None:
    report = said(Scene(age=2).write(tmp_path / "logs"))
    row = opened(report)
    assert (row.verdict, row.abort, row.no_abort, report.live_commands) == ("not known", "", "", ())
    assert (report.exit_code, report.findings) == (0, ())


def test_bytes_held_back_are_closed_segments_of_a_compacted_topic_from_its_first_batch_on(
    tmp_path: Path,
) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    closed = (log_dir / "t-0" / f"{2:020d}.log").stat().st_size
    assert opened(said(log_dir)).held_back_bytes == 0
    report = said(log_dir, cleanup_policy="compact")
    assert opened(report).held_back_bytes == closed
    held = {each.state.transactional_id: (each.open_in, each.held_back_bytes) for each in report.transactions}
    assert held == {"id": (("t-0",), closed), "other": ((), 0)}


def test_ages_count_to_the_last_write_of_a_broker_and_only_of_what_goes_on(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    states = {"a": "Ongoing", "b": "PrepareCommit", "c": "CompleteCommit", "d": "Empty"}
    records = [
        data(n, [Record(key_of(name), value_of(n, state, time_ms=LAST - n * MINUTE))], timestamp=LAST)
        for n, (name, state) in enumerate(states.items())
    ]
    directory.partition("__transaction_state").segment(*records, mtime_ms=LAST)
    report = said(directory.write())
    assert report.last_write_ms == LAST
    assert [each.age_ms for each in report.transactions] == [0, MINUTE, -1, -1]
    assert report.states == {"CompleteCommit": 1, "Empty": 1, "Ongoing": 1, "PrepareCommit": 1}
    assert [each.state.transactional_id for each in said(tmp_path / "logs", "c").transactions] == ["c"]


def test_partition_with_damage_before_its_tail_is_named_and_not_judged(tmp_path: Path) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    log = log_dir / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    report = said(log_dir)
    assert (report.open, report.exit_code) == ((), 2)
    assert [(each.partition, "damaged" in each.why) for each in report.not_judged] == [("t-0", True)]
    assert str(report.next_command).startswith("krepair check ")


def test_transaction_that_its_marker_ended_is_not_open(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, pid=7, txn=True), commit(1, pid=7), mtime_ms=LAST)
    assert said(directory.write()).open == ()
