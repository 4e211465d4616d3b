"""All fixes, in the order of their dependencies. A new fix is one module and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from krepair.checks.catalogue import Finding, counts
from krepair.errors import UsageError
from krepair.fixes.checkpoints import CHECKPOINTS
from krepair.fixes.compact.fix import COMPACT
from krepair.fixes.epochs import EPOCHS
from krepair.fixes.fix import Fix
from krepair.fixes.index.fix import INDEX
from krepair.fixes.leftovers import LEFTOVERS
from krepair.fixes.markers.fix import MARKERS
from krepair.fixes.recovery.fix import RECOVERY
from krepair.fixes.snapshots import SNAPSHOTS
from krepair.fixes.tail.fix import TAIL
from krepair.plan.model import Change

FIXES: Final[tuple[Fix, ...]] = (
    LEFTOVERS, COMPACT, MARKERS, TAIL, EPOCHS, SNAPSHOTS, INDEX, RECOVERY, CHECKPOINTS,
)  # fmt: skip

# The order protects a run that is killed between two changes: the log must always be one that every later change of the
# plan was decided for. A torn tail is cut first, since only then does a start find the log end up to which keys were
# compacted. Small derived files follow, as a broker repairs each state in between. A .txnindex is built from all logs
# of its partition, so it comes before any of them loses a batch. Leftovers of a broker go late, since one of them may
# be what keeps a swap from being completed. The new segment at the log end comes last, as it depends on all the others.
COMMIT_ORDER: Final[tuple[Fix, ...]] = (
    TAIL,
    INDEX,
    EPOCHS,
    SNAPSHOTS,
    MARKERS,
    COMPACT,
    LEFTOVERS,
    RECOVERY,
)


def owner_of(change: Change) -> Fix:
    """Return the fix that makes and verifies the bytes of a change; the review checked that it was requested."""
    name = change.fix
    return next(fix for fix in FIXES if fix.name == name)


def requested_fixes(words: Iterable[str]) -> tuple[Fix, ...]:
    """Return the requested fixes, in the order of the table."""
    known = tuple(words)
    return tuple(fix for fix in FIXES if fix.is_asked(known))


def words_of(fix: Fix) -> tuple[str, ...]:
    """Return the words that ``--fix`` accepts for a fix."""
    return (fix.name, *(f"{fix.name}={mode}" for mode in fix.modes))


def parse_fixes(text: str) -> tuple[str, ...]:
    """Read ``--fix``: names separated by commas.

    Returns:
        The names, sorted, each once.

    Raises:
        UsageError: a name is unknown, or a fix is named with two modes.
    """
    names = sorted({name.strip() for name in text.split(",") if name.strip()})
    known = [word for fix in sorted(FIXES, key=lambda fix: fix.name) for word in words_of(fix)]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            like = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"--fix {name!r}: unknown; the names are {', '.join(known)}{like}")
    for fix in FIXES:
        if sum(name in words_of(fix) for name in names) > 1:
            raise UsageError(f"--fix {text!r}: one mode of {fix.name} at a time")
    if not names:
        raise UsageError(f"--fix needs at least one of {', '.join(known)}")
    return tuple(names)


def command_for(findings: Iterable[Finding], best_modes: dict[str, str]) -> str:
    """Return the value of ``--fix`` that repairs the findings, or empty.

    Args:
        findings: findings of one log directory.
        best_modes: recommended mode of each fix by its name, see ``Fix.best_mode``.
    """
    repairable = [finding for finding in findings if counts(finding) and finding.fix != "none"]
    wanted = [fix for fix in FIXES if any(fix.answers(finding) for finding in repairable)]
    words = (best_modes.get(fix.name, fix.name) for fix in wanted)
    return ",".join(word for word in words if word)
