"""The architecture page's example of a new fix works: it reads, finds, proposes, applies and verifies."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from krepair.checks.catalogue import RULES
from krepair.errors import ExitCode
from krepair.findings import table as findings_table
from krepair.fixes import carry_out, fix, table
from krepair.ops import check as check_verb
from krepair.ops import plan as plan_verb
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan import change_review
from tests import builders as b
from tests.ops.scene import tree

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> fix.Fix:
    """The example, in the catalogue and the table as the steps say, and allowed by the review."""
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## How to add a fix")[2]
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "halves"}
    exec(compile(code[1], "docs/architecture.md", "exec"), names)
    made = names["HALVES"]
    assert isinstance(made, fix.Fix)
    fixes = (made, *table.FIXES)
    for module in (table, carry_out, check_verb, findings_table):
        monkeypatch.setattr(module, "FIXES", fixes)
    order = (*table.COMMIT_ORDER, made)
    for module in (table, plan_verb):
        monkeypatch.setattr(module, "COMMIT_ORDER", order)
    monkeypatch.setitem(RULES, "KR406", msgspec.structs.replace(RULES["KR406"], fix="halves"))
    monkeypatch.setattr(change_review, "_may_go", lambda *_: True)
    return made


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    directory = b.LogDir(tmp_path / "logs")
    directory.partition("t").segment(b.data(0, 5), b.data(5, 5))
    directory.write(clean_stop=True)
    (tmp_path / "logs" / "t-0" / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    return tmp_path / "logs"


def options(**values: object) -> Options:
    return Options(engine=EngineName.INLINE, now_ms=b.NOW_MS, **values)  # type: ignore[arg-type]


@pytest.mark.usefixtures("halves")
def test_the_example_finds_removes_and_gives_back_a_half_written_file(log_dir: Path) -> None:
    before = tree(log_dir)
    found = [one for one in check([str(log_dir)], options()).log_dirs[0].findings if one.partition == "t-0"]
    assert [(one.rule, one.file) for one in found if one.rule == "KR406"] == [
        ("KR406", "leader-epoch-checkpoint.tmp")
    ]
    plan = make_plan(str(log_dir), options(fixes=table.parse_fixes("halves")))
    assert [change.change_id for change in plan.partitions[0].changes] == ["t-0/leader-epoch-checkpoint.tmp"]
    assert [table.owner_of(change).name for change in plan.partitions[0].changes] == ["halves"]
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert not (log_dir / "t-0" / "leader-epoch-checkpoint.tmp").exists()
    assert verify_plan(plan, options()).problems == ()
    assert undo(plan, options()).exit_code == ExitCode.DONE
    assert tree(log_dir) == before
