"""Results of ``apply``, ``undo`` and ``purge`` as plain values, which the command line prints as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, field

from krepair.commit.result import ChangeResult
from krepair.errors import ExitCode
from krepair.next_command import NOTHING, Next
from krepair.report import Report

KeptState = Literal["applied", "half done", "undone", "being purged", "staged", "unknown"]

_DONE_OUTCOMES = frozenset({"committed", "already", "undone", "purged", "gone"})


class KeptPlan(Struct, frozen=True, kw_only=True):
    """Backups of one plan in a log directory.

    Attributes:
        plan_id: id of the plan.
        state: ``applied``; ``half done`` (a change was interrupted); ``undone`` (only what is left over has to go);
            ``being purged``; ``staged`` (new files only, nothing was changed); ``unknown`` (a journal or folder could
            not be read).
        partitions: names of the folders with backups of the plan, ascending.
        bytes: size in bytes of the files without another link, which purge frees.
        last_written_ms: time of the last write to a journal of the plan, in epoch milliseconds; -1 if there is no
            journal.
        age_seconds: seconds since the last write, counted up to ``now_ms``; -1 if unknown.
        copy: state of the copy of the plan: ``there``, ``missing``, or ``damaged`` (no copy can be used).
        undo: ``yes``, ``partly`` (not in every partition) or ``no``: can the plan be undone, judged without reading the
            backups.
        why_not: first reason for ``partly`` or ``no``, or the fault of a copy that cannot be used.
        next_command: the command to type about ``why_not``, such as for a damaged journal; may be empty.
        forbidden: true if permissions alone keep this user from reading the backups.
        fence: folders whose recovery guard is set: a broker that starts now recovers the partition.
        half_done: ids of the changes that were interrupted.
    """

    plan_id: str
    state: KeptState
    partitions: tuple[str, ...] = ()
    bytes: int = 0
    last_written_ms: int = -1
    age_seconds: int = -1
    copy: Literal["there", "missing", "damaged"] = "missing"
    undo: Literal["yes", "partly", "no"] = "no"
    why_not: str = ""
    next_command: Next = field(default_factory=Next)
    forbidden: bool = False
    fence: tuple[str, ...] = ()
    half_done: tuple[str, ...] = ()


class KeptReport(Report, frozen=True, kw_only=True):
    """List of backups that ``undo`` and ``purge`` print when no plan is named.

    Attributes:
        log_dir: path of the log directory.
        plans: backups of each plan, the plan written last first: the order in which the plans can be undone.
    """

    log_dir: str
    plans: tuple[KeptPlan, ...] = ()


class ApplyReport(Report, frozen=True, kw_only=True):
    """Result of ``apply``, ``undo`` or ``purge``.

    Attributes:
        verb: name of the verb that ran.
        plan_id: id of the plan.
        log_dir: path of the log directory.
        results: results of the changes, in the order of the plan.
        slow_because: reason why Spark could not be used where it would be faster; else empty.
        uncleanable_partitions: KIP-346's count after this run.
        uncleanable_bytes: KIP-346's bytes after this run.
        interrupted: true if the run was stopped at a safe point.
        digest: digest of the plan, all 64 hex digits; empty where the plan was not read.
        notes: other facts to know, one sentence each, such as that the directory was moved.
        taken_back: leftovers of an earlier run that this run rolled back without doing anything else: the guard of a
            partition, or the id of a half-done change.
        by_hand: shell commands, printed by ``undo`` for a damaged journal, that restore the backups; a person types
            these commands while the broker is stopped.
    """

    verb: Literal["apply", "undo", "purge"]
    plan_id: str
    log_dir: str
    results: tuple[ChangeResult, ...] = ()
    slow_because: str = ""
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    interrupted: bool = False
    digest: str = ""
    notes: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """DONE if everything is done; the shared code if nothing was done or undone; else PARTLY."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        missed = [result for result in self.results if result.outcome not in _DONE_OUTCOMES]
        if not missed:
            return ExitCode.DONE
        if len(missed) < len(self.results) or self.taken_back:
            return ExitCode.PARTLY
        return _worst(result.exit_code for result in missed)

    @property
    def bytes_freed(self) -> int:
        """Bytes freed by all results together."""
        return sum(result.bytes_freed for result in self.results)


def next_of(results: Sequence[ChangeResult], again: Next, otherwise: Next) -> Next:
    """Return the command to type after a verb that works on a plan.

    Args:
        results: results of the verb's changes.
        again: the same command, which resumes the work after a crash or a full disk.
        otherwise: the command for a run without a failure that needs another command.
    """
    failed = [result for result in results if result.outcome == "failed"]
    command = next((result.next_command for result in (*failed, *results) if result.next_command), NOTHING)
    command = command or next((again.at(result.again) for result in failed if result.again), NOTHING)
    resumable = {result.exit_code for result in failed} & {ExitCode.UNWRITABLE, ExitCode.PARTLY}
    return command or (again if resumable else otherwise)


def _worst(codes: Iterable[int]) -> ExitCode:
    """Return the code that all results share; PARTLY if any result has it; else REFUSED: nothing was changed."""
    known = {code for code in codes if code}
    if ExitCode.PARTLY in known:
        return ExitCode.PARTLY
    if len(known) != 1:
        return ExitCode.REFUSED
    try:
        return ExitCode(known.pop())
    except ValueError:
        return ExitCode.BUG
