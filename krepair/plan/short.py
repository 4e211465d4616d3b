"""The short page of a plan: everything that its reader must know, on one screen for any number of partitions.

Rows are first shortened, then left out, until all of them fit. Consents, risks, reasons and the changes without undo
are never shortened: no text is cut in the middle. If there are many risks, the last risks are only counted, with their
codes and the section that lists all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import RULES, Severity
from krepair.formats.broker_version import why_not_tried
from krepair.formats.words import count_text, few, names_text, time_text
from krepair.next_command import NOTHING, PLAN, Next
from krepair.plan.change_words import by_kind
from krepair.plan.codes import RISKS
from krepair.plan.fit import NO_ROOM
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import (
    Change,
    Evidence,
    KeepOriginal,
    KeyCompaction,
    NotReversible,
    PartitionPlan,
    Plan,
    Preview,
)
from krepair.plan.objection import Objection
from krepair.plan.risks import ASSUMED, KEEPING, Consent, consents_of
from krepair.plan.space import add_tallies, free_after_apply, verify_seconds
from krepair.plan.view import (
    NAMES_AND_VALUES,
    PARTS,
    Section,
    View,
    expected_text,
    size_text,
    table_of,
    typable,
    visible,
    wrapped,
)
from krepair.rules.evidence import DESCRIBE
from krepair.rules.reasons import LAG, Reason, Verdict, reason_text

ROWS: Final = 28
WIDTH: Final = 80
OR_UNTIL: Final = "or until a broker changes a file that this plan changed"
"""Limit of undo before purge: undo compares the files that the plan changed, and no others."""
UNTIL: Final = f"until purge, {OR_UNTIL}"

NOT_REPAIRED: Final = "What this plan does not repair"

_GAP: Final = 2
"""Spaces between a label and its text."""
_BY_TIME: Final = {"in-sync": "with --cluster", "as-broker": "with --as-broker"}
_UNPROVED: Final = {
    "only-replica": "that no other replica exists",
    "as-broker": "that no replica was away for longer than delete.retention.ms",
    "in-sync": "that the other replicas' logs hold the same: only whether they are in sync was asked",
}
"""Kind of evidence -> what this evidence does not prove."""
_STAYS, _LAST = 0, 9
_FEWEST: Final = 3
"""Least number of rows of a label before the last ones are only counted."""
_MARKERS_GO: Final = frozenset({Reason.MARKER.value, Reason.MARKER_STAMP_PAST.value})
_YOUNG: Final = frozenset({Reason.MARKER_HORIZON.value, Reason.MARKER_STAMP.value})
_LOOKED_AT: Final = frozenset({"replicas", "in-sync"})
_TOLD_ELSEWHERE: Final = frozenset({ASSUMED, "keep-until-verified", *KEEPING.values()})
"""Codes of risks that another row already states: a consent, freed space, changes without undo."""


class DiskObservation(NamedTuple):
    """Findings about the disk of a log directory, as far as they concern a plan.

    Attributes:
        free_bytes: bytes that are free now for the broker's user.
        needed_bytes: most extra bytes that apply needs at any moment.
        lines: these findings in words, with advice if the plan does not fit.
        commands: commands to type if the plan does not fit.
        fits: True if apply would proceed.
        root_bytes: bytes that only root may use in addition, if apply needs them; else 0.
    """

    free_bytes: int
    needed_bytes: int
    lines: tuple[str, ...] = ()
    commands: tuple[Next, ...] = ()
    fits: bool = True
    root_bytes: int = 0


class PageContext(NamedTuple):
    """Context of a plan's page. Unknown facts are empty.

    Attributes:
        path: path of the plan's file, for the commands.
        place: options (``--scratch``) that the next commands need too, as words.
        same: command that makes the plan again.
        with_evidence: that command with the answers of the running brokers.
        with_later_horizon: that command with the time of the plan as the delete horizon.
        after_stop: that command without ``--preview``, for a preview.
        observed: findings about its disk, or why the disk was not examined.
        objections: objections of the review, for which apply will refuse the plan.
        only_root: True if the log directory's owner cannot read the plan's file.
        unmended: findings that the plan does not repair.
        doubt: sign that the configuration is that of another broker.
    """

    path: str = "PLAN"
    place: tuple[str, ...] = ()
    same: Next = NOTHING
    with_evidence: Next = NOTHING
    only_root: bool = False
    with_later_horizon: Next = NOTHING
    after_stop: Next = NOTHING
    observed: DiskObservation | str = "not looked at"
    objections: tuple[Objection, ...] = ()
    unmended: Section = Section(title="", part="partitions")
    doubt: str = ""

    @property
    def lack(self) -> DiskObservation | None:
        """Findings about the disk if the plan does not fit on it."""
        return (
            self.observed if isinstance(self.observed, DiskObservation) and not self.observed.fits else None
        )


NOTHING_KNOWN = PageContext()


class _Row(NamedTuple):
    """One fact for the reader.

    Attributes:
        label: one word before the text.
        text: the text of the row.
        rank: priority for leaving the row out, highest first; 0 for a row that is always shown.
        short: shorter text in one line; empty for a row that is never shortened.
        section: section that has all rows of the label, if these may be counted instead; empty if they may not.
        codes: codes that the row is about, for the row that counts.
    """

    label: str
    text: str
    rank: int = _STAYS
    short: str = ""
    section: str = ""
    codes: tuple[str, ...] = ()


def changes_of(plan: Plan) -> list[Change]:
    """Return every change, with the changes of the root first."""
    of_root = plan.root.changes if plan.root is not None else ()
    return [*of_root, *(change for partition in plan.partitions for change in partition.changes)]


def short_page(plan: Plan, context: PageContext) -> View:
    """Build the short page."""
    kind = "Preview" if is_preview(plan) else "Plan"
    title = f"{kind} {plan.plan_id} of {plan.log_dir} on {plan.host}"
    steps = [step for step in next_of(plan, context) if step.commands]
    last = _last(plan, context)
    # A terminal breaks a long command at any letter.
    fixed = sum(-(-len(f"  {command}") // WIDTH) for step in steps for command in step.commands)
    fixed += sum(map(_rows_of, (visible(title), last, *(line for step in steps for line in step.lines))))
    printable = [row._replace(text=visible(row.text)) for row in _rows(plan, context)]
    rows = _fitted(printable, ROWS - fixed, _show(context))
    return View(
        title=title,
        sections=(
            Section(title="", table=table_of(NAMES_AND_VALUES, [(row.label, row.text) for row in rows])),
            *steps,
            Section(title="", lines=(last,)),
        ),
    )


def is_preview(plan: Plan) -> bool:
    """Return whether the plan was made beside a running broker."""
    return isinstance(plan.preview, Preview)


def _rows_of(text: str, width: int = WIDTH) -> int:
    """Return the number of terminal rows that a text takes; a long command breaks at any letter."""
    return sum(max(-(-len(line) // width), 1) for line in wrapped(text, width)) if text else 0


def _fitted(rows: list[_Row], room: int, show: str) -> list[_Row]:
    """Return rows that fit: the least important are shortened, then left out; then some are counted."""
    width = WIDTH - max(len(row.label) for row in rows) - _GAP

    def needed() -> int:
        return sum(_rows_of(row.text, width) for row in rows)

    def cut(low: int, high: int) -> None:
        for place in sorted(range(len(rows)), key=lambda at: (-rows[at].rank, -len(rows[at].text))):
            if needed() > room and low <= rows[place].rank <= high:
                rows[place] = rows[place]._replace(text=rows[place].short or rows[place].text)

    def leave_out(low: int) -> None:
        for row in sorted(rows, key=lambda row: -row.rank):
            if needed() > room and row.rank >= low:
                rows.remove(row)

    cut(3, _LAST)
    leave_out(_LAST)
    cut(1, 2)
    leave_out(5)
    cut(0, 0)
    while needed() > room and (counted := _counted(rows, show)):
        rows = counted
    leave_out(3)
    return rows


def _counted(rows: Sequence[_Row], show: str) -> list[_Row]:
    """Return the rows with the last two of one label in one that counts them; none if none may be counted."""
    labels = [row.label for row in rows if row.section]
    label = next((label for label in dict.fromkeys(labels) if labels.count(label) >= _FEWEST), "")
    places = [place for place, row in enumerate(rows) if row.label == label and row.section]
    if not places:
        return []
    *_, before, last = places
    gone = (*rows[before].codes, *rows[last].codes)
    named = ", ".join(code for code in gone if code in RULES or code in RISKS)
    text = f"and {len(gone):,} more{f' ({named})' if named else ''}: {show} --section {rows[last].section}"
    kept = [row for place, row in enumerate(rows) if place != last]
    kept[before] = kept[before]._replace(text=text, codes=gone)
    return kept


# -- the rows, in their order


def _rows(plan: Plan, context: PageContext) -> Iterator[_Row]:
    changes = changes_of(plan)
    yield _Row("Digest", plan.digest)
    if context.same:
        yield _Row("Made by", typable(context.same), 4, f"see {_show(context)} --section settings")
    yield from _refusals(plan, context)
    yield from _what_goes(plan, changes)
    for horizon, sentence in earlier_than_asked(plan).items():
        yield _Row("Horizon", sentence, 2, horizon)
    if changes:
        yield from _space_and_time(plan, context)
    for consent in consents_of(plan):
        yield _Row("Consent", _consent_text(consent))
    risks = tuple(_risks(plan))
    if changes and not risks:
        yield _Row("Risk", f"none known{' except that of the consent' if consents_of(plan) else ''}", 3)
    yield from risks
    yield from _proofs(plan)
    if changes:
        yield _Row("Unproved", _unproved_text(plan))
    yield from _left(plan, context)
    yield from _what_more(plan, context)
    yield from _ways_back(context, changes)
    *parts, last = PARTS
    names = f"{', '.join(parts)} or {last}"
    yield _Row("Details", f"{_show(context)} --section NAME, where NAME is {names}", _LAST, _show(context))


def _show(context: PageContext) -> str:
    return typable(Next.of("show", context.path))


def _refusals(plan: Plan, context: PageContext) -> Iterator[_Row]:
    if context.objections:
        first, more = context.objections[0], len(context.objections) - 1
        others = f", and {more:,} more" if more else ""
        yield _Row(
            "Refused", f"apply will refuse it: the review objects ({first.code}{others}): {first.text}"
        )
    if is_preview(plan):
        yield _Row("Preview", "apply refuses it; after the stop make the plan, without --preview")
    if context.doubt:
        yield _Row("Doubt", f"{context.doubt}. Is the right file in --config?")


def _what_goes(plan: Plan, changes: Sequence[Change]) -> Iterator[_Row]:
    if not changes:
        yield _Row("Changes", f"nothing: {_partitions(len(plan.partitions))} looked at")
    else:
        files = [
            few_words for words, some in by_kind(changes) for few_words, _ in words.tells(some) if few_words
        ]
        folders = [partition.folder for partition in plan.changing]
        where = f"{_partitions(len(folders))} ({few(folders)})" if folders else "the log directory itself"
        removed = ", ".join((*_batches_that_go(plan), *files))
        # No figure is ever cut; how many partitions change is in the last line too.
        yield _Row("Changes", f"{removed}, in {where}", _STAYS, removed)
        yield _Row("Lost", _lost_text(plan, changes))
    stays = _what_stays(plan)
    if stays:
        sizes = "; ".join(stays)
        text = "; ".join(f"{size}: {why}" for size, why in stays.items())
        yield _Row("Stays", text, 4, sizes)


def _partitions(count: int) -> str:
    return count_text(count, "partition")


def _batches_that_go(plan: Plan) -> Iterator[str]:
    if not any(change.decides_on for change in changes_of(plan)):
        return
    markers = emptied = 0
    for tally in add_tallies(tally for partition in plan.changing for tally in partition.reasons):
        known = reason_text(tally.reason)
        if tally.reason in _MARKERS_GO:
            markers += tally.batches
        elif known and known.verdict is Verdict.DROP:
            emptied += tally.batches
    counts = (
        (emptied, "emptied batch", "emptied batches"),
        (markers, "transaction marker", "transaction markers"),
        (_records_by_key(plan), "record", "records"),
    )
    removed = [count_text(*count) for count in counts if count[0]]
    if removed:
        yield f"removes {', '.join(removed)}"
    else:
        yield _merging(plan)


def _merging(plan: Plan) -> str:
    """Describe a plan that removes nothing: it reduces the number of segments."""
    sources = groups = files = 0
    for partition in plan.changing:
        there = partition.by_name.keys()
        for change in partition.changes:
            sources += len(change.decides_on)
            groups += bool(change.decides_on)
            files += len(there & set(change.takes_out)) if change.decides_on else 0
    freed = f"{size_text(plan.freed_at_purge)}, {count_text(files, 'file')}"
    return f"merges {count_text(sources, 'segment')} into {groups:,}: {freed}"


def _records_by_key(plan: Plan) -> int:
    compactions = [
        partition.compaction for partition in plan.changing if isinstance(partition.compaction, KeyCompaction)
    ]
    return sum(keys.superseded + keys.tombstones_dropped + keys.aborted for keys in compactions)


def _lost_text(plan: Plan, changes: Sequence[Change]) -> str:
    """Describe which records no consumer can read after the plan, and which of these records a consent names."""
    lost = [change.records_lost for change in changes]
    known, by_key = sum(max(count, 0) for count in lost), _records_by_key(plan)
    parts = []
    if any(lost):
        count = f"{known:,} or more records" if min(lost) < 0 else count_text(known, "record")
        parts.append(f"{count} at the offsets that the consent names")
    if by_key:
        parts.append(
            f"{count_text(by_key, 'record')} by key: older values, tombstones past their time, aborted records"
        )
    if parts:
        return "; ".join(parts)
    if any(change.decides_on for change in changes):
        return "no record: the removed batches and markers hold none"
    if any(change.damage_removed for change in changes):
        return "no record that can be read: what is cut off holds no whole batch"
    return "no record"


def _what_stays(plan: Plan) -> dict[str, str]:
    """Return the markers that are kept: amount -> reason."""
    unknown: Counter[str] = Counter()
    held, young = 0, 0
    for partition in plan.partitions:
        if partition.keeps_all and isinstance(partition.evidence, Evidence):
            unknown[partition.evidence.why] += (
                partition.evidence.by_time_bytes + partition.evidence.later_bytes
            )
            continue
        held += sum(tally.bytes for tally in partition.reasons if tally.reason == Reason.MARKER_HELD.value)
        young += sum(tally.bytes for tally in partition.reasons if tally.reason in _YOUNG)
    stays = {}
    if unknown.total():
        (why, _), *_ = unknown.most_common(1)
        stays[f"{size_text(unknown.total())} of transaction markers and tombstones"] = why
    if held:
        stays[f"{size_text(held)} of transaction markers"] = "another replica has, or may have, their data"
    if young:
        stays[f"{size_text(young)} of transaction markers younger than the delete horizon"] = "they go later"
    return stays


def _space_and_time(plan: Plan, context: PageContext) -> Iterator[_Row]:
    disk = context.observed
    if isinstance(disk, str):
        looks = f"{disk}; apply looks first"
        needed = plan.peak_extra_bytes
        yield _Row(
            "Fits",
            f"{looks}. It needs {_needs_text(plan, needed)}",
            2,
            f"{looks}. It needs {size_text(needed)} more while it runs",
        )
    elif disk.fits:
        yield _Row(
            "Fits", _fits_text(plan, disk, context), _STAYS if disk.root_bytes or _without_room(plan) else 2
        )
    else:
        yield _Row("Fits", "It does NOT fit on the disk: apply will refuse it.")
        yield _Row("Space", " ".join(disk.lines))
        return
    yield _Row("Frees", _comes_back(plan), 2)
    time = expected_text(plan.expected_seconds + verify_seconds(plan))
    yield _Row("Down", f"{time} for apply and verify, plus stop and start", 2)


def _needs_text(plan: Plan, needed_bytes: int) -> str:
    """Describe what apply needs, and why that is more than the bytes that change."""
    block = size_text(plan.policy.block_bytes)
    return f"{size_text(needed_bytes)} more while it runs (new files, journal, folders: blocks of {block})"


def _without_room(plan: Plan) -> int:
    """Return how many partitions are skipped because they do not fit now."""
    return sum(partition.code == NO_ROOM for partition in plan.partitions)


def _fits_text(plan: Plan, disk: DiskObservation, context: PageContext) -> str:
    free = f"{size_text(max(disk.free_bytes, 0))} are free"
    if disk.root_bytes:
        free += f" for users, {size_text(disk.root_bytes)} for root: run apply as root"
    needs = f"apply needs {_needs_text(plan, disk.needed_bytes)}; {free}"
    waiting = _without_room(plan)
    if not waiting:
        return f"{'yes, for root' if disk.root_bytes else 'yes'}: {needs}"
    fitting = len(plan.changing)
    kept = any(isinstance(change.undo, KeepOriginal) for change in changes_of(plan))
    again = f": type {typable(context.same)}" if context.same else ""
    rest = f"the rest after {'purge' if kept else 'apply'}{again}"
    return f"{fitting:,} of {count_text(fitting + waiting, 'partition')} now; {needs}; {rest}"


def _comes_back(plan: Plan) -> str:
    """Describe the free space after apply and after purge, each compared with now."""
    now, later = free_after_apply(plan), plan.freed_at_purge
    if now == later:
        return (
            f"{size_text(now)} at apply" if now > 0 else f"nothing: {size_text(-now)} more are used than now"
        )
    if later <= 0:
        return f"nothing: it takes up to {size_text(-now)} until purge, {size_text(-later)} after it"
    if now < 0:
        return f"{size_text(later)} after purge; until then it takes up to {size_text(-now)}"
    return f"at least {size_text(now)} at apply; {size_text(later)} in all after purge"


def _consent_text(consent: Consent) -> str:
    option = " ".join((consent.option, names_text(consent.values))).strip()
    folders = few(consent.folders) if consent.folders else "no partition"
    return f"{option}, for {folders}: {consent.text}"


def _risks(plan: Plan) -> Iterator[_Row]:
    """Yield a row for each code: its first risk, and how many more there are."""
    counts = Counter(risk.code for risk in plan.risks)
    stated = set()
    for risk in plan.risks:
        if risk.code in stated or risk.code in _TOLD_ELSEWHERE:
            continue
        stated.add(risk.code)
        more = counts[risk.code] - 1
        yield _Row(
            "Risk",
            f"{risk.text} And {more:,} more like it." if more else risk.text,
            section="risks",
            codes=(risk.code,),
        )


def _proofs(plan: Plan) -> Iterator[_Row]:
    """Yield the most frequent evidence about other replicas, if their logs or answers were read."""
    reasons = Counter(
        partition.evidence.why
        for partition in plan.partitions
        if isinstance(partition.evidence, Evidence) and partition.evidence.kind in _LOOKED_AT
    )
    for why, count in reasons.most_common(1):
        others = f"; and {len(reasons) - 1:,} more such answers" if len(reasons) > 1 else ""
        yield _Row("Proof", f"{_partitions(count)}: {why}{others}", 3)


def _unproved_text(plan: Plan) -> str:
    """List what the plan rests on and nobody has proved: statements about other replicas, and the next start."""
    kinds = {
        partition.evidence.kind for partition in plan.changing if isinstance(partition.evidence, Evidence)
    }
    parts = [text for kind, text in _UNPROVED.items() if kind in kinds]
    if plan.policy.assume_high_watermark:
        parts.append("that other replicas have this log to its end")
    if plan.policy.accepted_losses:
        parts.append("that no other replica still has what is lost")
    version = plan.policy.broker_version
    broker = f"broker {version}" if version else "your broker"
    known = why_not_tried(version) if version else "its --broker-version was not given"
    why = "; ".join(filter(None, (known, "no broker was started; verify reads all new files again")))
    parts.append(f"that {broker} starts on the result ({why})")
    return "; ".join(parts)


def _left(plan: Plan, context: PageContext) -> Iterator[_Row]:
    skipped: dict[str, list[str]] = {}
    for partition in plan.partitions:
        if partition.status == "left alone":
            skipped.setdefault(partition.code, []).append(partition.folder)
    if skipped:
        codes = "; ".join(f"{code}: {few(folders)}" for code, folders in skipped.items())
        count = sum(map(len, skipped.values()))
        stay = f"{_partitions(count)} {'stays as it is' if count == 1 else 'stay as they are'}"
        where = _show(context) + " --section partitions"
        yield _Row("Skipped", f"{stay} ({codes})", _STAYS, f"{stay}: {where}")
    held = [
        partition
        for partition in plan.partitions
        if partition.span is not None and partition.span.limit == LAG
    ]
    if held and held[0].span is not None:
        more = f"; and {len(held) - 1:,} more such partitions" if len(held) > 1 else ""
        yield _Row("Held", f"{held[0].folder}: {held[0].span.limit_text}{more}")
    for line in context.unmended.lines:
        yield _Row("Besides", line, section="partitions", codes=(line.partition(" ")[0],))


def damage_that_stays(plan: Plan) -> list[str]:
    """Describe, in one sentence each, the damage that the plan met and does not repair."""
    lines = []
    if damaged := damaged_partitions(plan):
        many = count_text(len(damaged), "damaged partition")
        lines.append(f"{many} would stay damaged: {damaged[0].folder}: {damaged[0].why}.")
    partly = partly_repaired(plan)
    lines += [f"{partition.why}." for partition in partly[:_FEWEST]]
    if len(partly) > _FEWEST:
        lines.append(f"So would damage in {count_text(len(partly) - _FEWEST, 'more partition')}.")
    return lines


def damaged_partitions(plan: Plan) -> list[PartitionPlan]:
    """Return the partitions that the plan skips because they are damaged."""
    return [partition for partition in plan.partitions if partition.uncleanable_bytes]


def partly_repaired(plan: Plan) -> list[PartitionPlan]:
    """Return the partitions that the plan changes without repairing all of their damage."""
    return [partition for partition in plan.partitions if partition.why and partition.status != "left alone"]


def earlier_than_asked(plan: Plan) -> dict[str, str]:
    """Return the horizon used -> a sentence, if the evidence does not allow the requested time."""
    requested = plan.policy.horizon
    if not (requested.isascii() and requested.isdigit()):
        return {}
    used: dict[str, set[int]] = {}
    for partition in plan.partitions:
        for choice in partition.horizons:
            if choice.chosen and choice.name == "TIME" and choice.horizon_ms < int(requested):
                kind = partition.evidence.kind if isinstance(partition.evidence, Evidence) else ""
                used.setdefault(_BY_TIME.get(kind, "here"), set()).add(choice.horizon_ms)
    sentences = {}
    for word, times in sorted(used.items()):
        horizon = f"{word} the plan uses {time_text(max(times))}{'' if len(times) == 1 else ' or earlier, by topic'}"
        sentences[f"not as asked: {horizon}"] = (
            f"The TIME of --delete-horizon is later than now minus delete.retention.ms: {horizon}. A later one needs "
            "--replicas or --only-replica."
        )
    return sentences


def left_out_bytes(plan: Plan) -> int:
    """Return bytes of markers and tombstones that could be removed with evidence that no other replica needs them."""
    known = [partition.evidence for partition in plan.partitions if isinstance(partition.evidence, Evidence)]
    return sum(evidence.by_time_bytes for evidence in known if evidence.keeps_all)


def later_bytes(plan: Plan) -> int:
    """Return the bytes that a later delete horizon would free and that other replicas do not hold back."""
    gain = 0
    for partition in plan.partitions:
        chosen = [choice.log_bytes_after for choice in partition.horizons if choice.chosen]
        if chosen and not partition.keeps_all:
            gain += chosen[0] - min(choice.log_bytes_after for choice in partition.horizons)
    return gain


def _what_more(plan: Plan, context: PageContext) -> Iterator[_Row]:
    left_out, later = left_out_bytes(plan), later_bytes(plan)
    if left_out:
        yield _Row("Evidence", f"{size_text(left_out)} more with --cluster FILE: krepair explain evidence", 4)
    if later > 0:
        text = f"{size_text(later)} more with a later --delete-horizon"
        yield _Row("Later", f"{text}: {_show(context)} --section horizons", 7, text)


def _ways_back(context: PageContext, changes: Sequence[Change]) -> Iterator[_Row]:
    if not changes:
        return
    if context.lack is None:
        yield _Row("Why", _if_not_applied(changes), _LAST)
    freed = list(filter(is_freed_by_apply, changes))
    never = [change for change in changes if isinstance(change.undo, NotReversible)]
    if freed:
        yield _Row("No undo", f"{_of_all(freed, changes)}: apply frees the originals once all is verified")
    if never:
        yield _Row("No undo", f"{_of_all(never, changes)}: {never[0].undo.why}")  # type: ignore[union-attr]
    if len(freed) + len(never) < len(changes) and context.lack is None:
        undo = typable(Next.of("undo", context.path))
        what = "every byte of the rest" if freed or never else "every byte"
        way = f"{undo}, with the broker stopped, {UNTIL}: {what} comes back"
        yield _Row("Undo", f"{way}. It needs a little free disk space.", _STAYS, f"{undo}, {UNTIL}")


def _of_all(some: Sequence[Change], changes: Sequence[Change]) -> str:
    folders = tuple(dict.fromkeys(change.change_id.partition("/")[0] for change in some))
    return f"{len(some):,} of {count_text(len(changes), 'change')}, in {few(folders)}"


def _if_not_applied(changes: Sequence[Change]) -> str:
    """Describe the consequence of not applying the plan: the worst finding that the changes repair."""
    severities = {code: RULES[code].severity for change in changes for code in change.rules if code in RULES}
    removed = [removed for change in changes for removed in change.damage_removed]
    if "KR305" in severities and all(damage.is_padding for damage in removed if damage.rule == "KR305"):
        severities["KR305"] = Severity.INFORMATION
    if not severities:
        return "without this plan the logs stay as large as they are"
    worst_first = list(Severity)
    worst = min(severities, key=lambda code: (worst_first.index(severities[code]), code))
    more = f", and {len(severities) - 1:,} more codes" if len(severities) > 1 else ""
    # What padding costs without the plan depends on the next start, which the plan does not know.
    how_bad = "" if severities[worst] is Severity.INFORMATION else f" ({severities[worst].value})"
    return f"without this plan {worst} stays{how_bad}{more}: krepair explain {worst}"


# -- the next steps


def next_of(plan: Plan, context: PageContext) -> tuple[Section, ...]:
    """Return the next commands for the reader of the plan, step by step."""
    if is_preview(plan):
        diff = Next.of("diff", context.path, PLAN)
        return (_step("After the stop:", (context.after_stop, diff)),)
    if context.lack is not None:
        return (_step("Next (apply would refuse this plan):", context.lack.commands),)
    if context.objections:
        return (_step("Next:", (Next.of("show", context.path, "--section", "risks"),)),)
    changes = changes_of(plan)
    if changes:
        disk = context.observed
        for_root = context.only_root or (isinstance(disk, DiskObservation) and disk.root_bytes)
        who = "as root" if for_root else "as the broker's user or as root"
        first = _step(
            f"Next, with the broker stopped, {who}:",
            (Next.of(verb, context.path, *context.place) for verb in ("apply", "verify")),
        )
        if not any(isinstance(change.undo, KeepOriginal) for change in changes):
            return (first,)
        purge = _step(
            "Then start the broker. When it is healthy, remove the originals (no undo then):",
            (Next.of("purge", context.path),),
        )
        return first, purge
    if left_out_bytes(plan) and context.with_evidence:
        return (_step("Next, after this broker has stopped:", (DESCRIBE, context.with_evidence)),)
    if context.unmended.commands or not later_bytes(plan):
        return (_step("Next:", context.unmended.commands),)
    return (_step("If no consumer and no replica is further behind:", (context.with_later_horizon,)),)


def _step(when: str, commands: Iterable[Next]) -> Section:
    """Return commands under a line with the time and the user for them."""
    return Section(title="", lines=(when,), commands=tuple(filter(None, commands)))


def _last(plan: Plan, context: PageContext) -> str:
    """Return the whole plan in one sentence."""
    changes = changes_of(plan)
    if not changes:
        return "This plan changes nothing."
    parts = [f"{_partitions(len(plan.changing))} {'changes' if len(plan.changing) == 1 else 'change'}"]
    if plan.root is not None:
        parts.append(f"{count_text(len(plan.root.changes), 'checkpoint')} of the root")
    parts += [_records_that_go(plan), _in_the_end(plan)]
    sentence = f"Plan: {', '.join(parts)}; "
    if context.objections or is_preview(plan) or context.lack is not None:
        return f"{sentence}apply will refuse it."
    kept = [isinstance(change.undo, KeepOriginal) for change in changes]
    if not any(kept):
        return f"{sentence}there is no undo."
    return f"{sentence}undo{'' if all(kept) else ' of the rest'} until purge, or until a broker changes these files."


def _records_that_go(plan: Plan) -> str:
    lost = [change.records_lost for change in changes_of(plan)]
    gone = _records_by_key(plan) + sum(max(count, 0) for count in lost)
    if any(count < 0 for count in lost):
        return f"{gone:,} or more records are removed"
    return f"{count_text(gone, 'record is', 'records are')} removed"


def _in_the_end(plan: Plan) -> str:
    count = plan.freed_at_purge
    if count > 0:
        return f"{size_text(count)} come back {'after purge' if plan.freed_at_apply < count else 'at apply'}"
    return "no space comes back"
