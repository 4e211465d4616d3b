"""Explanations of the codes in a plan: reasons for skipping a partition, and risks. ``krepair explain`` shows each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class CodeInWords(NamedTuple):
    """Explanation of one code of a plan.

    Attributes:
        what: meaning of the code.
        then: advice to the user, or what krepair does about it.
    """

    what: str
    then: str


_REPLICA: Final = "krepair compare, with the log directories of the other replicas"
_DAMAGED: Final = "krepair check names file and position; restore the replica from another one, or --fix tail"

OTHERS_FIRST: Final = (
    "If another replica is in sync, nothing has to be lost: while the cluster runs, move the partition away from this "
    "broker and back, see The way back in docs/compare.md. Only for the last copy: the command with "
    "--accept-data-loss."
)

SKIPPED: Final[Mapping[str, CodeInWords]] = {
    "refused-topic": CodeInWords("the metadata log of KRaft", "nothing: krepair never changes it"),
    "tiered": CodeInWords(
        "the topic is tiered, or may be",
        "nothing: it is never changed; if it is not tiered, give its settings with --topic-config",
    ),
    "not-compacted": CodeInWords(
        "cleanup.policy has no compact",
        "give the settings of the topic with --topic-config, if that is wrong",
    ),
    "empty": CodeInWords("a folder without a .log", "nothing"),
    "review": CodeInWords(
        "the review of the finished plan objects to a change of the partition",
        "krepair explain shows the objection; make a plan without that fix",
    ),
    "not-begun": CodeInWords(
        "apply would not begin with the partition: another plan is at work there, or its files are not as planned",
        "krepair undo LOGDIR lists what is kept; finish or undo the other plan first",
    ),
    "no-high-watermark": CodeInWords(
        "replication-offset-checkpoint has no line for the partition",
        "--assume-high-watermark log-end, if you know that the other replicas have the whole log",
    ),
    "leftovers": CodeInWords(
        ".swap, .cleaned or .deleted files of a broker that was interrupted",
        "krepair plan LOGDIR --fix leftovers first",
    ),
    "special-file": CodeInWords(
        "a link, FIFO, socket or device has the name of a log file",
        "remove it, once you know who put it there",
    ),
    "damage": CodeInWords("a segment cannot be read as batches to its end", _DAMAGED),
    "txnindex-damage": CodeInWords(
        "a .txnindex cannot be read",
        "krepair plan LOGDIR --fix index=regenerate first; tail,index=regenerate if the .log is damaged too",
    ),
    "txnindex-disagrees": CodeInWords(
        "a .txnindex contradicts the markers of the log", "krepair plan LOGDIR --fix index=regenerate first"
    ),
    "mixed-epochs": CodeInWords("one transaction has batches of two producer epochs", _REPLICA),
    "forked": CodeInWords(
        "below the high watermark this log and one of another replica have two histories",
        f"{_REPLICA}; then start the broker, let it follow, and stop it again",
    ),
    "snapshot-disagrees": CodeInWords(
        "the newest producer snapshot is older than data of a living producer",
        "krepair check names both offsets",
    ),
    "open-snapshot": CodeInWords(
        "the newest producer snapshot has a transaction open in a segment that would change; a broker before 2.4 may "
        "not start then",
        "start the broker and stop it cleanly; or --broker-version, if it is 2.4 or later",
    ),
    "fails-to-start": CodeInWords(
        "a start that succeeds as the files are would fail after the changes",
        "--broker-version, if that start is of another version; otherwise plan fewer fixes",
    ),
    "forgets-producers": CodeInWords(
        "a start that knows the producers as the files are would forget them after the changes: no producer "
        "snapshot is left",
        "--fix tail,index, which makes all indexes right; after a cut --fix snapshots, too; or --broker-version, if "
        "that start is of another version",
    ),
    "unreadable": CodeInWords(
        "the operating system could not read a file; that is never taken for damage",
        "look at the disk and at permissions",
    ),
    "elsewhere": CodeInWords("the log directory was replaced while it was read", "plan again"),
    "compacted-content": CodeInWords(
        "records of a batch with a right checksum cannot be read", "krepair check --deep; restore the replica"
    ),
    "not-asked": CodeInWords(
        "the topic's own configuration does not say cleanup.policy=compact",
        "--topic-config with what kafka-configs.sh --describe prints",
    ),
    "scratch": CodeInWords("the keys do not fit into memory", "--scratch DIR, on another file system"),
    "compacted-old-format": CodeInWords(
        "messages of format v0 or v1 in the cleanable range", "nothing: the broker's cleaner compacts them"
    ),
    "compacted-too-large": CodeInWords(
        "a new log would pass 2 GiB", "nothing: the broker's cleaner stops there, too"
    ),
    "coordinator-load": CodeInWords(
        "a new segment of __transaction_state would end without records, and a coordinator before 3.9.2 does not get "
        "past it",
        "nothing, or start 3.9.2 or later",
    ),
    "untouched": CodeInWords(
        "a partition that krepair never changes, or a swap that waits for a broker",
        "krepair plan LOGDIR --fix leftovers first",
    ),
    "marked-folder": CodeInWords(
        "a -delete, -future or -stray folder has the same line in the recovery points",
        "let the broker end what it began; a -stray folder stays forever: move it out of the log directory while the "
        "broker is stopped",
    ),
    "checkpoint": CodeInWords(
        "the recovery points are damaged, or the log start is past the log end",
        "krepair plan LOGDIR --fix checkpoints first",
    ),
    "overlap": CodeInWords("two segments have the same offsets", "krepair check names them"),
    "index": CodeInWords(
        "an index before the recovery point is not right",
        "krepair plan LOGDIR --fix index,recovery: both in one plan",
    ),
    "epochs": CodeInWords(
        "the leader epochs are damaged, or the log contradicts them",
        "krepair plan LOGDIR --fix epochs,recovery",
    ),
    "producers": CodeInWords(
        "the producers at the log end cannot be determined", "krepair check says what is damaged"
    ),
    "log-end": CodeInWords(
        "it is not known where the next start ends the log, or versions differ",
        "--broker-version of the next start",
    ),
    "missing-segment": CodeInWords("a segment of the log is missing", "krepair check; bring it back first"),
    "no-room": CodeInWords(
        "the changes do not fit on the disk beside those that are planned",
        "apply and purge this plan, then plan again",
    ),
    "changed": CodeInWords("files changed while they were read", "stop the broker, plan again"),
}

_ASK: Final = "krepair show PLAN --section risks names the partitions"

RISKS: Final[Mapping[str, CodeInWords]] = {
    "still-unclean": CodeInWords(
        "for elections and in-sync replicas the stop stays a crash", "start the brokers that led before"
    ),
    "below-high-watermark": CodeInWords(
        "a log ends below its high watermark: committed records are missing here",
        "make another replica the leader",
    ),
    "another-replica": CodeInWords("another replica may have the records that the plan removes", _REPLICA),
    "every-replica": CodeInWords("the other replicas stay as they are", "each broker needs its own plan"),
    "lagging-replica": CodeInWords(
        "a follower that was behind for longer than delete.retention.ms may keep values that are deleted here",
        "replace such a follower",
    ),
    "late-readers": CodeInWords(
        "a reader that was behind misses older records of a key, and tombstones",
        "let readers catch up before the stop",
    ),
    "unclean-election": CodeInWords(
        "the evidence that replicas are in sync is void after an unclean election",
        "undo before the broker starts, if one happened",
    ),
    "in-sync-only": CodeInWords(
        "the only evidence is that replicas are in sync; their logs would prove more",
        "--replicas reads the logs",
    ),
    "mtimes-copied": CodeInWords(
        "modification times look copied, and they are the clock for markers and tombstones", _ASK
    ),
    "assumed-high-watermark": CodeInWords("the log end counts as the high watermark, by your consent", _ASK),
    "keep-inplace": CodeInWords("the originals stay until krepair purge", "the disk is fuller until then"),
    "keep-auto": CodeInWords(
        "where there is no room for originals, apply frees them once the new files are verified",
        "such a change has no undo",
    ),
    "keep-until-verified": CodeInWords(
        "apply frees the originals once the new files are verified", "such a change has no undo"
    ),
    "comes-back": CodeInWords(
        "the cause of the growth is not removed: the log will fill the freed space again",
        "upgrade, or restart the cleaner",
    ),
    "horizon-forced": CodeInWords(
        "the delete horizon is later than delete.retention.ms promises to readers", _ASK
    ),
    "others-have": CodeInWords("another replica holds back what could go", _ASK),
    "kept-originals": CodeInWords("an earlier plan keeps originals here", "krepair undo LOGDIR lists them"),
}
