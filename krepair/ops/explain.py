"""``krepair explain``: one row of one of the tables of codes; or the ways to give evidence of other replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from krepair.checks.catalogue import CATALOGUE, GONE, RULES, Rule
from krepair.errors import EXIT_CODE_MEANING, UsageError
from krepair.next_command import Next
from krepair.options import LOSS_RULES
from krepair.plan.codes import RISKS, SKIPPED, CodeInWords
from krepair.plan.objection import OBJECTIONS
from krepair.plan.risks import OTHERS_FIRST
from krepair.plan.view import NAMES_AND_VALUES, Section, View, table_of
from krepair.rules.evidence import WAYS, Way
from krepair.rules.reasons import REASONS, Reason

EVIDENCE: Final = "EVIDENCE"
"""What the ways of ``WAYS`` are called."""


class ReasonRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="reason"):
    """A reason in a plan.

    Attributes:
        code: letter and two digits.
        verdict: ``keep``, ``empty`` or ``drop``.
        text: why.
        source: where Kafka does, or says, the same.
    """

    code: str
    verdict: str
    text: str
    source: str


class ObjectionRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="objection"):
    """An objection of the review.

    Attributes:
        code: ``RVnn``.
        text: what is wrong with the plan.
    """

    code: str
    text: str


class PlanCodeRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="plan"):
    """A code of a plan in words: why a partition is skipped, or a risk.

    Attributes:
        code: the word.
        about: ``skipped`` or ``risk``.
        text: what the code says.
        then: what to do.
    """

    code: str
    about: str
    text: str
    then: str


class ExitCodeRow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="exit code"):
    """A code with which krepair ends.

    Attributes:
        code: the number.
        name: the name of the number.
        text: what the code means.
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


def row(code: str) -> Row | tuple[Way, ...]:
    """What a code means, as a value.

    Args:
        code: of a rule (``KRnnn``), of a reason of a plan (``D03``), of an objection of the review (``RVnn``), of a
            skipped partition (``leftovers``), of a risk (``late-readers``), of an end (``13``), or ``evidence``; in
            any case.

    Raises:
        UsageError: no such code, or it is gone.
    """
    wanted = code.strip().upper()
    if wanted == EVIDENCE:
        return WAYS
    if wanted in GONE:
        raise UsageError(f"{wanted} is gone: no krepair looks for it any more. {GONE[wanted]}")
    found = _table().get(wanted)
    if found is None:
        raise UsageError(
            f"{code!r}: no code of krepair; rules are {CATALOGUE[0].code} to {CATALOGUE[-1].code}",
            next_command=Next.of("explain"),
        )
    return found


def rows() -> tuple[Row, ...]:
    """Return every row of all tables."""
    return tuple(_table().values())


def explain_all() -> View:
    """All tables, one line per code."""
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
                Section(title=title, table=table_of("code | what it says | what to do", _in_words(codes)))
                for title, codes in (("Skipped partitions", SKIPPED), ("Risks of a plan", RISKS))
            ),
            Section(title="Exit codes", table=table_of("code | name | meaning", codes)),
        ),
    )


def _in_words(codes: Mapping[str, CodeInWords]) -> list[tuple[str, str, str]]:
    return [(code, *words) for code, words in codes.items()]


def explained(found: Row | tuple[Way, ...]) -> View:
    """What a code means, as a page."""
    if isinstance(found, tuple):
        return _evidence()
    if isinstance(found, ObjectionRow):
        return _page(f"{found.code}: objection of the review", (("what is wrong", found.text),))
    if isinstance(found, ExitCodeRow):
        return _page(f"{found.code}: exit code {found.name}", (("meaning", found.text),))
    if isinstance(found, PlanCodeRow):
        what = "why a partition is skipped" if found.about == "skipped" else "risk of a plan"
        return _page(f"{found.code}: {what}", (("what it says", found.text), ("what to do", found.then)))
    if isinstance(found, ReasonRow):
        cells = (
            ("what happens to the batch", found.verdict),
            ("why", found.text),
            ("source", found.source),
        )
        return _page(f"{found.code}: reason in a plan", cells)
    cells = (
        ("severity", found.severity.value),
        ("looked for", f"by {found.command}"),
        ("evidence", found.evidence),
        ("danger if left", found.danger),
        ("fix", f"--fix {found.fix}" if found.fix != "none" else "none"),
        *((("another replica", OTHERS_FIRST),) if found.code in LOSS_RULES else ()),
        ("lost if krepair is wrong", found.lost_if_wrong),
        ("source", found.source),
    )
    return _page(f"{found.code}: {found.title}", cells)


def _evidence() -> View:
    """One section a way, in the order in which to try them."""
    sections = [
        Section(
            title=way.option,
            table=table_of(
                NAMES_AND_VALUES, [("when", way.when), ("what may go", way.goes), ("it rests on", way.rests)]
            ),
        )
        for way in WAYS
    ]
    return View(
        title="Options that let markers and tombstones go, in the order to try them", sections=tuple(sections)
    )


def _page(title: str, rows: Iterable[tuple[str, str]]) -> View:
    section = Section(title="What it means", table=table_of(NAMES_AND_VALUES, rows))
    return View(title=title, sections=(section,))
