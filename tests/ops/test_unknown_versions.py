"""A file or a batch of a later version than krepair knows is unknown: no fix touches it, nothing calls it damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.checks.catalogue import Severity
from krepair.errors import KrepairError
from krepair.fixes.table import FIXES
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_log_dir
from krepair.plan.model import Plan
from tests import naive
from tests.ops.scene import tree
from tests.ops.snapshots import checked, made, options

FIRST, ACTIVE = f"t-0/{0:020d}.log", f"t-0/{10:020d}.log"


def _starts_with(text: str) -> Callable[[bytes], bytes]:
    return lambda content: text.encode() + content.partition(b"\n")[2]


def _magic(batch: int) -> Callable[[bytes], bytes]:
    def other(content: bytes) -> bytes:
        place = naive.parse(content)[batch].position + 16
        return content[:place] + b"\3" + content[place + 1 :]

    return other


UNKNOWN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "snapshot": (f"t-0/{10:020d}.snapshot", lambda content: b"\0\3" + content[2:]),
    "first batch": (FIRST, _magic(0)),
    "last batch of a closed segment": (FIRST, _magic(-1)),
    "last batch of all": (ACTIVE, _magic(-1)),
    "aborted transactions": (f"t-0/{6:020d}.txnindex", lambda content: b"\0\3" + content[2:]),
    "leader epochs": ("t-0/leader-epoch-checkpoint", _starts_with("3\n")),
    "recovery points": ("recovery-point-offset-checkpoint", _starts_with("3\n")),
    "high watermarks": ("replication-offset-checkpoint", _starts_with("3\n")),
    "log starts": ("log-start-offset-checkpoint", lambda _: b"3\n1\nt 0 0\n"),
    "cleaner": ("cleaner-offset-checkpoint", lambda _: b"3\n1\nt 0 0\n"),
    "meta.properties": ("meta.properties", lambda content: content.replace(b"version=0", b"version=3")),
}


def _scene(tmp_path: Path, kind: str, *, clean: bool) -> tuple[Path, str]:
    log_dir = made(tmp_path, clean=clean)
    name, other = UNKNOWN[kind]
    path = log_dir / name
    before = path.read_bytes() if path.exists() else b""
    path.write_bytes(other(before))
    assert path.read_bytes() != before
    return log_dir, name


def _named(plan: Plan) -> set[str]:
    root = {change.name for change in (() if plan.root is None else plan.root.changes)}
    return root | {
        f"{one.folder}/{change.name}"
        for one in plan.partitions
        for change in one.changes
        if hasattr(change, "name")
    }


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_torn_tail_is_cut_beside_a_later_transaction_index(tmp_path: Path, clean: bool) -> None:
    log_dir = made(tmp_path, clean=clean)
    index, log = log_dir / ACTIVE.replace(".log", ".txnindex"), log_dir / ACTIVE
    later = b"\0\3" + index.read_bytes()[2:]
    index.write_bytes(later)
    log.write_bytes(log.read_bytes()[:-5])
    size = log.stat().st_size
    plan = make_plan(str(log_dir), options(fixes=("tail", "index", "recovery")))
    apply(plan, options())
    assert (log.stat().st_size < size, index.read_bytes()) == (True, later)
    problems = verify_log_dir(str(log_dir), options()).problems
    assert ["KR312" in each.text for each in problems] == [True] * clean  # the clean stop had recorded more


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_of_a_later_version_is_named_and_left_alone(tmp_path: Path, kind: str, clean: bool) -> None:
    log_dir, name = _scene(tmp_path, kind, clean=clean)
    before = tree(log_dir)
    report = checked(log_dir)
    (said,) = [one for one in report.findings if "unknown version 3, not looked at" in one.evidence]
    assert (said.fix, said.severity) == ("none", Severity.CONFUSING)
    for fixes in ((), *((fix.name,) for fix in FIXES)):
        try:
            plan = make_plan(str(log_dir), options(fixes=fixes))
        except KrepairError:
            continue
        assert name not in _named(plan), fixes
        apply(plan, options())
        after = tree(log_dir)
        assert after[name] == before[name], fixes
    assert [one for one in verify_log_dir(str(log_dir), options()).problems if "snapshot" in one.file] == []
