"""``krepair explain``: explain a code, or list the ways to give evidence of other replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from krepair.checks.catalogue import CATALOGUE, GONE, RULES, Rule
from krepair.errors import EXIT_CODE_MEANING, UsageError
from krepair.next_command import Next
from krepair.options import LOSS_RULES
from krepair.plan.codes import OTHERS_FIRST, RISKS, SKIPPED
from krepair.plan.objection import OBJECTIONS
from krepair.plan.view import NAMES_AND_VALUES, Section, View, table_of
from krepair.rules.evidence import EVIDENCE_OPTIONS, EvidenceOption
from krepair.rules.reasons import REASONS, Reason

EVIDENCE: Final = "EVIDENCE"
"""Word that asks ``explain`` for ``WAYS``."""


class ReasonRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="reason"):
    """Reason in a plan for keeping, emptying or dropping a batch.

    Attributes:
        code: one letter and two digits.
        verdict: ``keep``, ``empty`` or ``drop``.
        text: explanation of the reason.
        source: place in Kafka's code or documents that does the same.
    """

    code: str
    verdict: str
    text: str
    source: str


class ObjectionRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="objection"):
    """Objection of the plan's review.

    Attributes:
        code: ``RVnn``.
        text: fault of the plan, in words.
    """

    code: str
    text: str


class PlanCodeRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="plan"):
    """Code of a plan in words: a reason for skipping a partition, or a risk.

    Attributes:
        code: code as a plan prints it.
        about: ``skipped`` or ``risk``.
        text: meaning of the code, in words.
        then: action to take next, in words.
    """

    code: str
    about: str
    text: str
    then: str


class ExitCodeRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="exit code"):
    """Exit code of krepair.

    Attributes:
        code: number of the exit code.
        name: symbolic name of the exit code.
        text: meaning of the exit code.
    """

    code: str
    name: str
    text: str


Row = Rule | ReasonRow | ObjectionRow | PlanCodeRow | ExitCodeRow


def _table() -> dict[str, Row]:
    reasons = {
        reason.value: ReasonRow(code=reason.value, verdict=verdict.value, text=text, source=source)
        for reason in Reason
        for verdict, text, source in (REASONS[reason],)
    }
    objections = {code: ObjectionRow(code=code, text=text) for code, text in OBJECTIONS.items()}
    plan = {
        code.upper(): PlanCodeRow(code=code, about=about, text=words.what, then=words.then)
        for about, codes in (("risk", RISKS), ("skipped", SKIPPED))
        for code, words in codes.items()
    }
    ends = [
        ExitCodeRow(code=str(code.value), name=code.name, text=text)
        for code, text in EXIT_CODE_MEANING.items()
    ]
    return {**RULES, **reasons, **objections, **plan, **{row.code: row for row in ends}}


def row(code: str) -> Row | tuple[EvidenceOption, ...]:
    """Return what a code means, as a value.

    Args:
        code: code, in any case, of a rule (``KRnnn``), a reason (``D03``), an objection (``RVnn``), a skipped partition
            (``leftovers``), a risk (``late-readers``) or an exit (``13``); or ``evidence``.

    Raises:
        UsageError: the code does not exist, or no longer does.
    """
    wanted = code.strip().upper()
    if wanted == EVIDENCE:
        return EVIDENCE_OPTIONS
    if wanted in GONE:
        raise UsageError(f"{wanted} is gone: krepair no longer looks for it. {GONE[wanted]}")
    meaning = _table().get(wanted)
    if meaning is None:
        raise UsageError(
            f"{code!r}: no code of krepair; rules are {CATALOGUE[0].code} to {CATALOGUE[-1].code}",
            next_command=Next.of("explain"),
        )
    return meaning


def rows() -> tuple[Row, ...]:
    """Return every row of all tables."""
    return tuple(_table().values())


def explain_all() -> View:
    """Return a page of all tables, one line per code."""
    rules = tuple((rule.code, rule.severity.value, rule.title, rule.fix) for rule in CATALOGUE)
    reasons = tuple((reason.value, REASONS[reason].verdict.value, REASONS[reason].text) for reason in Reason)
    codes = tuple((str(code.value), code.name, meaning) for code, meaning in EXIT_CODE_MEANING.items())
    return View(
        title="Codes of krepair",
        sections=(
            Section(title="Rules", table=table_of("code | severity | title | fix", rules)),
            Section(title="Reasons in a plan", table=table_of("code | batch | why", reasons)),
            Section(
                title="Objections of the review",
                table=table_of("code | what is wrong with the plan", OBJECTIONS.items()),
            ),
            *(
                Section(
                    title=title,
                    table=table_of(
                        "code | what it says | what to do", [(code, *words) for code, words in codes.items()]
                    ),
                )
                for title, codes in (("Skipped partitions", SKIPPED), ("Risks of a plan", RISKS))
            ),
            Section(title="Exit codes", table=table_of("code | name | meaning", codes)),
        ),
    )


def explained(meaning: Row | tuple[EvidenceOption, ...]) -> View:
    """Return a page that says what a code means."""
    if isinstance(meaning, tuple):
        return _evidence()
    if isinstance(meaning, ObjectionRow):
        return _page(f"{meaning.code}: objection of the review", (("what is wrong", meaning.text),))
    if isinstance(meaning, ExitCodeRow):
        return _page(f"{meaning.code}: exit code {meaning.name}", (("meaning", meaning.text),))
    if isinstance(meaning, PlanCodeRow):
        kind = "why a partition is skipped" if meaning.about == "skipped" else "risk of a plan"
        return _page(
            f"{meaning.code}: {kind}", (("what it says", meaning.text), ("what to do", meaning.then))
        )
    if isinstance(meaning, ReasonRow):
        cells = (
            ("what happens to the batch", meaning.verdict),
            ("why", meaning.text),
            ("source", meaning.source),
        )
        return _page(f"{meaning.code}: reason in a plan", cells)
    cells = (
        ("severity", meaning.severity.value),
        ("looked for", f"by {meaning.command}"),
        ("evidence", meaning.evidence),
        ("danger if left", meaning.danger),
        ("fix", f"--fix {meaning.fix}" if meaning.fix != "none" else "none"),
        *((("another replica", OTHERS_FIRST),) if meaning.code in LOSS_RULES else ()),
        ("lost if krepair is wrong", meaning.lost_if_wrong),
        ("source", meaning.source),
    )
    return _page(f"{meaning.code}: {meaning.title}", cells)


def _evidence() -> View:
    """Return a page with one section for each way, in the order in which to try them."""
    sections = [
        Section(
            title=way.option,
            table=table_of(
                NAMES_AND_VALUES,
                [("when", way.when), ("may be removed", way.removes), ("assumption", way.assumption)],
            ),
        )
        for way in EVIDENCE_OPTIONS
    ]
    return View(
        title="Options that allow removing markers and tombstones, in the order to try them",
        sections=tuple(sections),
    )


def _page(title: str, rows: Iterable[tuple[str, str]]) -> View:
    section = Section(title="What it means", table=table_of(NAMES_AND_VALUES, rows))
    return View(title=title, sections=(section,))
