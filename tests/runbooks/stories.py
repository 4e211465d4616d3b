"""Sequences of runbook commands, with the expected end of each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.jars import LATEST

DONE, FOUND, PARTLY = 0, 2, 3

RECLAIM = "reclaim-a-full-disk.md"
TICKET = "in-a-change-ticket.md"
RESTART = "before-a-restart.md"
KEPT = "kept-originals.md"
DAMAGED = "whose journal is damaged"
"""In the name of a story: before it begins."""
UNCLEAN = "before-an-unclean-start.md"
DEAD = "the-cleaner-has-been-dead.md"
WHOLE = "repair-a-whole-cluster.md"
DISAGREE = "replicas-disagree.md"
UPGRADE = "before-an-upgrade-or-a-downgrade.md"

MOVED = """echo '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":"""
REASSIGN = "kafka-reassign-partitions.sh --bootstrap-server BROKER:9092 --reassignment-json-file"

SECOND_ROUND = (
    "krepair plan /mnt/b1/kafka --topic-config topics.txt --fix markers,compact --cluster described.txt "
    "--replicas 2=/mnt/b2/kafka"
)
ASK_VERSION = "krepair check /var/lib/kafka --config /etc/kafka/server.properties --broker-version"
START = ("systemctl start kafka", DONE)
STOP = ("systemctl stop kafka", DONE)
ASK_OTHERS = "kafka-topics.sh --bootstrap-server OTHER-BROKER:9092 --describe >"
COPIED = "__consumer_offsets-17"
FREEING_ONE = "krepair plan /var/lib/kafka --topic-config topics.txt --partition __consumer_offsets-17"


@dataclass(frozen=True)
class Story:
    """One way through a runbook.

    Attributes:
        name: what happens in it.
        page: the runbook.
        steps: how commands begin, and their exit codes.
        broker: version that is started and stopped where the page says so; empty: nothing is.
        cluster: version of a cluster of three to which it is done; empty: it is done to one broker or to none.
    """

    name: str
    page: str
    steps: tuple[tuple[str, int], ...]
    broker: str = ""
    cluster: str = ""


LOOK = (
    "krepair check /var/lib/kafka --config /etc/kafka/server.properties --topic __consumer_offsets",
    FOUND,
)
WITH_SETTINGS = (
    "krepair plan /var/lib/kafka --config /etc/kafka/server.properties --topic-config topics.txt "
    "--topic __consumer_offsets"
)
ASK_FIRST = ("kafka-topics.sh --bootstrap-server localhost:9092 --describe > cluster.txt", DONE)
ASK_AGAIN = (f"{ASK_OTHERS} cluster.txt", DONE)
PREVIEW = (f"{WITH_SETTINGS} --cluster cluster.txt --preview --out /root/preview.krplan", FOUND)
SHOW_PREVIEW = ("krepair show /root/preview.krplan --format html", DONE)
DIFF = ("krepair diff /root/preview.krplan /root/offsets.krplan", FOUND)
PLAN = (f"{WITH_SETTINGS} --cluster cluster.txt --keep auto --out", FOUND)
APPLY = ("krepair apply /root/offsets.krplan", DONE)
VERIFY = ("krepair verify /root/offsets.krplan", DONE)
UNDO = ("krepair undo /root/offsets.krplan", DONE)
PURGE = ("krepair purge /root/offsets.krplan", DONE)

KEYS_CHECK = ("krepair check /var/lib/kafka --config", FOUND)
KEYS_OF_TOPICS = (
    "krepair plan /var/lib/kafka --config /etc/kafka/server.properties "
    "--topic-config topics.txt --fix compact"
)
KEYS_PLAN = (f"{KEYS_OF_TOPICS} --out", FOUND)
KEYS_APPLY = ("krepair apply /root/keys.krplan", DONE)
KEYS_VERIFY = ("krepair verify /root/keys.krplan --originals", DONE)

STORIES = (
    Story(
        "a disk is reclaimed, and its originals are freed beside the broker",
        RECLAIM,
        (
            LOOK,
            ("kafka-configs.sh --bootstrap-server", DONE),
            ASK_FIRST,
            PREVIEW,
            SHOW_PREVIEW,
            STOP,
            ASK_AGAIN,
            PLAN,
            DIFF,
            APPLY,
            VERIFY,
            START,
            PURGE,
        ),
        broker="3.9.2",
    ),
    Story(
        "a disk without room for the start is reclaimed first",
        RECLAIM,
        (
            LOOK,
            ("kafka-configs.sh --zookeeper", DONE),
            STOP,
            ASK_AGAIN,
            PLAN,
            APPLY,
            VERIFY,
            PURGE,
            START,
        ),
        broker="2.2.1",
    ),
    Story(
        "a plan is agreed on beside the broker, and made after the stop",
        RECLAIM,
        (ASK_FIRST, PREVIEW, SHOW_PREVIEW, ASK_AGAIN, PLAN, DIFF, APPLY, VERIFY, UNDO),
    ),
    Story(
        "a partition is copied to another disk, changed, and put back from there",
        RECLAIM,
        (
            ASK_AGAIN,
            ("mkdir /mnt/backup/partitions", DONE),
            (f"cp -a /var/lib/kafka/{COPIED} /mnt/backup/partitions/", DONE),
            ("sync -f /mnt/backup/partitions", DONE),
            (f"diff -r /var/lib/kafka/{COPIED} /mnt/backup/partitions/{COPIED}", DONE),
            (FREEING_ONE, FOUND),
            ("krepair apply /root/17.krplan", DONE),
            ("krepair verify /root/17.krplan", DONE),
            (f"find /var/lib/kafka/{COPIED} -mindepth 1 -delete", DONE),
            (f"cp -a /mnt/backup/partitions/{COPIED}/. /var/lib/kafka/{COPIED}/", DONE),
            (f"diff -r /var/lib/kafka/{COPIED} /mnt/backup/partitions/{COPIED}", DONE),
        ),
    ),
    Story(
        "a partition waits on another disk while the others are changed, and is copied back",
        RECLAIM,
        (
            ASK_AGAIN,
            ("mkdir /mnt/backup/partitions", DONE),
            (f"cp -a /var/lib/kafka/{COPIED} /mnt/backup/partitions/", DONE),
            ("sync -f /mnt/backup/partitions", DONE),
            (f"diff -r /var/lib/kafka/{COPIED} /mnt/backup/partitions/{COPIED}", DONE),
            (f"rm -r /var/lib/kafka/{COPIED}", DONE),
            PLAN,
            APPLY,
            VERIFY,
            PURGE,
            (f"cp -a /mnt/backup/partitions/{COPIED} /var/lib/kafka/", DONE),
            (f"diff -r /var/lib/kafka/{COPIED} /mnt/backup/partitions/{COPIED}", DONE),
        ),
    ),
    Story(
        "a plan is put into a ticket and reviewed",
        TICKET,
        (
            ("krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan", FOUND),
            ("krepair show offsets.krplan --format html", DONE),
            ("krepair show offsets.krplan --format md", DONE),
            ("sha256sum offsets.krplan", DONE),
            ("krepair show offsets.krplan # the short page", DONE),
            ("krepair show offsets.krplan --section risks", DONE),
            ("krepair explain D03", DONE),
        ),
    ),
    Story(
        "an unclean start is made ready, served, and its originals freed",
        UNCLEAN,
        (
            ("krepair check /var/lib/kafka --config", FOUND),
            ("krepair plan /var/lib/kafka --config", FOUND),
            ("krepair show start.krplan", DONE),
            ("krepair apply start.krplan", DONE),
            ("krepair verify start.krplan", DONE),
            START,
            ("krepair purge start.krplan", DONE),
        ),
        broker="3.9.2",
    ),
    Story(
        "an unclean start is made ready and taken back",
        UNCLEAN,
        (
            ("krepair check /var/lib/kafka --config", FOUND),
            ("krepair plan /var/lib/kafka --config", FOUND),
            ("krepair apply start.krplan", DONE),
            ("krepair undo start.krplan", DONE),
        ),
    ),
    Story(
        "torn tails are cut and served",
        UNCLEAN,
        (
            ("krepair check /var/lib/kafka --config", FOUND),
            ("krepair plan /var/lib/kafka --config", FOUND),
            ("krepair show start.krplan", DONE),
            ("krepair apply start.krplan", DONE),
            ("krepair verify start.krplan", DONE),
            START,
            ("krepair purge start.krplan", DONE),
        ),
        broker=LATEST,
    ),
    Story(
        "indexes with a tail of zeros are mended",
        RESTART,
        (
            ("krepair check /var/lib/kafka --config /etc/kafka/server.properties --topic-config", FOUND),
            ("krepair plan /var/lib/kafka --config", FOUND),
            ("krepair show index.krplan", DONE),
            ("krepair apply index.krplan", DONE),
            ("krepair verify index.krplan", DONE),
            ("krepair check /var/lib/kafka --config /etc/kafka/server.properties --topic-config", DONE),
            ("krepair purge index.krplan", DONE),
        ),
    ),
    Story(
        "what is kept is listed and put back without the plan file",
        KEPT,
        (
            ("krepair undo /var/lib/kafka", DONE),
            ("krepair undo /var/lib/kafka --plan-id 117f4418", DONE),
        ),
    ),
    Story(
        "a plan whose journal is damaged is taken back",
        KEPT,
        (
            ("krepair undo /var/lib/kafka # which plan", DONE),
            ("krepair undo /var/lib/kafka --plan-id 117f4418 # shows", PARTLY),
            ("krepair undo /var/lib/kafka --plan-id 117f4418 # shows", DONE),
            ("krepair purge /var/lib/kafka --plan-id 117f4418", DONE),
        ),
    ),
    Story(
        "a plan whose journal is damaged is kept",
        KEPT,
        (
            ("krepair verify /var/lib/kafka # every batch", DONE),
            ("krepair purge /var/lib/kafka --plan-id 117f4418", PARTLY),
            ("krepair purge /var/lib/kafka --plan-id 117f4418", DONE),
        ),
    ),
    Story(
        "what is kept is freed without the plan file",
        KEPT,
        (("krepair purge /var/lib/kafka --plan-id", DONE),),
    ),
    Story(
        "keys that nobody compacted give their disk back",
        DEAD,
        (KEYS_CHECK, KEYS_PLAN, KEYS_APPLY, KEYS_VERIFY, ("krepair purge /root/keys.krplan", DONE)),
    ),
    Story(
        "keys are compacted with a scratch folder and put back",
        DEAD,
        (
            (f"{KEYS_OF_TOPICS} --scratch", FOUND),
            ("krepair apply /root/keys.krplan --scratch", DONE),
            ("krepair verify /root/keys.krplan --originals --scratch", DONE),
            ("krepair undo /root/keys.krplan", DONE),
        ),
    ),
    Story(
        "a cluster is repaired broker by broker while it runs",
        WHOLE,
        (
            (
                "kafka-topics.sh --bootstrap-server localhost:9092 --describe --under-replicated-partitions",
                DONE,
            ),
            STOP,
            (f"{ASK_OTHERS} described.txt", DONE),
            ("krepair plan /var/lib/kafka --config", FOUND),
            ("krepair apply /root/cluster.krplan", DONE),
            ("krepair verify /root/cluster.krplan --originals", DONE),
            START,
            ("krepair purge /root/cluster.krplan", DONE),
        ),
        cluster="3.9.2",
    ),
    Story(
        "a stopped cluster is repaired in two rounds",
        WHOLE,
        (
            ("krepair plan /mnt/b1/kafka --topic-config topics.txt --fix markers,compact --out", FOUND),
            ("krepair apply /root/first_1.krplan", DONE),
            ("krepair verify /root/first_1.krplan --originals", DONE),
            ("krepair purge /root/first_1.krplan", DONE),
            (SECOND_ROUND, FOUND),
            ("krepair apply /root/second_1.krplan", DONE),
            ("krepair verify /root/second_1.krplan --originals", DONE),
            ("krepair purge /root/second_1.krplan", DONE),
            ("krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka 3=/mnt/b3/kafka", DONE),
        ),
        cluster="3.9.2",
    ),
    Story(
        "versions are asked before an upgrade and a downgrade",
        UPGRADE,
        (
            ("krepair check /var/lib/kafka --config /etc/kafka/server.properties", DONE),
            (f"{ASK_VERSION} 4.4.0", DONE),
            (f"{ASK_VERSION} 3.6.2", FOUND),
        ),
    ),
    Story(
        "a replica that disagrees is moved away and back",
        DISAGREE,
        (
            ("krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka 3=/mnt/b3/kafka", FOUND),
            ("krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka 3=/mnt/b3/kafka --partition", FOUND),
            (f"{MOVED}[1,2]", DONE),
            (f"{MOVED}[1,2,3]", DONE),
            (f"{REASSIGN} away.json --execute", DONE),
            (f"{REASSIGN} away.json --verify", DONE),
            (f"{REASSIGN} back.json --execute", DONE),
            (f"{REASSIGN} back.json --verify", DONE),
        ),
        cluster="3.9.2",
    ),
)
