"""Real brokers on damaged leader epochs: what check forecast happens, and mended they start with all of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.formats.checkpoint import EpochEntry, decode_epochs
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests.brokers.epochs import end_offsets_for_epochs
from tests.corpus.jbod import broker_on
from tests.fixture_dirs import unpack
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import ENDS, LATEST, VERSIONS
from tests.lab.judge import Judge, JudgeError
from tests.twins.of_plan import twin_problems

pytestmark = [pytest.mark.broker, pytest.mark.slow]

REFUSED = ("badcount", "corrupt", "truncated")
FORGOTTEN = ("deleted", "empty")
EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
STARTED = (
    [(damage, version) for damage in REFUSED for version in VERSIONS]
    if EVERY
    else [*zip(REFUSED, (*ENDS, ENDS[0]), strict=True)]
)
"""Each damage, and each version of which a whole broker starts in the gate."""
NAME = "leader-epoch-checkpoint"
EPOCHS = [(0, 0), (2, 40), (4, 80), (6, 120), (8, 160), (10, 200), (12, 240)]
END = 280
OPTIONS = Options(engine=EngineName.INLINE, now_ms=1_790_000_000_000, fixes=("epochs",))
NO_EPOCH = (-1, -1)


def gathered(work: Path, damages: tuple[str, ...]) -> Path:
    """One log directory with partition e-all-0 of several fixtures, each under the name of its damage."""
    log_dir = unpack("leader-epochs-2.2.1", work)
    source = unpack("leader-epochs-2.2.1", work / "intact")
    for folder in ("e-all-0", "e-some-0", "e-none-0"):
        shutil.rmtree(log_dir / folder)
    for damage in damages:
        origin = source if damage == "intact" else unpack(f"leader-epochs-2.2.1-{damage}", work / damage)
        shutil.copytree(origin / "e-all-0", log_dir / f"{damage}-0")
    lines = "".join(f"{damage} 0 {END}\n" for damage in damages)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n{len(damages)}\n{lines}")
    return log_dir


def topics(damages: tuple[str, ...]) -> dict[str, Topic]:
    """On ZooKeeper each leads at the epoch it had, on KRaft at 0."""
    return {damage: Topic(1, {"retention.ms": "-1"}, {0: 12}) for damage in damages}


def expected(log_dir: Path, version: str) -> set[str]:
    given = Options(engine=EngineName.INLINE, now_ms=OPTIONS.now_ms, broker_version=version)
    return {line.expected for line in check([str(log_dir)], given).log_dirs[0].forecast}


def recorded(folder: Path) -> list[tuple[int, int]]:
    return [(one.epoch, one.start_offset) for one in decode_epochs((folder / NAME).read_bytes()).entries]


def mend(log_dir: Path) -> None:
    plan = make_plan(str(log_dir), OPTIONS)
    assert apply(plan, OPTIONS).exit_code == ExitCode.DONE
    assert twin_problems(plan) == []


@pytest.mark.parametrize(("damage", "version"), STARTED)
def test_broker_refuses_what_check_says_it_refuses(tmp_path: Path, version: str, damage: str) -> None:
    log_dir = gathered(tmp_path, (damage,))
    assert expected(log_dir, version) == {"refuse"}
    with pytest.raises(BrokerError), Broker(version, log_dir, topics=topics((damage,))):
        pass


NO_NUMBER, NO_PAIR = b"0\n2\n0 0\n2 99999999999999999999\n", b"0\n2\n0 0\n2\n"
SEVERAL = (
    [
        *((version, NO_NUMBER, "refuse") for version in VERSIONS),
        ("2.2.1", NO_PAIR, "refuse"),
        ("3.9.2", NO_PAIR, "start"),
        (LATEST, NO_PAIR, "start"),
    ]
    if EVERY
    else [(LATEST, NO_NUMBER, "refuse")]
)


@pytest.mark.parametrize(("version", "written", "other"), SEVERAL)
def test_broker_with_several_directories_ends_where_check_says_so(
    tmp_path: Path, version: str, written: bytes, other: str
) -> None:
    dirs = [gathered(tmp_path / name, ("intact",)) for name in ("bad", "good")]
    shutil.move(dirs[1] / "intact-0", dirs[1] / "other-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (dirs[1] / name).write_text(f"0\n1\nother 0 {END}\n")
    (dirs[0] / "intact-0" / NAME).write_bytes(written)
    given = Options(engine=EngineName.INLINE, now_ms=OPTIONS.now_ms, broker_version=version)
    said = [report.forecast[0].expected for report in check([str(one) for one in dirs], given).log_dirs]
    assert said == ["refuse", other]
    work = tmp_path / "work"
    work.mkdir()
    broker = broker_on(version, dirs, topics(("intact", "other")), work)
    if other == "refuse":
        with pytest.raises(BrokerError), broker:
            pass
        assert re.search("There was an error in one of the threads during logs loading", broker.log())
    else:
        with broker:
            assert "Stopping serving" in broker.log() or "Error while loading log dir" in broker.log()


@pytest.mark.parametrize("version", ENDS)
def test_broker_forgets_the_history_that_check_says_it_forgets(tmp_path: Path, version: str) -> None:
    log_dir = gathered(tmp_path, FORGOTTEN)
    assert expected(log_dir, version) == {"start"}
    with Broker(version, log_dir, topics=topics(FORGOTTEN)) as broker:
        broker.stop()
    for damage in FORGOTTEN:
        left = recorded(log_dir / f"{damage}-0")
        assert [start for _, start in left] in ([END], []), left


@pytest.mark.parametrize("version", ENDS)
def test_mended_directory_starts_and_keeps_the_epochs_it_had(tmp_path: Path, version: str) -> None:
    """On ZooKeeper the broker leads on and its file is read; on KRaft it leads at 0 and only its start is judged."""
    damages = (*REFUSED, *FORGOTTEN, "intact")
    log_dir = gathered(tmp_path, damages)
    mend(log_dir)
    assert {damage: recorded(log_dir / f"{damage}-0") for damage in damages} == dict.fromkeys(damages, EPOCHS)
    assert expected(log_dir, version) == {"start"}
    with Broker(version, log_dir, topics=topics(damages)) as broker:
        if not broker.kraft:
            answers = {damage: end_offsets_for_epochs(broker, damage) for damage in damages}
            assert answers == dict.fromkeys(damages, answers["intact"])
            assert answers["intact"][3] == (2, 80)
            assert NO_EPOCH not in set(answers["intact"].values())
        broker.stop()
    for damage in damages if version == "2.2.1" else ():
        left = recorded(log_dir / f"{damage}-0")
        assert left[: len(EPOCHS)] == EPOCHS
        assert {start for _, start in left[len(EPOCHS) :]} <= {END}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("damage", [*REFUSED, *FORGOTTEN])
def test_kafka_loads_the_mended_history_and_not_the_damaged_one(
    tmp_path: Path, judge: Callable[[str], Judge], version: str, damage: str
) -> None:
    """Kafka's own log class on the folder: what it refused it loads, and it writes back what krepair wrote."""
    log_dir = gathered(tmp_path, (damage,))
    folder = log_dir / f"{damage}-0"
    if damage in REFUSED:
        shutil.copytree(folder, tmp_path / "damaged" / f"{damage}-0")
        with pytest.raises(JudgeError):
            judge(version).load(tmp_path / "damaged" / f"{damage}-0")
    mend(log_dir)
    loaded = judge(version).load(folder)
    assert (loaded.log_start, loaded.log_end) == (0, END)
    assert decode_epochs((folder / NAME).read_bytes()).entries == tuple(EpochEntry(*pair) for pair in EPOCHS)


@pytest.mark.parametrize("version", VERSIONS)
def test_negative_number_is_refused_by_the_versions_that_check_names(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    log_dir = gathered(tmp_path, ("intact",))
    folder = log_dir / "intact-0"
    (folder / NAME).write_bytes(b"0\n3\n-1 0\n0 0\n2 40\n")
    shutil.copytree(folder, tmp_path / "damaged" / "intact-0")
    if version == "2.2.1":
        assert expected(log_dir, version) == {"start"}
        judge(version).load(tmp_path / "damaged" / "intact-0")
    else:
        assert expected(log_dir, version) == {"refuse"}
        with pytest.raises(JudgeError, match="Received invalid partition leader epoch entry"):
            judge(version).load(tmp_path / "damaged" / "intact-0")
    mend(log_dir)
    judge(version).load(folder)
    assert recorded(folder) == EPOCHS


@pytest.mark.parametrize("version", ["3.9.2", LATEST])
def test_lines_in_the_wrong_order_lose_an_epoch_on_loading_unless_they_are_mended(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    log_dir = gathered(tmp_path, ("intact",))
    folder = log_dir / "intact-0"
    text = (folder / NAME).read_text().replace("4 80\n6 120\n", "6 120\n4 80\n")
    (folder / NAME).write_text(text)
    shutil.copytree(folder, tmp_path / "damaged" / "intact-0")
    loaded = judge(version).load(tmp_path / "damaged" / "intact-0")
    assert any("caused truncation of conflicting entries" in line for line in loaded.complaints)
    mend(log_dir)
    assert judge(version).load(folder).complaints == ()
    assert recorded(folder) == EPOCHS
