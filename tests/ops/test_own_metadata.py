"""``__cluster_metadata-0`` beside the partitions: where it assigns this replica alone, no option has to say so.

The logs are those of real controllers (``tests/logdir/metadata_logs``); topic ``alone`` has one replica there, on
broker 3.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.logdir.cluster import METADATA_FOLDER, read_cluster_file
from krepair.ops.show import show_view
from krepair.plan.model import Evidence, Plan
from krepair.plan.review import review
from tests.compaction.directories import Verbs, options
from tests.ops.replica_scenes import EXPIRED, directory, left_in
from tests.pages import words_of

pytestmark = pytest.mark.replicas
LOGS = Path(__file__).resolve().parents[1] / "logdir" / "metadata_logs"
VERSIONS = ("3.9.2", "4.3.1")
NAMES = ("3.9.2-b2-b3-down", "3.9.2-all-down", "4.3.1-b2-b3-down", "4.3.1-all-down")


def beside(root: Path, name: str, *, topic: str = "alone", broker: int = 3, topic_id: str = "") -> Path:
    """A log directory with one partition, and the metadata log of a real cluster beside it."""
    log_dir = directory(root)
    if topic != "t":
        (log_dir / "t-0").rename(log_dir / f"{topic}-0")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} 0 14\n")
    shutil.copytree(LOGS / name, log_dir / METADATA_FOLDER)
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    if topic_id:
        (log_dir / f"{topic}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return log_dir


def planned(
    root: Path,
    log_dir: Path,
    topic: str = "alone",
    *,
    only_replica: tuple[str, ...] = (),
    config: Path | None = None,
) -> tuple[Verbs, Plan]:
    given = options(
        root,
        topic,
        delete_horizon="newest",
        assume_high_watermark="",
        settings_given=EXPIRED,
        topics=(topic,),
        broker_version="3.9.2",
        only_replica=only_replica,
        config=None if config is None else str(config),
    )
    verbs = Verbs(log_dir, given)
    return verbs, verbs.plan()


def kind_of(plan: Plan) -> str:
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    return found.kind


def id_of(name: str, topic: str = "alone") -> str:
    return read_cluster_file(str(LOGS / name)).partitions[topic, 0].topic_id


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("with_id", [True, False])
def test_one_assigned_replica_is_read_from_the_metadata_log(name: str, with_id: bool, tmp_path: Path) -> None:
    log_dir = beside(tmp_path, name, topic_id=id_of(name) if with_id else "")
    verbs, plan = planned(tmp_path, log_dir)
    assert kind_of(plan) == "only-replica"
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    left = left_in(log_dir / "alone-0")
    assert (left.markers, left.tombstones) == ((), 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_metadata_log_does_not_assign_to_this_replica_alone_keeps_everything(
    version: str, tmp_path: Path
) -> None:
    name = f"{version}-b2-b3-down"
    elsewhere = {
        "another broker": beside(tmp_path / "broker", name, broker=1),
        "two replicas": beside(tmp_path / "two", name, topic="two", broker=1),
        "another life of the topic": beside(tmp_path / "life", name, topic_id="AAAAAAAAAAAAAAAAAAAAAg"),
        "not in it": beside(tmp_path / "none", name, topic="other"),
        "no id of this broker": beside(tmp_path / "nobody", name),
        "damaged": beside(tmp_path / "damaged", name),
        "another directory": beside(tmp_path / "directory", name),
    }
    (elsewhere["no id of this broker"] / "meta.properties").write_text("version=1\ncluster.id=c\n")
    log = next((elsewhere["damaged"] / METADATA_FOLDER).glob("*.log"))
    log.write_bytes(log.read_bytes()[:60] + b"damaged" + log.read_bytes()[67:])
    (elsewhere["another directory"] / "meta.properties").write_text(
        "version=1\nnode.id=3\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAzg\n"
    )
    for why, log_dir in elsewhere.items():
        topic = "two" if why == "two replicas" else "other" if why == "not in it" else "alone"
        _, plan = planned(log_dir.parent, log_dir, topic)
        assert kind_of(plan) == "none", why
        assert review(plan) == []


def test_a_partition_that_is_being_moved_is_no_only_replica(tmp_path: Path) -> None:
    """While a reassignment goes on, old and new replicas are assigned."""
    for version in VERSIONS:
        root = tmp_path / version
        log_dir = beside(root, f"{version}-reassigning", topic="two", broker=1)
        assert kind_of(planned(root, log_dir, "two")[1]) == "none"


def test_the_plan_says_which_metadata_log_it_was(tmp_path: Path) -> None:
    log_dir = beside(tmp_path, NAMES[0])
    _, plan = planned(tmp_path, log_dir)
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    assert found.why == f"{log_dir}/{METADATA_FOLDER} has this broker as its only replica"
    assert plan.policy.others.own_metadata == (f"{log_dir}/{METADATA_FOLDER}",)


@pytest.mark.parametrize("now", ["does not tell it", "has replicas 3, 1"])
@pytest.mark.parametrize("said", [False, True])
def test_apply_asks_the_metadata_log_again_which_the_broker_has_written_since(
    said: bool, now: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was assigned since may have the value already, and not the tombstone that would go."""
    log_dir = beside(tmp_path, "3.9.2-all-down")
    verbs, plan = planned(tmp_path, log_dir, only_replica=("alone",) if said else ())
    assert kind_of(plan) == "only-replica"
    before = left_in(log_dir / "alone-0")
    later = read_cluster_file(str(LOGS / "3.9.2-reassigning"))
    if now != "does not tell it":
        line = read_cluster_file(str(LOGS / "3.9.2-all-down")).partitions["alone", 0]
        line = dataclasses.replace(line, replicas=(3, 1), moving=True)
        later = dataclasses.replace(later, partitions={("alone", 0): line})
    later = dataclasses.replace(later, path=f"{log_dir}/{METADATA_FOLDER}")
    monkeypatch.setattr("krepair.fixes.evidence.read_cluster_file", lambda path: later)
    report = verbs.apply(plan)
    if said and now == "does not tell it":
        assert report.exit_code is ExitCode.DONE, "it does not contradict what was said"
        return
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"{log_dir}/{METADATA_FOLDER} {now} now" in report.results[0].why
    assert left_in(log_dir / "alone-0") == before
    assert str(report.next_command).startswith("krepair plan ")


# -- the metadata log is not beside the partitions

PLACES = ("metadata.log.dir={meta}\nlog.dirs={logs}\n", "log.dirs={logs},{meta}\n", "log.dir={meta}\n")


def apart(root: Path, name: str, text: str, *, topic: str, broker: int, node: int = -1) -> tuple[Path, Path]:
    """A log directory, and a configuration that puts the metadata log into another one."""
    log_dir = beside(root, name, topic=topic, broker=broker)
    meta = root / "meta"
    meta.mkdir()
    (log_dir / METADATA_FOLDER).rename(meta / METADATA_FOLDER)
    (meta / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c\n")
    config = root / "server.properties"
    text = f"node.id={broker if node < 0 else node}\n{text}"
    config.write_text(text.format(meta=meta, logs=log_dir))
    return log_dir, config


@pytest.mark.parametrize("text", PLACES)
@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_that_names_several_replicas_beats_only_replica_wherever_it_is(
    version: str, text: str, tmp_path: Path
) -> None:
    log_dir, config = apart(tmp_path, f"{version}-b2-b3-down", text, topic="two", broker=1)
    _, plan = planned(tmp_path, log_dir, "two", only_replica=("two",), config=config)
    found = plan.partitions[0].evidence
    assert isinstance(found, Evidence)
    assert found.kind == "none"
    assert f"--only-replica two, but {tmp_path}/meta/{METADATA_FOLDER} has replicas " in found.why
    assert kind_of(planned(tmp_path, log_dir, "two", only_replica=("*",), config=config)[1]) == "none"


@pytest.mark.parametrize("text", PLACES)
def test_one_assigned_replica_is_read_wherever_the_configuration_puts_the_metadata_log(
    text: str, tmp_path: Path
) -> None:
    log_dir, config = apart(tmp_path, NAMES[0], text, topic="alone", broker=3)
    verbs, plan = planned(tmp_path, log_dir, config=config)
    assert kind_of(plan) == "only-replica"
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE


def test_metadata_of_another_broker_or_cluster_says_nothing(tmp_path: Path) -> None:
    log_dir, config = apart(tmp_path, NAMES[0], PLACES[0], topic="two", broker=1, node=2)
    assert (
        kind_of(planned(tmp_path, log_dir, "two", only_replica=("two",), config=config)[1]) == "only-replica"
    )
    config.write_text(config.read_text().replace("node.id=2", "node.id=1"))
    (tmp_path / "meta" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    assert (
        kind_of(planned(tmp_path, log_dir, "two", only_replica=("two",), config=config)[1]) == "only-replica"
    )


@pytest.mark.parametrize("said", [False, True])
def test_apply_asks_the_metadata_log_again_where_the_configuration_put_it(
    said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, config = apart(tmp_path, "3.9.2-all-down", PLACES[0], topic="alone", broker=3)
    verbs, plan = planned(tmp_path, log_dir, only_replica=("alone",) if said else (), config=config)
    assert kind_of(plan) == "only-replica"
    later = read_cluster_file(str(tmp_path / "meta"))
    line = dataclasses.replace(later.partitions["alone", 0], replicas=(3, 1), moving=True)
    later = dataclasses.replace(later, partitions={("alone", 0): line})
    monkeypatch.setattr("krepair.fixes.evidence.read_cluster_file", lambda path: later)
    report = verbs.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"{tmp_path}/meta/{METADATA_FOLDER} has replicas 3, 1 now" in report.results[0].why


@pytest.mark.parametrize("found", [True, False])
def test_the_page_says_what_an_only_replica_was_held_against(found: bool, tmp_path: Path) -> None:
    log_dir, config = apart(tmp_path, NAMES[0], PLACES[0], topic="alone", broker=3)
    if not found:
        shutil.rmtree(tmp_path / "meta")
    _, plan = planned(tmp_path, log_dir, only_replica=("alone",), config=config)
    text = words_of(show_view(plan, "P"))
    held = f"{tmp_path}/meta/{METADATA_FOLDER} does not contradict it"
    assert (held in text) is found
    assert ("No metadata log was found that could contradict it" in text) is not found
