"""Page of ``krepair groups``."""

from __future__ import annotations

from krepair.ops.coordinator_topic import PassedOver
from krepair.ops.groups import GroupsReport
from krepair.pipeline.coordinators.group_model import Group
from krepair.plan.view import Section, Table, View, bytes_text, time_text

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def groups_view(report: GroupsReport, *, detailed: bool) -> View:
    """The groups one a line; each with its members and commits where they were asked for by name.

    Args:
        report: what was found.
        detailed: whether members and commits are shown.
    """
    alive = [group for group in report.groups if group.state != "Dead"]
    dead = len(report.groups) - len(alive)
    lines = [
        f"Partitions of __consumer_offsets: {len(report.partitions)}; {bytes_text(report.bytes_read)} of .log read."
    ]
    if not report.partitions:
        lines = ["There is no partition of __consumer_offsets here."]
    if dead and not detailed:
        lines.append(f"Deleted groups whose tombstones are still in the log: {dead}.")
    if report.unknown:
        lines.append(f"Records with a key that this version does not know: {report.unknown}.")
    if report.damages:
        lines.append(f"Damaged parts passed over: {report.damages}. The answer may lack what they said.")
    listed = report.groups if detailed else alive
    sections = [
        Section(
            title=f"Groups in {report.log_dir}",
            lines=tuple(lines),
            table=Table(
                columns=("group", "kind", "state", "generation", "protocol", "members", "commits", "newest", "pending",
                         "tombstones"),
                rows=tuple(_row(group, report.now_ms) for group in listed),
                right=frozenset({3, 5, 6, 7, 8, 9}),
            ),
        )
    ]  # fmt: skip
    if detailed:
        for group in report.groups:
            sections += _group(group, report.now_ms)
    sections += [
        Section(
            title="Findings",
            table=Table(
                columns=("rule", "partition", "evidence"),
                rows=tuple(
                    (finding.rule, finding.partition, finding.evidence) for finding in report.findings
                ),
            ),
        ),
        passed_over_section(report.damaged),
        Section(title="Engine", lines=(report.engine,) if report.engine else ()),
        Section(title="Next", commands=(report.next_command,) if report.next_command else ()),
    ]
    return View(title="krepair groups", sections=tuple(sections))


def _row(group: Group, now_ms: int) -> tuple[str, ...]:
    newest = max((commit.commit_timestamp for commit in group.commits), default=-1)
    return (
        group.group,
        group.kind,
        group.state,
        "-" if group.generation < 0 else str(group.generation),
        "/".join(part for part in (group.protocol_type, group.protocol) if part) or "-",
        str(len(group.members)),
        str(len(group.commits)),
        age_text(newest, now_ms),
        str(len(group.pending)),
        str(group.tombstones),
    )


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
            table=Table(columns=("member", "client", "host", "subscribes to", "assigned"), rows=members),
        ),
        Section(
            title=f"Committed by {name}",
            table=Table(
                columns=("topic", "partition", "offset", "age", "committed at", "metadata"),
                rows=commits,
                right=frozenset({1, 2, 3}),
            ),
        ),
        Section(
            title=f"In open transactions of {name}",
            table=Table(
                columns=("topic", "partition", "offset", "producer id", "age"),
                rows=pending,
                right=frozenset({1, 2, 3, 4}),
            ),
        ),
    ]


def passed_over_section(damaged: tuple[PassedOver, ...]) -> Section:
    """Damage of a coordinator's topic that was passed over."""
    return Section(
        title="Passed over",
        table=Table(
            columns=("partition", "file", "position", "bytes", "what"),
            rows=tuple(
                (
                    damage.partition,
                    damage.part.file,
                    f"{damage.part.position:,}",
                    f"{damage.part.length:,}",
                    damage.part.text,
                )
                for damage in damaged
            ),
            right=frozenset({2, 3}),
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
