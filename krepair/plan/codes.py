"""Explanations of the codes in a plan: reasons for skipping a partition, and risks. ``krepair explain`` shows each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class CodeExplanation(NamedTuple):
    """Explanation of one code of a plan.

    Attributes:
        what: meaning of the code.
        then: advice to the user, or what krepair does about it.
    """

    what: str
    then: str


_REPLICA: Final = "run krepair compare with the log directories of the other replicas"
_DAMAGED: Final = (
    "run krepair check for file and position; then fetch the replica again from another broker, "
    "or plan --fix tail"
)

OTHERS_FIRST: Final = (
    "If another replica is in sync, nothing has to be lost: while the cluster runs, move the partition away from this "
    "broker and back, see The way back in docs/compare.md. Only for the last copy: the command with "
    "--accept-data-loss."
)

SKIPPED: Final[Mapping[str, CodeExplanation]] = {
    "refused-topic": CodeExplanation("the metadata log of KRaft", "nothing: krepair never changes it"),
    "tiered": CodeExplanation(
        "the topic is tiered, or may be",
        "nothing: krepair never changes it; if it is not tiered, give its settings with --topic-config",
    ),
    "not-compacted": CodeExplanation(
        "cleanup.policy has no compact",
        "give the settings of the topic with --topic-config, if that is wrong",
    ),
    "empty": CodeExplanation("a folder without a .log", "nothing"),
    "review": CodeExplanation(
        "the review of the finished plan objects to a change of the partition",
        "krepair explain shows the objection; make a plan without that fix",
    ),
    "not-begun": CodeExplanation(
        "apply would not begin with the partition: another plan is at work there, its files are not as planned, or its "
        "folder is a mount point of its own",
        "krepair undo LOGDIR lists what is kept; finish or undo the other plan first",
    ),
    "no-high-watermark": CodeExplanation(
        "replication-offset-checkpoint has no entry for the partition",
        "give --assume-high-watermark log-end, if you know that the other replicas have the whole log",
    ),
    "leftovers": CodeExplanation(
        ".swap, .cleaned or .deleted files of a broker that was interrupted",
        "first run krepair plan LOGDIR --fix leftovers",
    ),
    "special-file": CodeExplanation(
        "a link, FIFO, socket or device has the name of a log file",
        "remove it, once you know who put it there",
    ),
    "damage": CodeExplanation("a segment cannot be read as batches to its end", _DAMAGED),
    "txnindex-damage": CodeExplanation(
        "a .txnindex cannot be read",
        "first run krepair plan LOGDIR --fix index=regenerate; or tail,index=regenerate if the .log is damaged too",
    ),
    "txnindex-disagrees": CodeExplanation(
        "a .txnindex contradicts the markers of the log",
        "first run krepair plan LOGDIR --fix index=regenerate",
    ),
    "mixed-epochs": CodeExplanation("one transaction has batches of two producer epochs", _REPLICA),
    "forked": CodeExplanation(
        "this log and another replica's diverge below the high watermark",
        f"{_REPLICA}; then start the broker, let it catch up as a follower, and stop it again",
    ),
    "snapshot-disagrees": CodeExplanation(
        "the newest producer snapshot is older than data of an active producer",
        "krepair check names both offsets",
    ),
    "open-snapshot": CodeExplanation(
        "the newest producer snapshot has a transaction open in a segment that would change; a broker before 2.4 may "
        "not start then",
        "start the broker and stop it cleanly; or give --broker-version, if it is 2.4 or later",
    ),
    "fails-to-start": CodeExplanation(
        "the next start would succeed with the present files, but fail after the changes",
        "name the version of the next start with --broker-version, or plan fewer fixes",
    ),
    "recovers-more": CodeExplanation(
        "after the changes the next start would recover a segment that it does not recover with the present files",
        "plan --fix tail,index to repair all indexes; or name the version of the next start with --broker-version",
    ),
    "forgets-producers": CodeExplanation(
        "with the present files the next start restores the producers; after the changes it would forget them, because "
        "no producer snapshot would be left, or only one that cannot be right",
        "plan --fix tail,index to repair all indexes, and add --fix snapshots after a cut; or name the version of the "
        "next start with --broker-version",
    ),
    "unreadable": CodeExplanation(
        "the operating system could not read a file; krepair does not treat that as damage",
        "check the disk and the permissions",
    ),
    "elsewhere": CodeExplanation("the log directory was replaced while it was read", "plan again"),
    "compacted-content": CodeExplanation(
        "records of a batch with a correct checksum cannot be read",
        "run krepair check --deep; then fetch the replica again from another broker",
    ),
    "not-asked": CodeExplanation(
        "the topic's configuration, as far as it is known, has no cleanup.policy=compact",
        "save the output of kafka-configs.sh --describe and give it with --topic-config",
    ),
    "scratch": CodeExplanation(
        "the keys do not fit into memory", "give --scratch DIR, on another file system"
    ),
    "compacted-old-format": CodeExplanation(
        "messages of format v0 or v1 in the cleanable range", "nothing: the broker's cleaner compacts them"
    ),
    "compacted-too-large": CodeExplanation(
        "a new segment would exceed 2 GiB", "nothing: the broker's cleaner stops there too"
    ),
    "coordinator-load": CodeExplanation(
        "a new segment of __transaction_state would end without records, and a coordinator before 3.9.2 never "
        "finishes loading it",
        "nothing; or start a broker of 3.9.2 or later",
    ),
    "untouched": CodeExplanation(
        "a partition that krepair never changes, or a swap that waits for a broker",
        "if a swap waits, first run krepair plan LOGDIR --fix leftovers",
    ),
    "marked-folder": CodeExplanation(
        "a -delete, -future or -stray folder uses the same entry of recovery-point-offset-checkpoint",
        "let the broker finish what it began; a -stray folder stays forever: move it out of the log directory while "
        "the broker is stopped",
    ),
    "checkpoint": CodeExplanation(
        "recovery-point-offset-checkpoint is damaged, or the log start is past the log end",
        "first run krepair plan LOGDIR --fix checkpoints",
    ),
    "overlap": CodeExplanation("two segments have the same offsets", "krepair check names them"),
    "index": CodeExplanation(
        "an index before the recovery point is wrong",
        "run krepair plan LOGDIR --fix index,recovery: both in one plan",
    ),
    "epochs": CodeExplanation(
        "the leader epochs are damaged, or the log contradicts them",
        "run krepair plan LOGDIR --fix epochs,recovery",
    ),
    "producers": CodeExplanation(
        "the producers at the log end cannot be determined", "krepair check says what is damaged"
    ),
    "log-end": CodeExplanation(
        "krepair cannot tell which log end the next start will find, or versions differ in it",
        "give the version of the next start with --broker-version",
    ),
    "missing-segment": CodeExplanation(
        "a segment of the log is missing", "run krepair check for its name, and restore the segment first"
    ),
    "no-room": CodeExplanation(
        "the changes do not fit on the disk beside those that are planned",
        "apply and purge this plan, then plan again",
    ),
    "changed": CodeExplanation("files changed while they were read", "stop the broker, plan again"),
}

_ASK: Final = "krepair show PLAN --section risks names the partitions"

RISKS: Final[Mapping[str, CodeExplanation]] = {
    "still-unclean": CodeExplanation(
        "leader elections and the ISR still treat this stop as a crash",
        "start the brokers that were leaders before the stop",
    ),
    "below-high-watermark": CodeExplanation(
        "a log ends below its high watermark: committed records are missing here",
        "make another replica the leader",
    ),
    "another-replica": CodeExplanation(
        "another replica may have the records that the plan removes", _REPLICA
    ),
    "every-replica": CodeExplanation("the other replicas stay as they are", "each broker needs its own plan"),
    "lagging-replica": CodeExplanation(
        "a follower that was behind for longer than delete.retention.ms may keep values that are deleted here",
        "replace such a follower",
    ),
    "late-readers": CodeExplanation(
        "a consumer that lags behind will not see older records of a key, nor removed tombstones",
        "let consumers catch up before the stop",
    ),
    "unclean-election": CodeExplanation(
        "the evidence that replicas are in sync is void after an unclean election",
        "undo before the broker starts, if one happened",
    ),
    "in-sync-only": CodeExplanation(
        "the only evidence is that replicas are in sync; their logs would prove more",
        "give --replicas, so that krepair reads the logs",
    ),
    "mtimes-copied": CodeExplanation(
        "modification times look copied, and they are the clock for markers and tombstones", _ASK
    ),
    "assumed-high-watermark": CodeExplanation(
        "the log end counts as the high watermark, by your consent", _ASK
    ),
    "keep-inplace": CodeExplanation(
        "the originals stay until krepair purge", "the disk is fuller until then"
    ),
    "keep-auto": CodeExplanation(
        "if there is no space for originals, apply deletes them once the new files are verified",
        "such a change has no undo",
    ),
    "keep-until-verified": CodeExplanation(
        "apply deletes the originals once the new files are verified", "such a change has no undo"
    ),
    "comes-back": CodeExplanation(
        "the cause of the growth is not removed: the log will fill the freed space again",
        "upgrade, or restart the cleaner",
    ),
    "horizon-forced": CodeExplanation(
        "the chosen delete horizon removes markers and tombstones earlier than "
        "delete.retention.ms promises to consumers",
        _ASK,
    ),
    "others-have": CodeExplanation(
        "another replica still needs markers or tombstones that could otherwise be removed", _ASK
    ),
    "kept-originals": CodeExplanation(
        "an earlier plan keeps originals here", "krepair undo LOGDIR lists them"
    ),
}
