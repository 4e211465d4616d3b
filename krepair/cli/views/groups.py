"""Page of ``krepair groups``."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.checks.catalogue import Finding
from krepair.cli.views.reports import end_of_page
from krepair.formats.damage import shown
from krepair.formats.filenames import OFFSETS_TOPIC
from krepair.ops.coordinator_topic import PassedOver
from krepair.ops.groups import GroupsReport
from krepair.pipeline.coordinators.group_model import Group
from krepair.plan.view import Section, View, bytes_words, count_text, table_of, time_text

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def groups_view(report: GroupsReport, *, detailed: bool, wanted: Sequence[str] = ()) -> View:
    """The groups one a line; each with its members and commits where they were asked for by name.

    Args:
        report: what was found.
        detailed: whether members and commits are shown.
        wanted: groups that were asked for by name.
    """
    alive = [group for group in report.groups if group.state != "Dead"]
    dead = len(report.groups) - len(alive)
    lines = [
        f"Partitions of __consumer_offsets: {len(report.partitions)}; {bytes_words(report.bytes_read)} of .log read."
    ]
    if not report.partitions:
        lines = ["There is no partition of __consumer_offsets here."]
    there = {group.group for group in report.groups}
    lines += [not_there("group", name, OFFSETS_TOPIC) for name in wanted if name not in there]
    if dead and not detailed:
        lines.append(f"Deleted groups whose tombstones are still in the log: {dead}.")
    if report.unknown:
        lines.append(f"Records with a key that this version does not know: {report.unknown}.")
    lines += _misplaced(report) + _out_of_range(report)
    if report.damages:
        lines.append(f"Damaged parts passed over: {report.damages}. The answer may lack what they said.")
    listed = report.groups if detailed else alive
    sections = [
        Section(
            title=f"Groups in {report.log_dir}",
            lines=tuple(lines),
            table=table_of(
                "group | kind | state | # partition | # generation | protocol | # members | # commits | # unseen | "
                "# out of range | # newest | # pending | # tombstones",
                (_row(group, report.now_ms) for group in listed),
            ),
        )
    ]
    if detailed:
        for group in report.groups:
            sections += _group(group, report.now_ms)
    sections += [
        *found_sections(report.findings, report.damaged),
        *end_of_page(report.next_command),
    ]
    return View(title="krepair groups", sections=tuple(sections))


def _row(group: Group, now_ms: int) -> tuple[str, ...]:
    newest = max((commit.commit_timestamp for commit in group.commits), default=-1)
    return (
        group.group,
        group.kind,
        group.state,
        group.partition.rpartition("-")[2],
        "-" if group.generation < 0 else str(group.generation),
        "/".join(part for part in (group.protocol_type, group.protocol) if part) or "-",
        str(len(group.members)),
        str(len(group.commits)),
        str(group.unseen_commits),
        str(sum(commit.out_of_range for commit in group.commits)),
        age_text(newest, now_ms),
        str(len(group.pending)),
        str(group.tombstones),
    )


def _misplaced(report: GroupsReport) -> list[str]:
    """What is said of groups that lie in another partition than the one in which their coordinator looks."""
    unseen = [group for group in report.groups if group.unseen_commits]
    if unseen:
        commits = count_text(sum(group.unseen_commits for group in unseen), "commit")
        groups = count_text(len({group.group for group in unseen}), "group")
        told = (
            "as the metadata log says"
            if report.partitions_recorded
            else "by the folders that are here, since no metadata log is beside them"
        )
        return [
            f"{OFFSETS_TOPIC} has {count_text(report.partitions_of_topic, 'partition')}, {told}.",
            f"{commits} of {groups} lie in a partition that is no longer the right one (unseen).",
            "A broker since 4.0 does not see them; an older one does while it leads both partitions.",
            "Set them again with kafka-consumer-groups.sh --reset-offsets before the consumers start.",
        ]
    if report.twice and not report.partitions_of_topic:
        groups = count_text(len(report.twice), "group")
        return [
            f"{groups} in two partitions of {OFFSETS_TOPIC}, such as {shown(report.twice[0])}.",
            "Somebody has changed how many partitions there are. Nothing here tells which one counts.",
        ]
    return []


def _out_of_range(report: GroupsReport) -> list[str]:
    commits = sum(one.out_of_range for group in report.groups for one in group.commits)
    text = (
        f"Commits outside of the log of their partition: {commits}. A consumer of such a commit starts where "
        "auto.offset.reset says."
    )
    return [text] if commits else []


def _known(offset: int) -> str:
    return "-" if offset < 0 else str(offset)


def _group(group: Group, now_ms: int) -> list[Section]:
    name = f"{group.group} ({group.partition})"
    history = group.history
    lines = []
    if history.generations:
        lines.append(
            f"{history.generations} generations in the log; subscriptions changed {history.changes} times."
        )
    lines += [f"Could not be read: {problem}" for problem in group.problems]
    members = tuple(
        (
            member.member_id,
            member.client_id,
            member.client_host,
            f"/{member.topic_regex}/" if member.topic_regex else ", ".join(member.topics),
            ", ".join(f"{topic}: {' '.join(map(str, parts))}" for topic, parts in member.assigned.items()),
        )
        for member in group.members
    )
    commits = tuple(
        (
            commit.topic,
            str(commit.partition),
            commit.problem or str(commit.offset),
            _known(commit.log_start),
            _known(commit.log_end),
            "yes" if commit.out_of_range else "",
            age_text(commit.commit_timestamp, now_ms),
            time_text(commit.commit_timestamp),
            commit.metadata,
        )
        for commit in group.commits
    )
    pending = tuple(
        (
            commit.topic,
            str(commit.partition),
            str(commit.offset),
            str(commit.producer_id),
            age_text(commit.commit_timestamp, now_ms),
        )
        for commit in group.pending
    )
    return [
        Section(
            title=f"Members of {name}",
            lines=tuple(lines),
            table=table_of("member | client | host | subscribes to | assigned", members),
        ),
        Section(
            title=f"Committed by {name}",
            table=table_of(
                "topic | # partition | # offset | # log start | # log end | out of range | # age | committed at | "
                "metadata",
                commits,
            ),
        ),
        Section(
            title=f"In open transactions of {name}",
            table=table_of("topic | # partition | # offset | # producer id | # age", pending),
        ),
    ]


def not_there(kind: str, name: str, topic: str) -> str:
    """A name that was asked for and is not there: a typo, or it has expired, or its partition is not here."""
    return (
        f"No {kind} {shown(name)}: no record of it is in the partitions of {topic} here. Look at the spelling. It may "
        "also have expired, or its partition may be on other brokers only."
    )


def found_sections(findings: Sequence[Finding], damaged: Sequence[PassedOver]) -> tuple[Section, Section]:
    """What was found in a coordinator's topic, and the damage that was passed over."""
    found = ((one.rule, one.partition, one.evidence) for one in findings)
    passed_over = (
        (one.partition, one.part.file, f"{one.part.position:,}", f"{one.part.length:,}", one.part.text)
        for one in damaged
    )
    return (
        Section(title="Findings", table=table_of("rule | partition | evidence", found)),
        Section(
            title="Passed over", table=table_of("partition | file | # position | # bytes | what", passed_over)
        ),
    )


def age_text(then_ms: int, now_ms: int) -> str:
    """How long ago, in its two largest units; a dash where it is not known."""
    if then_ms < 0:
        return "-"
    left = now_ms - then_ms
    if left < 0:
        return "in the future"
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"
