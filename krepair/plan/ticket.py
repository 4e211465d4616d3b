"""The parts of a plan's page that grow with the number of partitions. They are summed up, so that a ticket stays short.

A table shows the largest rows, then one row for the rest, then the sum. A text that is the same for many partitions is
shown once. The plan file has every line, and ``krepair show PLAN --format json`` prints it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from krepair.formats.words import names_text
from krepair.plan.keep import AUTO, INPLACE
from krepair.plan.model import (
    Change,
    Commit,
    FreeWhenVerified,
    PartitionPlan,
    Plan,
    Room,
    Setting,
)
from krepair.plan.space import apply_order, fit_of, plan_copy_bytes, without_undo
from krepair.plan.view import (
    Cell,
    Section,
    bytes_text,
    count_text,
    folded,
    like_it,
    share_bar,
    size_text,
    table_of,
)

MOST_ROWS: Final = 40
IN_FULL: Final = "Every one of them is in the plan file; krepair show PLAN --format json prints it."

_ORDERS: Final = {
    "P1": "The new log first takes a name under which every broker completes it at a start; then the old files go.",
    "P2": "All new files first take names under which a broker since 3.0 completes them at a start; then the old files "
    "go.",
}
_WITH_FENCE: Final = (
    "While a partition is changed, its recovery point is lowered and the clean-shutdown marker is set aside (the "
    "fence). A broker that is started in the middle can read every record. It only recovers the changed part of this "
    "partition and the active segments of the others."
)
_WITHOUT_FENCE: Final = (
    "Recovery points and the clean-shutdown marker are not touched, because recovery would read the damage and "
    "truncate the log there. The order is the one for the broker version of this plan. Do not start another version "
    "before apply has ended."
)

_FILES: Final = (
    "A file that is made from others is replaced by one rename, so a complete file is there at every moment."
)


def partitions_section(changing: Sequence[PartitionPlan]) -> Section:
    """Space of each partition that changes, and the sum. Equal ones share a row; of many the largest are shown."""
    alike: dict[tuple[Cell, ...], list[PartitionPlan]] = {}
    for partition in changing:
        alike.setdefault((*_figures([partition]), _up_to(partition)), []).append(partition)
    groups = list(alike.items())
    if len(groups) > MOST_ROWS:
        groups.sort(key=lambda group: (-group[1][0].freed_at_purge, group[1][0].folder))
    rows = [(like_it(found[0].folder, len(found) - 1), *cells) for cells, found in groups[:MOST_ROWS]]
    rest = [partition for _, found in groups[MOST_ROWS:] for partition in found]
    if rest:
        rows.append((f"{len(rest):,} others", *_figures(rest), ""))
    if len(changing) > 1:
        rows.append((f"all {len(changing):,} together", *_figures(changing), ""))
    lines = (f"The {MOST_ROWS} that free most are shown. {IN_FULL}",) if rest else ()
    return Section(
        title="Partitions that change",
        lines=lines,
        table=table_of(
            "partition | # .log now | # .log after | left | # back | # needed | up to",
            rows,
        ),
        part="partitions",
    )


def _up_to(partition: PartitionPlan) -> str:
    span = partition.span
    return "-" if span is None else f"offset {span.end_offset:,} ({span.limit})"


def _figures(partitions: Sequence[PartitionPlan]) -> tuple[Cell, ...]:
    before = sum(partition.log_bytes_before for partition in partitions)
    after = sum(partition.log_bytes_after for partition in partitions)
    return (
        size_text(before),
        size_text(after),
        share_bar(after, before),
        size_text(sum(partition.freed_at_purge for partition in partitions)),
        size_text(sum(partition.peak_extra_bytes for partition in partitions)),
    )


def left_alone_section(plan: Plan) -> Section:
    """Partitions that are left alone. If there are many, the rest is summed up by code."""
    alone = [partition for partition in plan.partitions if partition.status == "left alone"]
    shown, rest = alone[:MOST_ROWS], alone[MOST_ROWS:]
    rows = [(partition.folder, partition.code, partition.why) for partition in shown]
    codes = Counter(partition.code for partition in rest)
    rows += [(f"{count:,} others", code, "see the plan file") for code, count in sorted(codes.items())]
    lines = (f"The first {len(shown)} are shown. {IN_FULL}",) if rest else ()
    if any(loses_data(partition.next_command) for partition in alone):
        lines = (OTHERS_FIRST, *lines)
    name = shlex.quote(plan.log_dir)
    commands = dict.fromkeys(partition.next_command.replace("LOGDIR", name) for partition in shown)
    return Section(
        title="Partitions left alone",
        lines=lines,
        table=table_of("partition | code | why", folded(rows)),
        commands=tuple(command for command in commands if command),
        part="partitions",
    )


def notes_section(plan: Plan) -> Section:
    """Notes for the reviewer. A note that is the same for several partitions is shown once."""
    folders: dict[str, list[str]] = {}
    for partition in plan.partitions:
        for note in dict.fromkeys(partition.notes):
            folders.setdefault(note, []).append(partition.folder)
    lines = [f"{names_text(names)}: {note}" for note, names in folders.items()]
    of_root = plan.root.notes if plan.root is not None else ()
    return Section(title="Notes", lines=(*shortened(lines), *of_root), part="partitions")


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, and how many more the plan file has."""
    more = len(lines) - MOST_ROWS
    return (*lines[:MOST_ROWS], f"{more:,} more like these. {IN_FULL}") if more > 0 else tuple(lines)


def settings_section(plan: Plan) -> Section:
    """The settings used. Topics with equal settings share their rows."""
    topics: dict[tuple[Setting, ...], list[str]] = {}
    for topic, settings in sorted(plan.policy.settings.items()):
        topics.setdefault(settings, []).append(topic or "(broker)")
    rows = [
        (names_text(names), setting.key, setting.value, setting.source)
        for settings, names in topics.items()
        for setting in settings
    ]
    shown = rows[: MOST_ROWS * 4]
    more = len(rows) - len(shown)
    return Section(
        title="Settings used",
        lines=(f"Rows shown: {len(shown):,}; in the plan file {more:,} more.",) if more else (),
        table=table_of("topic | key | value | from", shown),
        part="settings",
    )


def order_lines(commit: Commit, changes: Iterable[Change]) -> tuple[str, ...]:
    """How files are swapped in, in words, and why in this order."""
    changes = list(changes)
    words = []
    if any(change.in_order for change in changes):
        words += [_ORDERS.get(commit.order, ""), _WITH_FENCE if commit.fence else _WITHOUT_FENCE]
    if any(not change.segments for change in changes):
        words.append(_FILES)
    reason = f"Why in this order: {commit.why}."
    return (" ".join(filter(None, words)), reason) if words else (reason,)


def part_text(part: int, whole: int, one: str, many: str) -> str:
    """How many of some changes do something: ``3 of 7 changes keep``, ``The change keeps``."""
    return f"{part:,} of {whole:,} changes {many}" if whole > 1 else f"The change {one}"


def keep_text(plan: Plan) -> str:
    """Where originals stay, in a few words."""
    if plan.policy.keep == INPLACE:
        return "stay in place until purge (--keep inplace)"
    if plan.policy.keep == AUTO:
        return "stay in place until purge while there is room, else are freed by apply (--keep auto)"
    return "are freed by apply after the new files are verified (--keep until-verified)"


def room_section(plan: Plan) -> Section:
    """First of a plan with ``--keep auto``: what it needs to begin, what comes back when, and what has no undo."""
    title, room = "What it needs, and what comes back", plan.policy.room
    if not isinstance(room, Room) or not plan.changing:
        return Section(title=title)
    fit = fit_of(plan, room, plan_copy_bytes(plan))
    freed = without_undo(plan)
    folders = dict.fromkeys(change.change_id.partition("/")[0] for change in freed)
    back = plan.freed_at_purge - plan.freed_at_apply
    lines = [
        f"To begin it needs {bytes_text(fit.begin)}; {bytes_text(max(room.free_bytes, 0))} were free when it was made.",
        f"Apply gives back {bytes_text(plan.freed_at_apply)}, and purge {bytes_text(back)} more.",
        f"{count_text(len(freed), 'change')} of {len(_all_changes(plan)):,} have no undo"
        + (f": those of {names_text(tuple(folders))}." if freed else "."),
    ]
    if fit.left:
        lines.append(f"There is no room for {names_text(fit.left)}; apply leaves them, and ends with 3.")
    return Section(title=title, lines=tuple(lines), part="commit")


def _all_changes(plan: Plan) -> list[Change]:
    return [change for one in plan.changing for change in one.changes]


def keep_lines(plan: Plan, changes: Sequence[Change]) -> list[str]:
    """What apply itself frees, what undo can do then, and the order of the partitions."""
    freed = sum(isinstance(change.undo, FreeWhenVerified) for change in changes)
    lines = []
    if freed:
        lines.append(
            f"{part_text(freed, len(changes), 'does not keep', 'do not keep')} the originals. A group of "
            f"segments is staged, committed, "
            "read again from the disk and compared with its originals. Then the originals are freed, and the next "
            "group begins. Other changes of a partition are verified and freed at its end. A change whose originals "
            "are freed cannot be undone: undo takes back the changes of a partition, the last one first, and stops "
            "there."
        )
    if freed:
        names = [partition.folder for partition in apply_order(plan)]
        lines.append(
            f"Partitions are changed in this order: {names_text(names)}. Those that need the least space come first."
        )
    return lines


# -- what comes before a way out that loses data: another replica may have what is lost here

_OPTION: Final = "--accept-data-loss"

OTHERS_FIRST: Final = (
    "If another replica is in sync, nothing has to be lost: while the cluster runs, move the partition away from this "
    "broker and back, see The way back in docs/compare.md. Only for the last copy: the command with "
    "--accept-data-loss."
)


def loses_data(command: str) -> bool:
    """Whether a command accepts that data is lost."""
    return _OPTION in command.split()
