"""The shape of everything that ``--json`` prints: for the published schemas, and for those who build it."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

DOCUMENT_VERSION: Final = "1.0"


class Head(Struct, frozen=True, kw_only=True):
    """What every document begins with.

    Attributes:
        format_version: major.minor of these documents.
        tool_version: of krepair.
        verb: as typed.
        exit_code: of the process.
        code: name of the exit code; of a signal ``BUG``.
        meaning: of the exit code, in words.
    """

    format_version: str
    tool_version: str
    verb: str
    exit_code: int
    code: str
    meaning: str


class ErrorBody(Struct, frozen=True, kw_only=True):
    """Why a run was refused or failed.

    Attributes:
        message: in words.
        next_command: what to type next, or empty.
    """

    message: str
    next_command: str


def reports() -> dict[str, tuple[Any, ...]]:
    """Verb -> types of what is under ``report``; of ``dump``, which prints one object a line, the lines."""
    from krepair.ops.compare import CompareReport
    from krepair.ops.explain import ObjectionRow, ReasonRow, RuleRow, WayRow
    from krepair.ops.facts import FactsReport
    from krepair.ops.groups import GroupsReport
    from krepair.ops.reports import (
        ApplyReport,
        CheckReport,
        KeptReport,
        VerifyEachReport,
        VerifyReport,
    )
    from krepair.ops.transactions import TransactionsReport
    from krepair.ops.warm import WarmReport
    from krepair.pipeline.dump.model import Line
    from krepair.plan.diff import PlanDiff
    from krepair.plan.model import Plan

    row = RuleRow | ReasonRow | ObjectionRow
    return {
        "check": (CheckReport,),
        "plan": (Plan,),
        "show": (Plan,),
        "apply": (ApplyReport,),
        "verify": (VerifyReport, VerifyEachReport),
        "undo": (ApplyReport, KeptReport),
        "purge": (ApplyReport, KeptReport),
        "groups": (GroupsReport,),
        "compare": (CompareReport,),
        "facts": (FactsReport,),
        "transactions": (TransactionsReport,),
        "explain": (row, tuple[row, ...], tuple[WayRow, ...]),
        "dump": (Line,),
        "diff": (PlanDiff,),
        "warm": (WarmReport,),
    }
