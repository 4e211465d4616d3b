"""The views of a plan, made from the plan alone: a page, Markdown for a change ticket, JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import UnsetType

from krepair.formats.broker_version import why_not_tried
from krepair.formats.java_numbers import INT64_MAX
from krepair.plan.actions.action import OTHERS_HAVE
from krepair.plan.actions.listing import LISTINGS
from krepair.plan.actions.table import action_of, by_kind
from krepair.plan.figures import add_tallies
from krepair.plan.keys_view import keys_sections
from krepair.plan.markdown import markdown
from krepair.plan.model import (
    Change,
    Evidence,
    FreeWhenVerified,
    KeepOriginal,
    NotReversible,
    PartitionPlan,
    Plan,
    Preview,
)
from krepair.plan.replicas_view import replicas_sections
from krepair.plan.ticket import (
    keep_lines,
    keep_text,
    later_horizon_lines,
    left_alone_section,
    notes_section,
    order_lines,
    part_text,
    partitions_section,
    room_section,
    settings_section,
    shortened,
    verify_seconds,
)
from krepair.plan.view import (
    NAMES_AND_VALUES,
    Cell,
    Section,
    View,
    bytes_text,
    count_text,
    expected_text,
    horizon_text,
    table_of,
    time_text,
)
from krepair.rules.evidence import NONE
from krepair.rules.reasons import told_of

NEXT = "Next"
BACK = "To take it back"
FREE = "To free the originals"
NEXT_TITLES = frozenset({NEXT, BACK, FREE})
"""Titles of the sections with what is to be typed. A reader may paste a whole section."""
_FEW_PARTITIONS = 5
_BY_TIME = {"in-sync": "with --cluster", "as-broker": "with --as-broker"}
_MOST_ROWS = 200
_WITHOUT_KEYS = (
    "Where records are removed by key, batches and bytes are counted as they are without these records."
)


class Again(NamedTuple):
    """Commands that make a plan again, with one thing changed; empty where they are not known.

    Attributes:
        with_evidence: with what the running brokers say.
        with_later_horizon: with the time of the plan as the delete horizon.
        after_stop: of a preview, without ``--preview``.
    """

    with_evidence: str = ""
    with_later_horizon: str = ""
    after_stop: str = ""


NOTHING_KNOWN: Final = Again()


def to_markdown(plan: Plan, plan_path: str = "PLAN", again: Again = NOTHING_KNOWN) -> str:
    """A page for a change ticket.

    Args:
        plan: any plan.
        plan_path: path of its file, for the commands.
        again: what to type for the plan with one thing changed.
    """
    return markdown(plan_view(plan, plan_path, again))


def plan_view(plan: Plan, plan_path: str = "PLAN", again: Again = NOTHING_KNOWN) -> View:
    """The page of a plan. If the plan changes nothing, the page says so in its first lines; see ``to_markdown``."""
    sections = (
        room_section(plan),
        _preview(plan, plan_path, again.after_stop),
        _risk_section(plan, OTHERS_HAVE, "Who else has what is cut here"),
        *replicas_sections(plan, again.with_evidence),
        _summary(plan, again.with_later_horizon),
        _what_happens(plan),
        *_listings(plan),
        partitions_section(plan.changing),
        *keys_sections(plan),
        left_alone_section(plan),
        _reasons(plan),
        _horizons(plan),
        _risks(plan),
        _commit_and_undo(plan),
        settings_section(plan),
        notes_section(plan),
        *next_sections(plan, plan_path),
    )
    what = "preview" if isinstance(plan.preview, Preview) else "plan"
    return View(
        title=f"krepair {what} {plan.plan_id}",
        sections=tuple(section for section in sections if not section.empty),
    )


def _risk_section(plan: Plan, code: str, title: str) -> Section:
    return Section(title=title, lines=tuple(risk.text for risk in plan.risks if risk.code == code))


def _preview(plan: Plan, plan_path: str, after_stop: str) -> Section:
    title = "This is a preview: apply refuses it"
    if not isinstance(plan.preview, Preview):
        return Section(title=title)
    return Section(
        title=title,
        lines=(
            "It was made while a broker may have been running.",
            "After the stop type the same command without --preview. Then krepair diff shows what has changed since.",
            "What could not be known:",
            *(f"- {line}" for line in plan.preview.unknown),
        ),
        commands=tuple(
            command for command in (after_stop, f"krepair diff {shlex.quote(plan_path)} PLAN") if command
        ),
    )


def changes_of(plan: Plan) -> list[Change]:
    """Every change, those of the root first."""
    of_root = plan.root.changes if plan.root is not None else ()
    return [*of_root, *(change for partition in plan.partitions for change in partition.changes)]


def _summary(plan: Plan, later: str) -> Section:
    changing = plan.changing
    alone = sum(partition.status == "left alone" for partition in plan.partitions)
    nothing = len(plan.partitions) - len(changing) - alone
    policy = plan.policy
    before = sum(partition.log_bytes_before for partition in changing)
    after = sum(partition.log_bytes_after for partition in changing)
    rows = [
        ("host", plan.host),
        ("log directory", plan.log_dir),
        ("cluster id, broker id", f"{plan.cluster_id or '-'}, {plan.broker_id or '-'}"),
        ("krepair, rules", f"{plan.tool_version}, {policy.rules}"),
        ("broker version", _broker_version(policy.broker_version)),
        ("fixes", ", ".join(policy.fixes)),
        ("clock of the decisions", time_text(policy.now_ms)),
        ("delete horizon", _chosen_horizon(plan)),
        ("partitions", f"{len(changing)} to change, {nothing} with nothing to do, {alone} left alone"),
    ]
    if changing:
        rows += [
            (".log bytes of them before", bytes_text(before)),
            (".log bytes of them after", bytes_text(after)),
            ("freed right after apply", _freed_at_apply(plan.freed_at_apply)),
            ("freed after purge", bytes_text(plan.freed_at_purge)),
            ("originals", keep_text(plan)),
            ("peak extra space", bytes_text(plan.peak_extra_bytes)),
            ("expected time of apply", expected_text(plan.expected_seconds)),
            ("expected time of verify", expected_text(verify_seconds(plan))),
            (
                "the broker is down for",
                "its stop, apply, verify and its start; krepair check says what the start does",
            ),
        ]
    if plan.uncleanable_partitions:
        rows.append(
            (
                "uncleanable (KIP-346)",
                f"{count_text(plan.uncleanable_partitions, 'partition')}, {bytes_text(plan.uncleanable_bytes)}",
            )
        )
    rows.append(("digest", plan.digest))
    if plan.root is not None:
        rows.append(("files of the root to replace", f"{len(plan.root.changes)}"))
    lines = () if changes_of(plan) else ("This plan changes nothing.", *later_horizon_lines(plan, later))
    return Section(
        title="Summary", lines=(*lines, *_earlier_than_asked(plan)), table=table_of(NAMES_AND_VALUES, rows)
    )


def _broker_version(text: str) -> str:
    later = why_not_tried(text)
    return f"{text} ({later})" if later else text or "not given (--broker-version)"


def _asked_horizon(text: str) -> str:
    is_time = text.isascii() and text.isdigit() and len(text) <= len(str(INT64_MAX))
    return time_text(int(text)) if is_time else text


def _chosen_horizon(plan: Plan) -> str:
    """The delete horizon of the whole plan: what was asked for, and where it is not used."""
    asked = _asked_horizon(plan.policy.horizon)
    chosen = Counter(choice.name for one in plan.partitions for choice in one.horizons if choice.chosen)
    if not chosen[NONE]:
        return asked
    if chosen[NONE] == chosen.total():
        return f"{NONE} ({asked} was asked; no evidence of other replicas)"
    return f"{asked}; {NONE} in {count_text(chosen[NONE], 'partition')} (no evidence of other replicas)"


def _earlier_than_asked(plan: Plan) -> tuple[str, ...]:
    """That a time was asked for which what is known of other replicas does not allow, and what is used."""
    if _asked_horizon(plan.policy.horizon) == plan.policy.horizon:
        return ()
    used: dict[str, set[int]] = {}
    for one in plan.partitions:
        for choice in one.horizons:
            if choice.chosen and choice.name == "TIME" and choice.horizon_ms < int(plan.policy.horizon):
                kind = one.evidence.kind if isinstance(one.evidence, Evidence) else ""
                used.setdefault(_BY_TIME.get(kind, "here"), set()).add(choice.horizon_ms)
    return tuple(
        f"The TIME of --delete-horizon is later than now minus delete.retention.ms: {word} the plan uses "
        f"{time_text(max(times))}{'' if len(times) == 1 else ' or earlier, by topic'}. A later one needs --replicas "
        "or --only-replica."
        for word, times in sorted(used.items())
    )


def _freed_at_apply(count: int) -> str:
    return bytes_text(count) if count >= 0 else f"{bytes_text(count)}: takes space until purge"


def _what_happens(plan: Plan) -> Section:
    lines = [line for action, changes in by_kind(changes_of(plan)) for line in action.summary(changes)]
    return Section(title="What will happen", lines=tuple(lines))


def _listings(plan: Plan) -> Iterator[Section]:
    """The tables with rows for single changes."""
    for listing in LISTINGS:
        rows = [
            row
            for change in changes_of(plan)
            if (action := action_of(change)).listing is listing
            for row in action.rows(change)
        ]
        shown = tuple(rows[:_MOST_ROWS])
        lines = [listing.note] if rows and listing.note else []
        if len(rows) > len(shown):
            lines.append(f"The first {len(shown)}; {len(rows) - len(shown)} more are in the plan file.")
        table = table_of(listing.columns, shown)
        yield Section(title=listing.title, lines=tuple(lines), table=table)


def _reasons(plan: Plan) -> Section:
    tallies = add_tallies(tally for partition in plan.partitions for tally in partition.reasons)
    rows = []
    for tally in tallies:
        known = told_of(tally.reason)
        rows.append(
            (
                tally.reason,
                known.verdict.value if known else "?",
                tally.batches,
                tally.bytes,
                known.text if known else "a reason that this krepair does not know",
                known.source if known else "-",
            )
        )
    by_key = any(not isinstance(partition.compaction, UnsetType) for partition in plan.partitions)
    lines = (_WITHOUT_KEYS,) if by_key and rows else ()
    table = table_of("code | batch | # batches | # bytes before | why | source", rows)
    return Section(title="Reasons", lines=lines, table=table)


def _horizons(plan: Plan) -> Section:
    with_choices = [partition for partition in plan.partitions if partition.horizons]
    if len(with_choices) <= _FEW_PARTITIONS:
        rows: list[tuple[Cell, ...]] = [
            (
                partition.folder,
                choice.name,
                horizon_text(choice.horizon_ms),
                choice.log_bytes_after,
                choice.markers_dropped,
                "chosen" if choice.chosen else "",
            )
            for partition in with_choices
            for choice in partition.horizons
        ]
    else:
        rows = list(_summed_horizons(with_choices))
    return Section(
        title="What each delete horizon would give",
        table=table_of(
            "partition | horizon | markers may be removed up to | # span bytes after | # markers dropped | ",
            rows,
        ),
    )


def _summed_horizons(partitions: Iterable[PartitionPlan]) -> Iterable[tuple[Cell, ...]]:
    sums: dict[str, tuple[int, int, int, bool]] = {}
    for partition in partitions:
        for choice in partition.horizons:
            count, size, markers, chosen = sums.get(choice.name, (0, 0, 0, False))
            sums[choice.name] = (
                count + 1,
                size + choice.log_bytes_after,
                markers + choice.markers_dropped,
                chosen or choice.chosen,
            )
    for name, (count, size, markers, chosen) in sums.items():
        yield (f"{count} together", name, "by partition", size, markers, "chosen" if chosen else "")


def _risks(plan: Plan) -> Section:
    return Section(title="Risks", lines=tuple(f"{risk.code}: {risk.text}" for risk in plan.risks))


def _commit_and_undo(plan: Plan) -> Section:
    changes = changes_of(plan)
    if not changes:
        return Section(title="Commit and undo")
    lines = [*order_lines(plan.commit, changes)]
    if isinstance(plan.preview, Preview):
        lines = [f"The order of commit is {plan.commit.why}."]
    kept = sum(isinstance(change.undo, KeepOriginal) for change in changes)
    lines += keep_lines(plan, changes)
    if kept:
        lines.append(
            f"{part_text(kept, len(changes), 'keeps', 'keep')} the originals in krepair~{plan.plan_id}/ of the "
            f"partition. "
            "krepair undo puts every byte and modification time back. That is possible until krepair purge, or until a "
            "broker has written to the partition."
        )
    if plan.root is not None:
        lines.append(
            f"Those of the root are kept in {plan.root.keeper}/krepair~{plan.plan_id}~root/: a folder of krepair's in "
            "the root would keep every broker from starting. A damaged one is replaced first and put back last; lines "
            "change last, and are taken back first."
        )
    lines += shortened(
        [
            f"{change.change_id} cannot be undone: {change.undo.why}"
            for change in changes
            if isinstance(change.undo, NotReversible)
        ]
    )
    return Section(title="Commit and undo", lines=tuple(lines))


def ways_back(name: str, *, some: bool) -> tuple[Section, Section]:
    """The sections with what takes a plan back, and with what frees its originals.

    Args:
        name: of the plan's file, as a shell takes it.
        some: whether only some of the originals are kept.
    """
    kept = " that are still kept" if some else ""
    return (
        Section(
            title=BACK,
            lines=(
                f"This takes back what is {'not freed' if some else 'changed'}, with the broker stopped:",
            ),
            commands=(f"krepair undo {name}",),
        ),
        Section(
            title=FREE,
            lines=(
                f"Type this only if verify ended with 0. It frees the originals{kept}; there is no undo after it:",
            ),
            commands=(f"krepair purge {name}",),
        ),
    )


def _ways_back(plan: Plan, name: str) -> tuple[Section, ...]:
    changes = changes_of(plan)
    freed = sum(isinstance(change.undo, FreeWhenVerified) for change in changes)
    if freed == len(changes):
        return ()
    return ways_back(name, some=freed > 0)


def next_sections(plan: Plan, plan_path: str, place: Sequence[str] = ()) -> tuple[Section, ...]:
    """The commands that follow a plan.

    Args:
        plan: any plan.
        plan_path: path of its file.
        place: words for where the work is done: ``--scratch``.
    """
    if not changes_of(plan) or isinstance(plan.preview, Preview):
        return ()
    name = shlex.quote(plan_path)
    verify = shlex.join(("krepair", "verify", plan_path, *place))
    apply = shlex.join(("krepair", "apply", plan_path, *place))
    first = Section(
        title=NEXT,
        lines=("With the broker stopped, as a user who may write the log directory:",),
        commands=(apply, verify),
    )
    return (first, *_ways_back(plan, name))


def with_next(view: View, *instead: Section) -> View:
    """The page of a plan with other commands at its end."""
    before = [section for section in view.sections if section.title not in NEXT_TITLES]
    after = [section for section in view.sections if section.title in NEXT_TITLES]
    return View(title=view.title, sections=(*before, *(instead if after else ())))
