"""Real brokers on what brokers leave behind: what check forecast happens; after apply they serve what is expected."""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from tests.brokers.serving import OF_THE_LAB
from tests.brokers.side_by_side import scene_of
from tests.commit import txfixture
from tests.corpus.jbod import broker_on
from tests.lab import client
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import ENDS
from tests.lab.waiting import wait_for
from tests.ops import pending
from tests.ops.pending import FOLDER, name, options
from tests.ops.scene import tree

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONFIG = {"retention.ms": str(2**63 - 1), "index.interval.bytes": str(txfixture.INTERVAL_BYTES)}
TOPICS = {topic: Topic(1, CONFIG) for topic in ("t", "o")}
PROPERTIES = {"log.cleaner.enable": "false", "transactional.id.expiration.ms": "2147483647"}
Rows = list[tuple[int, str]]


def expected() -> dict[str, Rows]:
    """What a consumer gets once M has taken its place."""
    return {
        "read_uncommitted": txfixture.readable(new=True, committed=False),
        "read_committed": txfixture.readable(new=True, committed=True),
    }


def read(broker: Broker, topic: str = "t") -> dict[str, Rows]:
    return {
        isolation: [
            (one.offset, (one.value or b"").split(b"|")[0].decode())
            for one in client.read_all(broker.bootstrap, topic, 0, isolation)
            if one.offset < txfixture.END
        ]
        for isolation in ("read_uncommitted", "read_committed")
    }


def forecast(root: Path, version: str) -> dict[str, str]:
    given = options(broker_version=version, settings=(*pending.SETTINGS, ("retention.ms", "-1")))
    report = check([str(root)], given)
    return {line.partition: line.expected for line in report.log_dirs[0].forecast}


def complaints(broker: Broker) -> list[str]:
    return [line for line in broker.complaints() if not OF_THE_LAB.search(line)]


def marked(root: Path, kind: str, *, with_log: bool = True) -> Path:
    """A folder that a broker marked."""
    folder = root / f"gone-0.{uuid.uuid4().hex}-{kind}"
    if with_log:
        shutil.copytree(root / "o-0", folder)
    else:
        folder.mkdir()
    return folder


LEFT = {name(777, ".timeindex"), name(50, ".log.deleted"), "x.deleted", name(500, ".log.cleaned")}
"""What ``leftovers`` removes."""


class Served(NamedTuple):
    """What one start made of a pending swap, of the same that ``apply`` has ended, and of what brokers leave behind.

    Attributes:
        theirs: records of the pending swap.
        ours: records of the one that ``apply`` ended.
        complaints: of the broker, but those of ``theirs`` and ``left``.
        left: names that were still in the folder with leftovers.
        deleted: marked folders for which ``delete`` was forecast, and that were still there after a while.
        stray: whether each marked folder for which ``start`` was forecast was there.
    """

    theirs: dict[str, Rows]
    ours: dict[str, Rows]
    complaints: list[str]
    left: set[str]
    deleted: list[str]
    stray: list[bool]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Served]:
    """``served("3.9.2")``: one start of that version on all scenes."""

    @functools.cache
    def of(version: str) -> Served:
        apart, root = tmp_path_factory.mktemp("apart"), tmp_path_factory.mktemp("served")
        scenes = {
            "theirs": pending.write(apart / "theirs", deleted=(200,)),
            "ours": ended_by_apply(apart / "ours"),
            "left": left_behind(apart / "left", version),
        }
        dirs = [scene_of(path, root / what, {"t": what, "o": f"o-{what}"}) for what, path in scenes.items()]
        topics = {topic: Topic(1, CONFIG) for what in scenes for topic in (what, f"o-{what}")}
        left, deleted, stray = (
            root / "left",
            *(list((root / "left").glob(f"gone-0.*-{kind}")) for kind in ("delete", "stray")),
        )
        broker = broker_on(version, dirs, topics, root / "work")
        broker.props |= PROPERTIES | {"log.segment.delete.delay.ms": "100"}
        with broker:
            there = {path.name for path in (left / "left-0").iterdir()}
            theirs, ours = read(broker, "theirs"), read(broker, "ours")
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: not any(folder.exists() for folder in deleted))
            still = [folder.name for folder in deleted if folder.exists()]
            strays = [folder.exists() for folder in stray]
            said = [line for line in complaints(broker) if "theirs" not in line and "left" not in line]
        return Served(theirs, ours, said, there, still, strays)

    return of


def ended_by_apply(root: Path) -> Path:
    """The pending swap after ``apply``; what is left of the plan can be taken back, in another copy."""
    pending.write(root, deleted=(200,))
    before, chosen = tree(root), options()
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    ours = Path(shutil.copytree(root, root.parent / "copies" / "ours"))
    assert not any(each.changes for each in make_plan(str(root), chosen).partitions)
    assert undo(plan, chosen).exit_code == ExitCode.DONE
    assert before == tree(root)
    return ours


def left_behind(root: Path, version: str) -> Path:
    """What brokers leave behind; what check says of it is right as far as krepair knows."""
    txfixture.write_log_dir(root)
    for file in LEFT:
        (root / FOLDER / file).write_bytes(bytes(12))
    plan = make_plan(str(root), options())
    assert {change.change_id for change in plan.partitions[1].changes} == {
        f"{FOLDER}/{file}" for file in LEFT
    }
    deleted, stray = [marked(root, "delete")], []
    if version != "2.2.1":
        deleted, stray = [*deleted, marked(root, "delete", with_log=False)], [marked(root, "stray")]
    said = forecast(root, version)
    assert said[FOLDER] == "start"
    assert {said[folder.name] for folder in deleted} == {"delete"}
    assert [said[folder.name] for folder in stray] == ["start"] * len(stray)
    return root


@pytest.mark.parametrize("version", ENDS)
def test_a_pending_swap_is_finished_by_the_broker_as_forecast_and_by_apply_to_the_same_records(
    tmp_path: Path, served: Callable[[str], Served], version: str
) -> None:
    assert forecast(pending.write(tmp_path / "logs", deleted=(200,)), version)[FOLDER] == "start"
    found = served(version)
    assert found.theirs == expected()
    assert found.ours == expected()
    assert found.complaints == []


@pytest.mark.parametrize("version", ENDS)
def test_every_broker_deletes_what_leftovers_removes_and_does_with_marked_folders_what_is_forecast(
    served: Callable[[str], Served], version: str
) -> None:
    found = served(version)
    assert not LEFT & found.left
    assert found.deleted == []
    assert found.stray == ([] if version == "2.2.1" else [True])


@pytest.mark.parametrize(("kind", "with_log"), [("delete", False), ("stray", True)])
def test_marked_folders_that_stop_2_2_1_are_forecast_and_moved_away_it_starts(
    tmp_path: Path, kind: str, *, with_log: bool
) -> None:
    root = txfixture.write_log_dir(tmp_path / "logs")
    folder = marked(root, kind, with_log=with_log)
    assert set(forecast(root, "2.2.1").values()) == {"refuse"}
    with pytest.raises(BrokerError), Broker("2.2.1", root, PROPERTIES, TOPICS):
        pass
    shutil.move(folder, tmp_path / "aside")
    assert forecast(root, "2.2.1")[FOLDER] in {"start", "recover"}
    with Broker("2.2.1", root, PROPERTIES, TOPICS) as broker:
        assert len(read(broker)["read_uncommitted"]) == len(txfixture.readable(new=False, committed=False))


@pytest.mark.parametrize("version", ENDS[1:])
def test_a_partition_in_two_log_directories_stops_every_broker_until_one_is_moved(
    tmp_path: Path, version: str
) -> None:
    root = txfixture.write_log_dir(tmp_path / "one")
    with Broker(version, root, PROPERTIES, TOPICS) as broker:
        broker.stop()
        other = tmp_path / "other"
        shutil.copytree(root, other)
        shutil.rmtree(other / "o-0")
        meta = other / "meta.properties"
        directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        meta.write_text(re.sub(r"directory\.id=.*", f"directory.id={directory}", meta.read_text()))
        (other / FOLDER / name(400)).unlink()
        report = check([str(root), str(other)], options())
        told = [one.evidence for each in report.log_dirs for one in each.findings if one.rule == "KR603"]
        assert len(told) == 2
        assert "does not start" in told[0]
        broker.props["log.dirs"] = f"{root},{other}"
        with pytest.raises(BrokerError, match="Duplicate log directories"):
            broker.start()
        shutil.move(other / FOLDER, tmp_path / "aside")
        broker.start()
        assert len(read(broker)["read_uncommitted"]) == len(txfixture.readable(new=False, committed=False))
