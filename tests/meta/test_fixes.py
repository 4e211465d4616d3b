"""The table of fixes: in the order in which they depend on each other, and each change is made by one of them."""

from __future__ import annotations

import inspect
import re
from typing import Literal

import pytest

from krepair.checks.catalogue import RULES
from krepair.cli import verbs
from krepair.findings import table as findings_table
from krepair.fixes.fix import Fix
from krepair.fixes.table import COMMIT_ORDER, FIXES, owner_of, parse_fixes, requested_fixes, words_of
from krepair.ops import apply as apply_module
from krepair.ops import check, plan, verify
from krepair.ops import undo as undo_module
from tests.plan.plans import replaced_file

Method = Literal["truncate", "regenerate", "remove"]


def test_every_fix_comes_after_those_whose_changes_it_has_to_know() -> None:
    names = [fix.name for fix in FIXES]
    assert len(set(names)) == len(names)
    for number, fix in enumerate(FIXES):
        assert set(fix.after) <= set(names[:number]), fix.name


def test_the_order_of_commit_names_every_fix_of_partitions_once() -> None:
    of_partitions = {fix.name for fix in FIXES} - {fix.name for fix in FIXES if fix.of_root}
    assert sorted(fix.name for fix in COMMIT_ORDER) == sorted(of_partitions)


def test_every_rule_that_the_catalogue_says_a_fix_mends_names_one_that_there_is() -> None:
    assert {rule.fix for rule in RULES.values()} == {"none", *(fix.name for fix in FIXES)}


def test_the_help_of_plan_says_what_each_fix_does() -> None:
    listed = re.findall(r"^    (\w+) {2,}\w", str(verbs.plan.__doc__), re.MULTILINE)
    assert sorted(listed) == sorted(fix.name for fix in FIXES)


def test_words_for_fix_are_taken_as_they_are_shown() -> None:
    for fix in FIXES:
        for word in words_of(fix):
            assert parse_fixes(word) == (word,)
            assert requested_fixes((word,)) == (fix,)
            assert fix.mode((word,)) in (*fix.modes, "")


def test_no_verb_names_a_fix() -> None:
    singles = {type(fix).__name__ for fix in FIXES} | {fix.name.upper() for fix in FIXES}
    for module in (check, plan, verify, apply_module, undo_module):
        named = {name for name, value in vars(module).items() if isinstance(value, Fix) or name in singles}
        assert named == set(), module.__name__
        assert not any(f'"{fix.name}"' in inspect.getsource(module) for fix in FIXES if fix.name != "markers")
    assert not any(isinstance(value, Fix) for value in vars(findings_table).values())


@pytest.mark.parametrize(
    ("name", "method", "rule", "fix"),
    [
        (f"{0:020d}.timeindex", "truncate", "KR201", "index"),
        (f"{0:020d}.txnindex", "regenerate", "KR204", "index"),
        ("leader-epoch-checkpoint", "regenerate", "KR401", "epochs"),
        (f"{9:020d}.snapshot", "regenerate", "KR501", "snapshots"),
        (f"{9:020d}.snapshot", "remove", "KR502", "snapshots"),
        (f"{0:020d}.log.deleted", "remove", "KR601", "leftovers"),
        (f"{0:020d}.timeindex", "remove", "KR601", "leftovers"),
        ("recovery-point-offset-checkpoint", "regenerate", "KR403", "checkpoints"),
    ],
)
def test_the_bytes_of_a_file_are_made_by_one_fix_alone(
    name: str, method: Method, rule: str, fix: str
) -> None:
    assert owner_of(replaced_file(name, method=method, rule=rule)).name == fix


def test_a_log_loses_its_torn_tail_before_anything_that_was_decided_for_it_without() -> None:
    """Killed in between, a start would find another log end than the one up to which keys were compacted."""
    order = [fix.name for fix in COMMIT_ORDER]
    behind = {fix.name for fix in FIXES if "tail" in fix.after} | {"compact", "markers"}
    assert set(order[: order.index("tail")]) & behind == set()
