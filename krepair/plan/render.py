"""Build the page of a plan from the plan and its context: first the short page, then its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import UnsetType

from krepair.formats.broker_version import why_not_tried
from krepair.formats.words import count_text, few, names_text, time_text
from krepair.next_command import Next
from krepair.plan.change_words import LISTINGS, by_kind, words_of
from krepair.plan.codes import OTHERS_FIRST
from krepair.plan.fit import fit_of
from krepair.plan.keep import AUTO, INPLACE, is_freed_by_apply
from krepair.plan.model import (
    Change,
    Commit,
    Evidence,
    KeepOriginal,
    KeyCompaction,
    NotReversible,
    PartitionPlan,
    Plan,
    Preview,
    Room,
    Setting,
)
from krepair.plan.risks import consents_of
from krepair.plan.short import (
    NOTHING_KNOWN,
    UNTIL,
    DiskObservation,
    PageContext,
    changes_of,
    earlier_than_asked,
    later_bytes,
    left_out_bytes,
    short_page,
)
from krepair.plan.space import add_tallies, apply_order, free_after_apply, verify_seconds
from krepair.plan.view import (
    NAMES_AND_VALUES,
    PARTS,
    Cell,
    Section,
    Table,
    View,
    asked_horizon,
    bytes_text,
    bytes_words,
    expected_text,
    folded,
    horizon_text,
    like_it,
    share_text,
    size_text,
    table_of,
)
from krepair.rules.evidence import BY_TIME, DESCRIBE, NONE
from krepair.rules.reasons import Reason, reason_text

_FEW_PARTITIONS: Final = 5
_MOST_LISTED: Final = 200
_WITHOUT_KEYS: Final = (
    "Where records are removed by key, batches and bytes are counted as they are without these records."
)


MOST_ROWS: Final = 40
IN_FULL: Final = "All of them are in the plan file; krepair show PLAN --format json prints it."

_ORDERS: Final = {
    "P1": "The new log first takes a name under which every broker completes it at a start; then the old files go.",
    "P2": "All new files first take names under which a broker since 3.0 completes them at a start; then the old files "
    "go.",
}
_WITH_FENCE: Final = (
    "While a partition is changed, its recovery point is lowered and the clean-shutdown marker is moved away (the "
    "recovery guard). A broker that is started in the middle can read every record. It only recovers the changed part "
    "of this partition and the active segments of the others."
)
_WITHOUT_FENCE: Final = (
    "Recovery points and the clean-shutdown marker are not touched, because recovery would read the damage and "
    "truncate the log there. The order is the one for the broker version of this plan. Do not start another version "
    "before apply has ended."
)

_FILES: Final = (
    "A file that is made from others is replaced by one rename, so a complete file is there at every moment."
)


def plan_view(plan: Plan, context: PageContext = NOTHING_KNOWN) -> View:
    """Return the page of a plan.

    Args:
        context: context of the plan: path, free space, objections.
    """
    sections = (
        _what_happens(plan),
        *_listings(plan),
        _partitions_section(plan.changing),
        _records(plan),
        _left_alone_section(plan),
        context.unmended,
        _notes_section(plan),
        _reasons(plan),
        _horizons(plan, context.with_later_horizon),
        _how_it_was_made(plan, context),
        _settings_section(plan),
        replicas_section(plan, context.with_evidence),
        _space_and_time(plan, context),
        _commit_and_undo(plan),
        *_refusals(plan, context),
        _consents(plan),
        _risks(plan),
    )
    short = short_page(plan, context)
    order = list(PARTS)
    full = sorted(
        (section for section in sections if not section.empty), key=lambda section: order.index(section.part)
    )
    return View(title=short.title, sections=(*short.sections, *full))


def _how_it_was_made(plan: Plan, context: PageContext) -> Section:
    policy = plan.policy
    rows = [
        ("cluster id, broker id", f"{plan.cluster_id or '-'}, {plan.broker_id or '-'}"),
        ("krepair, rules", f"{plan.tool_version}, {policy.rules}"),
        ("broker version", _broker_version(policy.broker_version)),
        ("fixes", ", ".join(policy.fixes)),
        ("clock of the decisions", time_text(policy.now_ms)),
        ("delete horizon", _chosen_horizon(plan)),
    ]
    return Section(
        title="How it was made",
        table=table_of(NAMES_AND_VALUES, rows),
        commands=(context.same,) if context.same else (),
        part="settings",
    )


def _space_and_time(plan: Plan, context: PageContext) -> Section:
    changing, disk, room = plan.changing, context.observed, plan.policy.room
    lines = list(disk.lines) if isinstance(disk, DiskObservation) and disk.fits else []
    rows = []
    if changes_of(plan):
        rows += [
            (".log now", size_text(sum(partition.log_bytes_before for partition in changing))),
            (".log after", size_text(sum(partition.log_bytes_after for partition in changing))),
            ("free after apply", _more_or_less(free_after_apply(plan))),
            ("free after purge", _more_or_less(plan.freed_at_purge)),
            ("originals", _keep_text(plan)),
            ("needed while apply runs", size_text(plan.peak_extra_bytes)),
            ("expected time of apply", expected_text(plan.expected_seconds)),
            ("expected time of verify", expected_text(verify_seconds(plan))),
        ]
    if isinstance(room, Room) and changing:
        fit = fit_of(plan, room)
        free = size_text(max(room.free_bytes, 0))
        rows.append(("needed to begin", f"{size_text(fit.begin.peak)}; {free} were free when it was made"))
        if fit.left:
            lines.append(f"There is no room for {names_text(fit.left)}; apply leaves them, and ends with 3.")
    if plan.uncleanable_partitions:
        partitions = count_text(plan.uncleanable_partitions, "partition")
        rows.append(("uncleanable (KIP-346)", f"{partitions}, {size_text(plan.uncleanable_bytes)}"))
    return Section(
        title="Space and time",
        lines=tuple(lines),
        table=table_of(NAMES_AND_VALUES, rows),
        part="commit",
    )


def _more_or_less(count: int) -> str:
    """Describe an amount of free bytes, compared with now."""
    return f"up to {size_text(-count)} less than now" if count < 0 else f"{size_text(count)} more than now"


def _refusals(plan: Plan, context: PageContext) -> Iterator[Section]:
    """Yield why apply would refuse the plan, if the short page has no room for all of it."""
    if isinstance(plan.preview, Preview):
        yield Section(
            title="This is a preview: apply refuses it",
            lines=(
                "It was made while a broker may have been running. What could not be known:",
                *(f"- {line}" for line in plan.preview.unknown),
            ),
            part="risks",
        )
    rows = tuple(
        (objection.code, objection.where or "plan", objection.text) for objection in context.objections
    )
    yield Section(
        title="The review objects: apply will refuse this plan",
        table=table_of("code | where | what", rows),
        part="risks",
    )


def _consents(plan: Plan) -> Section:
    rows = [
        (
            consent.option,
            " ".join(consent.values) or "-",
            f"{consent.text} {consent.more}",
            few(consent.folders) if consent.folders else "no partition rests on it",
        )
        for consent in consents_of(plan)
    ]
    return Section(
        title="Consents",
        table=table_of("consent | given for | what it means | partitions", rows),
        part="risks",
    )


def _broker_version(text: str) -> str:
    later = why_not_tried(text)
    return f"{text} ({later})" if later else text or "not given (--broker-version)"


def _chosen_horizon(plan: Plan) -> str:
    """Describe the delete horizon of the whole plan: what was requested, and where it is not used."""
    requested = asked_horizon(plan.policy.horizon)
    chosen = Counter(
        choice.name for partition in plan.partitions for choice in partition.horizons if choice.chosen
    )
    if not chosen[NONE]:
        return requested
    if chosen[NONE] == chosen.total():
        return f"{NONE} ({requested} was asked; no evidence of other replicas)"
    return f"{requested}; {NONE} in {count_text(chosen[NONE], 'partition')} (no evidence of other replicas)"


def _what_happens(plan: Plan) -> Section:
    sentences = (
        sentence for words, changes in by_kind(changes_of(plan)) for sentence in words.tells(changes)
    )
    lines = [f"{first}{rest}." for first, rest in sentences]
    return Section(title="What will happen", lines=tuple(lines), part="partitions")


def _listings(plan: Plan) -> Iterator[Section]:
    """Yield the tables with rows for single changes."""
    for listing in LISTINGS:
        rows = folded(
            row
            for change in changes_of(plan)
            if (words := words_of(change)).listing is listing
            for row in words.rows(change)
        )
        note = (listing.note,) if rows and listing.note else ()
        yield Section(
            title=listing.title,
            lines=(*note, *_left_out(rows, _MOST_LISTED)),
            table=table_of(listing.columns, rows[:_MOST_LISTED]),
            part="partitions",
        )


def _reasons(plan: Plan) -> Section:
    tallies = add_tallies(tally for partition in plan.partitions for tally in partition.reasons)
    rows = []
    for tally in tallies:
        known = reason_text(tally.reason)
        rows.append(
            (
                tally.reason,
                known.verdict.value if known else "?",
                tally.batches,
                size_text(tally.bytes),
                known.text if known else "a reason that this krepair does not know",
                known.source if known else "-",
            )
        )
    by_key = any(not isinstance(partition.compaction, UnsetType) for partition in plan.partitions)
    lines = (_WITHOUT_KEYS,) if by_key and rows else ()
    table = table_of("code | batch | # batches | # size now | why | source", rows)
    return Section(title="Reasons", lines=lines, table=table, part="reasons")


def _horizons(plan: Plan, later_command: Next) -> Section:
    """Return the result of each choice: for each partition if the partitions are few, else for all together."""
    some = [partition for partition in plan.partitions if partition.horizons]
    alone = len(some) <= _FEW_PARTITIONS
    groups = (
        [(partition.folder, [partition]) for partition in some]
        if alone
        else [(f"{len(some)} together", some)]
    )
    later = later_bytes(plan)
    lines = list(earlier_than_asked(plan).values())
    if later > 0 and later_command:
        lines.append(
            f"A later delete horizon would free {size_text(later)} more, if no reader is further behind:"
        )
    return Section(
        title="What each delete horizon would give",
        lines=tuple(lines),
        commands=(later_command,) if later > 0 and later_command else (),
        part="horizons",
        table=table_of(
            "partition | horizon | markers may be removed up to | # .log after, up to there | # markers that go | "
            "# tombstones that go | # tombstones that stay | ",
            (row for label, partitions in groups for row in _by_horizon(label, partitions)),
        ),
    )


def _by_horizon(label: str, partitions: Sequence[PartitionPlan]) -> Iterator[tuple[Cell, ...]]:
    by_key = [
        partition.compaction for partition in partitions if isinstance(partition.compaction, KeyCompaction)
    ]
    for name in dict.fromkeys(choice.name for partition in partitions for choice in partition.horizons):
        choices = [choice for partition in partitions for choice in partition.horizons if choice.name == name]
        tombstones = [choice for keys in by_key for choice in keys.horizons if choice.name == name]
        yield (
            label,
            name,
            horizon_text(choices[0].horizon_ms) if len(partitions) == 1 else "by partition",
            size_text(sum(choice.log_bytes_after for choice in choices)),
            sum(choice.markers_dropped for choice in choices),
            sum(choice.dropped for choice in tombstones),
            sum(choice.kept for choice in tombstones),
            "chosen" if any(choice.chosen for choice in choices) else "",
        )


def _risks(plan: Plan) -> Section:
    lines = tuple(f"{risk.code}: {risk.text} {risk.more}".rstrip() for risk in plan.risks)
    return Section(title="Risks", lines=lines, part="risks")


def _commit_and_undo(plan: Plan) -> Section:
    changes = changes_of(plan)
    if not changes:
        return Section(title="Commit and undo", part="commit")
    lines = [*_order_lines(plan.commit, changes)]
    if isinstance(plan.preview, Preview):
        lines = [f"The order of commit is {plan.commit.why}."]
    kept = sum(isinstance(change.undo, KeepOriginal) for change in changes)
    lines += _keep_lines(plan, changes)
    if kept:
        lines.append(
            f"{_part_text(kept, len(changes), 'keeps', 'keep')} the originals in krepair~{plan.plan_id}/ of the "
            f"partition. krepair undo puts every byte and modification time back. That is possible {UNTIL}."
        )
    if plan.root is not None:
        lines.append(
            f"Those of the root are kept in {plan.root.keeper}/krepair~{plan.plan_id}~root/: a folder of krepair's in "
            "the root would keep every broker from starting. A damaged one is replaced first and put back last; lines "
            "change last, and are undone first."
        )
    never = [
        f"{change.change_id} cannot be undone: {change.undo.why}"
        for change in changes
        if isinstance(change.undo, NotReversible)
    ]
    return Section(
        title="Commit and undo", lines=(*lines, *never[:MOST_ROWS], *_left_out(never)), part="commit"
    )


# -- the part of a plan's page about key compaction: records removed in each partition

_SUMMED: Final = (
    "keys",
    "records",
    "superseded",
    "tombstones_dropped",
    "tombstones_kept",
    "aborted",
    "keyless",
    "kept",
    "bytes_before",
    "bytes_after",
)


def _records(plan: Plan) -> Section:
    """Return what key compaction removes and keeps; an empty section without key compaction."""
    compacted = [
        (partition, partition.compaction)
        for partition in plan.partitions
        if isinstance(partition.compaction, KeyCompaction)
    ]
    shown = sorted(compacted, key=lambda pair: (pair[1].bytes_after - pair[1].bytes_before, pair[0].folder))[
        :MOST_ROWS
    ]
    rows = folded((partition.folder, *_figures([keys])) for partition, keys in shown)
    if len(compacted) > len(shown):
        shown_folders = {partition.folder for partition, _ in shown}
        others = [keys for partition, keys in compacted if partition.folder not in shown_folders]
        rows.append((f"{len(others):,} others", *_figures(others)))
    if len(compacted) > 1:
        rows.append((f"all {len(compacted):,} together", *_figures([keys for _, keys in compacted])))
    lines = [*_notes([keys for _, keys in compacted]), *_planned([partition for partition, _ in compacted])]
    if len(compacted) > len(shown):
        lines.append(f"The {len(shown)} that free most are shown. {IN_FULL}")
    table = table_of(
        "partition | # keys | # records | # superseded | # tombstones gone | # tombstones that stay | "
        "# aborted | # without key, stay | # records that stay | # bytes before | # bytes after",
        rows,
    )
    return Section(
        title="Records by key, in the cleanable range", lines=tuple(lines), table=table, part="partitions"
    )


def _figures(compactions: Sequence[KeyCompaction]) -> tuple[str, ...]:
    return tuple(f"{sum(getattr(keys, name) for keys in compactions):,}" for name in _SUMMED)


def _notes(compactions: Sequence[KeyCompaction]) -> Iterator[str]:
    if not compactions:
        return
    rewritten, emptied = (
        sum(keys.rewritten for keys in compactions),
        sum(keys.emptied for keys in compactions),
    )
    yield (
        f"Batches that lose some of their records, and are rewritten: {rewritten:,}. Batches that lose all of them: "
        f"{emptied:,}. Every other batch is copied as it is."
    )
    keyless = sum(keys.keyless for keys in compactions)
    if keyless:
        yield f"{count_text(keyless, 'record')} without a key: kept. A broker's cleaner would drop what has no key."
    scratch = sum(keys.scratch_bytes for keys in compactions)
    yield (
        f"What does not fit into memory goes to a scratch folder (--scratch DIR, for plan, apply and verify): "
        f"{bytes_text(scratch)} at most, usually much less."
    )


def _planned(partitions: Sequence[PartitionPlan]) -> Iterator[str]:
    changes = (change for partition in partitions for change in partition.changes)
    keys = [source.by_key for change in changes for source in change.decides_on]
    named = [stay for stay in keys if stay is not None and isinstance(stay.stays, str)]
    if named:
        yield (
            f"The plan names the last record of each key in {count_text(len(named), 'segment')}: "
            f"{count_text(sum(stay.kept for stay in named), 'record stays', 'records stay')}. apply relies on "
            "that, and verifies it against the log before it changes anything."
        )


# -- the part of a plan's page about other replicas: what they decide, and what more could be removed

_WHAT: Final = {
    "none": "markers and tombstones stay whole",
    "replicas": "what no other replica needs goes",
    "in-sync": "by time, all other replicas are in sync without this one",
    "only-replica": "consent: no other replica",
    "as-broker": "consent: by time alone",
}
_MOST: Final = 3


def replicas_section(plan: Plan, with_evidence: Next) -> Section:
    """Return what other replicas decide; an empty section if nothing was decided on markers or keys.

    Args:
        with_evidence: command that makes the plan again with the answers of the other brokers; may be empty.
    """
    pairs = [
        (partition, partition.evidence)
        for partition in plan.partitions
        if isinstance(partition.evidence, Evidence)
    ]
    left_out = left_out_bytes(plan)
    later = sum(evidence.later_bytes for _, evidence in pairs if evidence.keeps_all)
    lines = list(_found(pairs)) if pairs else []
    if left_out:
        lines.append(
            f"{bytes_words(left_out)} more would go with evidence that no other replica needs them. After this "
            "broker has stopped, ask the running brokers, and make the plan again:"
        )
    elif later:
        lines.append(
            f"Up to {bytes_words(later)} more would go with evidence and a later --delete-horizon: krepair explain "
            "evidence."
        )
    return Section(
        title="Other replicas",
        lines=tuple(lines),
        table=_parts(plan, pairs) if pairs else None,
        commands=(DESCRIBE, with_evidence) if left_out and with_evidence else (),
        part="replicas",
    )


def _found(known: Sequence[tuple[PartitionPlan, Evidence]]) -> Iterator[str]:
    """Yield how many partitions have each kind of evidence, and why others have none."""
    for kind, count in sorted(Counter(evidence.kind for _, evidence in known).items()):
        yield f"{count_text(count, 'partition')}: {_WHAT[kind]}."
    yield from _rounds([partition for partition, evidence in known if evidence.kind == "replicas"])
    used = Counter(evidence.why for _, evidence in known if not evidence.keeps_all)
    for why, count in used.most_common(_MOST):
        yield f"Evidence for {count_text(count, 'partition')}: {why}."
    reasons = Counter(evidence.why for _, evidence in known if evidence.keeps_all)
    for why, count in reasons.most_common(_MOST):
        yield f"No evidence for {count_text(count, 'partition')}: {why}."


def _rounds(partitions: Sequence[PartitionPlan]) -> Iterator[str]:
    """Describe which round this is if a cluster is repaired broker by broker, and what the next round will free."""
    if not partitions:
        return
    held = [
        tally
        for partition in partitions
        for tally in partition.reasons
        if tally.reason == Reason.MARKER_HELD.value
    ]
    tombstones = sum(
        partition.compaction.tombstones_kept
        for partition in partitions
        if isinstance(partition.compaction, KeyCompaction)
    )
    if held or tombstones:
        size = size_text(sum(tally.bytes for tally in held))
        yield (
            f"First round: {count_text(sum(tally.batches for tally in held), 'marker')} of {size} and up to "
            f"{count_text(tombstones, 'tombstone')} stay, since another replica still holds older data, or their time "
            "has not come. Plan, apply, "
            "verify and purge on the other brokers, one by one; then a second plan here frees what they let go."
        )
    else:
        yield "Last round: other replicas hold nothing back."


def _parts(plan: Plan, known: Sequence[tuple[PartitionPlan, Evidence]]) -> Table:
    always = sum(evidence.always_bytes for _, evidence in known)
    by_time, later = 0, 0
    for partition, evidence in known:
        goes = _bytes_by_horizon(plan, partition, evidence)
        by_time += min(goes, evidence.by_time_bytes)
        later += min(max(goes - evidence.by_time_bytes, 0), evidence.later_bytes)

    def row(name: str, goes: int, of: int) -> tuple[str, str, str]:
        return name, size_text(goes), size_text(of - goes)

    rows = (
        row("superseded and aborted records, emptied batches", always, always),
        row(
            "markers and tombstones up to the horizon newest",
            by_time,
            sum(evidence.by_time_bytes for _, evidence in known),
        ),
        row(
            "markers and tombstones up to a later horizon, at most",
            later,
            sum(evidence.later_bytes for _, evidence in known),
        ),
    )
    return table_of("what | # goes | # stays", rows)


def _bytes_by_horizon(plan: Plan, partition: PartitionPlan, evidence: Evidence) -> int:
    """Return the bytes of markers and tombstones that the chosen horizon removes."""
    if evidence.keeps_all:
        return 0
    after = {choice.name: choice.log_bytes_after for choice in partition.horizons}
    chosen = next((choice.name for choice in partition.horizons if choice.chosen), "")
    if not chosen or NONE not in after:
        # Older plans lack the result of each choice.
        later = plan.policy.horizon.isdigit() and evidence.kind not in BY_TIME
        return evidence.by_time_bytes + (evidence.later_bytes if later else 0)
    keys = partition.compaction.horizons if isinstance(partition.compaction, KeyCompaction) else ()
    goes = {choice.name: choice.dropped_bytes for choice in keys}
    return max(after[NONE] - after[chosen] + goes.get(chosen, 0) - goes.get(NONE, 0), 0)


# -- the parts that grow with the number of partitions: a table shows the largest rows, then one row for the rest, then
# the sum; a text that many partitions share is shown once


def _partitions_section(changing: Sequence[PartitionPlan]) -> Section:
    """Return the space of each changed partition, and the sum. Equal partitions share a row; the largest are shown."""
    alike: dict[tuple[Cell, ...], list[PartitionPlan]] = {}
    for partition in changing:
        alike.setdefault((*_sizes_of([partition]), _up_to(partition)), []).append(partition)
    groups = list(alike.items())
    if len(groups) > MOST_ROWS:
        groups.sort(key=lambda group: (-group[1][0].freed_at_purge, group[1][0].folder))
    rows = [
        (like_it(partitions[0].folder, len(partitions) - 1), *cells)
        for cells, partitions in groups[:MOST_ROWS]
    ]
    rest = [partition for _, partitions in groups[MOST_ROWS:] for partition in partitions]
    if rest:
        rows.append((f"{len(rest):,} others", *_sizes_of(rest), ""))
    if len(changing) > 1:
        rows.append((f"all {len(changing):,} together", *_sizes_of(changing), ""))
    lines = (f"The {MOST_ROWS} that free most are shown. {IN_FULL}",) if rest else ()
    return Section(
        title="Partitions that change",
        lines=lines,
        table=table_of(
            "partition | # .log now | # .log after | # left | # back | # needed | up to",
            rows,
        ),
        part="partitions",
    )


def _up_to(partition: PartitionPlan) -> str:
    span = partition.span
    return "-" if span is None else f"offset {span.end_offset:,} ({span.limit})"


def _sizes_of(partitions: Sequence[PartitionPlan]) -> tuple[Cell, ...]:
    before = sum(partition.log_bytes_before for partition in partitions)
    after = sum(partition.log_bytes_after for partition in partitions)
    return (
        size_text(before),
        size_text(after),
        share_text(after, before),
        size_text(sum(partition.freed_at_purge for partition in partitions)),
        size_text(sum(partition.peak_extra_bytes for partition in partitions)),
    )


def _left_alone_section(plan: Plan) -> Section:
    """Return the skipped partitions, each with its command. The short page counts them by code."""
    skipped = [partition for partition in plan.partitions if partition.status == "left alone"]
    rows = folded((partition.folder, partition.code, partition.why) for partition in skipped)
    first = (OTHERS_FIRST,) if any(partition.what_next.accepts_loss for partition in skipped) else ()
    commands = dict.fromkeys(
        partition.what_next.filled(log_dir=plan.log_dir) for partition in skipped[:MOST_ROWS]
    )
    return Section(
        title="Skipped partitions",
        lines=(*first, *_left_out(rows)),
        table=table_of("partition | code | why", rows[:MOST_ROWS]),
        commands=tuple(command for command in commands if command),
        part="partitions",
    )


def _notes_section(plan: Plan) -> Section:
    """Return the notes for the reviewer. A note that several partitions share is shown once."""
    folders: dict[str, list[str]] = {}
    for partition in plan.partitions:
        for note in dict.fromkeys(partition.notes):
            folders.setdefault(note, []).append(partition.folder)
    lines = [f"{names_text(names)}: {note}" for note, names in folders.items()]
    of_root = plan.root.notes if plan.root is not None else ()
    return Section(title="Notes", lines=(*lines[:MOST_ROWS], *_left_out(lines), *of_root), part="partitions")


def _left_out(rows: Sequence[object], most: int = MOST_ROWS) -> tuple[str, ...]:
    """Return a line that counts the rows that are not shown, or nothing."""
    hidden = len(rows) - most
    return (f"{hidden:,} more like these. {IN_FULL}",) if hidden > 0 else ()


def _settings_section(plan: Plan) -> Section:
    """Return the settings used. Topics with equal settings share their rows."""
    topics: dict[tuple[Setting, ...], list[str]] = {}
    for topic, settings in sorted(plan.policy.settings.items()):
        topics.setdefault(settings, []).append(topic or "(broker)")
    rows = [
        (names_text(names), setting.key, setting.value, setting.source)
        for settings, names in topics.items()
        for setting in settings
    ]
    return Section(
        title="Settings used",
        lines=_left_out(rows, _MOST_LISTED),
        table=table_of("topic | key | value | from", rows[:_MOST_LISTED]),
        part="settings",
    )


def _order_lines(commit: Commit, changes: Iterable[Change]) -> tuple[str, ...]:
    """Describe the order in which files are swapped in, and the reason for it."""
    changes = list(changes)
    words = []
    if any(change.in_order for change in changes):
        words += [_ORDERS.get(commit.order, ""), _WITH_FENCE if commit.fence else _WITHOUT_FENCE]
    if any(not change.segments for change in changes):
        words.append(_FILES)
    reason = f"Why in this order: {commit.why}."
    return (" ".join(filter(None, words)), reason) if words else (reason,)


def _part_text(part: int, whole: int, singular: str, plural: str) -> str:
    """Describe how many of some changes do something: ``3 of 7 changes keep``, ``The change keeps``."""
    return f"{part:,} of {whole:,} changes {plural}" if whole > 1 else f"The change {singular}"


def _keep_text(plan: Plan) -> str:
    """Describe in a few words where originals are kept."""
    if plan.policy.keep == INPLACE:
        return "stay in place until purge (--keep inplace)"
    if plan.policy.keep == AUTO:
        return "stay in place until purge while there is room, else are freed by apply (--keep auto)"
    return "are freed by apply after the new files are verified (--keep until-verified)"


def _keep_lines(plan: Plan, changes: Sequence[Change]) -> list[str]:
    """Describe what apply itself frees, what undo can still do, and the order of the partitions."""
    freed = sum(map(is_freed_by_apply, changes))
    if not freed:
        return []
    names = [partition.folder for partition in apply_order(plan)]
    return [
        (
            f"{_part_text(freed, len(changes), 'does not keep', 'do not keep')} the originals. A group of segments is "
            "staged, committed, read again from the disk and compared with its originals. Then the originals are "
            "freed, and the next group begins. Other changes of a partition are verified and freed at its end. A "
            "change whose originals are freed cannot be undone: undo takes back the changes of a partition, the last "
            "one first, and stops there."
        ),
        f"Partitions are changed in this order: {names_text(names)}. Those that need the least space come first.",
    ]
