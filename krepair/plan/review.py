"""The safety review of a finished plan, whatever program wrote it. It uses only the plan and opens no file.

The digest shows that a plan was not changed; the review shows that the plan is safe. Codes are stable: the code of an
objection is never reused for another objection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from krepair.checks.catalogue import RULES
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import TOPIC_NAME
from krepair.plan.change_review import REVIEWS, evidence_of_searches, review_together
from krepair.plan.facts import SNAPSHOT_NAME, PartitionFacts, fix_names, is_plain_path, setting
from krepair.plan.keep import AUTO, INPLACE, UNTIL_VERIFIED, is_known, undo_for
from krepair.plan.model import FileFingerprint, KeepOriginal, PartitionPlan, Plan, Policy, RootPlan, Undo
from krepair.plan.objection import Objection, is_plain_name
from krepair.rules.checkpoints import KIND_OF

_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]{1,249}-[0-9]{1,10}")
_NEVER: Final = frozenset({"__cluster_metadata"})
_MAY_TRUST: Final = frozenset({"recovery"})
_P2_SINCE: Final = (3, 0, 0)


def review(plan: Plan) -> list[Objection]:
    """Return all reasons why this plan must not be applied; with none it may be applied."""
    objections = [
        *_places(plan),
        *_commit(plan),
        *evidence_of_searches(plan),
    ]
    for partition in plan.partitions:
        objections.extend(_partition(plan.policy, partition))
    if plan.root is not None:
        objections.extend(_root(plan.policy, plan.root))
        objections.extend(_trusted(plan, plan.root))
    return objections


def _places(plan: Plan) -> Iterator[Objection]:
    """Check the places where the plan is carried out: each folder appears once, so that figures count it once."""
    if not is_plain_path(plan.log_dir):
        yield Objection("RV09", "", f"log directory {plan.log_dir!r} is not an absolute path without detours")
    for folder, times in Counter(partition.folder for partition in plan.partitions).items():
        if times > 1:
            yield Objection("RV09", folder, f"the folder is there {times} times")


def _trusted(plan: Plan, root: RootPlan) -> Iterator[Objection]:
    """Check that a recovery point advances only to the log end of a partition of the plan that is not skipped."""
    ends = {
        (partition.topic, partition.partition): partition.log_end_offset
        for partition in plan.partitions
        if partition.status != "left alone"
    }
    for change in root.changes:
        for (topic, number), new in change.trusts.items():
            if topic in _NEVER or ends.get((topic, number)) != new:
                text = f"{topic}-{number}: its recovery point would rise to {new}, which is not its log end"
                yield Objection("RV28", change.change_id, text)


def _commit(plan: Plan) -> Iterator[Objection]:
    commit = plan.commit
    if commit.order == "P2" and commit.fence:
        yield Objection(
            "RV04",
            "",
            "order P2 with the recovery guard leaves litter on 2.x; with the recovery guard the order is P1",
        )
    typed = plan.policy.broker_version
    version = version_of(typed)
    if not commit.fence and version is not None:
        needed = "P2" if version >= _P2_SINCE else "P1"
        if commit.order != needed:
            text = f"order {commit.order} without the recovery guard, broker {typed} needs {needed}"
            yield Objection("RV04", "", text)
    elif not commit.fence and (typed or commit.order != "P2"):
        # If no version was typed, only a directory of 3.7 or later reveals one.
        yield Objection(
            "RV04", "", f"order {commit.order} without the recovery guard, for no known version of a broker"
        )
    if not is_known(plan.policy.keep):
        expected = f"{INPLACE}, {UNTIL_VERIFIED} or {AUTO} was expected"
        yield Objection("RV05", "", f"keep {plan.policy.keep!r} is not known; {expected}")


def _partition(policy: Policy, partition: PartitionPlan) -> Iterator[Objection]:
    yield from _partition_names(partition)
    if partition.changes:
        yield from _may_change(policy, partition)
        yield from _changes(policy, partition)


def _partition_names(partition: PartitionPlan) -> Iterator[Objection]:
    where = partition.folder
    if not is_plain_name(partition.folder):
        yield Objection("RV09", where, f"folder {partition.folder!r} is not a plain name")
    if partition.changes and not TOPIC_NAME.fullmatch(partition.topic):
        yield Objection("RV09", where, f"topic {partition.topic!r} is not a name that Kafka allows")
    if partition.folder != f"{partition.topic}-{partition.partition}" and partition.status != "left alone":
        yield Objection("RV09", where, f"folder is not that of {partition.topic}-{partition.partition}")
    for file in partition.files:
        if not is_plain_name(file.name):
            yield Objection("RV09", where, f"file {file.name!r} is not a plain name")


def _may_change(policy: Policy, partition: PartitionPlan) -> Iterator[Objection]:
    where, topic = partition.folder, partition.topic
    if topic in _NEVER:
        yield Objection("RV13", where, f"{topic} is never changed")
    if setting(policy, topic, "remote.storage.enable").strip().lower() == "true":
        yield Objection("RV13", where, f"{topic} is tiered (remote.storage.enable): never changed")


def _changes(policy: Policy, partition: PartitionPlan) -> Iterator[Objection]:
    facts = PartitionFacts.of(policy, partition)
    yield from review_together(facts)
    yield from _what_stays(facts)
    for change in partition.changes:
        expected = undo_for(policy.keep, change)
        kept = policy.keep == AUTO and isinstance(change.undo, KeepOriginal)
        if change.undo != expected and not kept and is_known(policy.keep):
            yield Objection(
                "RV05",
                change.change_id,
                f"keep is {policy.keep}, which means {_tag(expected)!r} here, not {_tag(change.undo)!r}",
            )
        yield from REVIEWS[type(change)].one(facts, change)
    yield from _touched_once(partition)


def _tag(undo: Undo) -> str:
    return str(undo.__struct_config__.tag)


def _what_stays(facts: PartitionFacts) -> Iterator[Objection]:
    """Check that a partition with snapshots keeps one: without a snapshot, a clean start forgets all producers."""
    removed: set[str] = set()
    made: set[str] = set()
    for change in facts.partition.changes:
        if not change.may_move_log_end(facts.bases):  # a snapshot past the new log end has to be removed
            removed.update(filter(SNAPSHOT_NAME.fullmatch, change.takes_out))
            made.update(filter(SNAPSHOT_NAME.fullmatch, change.leaves))
    snapshots = set(filter(SNAPSHOT_NAME.fullmatch, facts.files)) - removed | made
    empty = facts.partition.log_end_offset <= facts.partition.log_start_offset
    if removed and not empty and not snapshots:
        yield Objection("RV23", facts.partition.folder, "no producer snapshot would be left")


def _touched_once(partition: PartitionPlan) -> Iterator[Objection]:
    times = Counter(name for change in partition.changes for name in change.touches)
    twice = sorted(name for name, count in times.items() if count > 1)
    if twice:
        yield Objection("RV30", partition.folder, f"{twice[0]} is touched by two changes")


def _root(policy: Policy, root: RootPlan) -> Iterator[Objection]:
    """Check the root: only the four checkpoints change, only by their own fix, and originals are always kept."""
    if not is_plain_name(root.keeper) or _FOLDER.fullmatch(root.keeper) is None:
        yield Objection("RV28", ".", f"keeper {root.keeper!r} is not the name of a partition folder")
    fixes = fix_names(policy)
    if "checkpoints" not in fixes and not all(change.trusts for change in root.changes):
        yield Objection("RV28", ".", "files of the root change, but checkpoints is not among the fixes")
    files = {file.name: file for file in root.files}
    names = [change.name for change in root.changes]
    there = [change.name for change in root.changes if change.size_before >= 0]
    if not names or names != sorted(set(names)) or [file.name for file in root.files] != there:
        yield Objection("RV28", ".", "changes and fingerprints are not by name, each once, one for one")
    for change in root.changes:
        where = change.change_id
        kind, rule = KIND_OF.get(change.name), RULES.get(change.rule)
        trusted = change.trusts
        own = kind is not None and (change.rule == kind.rule or bool(trusted))
        if not own or where != f"./{change.name}":
            yield Objection(
                "RV28", where, f"{change.name!r} is no checkpoint of the root that {change.rule} is about"
            )
        if trusted and (rule is None or rule.fix not in fixes or rule.fix not in _MAY_TRUST):
            yield Objection("RV28", where, f"{change.rule} does not let a start read less than before")
        file = files.get(change.name)
        if file is None and trusted and change.size_before < 0:
            file = FileFingerprint(name=change.name, size=-1, mtime_ns=0, digest="")
            yield from REVIEWS[type(change)].in_root(change, file)
        elif file is None or min(file.size, file.mtime_ns) < 0:
            yield Objection("RV28", where, "the file has no fingerprint, or one that is out of range")
        else:
            yield from REVIEWS[type(change)].in_root(change, file)
        if not isinstance(change.undo, KeepOriginal):
            yield Objection("RV28", where, "the original would not be kept")
