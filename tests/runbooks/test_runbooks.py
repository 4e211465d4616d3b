"""The runbooks, typed as they are written: commands end as the page says, log directories are as promised."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers.serving import PASSIVE, topics_of
from tests.builders import Replay
from tests.compaction.directories import dead_cleaner
from tests.fixture_dirs import unpack
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jvm import java
from tests.ops.scene import BLOAT, tree
from tests.ops.tail import INTERVAL, Torn
from tests.runbooks.page import DOCS, RUNBOOKS, Shell, blocks_of, commands_of, follow
from tests.runbooks.stories import (
    ASK_AGAIN,
    DAMAGED,
    DEAD,
    KEPT,
    RECLAIM,
    RESTART,
    STORIES,
    TICKET,
    UNCLEAN,
    UPGRADE,
    Story,
)  # fmt: skip

PADDED = "timeindex-padded-2.2.1"
CONFIG_TOOL = "kafka.admin.ConfigCommand"
# What kafka-configs.sh prints of the fixture's topic.
TOPICS_TXT = (
    "All configs for topic __consumer_offsets are:\n"
    "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}\n"
    "  delete.retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:delete.retention.ms=1000}\n"
    "  segment.bytes=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=100000}\n"
)


# What kafka-topics.sh prints of it, if two more brokers have it.
DESCRIBED = (
    "Topic:__consumer_offsets\tPartitionCount:2\tReplicationFactor:3\tConfigs:cleanup.policy=compact\n"
    + "".join(
        f"\tTopic: __consumer_offsets\tPartition: {number}\tLeader: 1\tReplicas: 0,1,2\tIsr: {{isr}}\n"
        for number in (0, 1)
    )
)

KEYS_TXT = (
    "All configs for topic changelog are:\n"
    "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}\n"
    "All configs for topic by-time are:\n"
    "  cleanup.policy=delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete}\n"
)


@dataclass
class Place:
    """A stopped broker's machine, as one runbook meets it."""

    log_dir: Path
    shell: Shell
    topics: dict[str, Topic]


def place_of(page: str, tmp_path: Path) -> Place:
    if page == UNCLEAN:
        log_dir = tmp_path / "logs"
        torn = Torn.make(log_dir, 3)
        with torn.log(2).open("ab") as log:
            log.write(bytes(120))
        topics = {"t": Topic(1, {"retention.ms": "-1", "index.interval.bytes": str(INTERVAL)})}
    elif page == DEAD:
        log_dir, topics = dead_cleaner(tmp_path / "logs"), {}
    else:
        log_dir = unpack({RESTART: PADDED, UPGRADE: "kraft-3.9.2"}.get(page, BLOAT), tmp_path)
        topics = topics_of(log_dir) if page == RECLAIM else {}
    work = tmp_path / "root"
    work.mkdir()
    (work / "topics.txt").write_text(KEYS_TXT if page == DEAD else TOPICS_TXT)
    (tmp_path / "scratch").mkdir()
    ids = "broker.id=0\n"
    if page == UPGRADE:
        ids = "process.roles=broker,controller\nnode.id=0\ncontroller.quorum.voters=0@localhost:1\n"
    (work / "server.properties").write_text(f"{ids}log.dirs={log_dir}\n")
    (work / "running.txt").write_text(DESCRIBED.format(isr="0,1,2"))
    (work / "stopped.txt").write_text(DESCRIBED.format(isr="1,2"))
    names = {
        "/var/lib/kafka": str(log_dir),
        "/etc/kafka/server.properties": str(work / "server.properties"),
        "/root/offsets.krplan": str(work / "offsets.krplan"),
        "/root/preview.krplan": str(work / "preview.krplan"),
        "/root/keys.krplan": str(work / "keys.krplan"),
        "/mnt/scratch": str(tmp_path / "scratch"),
        "/root/17.krplan": str(work / "17.krplan"),
        "__consumer_offsets-17": "__consumer_offsets-1",
        # these machines have one broker: what others would print is prepared
        "kafka-topics.sh --bootstrap-server localhost:9092 --describe": "cat running.txt",
        "kafka-topics.sh --bootstrap-server OTHER-BROKER:9092 --describe": "cat stopped.txt",
        "localhost:9092": "",
        "localhost:2181": "",
    }
    return Place(log_dir, Shell(work, names), topics)


def test_every_command_of_every_runbook_is_typed_in_a_story():
    typed: dict[str, set[str]] = {}
    for story in STORIES:
        typed.setdefault(story.page, set()).update(command for command, _ in follow(story.page, story.steps))
    pages = {path.name for path in RUNBOOKS.iterdir() if commands_of(path.name)}
    assert {page: set(commands_of(page)) - typed.get(page, set()) for page in pages} == {
        page: set() for page in pages
    }


PAGES = [path for path in sorted(DOCS.rglob("*.md")) if blocks_of(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_block_that_is_pasted_frees_no_original_whatever_verify_has_found(page: Path):
    for commands in blocks_of(page):
        verbs = [command.split()[1] for command in commands if command.startswith("krepair")]
        assert "purge" not in verbs or len(commands) == 1, commands
        assert "verify" not in verbs or "apply" not in verbs or verbs == ["apply", "verify"], commands
    text = page.read_text()
    assert not re.search(r"krepair apply [^\n]*\n *krepair verify", text)
    if page.name != KEPT:  # there is no plan to verify
        for above in re.findall(r"([^\n]+\n?[^\n]*)\n\n *```sh\n *krepair purge ", text):
            assert re.search("(Type|Run) this only if .* ended with 0", " ".join(above.split())), above


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_page_asks_the_broker_that_it_has_stopped(page: Path):
    stopped = False
    for command in (command for block in blocks_of(page) for command in block):
        if command.startswith("systemctl"):
            stopped = command.startswith("systemctl stop")
        assert not (stopped and "localhost" in command), command


def param_of(story: Story) -> object:
    """Where others are asked, nothing else says what other replicas need."""
    return pytest.param(
        story, marks=[pytest.mark.replicas] if ASK_AGAIN in story.steps else [], id=story.name
    )


def prepare(story: Story, place: Place) -> None:
    """What a page takes for granted: that of the kept originals, an applied plan; and that its journal was damaged."""
    if story.page == KEPT:
        place.shell.type("krepair plan /var/lib/kafka --topic __consumer_offsets --out lost.krplan")
        assert place.shell.type("krepair apply lost.krplan") == 0
        lost = place.shell.folder / "lost.krplan"
        place.shell.names = {**place.shell.names, "117f4418": json.loads(lost.read_text())["plan_id"]}
        lost.unlink()
    if DAMAGED in story.name:
        journal = next(place.log_dir.rglob("journal"))
        journal.write_bytes(journal.read_bytes()[:200] + b"\0" * 100 + journal.read_bytes()[300:])


def typed_by_a_person(said: str, elsewhere: str) -> list[str]:
    """What a page asks a person to type besides krepair: the lines of undo, and the ``mv`` of purge."""
    lines = [line.strip() for line in said.partition("By hand")[2].splitlines()]
    moves = re.findall(r"type (mv \S+) DIRECTORY ", " ".join(said.split()))
    return [line for line in lines if line.startswith("mv ")] + [f"{move} {elsewhere}" for move in moves]


@pytest.mark.parametrize(
    "story", [param_of(story) for story in STORIES if not (story.broker or story.cluster)]
)
def test_a_runbook_does_what_it_says(story: Story, tmp_path: Path):
    place = place_of(story.page, tmp_path)
    before = tree(place.log_dir)
    prepare(story, place)
    with tempfile.TemporaryDirectory(prefix="krepair-backup-", dir="/dev/shm") as backup:
        place.shell.names = {**place.shell.names, "/mnt/backup": backup}
        for command, code in follow(story.page, story.steps):
            assert place.shell.type(command) == code, (command, place.shell.said[-1][1][-3000:])
            for line in typed_by_a_person(place.shell.said[-1][1], backup):
                subprocess.run(line, shell=True, check=True)
    first = next(said for command, said in place.shell.said if command.startswith("krepair"))
    assert len(first.splitlines()) <= 40, first
    SHOWN[story.name](place, before)


def test_after_a_power_cut_no_snapshot_stays_past_the_end(tmp_path: Path):
    place = place_of(UNCLEAN, tmp_path)
    past = place.log_dir / "t-0" / f"{10_000:020d}.snapshot"
    past.write_bytes(Replay().snapshot())
    story = next(story for story in STORIES if story.name == "torn tails are cut and served")
    look, *steps = follow(UNCLEAN, story.steps[:5])
    assert place.shell.type(look[0]) == look[1]
    assert "KR502" in place.shell.output("krepair check").partition("Not looked for")[0]
    for command, code in steps:
        assert place.shell.type(command) == code
    place.shell.type(look[0])
    after = place.shell.output("krepair check").partition("Not looked for")[0]
    assert not {"KR301", "KR502"} & set(re.findall(r"KR\d+", after))
    assert not past.exists()


def assert_given_back(place: Place, before: object) -> None:
    assert tree(place.log_dir) == before


def assert_freed(place: Place, before: object) -> None:
    assert not list(place.log_dir.rglob("krepair~*"))
    log = sum(path.stat().st_size for path in (place.log_dir / "__consumer_offsets-1").glob("*.log"))
    assert log < 1_297_520


def assert_ticket(place: Place, before: object) -> None:
    folder = place.shell.folder
    assert (folder / "ticket.html").read_text().startswith("<!doctype html>")
    assert (folder / "ticket.md").read_text().startswith("# Plan ")
    assert re.fullmatch(r"[0-9a-f]{64}  offsets.krplan\n", place.shell.output("sha256sum"))
    assert tree(place.log_dir) == before


def assert_trimmed(place: Place, before: object) -> None:
    assert "KR201" in place.shell.said[0][1]
    after = place.shell.output("krepair check /var/lib/kafka --config")
    assert "KR201" not in after.partition("Not looked for")[0]
    assert max(path.stat().st_size for path in place.log_dir.glob("f-t-0/*00480.timeindex")) == 276


def assert_agreed(place: Place, before: object) -> None:
    assert (place.shell.folder / "preview.html").read_text().startswith("<!doctype html>")
    assert "apply refuses it" in (place.shell.folder / "preview.html").read_text()
    assert "broker 0 is still in sync there" in (place.shell.folder / "preview.html").read_text()
    changed = place.shell.output("krepair diff")
    assert "Both plans make the same changes in 0 of 2 partitions; 2 differ." in changed
    assert tree(place.log_dir) == before


def assert_compacted(place: Place, before: object) -> None:
    assert "KR108" in place.shell.output("krepair check")
    assert not list(place.log_dir.rglob("krepair~*"))
    for topic, segments in (("__consumer_offsets", 2), ("changelog", 2), ("by-time", 15)):
        assert len(list((place.log_dir / f"{topic}-0").glob("*.log"))) == segments


def assert_compacted_and_given_back(place: Place, before: object) -> None:
    assert tree(place.log_dir) == before
    assert list((place.shell.folder.parent / "scratch").iterdir()) == []


def assert_versions_named(place: Place, before: object) -> None:
    assert "Kafka 3.9 to 4.4 can start on it" in place.shell.said[0][1]
    assert "KR805" in place.shell.said[-1][1].partition("Not looked for")[0]
    assert tree(place.log_dir) == before


def assert_back_and_nothing_kept(place: Place, before: dict[str, object]) -> None:
    after = tree(place.log_dir)
    back = {path: entry for path, entry in before.items() if path.startswith("__consumer_offsets-1/")}
    assert back
    assert {path: after.get(path) for path in back} == back
    assert not list(place.log_dir.rglob("krepair~*"))


SHOWN = {
    "versions are asked before an upgrade and a downgrade": assert_versions_named,
    "a plan is agreed on beside the broker, and made after the stop": assert_agreed,
    "a partition is copied to another disk, changed, and put back from there": assert_given_back,
    "a partition waits on another disk while the others are changed, and is copied back": (
        assert_back_and_nothing_kept
    ),
    "a plan is put into a ticket and reviewed": assert_ticket,
    "an unclean start is made ready and taken back": assert_given_back,
    "indexes with a tail of zeros are mended": assert_trimmed,
    "what is kept is listed and put back without the plan file": assert_given_back,
    "what is kept is freed without the plan file": assert_freed,
    "a plan whose journal is damaged is taken back": assert_given_back,
    "a plan whose journal is damaged is kept": assert_freed,
    "keys that nobody compacted give their disk back": assert_compacted,
    "keys are compacted with a scratch folder and put back": assert_compacted_and_given_back,
}


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("story", [param_of(story) for story in STORIES if story.broker])
def test_a_runbook_does_what_it_says_to_real_brokers(story: Story, tmp_path: Path):
    place = place_of(story.page, tmp_path)
    if story.page == UNCLEAN:
        (place.log_dir / "meta.properties").unlink()  # of another cluster than the lab's
    broker = Broker(story.broker, place.log_dir, PASSIVE, place.topics, work_dir=tmp_path / "broker")
    seen: list[object] = []
    with ExitStack() as ending:
        ending.callback(broker.close)
        if story.page == RECLAIM:  # its first part is typed beside a running broker
            broker.start()
            seen.append(answers(story, broker))
        for command, code in follow(story.page, story.steps):
            if command.startswith("systemctl stop"):
                broker.stop()
            elif command.startswith("systemctl start"):
                broker.start()
                seen.append(answers(story, broker))
            else:
                if command.startswith("kafka-configs.sh"):
                    tool = shlex.join(java(story.broker, CONFIG_TOOL))
                    names = {
                        **place.shell.names,
                        "localhost:9092": broker.bootstrap,
                        "localhost:2181": broker.zookeeper,
                        "kafka-configs.sh": tool,
                    }
                    place.shell.names = names
                assert place.shell.type(command) == code, (command, place.shell.said[-1][1][-3000:])
        seen.append(answers(story, broker))
    assert len(seen) >= 2
    assert all(answer == seen[0] for answer in seen)
    assert seen[0]
    assert not list(place.log_dir.rglob("krepair~*"))
    if any(command.startswith("kafka-configs.sh") for command, _ in story.steps):
        assert "delete.retention.ms=1000" in (place.shell.folder / "topics.txt").read_text()


def committed_offsets(broker: Broker) -> object:
    """By group; of groups that have committed: a broker that starts forgets the others."""
    last: object = None
    for _ in range(20):  # groups are loaded in the background after the start
        offsets = client.fetch_group_offsets(broker.bootstrap)
        found = {group: committed for group, committed in offsets.items() if committed}
        if found and found == last:
            break
        last = found
        time.sleep(0.5)
    return last


def answers(story: Story, broker: Broker) -> object:
    """What clients get: committed offsets of all groups, or every record."""
    if story.page == RECLAIM:
        return committed_offsets(broker)
    records = client.read_all(broker.bootstrap, "t", 0, "read_committed")
    return [record.offset for record in records]


def test_the_pages_of_the_ticket_and_of_the_stories_are_there():
    assert {TICKET, *(story.page for story in STORIES)} <= {path.name for path in RUNBOOKS.iterdir()}
