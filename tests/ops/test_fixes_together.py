"""Any two or three fixes plan together, where everything is damaged: with a consent to lose data, and without."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from krepair.fixes.table import FIXES
from tests.builders import NOW_MS, LogDir, abort, data
from tests.ops.inline import Inline

SETTINGS = (("cleanup.policy", "compact"), ("delete.retention.ms", "100"), ("index.interval.bytes", "64"))
VERBS = Inline(now_ms=NOW_MS + 3_600_000, settings=SETTINGS)
NAMES = tuple(fix.name for fix in FIXES)
TOGETHER = [*combinations(NAMES, 2), *combinations(NAMES, 3), NAMES]


CONSENT = re.compile(r"--accept-data-loss (\S+)")
LOG = f"{40:020d}.log"
ALONE = {
    "leftovers": {("left-0", f"{60:020d}.log.deleted")},
    "tail": {("torn-0", LOG)},
    "epochs": {("lost-0", "leader-epoch-checkpoint"), ("torn-0", "leader-epoch-checkpoint")},
    "snapshots": {("torn-0", f"{40:020d}.snapshot")},
    "index": {("lost-0", f"{0:020d}.timeindex"), ("torn-0", f"{20:020d}.index")},
}
"""What a fix changes, whatever is asked beside it."""
ODD = {
    f"{0:020d}.timeindex": bytes(24),
    f"{20:020d}.index": b"\xff" * 12,
    f"{20:020d}.txnindex": b"\xff" * 34,
    f"{40:020d}.snapshot": b"junk",
    "leader-epoch-checkpoint": b"0\n1\n",
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After a kill: damage that costs records, a torn tail, files that a broker left behind; nothing else is whole."""
    log_dir = LogDir(tmp_path_factory.mktemp("damaged") / "logs")
    for topic in ("lost", "torn", "left"):
        partition = log_dir.partition(topic, index_interval_bytes=64)
        for base in (0, 20, 40):
            batches = [
                data(base + n, 2, pid=7, sequence=base + n, txn=True, timestamp=NOW_MS + n)
                for n in range(0, 18, 2)
            ]
            partition.segment(*batches, abort(base + 18, pid=7, timestamp=NOW_MS + base))
    path = log_dir.write(clean_stop=False)
    lost, torn, left = (path / f"{topic}-0" for topic in ("lost", "torn", "left"))
    for folder in (lost, torn):
        for name, content in ODD.items():
            (folder / name).write_bytes(content)
    broken = bytearray((lost / LOG).read_bytes())
    broken[300] ^= 0xFF
    (lost / LOG).write_bytes(broken)
    with (torn / LOG).open("ab") as file:
        file.write(bytes(7))
    (left / f"{60:020d}.log.deleted").write_bytes(b"x")
    (path / "replication-offset-checkpoint").write_bytes(b"0\n")
    (path / "recovery-point-offset-checkpoint").write_bytes(b"0\n3\nlost 0 20\ntorn 0 20\nleft 0 20\n")
    return path


@pytest.mark.parametrize("consents", [False, True], ids=["no consent", "consent"])
def test_any_two_or_three_fixes_plan_together(damaged: Path, consents: bool) -> None:
    commands = [str(one.command) for one in VERBS.checked(damaged).findings]
    consent = next(found[1] for found in map(CONSENT.search, commands) if found)
    for names in TOGETHER:
        accepted = (consent,) if consents and "tail" in names else ()
        plan = VERBS.planned(damaged, fixes=names, accepted_losses=accepted)
        changed = {
            (one.folder, getattr(change, "name", "")) for one in plan.partitions for change in one.changes
        }
        assert {one for name in names for one in ALONE.get(name, ())} <= changed, names
        assert (("lost-0", LOG) in changed) is bool(accepted), names
