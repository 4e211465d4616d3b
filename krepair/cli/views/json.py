"""One versioned JSON document per run, on standard output, and its shape for the published schemas."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from krepair import __version__
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.formats.words import all_printable, json_for_terminals

# C1 controls and the marks that turn the direction of text; JSON itself escapes C0.


def report_document(verb: str, report: Any, exit_code: ExitCode) -> bytes:
    """The document of a run that ended.

    Args:
        verb: as typed.
        report: any msgspec value.
        exit_code: what the process will return.
    """
    return _encode(_head(verb, exit_code) | {"report": _builtins(report)})


_SIGNAL: Final = 128
"""``128 + n`` is signal ``n``."""


def error_document(
    verb: str, message: str, next_command: str, exit_code: int, *, one_line: bool = False
) -> bytes:
    """The document of a run that was refused or failed; on one line for a verb that writes one object a line."""
    code = ExitCode(exit_code) if exit_code in set(ExitCode) else ExitCode.BUG
    if exit_code > _SIGNAL:
        code = ExitCode.INTERRUPTED
    head = _head(verb, code) | {"exit_code": exit_code}
    error = ErrorBody(message=message, next_command=next_command)
    return _encode(head | {"error": msgspec.structs.asdict(error)}, one_line=one_line)


def write(document: bytes) -> None:
    """Put a document on standard output."""
    sys.stdout.write(document.decode())
    sys.stdout.flush()


def _head(verb: str, exit_code: ExitCode) -> dict[str, Any]:
    head = Head(
        format_version=DOCUMENT_VERSION,
        tool_version=__version__,
        verb=verb,
        exit_code=int(exit_code),
        code=exit_code.name,
        meaning=EXIT_CODE_MEANING[exit_code],
    )
    return msgspec.structs.asdict(head)


def _builtins(report: Any) -> Any:
    return all_printable(msgspec.to_builtins(report, str_keys=True))


def _encode(document: dict[str, Any], *, one_line: bool = False) -> bytes:
    encoded = msgspec.json.encode(all_printable(document))
    text = (encoded if one_line else msgspec.json.format(encoded, indent=2)).decode()
    return json_for_terminals(text).encode() + b"\n"


# -- the shape of everything that ``--json`` prints: for the published schemas, and for those who build it

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
    from krepair.checks.rule import Rule
    from krepair.ops.compare import CompareReport
    from krepair.ops.diff import PlanDiff
    from krepair.ops.explain import ObjectionRow, ReasonRow
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
    from krepair.plan.model import Plan
    from krepair.rules.evidence import Way

    row = Rule | ReasonRow | ObjectionRow
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
        "explain": (row, tuple[row, ...], tuple[Way, ...]),
        "dump": (Line,),
        "diff": (PlanDiff,),
        "warm": (WarmReport,),
    }
