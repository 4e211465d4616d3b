"""Kafka's own loader at every instant of completing a pending swap and of taking that back: always the new records."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.plan.model import CompleteSwap
from tests.brokers.swaps import CASES, scene
from tests.commit.scene import tree
from tests.commit.states_disk import StatesDisk, load, verdict, verdicts
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge, JudgeError
from tests.ops import pending
from tests.ops.pending import BASE, EXTENSIONS, FOLDER, name, options
from tests.ops.scene import part

pytestmark = [pytest.mark.broker, pytest.mark.slow]

JudgeOf = Callable[[str], Judge]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_broker_finishes_the_pending_swap_itself_to_the_new_records(
    judge: JudgeOf, tmp_path: Path, version: str
) -> None:
    root = pending.write(tmp_path / "logs", deleted=(200,))
    assert verdict(load(judge(version), root)) == "NEW"


@pytest.mark.parametrize(("order", "version"), CASES)
def test_a_broker_started_at_any_instant_of_apply_or_undo_serves_the_new_records(
    judge: JudgeOf, tmp_path: Path, order: str, version: str
) -> None:
    root = tmp_path / "logs"
    chosen, plan = scene(root, order, version)
    before = tree(root)
    disk = StatesDisk(root, tmp_path / "apply")
    assert apply(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "NEW"} == {}
    assert len(found) >= 15
    disk = StatesDisk(root, tmp_path / "undo")
    assert undo(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "NEW"} == {}
    assert len(found) >= 15
    assert before == tree(root)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gone": (100,)},
        {"gone": (300,)},
        {"gone": (100, 200, 300)},
        {"deleted": (100, 200)},
        {"until": 356},
        {"until": 300},
        {"until": 206, "gone": (200,)},
        {"until": 107},
    ],
    ids=str,
)
def test_apply_ends_with_what_each_broker_makes_of_the_swap_itself(
    judge: JudgeOf, tmp_path: Path, version: str, given: dict[str, Any]
) -> None:
    """Records, transactions, ends and segments; 2.2.1 also makes producer state anew, here it stays as it was."""
    root = pending.write(tmp_path / "logs", **given)
    theirs = load(judge(version), Path(shutil.copytree(root, tmp_path / "copy")))
    chosen = options()
    plan = make_plan(str(root), chosen)
    assert any(isinstance(change, CompleteSwap) for change in part(plan, FOLDER).changes)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    ours = load(judge(version), root)
    assert theirs.uncommitted == ours.uncommitted
    assert theirs.committed == ours.committed
    assert (theirs.log_start, theirs.log_end, theirs.stable_offset, theirs.segments) == (
        ours.log_start,
        ours.log_end,
        ours.stable_offset,
        ours.segments,
    )
    assert version == "2.2.1" or theirs.producers == ours.producers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_swap_that_a_cleaned_makes_void_is_thrown_away_by_every_broker_and_by_apply(
    judge: JudgeOf, tmp_path: Path, version: str
) -> None:
    """Kafka's own crash between its first two renames: the records of before stay readable."""
    root = pending.write(tmp_path / "logs")
    for extension in EXTENSIONS[1:]:
        (root / FOLDER / name(BASE, f"{extension}.swap")).rename(
            root / FOLDER / name(BASE, f"{extension}.cleaned")
        )
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    theirs = load(judge(version), copy)
    chosen = options()
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.DONE
    ours = load(judge(version), root)
    assert verdict(ours) == "OLD"
    assert theirs.uncommitted == ours.uncommitted


def test_versions_part_on_a_damaged_swap_which_is_why_it_is_left_alone(
    judge: JudgeOf, tmp_path: Path
) -> None:
    root = pending.write(tmp_path / "logs")
    swap = root / FOLDER / name(BASE, ".log.swap")
    data = bytearray(swap.read_bytes())
    data[7000] ^= 1
    swap.write_bytes(data)
    assert part(make_plan(str(root), options()), FOLDER).code == "leftovers"
    sizes = {}
    for version in ("2.2.1", "3.9.2"):
        copy = Path(shutil.copytree(root, tmp_path / version))
        with contextlib.suppress(JudgeError):  # the newer one then fails to read it
            load(judge(version), copy)
        sizes[version] = (copy / FOLDER / name(BASE)).stat().st_size
    assert sizes == {"2.2.1": 6913, "3.9.2": 14196}


def test_an_index_swap_alone_misleads_new_brokers_and_gone_all_serve_every_record(
    judge: JudgeOf, tmp_path: Path
) -> None:
    """M's indexes beside segment 100: since 3.0 they are renamed over the good ones, unread."""
    root = pending.write(tmp_path / "logs", without=(".log", ".txnindex"))
    spoilt = Path(shutil.copytree(root, tmp_path / "spoilt"))
    assert verdict(load(judge("3.9.2"), spoilt)) != "OLD"
    chosen = options()
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.DONE
    for version in VERSIONS:
        assert verdict(load(judge(version), Path(shutil.copytree(root, tmp_path / version)))) == "OLD"
