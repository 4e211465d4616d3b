"""Several fixes in one plan, on one partition: what apply and verify see is what plan saw."""

from __future__ import annotations

import random
import re
from itertools import combinations
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.fixes.table import FIXES
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import MendLog, Plan, ReplaceFile, RewriteSegments
from krepair.plan.review import review
from tests import builders
from tests.builders import NOW_MS, LogDir, abort, data
from tests.ops.inline import Inline
from tests.ops.scene import part, tree
from tools.torture.scenes import OFFSETS_TOPIC, keyed

VERBS = Inline(now_ms=NOW_MS, settings=(("index.interval.bytes", "64"), ("delete.retention.ms", "100")))


def carried_out(path: Path, plan: Plan, options: Options) -> None:
    """Applied twice, verified with the originals, and taken back to the byte."""
    before = tree(path)
    for _ in range(2):
        report = apply(plan, options)
        assert (report.exit_code, [one.why for one in report.results if one.why]) == (ExitCode.DONE, [])
    with_originals = VERBS.options(fixes=options.fixes, originals=True)
    assert [one.text for one in verify_plan(plan, with_originals).problems] == []
    assert undo(plan, options).exit_code == ExitCode.DONE
    assert tree(path) == before


def names(plan: Plan, folder: str) -> set[str]:
    """Files that are replaced in a partition."""
    return {change.name for change in part(plan, folder).changes if isinstance(change, ReplaceFile)}


@pytest.mark.parametrize(
    "damage", [b"\xa5" * 44, b"\xa5" * 34, b"\0" * 7], ids=["torn junk", "junk", "zeros"]
)
@pytest.mark.parametrize("fixes", [("epochs", "snapshots"), ("epochs", "index=regenerate", "snapshots")])
def test_epochs_and_snapshots_are_made_from_the_log_whatever_its_transaction_index_is_worth(
    damage: bytes, fixes: tuple[str, ...], tmp_path: Path
) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t", index_interval_bytes=64)
    for base in (0, 10):
        partition.segment(
            data(base, 2, pid=7, sequence=base, txn=True, leader_epoch=base, timestamp=NOW_MS),
            builders.abort(base + 2, pid=7, leader_epoch=base, timestamp=NOW_MS),
        )
    path = log_dir.write()
    folder = path / "t-0"
    (folder / f"{0:020d}.txnindex").write_bytes(damage)
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    (folder / f"{13:020d}.snapshot").write_bytes(b"junk")
    options = VERBS.options(fixes=fixes)
    plan = VERBS.planned(path, fixes=fixes)
    assert {"leader-epoch-checkpoint", f"{13:020d}.snapshot"} <= names(plan, "t-0")
    carried_out(path, plan, options)


def test_no_transaction_index_is_made_of_a_log_whose_offsets_go_back(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t", index_interval_bytes=64)
    for base in (0, 10):
        partition.segment(
            data(base, 2, pid=7, sequence=base, txn=True, timestamp=NOW_MS),
            builders.abort(base + 2, pid=7, timestamp=NOW_MS),
        )
    path = log_dir.write()
    log = path / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() * 2)
    fixes = ("index=regenerate",)
    plan = VERBS.planned(path, fixes=fixes)
    assert f"{0:020d}.txnindex" not in names(plan, "t-0")
    carried_out(path, plan, VERBS.options(fixes=fixes))


@pytest.mark.parametrize("position", [0, 1], ids=["epoch of the batch", "base offset of the batch"])
def test_no_epoch_is_derived_from_a_segment_in_which_an_offset_cannot_be_right(
    position: int, tmp_path: Path
) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t")
    partition.segment(data(0, 2, timestamp=NOW_MS), data(2, 2, leader_epoch=1, timestamp=NOW_MS))
    partition.segment(data(4, 2, leader_epoch=2, timestamp=NOW_MS))
    path = log_dir.write()
    (path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    log = path / "t-0" / f"{0:020d}.log"
    raw = bytearray(log.read_bytes())
    raw[len(data(0, 2).raw) + position] ^= position  # no CRC covers the base offset
    log.write_bytes(raw)
    plan = VERBS.planned(path, fixes=("epochs",))
    assert names(plan, "t-0") == {"leader-epoch-checkpoint"}
    carried_out(path, plan, VERBS.options(fixes=("epochs",)))
    assert f"1 of those recorded, {2 - position} that the log shows" in part(plan, "t-0").changes[0].reason


TAILS = {
    "torn": lambda log: log + data(10**6, 5).raw[:60],
    "zeros": lambda log: log + bytes(3000),
    "bad CRC": lambda log: log[:-1] + bytes([log[-1] ^ 1]),
    "bad CRC of a whole batch behind": lambda log: log + data(10**6, 5).raw[:-1] + b"\xa5",
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    "fixes", [("compact",), ("compact", "epochs"), ("compact", "epochs", "snapshots", "tail")], ids="-".join
)
def test_keys_are_compacted_in_front_of_a_torn_active_segment_whether_it_is_cut_or_not(
    tail: str, fixes: tuple[str, ...], tmp_path: Path
) -> None:
    log_dir = LogDir(tmp_path / "logs")
    keyed(log_dir, OFFSETS_TOPIC, random.Random(1), segments=4)
    path = log_dir.write(clean_stop=False)
    folder = path / f"{OFFSETS_TOPIC}-0"
    log = sorted(folder.glob("*.log"))[-1]
    log.write_bytes(TAILS[tail](log.read_bytes()))
    sorted(folder.glob("*.snapshot"))[-1].unlink()
    (folder / "leader-epoch-checkpoint").unlink()
    plan = VERBS.planned(path, fixes=fixes)
    kinds = {type(change) for change in part(plan, folder.name).changes}
    assert RewriteSegments in kinds
    assert (MendLog in kinds) == ("tail" in fixes and tail != "bad CRC")  # that one needs consent
    carried_out(path, plan, VERBS.options(fixes=fixes))


def test_each_fix_that_leaves_a_partition_alone_says_why(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    log_dir.partition("t").segment(data(0, 10, timestamp=NOW_MS))
    path = log_dir.write(clean_stop=False)
    (path / "recovery-point-offset-checkpoint").write_text("0\n7\nt 0 0\n")
    (path / "replication-offset-checkpoint").write_text("0\n0\n")
    plan = VERBS.planned(path, fixes=("markers", "recovery"), settings=(("cleanup.policy", "compact"),))
    one = part(plan, "t-0")
    assert (one.status, one.code) == ("left alone", "no-high-watermark")
    assert any("recovery-point-offset-checkpoint is damaged" in note for note in one.notes), one


def test_logs_without_a_batch_behind_a_full_one_make_no_group_of_their_own(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    partition = log_dir.partition("t")
    partition.segment(*(data(base, 10, timestamp=NOW_MS) for base in range(0, 100, 10)))
    for base in (100, 200, 300):
        partition.segment(base_offset=base)
    partition.segment(data(400, 1, timestamp=NOW_MS))
    path = log_dir.write()
    sizes = (("cleanup.policy", "compact"), ("segment.bytes", "100"))
    plan = VERBS.planned(path, fixes=("markers",), settings=sizes)
    assert review(plan) == []
    assert part(plan, "t-0").changes == ()


# -- Any two or three fixes plan together, where everything is damaged: with a consent to lose data, and without.

SETTINGS = (("cleanup.policy", "compact"), ("delete.retention.ms", "100"), ("index.interval.bytes", "64"))
COMPACTED = Inline(now_ms=NOW_MS + 3_600_000, settings=SETTINGS)
FIX_NAMES = tuple(fix.name for fix in FIXES)
TOGETHER = [*combinations(FIX_NAMES, 2), *combinations(FIX_NAMES, 3), FIX_NAMES]
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
    commands = [str(one.command) for one in COMPACTED.checked(damaged).findings]
    consent = next(found[1] for found in map(CONSENT.search, commands) if found)
    for names in TOGETHER:
        accepted = (consent,) if consents and "tail" in names else ()
        plan = COMPACTED.planned(damaged, fixes=names, accepted_losses=accepted)
        changed = {
            (one.folder, getattr(change, "name", "")) for one in plan.partitions for change in one.changes
        }
        assert {one for name in names for one in ALONE.get(name, ())} <= changed, names
        assert (("lost-0", LOG) in changed) is bool(accepted), names
