"""Checkpoint files with a line that is wrong."""

from __future__ import annotations

from pathlib import Path

from krepair.plan import planfile
from krepair.plan.model import Plan
from tests.ops.inline import Inline

RECOVERY, HIGH_WATERMARK, LOG_START, CLEANER = (
    f"{word}-offset-checkpoint" for word in ("recovery-point", "replication", "log-start", "cleaner")
)
FILES = {RECOVERY: "KR403", HIGH_WATERMARK: "KR404", LOG_START: "KR405", CLEANER: "KR410"}
GOOD = b"0\n3\ne-all 0 200\ne-none 0 0\ne-some 0 160\n"
NOW_MS = 1_790_000_000_000
VERBS = Inline(now_ms=NOW_MS, fixes=("checkpoints",))
options, checked = VERBS.options, VERBS.checked


def planned(log_dir: Path, **given: object) -> Plan:
    """A plan, as read back from its file."""
    return planfile.loads(planfile.dumps(VERBS.planned(log_dir, **given)), "PLAN")
